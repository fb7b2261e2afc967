"""`callboard workload rescale`: a recording becomes a larger or a smaller one, of its own sequences."""

from __future__ import annotations

import click
from rich.console import RenderableType

from callboard.cli.answers import CommandAnswer
from callboard.cli.options import FiniteFloat
from callboard.cli.output import Cell, facts
from callboard.cli.workload.spark_job import SparkJob, spark_job
from callboard.recordings.manifest import Manifest
from callboard.simulations.workload.profile_format import SECOND_US
from callboard.simulations.workload.rescaling import Rescaling
from callboard.simulations.workload.rescaling import rescale as rescale_recording
from callboard.simulations.workload.scaling import exact
from callboard.spark.files import check_new
from callboard.spark.partition_logs import read_manifest

SHIFT_S_MAX = 1e9


@click.command()
@click.argument("recording")
@click.option("--out", required=True, metavar="RECORDING", help="The recording to make; it must not exist.")
@click.option(
    "--scale",
    default="1",
    show_default=True,
    metavar="N",
    help="N copies; below 1, a part of the keys.",
)
@click.option(
    "--values",
    type=click.Choice(["keep", "scrub"]),
    default="keep",
    show_default=True,
    help="scrub: other values that say nothing, as long, and compress as well; and other keys.",
)
@click.option(
    "--shift",
    "shift_s",
    type=FiniteFloat(0, SHIFT_S_MAX),
    metavar="SECONDS",
    help="Copies are later by up to so much.  [default: a 200th of the span, at most an hour]",
)
@click.option("--seed", default="0", show_default=True, help="Another seed chooses other keys and shifts.")
@click.option("--partitions", type=int, help="Partitions of the recording.  [default: as recorded]")
@spark_job
def rescale(
    recording: str,
    out: str,
    scale: str,
    values: str,
    shift_s: float | None,
    seed: str,
    partitions: int | None,
    job: SparkJob,
) -> CommandAnswer:
    """Make a recording larger or smaller, of its own sequences. N is such as 10, 0.25 or 1/3.

    Each copy has keys of its own and is a little later. What a key's records have to do with each other is kept
    exactly: order, times, ties and sizes.
    """
    out = out.rstrip("/")
    rescaling = Rescaling(
        scale=exact(scale, "--scale"),
        scrubs=values == "scrub",
        shift_us=None if shift_s is None else round(shift_s * SECOND_US),
        partitions=partitions,
        seed=seed,
    )
    check_new(out)
    read_manifest(recording)
    with job.session("rescaling") as session:
        manifest = rescale_recording(session, recording, out, rescaling)
    document = {"records": manifest.records, "keys": manifest.keys[0], "out": out, "digest": manifest.digest}
    return CommandAnswer(document, [made(out, manifest)])


def made(out: str, manifest: Manifest) -> RenderableType:
    """What a job has made."""
    rows: list[tuple[str, Cell]] = [
        ("records", manifest.records),
        ("keys", f"{'' if manifest.keys[1] else 'about '}{manifest.keys[0]:,}"),
        ("partitions", len(manifest.partitions)),
        ("digest", manifest.digest),
    ]
    return facts(rows, title=f"recording {out}")
