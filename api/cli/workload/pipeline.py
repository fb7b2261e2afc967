"""`callboard workload pipeline`: all jobs, one after the other, and a test of what they made."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

import click

from callboard.cli import exits, files
from callboard.cli.answers import CommandAnswer
from callboard.cli.output import facts, size_text
from callboard.cli.replay import report_lines
from callboard.cli.workload.spark_job import SparkJob, spark_job
from callboard.simulations.entropy import SeededEntropy
from callboard.simulations.workload.comparison_page import comparison_page
from callboard.simulations.workload.pipeline import DATA, GENERATED, RECORDED, PipelineReport, run_pipeline
from callboard.simulations.workload.report import profile_page
from callboard.simulations.workload.scaling import exact
from callboard.simulations.workload.session import check_spark
from callboard.traffic import load_profile, synthesise

TRAFFIC: Final = "traffic.log"
EVENTS_MAX: Final = 1_000_000


@click.command()
@click.argument("sources", nargs=-1, metavar="[FILE]...")
@click.option("--out", required=True, metavar="DIR", help="The folder to make, for everything that is made.")
@click.option("--scale", default="10", show_default=True, metavar="N", help="The volume that is generated.")
@click.option("--partitions", type=click.IntRange(1, 1_024), default=4, show_default=True)
@click.option("--consumers", type=click.IntRange(1, 64), default=2, show_default=True)
@click.option("--seed", type=click.IntRange(0, 1 << 40), default=0, show_default=True)
@click.option(
    "--events",
    type=click.IntRange(2, EVENTS_MAX),
    default=30_000,
    show_default=True,
    help="Of the synthetic day that is taken without a FILE.",
)
@spark_job
def pipeline(
    sources: tuple[str, ...],
    out: str,
    scale: str,
    partitions: int,
    consumers: int,
    seed: int,
    events: int,
    job: SparkJob,
) -> CommandAnswer:
    """Import traffic, profile it, generate more, test with that.

    What was generated is compared with what was imported, replayed into a runtime whose consumers account for every
    record, and replayed in the simulator under faults. Exits with 3 when the account does not balance, with 6 when the
    simulator found a promise broken, with 12 when what was generated is not alike.
    """
    volume = exact(scale, "--scale")
    check_spark()
    folder = files.new_folder(out)
    with job.progress("pipeline") as advance:
        if not sources:
            advance("making a synthetic day", 0, None)
            sources = (_synthetic(f"{folder}/{TRAFFIC}", events, seed),)
        report = run_pipeline(
            job.open,
            sources,
            folder,
            scale=volume,
            partitions=partitions,
            consumers=consumers,
            seed=seed,
            tell=lambda what: advance(what, 0, None),
        )
    _write(report, folder)
    lines = [facts(_facts(report)), report.comparison.words]
    said = f"everything is in {out}: look at profile.html and comparison.html"
    return CommandAnswer(report.document(), lines, said=[said], code=_code(report))


def _code(report: PipelineReport) -> int:
    if report.simulated.failure is not None:
        return exits.VIOLATED
    if not report.is_balanced:
        return exits.UNBALANCED
    return exits.OK if report.comparison.is_alike else exits.DIFFERENT


def _synthetic(path: str, events: int, seed: int) -> str:
    """A log of a made-up day."""
    made = synthesise(load_profile(), events, SeededEntropy(seed).fork("traffic"))
    files.write_whole(path, b"".join(event.value + b"\n" for event in islice(made, events)))
    return path


def _write(report: PipelineReport, folder: str) -> None:
    files.write_whole(f"{folder}/profile.json", report.profile.to_json().encode())
    files.write_whole(f"{folder}/profile.html", profile_page(report.profile, title="Profile").encode())
    sides = [(RECORDED, report.profile), (GENERATED, report.generated_profile)]
    files.write_whole(f"{folder}/comparison.html", comparison_page(sides, report.comparison).encode())


def _facts(report: PipelineReport) -> Iterator[tuple[str, str]]:
    imported, simulated = report.imported, report.simulated
    yield "imported", f"{imported.records:,} of {imported.lines:,} lines, into {RECORDED}"
    yield "keys", f"{report.profile.distinct_keys:,}"
    yield "generated", f"{report.generated.records:,} records, into {GENERATED}"
    for name, value in report_lines(report.replayed):
        yield f"replayed: {name}", value
    sign = "as generated" if report.delivered == report.generated.records else "NOT AS GENERATED"
    size = size_text(report.delivered_bytes)
    yield "delivered", f"{report.delivered:,} records, {size}, {sign} (in {DATA})"
    hit = ", ".join(f"{kind} {count}" for kind, count in sorted(simulated.faults.items())) or "none"
    yield "simulated", f"{simulated.records:,} records, once each; {simulated.missing:,} lost by the disk"
    yield "faults that hit", hit
    if simulated.failure is not None:
        yield "BROKEN", f"{type(simulated.failure).__name__}: {simulated.failure}"
