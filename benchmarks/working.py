"""How many messages a second `Topic.work` hands to a handler that does nothing: `python benchmarks/working.py`.

Beside it, on the same messages in one run: iterating with acks that nobody waits for, and `receive()`. Each figure is
the median of interleaved rounds.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial

import trio

import callboard

VALUE = b"x" * 120


async def work(topic: callboard.Topic, group: str, count: int, concurrency: int) -> None:
    """By handlers."""
    handled = 0
    with trio.CancelScope() as scope:

        async def handle(message: callboard.ReceivedMessage) -> None:
            nonlocal handled
            handled += 1
            if handled == count:
                scope.cancel()

        await topic.work(handle, group, concurrency=concurrency)


async def iterate(topic: callboard.Topic, group: str, count: int) -> None:
    """One by one, acks gathered."""
    async with topic.subscribe(group) as consumer:
        for _ in range(count):
            message = await consumer.get()
            await message.ack(wait=False)


async def receive(topic: callboard.Topic, group: str, count: int, tasks: int) -> None:
    """By `receive()` in several tasks, which wait for their acks."""
    left = count

    async def take(consumer: callboard.Consumer) -> None:
        nonlocal left
        while left > 0:
            left -= 1
            async with consumer.receive():
                pass

    async with topic.subscribe(group) as consumer, trio.open_nursery() as nursery:
        for _ in range(tasks):
            nursery.start_soon(take, consumer)


async def measure(count: int, rounds: int) -> None:
    """Print a line for each way."""
    ways: dict[str, Callable[[callboard.Topic, str], Awaitable[None]]] = {
        "work, concurrency 1": partial(work, count=count, concurrency=1),
        "work, concurrency 64": partial(work, count=count, concurrency=64),
        "get and ack(wait=False)": partial(iterate, count=count),
        "receive() in 64 tasks": partial(receive, count=count, tasks=64),
    }
    rates: dict[str, list[float]] = {name: [] for name in ways}
    with tempfile.TemporaryDirectory() as directory:
        async with callboard.open_runtime(directory) as runtime:
            topic = await runtime.create_topic("traffic")
            for begin in range(0, count, 1000):
                keys = [b"key-%d" % number for number in range(begin, begin + 1000)]
                await topic.publish_batch([VALUE] * 1000, keys=keys)
            for number in range(rounds):
                for name, way in ways.items():
                    begun = time.perf_counter()
                    await way(
                        topic, f"{name.split(',')[0].split('(')[0].replace(' ', '-')}-{number}-{len(name)}"
                    )
                    rates[name].append(count / (time.perf_counter() - begun))
    base = statistics.median(rates["receive() in 64 tasks"])
    for name, found in rates.items():
        median = statistics.median(found)
        print(f"{name:26} {median:10,.0f} messages/s   {median / base:5.2f} of receive()")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    trio.run(measure, options.count, options.rounds)


if __name__ == "__main__":
    main()
