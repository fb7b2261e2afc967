"""Waiting consumers and publishers: what a notice costs, and how many bytes may wait."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import trio

import callboard
from callboard.actors.partition.choice.lease_reading import LeaseReading
from callboard.actors.partition.commands import Describe
from callboard.consumer.notices import Notice
from callboard.log.limits import MIB, PENDING_BYTES_MAX
from callboard.log.partition.partition_log import PartitionLog


def port_of(runtime: Any, topic: str = "jobs", partition: int = 0) -> Any:
    """A partition's port."""
    return runtime._session.mirror.find(topic).ports[partition]


async def test_one_record_costs_a_few_messages_however_many_wait(autojump_clock: Any, world: Any) -> None:
    """With a hundred waiting consumers the partition gets a handful of messages for one record."""
    async with world.open() as runtime, trio.open_nursery() as nursery:
        topic = await world.topic_of(runtime, 0)
        found: list[int] = []

        async def consume(task_status: Any = trio.TASK_STATUS_IGNORED) -> None:
            async with topic.subscribe("group") as consumer:
                task_status.started()
                async for message in consumer:
                    found.append(message.offset)
                    await message.ack()

        for _ in range(100):
            await nursery.start(consume)
        await trio.sleep(1.0)
        ref = port_of(runtime).ref
        before = ref.statistics().received
        await topic.publish(b"x")
        await trio.sleep(1.0)
        assert found == [0]
        assert ref.statistics().received - before <= 6
        nursery.cancel_scope.cancel()


async def test_a_consumer_waits_in_empty_partitions_from_its_joining_on(
    autojump_clock: Any, world: Any
) -> None:
    """Of a thousand partitions only those that have something are fetched from; each other takes one message."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("many", partitions=50)
        await topic.publish(b"before", partition=40)
        ports = runtime._session.mirror.find("many").ports
        before = [port.ref.statistics().received for port in ports]
        async with topic.subscribe("group") as consumer:
            found = await consumer.get(timeout=0.0)
            assert (found.value, found.partition) == (b"before", 40)
            await found.ack()
            await topic.publish(b"after", partition=7)
            assert (await consumer.get(timeout=0.0)).value == b"after"
            received = [
                port.ref.statistics().received - count for port, count in zip(ports, before, strict=True)
            ]
            untouched = [count for place, count in enumerate(received) if place not in (7, 40)]
            assert untouched == [2] * 48  # that the group is opened, and the wait
            for place in (0, 49):
                (group,) = (await ports[place].ref.ask(Describe())).groups
                assert group.waiting_consumers == 1


async def test_a_partition_keeps_nothing_of_waits_that_are_over(autojump_clock: Any, world: Any) -> None:
    """However often a consumer or a reader has waited for a record, what it waited with is gone."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 0)
        async with topic.subscribe("group") as consumer, trio.open_nursery() as nursery:

            async def publish() -> None:
                for _ in range(50):
                    await trio.sleep(1.0)
                    await topic.publish(b"x")

            nursery.start_soon(publish)
            reader = topic.read(follow=True)
            for _ in range(50):
                await (await consumer.get()).ack()
                await anext(reader)
        await trio.sleep(1.0)
        gc.collect()
        assert sum(isinstance(each, Notice) for each in gc.get_objects()) <= 2


async def test_who_waits_for_room_notices_a_lease_that_is_shortened(autojump_clock: Any, world: Any) -> None:
    """A task that waits for room goes on when a message that another task holds is its own no longer."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 1)
        async with topic.subscribe("group", max_in_flight=1) as consumer, trio.open_nursery() as nursery:
            held = await consumer.get()
            got: list[float] = []

            async def take() -> None:
                await consumer.get()
                got.append(trio.current_time())

            nursery.start_soon(take)
            await trio.sleep(1.0)
            await held.extend(0.5)
            await trio.sleep(2.0)
            assert got == [1.5]
            nursery.cancel_scope.cancel()


async def test_a_consumer_that_is_busy_keeps_no_record_from_those_who_wait(
    autojump_clock: Any, world: Any
) -> None:
    """Of two consumers of two partitions one works for long: what comes next goes to the other at once."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 0, partitions=2)
        async with (
            topic.subscribe("group") as busy,
            topic.subscribe("group") as idle,
            trio.open_nursery() as nursery,
        ):
            got: list[tuple[str, float]] = []

            async def take(name: str, consumer: Any) -> None:
                message = await consumer.get()
                got.append((name, trio.current_time()))
                await message.ack()

            nursery.start_soon(take, "busy", busy)
            await trio.sleep(0.01)
            nursery.start_soon(take, "idle", idle)
            await trio.sleep(0.01)
            await topic.publish(b"x", partition=0)
            await trio.sleep(1.0)
            published = trio.current_time()
            await topic.publish(b"y", partition=1)
            await trio.sleep(1.0)
            assert [name for name, _ in got] == ["busy", "idle"]
            assert got[1][1] - published < 0.01


async def test_a_consumer_cancelled_while_it_waits_passes_the_record_on(
    autojump_clock: Any, world: Any
) -> None:
    """Whoever waited longest has given up; the next one gets what is published."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 0)
        async with topic.subscribe("group") as first, topic.subscribe("group") as second:
            assert await first.get(timeout=1.0) is None
            with trio.move_on_after(5.0):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(lambda: topic.publish(b"x"))
                    message = await second.get()
                    assert message.value == b"x"
                    assert trio.current_time() < 3.0
                    return
        pytest.fail("nobody got it")


async def test_publishers_that_give_up_do_not_queue_more_than_the_budget(
    autojump_clock: Any, world: Any
) -> None:
    """On a slow disk, timeouts return no bytes early; what nobody waits for any more is dropped, and counted."""
    async with world.open() as runtime, trio.open_nursery() as nursery:
        topic = await world.topic_of(runtime, 0)
        world.disk.latency_s = 2.0
        (account,) = topic._publisher.accounts()
        value, most = bytes(MIB - 100), 0

        async def publish() -> None:
            while True:
                with trio.move_on_after(0.02):
                    await topic.publish(value)

        for _ in range(32):
            nursery.start_soon(publish)
        for _ in range(50):
            await trio.sleep(0.1)
            (statistics,) = await topic.describe()
            most = max(most, statistics.pending_bytes, account.credit.waiting_bytes)
        assert PENDING_BYTES_MAX / 2 < most <= PENDING_BYTES_MAX
        nursery.cancel_scope.cancel()
    async with world.open() as runtime:
        world.disk.latency_s = 0.0
        assert (await runtime.topic("jobs").publish(b"x")).offset > 0


async def test_what_was_given_up_is_dropped_and_counted(autojump_clock: Any, world: Any) -> None:
    """Records whose publishers have gone before a commit took them are not written."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 1)
        world.disk.latency_s = 1.0
        with trio.move_on_after(0.5):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(topic.publish, b"taken at once")
                await trio.sleep(0.1)
                for _ in range(8):
                    nursery.start_soon(topic.publish, bytes(MIB // 2))
        await topic.publish(b"behind them")
        (statistics,) = await topic.describe()
        assert (statistics.cancelled_records, statistics.next_offset) == (8, 3)
        (account,) = topic._publisher.accounts()
        assert account.credit.waiting_bytes == 0


async def test_a_command_that_breaks_the_partition_fails_its_sender_alone(
    autojump_clock: Any, world: Any
) -> None:
    """The sender hears an error that is not retried; the partition restarts once and goes on for everybody else."""
    from callboard.actors.partition.commands import PublishOne

    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 3)
        port = port_of(runtime)
        poison = PublishOne(b"x", None, None, "no level", 1)  # type: ignore[arg-type]
        for _ in range(2):
            with pytest.raises(callboard.CallboardError, match="PublishOne") as caught:
                await port.ref.ask(poison)
            assert not isinstance(caught.value, callboard.ActorCrashed)
            assert (await topic.publish(b"y")).offset >= 3
        assert runtime._session.mirror.state_of(port) == "running"


async def test_a_nacks_reason_is_checked_before_it_is_sent(autojump_clock: Any, world: Any) -> None:
    """An exception in place of text is refused; the message can still be settled and the partition never restarts."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 1)
        async with topic.subscribe("group") as consumer:
            message = await consumer.get()
            with pytest.raises(callboard.InvalidArgument, match="reason"):
                await message.nack(reason=ValueError("no luck"))
            await message.ack()
        node = next(node for node in runtime.tree().walk() if node.path == "topics/jobs/0")
        assert node.restarts == 0


async def test_a_read_that_finds_no_memory_fails_alone(
    autojump_clock: Any, world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who asked hears it, the message stays ready, and the partition does not restart."""
    async with world.open() as runtime:
        await world.topic_of(runtime, 5)
    reads, reads_hot = PartitionLog.read, PartitionLog.read_hot

    def no_memory_now(*_: Any, **__: Any) -> Any:
        monkeypatch.setattr(PartitionLog, "read_hot", reads_hot)
        raise MemoryError

    async def no_memory(*_: Any, **__: Any) -> Any:
        monkeypatch.setattr(PartitionLog, "read", reads)
        raise MemoryError

    async with world.open() as runtime:
        topic = runtime.topic("jobs")
        monkeypatch.setattr(PartitionLog, "read", no_memory)
        monkeypatch.setattr(PartitionLog, "read_hot", no_memory_now)
        async with topic.subscribe("group") as consumer:
            with pytest.raises(callboard.StorageError, match="memory"):
                await consumer.get()
            message = await consumer.get()
            assert (message.offset, message.attempt) == (0, 1)
        node = next(node for node in runtime.tree().walk() if node.path == "topics/jobs/0")
        assert node.restarts == 0


async def test_records_that_find_no_memory_once_read_fail_alone(
    autojump_clock: Any, world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when memory ends while what was read is cut to what was leased."""
    async with world.open() as runtime:
        await world.topic_of(runtime, 5)
    takes = LeaseReading.take

    def no_memory(*_: Any, **__: Any) -> None:
        monkeypatch.setattr(LeaseReading, "take", takes)
        raise MemoryError

    async with world.open() as runtime:
        topic = runtime.topic("jobs")
        monkeypatch.setattr(LeaseReading, "take", no_memory)
        monkeypatch.setattr(PartitionLog, "read_hot", lambda *_, **__: None)
        async with topic.subscribe("group") as consumer:
            with pytest.raises(callboard.StorageError, match="memory"):
                await consumer.get()
            assert (await consumer.get()).offset == 0
        node = next(node for node in runtime.tree().walk() if node.path == "topics/jobs/0")
        assert node.restarts == 0


async def test_a_batch_is_acked_without_what_was_settled_by_itself(autojump_clock: Any, world: Any) -> None:
    """One's own nack is no lost lease: the batch's ack leaves that message out, and it comes again."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 5)
        async with topic.subscribe("group") as consumer:
            batch = await consumer.get_batch(max_records=5, max_wait=0.0)
            await list(batch)[2].nack(delay=0.0)
            await batch.ack()
            again = await consumer.get()
            assert (again.offset, again.attempt) == (2, 2)
            assert (await world.group_of(topic)).pending == 1


async def test_attempts_of_many_ranges_are_counted_in_one_pass(autojump_clock: Any, world: Any) -> None:
    """Every second message of a large batch failed once: each has its own attempt."""
    count = 20_000
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, count)
        async with topic.subscribe("group", max_in_flight=2 * count) as consumer:
            batch = await consumer.get_batch(max_records=count, max_wait=1.0)
            odd = [(offset, offset + 1) for offset in range(1, count, 2)]
            lease = batch._parts[0].lease
            await consumer._fetcher.settlements.nacks(0.0, None)([(lease, odd)])
            even = [(offset, offset + 1) for offset in range(0, count, 2)]
            await consumer._fetcher.settlements.releases()([(lease, even)])
            again = await consumer.get_batch(max_records=count, max_wait=1.0)
            assert again.attempts() == [1 + offset % 2 for offset in again.offsets()]
            assert len(again) == count


async def test_what_nobody_waited_for_and_a_crash_took_is_told_by_flush(
    autojump_clock: Any, world: Any
) -> None:
    """Records at acks="none" that wait for a commit when the partition crashes are reported, and return their bytes."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 0)
        world.disk.latency_s = 1.0
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: topic.publish(b"in flight", acks="none"))
            await trio.sleep(0.1)
            await topic.publish_batch([b"x"] * 3, acks="none")
            await trio.sleep(0.1)
        assert runtime.crash("topics/jobs/0", RuntimeError("a drill")) is not False
        await trio.sleep(5.0)
        with pytest.raises(callboard.PublishFailed) as caught:
            await topic.flush()
        (statistics,) = await topic.describe()
        assert (caught.value.failed, statistics.next_offset) == (3, 1)
        (account,) = topic._publisher.accounts()
        assert account.credit.waiting_bytes == 0
        assert account.unawaited_waiting == 0
