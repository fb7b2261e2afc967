"""How long a failed message waits, as the group's `retry` says."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import trio

import callboard
from callboard.log.errors import ConfigurationError


async def waits(world: Any, topic: Any, failures: int, **settings: Any) -> list[float]:
    """How long the message waits after each failure."""
    found, last = [], None
    async with topic.subscribe("billing", **settings) as consumer:
        for _ in range(failures + 1):
            message = await consumer.get()
            if last is not None:
                found.append(trio.current_time() - last)
            last = trio.current_time()
            await message.nack()
    return found


@pytest.mark.parametrize(
    ("retry", "expected"), [(5, [5, 5, 5]), (0, [0, 0, 0]), ([1, 10.5], [1, 10.5, 10.5]), ((3,), [3, 3, 3])]
)
async def test_a_group_says_how_long_failed_messages_wait(
    autojump_clock: Any, world: Any, retry: Any, expected: list[float]
) -> None:
    """Exactly so long, by the attempt; the last of a list holds for all later ones."""
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        await orders.publish(b"v")
        assert await waits(world, orders, 3, retry=retry) == pytest.approx(expected, abs=0.01)


async def test_a_message_may_say_it_itself(autojump_clock: Any, world: Any) -> None:
    """By `nack(delay=)`, and by `Retry(after=)` in a handler."""
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        await orders.publish(b"v")
        times: list[float] = []
        async with orders.subscribe("billing", retry=[100]) as consumer:
            await (await consumer.get()).nack(delay=2)
            times.append(trio.current_time())

        async def handle(message: Any) -> None:
            times.append(trio.current_time())
            if len(times) == 2:
                raise callboard.Retry(after=7)
            if len(times) == 3:
                raise OSError("a test")

        with trio.move_on_after(1000):
            await orders.work(handle, "billing")
        assert [b - a for a, b in pairwise(times)] == pytest.approx([2, 7, 100], abs=0.01)


async def test_retry_is_altered_and_outlives_a_reopening(autojump_clock: Any, world: Any) -> None:
    """And says no to a backoff beside it."""
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        await orders.publish(b"v")
        assert await waits(world, orders, 1, backoff=3, max_backoff=3) != []
        settings = await runtime.group("billing").alter(retry=[4, 8])
        assert (settings.retry, settings.backoff) == ((4, 8), 1.0)
        with pytest.raises(ConfigurationError, match="one or the other"):
            await runtime.group("billing").alter(retry=3, backoff=2)
    async with world.open() as runtime:
        (group,) = await runtime.groups()
        assert group.settings.retry == (4, 8)
        assert await waits(world, runtime.topic("orders"), 1) == pytest.approx([8], abs=0.01)
