"""What many partitions cost: consuming in batches, joining groups, opening again: `benchmarks/many_partitions.py`.

Consuming: the same messages over one partition and over many, each batch acked without waiting, in interleaved rounds;
over many, once in batches of one partition each and once in mixed ones. Many take longer, as each partition writes and
syncs a delivery journal of its own (docs/decisions/0020-a-journal-per-partition.md).

Joining: a consumer for each of several groups joins, one after the other or all at once, and all leave at once; then
the directory is opened again, and the last partition takes a publish. Memory is what the process has more than before,
by its resident set.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from functools import partial
from pathlib import Path

import trio

import callboard

VALUE = b"x" * 50
GROUPS = 10
PARTITIONS = 1000


async def consume(partitions: int, messages: int, *, mixed: bool) -> float:
    """Seconds for all of the messages."""
    each = messages // partitions
    with tempfile.TemporaryDirectory() as directory:
        async with callboard.open_runtime(directory) as runtime:
            topic = await runtime.create_topic("jobs", partitions=partitions)
            for partition in range(partitions):
                for first in range(0, each, 10_000):
                    values = [VALUE] * min(10_000, each - first)
                    await topic.publish_batch(values, partition=partition, acks="leader")
            async with topic.subscribe("group") as consumer:
                begun, got = time.perf_counter(), 0
                batches = consumer.batches(mixed=True) if mixed else consumer.batches()
                async for batch in batches:
                    got += len(batch)
                    await batch.ack(wait=False)
                    if got >= each * partitions:
                        break
                await consumer.flush()
                return time.perf_counter() - begun


def resident_mib() -> float:
    """What the process has in memory."""
    (row,) = [row for row in Path("/proc/self/status").read_text("utf-8").splitlines() if row[:6] == "VmRSS:"]
    return int(row.split()[1]) / 1024


async def join(directory: str, groups: int, partitions: int, *, at_once: bool) -> None:
    """Join with each group, have every partition read by it once, and leave with all of them at once."""
    async with callboard.open_runtime(directory) as runtime:
        topic = await runtime.create_topic("jobs", partitions=partitions)
        before_mib, begun, cpu = resident_mib(), time.perf_counter(), time.process_time()
        joined: list[int] = []
        have_joined, leaving = trio.Event(), trio.Event()

        async def member(number: int, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
            async with topic.subscribe(f"group-{number}") as consumer:
                await consumer.get(timeout=0.0)
                joined.append(number)
                if len(joined) == groups:
                    have_joined.set()
                task_status.started()
                await leaving.wait()

        async with trio.open_nursery() as nursery:
            for number in range(groups):
                if at_once:
                    nursery.start_soon(member, number)
                else:
                    await nursery.start(member, number)
            await have_joined.wait()
            took_s, cpu_s = time.perf_counter() - begun, time.process_time() - cpu
            grown_mib = resident_mib() - before_mib
            print(
                f"joined {groups} groups in {took_s:.2f} s ({cpu_s:.2f} s of processor), {grown_mib:.0f} MiB"
            )
            begun, cpu = time.perf_counter(), time.process_time()
            leaving.set()
        took_s, cpu_s = time.perf_counter() - begun, time.process_time() - cpu
        grown_mib = resident_mib() - before_mib
        print(f"left in {took_s:.2f} s ({cpu_s:.2f} s of processor), {grown_mib:.0f} MiB")


async def reopen(directory: str) -> None:
    """Open it, and publish to the last partition."""
    begun, cpu = time.perf_counter(), time.process_time()
    async with callboard.open_runtime(directory) as runtime:
        topic = runtime.topic("jobs")
        await topic.publish(b"x", partition=topic.partitions - 1)
        took_s, cpu_s = time.perf_counter() - begun, time.process_time() - cpu
        print(f"the last partition took a publish after {took_s:.2f} s ({cpu_s:.2f} s of processor)")


def main() -> None:
    """Print all of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--partitions", type=int, default=PARTITIONS)
    parser.add_argument("--groups", type=int, default=GROUPS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--at-once", action="store_true", help="all groups join at once")
    parser.add_argument("--only", choices=("consume", "join"))
    options = parser.parse_args()
    if options.only != "join":
        cases = {
            "one": (1, False),
            "many": (options.partitions, False),
            "many, mixed": (options.partitions, True),
        }
        taken: dict[str, list[float]] = {name: [] for name in cases}
        for _ in range(options.rounds):
            for name, (partitions, mixed) in cases.items():
                found = trio.run(lambda p=partitions, m=mixed: consume(p, options.messages, mixed=m))
                taken[name].append(found)
        one_s = statistics.median(taken["one"])
        for name, seconds in taken.items():
            middle_s = statistics.median(seconds)
            print(
                f"{name:<12} {options.messages:,} messages in {middle_s:.2f} s, {middle_s / one_s:.1f} times"
            )
    if options.only != "consume":
        with tempfile.TemporaryDirectory() as directory:
            trio.run(partial(join, directory, options.groups, options.partitions, at_once=options.at_once))
            trio.run(reopen, directory)


if __name__ == "__main__":
    main()
