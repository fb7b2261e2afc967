"""What a rebalance costs: `python benchmarks/rebalance.py [--in DIRECTORY] [--rate N] [--before SECONDS]`.

An exclusive group of four consumers reads 12 partitions, into which N messages a second are published, evenly. After
some time a fifth consumer joins. For partitions that stay where they are: the longest gap between two deliveries before
it joined, and the longest that overlaps the ten seconds after. For those that moved: from the old owner's last ack to
the new owner's first message. A gap cannot be shorter than the pause between two batches of the publisher, 10 ms.

The target: no gap of a partition that stays above twice the longest before; a moved one is served within 100 ms.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import defaultdict
from itertools import pairwise

import trio

import callboard

PARTITIONS = 12
MEMBERS = 4
TICK_S = 0.01
AFTER_S = 10.0


class Seen:
    """When each partition's messages were handed over and acked, and by whom."""

    def __init__(self) -> None:
        self.deliveries: dict[int, list[tuple[float, str]]] = defaultdict(list)
        self.acked: dict[tuple[int, str], float] = {}

    def longest(self, partition: int, since: float, until: float) -> float:
        """The longest gap between two deliveries that overlaps this span."""
        times = [at for at, _ in self.deliveries[partition]]
        gaps = [two - one for one, two in pairwise(times) if two > since and one < until]
        return max(gaps, default=float("inf"))


async def consume(topic: callboard.Topic, name: str, seen: Seen) -> None:
    """Take what comes, and ack it."""
    async with topic.subscribe("group", mode="exclusive", name=name) as consumer:
        async for batch in consumer.batches(max_wait=0.0):
            seen.deliveries[batch.partition].append((trio.current_time(), name))
            await batch.ack(wait=False)
            seen.acked[batch.partition, name] = trio.current_time()


async def publish(topic: callboard.Topic, partition: int, rate: int) -> None:
    """A share of the rate into one partition."""
    count = max(1, round(rate * TICK_S / PARTITIONS))
    at = trio.current_time() + partition * TICK_S / PARTITIONS
    while True:
        await trio.sleep_until(at)
        at += TICK_S
        await topic.publish_batch([b"v" * 100] * count, partition=partition)


async def main(directory: str, rate: int, before_s: float) -> None:
    """Publish, consume, let one more join, and tell the gaps."""
    seen = Seen()
    async with callboard.open_runtime(directory) as runtime, trio.open_nursery() as nursery:
        topic = await runtime.create_topic("topic", partitions=PARTITIONS)
        for member in range(MEMBERS):
            nursery.start_soon(consume, topic, f"member-{member}", seen)
        for partition in range(PARTITIONS):
            nursery.start_soon(publish, topic, partition, rate)
        await trio.sleep(2.0)  # the first rebalances are over
        began = trio.current_time()
        await trio.sleep(before_s)
        joined = trio.current_time()
        nursery.start_soon(consume, topic, "newcomer", seen)
        await trio.sleep(AFTER_S)
        ended = trio.current_time()
        nursery.cancel_scope.cancel()
    moved, stayed = [], []
    for partition, deliveries in seen.deliveries.items():
        old = next(name for at, name in reversed(deliveries) if at <= joined)
        first = next((row for row in deliveries if row[0] > joined and row[1] != old), None)
        if first is None:
            stayed.append(partition)
        else:
            moved.append((partition, first[0] - seen.acked[partition, old]))
    before = max(seen.longest(partition, began, joined) for partition in stayed)
    after = max(seen.longest(partition, joined, ended) for partition in stayed)
    print(
        f"{len(stayed)} partitions stay: longest gap before {before * 1e3:.0f} ms, after {after * 1e3:.0f} ms,"
        f" ratio {after / before:.2f}"
    )
    for partition, gap in sorted(moved):
        print(f"partition {partition} moves: {gap * 1e3:.0f} ms from the last ack to the first message")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--in", dest="directory", help="where the directory is made (default: a temporary one)"
    )
    parser.add_argument("--rate", type=int, default=20_000)
    parser.add_argument(
        "--before", type=float, default=30.0, help="how long to look before the newcomer joins"
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.directory) as scratch:
        trio.run(main, scratch, arguments.rate, arguments.before)
