"""Disks that fail once, for a while, or have no space: publishers hear it, everybody else goes on, it heals."""

from __future__ import annotations

import errno
from typing import Any

import pytest
import trio

import callboard
from callboard.log.seams.disk import Create, Open, Rename, Sync, SyncDirectory, Write, Zero
from callboard.simulations.disk.disk_faults import VERB_NAMES
from callboard.simulations.disk.inodes import keep_unsynced, lose_unsynced

LOG = "/00000"
"""In the paths of all segments; those of the delivery journal have DELIVERY before it."""
DELIVERY = "/delivery/"
NO_SPACE = OSError(errno.ENOSPC, "No space left on device")
BROKEN = OSError(errno.EIO, "Input/output error")


def log_path(world: Any) -> str:
    """The path of the one partition's first segment."""
    (path,) = world.segments()
    return str(path)


async def begin(runtime: Any) -> Any:
    """A topic with three synced records."""
    topic = await runtime.create_topic("orders")
    await topic.publish_batch([b"0", b"1", b"2"])
    return topic


async def everything_else_goes_on(topic: Any, consumer: Any) -> None:
    """Reads, leases and acks, while publishing fails or has failed."""
    assert [record.value async for record in topic.read(stop=3)] == [b"0", b"1", b"2"]
    message = await consumer.get(timeout=5.0)
    assert message is not None
    await message.ack()


async def holds(world: Any, stored: dict[int, bytes], acked: set[int]) -> None:
    """After a clean end, and after power loss, what was acknowledged is there."""
    async with world.open() as runtime:
        log = await world.values(runtime)
        assert {offset: log.get(offset) for offset in stored} == stored
        again = await world.drain(runtime)
        assert acked.isdisjoint(again)
        assert set(log) - acked == set(again)


@pytest.mark.parametrize("after_power_loss", [False, True], ids=["closed", "power lost"])
@pytest.mark.parametrize("pages", ["kept", "reverted"])
async def test_a_sync_that_fails_once_is_never_believed(
    autojump_clock: Any, world: Any, pages: str, after_power_loss: bool
) -> None:
    """Its publisher hears an indefinite error, the next publish succeeds, and what that was told holds."""
    life = world.doomed(lose_unsynced) if after_power_loss else world.open()
    async with life as runtime:
        topic = await begin(runtime)
        async with topic.subscribe("group") as consumer:
            world.disk.fail_next(Sync, BROKEN, path_contains=log_path(world), pages=pages)
            with pytest.raises(callboard.PublishFailed) as caught:
                await topic.publish(b"doubtful")
            assert caught.value.indefinite
            assert not isinstance(caught.value, callboard.DiskFull)
            await everything_else_goes_on(topic, consumer)
            receipt = await topic.publish(b"after")
            assert receipt.offset >= 3
            found = await world.values(runtime)
            assert found[receipt.offset] == b"after"
            (part,) = await topic.describe()
            assert (part.state, part.heals, part.failed_commits) == ("running", 1, 1)
            assert world.disk.faults.counts["sync EIO"] == 1
    stored = {0: b"0", 1: b"1", 2: b"2", receipt.offset: b"after"}
    await holds(world, stored, {0})


@pytest.mark.parametrize("pages", ["kept", "reverted"])
async def test_leader_records_outlive_a_failed_sync(autojump_clock: Any, world: Any, pages: str) -> None:
    """Records that readers saw before the sync failed are written anew: a later publish makes them durable."""
    async with world.doomed(lose_unsynced) as runtime:
        topic = await begin(runtime)
        await topic.publish_batch([b"3", b"4"], acks="leader")
        world.disk.fail_next(Sync, BROKEN, path_contains=log_path(world), pages=pages)
        with pytest.raises(callboard.PublishFailed):
            await topic.publish(b"doubtful")
        receipt = await topic.publish(b"after")
        found = await world.values(runtime)
        assert [found[offset] for offset in (3, 4, receipt.offset)] == [b"3", b"4", b"after"]
    async with world.open() as runtime:
        assert await world.values(runtime) == found


@pytest.mark.parametrize("partial", [0, 1, 60, 100])
@pytest.mark.parametrize("error", [BROKEN, NO_SPACE], ids=["EIO", "ENOSPC"])
async def test_a_write_that_fails_or_falls_short(
    autojump_clock: Any, world: Any, error: OSError, partial: int
) -> None:
    """Whatever part of it was written: the publisher hears an error, the partition heals in a new file."""
    async with world.doomed(keep_unsynced) as runtime:
        topic = await begin(runtime)
        async with topic.subscribe("group") as consumer:
            world.disk.fail_next(Write, error, path_contains=log_path(world), partial=partial)
            kind = callboard.DiskFull if error is NO_SPACE else callboard.PublishFailed
            with pytest.raises(kind) as caught:
                await topic.publish_batch([b"doubtful"] * 10)
            assert "publish again" in str(caught.value) or "continues by itself" in str(caught.value)
            await everything_else_goes_on(topic, consumer)
            receipts = await topic.publish_batch([b"3", b"4"])
            assert await world.values(runtime) == {
                **{offset: b"%d" % offset for offset in range(3)},
                **{receipt.offset: b"%d" % (3 + place) for place, receipt in enumerate(receipts)},
            }
    await holds(world, {0: b"0", 1: b"1", 2: b"2"}, {0})


@pytest.mark.parametrize("verb", [Write, Sync, Zero], ids=["write", "sync", "zero"])
@pytest.mark.parametrize("error", [BROKEN, NO_SPACE], ids=["EIO", "ENOSPC"])
async def test_a_failing_delivery_journal_heals_unnoticed(
    autojump_clock: Any, world: Any, verb: type, error: OSError
) -> None:
    """The journal goes on from memory: the ack succeeds, and holds after power loss; publishing never notices."""
    async with world.doomed(lose_unsynced) as runtime:
        topic = await begin(runtime)
        async with topic.subscribe("group") as consumer:
            message = await consumer.get()
            world.disk.fail_next(verb, error, path_contains=DELIVERY)
            await message.ack()
            await topic.publish(b"3")
            await everything_else_goes_on(topic, consumer)
            assert world.disk.faults.counts[f"{VERB_NAMES[verb]} {errno.errorcode[error.errno or 0]}"] == (
                verb is not Zero
            )
    await holds(world, {offset: b"%d" % offset for offset in range(4)}, {0, 1})


async def test_settlers_hear_of_a_journal_that_cannot_be_written(autojump_clock: Any, world: Any) -> None:
    """While the journal cannot be written at all an ack raises, and publishing goes on; then all is well again."""
    async with world.doomed(lose_unsynced) as runtime:
        topic = await begin(runtime)
        async with topic.subscribe("group") as consumer:
            held = [await consumer.get() for _ in range(3)]
            world.disk.fail_next(Write, BROKEN, path_contains=DELIVERY, times=1000)
            with pytest.raises(callboard.StorageError):
                await held[0].ack()
            assert (await topic.publish(b"3")).offset == 3
            world.disk.faults.clear()
            await held[1].ack()
            message = await consumer.get()
            assert message.offset == 3
            await message.ack()
    async with world.open() as runtime:
        assert set(await world.drain(runtime)) <= {0, 2}


@pytest.mark.parametrize("verb", [Create, Rename, SyncDirectory, Open, Zero, Write, Sync])
@pytest.mark.parametrize("error", [BROKEN, NO_SPACE], ids=["EIO", "ENOSPC"])
async def test_a_roll_that_fails(autojump_clock: Any, world: Any, verb: type, error: OSError) -> None:
    """Whatever verb of beginning a new segment fails, the publish is answered, and the log goes on whole."""
    async with world.doomed(lose_unsynced) as runtime:
        topic = await runtime.create_topic("orders", segment_age=60.0)
        stored = {}
        for turn in range(3):
            receipt = await topic.publish(b"a%d" % turn)
            stored[receipt.offset] = b"a%d" % turn
            world.clock.shift(61.0)  # the wall clock, so that the roll meets the publish and not the alarm
            world.disk.fail_next(verb, error, path_contains="topics/")
            try:
                receipt = await topic.publish(b"b%d" % turn)
            except callboard.StorageError as failed:
                assert isinstance(failed, callboard.DiskFull) == (error is NO_SPACE)
            else:
                stored[receipt.offset] = b"b%d" % turn
            world.disk.faults.clear()
            found = await world.values(runtime)
            assert {offset: found.get(offset) for offset in stored} == stored
        receipt = await topic.publish(b"last")
        stored[receipt.offset] = b"last"
        (part,) = await topic.describe()
        assert part.state == "running"
        assert world.disk.faults.counts[f"{VERB_NAMES[verb]} {errno.errorcode[error.errno or 0]}"] == 3
    await holds(world, stored, set())


async def test_a_disk_that_fills_in_mid_batch(autojump_clock: Any, world: Any) -> None:
    """Publishers hear DiskFull, reads, leases and acks go on; with space again publishing goes on by itself."""
    async with world.doomed(lose_unsynced) as runtime:
        topic = await begin(runtime)
        async with topic.subscribe("group") as consumer:
            for room in (0, 1, 1000, 20_000, 100_000):
                world.disk.capacity_bytes = world.disk.used_bytes + room
                with pytest.raises(callboard.DiskFull) as caught:
                    while True:
                        await topic.publish_batch([bytes(5000)] * 20)
                assert "Free space" in str(caught.value)
                (part,) = await topic.describe()
                await everything_else_goes_on(topic, consumer) if room < 1000 else None
                world.disk.capacity_bytes = None
                await topic.publish(b"there is space, having had %d" % room)
                (part,) = await topic.describe()
                assert part.state == "running"
        found = await world.values(runtime)
    async with world.open() as runtime:
        assert await world.values(runtime) == found
        assert {0, 1}.isdisjoint(await world.drain(runtime))


async def test_very_many_acks_fit_on_a_full_disk(autojump_clock: Any, world: Any) -> None:
    """The space reserved for the journal takes the acks of thousands of messages, singly leased and acked."""
    async with world.doomed(lose_unsynced) as runtime:
        topic = await runtime.create_topic("orders")
        await topic.publish_batch([b"%d" % number for number in range(2000)])
        async with topic.subscribe("group") as consumer:
            world.disk.capacity_bytes = world.disk.used_bytes
            for _ in range(1000):
                await (await consumer.get()).ack()
            with pytest.raises(callboard.DiskFull):
                while True:
                    await topic.publish(bytes(10_000))
    world.disk.capacity_bytes = None
    async with world.open() as runtime:
        assert set(await world.drain(runtime)) >= set(range(1000, 2000))


async def test_settling_on_a_full_disk_beyond_the_reserve(autojump_clock: Any, world: Any) -> None:
    """What the journal had no space for is in it once there is space again: the partition opens as it was left."""
    acked = set()
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders")
        await topic.publish_batch([b"%d" % number for number in range(3000)])
        async with topic.subscribe("group") as consumer:
            world.disk.capacity_bytes = world.disk.used_bytes
            refusals = 0
            while refusals < 20:
                try:
                    message = await consumer.get()
                    await message.nack(reason="r" * 200, delay=1000.0)
                except callboard.DiskFull as error:
                    assert error.indefinite  # it is written when the disk has space again
                    refusals += 1
            world.disk.capacity_bytes = None
            for _ in range(100):
                message = await consumer.get()
                await message.ack()
                acked.add(message.offset)
    async with world.open() as runtime:
        again = await world.drain(runtime)
        assert acked.isdisjoint(again)


@pytest.mark.parametrize("idle_s", [0.0, 5.0])
async def test_a_settlement_that_the_disk_refused_is_written_when_it_can_be(
    autojump_clock: Any, world: Any, idle_s: float
) -> None:
    """In memory it counts; so it is tried again after a while, and at the latest when the runtime closes."""
    async with world.doomed(lose_unsynced) if idle_s else world.open() as runtime:
        topic = await runtime.create_topic("orders")
        await topic.publish(b"0")
        async with topic.subscribe("group") as consumer:
            message = await consumer.get()
            world.disk.fail_next(Write, BROKEN, path_contains="delivery", times=2)
            with pytest.raises(callboard.StorageError) as caught:
                await message.ack()
            assert caught.value.indefinite
            await trio.sleep(idle_s)
            assert await consumer.get(timeout=0) is None
    async with world.open() as runtime:
        assert await world.drain(runtime) == {}


async def test_failures_without_anybody_waiting_are_told_at_flush(autojump_clock: Any, world: Any) -> None:
    """`acks="none"`: what failed is counted, and raised by `flush`; a close without flush raises it too."""
    with pytest.raises(callboard.PublishFailed) as at_close:
        async with world.open() as runtime:
            topic = await begin(runtime)
            world.disk.fail_next(Sync, BROKEN, path_contains=LOG, times=1)
            world.disk.fail_next(Write, BROKEN, path_contains=log_path(world), times=1)
            await topic.publish(b"lost", acks="none")
            with pytest.raises(callboard.PublishFailed) as at_flush:
                await topic.flush()
            assert at_flush.value.failed == 1
            await topic.flush()
            world.disk.faults.clear()
            await topic.publish(b"kept", acks="none")
            await topic.flush()
            world.disk.fail_next(Write, BROKEN, path_contains="topics/", times=1)
            await topic.publish_batch([b"lost"] * 5, acks="none")
    assert at_close.value.failed == 5


async def test_a_read_that_fails_under_a_lease_costs_no_delivery(autojump_clock: Any, world: Any) -> None:
    """What a consumer was to get is not in the hands of nobody until the lease runs out."""
    async with world.open() as runtime:
        await begin(runtime)
    async with world.open() as runtime:
        async with runtime.topic("orders").subscribe("group", visibility_timeout=60.0) as consumer:
            fault = world.disk.fail_read(log_path(world))
            message = await consumer.get(timeout=5.0)
            assert world.disk.faults.counts["read EIO"] == 1, fault
            assert message is not None
            assert (message.value, message.attempt) == (b"0", 1)
            await message.ack()


async def test_a_runtime_opens_although_its_catalog_cannot_be_healed_on_a_full_disk(
    autojump_clock: Any, world: Any
) -> None:
    """Topics are read and written; changes are refused with DiskFull until there is space."""
    async with world.doomed() as runtime:
        topic = await runtime.create_topic("orders")
        await topic.publish_batch([b"one", b"two"])
    world.disk.fill()
    world.disk.fail_next(Write, "ENOSPC", path_contains="catalog/", times=1_000)
    async with world.open() as runtime:
        assert await world.values(runtime) == {0: b"one", 1: b"two"}
        assert (await runtime.topic("orders").publish(b"three")).offset == 2
        with pytest.raises(callboard.DiskFull):
            await runtime.create_topic("returns")
        world.disk.free()
        world.disk.faults.clear()
        await (await runtime.create_topic("returns")).publish(b"four")
    async with world.open() as runtime:
        assert sorted(topic.name for topic in runtime.topics()) == ["orders", "returns"]


async def test_a_partition_opens_although_its_journal_cannot_be_healed_on_a_full_disk(
    autojump_clock: Any, world: Any
) -> None:
    """Messages are read; consuming hears DiskFull, or waits, until there is space, and then begins where it was."""
    async with world.doomed() as runtime:
        topic = await runtime.create_topic("orders")
        await topic.publish_batch([b"one", b"two", b"three"])
        async with topic.subscribe("group") as consumer:
            await (await consumer.get()).ack()
    world.disk.fill()
    world.disk.fail_next(Write, "ENOSPC", path_contains="delivery/", times=1_000)
    async with world.open() as runtime:
        topic = runtime.topic("orders")
        assert len(await world.values(runtime)) == 3
        assert (await topic.publish(b"four")).offset == 3
        with pytest.raises(callboard.DiskFull):
            async with topic.subscribe("group") as consumer:
                await consumer.get(timeout=5.0)
        world.disk.free()
        world.disk.faults.clear()
        assert await world.drain(runtime) == {1: b"two", 2: b"three", 3: b"four"}


async def test_closing_on_a_full_disk_waits_for_no_space(autojump_clock: Any, world: Any) -> None:
    """What a journal owes is tried once more, and left to the next opening: closing takes no time."""
    async with world.open() as runtime:
        topic = await begin(runtime)
        await trio.sleep(1.0)
        async with topic.subscribe("group") as consumer:
            world.disk.fill()
            world.disk.fail_next(Write, "ENOSPC", path_contains=DELIVERY, times=1_000)
            for _ in range(3):
                with pytest.raises(callboard.DiskFull):
                    await consumer.get(timeout=5.0)
        closes_at = trio.current_time()
    assert trio.current_time() - closes_at < 1.0
    world.disk.free()
    world.disk.faults.clear()
    async with world.open() as runtime:
        assert len(await world.drain(runtime)) == 3


async def test_a_topic_is_not_created_on_a_full_disk(autojump_clock: Any, world: Any) -> None:
    """The error comes at once, nothing of the topic is left, and with space it is created."""
    async with world.open() as runtime:
        kept = await runtime.create_topic("kept")
        await kept.publish(b"one")
        world.disk.fill()
        for _ in range(3):
            with trio.fail_after(1.0), pytest.raises(callboard.DiskFull, match="Free space"):
                await runtime.create_topic("orders", partitions=3)
            assert [topic.name for topic in runtime.topics()] == ["kept"]
        assert {path.split("/")[1] for path in world.segments()} == {kept.topic_id}
        world.disk.free()
        await (await runtime.create_topic("orders", partitions=3)).publish(b"two")
    async with world.open() as runtime:
        assert [topic.name for topic in runtime.topics()] == ["kept", "orders"]


async def test_a_partition_on_a_full_disk_says_so(autojump_clock: Any, world: Any) -> None:
    """Its state is `full` from the first refusal until something is written again."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders")
        await topic.publish(b"x" * 1000)

        async def state() -> str:
            (part,) = await topic.describe()
            assert (await runtime.stats()).partitions[0].state == part.state
            return str(part.state)

        world.disk.fill()
        assert await state() == "running"
        with pytest.raises(callboard.DiskFull):
            while True:
                await topic.publish(b"x" * 1_000_000)
        assert await state() == "full"
        world.disk.free()
        await topic.publish(b"x")
        assert await state() == "running"
