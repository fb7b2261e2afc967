"""`callboard workload analyse`: how records were delivered, from a runtime's logs and delivery journals."""

from __future__ import annotations

from typing import Any

import click

from callboard.cli import files
from callboard.cli.answers import CommandAnswer
from callboard.cli.output import table
from callboard.cli.workload.spark_job import SparkJob, bucket_option, spark_job
from callboard.log.errors import InvalidArgument
from callboard.message import from_us
from callboard.offline import require_directory
from callboard.simulations.workload.analysing import analyse as analyse_deliveries
from callboard.simulations.workload.analysis import Analysis, Deliveries, Latency
from callboard.simulations.workload.analysis_page import analysis_page, span_text


@click.command()
@click.argument("directory", metavar="DIR")
@click.option("--topic", metavar="NAME", help="Only this topic.")
@click.option("--group", metavar="NAME", help="Only this group.")
@click.option("--out", metavar="JSON", help="Write all numbers, by partition and over time.")
@click.option("--report", "report_path", metavar="HTML", help="Write a page with plots.")
@bucket_option("The length of a bucket of time.  [default: a round one that makes at most 200]")
@spark_job
def analyse(
    directory: str,
    topic: str | None,
    group: str | None,
    out: str | None,
    report_path: str | None,
    bucket_us: int | None,
    job: SparkJob,
) -> CommandAnswer:
    """Show latency, redelivery and lag of deliveries over time.

    DIR is a runtime's directory. It is only read, and may be open elsewhere.
    """
    require_directory(directory)
    for path in filter(None, (out, report_path)):
        files.check_target(path)
    if out is not None and out == report_path:
        raise InvalidArgument("the numbers and the report are one file. Name two.")
    with job.session("analysing") as session:
        found = analyse_deliveries(
            session,
            directory,
            topic=topic,
            group=group,
            bucket_us=bucket_us,
        )
    if out is not None:
        files.write_whole(out, found.to_json().encode())
    if report_path is not None:
        files.write_whole(report_path, analysis_page(found, title=f"Deliveries of {directory}").encode())
    return CommandAnswer(found.document(), _shown(found))


def _shown(found: Analysis) -> list[Any]:
    if not found.topics:
        return [*found.notes, "No group was ever there: there are no deliveries to analyse."]
    rows = [row for each in found.topics for row in _rows_of(each, found)]
    title = f"deliveries of {found.directory}"
    return [table(_HEADS, rows, words=("topic", "group", "since"), title=title), *found.notes]


_HEADS = ("topic", "group", "since", "acked", "pending", "redelivered", "median", "99 %", "largest lag")


def _rows_of(topic: Deliveries, found: Analysis) -> list[list[str]]:
    parts = [each for each in found.partitions if (each.topic, each.group) == (topic.topic, topic.group)]
    return [_row(topic), *(map(_row, parts) if len(parts) > 1 else ())]


def _row(each: Deliveries) -> list[str]:
    ratio = f"{each.redelivered:,} ({each.redelivered / each.delivered:.1%})" if each.delivered else "0"
    lags = [lag for lag in each.lag if lag is not None]
    since = from_us(each.since_us).isoformat(sep=" ", timespec="seconds").removesuffix("+00:00")
    return [
        each.topic if each.partition is None else f"{each.topic}/{each.partition}",
        each.group,
        since if each.is_whole else f"{since} (cut)",
        f"{each.fates['acked']:,}",
        f"{each.fates['pending']:,}",
        ratio,
        _quantile(each.latency, 50),
        _quantile(each.latency, 99),
        f"{max(lags):,}" if lags else "",
    ]


def _quantile(latency: Latency | None, percent: int) -> str:
    return "" if latency is None else span_text(latency.quantile(percent, 100))
