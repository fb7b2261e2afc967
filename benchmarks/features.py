"""What delivery features cost batch publishing and batch consuming, unused and used: ratios of interleaved pairs.

Usage: `python benchmarks/features.py [--before PYTHON] [--rounds 9] [--batch 1000] [--works ...] [--directory DIR]`.

    unused  the same plain batches by this version and by PYTHON, the interpreter of an environment with a version that
            had none of the features; both are processes that take turns
    used    batches with a feature beside batches without it, in one process in turn

Each figure is records per second, and the ratio is the median over the rounds of the pairs' ratios: 0.9 means that the
feature costs a tenth. Beside it the same of processor time, which another program's load moves less. Put `--directory`
into memory (`/dev/shm`) to see what Python costs; on a disk a sync hides it. Values have 100 bytes. All is durable when
acknowledged, acks are given with `wait=False` and flushed at the end.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import trio

import callboard

VALUE = b"v" * 100
SECONDS = 0.4
BACKLOG = 400_000
SLOW_BACKLOG = 60_000
SLOW = ("priority", "key-order", "delay")
"""What reads records before it leases them, or published them slowly: less is consumed of these in a round."""

Figure = tuple[float, float]
"""Records per second, and records per second of processor time."""

TOPICS: dict[str, dict[str, Any]] = {
    "priorities-unset": {"priorities": True},
    "priority": {"priorities": True},
    "window-unset": {"dedup_window": 3600},
    "dedup": {"dedup_window": 3600},
    "default-ttl": {"default_ttl": 3600},
}
"""Settings of the topic of a feature."""

GROUPS: dict[str, dict[str, Any]] = {
    "key-order": {"ordering": "key"},
    "key-order-unset": {"ordering": "key"},
    "retry-unset": {"max_deliveries": 5, "retry": 5, "dead_letter_topic": "letters"},
}
"""Settings of its group."""

BASES = {"key-order": "keys"}
"""What a feature is set beside, where that is not the plain batch."""

PUBLISHING = ("priorities-unset", "window-unset", "ttl", "default-ttl", "priority", "dedup", "delay", "keys")
CONSUMING = (
    "priorities-unset",
    "retry-unset",
    "key-order-unset",
    "ttl",
    "default-ttl",
    "priority",
    "dedup",
    "delay",
    "keys",
    "key-order",
)
WORKS = (
    "tasks plain",
    "singly plain",
    *(f"publish {name}" for name in ("plain", *PUBLISHING)),
    *(f"consume {name}" for name in ("plain", *CONSUMING)),
)


def columns(feature: str, begin: int, count: int) -> dict[str, Any]:
    """What a batch of a feature carries beside its values."""
    if feature == "ttl":
        return {"ttls": [3600.0] * count}
    if feature == "priority":
        return {"priorities": [number % 10 for number in range(count)]}
    if feature == "dedup":
        return {"dedup_ids": [b"order %d" % number for number in range(begin, begin + count)]}
    if feature == "delay":
        return {"delays": [3600.0] * count}
    if feature in ("keys", "key-order"):
        return {"keys": [b"key %d" % (number * 7919 % 5000) for number in range(begin, begin + count)]}
    return {}


class Contestant:
    """One version of Callboard: carries out orders, a figure each."""

    def __init__(self, runtime: callboard.Runtime, batch: int) -> None:
        self._runtime = runtime
        self._batch = batch
        self._topics = 0

    async def carry_out(self, work: str) -> Figure:
        """The figure of one round."""
        kind, feature = work.split(" ")
        self._topics += 1
        topic = await self._runtime.create_topic(f"topic-{self._topics}", **TOPICS.get(feature, {}))
        ways = {
            "publish": self._publish,
            "consume": self._consume,
            "tasks": self._tasks,
            "singly": self._singly,
        }
        figure = await ways[kind](topic, feature)
        await self._runtime.delete_topic(topic.name)
        return figure

    async def _publish(self, topic: callboard.Topic, feature: str) -> Figure:
        batch, done = self._batch, 0
        values = [VALUE] * batch
        await topic.publish_batch(values, **columns(feature, 1 << 40, batch))
        began, used = time.perf_counter(), time.process_time()
        while time.perf_counter() - began < SECONDS:
            await topic.publish_batch(values, **columns(feature, done, batch))
            done += batch
        return done / (time.perf_counter() - began), done / (time.process_time() - used)

    async def _tasks(self, topic: callboard.Topic, _: str) -> Figure:
        """Messages published one by one, by many tasks."""
        count, tasks = 25_600, 512

        async def publish() -> None:
            for _ in range(count // tasks):
                await topic.publish(VALUE)

        began, used = time.perf_counter(), time.process_time()
        async with trio.open_nursery() as nursery:
            for _ in range(tasks):
                nursery.start_soon(publish)
        return count / (time.perf_counter() - began), count / (time.process_time() - used)

    async def _singly(self, topic: callboard.Topic, _: str) -> Figure:
        """Messages consumed one by one."""
        count = 30_000
        for _begin in range(0, count, 1000):
            await topic.publish_batch([VALUE] * 1000, acks="leader")
        await topic.publish(VALUE)
        seen = 0
        async with topic.subscribe(topic.name) as consumer:
            began, used = time.perf_counter(), time.process_time()
            async for message in consumer:
                _ = message.value
                await message.ack(wait=False)
                seen += 1
                if seen == count:
                    break
            await consumer.flush()
            return seen / (time.perf_counter() - began), seen / (time.process_time() - used)

    async def _consume(self, topic: callboard.Topic, feature: str) -> Figure:
        backlog = SLOW_BACKLOG if feature in SLOW else BACKLOG
        for begin in range(0, backlog, 1000):
            given = {"delays": [0.0] * 1000} if feature == "delay" else columns(feature, begin, 1000)
            await topic.publish_batch([VALUE] * 1000, acks="leader", **given)
        if feature == "delay":
            while await topic.delayed().count():  # noqa: ASYNC110 - there is nothing to wait for
                await trio.sleep(0.05)
        else:
            await topic.publish(VALUE)
        seen = 0
        async with topic.subscribe(topic.name, **GROUPS.get(feature, {})) as consumer:
            began, used = time.perf_counter(), time.process_time()
            async for messages in consumer.batches(max_records=self._batch):
                seen += len(messages.values())
                await messages.ack(wait=False)
                if seen >= backlog:
                    break
            await consumer.flush()
            return seen / (time.perf_counter() - began), seen / (time.process_time() - used)


async def serve(directory: str, batch: int) -> None:
    """Carry out orders from standard input, one figure a line."""
    async with callboard.open_runtime(f"{directory}/data") as runtime:
        if hasattr(callboard, "DeadLetterTopic"):
            await runtime.create_topic("letters")
        contestant = Contestant(runtime, batch)
        while order := await trio.to_thread.run_sync(sys.stdin.readline):
            print(json.dumps(await contestant.carry_out(order.strip())), flush=True)


class Process:
    """A contestant in a process of its own."""

    def __init__(self, python: str, directory: str, batch: int) -> None:
        self._folder = tempfile.TemporaryDirectory(dir=directory)
        self._process = subprocess.Popen(
            [python, "-P", __file__, "--serve", self._folder.name, "--batch", str(batch)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def order(self, work: str) -> Figure:
        """The figure of one round."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(work + "\n")
        self._process.stdin.flush()
        wall, processor = json.loads(self._process.stdout.readline())
        return wall, processor

    def end(self) -> None:
        """End the process and remove its files."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        self._folder.cleanup()


def report(title: str, pairs: list[tuple[Figure, Figure]]) -> str:
    """One line: the first's rate, and its ratios to the second's."""
    ratios = [sorted(first[kind] / second[kind] for first, second in pairs) for kind in (0, 1)]
    wall, processor = (statistics.median(found) for found in ratios)
    rate = statistics.median(first[0] for first, _ in pairs)
    spread = f"{ratios[0][0]:.2f} to {ratios[0][-1]:.2f}"
    return f"{title:<42} {rate:>12,.0f}/s   x{wall:.2f} ({spread}), of processor time x{processor:.2f}"


def alternate(
    rounds: int, first: Callable[[], Figure], second: Callable[[], Figure]
) -> list[tuple[Figure, Figure]]:
    """Pairs of figures, each of the two first in turn; one pair more, which warms up, is thrown away."""
    pairs = []
    for number in range(rounds + 1):
        if number % 2:
            one = first()
            pairs.append((one, second()))
        else:
            two = second()
            pairs.append((first(), two))
    return pairs[1:]


def main() -> None:
    """Order the works in turn, and print a line for each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--before", help="the Python of an environment with a version without the features")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--batch", type=int, default=1000)
    parser.add_argument("--works", default=",".join(WORKS))
    parser.add_argument("--directory", default=".")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        trio.run(serve, given.serve, given.batch)
        return
    processes = [Process(sys.executable, given.directory, given.batch)]
    if given.before:
        processes.append(Process(given.before, given.directory, given.batch))
    ours = processes[0]
    try:
        for work in given.works.split(","):
            kind, feature = work.split(" ")
            first = partial(ours.order, work)
            if feature != "plain":
                base = f"{kind} {BASES.get(feature, 'plain')}"
                pairs = alternate(given.rounds, first, partial(ours.order, base))
                print(report(f"{work}, of {base}", pairs), flush=True)
            elif given.before:
                pairs = alternate(given.rounds, first, partial(processes[1].order, work))
                print(report(f"{work}, of the version before", pairs), flush=True)
    finally:
        for process in processes:
            process.end()


if __name__ == "__main__":
    main()
