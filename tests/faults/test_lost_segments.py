"""Segments that are lost: what their readers and consumers meet, and how quickly they are past them."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
import trio

from callboard.actors.notices import DamageFound
from callboard.log.seams.disk import Unlink

BATCH = 10_000
BATCHES = 10
LOST = 8
"""Batches in the middle, each a segment of its own, are lost."""


async def publish_segments(runtime: Any) -> None:
    """A topic of many records and as many segments as batches."""
    topic = await runtime.create_topic("orders", segment_bytes=65_536)
    for _ in range(BATCHES):
        await topic.publish_batch([b"8 bytes."] * BATCH)


async def lose_middle(world: Any, *, flip: bool = False) -> None:
    """Delete all segments but the first and the last, or flip a bit of the frame in each."""
    _, *lost, _ = world.segments()
    assert len(lost) == LOST
    if flip:
        for path in lost:
            world.disk.flip(path, 1000)
    else:
        disk = await world.disk.incarnate("drill")
        await disk.submit(tuple(Unlink(path) for path in lost))


@pytest.mark.parametrize("is_open", [False, True], ids=["before the opening", "while it is open"])
@pytest.mark.parametrize("groups", [1, 3])
async def test_a_slow_consumer_crosses_a_lost_segment_in_a_step(
    autojump_clock: Any, world: Any, is_open: bool, groups: int
) -> None:
    """One that takes message by message gets the next one at once, and the journal hardly grows."""
    async with world.open() as runtime:
        await publish_segments(runtime)
    if not is_open:
        await lose_middle(world)
    async with world.open() as runtime:
        topic = runtime.topic("orders")
        (part,) = await topic.describe()
        if is_open:
            await lose_middle(world, flip=True)
        for group in range(groups):
            async with topic.subscribe(f"group-{group}", start=BATCH - 3) as consumer:
                found: list[int] = []
                before = sum(len(world.disk.files()[path]) for path in world.journals())
                while len(found) < 6:
                    with trio.fail_after(1.0):
                        message = await consumer.get()
                    found.append(message.offset)
                    await message.ack()
                    await trio.sleep(10.0)
                assert found == [BATCH - 3, BATCH - 2, BATCH - 1, *range(9 * BATCH, 9 * BATCH + 3)]
                assert sum(len(world.disk.files()[path]) for path in world.journals()) < before + 100_000
        (part,) = await topic.describe()
        assert part.lost_records == LOST * BATCH
        assert {group.pending for group in part.groups} == {BATCH - 3}


async def test_a_reader_crosses_a_lost_segment(autojump_clock: Any, world: Any) -> None:
    """Reading goes on behind it; offsets tell how much is missing."""
    async with world.open() as runtime:
        await publish_segments(runtime)
    await lose_middle(world)
    async with world.open() as runtime:
        with trio.fail_after(1.0):
            offsets = [record.offset async for record in runtime.topic("orders").read(BATCH - 1)]
        assert offsets == [BATCH - 1, *range(9 * BATCH, 10 * BATCH)]


async def test_a_segment_deleted_while_the_runtime_is_open_is_damage_told_once(
    autojump_clock: Any, world: Any
) -> None:
    """Readers and consumers pass it; publishes and retention go on; the next opening still knows."""
    told: list[DamageFound] = []

    def hear(event: Any) -> None:
        if isinstance(event, DamageFound):
            told.append(event)

    async with world.open() as runtime:
        await publish_segments(runtime)
    async with world.open(on_event=hear) as runtime:
        topic = runtime.topic("orders")
        await topic.describe()
        deleted = world.segments()[4]
        disk = await world.disk.incarnate("drill")
        await disk.submit((Unlink(deleted),))
        long_ago = datetime(1970, 1, 1, tzinfo=UTC)
        assert [record.offset async for record in topic.read(long_ago, stop=1)] == [0]
        async with topic.subscribe("group", durable=False, start=4 * BATCH - 1) as consumer:
            with trio.fail_after(1.0):
                assert [(await consumer.get()).offset for _ in range(2)] == [4 * BATCH - 1, 5 * BATCH]
        for _ in range(3):
            offsets = [record.offset async for record in topic.read(4 * BATCH - 1)]
            assert offsets == [4 * BATCH - 1, *range(5 * BATCH, 10 * BATCH)]
        assert [(damage.first_offset, damage.last_offset, damage.is_new) for damage in told] == [
            (4 * BATCH, 5 * BATCH - 1, True)
        ]
        assert (await topic.publish(b"after")).offset == 10 * BATCH
        await runtime.alter_topic("orders", retention_bytes=150_000)
        await trio.sleep(1.0)
        (part,) = await topic.describe()
        assert (part.start_offset > 5 * BATCH, part.failed_commits, part.lost_records) == (True, 0, BATCH)
    assert len(told) == 1


async def test_readers_pass_segments_that_retention_removes(autojump_clock: Any, world: Any) -> None:
    """One that opens a segment just then gets what is kept; nothing is told to be damaged."""
    told: list[Any] = []

    async with world.open() as runtime:
        await publish_segments(runtime)
    async with world.open(on_event=told.append) as runtime:
        topic = runtime.topic("orders")
        await topic.describe()
        world.disk.latency_s = 1.0

        async def read() -> None:
            offsets = [record.offset async for record in topic.read(skip_dropped=True)]
            assert offsets[-1] == 10 * BATCH - 1

        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(runtime.alter_topic, "orders", retention_bytes=150_000))
            for _ in range(60):
                nursery.start_soon(read)
                await trio.sleep(0.25)
        (part,) = await topic.describe()
        assert part.start_offset > 5 * BATCH
    assert not [event for event in told if isinstance(event, DamageFound)]
