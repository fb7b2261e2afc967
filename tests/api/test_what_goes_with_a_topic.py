"""What a topic or a group needed while it was there goes with it: tasks, and whatever serves its partitions."""

from __future__ import annotations

import gc
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from callboard.actors.forwarding import delayed_forwarder, forwarder, router

KEPT = (delayed_forwarder.DelayedLine, forwarder.OutboxLines, forwarder.PartitionLine, router.Source)

SOON_S = 60.0

Use = Callable[[Any, str], Awaitable[None]]
"""Makes something with a name in a runtime, uses it, and deletes it."""


async def delay(runtime: Any, name: str) -> None:
    """A topic with a delayed message."""
    topic = await runtime.create_topic(name)
    await topic.publish(b"later", delay=100)
    await trio.sleep(1)
    await runtime.delete_topic(name)


async def delay_at_once(runtime: Any, name: str) -> None:
    """The same, deleted before anything has read what is delayed."""
    topic = await runtime.create_topic(name)
    await topic.publish(b"later", delay=100)
    await runtime.delete_topic(name)


async def schedule(runtime: Any, name: str) -> None:
    """A topic with a recurring publish."""
    topic = await runtime.create_topic(name)
    await topic.schedule("tick", every=1.0, value=b"tick")
    await trio.sleep(2)
    await runtime.delete_topic(name)


async def hand_on(runtime: Any, name: str) -> None:
    """A topic whose ack publishes to another, also later."""
    topic, steady = await runtime.create_topic(name), await runtime.create_topic("steady")
    await topic.publish(b"order")
    async with topic.subscribe("billing") as consumer, consumer.receive() as message:
        await message.publish(steady, b"invoice")
        await message.publish(steady, b"reminder", delay=1)
    await trio.sleep(2)
    await runtime.delete_topic(name)


async def be_handed(runtime: Any, name: str) -> None:
    """A topic that an ack publishes to."""
    steady, topic = await runtime.create_topic("steady"), await runtime.create_topic(name)
    await steady.publish(b"order")
    async with steady.subscribe("billing") as consumer, consumer.receive() as message:
        await message.publish(topic, b"invoice")
    await trio.sleep(1)
    await runtime.delete_topic(name)


async def take_letters(runtime: Any, name: str) -> None:
    """A topic of dead letters, and the group that names it."""
    steady = await runtime.create_topic("steady")
    await runtime.create_topic(name)
    await steady.publish(b"order")
    async with steady.subscribe(f"group-{name}", dead_letter_topic=name) as consumer:
        await (await consumer.get()).reject()
    await trio.sleep(1)
    await runtime.group(f"group-{name}").delete()
    await runtime.delete_topic(name)


async def keep_letters(runtime: Any, name: str) -> None:
    """A topic whose partition keeps a dead letter."""
    topic = await runtime.create_topic(name)
    await topic.publish(b"order")
    async with topic.subscribe("billing") as consumer:
        await (await consumer.get()).reject()
    await runtime.delete_topic(name)


async def keep_letters_of_a_group(runtime: Any, name: str) -> None:
    """A group of which a partition keeps a dead letter."""
    steady = await runtime.create_topic("steady")
    await steady.publish(b"order")
    async with steady.subscribe(name) as consumer:
        await (await consumer.get()).reject()
    await runtime.group(name).delete(drop_dead_letters=True)


USES: tuple[Use, ...] = (
    delay,
    delay_at_once,
    schedule,
    hand_on,
    be_handed,
    take_letters,
    keep_letters,
    keep_letters_of_a_group,
)


def kept() -> dict[str, int]:
    """How many objects there are of each of `KEPT`, and how many tasks."""
    gc.collect()
    found = dict.fromkeys((f"{each.__module__}.{each.__name__}" for each in KEPT), 0)
    for each in gc.get_objects():
        if type(each) in KEPT:
            found[f"{type(each).__module__}.{type(each).__name__}"] += 1
    return found | {"tasks": trio.lowlevel.current_statistics().tasks_living}


@pytest.mark.parametrize("use", USES, ids=[each.__name__ for each in USES])
async def test_nothing_is_left_of_what_is_deleted(autojump_clock: Any, world: Any, use: Use) -> None:
    """However many topics or groups have come and gone, there are as many tasks and tables as after the first ones."""
    async with world.open() as runtime:
        for number in range(3):
            await use(runtime, f"early-{number}")
        await trio.sleep(SOON_S)
        before = kept()
        for number in range(10):
            await use(runtime, f"late-{number}")
        await trio.sleep(SOON_S)
        assert kept() == before


async def test_dead_letters_find_a_topic_again_that_was_deleted_and_created(
    autojump_clock: Any, world: Any
) -> None:
    """Also when all that was to be forwarded before had been, and nothing served the name any more."""
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        await runtime.create_topic("letters")
        async with orders.subscribe("billing", dead_letter_topic="letters") as consumer:
            for number in range(3):
                letters = await runtime.create_topic("letters")
                await orders.publish(b"%d" % number)
                await (await consumer.get()).reject()
                await trio.sleep(SOON_S)
                assert [record.value async for record in letters.read()] == [b"%d" % number]
                await runtime.delete_topic("letters")
