"""The page that shows how records were delivered, in one HTML file that needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import accumulate
from typing import Final

from callboard.simulations.workload.analysis import Analysis, Deliveries, Latency, bin_top
from callboard.simulations.workload.plots import Axis, Series, SeriesStyle, instant_text, plot
from callboard.simulations.workload.profile_format import SECOND_US
from callboard.simulations.workload.report import grid, page, table

PARTITIONS_SHOWN: Final = 100
"""Rows of a group's table of partitions."""
_HEADS: Final = (
    "",
    "acked",
    "pending",
    "delivered again",
    "median",
    "90 %",
    "99 %",
    "longest",
    "largest lag",
)


def analysis_page(analysis: Analysis, *, title: str) -> str:
    """The whole page. `title` is shown as text."""
    body = [_summary(analysis), *(_topic(each, analysis) for each in analysis.topics)]
    if not analysis.topics:
        body.append("<p>No group was ever there: there are no deliveries to show.</p>")
    if analysis.notes:
        notes = "".join(f"<li>{escape(note)}</li>" for note in analysis.notes)
        body.append(f"<h2>What cannot be said</h2><ul>{notes}</ul>")
    return page(title, "".join(body))


def _summary(analysis: Analysis) -> str:
    if not analysis.journals:
        return "<p>The directory holds no topics.</p>"
    rows = [
        ("from", instant_text(analysis.from_us)),
        ("to", instant_text(analysis.to_us)),
        ("bucket", f"{analysis.bucket_us // SECOND_US:,} s"),
        ("partitions", f"{len(analysis.journals):,}"),
        ("records in the log", f"{sum(each['records'] for each in analysis.journals):,}"),
    ]
    return table(rows)


def _topic(topic: Deliveries, analysis: Analysis) -> str:
    parts = [each for each in analysis.partitions if (each.topic, each.group) == (topic.topic, topic.group)]
    rows = [
        _row("all" if len(parts) > 1 else "0", topic),
        *(_row(str(each.partition), each) for each in parts[:PARTITIONS_SHOWN] if len(parts) > 1),
    ]
    reach = (
        "The history reaches back to the group's beginning."
        if topic.is_whole
        else (f"The history is cut: the lag is known since {instant_text(topic.since_us)}.")
    )
    head = (
        f"<h2 style='font-size: 1.25rem; margin: 2.5rem 0 0'>{escape(f'{topic.group} of {topic.topic}')}</h2>"
    )
    shown = table(rows, ("partition", *_HEADS[1:]))
    if len(parts) > PARTITIONS_SHOWN:
        shown += f"<p>{len(parts) - PARTITIONS_SHOWN:,} more partitions are in the JSON.</p>"
    return f"{head}<p>{reach} {_counts_text(topic)}</p>{shown}{grid(_plots(topic, parts, analysis))}"


def _row(name: str, each: Deliveries) -> tuple[str, ...]:
    lags = [lag for lag in each.lag if lag is not None]
    part = f" ({each.redelivered / each.delivered:.1%})" if each.delivered else ""
    latency = each.latency
    quantiles = [
        "" if latency is None else span_text(latency.quantile(percent, 100)) for percent in (50, 90, 99, 100)
    ]
    lag = f"{max(lags):,}" if lags else ""
    return (
        name,
        f"{each.fates['acked']:,}",
        f"{each.fates['pending']:,}",
        f"{each.redelivered:,}{part}",
        *quantiles,
        lag,
    )


def _counts_text(topic: Deliveries) -> str:
    told = [f"{many:,} {name}" for name, many in topic.counts.items() if many]
    return f"Since the group began: {', '.join(told)}." if told else ""


def _plots(topic: Deliveries, parts: Sequence[Deliveries], analysis: Analysis) -> list[tuple[str, str, str]]:
    minutes = analysis.bucket_us / SECOND_US / 60
    unit, size = ("minutes", minutes) if minutes * len(topic.lag) >= 5 else ("seconds", minutes * 60)
    x = Axis(f"{unit} from the start")

    def over_time(values: Sequence[float | None]) -> list[tuple[float, float]]:
        return [((number + 1) * size, value) for number, value in enumerate(values) if value is not None]

    def rate(counts: Sequence[int]) -> list[tuple[float, float]]:
        seconds = analysis.bucket_us / SECOND_US
        points = [(number * size, count / seconds) for number, count in enumerate(counts)]
        return [*points, (len(counts) * size, points[-1][1])]

    lags = [Series("all", over_time(topic.lag))]
    if len(parts) > 1:
        worst = max(parts, key=lambda each: max(filter(None, each.lag), default=0))
        lags.append(Series(f"partition {worst.partition}", over_time(worst.lag)))
    slow = [Series(name, over_time(_quantiles(topic, part))) for name, part in (("median", 50), ("99 %", 99))]
    attempts = [(float(what), float(many)) for what, many in topic.attempts]
    whole = Axis("attempts", is_whole=True)
    return [
        (
            "Lag",
            "Published and not settled, at the end of each bucket.",
            plot(lags, x, Axis("records", has_floor=True), title="Lag"),
        ),
        (
            "Rate",
            "Records published, and settled, per second.",
            plot(
                [
                    Series("published", rate(topic.published), SeriesStyle.STEPS),
                    Series("settled", rate(topic.settled), SeriesStyle.STEPS),
                ],
                x,
                Axis("records per second"),
                title="Rate",
            ),
        ),
        (
            "Latency over time",
            "From publishing to the ack, by when the ack came.",
            plot(slow, x, Axis("seconds", is_log=True), title="Latency over time"),
        ),
        (
            "Latency",
            "The part of the records that took no longer.",
            plot(
                [
                    Series(name, _curve(latency))
                    for name, latency in (
                        ("to the ack", topic.latency),
                        ("to the first delivery", topic.wait),
                    )
                ],
                Axis("seconds", is_log=True),
                Axis("part of the records", has_floor=True),
                title="Latency",
            ),
        ),
        (
            "Attempts",
            _attempts_note(topic),
            plot(
                [Series("records", attempts, SeriesStyle.BARS)],
                whole,
                Axis("records", is_log=True),
                title="Attempts",
            ),
        ),
    ]


def _quantiles(topic: Deliveries, percent: int) -> list[float | None]:
    return [
        None if each is None else max(each.quantile(percent, 100), 1) / SECOND_US
        for each in topic.latency_by_bucket
    ]


def _curve(latency: Latency | None) -> list[tuple[float, float]]:
    if latency is None:
        return []
    sums = accumulate(many for _, many in latency.bins)
    return [
        (max(bin_top(number), 1) / SECOND_US, so_far / latency.count)
        for (number, _), so_far in zip(latency.bins, sums, strict=True)
    ]


def _attempts_note(topic: Deliveries) -> str:
    if not topic.delivered:
        return "Nothing was delivered."
    part = topic.redelivered / topic.delivered
    return f"{topic.redelivered:,} of {topic.delivered:,} records ({part:.2%}) needed more than one."


def span_text(us: int) -> str:
    """A time with its unit, to three digits."""
    for size, unit in ((3_600 * SECOND_US, "h"), (60 * SECOND_US, "min"), (SECOND_US, "s"), (1_000, "ms")):
        if us >= size:
            return f"{us / size:.3g} {unit}"
    return f"{us} µs"
