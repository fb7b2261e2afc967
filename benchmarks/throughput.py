"""Publishing, consuming, latency: `python benchmarks/throughput.py [--in DIRECTORY] [--pairs N] [--only PART]`.

The measures of `callboard bench` (`api/cli/bench.py`), for messages of 100 bytes and of 1 KiB, with 9-byte
keys. Every figure is the median of five interleaved pairs: Callboard, then the bare file, then Callboard again, because
machines drift by more than what is being compared. The baselines write the same bytes and sync after every write:

    append      appended, fdatasync: what a program does that wants durability and nothing else
    overwrite   over a preallocated file, fdatasync: faster, since no file length has to be synced; Callboard prepares
                its segments so, and a program could

The last lines compare Callboard with itself: consuming in batches of 1,000, each acked and the ack synced, beside
publishing in batches of 1,000. The target is 0.8 of the publish rate, the aim 1.5.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Awaitable, Callable

import trio

from callboard.cli.bench import Bench, BenchPlan, Measured
from callboard.cli.files import BareFile, temporary_directory
from callboard.runtime import open_runtime
from callboard.topic import Topic

SIZES = {"100 B": 100, "1 KiB": 1024}
RATIO_RECORDS = 300_000
BATCH = 1_000
TARGET, AIM = 0.8, 1.5


class Throughput:
    """One size of messages in one runtime."""

    def __init__(self, made: Bench, pairs: int, only: str | None) -> None:
        self._made = made
        self._pairs = pairs
        self._only = only

    async def run(self) -> None:
        """Print a line per measure."""
        made = self._made
        print(f"  {'':34} {'msg/s':>10} {'of append':>10} {'of overwrite':>13}   worst to best of append")
        for count in (1_000, 100):
            await self._line(f"publish, batches of {count:,}", made.publish_batches, count)
        for tasks in (1, 64, 512):
            await self._line(f"publish singly, {tasks} tasks", made.publish_singly, tasks)
        for count in (1_000, 1):
            await self._line(f"consume in {count:,}s, acked", made.consume, count)
        if self._wants("latency"):
            late = await made.latency()
            print(
                f"  {'publish to handler at 1,000 msg/s':34} p50 {late.p50 * 1e3:.2f} ms, p99 {late.p99 * 1e3:.2f} ms,"
                f" worst {late.worst * 1e3:.1f} ms"
            )
        if self._wants("ratio"):
            await self._consume_of_publish()

    def _wants(self, name: str) -> bool:
        return self._only is None or self._only in name

    async def _line(self, name: str, measure: Callable[[int], Awaitable[Measured]], argument: int) -> None:
        if self._wants(name):
            found = await measure(argument)
            print(
                f"  {name:34} {found.rate:>10,.0f} {found.of_bare:>10.2f} {found.of_overwrite:>13.2f}"
                f"   {found.worst:.2f} to {found.best:.2f}   bare {found.bare_rate:,.0f}",
                flush=True,
            )

    async def _consume_of_publish(self) -> None:
        """Consuming beside publishing, in pairs: the same records, right after each other."""
        made, clock = self._made, self._made.clock
        values, keys = made.payload(BATCH)
        published, consumed = [], []
        for _ in range(self._pairs):
            topic = await made.topic()
            start = clock.monotonic()
            for _ in range(RATIO_RECORDS // BATCH):
                await topic.publish_batch(values, keys=keys)
            published.append(RATIO_RECORDS / (clock.monotonic() - start))
            start = clock.monotonic()
            await consume_all(topic)
            consumed.append(RATIO_RECORDS / (clock.monotonic() - start))
            await made.runtime.delete_topic(topic.name)
        ratios = [taken / given for taken, given in zip(consumed, published, strict=True)]
        ratio = statistics.median(ratios)
        verdict = "aim met" if ratio >= AIM else "target met" if ratio >= TARGET else "MISSED"
        print(
            f"  consume / publish, batches of 1,000: {ratio:.2f} ({min(ratios):.2f} to {max(ratios):.2f});"
            f" {statistics.median(consumed):,.0f} and {statistics.median(published):,.0f} msg/s;"
            f" target {TARGET}, aim {AIM}: {verdict}"
        )


async def consume_all(topic: Topic) -> None:
    """Take and ack every record, a thousand at a time."""
    done = 0
    async with topic.subscribe("ratio") as consumer:
        async for batch in consumer.batches(max_records=BATCH):
            done += len(batch.values())
            await batch.ack()
            if done == RATIO_RECORDS:
                return


async def measure(folder: str | None, pairs: int, seconds: float, inline: bool, only: str | None) -> None:
    """Print one table per size."""
    for name, size in SIZES.items():
        print(f"messages of {name}, medians of {pairs} interleaved pairs", flush=True)
        with temporary_directory(keep=False, parent=folder) as directory:
            async with open_runtime(directory + "/runtime", sync_inline=inline) as runtime:
                made = Bench(runtime, BareFile(directory), BenchPlan(pairs, seconds, size), progress)
                await Throughput(made, pairs, only).run()


def progress(what: str) -> None:
    """Say what is being measured, for those who watch."""
    if sys.stderr.isatty():
        print(f"  ... {what}", file=sys.stderr)


def main() -> None:
    """Measure as the command line says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--in", dest="folder", default=None, help="the disk to measure")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="length of each run")
    parser.add_argument("--inline", action="store_true", help="sync in the event loop's own thread")
    parser.add_argument(
        "--only", default=None, help="lines whose name contains this; also `latency`, `ratio`"
    )
    given = parser.parse_args()
    trio.run(measure, given.folder, given.pairs, given.seconds, given.inline, given.only)


if __name__ == "__main__":
    main()
