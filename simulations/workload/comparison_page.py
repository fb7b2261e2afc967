"""The page that shows how two recordings differ, in one HTML file that needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

from callboard.simulations.workload.behaviour import BehaviourRow, QueueFacts, QueueRow
from callboard.simulations.workload.distances import Comparison, Distance
from callboard.simulations.workload.plots import Axis, Series, plot
from callboard.simulations.workload.report import (
    Named,
    arrival_plot,
    burst_plot,
    facts_of,
    gap_plot,
    grid,
    key_plot,
    page,
    rate_plot,
    table,
    value_plot,
)
from callboard.simulations.workload.verdicts import Verdict, number_text

NAME_MAX: Final = 24
_HEAD: Final = "<h2 style='font-size: 1.25rem; margin: 2.5rem 0 1rem'>"
_X: Final = {
    "rate": ("Rate over time", "part of the time", False),
    "burst": ("Events per second", "events in one second, at the mean of the one with the lower rate", False),
    "arrivals": ("Time between events", "time, in units of its mean", True),
    "value_bytes": ("Value sizes", "bytes", False),
    "key_skew": ("Key skew", "part of the keys, the most frequent first", True),
    "key_gaps": ("Time between events of one key", "time, in units of its median", True),
    "session_events": ("Sessions: events", "events", False),
    "session_length": ("Sessions: length", "seconds", True),
}
"""By distance: what its plot is called, what is on its x axis, and whether that is in powers of ten."""
_RAW: Final = (
    ("Rate over time", rate_plot),
    ("Events per second", burst_plot),
    ("Time between events", arrival_plot),
    ("Keys by rank", key_plot),
    ("Time between events of one key", gap_plot),
    ("Value sizes", value_plot),
)


def comparison_page(profiles: Named, comparison: Comparison) -> str:
    """The whole page, for two profiles with their names, which are cut to what a plot has room for."""
    title = " and ".join(name for name, _ in profiles)
    profiles = [
        (f"{letter}: {name}"[:NAME_MAX], profile)
        for letter, (name, profile) in zip("AB", profiles, strict=True)
    ]
    names = [name for name, _ in profiles]
    body = [
        f"<p><strong>{escape(comparison.words)}</strong></p>",
        f"<p>{escape(' '.join(comparison.notes))}</p>",
        _summary(profiles, comparison),
        f"{_HEAD}What is compared</h2><p>A distance is the largest difference in height.</p>",
        grid([(_X[each.name][0], _note(each), _curves(each, names)) for each in comparison.distances]),
        *_joined(comparison, names),
        f"{_HEAD}The recordings as they are</h2>",
        grid([(heading, "", draw(profiles)) for heading, draw in _RAW]),
    ]
    return page(title, "".join(body))


def _joined(comparison: Comparison, names: Sequence[str]) -> list[str]:
    """The rows and queues, where there are any."""
    if not comparison.rows:
        return []
    rows = [
        (row.title, *map(number_text, row.values), row.verdict.value, row.note) for row in comparison.rows
    ]
    queues = [_queue_cells(queue) for queue in comparison.queues]
    heads = ("", "wait p50", "wait p99", "depth p50", "depth p99", "apart", "verdict", "note")
    return [
        f"{_HEAD}What joins events</h2>",
        table(rows, ("", *names, "verdict", "note"), _marked(comparison.rows)),
        f"{_HEAD}Queues</h2><p>{escape(_QUEUE_NOTE)}</p>",
        table(queues, heads, _marked(comparison.queues)),
        grid([(each.title, _queue_note(each), _waits(each, names)) for each in comparison.queues]),
    ]


_QUEUE_NOTE: Final = (
    "Waits are in service times, A / B. Apart: the largest of the four ratios, of waits with the service time, and of"
    " depths with one event more. Events that wait for an overloaded queue are not followed to the end."
)


def _marked(judged: Sequence[BehaviourRow | QueueRow]) -> set[int]:
    return {number for number, each in enumerate(judged) if each.verdict is Verdict.DIFFERENT}


def _queue_cells(queue: QueueRow) -> tuple[str, ...]:
    if queue.facts is None:
        return (queue.title, *[""] * 5, queue.verdict.value, queue.note)
    cells = [_both(*(number_text(each.wait(percent)) for each in queue.facts)) for percent in (50, 99)]
    cells += [_both(*(number_text(each.depth(percent)) for each in queue.facts)) for percent in (50, 99)]
    factor = "" if queue.factor is None else number_text(queue.factor)
    return (queue.title, *cells, factor, queue.verdict.value, queue.note)


def _both(one: str, two: str) -> str:
    return f"{one} / {two}"


def _queue_note(queue: QueueRow) -> str:
    return f"{queue.verdict.value}.{f' {queue.note.capitalize()}.' if queue.note else ''}".capitalize()


def _waits(queue: QueueRow, names: Sequence[str]) -> str:
    series = [Series(name, _longer(facts)) for name, facts in zip(names, queue.facts or (), strict=False)]
    x, y = Axis("wait, in service times", is_log=True), Axis("part that waits longer", is_log=True)
    return plot(series, x, y, title=f"Waits: {queue.title}")


def _longer(facts: QueueFacts) -> list[tuple[float, float]]:
    """By wait, the part of the events that wait at least so long."""
    left = total = sum(many for _, many in facts.waits)
    points = []
    for wait, many in facts.waits:
        points.append((wait / facts.service, left / total))
        left -= many
    return points


def _note(distance: Distance) -> str:
    value = "" if distance.value is None else f"Distance {float(distance.value):.3f}: "
    return f"{value}{distance.verdict.value}.{f' {distance.note.capitalize()}.' if distance.note else ''}"


def _summary(profiles: Named, comparison: Comparison) -> str:
    distances = [
        (
            _X[each.name][0],
            "" if each.value is None else f"{float(each.value):.3f}",
            each.verdict.value,
        )
        for each in comparison.distances
    ]
    first, second = (facts_of(profile) for _, profile in profiles)
    facts = [(name, value, other) for (name, value), (_, other) in zip(first, second, strict=True)]
    return table(distances, ("", "distance", "verdict")) + table(facts, ("", *(name for name, _ in profiles)))


def _curves(distance: Distance, names: Sequence[str]) -> str:
    heading, label, is_log = _X[distance.name]
    unit = 1_000_000 if distance.name == "session_length" else 1
    curves = distance.curves or ()
    series = [
        Series(name, [(float(x) / unit, float(y)) for x, y in curve.points])
        for name, curve in zip(names, curves, strict=False)
    ]
    if distance.name == "session_events":
        ticks = range(1, 65, 2)
        x = Axis(label, write=lambda what: f"{2 ** max(int(what) - 1, 0):,}", ticks=tuple(ticks))
    else:
        x = Axis(label, is_log=is_log)
    return plot(series, x, Axis("part of the whole", has_floor=True), title=heading)
