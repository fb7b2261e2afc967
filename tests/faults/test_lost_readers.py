"""The delivery journal of a partition is lost, and with it which groups read the partition: the catalog knows that."""

from __future__ import annotations

from typing import Any

import pytest
import trio

import callboard
from callboard.simulations.entropy import SeededEntropy

SEGMENT = 65_536
MESSAGE = bytes(30_000)
"""Two fill a segment."""
WAYS = ("removed", "segments removed", "garbage", "blank")


async def lose_journal(world: Any, way: str) -> None:
    """What the delivery journal of the only partition says is lost."""
    paths = [path for path in world.disk.files() if "/0/delivery/" in path]
    if way == "removed":
        world.disk.tree.rename(paths[0].rpartition("/")[0], "aside")
        return
    for path in paths:
        if way == "segments removed" and path.endswith(".log"):
            world.disk.tree.unlink(path)
        elif path.endswith(".log"):
            size = len(world.disk.files()[path])
            world.put(path, bytes(size) if way == "blank" else SeededEntropy(3).bytes(size))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("crash", [False, True])
async def test_retention_keeps_what_a_group_has_not_settled_whose_journal_is_lost(
    autojump_clock: Any, world: Any, way: str, crash: bool
) -> None:
    """Also while the group has no consumer: nothing is dropped that is not settled, and all of it comes."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", retention_bytes=2 * SEGMENT, segment_bytes=SEGMENT)
        async with topic.subscribe("billing"):
            pass
        await topic.publish_batch([b"first", b"second"])
        if crash:
            await lose_journal(world, way)
            runtime.crash("topics/orders/0", RuntimeError("drill"))
            await trio.sleep(1.0)
            await fill(topic)
    if not crash:
        await lose_journal(world, way)
    async with world.open() as runtime:
        topic = runtime.topic("orders")
        await fill(topic)
        (part,) = await topic.describe()
        assert part.start_offset == 0
        assert [group.pending for group in part.groups] == [part.next_offset]
        async with topic.subscribe("billing") as consumer:
            assert [(await consumer.get()).value for _ in range(2)] == [b"first", b"second"]


async def fill(topic: Any) -> None:
    """Publish what needs more space than the topic may take."""
    with trio.move_on_after(5.0):
        for _ in range(12):
            try:
                await topic.publish(MESSAGE)
            except callboard.TopicFull:
                break


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("is_killed", [False, True])
async def test_a_group_that_began_at_the_end_gets_what_came_since_then_when_its_journal_is_lost(
    autojump_clock: Any, world: Any, way: str, is_killed: bool
) -> None:
    """It has begun when it was made, and not when the directory is opened; nor does it get what was there before."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders")
        await topic.publish_batch([b"old", b"older"])
        await trio.sleep(1.0)
        async with topic.subscribe("billing", start="end"):
            pass
        await trio.sleep(1.0)
        await topic.publish_batch([b"new", b"newer"])
    await lose_journal(world, way)
    if is_killed:
        async with world.doomed() as runtime:
            await runtime.topic("orders").describe()
    async with world.open() as runtime:
        await runtime.topic("orders").publish(b"newest")
        assert await world.drain(runtime, group="billing") == {2: b"new", 3: b"newer", 4: b"newest"}


async def test_a_group_is_not_opened_again_that_was_deleted(autojump_clock: Any, world: Any) -> None:
    """Its partition's journal is lost behind that, and the partition crashes."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders")
        async with topic.subscribe("billing"):
            pass
        await runtime.group("billing").delete()
        await lose_journal(world, "garbage")
        runtime.crash("topics/orders/0", RuntimeError("drill"))
        await trio.sleep(1.0)
        (part,) = await topic.describe()
        assert part.groups == ()
