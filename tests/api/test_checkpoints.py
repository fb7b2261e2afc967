"""Calls that have nothing to do are checkpoints all the same, as all of trio's own functions are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock, assert_checkpoints

import callboard

Call = Callable[[Any, Any], Awaitable[object]]
"""Of a runtime and an empty topic in it."""


async def _restart_nothing(runtime: Any, topic: Any) -> None:
    await runtime._session.system.root.settled("catalog")


CALLS: dict[str, Call] = {
    "publish_batch": lambda runtime, topic: topic.publish_batch([]),
    "publish_batch to a partition": lambda runtime, topic: topic.publish_batch([], partition=1),
    "publish_batch with keys": lambda runtime, topic: topic.publish_batch([], keys=[]),
    "publish_batch at an offset": lambda runtime, topic: topic.publish_batch(
        [], partition=0, expected_offset=0
    ),
    "publish_batch, not awaited": lambda runtime, topic: topic.publish_batch([], acks="none"),
    "flush": lambda runtime, topic: topic.flush(),
    "describe": lambda runtime, topic: topic.describe(),
    "stats": lambda runtime, topic: runtime.stats(),
    "groups": lambda runtime, topic: runtime.groups(),
    "delayed().list": lambda runtime, topic: topic.delayed().list(),
    "delayed().next": lambda runtime, topic: topic.delayed().next(),
    "delayed().count": lambda runtime, topic: topic.delayed().count(),
    "delayed().cancel": lambda runtime, topic: topic.delayed().cancel([]),
    "delayed().cancel_ids": lambda runtime, topic: topic.delayed().cancel_ids(0, []),
    "delayed().cancel_ids of others": lambda runtime, topic: topic.delayed().cancel_ids(0, [7]),
    "dead_letters.list": lambda runtime, topic: runtime.dead_letters("jobs").list(),
    "dead_letters.count": lambda runtime, topic: runtime.dead_letters("jobs").count(),
    "dead_letters.redrive": lambda runtime, topic: runtime.dead_letters("jobs").redrive(),
    "dead_letters.purge": lambda runtime, topic: runtime.dead_letters("jobs").purge(),
    "kept letters' list": lambda runtime, topic: topic.dead_letters("group").list(),
    "kept letters' count": lambda runtime, topic: topic.dead_letters("group").count(),
    "Supervisor.settled": _restart_nothing,
}


async def _opened(world: Any, runtime: Any, *, with_delays: bool = False) -> Any:
    topic = await runtime.create_topic("jobs", partitions=2)
    async with topic.subscribe("group"):
        pass
    if with_delays:
        await topic.delayed().cancel([await topic.publish(b"late", delay=60.0)])
    return topic


@pytest.mark.parametrize("with_delays", [False, True])
@pytest.mark.parametrize("name", CALLS)
async def test_a_call_with_nothing_to_do_is_a_checkpoint(
    world: Any, autojump_clock: MockClock, name: str, with_delays: bool
) -> None:
    """It can be cancelled, and lets other tasks run, also in a loop that calls nothing else."""
    async with world.open() as runtime:
        topic = await _opened(world, runtime, with_delays=with_delays)
        with assert_checkpoints():
            await CALLS[name](runtime, topic)


@pytest.mark.parametrize("verb", ["ack", "nack", "reject", "release"])
@pytest.mark.parametrize("mixed", [False, True])
async def test_settling_a_batch_whose_messages_are_all_settled_is_a_checkpoint(
    world: Any, autojump_clock: MockClock, verb: str, mixed: bool
) -> None:
    """Nothing is left to be settled, and the call can be cancelled and lets other tasks run all the same."""
    async with world.open() as runtime:
        topic = await _opened(world, runtime)
        await topic.publish_batch([b"x"] * 2, partition=0)
        async with topic.subscribe("group") as consumer:
            batch = await consumer.get_batch(mixed=mixed)
            for message in batch:
                await message.ack()
            with assert_checkpoints():
                await getattr(batch, verb)()


async def test_a_producer_with_nothing_to_publish_has_checkpoints(
    world: Any, autojump_clock: MockClock
) -> None:
    """An empty batch of a producer can be cancelled and lets other tasks run; so does asking for its sequence."""
    async with world.open() as runtime:
        topic = await _opened(world, runtime)
        async with topic.producer("import") as producer:
            with assert_checkpoints():
                await producer.publish_batch([])
            with assert_checkpoints():
                await producer.next_sequence()


async def test_a_consumer_with_nothing_to_do_has_checkpoints(world: Any, autojump_clock: MockClock) -> None:
    """Entering, flushing, looking once and leaving can be cancelled and let other tasks run."""
    async with world.open() as runtime:
        topic = await _opened(world, runtime)
        consumer = topic.subscribe("group")
        with assert_checkpoints():
            await consumer.__aenter__()
        for call in (
            consumer.flush,
            lambda: consumer.get(timeout=0),
            lambda: consumer.get_batch(timeout=0),
            lambda: consumer.get_batch(timeout=0, mixed=True),
        ):
            with assert_checkpoints():
                assert await call() is None
        with assert_checkpoints():
            await consumer.__aexit__(None, None, None)


async def test_reading_an_empty_topic_is_a_checkpoint(world: Any, autojump_clock: MockClock) -> None:
    """The first step of a reader that finds nothing, and each after it, can be cancelled and lets other tasks run."""
    async with world.open() as runtime:
        topic = await _opened(world, runtime)
        for reader in (topic.read(), topic.read_batches()):
            for _ in range(3):
                with assert_checkpoints():
                    assert await anext(reader, None) is None


class Steps(trio.abc.Instrument):
    """Counts the steps of one task: between two of them all other tasks that can run do so."""

    def __init__(self) -> None:
        self.task = trio.lowlevel.current_task()
        self.count = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """A step begins."""
        self.count += task is self.task


@pytest.mark.parametrize("batches", [False, True])
async def test_reading_what_is_in_memory_lets_other_tasks_run(
    world: Any, autojump_clock: MockClock, batches: bool
) -> None:
    """Of records, or batches, that were read together at most 64 come in one step of the task, and most steps are so
    long.
    """
    async with world.open() as runtime:
        topic = await _opened(world, runtime)
        for number in range(300):
            await topic.publish(b"%d" % number, partition=0)
        steps, seen = Steps(), Counter[int]()
        trio.lowlevel.add_instrument(steps)
        try:
            async for _ in topic.read_batches() if batches else topic.read():
                seen[steps.count] += 1
        finally:
            trio.lowlevel.remove_instrument(steps)
        assert seen.total() == 300
        assert max(seen.values()) == 64


async def test_the_end_of_a_reader_is_a_checkpoint(world: Any, autojump_clock: MockClock) -> None:
    """The step behind the last record can be cancelled and lets other tasks run, though it asks no partition."""
    async with world.open() as runtime:
        topic = await _opened(world, runtime)
        await topic.publish(b"x", partition=0)
        for reader in (topic.read(partition=0), topic.read_batches(partition=0)):
            await anext(reader)
            for _ in range(2):
                with assert_checkpoints():
                    assert await anext(reader, None) is None


@pytest.mark.parametrize("batches", [False, True])
async def test_every_step_of_a_reader_can_be_cancelled(
    world: Any, autojump_clock: MockClock, batches: bool
) -> None:
    """Cancelled, it returns nothing; asked again, it goes on with the record that would have come."""
    async with world.open() as runtime:
        topic = await _opened(world, runtime)
        for number in range(10):
            await topic.publish(b"%d" % number, partition=0)
        reader = topic.read_batches(partition=0) if batches else topic.read(partition=0)
        offsets = list[int]()
        for _ in range(10):
            with trio.CancelScope() as scope:
                scope.cancel()
                await anext(reader)
                raise AssertionError("a cancelled step returned a record")
            found = await anext(reader)
            offsets.append(found.offset if isinstance(found, callboard.Record) else found.offsets()[0])
        assert offsets == list(range(10))
