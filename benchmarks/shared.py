"""What sharing a group costs: `python benchmarks/shared.py [--in DIRECTORY] [--messages N] [--rounds N]`.

Messages of 100 bytes in four partitions are consumed in batches and acked, by one consumer, and by eight of one group.
Both take all of them, right after each other, in groups of their own. The target: eight keep 70 % of one's rate.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time

import trio

import callboard

PARTITIONS = 4
BATCH = 1_000
MANY = 8


async def consume(topic: callboard.Topic, group: str, consumers: int, messages: int) -> float:
    """How long it takes until so many consumers of a new group have acked all."""
    left = messages
    ready, everybody, done = 0, trio.Event(), trio.Event()

    async def one() -> None:
        nonlocal left, ready
        async with topic.subscribe(group) as consumer:
            ready += 1
            if ready == consumers:
                everybody.set()
            await everybody.wait()
            async for batch in consumer.batches(max_records=BATCH):
                await batch.ack(wait=False)
                left -= len(batch)
                if left == 0:
                    done.set()

    async with trio.open_nursery() as nursery:
        for _ in range(consumers):
            nursery.start_soon(one)
        await everybody.wait()
        began = time.perf_counter()
        await done.wait()
        took = time.perf_counter() - began
        nursery.cancel_scope.cancel()
    return took


async def main(directory: str, messages: int, rounds: int) -> None:
    """Publish, then consume in pairs."""
    async with callboard.open_runtime(directory) as runtime:
        topic = await runtime.create_topic("topic", partitions=PARTITIONS)
        for number in range(messages // BATCH):
            await topic.publish_batch([b"v" * 100] * BATCH, partition=number % PARTITIONS)
        ratios, rates = [], []
        for number in range(rounds + 1):
            one = await consume(topic, f"one-{number}", 1, messages)
            many = await consume(topic, f"many-{number}", MANY, messages)
            if number:  # the first pair warms up
                ratios.append(one / many)
                rates.append(messages / one)
        print(
            f"{MANY} consumers against one: {statistics.median(ratios):.2f}"
            f" ({min(ratios):.2f} to {max(ratios):.2f}, {rounds} pairs); one: {statistics.median(rates):,.0f}/s"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--in", dest="directory", help="where the directory is made (default: a temporary one)"
    )
    parser.add_argument("--messages", type=int, default=400_000)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.directory) as scratch:
        trio.run(main, scratch, arguments.messages, arguments.rounds)
