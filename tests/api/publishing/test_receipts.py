"""What a publish tells: where each message is stored, what the level promises, and the fate of each on failure."""

from __future__ import annotations

import errno
from typing import Any

import pytest
import trio

import callboard
from callboard.log.limits import PENDING_BYTES_MAX, Limits
from callboard.log.seams.disk import Sync, Write
from callboard.simulations.disk.inodes import lose_unsynced


async def test_receipts_are_made_when_looked_at(autojump_clock: Any, world: Any) -> None:
    """A batch's receipts are a sequence in the order of its messages; `ranges` tells the same in short."""
    async with world.open() as runtime:
        topic = await runtime.create_topic(
            "orders", partitions=2, partitioner=lambda key, count: key[0] % count
        )
        await topic.publish(b"first", partition=1)
        receipts = await topic.publish_batch([b"a", b"b", b"c"], keys=[b"\x01", b"\x00", b"\x01"])
        assert len(receipts) == 3
        assert [(receipt.partition, receipt.offset) for receipt in receipts] == [(1, 1), (0, 0), (1, 2)]
        assert receipts[-1] == callboard.Receipt("orders", 1, 2)
        assert receipts[:2] == [receipts[0], receipts[1]]
        assert sorted(receipts.ranges) == [(0, 0, 1), (1, 1, 2)]
        assert len(await topic.publish_batch([])) == 0


async def test_levels_promise_what_they_say(autojump_clock: Any, world: Any) -> None:
    """After a power cut what was published with "all" is there; "leader" and "none" survive a crash of the process."""
    told: dict[str, list[int]] = {"all": [], "leader": []}

    async def publish(runtime: Any) -> None:
        topic = await runtime.create_topic("orders")
        for acks in ("all", "leader", "all", "leader"):
            told[acks].append((await topic.publish(acks.encode(), acks=acks)).offset)
        assert (await topic.publish(b"none", acks="none")).offset is None
        await trio.sleep(1.0)
        (part,) = await topic.describe()
        assert (part.durable_end, part.visible_end) == (3, 5)

    await world.live(publish)
    async with world.open() as runtime:
        found = {record.offset async for record in runtime.topic("orders").read()}
        assert set(told["all"]) <= found
        assert 4 not in found

    with trio.CancelScope() as life:
        try:
            async with world.open() as runtime:
                topic = runtime.topic("orders")
                receipt = await topic.publish(b"leader", acks="leader")
                await topic.publish(b"none", acks="none")
                await trio.sleep(1.0)
                world.disk.kill()
                life.cancel()
                await trio.lowlevel.checkpoint()
        except callboard.CallboardError:
            assert life.cancel_called
    async with world.open() as runtime:
        values = [record.value async for record in runtime.topic("orders").read(start=receipt.offset)]
        assert values == [b"leader", b"none"]


async def test_failures_that_nobody_waited_for_are_told_by_flush(autojump_clock: Any, world: Any) -> None:
    """`flush` raises PublishFailed with their number, once, and syncs the others."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders")
        await topic.publish(b"fine")
        world.disk.fail_next(
            Write, OSError(errno.EIO, "broken"), path_contains=f"{topic.topic_id}/0/0", times=99
        )
        await topic.publish(b"lost", acks="none")
        await topic.publish_batch([b"lost"] * 4, acks="none")
        with pytest.raises(callboard.PublishFailed) as caught:
            await topic.flush()
        assert (caught.value.failed, caught.value.indefinite) == (5, True)
        world.disk.faults.clear()
        await topic.publish(b"later", acks="none")
        await topic.flush()
        (part,) = await topic.describe()
        assert part.durable_end == part.visible_end


async def test_closing_tells_of_what_nobody_waited_for(autojump_clock: Any, world: Any) -> None:
    """Failures of acks="none" publishes that were not flushed come out of `async with open_runtime`."""
    with pytest.raises(callboard.PublishFailed) as caught:
        async with world.open() as runtime:
            topic = await runtime.create_topic("orders")
            world.disk.fail_next(
                Sync, OSError(errno.EIO, "broken"), path_contains=f"{topic.topic_id}/0/0", times=99
            )
            world.disk.fail_next(
                Write, OSError(errno.EIO, "broken"), path_contains=f"{topic.topic_id}/0/0", times=99
            )
            await topic.publish_batch([b"lost"] * 7, acks="none")
    assert caught.value.failed == 7


async def test_closing_tells_of_what_waited_at_a_failed_partition(autojump_clock: Any, world: Any) -> None:
    """Messages that lay in a partition's mailbox when it failed for good are counted as well."""
    told = 0
    with pytest.raises(callboard.PublishFailed) as caught:
        async with world.open() as runtime:
            topic = await runtime.create_topic("orders")
            while (await topic.describe())[0].state != "failed":
                runtime.crash("topics/orders/0", RuntimeError("a drill"))
                await topic.publish(b"x", acks="none")
                told += 1
                await trio.sleep(0.26)
    lost = caught.value.failed
    async with world.open() as runtime:
        stored = [record.value async for record in runtime.topic("orders").read()]
        assert 0 < told - len(stored) <= lost


async def test_everything_published_before_closing_is_there(autojump_clock: Any, world: Any) -> None:
    """Closing commits what nobody waited for."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", partitions=2)
        for number in range(500):
            await topic.publish(b"%d" % number, acks="none")
    world.disk.crash(lose_unsynced)
    async with world.open() as runtime:
        values = {record.value async for record in runtime.topic("orders").read()}
        assert values == {b"%d" % number for number in range(500)}


async def test_a_partial_publish_tells_the_fate_of_each(autojump_clock: Any, world: Any) -> None:
    """One partition of three fails: the batch raises PartialPublish, with a receipt or an error per message."""
    async with world.open() as runtime:
        topic = await runtime.create_topic(
            "orders", partitions=3, partitioner=lambda key, count: key[0] % count
        )
        world.disk.fail_next(Write, OSError(errno.ENOSPC, "full"), path_contains=f"{topic.topic_id}/1/0")
        keys = [bytes([number]) for number in range(9)]
        with pytest.raises(callboard.PartialPublish) as caught:
            await topic.publish_batch([b"x"] * 9, keys=keys)
        assert caught.value.indefinite
        fates = caught.value.receipts
        for number, fate in enumerate(fates):
            if number % 3 == 1:
                assert isinstance(fate, callboard.DiskFull)
            else:
                assert fate == callboard.Receipt("orders", number % 3, number // 3)
        found = {(record.partition, record.offset) async for record in topic.read()}
        assert found == {
            (fate.partition, fate.offset) for fate in fates if isinstance(fate, callboard.Receipt)
        }


async def test_a_batch_that_is_stored_nowhere_raises_its_error(autojump_clock: Any, world: Any) -> None:
    """When every part failed for certain there is nothing partial: the error itself comes out."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", partitions=2)
        for partition in range(2):
            while (await topic.describe())[partition].state != "failed":
                runtime.crash(f"topics/orders/{partition}", RuntimeError("a drill"))
                await trio.sleep(0.26)
        with pytest.raises(callboard.PartitionUnavailable):
            await topic.publish_batch([b"x"] * 4, keys=[b"%d" % number for number in range(4)])
        with pytest.raises(callboard.PartitionUnavailable):
            await topic.publish(b"x")


async def test_messages_without_a_key_pass_partitions_that_refuse(autojump_clock: Any, world: Any) -> None:
    """With one partition down, what has no key goes to the others; what has one is refused."""
    async with world.open() as runtime:
        topic = await runtime.create_topic(
            "orders", partitions=3, partitioner=lambda key, count: key[0] % count
        )
        while (await topic.describe())[1].state != "failed":
            runtime.crash("topics/orders/1", RuntimeError("a drill"))
            await trio.sleep(0.26)
        found = {(await topic.publish(bytes(20_000))).partition for _ in range(30)}
        assert found == {0, 2}
        with pytest.raises(callboard.PartitionUnavailable):
            await topic.publish(b"x", key=b"\x01")


async def test_a_partitioner_of_ones_own(autojump_clock: Any, world: Any) -> None:
    """It decides for keys only; what it answers is checked, and its own errors pass, before anything is written."""
    async with world.open() as runtime:
        answers: list[Any] = [1, 2, -1, True, "0", None]

        def choose(key: bytes, partitions: int) -> Any:
            assert partitions == 2
            if key == b"broken":
                raise KeyError(key)
            return answers.pop(0)

        topic = await runtime.create_topic("orders", partitions=2, partitioner=choose)
        assert (await topic.publish(b"x", key=b"k")).partition == 1
        while answers:
            with pytest.raises(callboard.InvalidArgument, match="partitioner chose"):
                await topic.publish(b"x", key=b"k")
        with pytest.raises(KeyError):
            await topic.publish(b"x", key=b"broken")
        with pytest.raises(KeyError):
            await topic.publish_batch([b"x"] * 2, keys=[b"broken", b"k"])
        await topic.publish(b"x")
        assert sum(part.visible_end for part in await topic.describe()) == 2


async def test_bytes_like_values_and_keys_are_taken_as_they_were(autojump_clock: Any, world: Any) -> None:
    """What changes after the call does not change what is stored."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders")
        value, key = bytearray(b"value"), bytearray(b"key")
        await topic.publish(value, key=key, acks="none")
        value[:], key[:] = b"wrong", b"bad"
        await topic.publish_batch([bytearray(b"a"), memoryview(b"b")], keys=[bytearray(b"k"), None])
        found = [(record.value, record.key) async for record in topic.read()]
        assert found == [(b"value", b"key"), (b"a", b"k"), (b"b", None)]


async def test_a_batch_takes_views_as_keys_beside_none(autojump_clock: Any, world: Any) -> None:
    """A key may be a view of bytes in any batch, also in one with a message that has no key, and of wider items."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders")
        wide = memoryview(b"wide").cast("H")
        await topic.publish_batch([b"a", b"b", b"c"], keys=[memoryview(b"k"), None, wide])
        assert [record.key async for record in topic.read()] == [b"k", None, b"wide"]


async def test_publishers_wait_while_too_much_is_under_way(autojump_clock: Any, world: Any) -> None:
    """Back-pressure: beyond the byte budget publishers wait; the disk's progress lets them go on, in order."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", max_message_bytes=32 * 1024 * 1024)
        world.disk.hang("topics/")
        big = bytes(PENDING_BYTES_MAX // 4)
        done: list[int] = []

        async def publish(number: int) -> None:
            await topic.publish(big)
            done.append(number)

        async with trio.open_nursery() as nursery:
            for number in range(7):
                nursery.start_soon(publish, number)
                await trio.sleep(0.1)
            (part,) = await topic.describe()
            assert part.pending_bytes <= PENDING_BYTES_MAX
            assert topic._publisher.accounts()[0].credit.waiting_bytes == PENDING_BYTES_MAX
            world.disk.unhang()
        assert sorted(done) == list(range(7))
        assert topic._publisher.accounts()[0].credit.waiting_bytes == 0


async def test_publishers_that_wait_for_room_may_be_cancelled_together(
    autojump_clock: Any, world: Any
) -> None:
    """One that would have been let in by another's cancellation, and is cancelled with it, takes no room."""
    async with world.open(limits=Limits(pending_bytes=100)) as runtime:
        topic = await runtime.create_topic("orders")
        world.disk.hang("topics/")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(topic.publish, bytes(80))
            await trio.sleep(0.1)
            with trio.move_on_after(0.1):
                async with trio.open_nursery() as waiting:
                    for size in (80, *[1] * 20):
                        waiting.start_soon(topic.publish, bytes(size))
            world.disk.unhang()
        assert topic._publisher.accounts()[0].credit.waiting_bytes == 0
        await topic.publish(bytes(80))


async def test_publishers_that_wait_for_room_hear_that_the_partition_is_stuck(
    autojump_clock: Any, world: Any
) -> None:
    """Nobody waits behind a disk that does not answer: those without room are refused as later ones are."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", max_message_bytes=64 * 1024 * 1024)
        world.disk.hang("topics/")
        outcomes: list[str] = []

        async def publish() -> None:
            try:
                await topic.publish(bytes(PENDING_BYTES_MAX // 2))
            except callboard.PartitionUnavailable as error:
                outcomes.append(error.state)
            else:
                outcomes.append("stored")

        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(publish)
            await trio.sleep(60.0)
            assert outcomes == ["stuck"] * 3
            world.disk.unhang()
        assert outcomes == ["stuck"] * 3 + ["stored"] * 2


async def test_flush_syncs_delayed_messages_too(autojump_clock: Any, world: Any) -> None:
    """What was published with "leader", and waits until it is due, outlives a power cut from then on."""
    async with world.doomed(lose_unsynced) as runtime:
        topic = await runtime.create_topic("orders", partitions=2)
        for partition in range(2):
            await topic.publish(b"first", partition=partition, delay=60)
            await topic.publish(b"second", partition=partition, delay=60, acks="leader")
        await topic.flush()
    world.disk.power_on()
    async with world.open() as runtime:
        assert len(await runtime.topic("orders").delayed().list()) == 4


async def test_flush_goes_on_behind_a_partition_that_has_failed(autojump_clock: Any, world: Any) -> None:
    """The others are synced before it raises; of a deleted topic it says so."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", partitions=2)
        while (await topic.describe())[0].state != "failed":
            runtime.crash("topics/orders/0", RuntimeError("a drill"))
            await trio.sleep(0.26)
        await topic.publish(b"x", partition=1, acks="leader")
        with pytest.raises(callboard.PartitionUnavailable):
            await topic.flush()
        assert (await topic.describe())[1].durable_end == 1
        await runtime.delete_topic("orders")
        with pytest.raises(callboard.TopicNotFound):
            await topic.flush()
