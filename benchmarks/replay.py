"""Replaying beside publishing: pairs in one run; how exactly a pace is kept; and replays in the simulator.

    python benchmarks/replay.py [--records 300000] [--rounds 5] [--seconds 10] [--in DIRECTORY]

A round publishes the records of a recording with `publish_batch` (batches of 1,000 with keys, one task, prebuilt) and
replays the recording at the highest speed, right after each other, into topics of one runtime; a ratio is the median
over the rounds, of the rates by the clock and of those by the processor time of the process, which other programs
disturb less. The check of the recording, which a replay begins with, is timed by itself. The targets that are printed
are the project's own.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import trio

import callboard
from callboard.log.format.columns import Columns
from callboard.log.host.disk import HostDisk
from callboard.recordings.reader import Recording, open_recording
from callboard.recordings.writer import new_recording
from callboard.replay import check_recording, replay
from callboard.replay.positions import Selection
from callboard.simulations.replays.files import RecordedFiles
from callboard.simulations.replays.running import simulate_replay

BATCH = 1_000
VALUE_BYTES = 100
START_US = 1_700_000_000_000_000
RATE = 1_000
"""Records a second, as recorded, where a pace is kept."""
SIMULATED = 20_000


def records_of(first: int, count: int) -> tuple[list[bytes], list[bytes]]:
    """Values and keys."""
    numbers = range(first, first + count)
    return (
        [b"%d:" % number + bytes(VALUE_BYTES - 8) for number in numbers],
        [b"key-%06d" % (number * 7919 % 10_000) for number in numbers],
    )


async def make(
    files: Any, name: str, partitions: int, records: int, gap_us: int, batch: int = BATCH
) -> Recording:
    """A recording, a record every `gap_us` microseconds."""
    async with new_recording(files, name, partitions=partitions) as writer:
        for number, first in enumerate(range(0, records, batch)):
            values, keys = records_of(first, min(batch, records - first))
            times = [START_US + gap_us * index for index in range(first, first + len(values))]
            columns = Columns.build(values, keys, event_times=times)
            columns.append_time_us = times[-1]
            await writer.append(number % partitions, columns)
    return await open_recording(files, name)


@attrs.frozen
class Rates:
    """Records a second by the clock, and by the process's processor time."""

    wall: float
    processor: float


class Stopwatch:
    """Takes both times from when it is made."""

    def __init__(self) -> None:
        self._wall, self._processor = time.perf_counter(), time.process_time()

    def rates(self, records: int) -> Rates:
        """Of so many records since then."""
        return Rates(
            records / (time.perf_counter() - self._wall), records / (time.process_time() - self._processor)
        )


async def published(runtime: Any, name: str, partitions: int, records: int) -> Rates:
    """Rates with `publish_batch`."""
    topic = await runtime.create_topic(name, partitions=partitions)
    batches = [records_of(first, BATCH) for first in range(0, records, BATCH)]
    watch = Stopwatch()
    for values, keys in batches:
        await topic.publish_batch(values, keys=keys)
    rates = watch.rates(records)
    await runtime.delete_topic(name)
    return rates


async def replayed(runtime: Any, recording: Recording, checked: int, name: str, partitions: int) -> Rates:
    """Rates with `replay`."""
    settings = {"partitions": partitions}
    watch = Stopwatch()
    report = await replay(recording, runtime, name, speed="max", settings=settings, checked=checked)
    rates = watch.rates(report.records)
    await runtime.delete_topic(name)
    return rates


async def beside_publishing(runtime: Any, files: Any, arguments: argparse.Namespace) -> None:
    """Ratios to `publish_batch`."""
    for words, source, target, batch, goal in (
        ("equal partition counts, 1 and 1", 1, 1, BATCH, 0.80),
        ("equal partition counts, 4 and 4", 4, 4, BATCH, 0.80),
        ("equal partition counts, 4 and 4, recorded in batches of 10", 4, 4, 10, 0.80),
        ("repartitioned, 4 into 6", 4, 6, BATCH, 0.50),
        ("repartitioned, 1 into 4", 1, 4, BATCH, 0.50),
    ):
        recording = await make(files, f"r{source}-{batch}-{target}", source, arguments.records, 100, batch)
        begun = time.perf_counter()
        checked = await check_recording(recording, Selection(), max_message_bytes=1 << 20)
        check_rate = checked / (time.perf_counter() - begun)
        pairs = []
        for _ in range(arguments.rounds):
            alone = await published(runtime, "published", target, arguments.records)
            pairs.append((alone, await replayed(runtime, recording, checked, "replayed", target)))
        alone_wall = statistics.median(alone.wall for alone, _ in pairs)
        rate_wall = statistics.median(rate.wall for _, rate in pairs)
        wall = [rate.wall / alone.wall for alone, rate in pairs]
        processor = [rate.processor / alone.processor for alone, rate in pairs]
        print(
            f"{words}: replay {rate_wall:,.0f}/s, publish_batch {alone_wall:,.0f}/s, ratio by the clock"
            f" {spread(wall)}, by processor time {spread(processor)}, target {goal:.2f}; check {check_rate:,.0f}/s",
            flush=True,
        )


def spread(ratios: list[float]) -> str:
    """The median, and the least and the largest."""
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


async def timer_p99_s() -> float:
    """How late a task is that only sleeps, at 1,000 times a second: what the machine allows."""
    begun, late = trio.current_time(), []
    for number in range(2_000):
        await trio.sleep_until(begun + number / 1_000)
        late.append(trio.current_time() - begun - number / 1_000)
    return sorted(late)[-20]


async def paced(runtime: Any, files: Any, arguments: argparse.Namespace) -> None:
    """How late records are at a pace, and whether that grows."""
    for speed in (1, 10):
        records = RATE * arguments.seconds
        recording = await make(files, f"paced-{speed}", 2, records, 1_000_000 // RATE * speed, 50)
        for acks in ("all", "leader"):
            # As the command does: what is there already would be looked through while records are due.
            gc.collect()
            gc.freeze()
            report = await replay(recording, runtime, f"paced-{speed}-{acks}", speed=speed, acks=acks)
            late, timer = report.lateness, await timer_p99_s()
            print(
                f"speed {speed}, {RATE:,}/s, acks {acks}: p50 {late.p50_s * 1e3:.2f} ms, p99 {late.p99_s * 1e3:.2f} ms"
                f" (target 5), worst {late.max_s * 1e3:.1f} ms, drift {late.drift_s * 1e3:.2f} ms over"
                f" {report.elapsed_s:.1f} s, held {report.held_s:.2f} s; a bare timer: p99 {timer * 1e3:.2f} ms"
            )


@contextmanager
def timed(words: str, goal: int) -> Iterator[Callable[[int], None]]:
    """Print a rate."""
    begun = time.perf_counter()

    def done(records: int) -> None:
        print(
            f"{words}: {records / (time.perf_counter() - begun):,.0f} records per real second, target {goal:,}"
        )

    yield done


def simulated(folder: str) -> None:
    """Rates under the simulator, without faults, with every record accounted for."""
    files = RecordedFiles(folder)

    async def opened() -> tuple[Recording, int]:
        recording = await open_recording(files, "simulated")
        return recording, await check_recording(recording, Selection(), max_message_bytes=1 << 20)

    recording, selected = trio.run(opened)
    for words, options, goal in (
        ("simulated, recorded pace", {"speed": 1}, 2_000),
        ("simulated, recorded pace, repartitioned", {"speed": 1, "partitions": 3}, 2_000),
        ("simulated, batched", {"speed": "max"}, 8_000),
        ("simulated, batched, repartitioned", {"speed": "max", "partitions": 3}, 8_000),
    ):
        with timed(words, goal) as done:
            found = simulate_replay(recording, selected=selected, **options)
            assert found.failure is None
            done(found.records)
    files.close()


async def main(folder: str, arguments: argparse.Namespace) -> None:
    """Measure on a real disk."""
    disk = HostDisk(folder)
    files = await disk.incarnate("recordings")
    async with callboard.open_runtime(Path(folder) / "data") as runtime:
        await beside_publishing(runtime, files, arguments)
        await paced(runtime, files, arguments)
    await make(files, "simulated", 2, SIMULATED, 500_000)
    await disk.aclose()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--in", dest="place", default=None)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.place) as place:
        trio.run(main, place, given)
        simulated(place)
