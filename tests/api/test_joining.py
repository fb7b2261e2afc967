"""Joining a group: what it writes, and what a crash leaves of it."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from callboard.actors.notices import UnreadDropped
from callboard.simulations.disk.inodes import lose_unsynced

PARTITIONS = 3


def journals(world: Any) -> dict[str, bytes]:
    """What the delivery journals hold."""
    return {path: bytes(world.disk.files()[path]) for path in world.journals()}


async def test_joining_writes_to_no_partition(autojump_clock: Any, world: Any) -> None:
    """A group that begins at the beginning is opened in every partition without a write in any."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("jobs", partitions=PARTITIONS)
        before = journals(world)
        async with topic.subscribe("group") as consumer:
            assert await consumer.get(timeout=0.5) is None
            assert [len(part.groups) for part in await topic.describe()] == [1] * PARTITIONS
        assert journals(world) == before


@pytest.mark.parametrize("how", ["power", "killed"])
async def test_a_group_that_has_read_nothing_gets_all_after_a_crash(
    autojump_clock: Any, world: Any, how: str
) -> None:
    """What was published before and after it joined is delivered by the next process, also of old segments."""
    choose = lose_unsynced if how == "power" else None
    async with world.doomed(choose) as runtime:
        topic = await runtime.create_topic("orders", segment_age=10.0, retention_age=20.0)
        await topic.publish(b"before")
        async with topic.subscribe("group"):
            pass
        await topic.publish(b"after")
    async with world.open() as runtime:
        await trio.sleep(200.0)
        (part,) = await runtime.topic("orders").describe()
        assert part.start_offset == 0
        assert await world.drain(runtime) == {0: b"before", 1: b"after"}


async def test_a_group_of_a_pattern_begins_in_a_new_topic_without_a_write(
    autojump_clock: Any, world: Any
) -> None:
    """A topic that comes later is read from its beginning, also after a power loss."""
    async with world.doomed(lose_unsynced) as runtime:
        async with runtime.subscribe(pattern="orders.*", group="group", start="end") as consumer:
            topic = await runtime.create_topic("orders.new")
            before = journals(world)
            assert await consumer.get(timeout=0.5) is None
            assert journals(world) == before
        await topic.publish(b"one")
    async with world.open() as runtime:
        async with runtime.subscribe(pattern="orders.*", group="group") as consumer:
            message = await consumer.get(timeout=5.0)
            assert message is not None
            assert message.value == b"one"


async def test_a_group_from_the_end_stays_there_after_a_power_loss(autojump_clock: Any, world: Any) -> None:
    """It gets what was published since it joined, and nothing older."""
    async with world.doomed(lose_unsynced) as runtime:
        topic = await runtime.create_topic("orders")
        await topic.publish(b"before")
        async with topic.subscribe("group", start="end"):
            pass
        await topic.publish(b"after")
    async with world.open() as runtime:
        assert await world.drain(runtime) == {1: b"after"}


async def test_a_group_outlives_its_partitions_crash_without_joining_again(
    autojump_clock: Any, world: Any
) -> None:
    """A partition that crashes knows the group that has read nothing of it when it is back."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders")
        async with topic.subscribe("group") as consumer:
            runtime.crash("topics/orders/0", RuntimeError("drill"))
            await trio.sleep(1.0)
            await topic.publish(b"one")
            (part,) = await topic.describe()
            assert len(part.groups) == 1
            message = await consumer.get(timeout=5.0)
            assert message is not None
            assert message.value == b"one"


async def test_a_deleted_group_that_had_read_nothing_holds_nothing_back(
    autojump_clock: Any, world: Any
) -> None:
    """After its deletion, and in the next process, no partition knows it; its name begins anew at the beginning."""
    async with world.doomed(lose_unsynced) as runtime:
        topic = await runtime.create_topic("orders")
        async with topic.subscribe("group"):
            pass
        await topic.publish(b"one")
        await runtime.group("group").delete()
    async with world.open() as runtime:
        topic = runtime.topic("orders")
        (part,) = await topic.describe()
        assert not part.groups
        assert await world.drain(runtime) == {0: b"one"}


async def test_unread_records_of_a_group_that_has_read_nothing_are_counted(
    autojump_clock: Any, world: Any
) -> None:
    """What retention drops before the group reads it is reported, and again after a crash that follows at once: the
    journal says where the group began.
    """
    async with world.doomed(lose_unsynced) as runtime:
        topic = await runtime.create_topic("orders", segment_age=10.0, retention_age=20.0, drop_unread=True)
        await topic.publish(b"one")
        async with topic.subscribe("group"):
            pass
        dropped = trio.Event()
        runtime.subscribe_events(lambda event: isinstance(event, UnreadDropped) and dropped.set())
        with trio.fail_after(300):
            await dropped.wait()
    async with world.open() as runtime:
        (part,) = await runtime.topic("orders").describe()
        assert part.start_offset == 1
        assert part.groups[0].lost_records == 1
        events = [logged.event for logged in runtime.events()]
        assert [event.records for event in events if isinstance(event, UnreadDropped)] == [1]
