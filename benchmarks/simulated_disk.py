"""How many crash-and-recover cycles of a log the simulated disk allows, and how many states the exhaustive mode.

A cycle: power is lost in the middle of a write, of what was not synced something survives by a seed; the log is opened
anew, all its records are read and held against what was acknowledged; then some more are appended, with and without
syncs. Run it as `python benchmarks/simulated_disk.py`. Numbers of a shared machine vary by some 30 %.
"""

from __future__ import annotations

import argparse
import time
from functools import partial

import trio

from callboard.log.errors import StaleIncarnation
from callboard.log.format.columns import Columns
from callboard.log.partition.partition_log import LogSettings, PartitionLog
from callboard.simulations.disk.memory_disk import MemoryDisk
from callboard.simulations.disk.survival import Survival
from callboard.simulations.entropy import SeededEntropy
from callboard.simulations.exhaustive.exploring import explore
from callboard.simulations.exhaustive.life import HandClock

SETTINGS = LogSettings(segment_bytes=65_536)
CYCLES_PER_DISK = 10
VALUE = b"x" * 100


async def lives(seed: int, cycles: int, *, instant: bool) -> tuple[int, int]:
    """Crash and recover one log again and again. Returns its verbs, and the sectors and names that were lost."""
    disk = MemoryDisk()
    disk.instant = instant
    clock, entropy = HandClock(), SeededEntropy(seed)
    acknowledged: set[int] = set()
    for cycle in range(cycles):
        files = await disk.incarnate("partition")
        log = await PartitionLog.open(files, "t/0", SETTINGS, label="t/0", clock=clock, entropy=entropy)
        read = 0
        while read < log.visible_end:
            reading = await log.read(read, max_records=1_000)
            lost = (range(first, last + 1) for first, last in reading.lost)
            assert all(acknowledged.isdisjoint(offsets) for offsets in lost)
            read = reading.next_offset
        assert log.visible_end > max(acknowledged, default=-1)
        disk.crash_after(
            4 + entropy.integer(3), Survival(seed * 1_000 + cycle, 0.5, 0.5, 0.2, 0.5).choosing()
        )
        try:
            for number in range(12):
                staged = log.stage([Columns.build([VALUE] * 5)], durable=number % 2 == 0)
                await files.submit(staged.verbs)
                log.applied(staged)
                if staged.is_synced:
                    acknowledged.update(range(staged.base_offsets[0], staged.end_offset))
        except StaleIncarnation:
            pass
        disk.crash()
        disk.power_on()
    counts = disk.faults.counts
    return disk.verbs_executed, counts["sectors lost"] + counts["names lost"] + counts["sectors trashed"]


def measure_cycles(seconds: float, *, instant: bool) -> None:
    """Cycles until the time is over."""
    began, cpu_began, cycles, verbs, lost = time.perf_counter(), time.process_time(), 0, 0, 0
    seed = 0
    while time.perf_counter() - began < seconds:
        seed += 1
        ran, gone = trio.run(partial(lives, seed, CYCLES_PER_DISK, instant=instant))
        cycles, verbs, lost = cycles + CYCLES_PER_DISK, verbs + ran, lost + gone
    took, cpu = time.perf_counter() - began, time.process_time() - cpu_began
    how = "without checkpoints" if instant else "every plan and read a checkpoint"
    print(
        f"crash and recover, {how}: {cycles / took:,.0f} cycles/s, {cycles / cpu:,.0f} per second of CPU "
        f"({verbs / took:,.0f} verbs/s, "
        f"{lost / cycles:.1f} sectors and names lost or trashed per cycle)"
    )


def main() -> None:
    """Measure both."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--length", type=int, default=2)
    arguments = parser.parse_args()
    for instant in (False, True):
        measure_cycles(arguments.seconds, instant=instant)
    began, cpu_began = time.perf_counter(), time.process_time()
    found = explore(arguments.length)
    took, cpu = time.perf_counter() - began, time.process_time() - cpu_began
    print(
        f"exhaustive, length {arguments.length}: {found.states:,} states of {found.sequences:,} sequences, "
        f"{found.distinct:,} distinct, {len(found.failures)} failures, {took:.1f} s, "
        f"{found.states / took:,.0f} states/s, {found.states / cpu:,.0f} per second of CPU"
    )


if __name__ == "__main__":
    main()
