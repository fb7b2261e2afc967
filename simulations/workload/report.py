"""The page that shows a profile: its numbers and plots, in one HTML file that needs nothing else."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from fractions import Fraction
from html import escape
from itertools import accumulate
from typing import Final

from callboard.simulations.workload.plots import STYLE, Axis, Series, SeriesStyle, instant_text, plot
from callboard.simulations.workload.profile_format import (
    HOUR_US,
    SECOND_US,
    Histogram,
    WorkloadProfile,
    total,
    weighted_sum,
)
from callboard.simulations.workload.verdicts import number_text

_SPANS: Final = ((16, "16 µs"), (1_000, "1 ms"), (SECOND_US, "1 s"), (60 * SECOND_US, "1 min"))
_LONG_SPANS: Final = ((3_600 * SECOND_US, "1 h"), (86_400 * SECOND_US, "1 d"))
_CLASS_TEXTS: Final = {us.bit_length(): text for us, text in (*_SPANS, *_LONG_SPANS)}
_UNITS: Final = ((86_400, "days"), (3_600, "hours"), (60, "minutes"))
_TOP_SHOWN: Final = 10
BARS_MAX: Final = 80
"""Counts of a plot; more are dots."""


def profile_page(profile: WorkloadProfile, *, title: str) -> str:
    """The whole page. `title` is shown as text."""
    sections = [
        ("Rate over time", _rate_note(profile), rate_plot([("events", profile)])),
        ("Rate by hour of day (UTC)", _hours_note(profile), _hours_plot(profile)),
        ("Events per second", _burst_note(profile), burst_plot([("seconds", profile)])),
        ("Time between events", _arrival_note(profile), arrival_plot([("events", profile)])),
        ("Keys by rank", _key_note(profile), key_plot([("keys", profile)])),
        ("Time between events of one key", _gap_note(profile), gap_plot([("events", profile)])),
        ("Sessions: events", _session_note(profile), _session_events_plot(profile)),
        ("Sessions: length", "From a session's first event to its last.", _session_length_plot(profile)),
        ("Value sizes", _value_note(profile), value_plot([("events", profile)])),
        ("Key sizes", f"Of {profile.distinct_keys:,} distinct keys.", _key_bytes_plot(profile)),
    ]
    return page(title, f"{_summary(profile)}{grid(sections)}")


def page(title: str, body: str) -> str:
    """A page around a body, with the style that plots need."""
    return (
        f"<!doctype html>\n<html lang='en'><head><meta charset='utf-8'><title>{escape(title)}</title>"
        "<meta name='viewport' content='width=device-width'>"
        "<meta http-equiv='Content-Security-Policy' content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<style>{STYLE}</style></head><body><h1>{escape(title)}</h1>{body}</body></html>\n"
    )


def grid(sections: Sequence[tuple[str, str, str]]) -> str:
    """Plots beside each other: a heading, a note and a drawing each."""
    shown = [
        f"<section><h2>{escape(heading)}</h2><p>{escape(note)}</p>{drawing}</section>"
        for heading, note, drawing in sections
    ]
    return f"<div class='grid'>{''.join(shown)}</div>"


def table(rows: Sequence[Sequence[str]], heads: Sequence[str] = (), marked: Collection[int] = ()) -> str:
    """A table of names and values, perhaps with a line of heads. Rows with a `marked` number stand out."""
    lines = [f"<tr>{''.join(f'<th>{escape(head)}</th>' for head in heads)}</tr>"] if heads else []
    for number, row in enumerate(rows):
        cells = "".join(f"<td>{escape(cell)}</td>" for cell in row)
        lines.append(f"<tr{' class=marked' if number in marked else ''}>{cells}</tr>")
    return f"<div class='wide'><table>{''.join(lines)}</table></div>"


def _summary(profile: WorkloadProfile) -> str:
    return table(facts_of(profile)) if profile.events else "<p>The recording holds no events.</p>"


def rate_text(profile: WorkloadProfile) -> str:
    """How many events a second has, in the mean; a recording that is shorter counts as one second."""
    return f"{number_text(Fraction(profile.events * SECOND_US, max(profile.span_us, SECOND_US)))} per second"


def facts_of(profile: WorkloadProfile) -> list[tuple[str, str]]:
    """The numbers of a profile that has events, by name."""
    rows = [
        ("events", f"{profile.events:,}"),
        ("first", instant_text(profile.start_us)),
        ("last", instant_text(profile.start_us + profile.span_us)),
        ("mean rate", rate_text(profile)),
        ("busiest second", f"{profile.burst[-1][0]:,} events"),
        ("resolution of times", _span_text(profile.time_step_us)),
        ("distinct keys", f"{profile.distinct_keys:,}"),
        ("events without a key", f"{profile.keyless:,}"),
        ("bytes of values", f"{profile.value_total_bytes:,}"),
        ("partitions", f"{profile.partitions:,}"),
    ]
    rows.append(("recording", (profile.recording or "unknown")[:16]))
    return rows


# -- plots, of one profile or of several to compare

Named = Sequence[tuple[str, WorkloadProfile]]


def rate_plot(profiles: Named) -> str:
    """Events per second in each bucket, from each profile's own start."""
    longest = max(profile.span_us for _, profile in profiles) / SECOND_US
    unit_s, unit = next(((size, name) for size, name in _UNITS if longest >= 2 * size), (1, "seconds"))
    series = []
    for name, profile in profiles:
        bucket_s = profile.bucket_us / SECOND_US
        points = [
            (number * bucket_s / unit_s, count / _bucket_seconds(profile, number))
            for number, count in enumerate(profile.bucket_counts)
        ]
        if points:
            points.append((max(profile.span_us / SECOND_US, 1) / unit_s, points[-1][1]))
        series.append(Series(name, points, SeriesStyle.STEPS))
    return plot(series, Axis(f"{unit} from the start"), Axis("events per second"), title="Rate over time")


def _bucket_seconds(profile: WorkloadProfile, number: int) -> float:
    """How much of a bucket the recording covers, in seconds from 1: the last one is cut."""
    covered = min(profile.bucket_us, profile.span_us - number * profile.bucket_us)
    return max(covered / SECOND_US, 1)


def burst_plot(profiles: Named) -> str:
    """How many seconds have this many events."""
    series = _counts([(name, profile.burst) for name, profile in profiles])
    x, y = Axis("events in one second", is_whole=True), Axis("seconds", is_log=True)
    return plot(series, x, y, title="Events per second")


def arrival_plot(profiles: Named) -> str:
    """Times between neighbours."""
    return _class_plot([(name, profile.arrival_log2_us) for name, profile in profiles], "Time between events")


def gap_plot(profiles: Named) -> str:
    """Times between neighbours with one key."""
    return _class_plot(
        [(name, profile.gap_log2_us) for name, profile in profiles], "Time between events of a key"
    )


def key_plot(profiles: Named) -> str:
    """Events of each key, the most frequent first; those beyond the known ones by their mean.

    Few keys are dots: there is none between two ranks.
    """
    series = []
    for name, profile in profiles:
        known, tail = profile.key_top, profile.key_tail
        points: list[tuple[float, float]] = [(rank, count) for rank, count in enumerate(known, 1)]
        ranks = range(len(known) + 1, len(known) + tail.keys + 1)
        is_few = len(known) + tail.keys <= BARS_MAX
        if ranks:
            points += [
                (rank, tail.events / tail.keys) for rank in (ranks if is_few else (ranks[0], ranks[-1]))
            ]
        series.append(Series(name, points, SeriesStyle.DOTS if is_few else SeriesStyle.LINE))
    x, y = Axis("rank of the key", is_log=True), Axis("events", is_log=True)
    return plot(series, x, y, title="Events by rank of key")


def value_plot(profiles: Named) -> str:
    """Sizes of values."""
    series = _counts(
        [
            (name, [((size + 0.5) * profile.value_bin_bytes, many) for size, many in profile.value_bytes])
            for name, profile in profiles
        ],
        max(profile.value_bin_bytes for _, profile in profiles),
    )
    x, y = Axis("bytes", is_whole=True), Axis("events", is_whole=True)
    return plot(series, x, y, title="Sizes of values")


def _counts(
    histograms: Sequence[tuple[str, Sequence[tuple[float, float]]]], width: float = 1.0
) -> list[Series]:
    """Histograms as bars of that width, or as dots where there would be too many."""
    most = max(len(pairs) for _, pairs in histograms) * len(histograms)
    style = SeriesStyle.BARS if most <= BARS_MAX else SeriesStyle.DOTS
    return [Series(name, pairs, style, width) for name, pairs in histograms]


def _class_plot(histograms: Sequence[tuple[str, Histogram]], title: str) -> str:
    series = _counts(histograms)
    x = Axis("time (0 is at one instant)", write=_class_text, ticks=(0, *_CLASS_TEXTS))
    return plot(series, x, Axis("pairs of events", is_whole=True), title=title)


def _class_text(number: float) -> str:
    return _CLASS_TEXTS.get(int(number), "0")


def _hours_plot(profile: WorkloadProfile) -> str:
    """Mean rate in each hour of the day; hours without an event have no bar."""
    events = [0] * 24
    for hour, many in profile.week_hours:
        events[hour % 24] += many
    seconds = _hour_seconds(profile.start_us, profile.span_us)
    points = [(float(hour), events[hour] / seconds[hour]) for hour in range(24) if events[hour]]
    x = Axis("hour", ticks=tuple(range(24)), write=lambda hour: f"{hour:.0f}")
    return plot(
        [Series("rate", points, SeriesStyle.BARS)], x, Axis("events per second"), title="Rate by hour of day"
    )


def _hour_seconds(start_us: int, span_us: int) -> list[float]:
    """How many seconds of each hour of the day a span covers; at least one of the hours that it touches."""
    whole_days, rest_us = divmod(span_us, 24 * HOUR_US)
    covered = [whole_days * HOUR_US] * 24
    begin, end = start_us % (24 * HOUR_US), start_us % (24 * HOUR_US) + rest_us
    for hour in range(48):
        covered[hour % 24] += max(min(end, (hour + 1) * HOUR_US) - max(begin, hour * HOUR_US), 0)
    return [max(each / SECOND_US, 1.0) for each in covered]


def _session_events_plot(profile: WorkloadProfile) -> str:
    points = [(float(what), many) for what, many in profile.session_events]
    x = Axis(
        "events (a bar counts from its number to below twice that)",
        write=lambda what: f"{2 ** max(int(what) - 1, 0):,}",
        ticks=tuple(range(1, 65)),
    )
    return plot(
        [Series("sessions", points, SeriesStyle.BARS)],
        x,
        Axis("sessions", is_whole=True),
        title="Events of sessions",
    )


def _session_length_plot(profile: WorkloadProfile) -> str:
    points = [(float(what), many) for what, many in profile.session_log2_us]
    x = Axis("time (0 is one event, or at one instant)", write=_class_text, ticks=(0, *_CLASS_TEXTS))
    return plot(
        [Series("sessions", points, SeriesStyle.BARS)],
        x,
        Axis("sessions", is_whole=True),
        title="Length of sessions",
    )


def _key_bytes_plot(profile: WorkloadProfile) -> str:
    series = _counts([("keys", profile.key_bytes)])
    x, y = Axis("bytes", is_whole=True), Axis("keys", is_whole=True)
    return plot(series, x, y, title="Sizes of keys")


# -- what is said above a plot


def _rate_note(profile: WorkloadProfile) -> str:
    highest = max(profile.bucket_counts, default=0)
    return f"Buckets of {profile.bucket_us // SECOND_US} s; the fullest has {highest:,} events."


def _hours_note(profile: WorkloadProfile) -> str:
    if not profile.events:
        return ""
    if not profile.week_hours:
        return "This profile was measured by an earlier version, which did not count them. Measure it again."
    return (
        "Events in each hour, by the time of it that the recording covers. Hours without events have no bar."
    )


def _burst_note(profile: WorkloadProfile) -> str:
    """The index of dispersion: variance by mean of events per second, 1 for independent arrivals at a constant rate."""
    seconds = profile.span_us // SECOND_US + 1 if profile.events else 0
    if not seconds:
        return ""
    mean = profile.events / seconds
    squares = sum(what * what * many for what, many in profile.burst) / seconds
    quiet = 1 - total(profile.burst) / seconds
    return (
        f"{quiet:.1%} of all seconds have none. Variance by mean: {(squares - mean * mean) / mean:.2f}"
        " (independent arrivals: 1)."
    )


def _arrival_note(profile: WorkloadProfile) -> str:
    together = dict(profile.arrival_log2_us).get(0, 0)
    return f"{together / max(profile.events - 1, 1):.1%} come at the same instant as the one before."


def _key_note(profile: WorkloadProfile) -> str:
    keyed = profile.events - profile.keyless
    if not keyed:
        return "No event has a key."
    sums = list(accumulate(profile.key_top[:_TOP_SHOWN]))
    return (
        f"The most frequent key has {sums[0] / keyed:.1%} of the events that have one, the first {len(sums)}"
        f" have {sums[-1] / keyed:.1%}."
    )


def _gap_note(profile: WorkloadProfile) -> str:
    return f"{total(profile.gap_log2_us):,} events follow another one with their key."


def _session_note(profile: WorkloadProfile) -> str:
    idle = _span_text(profile.session_idle_us)
    return f"{total(profile.session_events):,} sessions. A key's session ends when nothing follows within {idle}."


def _value_note(profile: WorkloadProfile) -> str:
    if not profile.events:
        return ""
    largest = (profile.value_bytes[-1][0] + 1) * profile.value_bin_bytes - 1
    bins = weighted_sum(profile.value_bytes) * profile.value_bin_bytes / profile.events
    mean = profile.value_total_bytes / profile.events
    return f"Mean {max(mean, bins):,.0f} B; none is larger than {largest:,} B. Bins of {profile.value_bin_bytes} B."


def _span_text(span_us: int) -> str:
    for size, unit in ((60 * SECOND_US, "min"), (SECOND_US, "s"), (1_000, "ms")):
        if span_us >= size:
            return f"{span_us / size:g} {unit}"
    return f"{span_us} µs"
