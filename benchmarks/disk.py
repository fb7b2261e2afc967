"""What the disk seam costs: a hop into a thread, and a small durable write through it.

    python benchmarks/disk.py [FOLDER]

Variants are measured in turns, one operation each, so that the disk's moods meet all of them; medians are printed.
FOLDER (the current one by default) must lie on the disk that shall be measured.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable

import trio

from callboard.log.host.disk import HostDisk, HostIncarnation
from callboard.log.host.threads import ThreadPool
from callboard.log.seams.disk import Create, MakeDirectory, Plan, Sync, Write, Zero

ROUNDS = 2000
WARMUP = 200
SLICES = 11
SLICE_S = 0.1
RECORD = b"x" * 170
FILE_BYTES = 1 << 20

Operation = Callable[[int], Awaitable[None]]


async def in_turns(operations: dict[str, Operation]) -> dict[str, list[float]]:
    """The times in microseconds of each operation, taken in turns."""
    times: dict[str, list[float]] = {name: [] for name in operations}
    for number in range(WARMUP + ROUNDS):
        for name, operation in operations.items():
            started = time.perf_counter_ns()
            await operation(number)
            times[name].append((time.perf_counter_ns() - started) / 1000)
    return {name: sorted(taken[WARMUP:]) for name, taken in times.items()}


def report(title: str, times: dict[str, list[float]], against: str | None = None) -> None:
    """Print the median and the 99th percentile of each, and the rate relative to one of them."""
    print(f"\n{title}")
    for name, taken in times.items():
        middle = statistics.median(taken)
        line = f"  {name:<34} p50 {middle:8.1f} us   p99 {taken[len(taken) * 99 // 100]:8.1f} us"
        if against is not None:
            line += f"   {statistics.median(times[against]) / middle:5.2f} of the rate of {against}"
        print(line)


def nothing() -> None:
    """A job that takes no time."""


async def measure_hops() -> None:
    """A thread that does nothing, ours and trio's."""
    pool, other = ThreadPool("bench", 1), ThreadPool("bench", 1)

    async def own(_: int) -> None:
        await pool.run(nothing)

    async def in_place(_: int) -> None:
        await other.run(nothing, in_place=True)

    async def trios(_: int) -> None:
        await trio.to_thread.run_sync(nothing)

    async def checkpoint(_: int) -> None:
        await trio.lowlevel.checkpoint()

    ways = {"in place": in_place, "parked": own, "trio.to_thread": trios, "checkpoint": checkpoint}
    report("one hop into a thread and back", await in_turns(ways))
    await pool.aclose()
    await other.aclose()


async def through(disk: HostDisk, *, zeroed: bool) -> Operation:
    """A 170-byte write and sync through a disk, appending or over zeros."""
    life = await disk.incarnate("owner")
    handle = life.handle("file")
    await life.submit((Create(handle), Zero(handle, 0, FILE_BYTES if zeroed else 0), Sync(handle)))

    async def operate(number: int) -> None:
        await life.submit((Write(handle, number * len(RECORD), (RECORD,)), Sync(handle)))

    return operate


def bare(path: str, *, zeroed: bool) -> Operation:
    """The same by hand."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    if zeroed:
        os.pwrite(descriptor, bytes(FILE_BYTES), 0)
        os.fdatasync(descriptor)

    async def operate(number: int) -> None:
        os.pwrite(descriptor, RECORD, number * len(RECORD))
        os.fdatasync(descriptor)

    return operate


def through_trio(path: str, *, zeroed: bool) -> Operation:
    """The same in one of trio's threads."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    if zeroed:
        os.pwrite(descriptor, bytes(FILE_BYTES), 0)
        os.fdatasync(descriptor)

    def write(number: int) -> None:
        os.pwrite(descriptor, RECORD, number * len(RECORD))
        os.fdatasync(descriptor)

    async def operate(number: int) -> None:
        await trio.to_thread.run_sync(write, number)

    return operate


async def measure_commits(folder: str, *, zeroed: bool) -> None:
    """A small durable write, in every way there is."""
    kinds = {
        "submit, fused": HostDisk(f"{folder}/fused"),
        "submit, parked, fused": HostDisk(f"{folder}/parked", in_place=False),
        "submit, write and sync apart": HostDisk(f"{folder}/apart", fuse=False),
        "submit, inline, fused": HostDisk(f"{folder}/inline", inline=True),
        "submit, inline, apart": HostDisk(f"{folder}/inline-apart", inline=True, fuse=False),
    }
    operations = {"bare": bare(f"{folder}/bare", zeroed=zeroed)}
    operations["trio.to_thread"] = through_trio(f"{folder}/to_thread", zeroed=zeroed)
    for name, disk in kinds.items():
        (await disk.lock({})).release()
        operations[name] = await through(disk, zeroed=zeroed)
    how = "over zeros" if zeroed else "appending"
    report(f"170 bytes written and synced, {how}", await in_turns(operations), against="bare")
    for disk in kinds.values():
        await disk.aclose()


async def busy_owners(disk: HostDisk, count: int) -> Callable[[float], Awaitable[tuple[int, float]]]:
    """So many owners that commit all the time; how many commits, and for how many seconds they held the loop."""
    (await disk.lock({})).release()
    writes = []
    for number in range(count):
        life = await disk.incarnate(f"owner{number}")
        handle = life.handle(f"file{number}")
        await life.submit((Create(handle), Zero(handle, 0, FILE_BYTES), Sync(handle)))
        writes.append((life, (Write(handle, 0, (RECORD,)), Sync(handle))))

    async def operate(seconds: float) -> tuple[int, float]:
        end, commits, held_s = time.perf_counter() + seconds, 0, 0.0

        async def commit(life: HostIncarnation, plan: Plan) -> None:
            nonlocal commits
            while time.perf_counter() < end:
                await life.submit(plan)
                commits += 1

        async def watch() -> None:
            nonlocal held_s
            while (before := time.perf_counter()) < end:
                await trio.lowlevel.checkpoint()
                held_s += max(0.0, time.perf_counter() - before - 0.001)

        async with trio.open_nursery() as nursery:
            for life, plan in writes:
                nursery.start_soon(commit, life, plan)
            nursery.start_soon(watch)
        return commits, held_s

    return operate


async def measure_owners(folder: str, count: int) -> None:
    """Many owners beside a task that always has something to do: commits, and how long that task waited."""
    ways: dict[str, dict[str, bool]] = {
        "in place": {},
        "parked": {"in_place": False},
        "inline": {"inline": True},
    }
    disks = {name: HostDisk(f"{folder}/{name}", **settings) for name, settings in ways.items()}
    owners = {name: await busy_owners(disk, count) for name, disk in disks.items()}
    found: dict[str, list[tuple[int, float]]] = {name: [] for name in ways}
    for _ in range(SLICES):
        for name, operate in owners.items():
            found[name].append(await operate(SLICE_S))
    print(f"\n{count} owners commit at once, beside a busy task")
    for name, taken in found.items():
        commits = statistics.median(commits for commits, _ in taken) / SLICE_S
        held = statistics.median(held_s for _, held_s in taken) / SLICE_S
        print(
            f"  {name:<34} {commits:8.0f}/s   the loop held beyond 1 ms for {held * 1000:6.1f} ms in a second"
        )
    for disk in disks.values():
        await disk.aclose()


async def measure_cached(folder: str) -> None:
    """Reading 4 KiB that is in memory."""
    disk = HostDisk(f"{folder}/reads")
    (await disk.lock({})).release()
    life = await disk.incarnate("owner")
    handle = life.handle("d/file")
    await life.submit((MakeDirectory("d"), Create(handle), Zero(handle, 0, FILE_BYTES)))

    async def cached(number: int) -> None:
        life.read_cached(handle, number % 200 * 4096, 4096)

    async def waiting(number: int) -> None:
        await life.read(handle, number % 200 * 4096, 4096)

    report("reading 4 KiB from the page cache", await in_turns({"read_cached": cached, "read": waiting}))
    await disk.aclose()


async def main(folder: str) -> None:
    """Everything, in a folder of its own that is removed."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        await measure_hops()
        for zeroed in (True, False):
            part = f"{place}/{zeroed}"
            os.mkdir(part)
            await measure_commits(part, zeroed=zeroed)
        for count in (1, 16, 64):
            os.mkdir(part := f"{place}/{count}")
            await measure_owners(part, count)
        await measure_cached(place)


if __name__ == "__main__":
    trio.run(main, sys.argv[1] if len(sys.argv) > 1 else ".")
