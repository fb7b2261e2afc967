"""`callboard bench`: how fast this machine and disk are, as ratios to a bare file on the same disk."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import click
from rich.console import Console
from rich.table import Table

from callboard.cli.bench_measures import KEY_BYTES, Bench, BenchPlan, Latency, Measured
from callboard.cli.files import BareFile, temporary_directory
from callboard.cli.group import run
from callboard.cli.options import json_option, print_json
from callboard.control import plain
from callboard.log.errors import InvalidArgument
from callboard.log.limits import BATCH_BYTES_MAX
from callboard.runtime import open_runtime

SIZE_MAX = BATCH_BYTES_MAX // 1000 - KEY_BYTES
"""Bytes of a value, so that a batch of 1,000 is allowed."""
NAMES = (
    "publish_batch of 1,000",
    "publish_batch of 100",
    "single publishes, 1 task",
    "single publishes, 64 tasks",
    "single publishes, 512 tasks",
    "consume in 1,000s",
    "consume in 1s",
    "end to end",
)


@click.command()
@click.option(
    "--pairs", type=click.IntRange(1, 100), default=3, show_default=True, help="Interleaved pairs per line."
)
@click.option(
    "--seconds", type=click.FloatRange(0.05, 600), default=0.5, show_default=True, help="Length of each run."
)
@click.option(
    "--size", type=click.IntRange(1, SIZE_MAX), default=100, show_default=True, help="Bytes of a value."
)
@click.option("--inline", is_flag=True, help="Sync in the event loop's own thread.")
@click.option("--only", multiple=True, help="Only lines whose name contains this.")
@click.option(
    "--in", "folder", default=None, help="Make the temporary directory here: name the disk to measure."
)
@json_option
def bench(
    pairs: int,
    seconds: float,
    size: int,
    inline: bool,
    only: tuple[str, ...],
    folder: str | None,
    as_json: bool,
) -> None:
    """Measure publishing, consuming and latency, compared with a bare write + fdatasync of the same bytes."""
    console = Console(stderr=True)
    unknown = [part for part in only if not any(part in name for name in NAMES)]
    if unknown:
        raise InvalidArgument(
            f"no line's name contains {unknown[0]!r:.60}. The lines are: {'; '.join(NAMES)}."
        )

    async def work() -> tuple[list[Measured], list[Latency]]:
        measured: list[Measured] = []
        latencies: list[Latency] = []
        with (
            temporary_directory(keep=False, parent=folder) as directory,
            console.status("starting") as status,
        ):
            async with open_runtime(directory + "/runtime", sync_inline=inline) as runtime:
                made = Bench(runtime, BareFile(directory), BenchPlan(pairs, seconds, size), status.update)
                for name, measure in zip(NAMES, measures(made), strict=True):
                    if not only or any(part in name for part in only):
                        found = await measure()
                        if isinstance(found, Measured):
                            measured.append(found)
                        else:
                            latencies.append(found)
        return measured, latencies

    measured, latencies = run(work)
    if as_json:
        print_json({"measured": plain(measured), "latency": plain(latencies)})
        return
    table = Table(
        "work", "msg/s", "of bare append + fdatasync", "worst to best", "of bare overwrite", "bare msg/s"
    )
    for line in measured:
        spread = f"{line.worst:.2f} to {line.best:.2f}"
        table.add_row(
            line.name,
            f"{line.rate:,.0f}",
            f"{line.of_bare:.2f}",
            spread,
            f"{line.of_overwrite:.2f}",
            f"{line.bare_rate:,.0f}",
        )
    Console().print(table)
    for late in latencies:
        click.echo(
            f"{late.name}: p50 {late.p50 * 1e3:.2f} ms, p99 {late.p99 * 1e3:.2f} ms, worst {late.worst * 1e3:.1f} ms"
        )


def measures(made: Bench) -> list[Callable[[], Awaitable[Measured | Latency]]]:
    """Everything that can be measured, in the order of `NAMES`."""
    return [
        lambda: made.publish_batches(1000),
        lambda: made.publish_batches(100),
        lambda: made.publish_singly(1),
        lambda: made.publish_singly(64),
        lambda: made.publish_singly(512),
        lambda: made.consume(1000),
        lambda: made.consume(1),
        made.latency,
    ]
