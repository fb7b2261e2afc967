"""How much is done before other tasks of the program run: counted in calls of functions, not in seconds."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import Any

import trio
from trio.testing import MockClock

import callboard
from callboard.log.limits import LAUNCHED_AT_ONCE, STEP_ITEMS

CALLS_MAX = 80 * STEP_ITEMS
"""Calls that a step may make: ten to fifteen milliseconds."""
LONGEST = 2 * CALLS_MAX
"""Calls that the longest steps make, which handle some thousand records and lease what they have chosen."""
MANY = 3 * STEP_ITEMS


class Calls(trio.abc.Instrument):
    """The calls that each step of a task makes, of functions in Python and of built-in ones."""

    def __init__(self) -> None:
        self.most: tuple[int, str] = (0, "")
        """Of all steps: how many calls, and in which task."""
        self._count = 0

    def _called(self, _frame: object, event: str, _given: object) -> None:
        if event in ("call", "c_call"):
            self._count += 1

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """A step begins."""
        self._count = 0
        sys.setprofile(self._called)

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """It ends."""
        sys.setprofile(None)
        self.most = max(self.most, (self._count, task.name))


@contextmanager
def counted() -> Iterator[Calls]:
    """Count in this block."""
    calls = Calls()
    trio.lowlevel.add_instrument(calls)
    try:
        yield calls
    finally:
        trio.lowlevel.remove_instrument(calls)


async def filled(runtime: Any, count: int, **settings: Any) -> Any:
    """A topic with so many messages."""
    topic = await runtime.create_topic("jobs", **settings)
    for _ in range(0, count, STEP_ITEMS):
        await topic.publish_batch([b"v"] * STEP_ITEMS)
    return topic


async def test_redeliveries_that_are_due_together_let_others_run(
    world: Any, autojump_clock: MockClock
) -> None:
    """Three thousand messages whose delays end at once become ready a part at a time, and all of them come."""
    async with world.open() as runtime:
        topic = await filled(runtime, MANY)
        async with topic.subscribe("group", max_in_flight=MANY, visibility_timeout=6000) as consumer:
            ends = trio.current_time() + 100.0
            for number in range(MANY):
                message = await consumer.get()
                await message.nack(delay=ends - trio.current_time() + number * 7919 % MANY / 1e9)
            assert await consumer.get(timeout=0) is None
            with counted() as calls:
                await trio.sleep(ends + 1.0 - trio.current_time())
            assert 0 < calls.most[0] <= CALLS_MAX, calls.most
            count = 0
            while count < MANY:
                await (await consumer.get()).ack(wait=False)
                count += 1


async def test_opening_many_topics_lets_others_run(world: Any, autojump_clock: MockClock) -> None:
    """A directory with more partitions than are launched at once is opened in several steps."""
    async with world.open() as runtime:
        for number in range(3):
            await runtime.create_topic(f"topic-{number}", partitions=LAUNCHED_AT_ONCE)
    with counted() as calls:
        async with world.open() as runtime:
            assert len(runtime.topics()) == 3
    assert 0 < calls.most[0] <= 300 * LAUNCHED_AT_ONCE, calls.most


async def test_a_consumer_that_leaves_lets_others_run(world: Any, autojump_clock: MockClock) -> None:
    """Five thousand ranges that a consumer had leased are given back a part at a time, and all of them come again."""
    count = 10 * STEP_ITEMS
    async with world.open() as runtime:
        topic = await filled(runtime, count)
        async with AsyncExitStack() as stack:
            consumer = topic.subscribe("group", max_in_flight=count, visibility_timeout=6000)
            await stack.enter_async_context(consumer)
            for number in range(count):
                message = await consumer.get()
                if number % 2:
                    await message.ack(wait=False)
            await consumer.flush()
            with counted() as calls:
                await stack.aclose()
            assert 0 < calls.most[0] <= CALLS_MAX, calls.most
        async with topic.subscribe("group") as consumer:
            with counted() as calls:
                offsets = [(await consumer.get()).offset for _ in range(100)]
                batch = await consumer.get_batch(max_records=count, max_wait=0.5)
            assert 0 < calls.most[0] <= CALLS_MAX, calls.most
            assert offsets == list(range(0, 200, 2))
            assert len(batch) > 0


async def test_the_first_fetch_among_priorities_lets_others_run(
    world: Any, autojump_clock: MockClock
) -> None:
    """Twenty thousand messages are ranked a part at a time before the first is delivered, also when they come again."""
    count = 20 * STEP_ITEMS
    async with world.open() as runtime:
        topic = await runtime.create_topic("jobs", priorities=True)
        for _ in range(20):
            messages = [callboard.Message(b"v", priority=number % 10) for number in range(STEP_ITEMS)]
            await topic.publish_batch(messages)
        for _ in range(2):
            with counted() as calls:
                async with topic.subscribe("group", max_in_flight=count, visibility_timeout=6000) as consumer:
                    offsets = [(await consumer.get()).offset for _ in range(8 * STEP_ITEMS)]
            assert 0 < calls.most[0] <= LONGEST, calls.most
            priorities = [offset % STEP_ITEMS % 10 for offset in offsets]
            assert priorities == sorted(priorities, reverse=True)


async def test_many_scattered_messages_that_expire_let_others_run(
    world: Any, autojump_clock: MockClock
) -> None:
    """Of twenty thousand messages every second one expires: they are settled a part at a time, the others come."""
    count = 20 * STEP_ITEMS
    async with world.open() as runtime:
        topic = await runtime.create_topic("jobs")
        for _ in range(20):
            messages = [
                callboard.Message(b"v", ttl=1.0 + 1000 * (number % 2)) for number in range(STEP_ITEMS)
            ]
            await topic.publish_batch(messages)
        async with topic.subscribe("group", max_in_flight=count, visibility_timeout=6000) as consumer:
            await trio.sleep(2.0)
            with counted() as calls:
                offsets: list[int] = []
                while len(offsets) < count // 2:
                    batch = await consumer.get_batch(max_records=count, max_wait=0.1)
                    offsets += [message.offset for message in batch]
                    await batch.ack()
            assert 0 < calls.most[0] <= LONGEST, calls.most
            assert offsets == list(range(1, count, 2))
