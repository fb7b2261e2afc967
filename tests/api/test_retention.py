"""Retention: what goes, what stays for a group, and who is told."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
import trio

import callboard
from callboard.actors.notices import PartitionFull, UnreadDropped
from callboard.simulations.disk.inodes import Unsynced

SEGMENT = 65_536
MESSAGE = bytes(60_000)
"""One fills a segment."""


async def part_of(topic: Any) -> Any:
    """The statistics of the only partition."""
    (part,) = await topic.describe()
    return part


async def test_old_records_go_by_themselves(autojump_clock: Any, world: Any) -> None:
    """A segment is dropped when its newest record is older than `retention_age`, with nobody publishing or reading."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("log", segment_age=60.0, retention_age=3600.0)
        await topic.publish_batch([b"x"] * 10)
        await trio.sleep(3500.0)
        assert (await part_of(topic)).start_offset == 0
        await trio.sleep(200.0)
        part = await part_of(topic)
        assert (part.start_offset, part.visible_end) == (10, 10)
        receipt = await topic.publish(b"next")
        assert receipt.offset == 10


async def test_one_segment_after_the_other_goes_when_it_is_old(autojump_clock: Any, world: Any) -> None:
    """What grows too old soon after upkeep did something goes in its own time, too."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("log", segment_age=10.0, retention_age=20.0)
        for _ in range(4):
            await topic.publish(b"x")
            await trio.sleep(10.5)
        assert (await part_of(topic)).start_offset == 2
        await trio.sleep(10.0)
        assert (await part_of(topic)).start_offset == 3
        await trio.sleep(11.0)
        assert (await part_of(topic)).start_offset == 4


async def test_old_records_go_although_sealing_their_segment_failed(autojump_clock: Any, world: Any) -> None:
    """A topic that nobody uses any more seals its last segment by itself once the disk allows it."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("log", segment_age=10.0, retention_age=20.0)
        await topic.publish(b"x")
        fault = world.disk.fail_next("rename", "EIO", path_contains=".log")
        await trio.sleep(25.0)
        assert fault.hits == 1
        assert (await part_of(topic)).start_offset == 0
        await trio.sleep(15.0)
        assert (await part_of(topic)).start_offset == 1


@pytest.mark.parametrize("closed_after_s", [19.0, 22.0, 27.0])
async def test_closing_waits_for_no_disk_that_upkeep_failed_on(
    autojump_clock: Any, world: Any, closed_after_s: float
) -> None:
    """What upkeep owes is for the next start, also when it fails while the runtime closes."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("log", segment_age=10.0, retention_age=20.0)
        await topic.publish(b"x")
        world.disk.fail_next("rename", "EIO", path_contains=".log", times=1000)
        world.disk.latency_s = 1.0
        await trio.sleep(closed_after_s)
        begun = trio.current_time()
    assert trio.current_time() - begun < 20.0


async def test_a_large_log_is_cut_at_its_limit(autojump_clock: Any, world: Any) -> None:
    """By size the oldest segments go as new ones come."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("log", segment_bytes=SEGMENT, retention_bytes=3 * SEGMENT)
        for _ in range(20):
            await topic.publish(MESSAGE)
        await trio.sleep(1.0)
        part = await part_of(topic)
        assert part.size_bytes <= 4 * SEGMENT
        assert part.start_offset >= 16
        assert [record.offset async for record in topic.read()] == list(range(part.start_offset, 20))


async def test_what_a_durable_group_has_not_settled_stays_and_fills_the_topic(
    autojump_clock: Any, world: Any
) -> None:
    """Beyond the limit publishers get TopicFull until the group has settled the oldest; then it goes on by itself.

    Reaching the limit and having room again is told once each.
    """
    fullness: list[bool] = []

    def hear(event: Any) -> None:
        if isinstance(event, PartitionFull):
            fullness.append(event.full)

    async with world.open(on_event=hear) as runtime:
        topic = await runtime.create_topic("log", segment_bytes=SEGMENT, retention_bytes=3 * SEGMENT)
        async with topic.subscribe("group", max_in_flight=1) as consumer:
            stored = 0
            with pytest.raises(callboard.TopicFull, match="has not settled"):
                while True:
                    await topic.publish(MESSAGE)
                    stored += 1
            assert stored >= 3
            part = await part_of(topic)
            assert (part.state, part.start_offset, part.visible_end) == ("full", 0, stored)
            with pytest.raises(callboard.TopicFull):
                await topic.publish_batch([b"small"])
            assert fullness == [True]
            for offset in range(2):
                message = await consumer.get()
                assert message.offset == offset
                await message.ack()
            receipt = await topic.publish(MESSAGE)
            assert receipt.offset == stored
            assert fullness == [True, False]
            assert (await part_of(topic)).start_offset >= 1
            offsets = []
            while (message := await consumer.get(timeout=1.0)) is not None:
                offsets.append(message.offset)
                await message.ack()
            assert offsets == list(range(2, stored + 1))


async def test_deleting_the_group_that_holds_a_topic_back_frees_it(autojump_clock: Any, world: Any) -> None:
    """A forgotten group stops nobody once it is deleted."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("log", segment_bytes=SEGMENT, retention_bytes=2 * SEGMENT)
        async with topic.subscribe("forgotten"):
            pass
        with pytest.raises(callboard.TopicFull):
            for _ in range(10):
                await topic.publish(MESSAGE)
        await runtime.group("forgotten").delete()
        for _ in range(10):
            await topic.publish(MESSAGE)
        assert (await part_of(topic)).start_offset > 5


async def test_drop_unread_counts_and_tells(autojump_clock: Any, world: Any) -> None:
    """With `drop_unread` nothing waits: the group's floor moves, the loss is counted and reported."""
    async with world.open() as runtime:
        told: list[UnreadDropped] = []
        runtime.subscribe_events(
            lambda event: told.append(event) if isinstance(event, UnreadDropped) else None
        )
        topic = await runtime.create_topic(
            "log", segment_bytes=SEGMENT, retention_bytes=2 * SEGMENT, drop_unread=True
        )
        async with topic.subscribe("group", max_in_flight=1) as consumer:
            held = await topic.publish(MESSAGE)
            message = await consumer.get()
            for _ in range(10):
                await topic.publish(MESSAGE)
            await trio.sleep(1.0)
            part = await part_of(topic)
            (group,) = part.groups
            assert part.start_offset > 5
            assert group.floor == part.start_offset
            assert group.lost_records == part.start_offset == sum(event.records for event in told)
            with pytest.raises(callboard.LeaseLost):
                await message.ack()
            assert message.offset == held.offset == 0
            assert (await consumer.get()).offset == part.start_offset


async def test_a_group_that_begins_while_retention_drops_has_lost_nothing(
    autojump_clock: Any, world: Any
) -> None:
    """A new group starts at the first record that stays, and no unread records are reported as dropped."""
    async with world.open() as runtime:
        told: list[UnreadDropped] = []
        runtime.subscribe_events(
            lambda event: told.append(event) if isinstance(event, UnreadDropped) else None
        )
        topic = await runtime.create_topic("log", segment_bytes=SEGMENT)
        for _ in range(8):
            await topic.publish(MESSAGE)
        got: list[int] = []

        async def consume() -> None:
            async with topic.subscribe("group", start="beginning") as consumer:
                while (message := await consumer.get(timeout=5.0)) is not None:
                    got.append(message.offset)
                    await message.ack()

        async with trio.open_nursery() as nursery:
            world.disk.hang(".log")
            nursery.start_soon(lambda: runtime.alter_topic("log", retention_bytes=2 * SEGMENT))
            await trio.sleep(0.1)
            nursery.start_soon(consume)
            await trio.sleep(0.1)
            world.disk.unhang()
        start = (await part_of(topic)).start_offset
        assert start > 0
        assert got == list(range(start, 8))
        assert told == []
        (group,) = (await part_of(topic)).groups
        assert group.lost_records == 0


async def drop_meanwhile(runtime: Any, world: Any, topic: Any, take_part: Any) -> int:
    """Have retention begin to drop, run `take_part()`, have the disk answer; returns where the log begins."""
    async with trio.open_nursery() as nursery:
        world.disk.hang(f"{topic.topic_id}/0/0")  # the log's segments, not its journal
        nursery.start_soon(lambda: runtime.alter_topic("log", retention_bytes=2 * SEGMENT))
        await trio.sleep(0.1)
        nursery.start_soon(take_part)
        await trio.sleep(0.1)
        world.disk.unhang()
    start: int = (await part_of(topic)).start_offset
    assert start > 0
    return start


async def test_nothing_is_dropped_that_a_new_group_may_count_on(autojump_clock: Any, world: Any) -> None:
    """A group that joins while retention drops has joined when that is over: from then on nothing unread goes."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("log", segment_bytes=SEGMENT)
        for _ in range(8):
            await topic.publish(MESSAGE)
        first: list[int] = []

        async def join() -> None:
            async with topic.subscribe("group"):
                first.append((await part_of(topic)).start_offset)

        start = await drop_meanwhile(runtime, world, topic, join)
        assert first == [start]
        async with topic.subscribe("group") as consumer:
            message = await consumer.get(timeout=5.0)
            assert message is not None
            assert message.offset == start


async def test_nothing_is_dropped_that_was_sought(autojump_clock: Any, world: Any) -> None:
    """A group that seeks while retention drops is answered when that is over, with the first offset that is left."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("log", segment_bytes=SEGMENT)
        for _ in range(8):
            await topic.publish(MESSAGE)
        first: list[int] = []

        async def seek() -> None:
            places = await runtime.group("group").seek("beginning")
            first.extend(places.values())
            first.append((await part_of(topic)).start_offset)

        async with topic.subscribe("group") as consumer:
            for _ in range(8):
                await (await consumer.get()).ack()
            # Neither it nor its lease is synced when retention begins.
            await topic.publish(MESSAGE, acks="leader")
            assert await consumer.get(timeout=5.0) is not None
            start = await drop_meanwhile(runtime, world, topic, seek)
            assert first == [start, start]
            message = await consumer.get(timeout=5.0)
            assert message is not None
            assert message.offset == start


async def test_offsets_that_a_power_loss_has_cost_are_not_dropped_unread(
    autojump_clock: Any, world: Any
) -> None:
    """A segment stays until a group has passed what was lost behind it; nothing is reported as dropped unread."""

    def ends_survive(unsynced: Unsynced) -> Iterable[int]:
        return unsynced.items if unsynced.path.endswith("committed") else ()

    async with world.doomed(ends_survive) as runtime:
        topic = await runtime.create_topic("log", segment_bytes=SEGMENT, retention_bytes=SEGMENT)
        async with topic.subscribe("group"):
            pass
        for _ in range(2):
            await topic.publish(b"lost", acks="leader")
    async with world.open() as runtime:
        told: list[UnreadDropped] = []
        runtime.subscribe_events(
            lambda event: told.append(event) if isinstance(event, UnreadDropped) else None
        )
        topic = runtime.topic("log")
        with pytest.raises(callboard.TopicFull):
            for _ in range(10):
                await topic.publish(MESSAGE)
        assert (await part_of(topic)).start_offset == 0
        async with topic.subscribe("group") as consumer:
            message = await consumer.get()
            assert message.offset == 2
            await message.ack()
        for _ in range(3):
            await topic.publish(b"more")
            await trio.sleep(120.0)
        assert (await part_of(topic)).start_offset > 0
        assert told == []


async def test_ephemeral_groups_hold_nothing_back(autojump_clock: Any, world: Any) -> None:
    """What only an ephemeral group has not read is dropped; it goes on behind it, and the loss is counted."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("log", segment_bytes=SEGMENT, retention_bytes=2 * SEGMENT)
        async with topic.subscribe("onlooker", durable=False, max_in_flight=1) as consumer:
            for _ in range(10):
                await topic.publish(MESSAGE)
            await trio.sleep(1.0)
            part = await part_of(topic)
            assert (await consumer.get()).offset == part.start_offset > 5
            assert part.groups[0].lost_records == part.start_offset


async def test_records_dropped_between_lease_and_reading(autojump_clock: Any, world: Any) -> None:
    """Retention that overtakes a delivery in flight costs the partition nothing: the consumer gets what is left."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("log", segment_bytes=SEGMENT, drop_unread=True)
        for _ in range(8):
            await topic.publish(MESSAGE)
        async with (
            topic.subscribe("group", visibility_timeout=60.0) as consumer,
            trio.open_nursery() as nursery,
        ):
            got: list[int] = []

            async def consume() -> None:
                while (message := await consumer.get(timeout=5.0)) is not None:
                    got.append(message.offset)
                    await message.ack()

            world.disk.hang("/delivery/")
            nursery.start_soon(consume)
            await trio.sleep(0.1)
            nursery.start_soon(lambda: runtime.alter_topic("log", retention_bytes=2 * SEGMENT))
            await trio.sleep(0.1)
            world.disk.unhang()
        start = (await part_of(topic)).start_offset
        assert start > 0
        assert set(range(start, 8)) <= set(got)
        node = next(node for node in runtime.tree().walk() if node.path == "topics/log/0")
        assert node.restarts == 0


async def test_altering_retention_takes_effect_at_once(autojump_clock: Any, world: Any) -> None:
    """A shorter age, or fewer bytes, drops what is beyond without a publish; a longer one keeps what is there."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("log", segment_bytes=SEGMENT)
        for _ in range(10):
            await topic.publish(MESSAGE)
            await trio.sleep(10.0)
        await runtime.alter_topic("log", retention_bytes=5 * SEGMENT)
        await trio.sleep(0.1)
        by_size = (await part_of(topic)).start_offset
        assert 4 <= by_size <= 6
        await runtime.alter_topic("log", retention_bytes=None, retention_age=25.0)
        await trio.sleep(0.1)
        by_age = (await part_of(topic)).start_offset
        assert 7 <= by_age <= 9
        await runtime.alter_topic("log", retention_age=None)
        await trio.sleep(1000.0)
        assert (await part_of(topic)).start_offset == by_age


async def test_retention_survives_reopening(autojump_clock: Any, world: Any) -> None:
    """What grew too old while the directory was closed goes soon after it is opened; offsets go on."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("log", segment_age=60.0, retention_age=600.0)
        await topic.publish_batch([b"x"] * 5)
        await trio.sleep(61.0)
        await topic.publish(b"newer")
    await trio.sleep(700.0)
    async with world.open() as runtime:
        topic = runtime.topic("log")
        await trio.sleep(61.0)
        assert (await part_of(topic)).start_offset >= 5
        assert (await topic.publish(b"next")).offset == 6


async def overflow(topic: Any, count: int = 20) -> None:
    """Have retention drop what is old, unread or not."""
    for _ in range(count):
        await topic.publish(MESSAGE)
    await trio.sleep(1.0)


async def dropping(runtime: Any, **settings: Any) -> Any:
    """A topic that keeps two messages or three, read or unread."""
    return await runtime.create_topic(
        "t", segment_bytes=SEGMENT, retention_bytes=2 * SEGMENT, drop_unread=True, **settings
    )


@pytest.mark.parametrize("follow", [True, False])
async def test_a_reader_that_is_overtaken_hears_so_once(
    autojump_clock: Any, world: Any, follow: bool
) -> None:
    """With what was dropped; asked again it goes on with the first record kept."""
    async with world.open() as runtime:
        topic = await dropping(runtime)
        await topic.publish_batch([MESSAGE] * 2)
        reader = topic.read(follow=follow, stop=22)
        assert (await anext(reader)).offset == 0
        await overflow(topic)
        assert (await anext(reader)).offset == 1
        with pytest.raises(
            callboard.OffsetOutOfRange, match=r"retention dropped \d+ offsets of t/0, from 2 on"
        ) as told:
            await anext(reader)
        start = (await part_of(topic)).start_offset
        assert (told.value.offset, told.value.start, reader.dropped) == (2, start, start - 2)
        seen = [(await anext(reader)).offset for _ in range(22 - start)]
        assert seen == list(range(start, 22))
        assert reader.dropped == start - 2


async def test_a_reader_may_pass_over_what_is_dropped(autojump_clock: Any, world: Any) -> None:
    """Then it only counts; what begins behind it has missed nothing."""
    async with world.open() as runtime:
        topic = await dropping(runtime)
        await topic.publish_batch([MESSAGE] * 2)
        reader = topic.read_batches(follow=True, stop=22, skip_dropped=True)
        assert [record.offset for record in await anext(reader)] == [0, 1]
        await overflow(topic)
        start = (await part_of(topic)).start_offset
        offsets = [record.offset async for batch in reader for record in batch]
        assert offsets == list(range(start, 22))
        assert reader.dropped == start - 2
        late = topic.read(start=1)
        assert [record.offset async for record in late] == offsets
        assert late.dropped == 0
        with pytest.raises(callboard.InvalidArgument, match="skip_dropped is 1"):
            topic.read(skip_dropped=1)


@pytest.mark.parametrize("how", ["ack", "lazily", "nack", "extend", "publish", "batch", "body"])
async def test_a_lease_that_retention_ended_says_so(autojump_clock: Any, world: Any, how: str) -> None:
    """Whatever its consumer wants to do with it."""
    async with world.open() as runtime:
        topic = await dropping(runtime)
        await topic.publish_batch([MESSAGE] * 2)
        async with topic.subscribe("g", visibility_timeout=30.0) as consumer:
            with pytest.raises(callboard.LeaseLost, match="retention dropped the message") as lost:
                if how == "batch":
                    batch = await anext(consumer.batches(max_records=2))
                    await overflow(topic)
                    await batch.ack()
                elif how == "body":
                    async with consumer.receive():
                        await overflow(topic)
                        await trio.sleep(60.0)
                else:
                    message = await consumer.get()
                    await overflow(topic)
                    if how == "ack":
                        await message.ack()
                    elif how == "lazily":
                        await message.ack(wait=False)
                        await consumer.flush()
                    elif how == "nack":
                        await message.nack()
                    elif how == "extend":
                        await message.extend(5.0)
                    else:
                        await message.publish("t", b"more")
                        await message.ack()
        assert "it ran out" not in str(lost.value)


@pytest.mark.parametrize("mode", ["shared", "exclusive"])
@pytest.mark.parametrize("by_pattern", [False, True])
@pytest.mark.parametrize("in_batches", [False, True])
async def test_what_retention_dropped_is_not_handed_over(
    autojump_clock: Any, world: Any, mode: Any, by_pattern: bool, in_batches: bool
) -> None:
    """A consumer that had fetched it goes on with the first message kept."""
    async with world.open() as runtime:
        topic = await dropping(runtime)
        await topic.publish_batch([b"small"] * 3 + [MESSAGE] * 2)
        subscribed = (
            runtime.subscribe(pattern="t*", group="g", mode=mode)
            if by_pattern
            else topic.subscribe("g", mode=mode)
        )
        async with subscribed as consumer:
            batches = consumer.batches(max_records=1)

            async def take() -> int:
                if in_batches:
                    (message,) = await anext(batches)
                else:
                    message = await consumer.get()
                await message.ack()
                offset: int = message.offset
                return offset

            assert await take() == 0
            assert await take() == 1
            await overflow(topic)
            start = (await part_of(topic)).start_offset
            assert start > 4
            assert [await take() for _ in range(2)] == [start, start + 1]
