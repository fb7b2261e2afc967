"""`callboard bench`: how fast this machine and disk are, as ratios to a bare file on the same disk."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

import click
from rich.console import Console
from rich.table import Table

from callboard.cli.bench_measures import KEY_BYTES, Bench, BenchPlan, Latency, Measured
from callboard.cli.files import BareFile, temporary_directory
from callboard.cli.group import run
from callboard.cli.options import json_option
from callboard.cli.output import print_json, show
from callboard.control import plain
from callboard.log.errors import InvalidArgument
from callboard.log.limits import BATCH_BYTES_MAX
from callboard.runtime import open_runtime

SIZE_MAX = BATCH_BYTES_MAX // 1000 - KEY_BYTES
"""Bytes of a value, so that a batch of 1,000 is allowed."""
MEASURES: dict[str, Callable[[Bench], Awaitable[Measured | Latency]]] = {
    "publish_batch of 1,000": partial(Bench.publish_batches, count=1000),
    "publish_batch of 100": partial(Bench.publish_batches, count=100),
    "single publishes, 1 task": partial(Bench.publish_singly, tasks=1),
    "single publishes, 64 tasks": partial(Bench.publish_singly, tasks=64),
    "single publishes, 512 tasks": partial(Bench.publish_singly, tasks=512),
    "consume in 1,000s": partial(Bench.consume, count=1000),
    "consume in 1s": partial(Bench.consume, count=1),
    "end to end": Bench.latency,
}


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
    for part in only:
        if not any(part in name for name in MEASURES):
            raise InvalidArgument(
                f"no line's name contains {part!r:.60}. The lines are: {'; '.join(MEASURES)}."
            )
    wanted = [do for name, do in MEASURES.items() if not only or any(part in name for part in only)]

    async def work() -> list[Measured | Latency]:
        with (
            temporary_directory(keep=False, parent=folder) as directory,
            Console(stderr=True).status("starting") as status,
        ):
            async with open_runtime(directory + "/runtime", sync_inline=inline) as runtime:
                made = Bench(runtime, BareFile(directory), BenchPlan(pairs, seconds, size), status.update)
                found = [await measure(made) for measure in wanted]
        return found

    found = run(work)
    measured = [line for line in found if isinstance(line, Measured)]
    latencies = [line for line in found if isinstance(line, Latency)]
    if as_json:
        print_json({"measured": plain(measured), "latency": plain(latencies)})
        return
    table = Table(
        "work", "msg/s", "of bare append + fdatasync", "worst to best", "of bare overwrite", "bare msg/s"
    )
    for line in measured:
        spread = f"{line.worst:.2f} to {line.best:.2f}"
        ratios = f"{line.of_bare:.2f}", spread, f"{line.of_overwrite:.2f}"
        table.add_row(line.name, f"{line.rate:,.0f}", *ratios, f"{line.bare_rate:,.0f}")
    show(table)
    for late in latencies:
        show(
            f"{late.name}: p50 {late.p50 * 1e3:.2f} ms, p99 {late.p99 * 1e3:.2f} ms, worst {late.worst * 1e3:.1f} ms"
        )
