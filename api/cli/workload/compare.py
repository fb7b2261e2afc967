"""`callboard workload compare`: are two recordings alike?"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import click

from callboard.cli import exits, files
from callboard.cli.answers import CommandAnswer
from callboard.cli.options import FiniteFloat
from callboard.cli.output import table
from callboard.cli.workload.spark_job import SparkJob, bucket_option, spark_job
from callboard.log.errors import InvalidArgument
from callboard.simulations.workload.comparing import Side, compare_sides, measure_sides, side_of_profile
from callboard.simulations.workload.distances import COMPARED, THRESHOLD, Comparison
from callboard.simulations.workload.measuring import measure_recording
from callboard.simulations.workload.profile_format import PROFILE_BYTES_MAX
from callboard.simulations.workload.verdicts import number_text


@click.command()
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
@click.option("--report", "report_path", metavar="HTML", help="Write a page with both curves in each plot.")
@click.option(
    "--threshold",
    type=FiniteFloat(0, 1),
    default=float(THRESHOLD),
    show_default=True,
    help="Distances above it are differences.",
)
@click.option(
    "--ignore",
    "ignored",
    multiple=True,
    type=click.Choice(COMPARED),
    metavar="NAME",
    help="A distance, a row or a queue not to judge; may be repeated.",
)
@bucket_option(
    "The length of a bucket of time where a recording is measured.  [default: 1/200 of it, a second at least]"
)
@spark_job
def compare(
    first: str,
    second: str,
    report_path: str | None,
    threshold: float,
    ignored: tuple[str, ...],
    bucket_us: int | None,
    job: SparkJob,
) -> CommandAnswer:
    """Tell whether two recordings are alike, whatever their scale. A and B are recordings or profiles.

    Exits with 12 when they are different.
    """
    if report_path is not None:
        files.check_target(report_path)
    if report_path in (first, second):
        raise InvalidArgument(f"the report would replace {report_path}. Name another file.")
    sides = _sides((first, second), job, bucket_us)
    found = compare_sides(sides[0], sides[1], threshold=Fraction(str(threshold)), ignored=ignored)
    if report_path is not None:
        from callboard.simulations.workload.comparison_page import comparison_page

        named = [
            (path.rstrip("/").rpartition("/")[2], side.profile)
            for path, side in zip((first, second), sides, strict=True)
        ]
        files.write_whole(report_path, comparison_page(named, found).encode())
    code = exits.OK if found.is_alike else exits.DIFFERENT
    return CommandAnswer(found.document((first, second)), _shown(found, (first, second)), code=code)


def _sides(paths: tuple[str, str], job: SparkJob, bucket_us: int | None) -> list[Side]:
    """A folder is a recording, and a file a profile. Spark is started for recordings only."""
    found = {
        path: side_of_profile(files.read_whole(path, PROFILE_BYTES_MAX))
        for path in paths
        if not files.is_folder(path)
    }
    folders = sorted({*paths} - {*found})
    if folders:
        with job.session("measuring") as session:
            names = [path.rstrip("/") for path in folders]
            if found:  # what a profile does not know is not compared
                measured = [Side(measure_recording(session, name, bucket_us=bucket_us)) for name in names]
            else:
                measured = measure_sides(session, names, bucket_us=bucket_us)
        found |= zip(folders, measured, strict=True)
    return [found[path] for path in paths]


def _shown(found: Comparison, names: tuple[str, str]) -> list[Any]:
    rows = [
        (
            each.name,
            "" if each.value is None else f"{float(each.value):.3f}",
            each.verdict.value,
            each.note,
        )
        for each in found.distances
    ]
    heads, title = ("compared", "distance", "verdict", "note"), f"{names[0]} and {names[1]}"
    shown = [table(heads, rows, words=("compared", "verdict", "note"), title=title)]
    if found.rows:
        shown += [_rows_table(found), _queues_table(found)]
    return [*shown, *found.notes, found.words]


def _rows_table(found: Comparison) -> Any:
    rows = [(each.name, *map(number_text, each.values), each.verdict.value, each.note) for each in found.rows]
    heads = ("what joins events", "A", "B", "verdict", "note")
    return table(heads, rows, words=("what joins events", "verdict", "note"))


def _queues_table(found: Comparison) -> Any:
    rows = [
        (
            each.name,
            *(_pair(facts.wait) for facts in each.facts or ()),
            *(_pair(facts.depth) for facts in each.facts or ()),
            *([""] * (0 if each.facts else 4)),
            each.verdict.value,
            each.note,
        )
        for each in found.queues
    ]
    heads = ("queue, % load", "wait A, p50/p99", "wait B", "depth A", "depth B", "verdict", "note")
    return table(heads, rows, words=("queue, % load", "verdict", "note"))


def _pair(at: Callable[[int], Any]) -> str:
    """The 50th and the 99th percentile."""
    return "/".join(number_text(at(percent)) for percent in (50, 99))
