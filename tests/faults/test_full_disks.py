"""Opening while the disk is full: what is there is read, publishing is refused, and all heals without a restart."""

from __future__ import annotations

from typing import Any

import pytest
import trio

import callboard
from callboard.actors.kernel.events import IncarnationCrashed
from callboard.actors.notices import OpeningLacksSpace
from callboard.log.seams.disk import Link, Sync, SyncDirectory, Unlink
from callboard.simulations.disk.inodes import keep_unsynced

KIB = 1024


async def all_works(world: Any, runtime: Any, expected: dict[int, bytes]) -> None:
    """Within the pauses between two tries the partition heals: records are stored and consumed."""
    world.disk.free()
    topic = runtime.topic("orders")
    receipt = await topic.publish(b"afterwards")
    expected = {**expected, receipt.offset: b"afterwards"}
    assert await world.values(runtime) == expected
    assert await world.drain(runtime) == expected


@pytest.mark.parametrize("lacking", ["all", "segments", "journal"])
async def test_a_partition_without_files_opens_on_a_full_disk(
    autojump_clock: Any, world: Any, lacking: str
) -> None:
    """It reads as empty, refuses records and groups with the way out, at every opening, and heals."""
    async with world.open() as runtime:
        await runtime.create_topic("others")
        await runtime.create_topic("orders")
        topic_id = runtime.topic("orders").topic_id
    gone = [path for path in world.disk.files() if path.startswith(f"topics/{topic_id}/")]
    if lacking != "all":
        gone = [path for path in gone if ("/delivery/" in path) == (lacking == "journal")]
    files = await world.disk.incarnate("somebody else")
    folders = sorted({path.rpartition("/")[0] for path in gone})
    await files.submit([*map(Unlink, gone), *map(SyncDirectory, folders)])
    world.disk.fill()
    for _ in range(2):
        async with world.open() as runtime:
            begins_at = trio.current_time()
            topic = runtime.topic("orders")
            assert await world.values(runtime) == {}
            if lacking != "journal":
                with pytest.raises(callboard.DiskFull, match="stored"):
                    await topic.publish(b"too early")
            if lacking != "segments":
                with pytest.raises(callboard.DiskFull, match="Free space"):
                    async with topic.subscribe("group"):
                        pass
            assert trio.current_time() - begins_at < 1.0
            assert [logged for logged in runtime.events() if isinstance(logged.event, OpeningLacksSpace)]
    async with world.open() as runtime:
        await runtime.topic("others").describe()
        await all_works(world, runtime, {})
    async with world.open() as runtime:
        assert await world.drain(runtime) == {}
        assert list((await world.values(runtime)).values()) == [b"afterwards"]


async def test_statistics_tell_that_recovery_is_owed(autojump_clock: Any, world: Any) -> None:
    """What a full disk keeps from being proven is not pending, and whoever waits for a group to be done can tell."""
    async with world.doomed(keep_unsynced) as runtime:
        topic = await runtime.create_topic("orders")
        async with topic.subscribe("group"):
            await topic.publish_batch([b"%d" % number for number in range(10)])
    (mark,) = [path for path in world.disk.files() if path.endswith("/0/committed")]
    files = await world.disk.incarnate("somebody else")
    await files.submit([Unlink(mark), SyncDirectory(mark.rpartition("/")[0])])
    world.disk.fill()
    async with world.open() as runtime:
        (part,) = await runtime.topic("orders").describe()
        assert (part.state, part.is_recovery_owed, part.groups[0].pending) == ("full", True, 0)
        world.disk.free()
        await trio.sleep(2.0)
        (part,) = await runtime.topic("orders").describe()
        assert (part.state, part.is_recovery_owed, part.groups[0].pending) == ("running", False, 10)
        assert len(await world.drain(runtime)) == 10


async def damaged(world: Any) -> dict[int, bytes]:
    """A topic whose second of three segments has lost its header and its index, and its records elsewhere."""
    async with world.doomed(keep_unsynced) as runtime:
        topic = await runtime.create_topic("orders", segment_bytes=64 * KIB)
        for number in range(12):
            await topic.publish(b"%d" % number * 15_000)
        values = await world.values(runtime)
    segments = world.segments()
    assert len(segments) > 3
    world.put(segments[1], bytes(4096) + world.disk.files()[segments[1]][4096:])
    index = segments[1].replace(".log", ".index")
    if index in world.disk.files():
        world.put(index, bytes(200))
    first, last = (int(path.rpartition("/")[2].removesuffix(".log")) for path in segments[1:3])
    return {offset: value for offset, value in values.items() if not first <= offset < last}


async def test_files_that_are_to_be_set_aside_keep_nothing_from_being_read(
    autojump_clock: Any, world: Any
) -> None:
    """A segment that cannot be read is left where it is on a full disk, and set aside when there is space."""
    whole = await damaged(world)
    before = world.disk.files()
    world.disk.fill()
    world.disk.fail_next(Link, "ENOSPC", times=1_000)
    async with world.open() as runtime:
        assert await world.values(runtime) == whole
        with pytest.raises(callboard.DiskFull):
            await runtime.topic("orders").publish(b"too early" * 1000)
        assert before.keys() - world.disk.files().keys() == set()
        world.disk.faults.clear()
        await all_works(world, runtime, whole)
        assert any(path.startswith("quarantine/") for path in world.disk.files())
        (part,) = await runtime.topic("orders").describe()
        assert part.damages


async def test_a_damaged_delivery_journal_is_read_on_a_full_disk(autojump_clock: Any, world: Any) -> None:
    """What it still says is believed and told as salvaged; it is written anew when there is space."""
    async with world.doomed(keep_unsynced) as runtime:
        topic = await runtime.create_topic("orders")
        await topic.publish_batch([b"%d" % number for number in range(10)])
        async with topic.subscribe("group") as consumer:
            for _ in range(4):
                await (await consumer.get()).ack()
    (journal,) = world.journals()
    data = bytearray(world.disk.files()[journal])
    data[400] ^= 1
    world.put(journal, bytes(data))
    world.disk.fill()
    async with world.open() as runtime:
        assert len(await world.values(runtime)) == 10
        world.disk.free()
        found = await world.drain(runtime)
        assert set(range(4, 10)) <= set(found)
    async with world.open() as runtime:
        assert await world.drain(runtime) == {}


async def full_at_a_roll(world: Any, topic: Any) -> None:
    """Fill the disk, and publish until the log needs a segment that it cannot make."""
    world.disk.fill()
    with pytest.raises(callboard.DiskFull) as caught:
        while True:
            await topic.publish(bytes(20_000))
    assert ".." not in str(caught.value)


async def test_a_flush_tells_nothing_when_nothing_is_missing(autojump_clock: Any, world: Any) -> None:
    """On a full disk, with a log that must begin a new segment, flushes of acks and of durable records return."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", segment_bytes=64 * KIB)
        for _ in range(3):
            await topic.publish(bytes(20_000))
        await full_at_a_roll(world, topic)
        await topic.flush()
        async with topic.subscribe("group") as consumer:
            for _ in range(2):
                await (await consumer.get()).ack(wait=False)
            await consumer.flush()
            await (await consumer.get()).ack(wait=False)
        (part,) = await topic.describe()
        assert (part.state, part.groups[0].pending) == ("full", part.visible_end - 3)
        with pytest.raises(callboard.DiskFull):
            await topic.publish(bytes(20_000))


async def test_a_flush_tells_what_a_full_disk_keeps_from_being_synced(
    autojump_clock: Any, world: Any
) -> None:
    """What was published at level leader and is not durable fails the topic's flush, not that of a consumer's acks."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", segment_bytes=64 * KIB)
        for _ in range(2):
            await topic.publish(bytes(20_000))
        await topic.publish(b"unsynced", acks="leader")
        world.disk.fill()
        world.disk.fail_next(Sync, "ENOSPC", times=1)
        with pytest.raises(callboard.DiskFull):
            await topic.flush()
        async with topic.subscribe("group") as consumer:
            await (await consumer.get()).ack(wait=False)
            await consumer.flush()
        world.disk.free()
        await topic.flush()
        (part,) = await topic.describe()
        assert part.visible_end == part.durable_end == 3


async def test_a_runtime_closes_on_a_full_disk_without_a_crash(autojump_clock: Any, world: Any) -> None:
    """The index of a segment in use, which has no room then, is left out; it is stored when there is space."""
    told: list[Any] = []
    for is_full in (True, True, False):
        async with world.open(on_event=told.append) as runtime:
            if not world.segments():
                topic = await runtime.create_topic("orders")
                await topic.publish_batch([b"%d" % number * 10_000 for number in range(20)])
            if is_full:
                world.disk.fill()
            else:
                world.disk.free()
            assert len(await world.values(runtime)) == 20
        assert any(path.endswith(".index") for path in world.disk.files()) is not is_full
    assert not [event for event in told if isinstance(event, IncarnationCrashed)]


async def test_a_full_disk_is_told_once_and_its_end_once(autojump_clock: Any, world: Any) -> None:
    """While a partition runs: however often publishers are refused, one event each, in plain words."""
    told: list[callboard.events.PartitionLacksSpace] = []

    def note(event: object) -> None:
        if isinstance(event, callboard.events.PartitionLacksSpace):
            told.append(event)

    async with world.open() as runtime:
        runtime.subscribe_events(note)
        topic = await runtime.create_topic("orders")
        await topic.publish(b"before")
        world.disk.fill()
        for _ in range(3):
            with pytest.raises(callboard.DiskFull) as refusal:
                await topic.publish(b"refused" * 100 * KIB)
        assert "of a plan" not in str(refusal.value)
        assert [event.lacking for event in told] == [True]
        assert "Free space" in told[0].cause
        world.disk.free()
        await topic.publish(b"afterwards")
        assert [event.lacking for event in told] == [True, False]


@pytest.mark.parametrize("is_still_full", [True, False])
async def test_a_full_disk_is_told_across_a_crash(
    autojump_clock: Any, world: Any, is_still_full: bool
) -> None:
    """The first message afterwards tells: the warning again while the disk is full, its end when it is not."""
    told: list[bool] = []

    def note(event: object) -> None:
        if isinstance(event, callboard.events.PartitionLacksSpace):
            told.append(event.lacking)

    async with world.open() as runtime:
        runtime.subscribe_events(note)
        topic = await runtime.create_topic("orders")
        await topic.publish(b"before")
        world.disk.fill()
        with pytest.raises(callboard.DiskFull):
            await topic.publish(b"refused" * 100 * KIB)
        runtime.crash("topics/orders/0", RuntimeError("a drill"))
        await trio.sleep(10.0)
        assert told == [True]
        if is_still_full:
            for _ in range(2):
                with pytest.raises(callboard.DiskFull):
                    await topic.publish(b"refused" * 100 * KIB)
            assert told == [True, True]
        world.disk.free()
        for _ in range(2):
            await topic.publish(b"afterwards")
        assert told == [True, *([True] if is_still_full else []), False]


async def test_a_full_disk_is_told_to_the_next_program(autojump_clock: Any, world: Any) -> None:
    """Once more: it has heard of nothing."""
    told: list[bool] = []

    def note(event: object) -> None:
        if isinstance(event, callboard.events.PartitionLacksSpace):
            told.append(event.lacking)

    for opening in range(2):
        async with world.open(on_event=note) as runtime:
            topic = runtime.topic("orders") if opening else await runtime.create_topic("orders")
            world.disk.fill()
            with pytest.raises(callboard.DiskFull):
                await topic.publish(b"refused" * 100 * KIB)
    assert told == [True, True]
