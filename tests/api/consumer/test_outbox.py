"""Acks that publish, as users meet them."""

from __future__ import annotations

import errno
from datetime import UTC, datetime
from typing import Any

import pytest
import trio

import callboard
from callboard.actors.forwarding import waiting_records
from callboard.actors.forwarding.commands import CountOutboxes, OutboxCounts
from callboard.actors.kernel import ActorRef
from callboard.actors.partition import commands as c
from callboard.log.errors import (
    ActorCrashed,
    InvalidArgument,
    LeaseLost,
    MessageTooLarge,
    OutboxFull,
    StorageError,
    TopicFull,
    TopicNotFound,
)
from callboard.log.limits import HEADERS_COUNT_MAX, PUBLISHES_MAX, Limits
from callboard.log.seams.disk import Write
from callboard.simulations.disk.memory_disk import MemoryDisk

LONG_AGO = datetime(2001, 2, 3, tzinfo=UTC)


async def values(topic: Any) -> list[bytes]:
    """All that a topic holds."""
    return [record.value async for record in topic.read()]


def state(runtime: Any, path: str) -> str | None:
    """Of an actor; None when there is none."""
    return next((node.state for node in runtime.tree().walk() if node.path == path), None)


async def pending(runtime: Any) -> int:
    """What is not forwarded yet."""
    return sum(outbox.pending for outbox in (await runtime.stats()).outbox)


async def test_what_a_body_publishes_goes_with_its_ack(autojump_clock: Any, world: Any) -> None:
    """As it was published, to any topic and partition; a body that raises publishes nothing."""
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        bills = await runtime.create_topic("bills", partitions=3, priorities=True)
        await orders.publish_batch([b"1", b"2"])
        async with orders.subscribe("billing") as consumer:
            async with consumer.receive() as message:
                await message.publish(
                    bills,
                    b"a",
                    key=b"k",
                    headers={"h": "1"},
                    timestamp=LONG_AGO,
                    ttl=60,
                    priority=7,
                    partition=2,
                )
                await message.publish("orders", b"3")
                assert await values(bills) == []
            with pytest.raises(ZeroDivisionError):
                async with consumer.receive() as message:
                    await message.publish(bills, b"never")
                    raise ZeroDivisionError
            await trio.sleep(0.5)
        (record,) = [record async for record in bills.read()]
        assert (record.partition, record.value, record.key, record.headers) == (2, b"a", b"k", {"h": b"1"})
        assert (record.timestamp, record.ttl, record.priority) == (LONG_AGO, 60.0, 7)
        assert await values(orders) == [b"1", b"2", b"3"]
        (statistics,) = (await runtime.stats()).outbox
        assert (statistics.topic, statistics.partition, statistics.state) == ("orders", 0, "running")
        assert (statistics.pending, statistics.forwarded, statistics.discarded) == (0, 2, 0)


async def test_what_is_settled_otherwise_publishes_nothing(autojump_clock: Any, world: Any) -> None:
    """Nacked, released, rejected, cancelled, its lease lost: there is not even an outbox."""
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        bills = await runtime.create_topic("bills")
        await orders.publish_batch([b"%d" % number for number in range(5)])
        async with orders.subscribe("billing", visibility_timeout=5, backoff=50) as consumer:
            for verb in ("nack", "release", "reject"):
                message = await consumer.get()
                await message.publish(bills, b"never")
                await getattr(message, verb)()
            with trio.move_on_after(1):
                async with consumer.receive() as message:
                    await message.publish(bills, b"never")
                    await trio.sleep_forever()
            message = await consumer.get()
            await message.publish(bills, b"never")
        await trio.sleep(10)
        assert await values(bills) == []
        assert (await runtime.stats()).outbox == ()


async def test_an_explicit_ack_commits_also_one_not_waited_for(autojump_clock: Any, world: Any) -> None:
    """`ack(wait=False)` waits all the same when something goes with it."""
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        bills = await runtime.create_topic("bills")
        await orders.publish_batch([b"1", b"2", b"3"])
        async with orders.subscribe("billing") as consumer:
            first, second, third = [await consumer.get() for _ in range(3)]
            await first.ack(wait=False)
            for message in (second, third):
                await message.publish(bills, b"of " + message.value)
            await second.ack()
            await third.ack(wait=False)
            with pytest.raises(InvalidArgument, match="settled already"):
                await third.publish(bills, b"late")
        await trio.sleep(0.5)
        assert await values(bills) == [b"of 2", b"of 3"]
        (described,) = await orders.describe()
        assert described.groups[0].floor == 3


async def test_a_stale_ack_publishes_nothing(autojump_clock: Any, world: Any) -> None:
    """The message was leased again meanwhile: `LeaseLost`, and only what its new owner publishes comes."""
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        bills = await runtime.create_topic("bills")
        await orders.publish(b"1")
        async with (
            orders.subscribe("billing", visibility_timeout=1) as one,
            orders.subscribe("billing") as other,
        ):
            stale = await one.get()
            await stale.publish(bills, b"stale")
            await trio.sleep(1.5)
            message = await other.get()
            await message.publish(bills, b"fresh")
            with pytest.raises(LeaseLost):
                await stale.ack()
            await message.ack()
            await trio.sleep(0.5)
        assert await values(bills) == [b"fresh"]
        (statistics,) = (await runtime.stats()).outbox
        assert (statistics.forwarded, statistics.discarded, statistics.pending) == (1, 1, 0)


async def test_a_batch_publishes_with_its_ack(autojump_clock: Any, world: Any) -> None:
    """What its messages published goes with it, unless they were settled by themselves."""
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        bills = await runtime.create_topic("bills")
        await orders.publish_batch([b"%d" % number for number in range(4)])
        async with orders.subscribe("billing") as consumer:
            async for batch in consumer.batches(max_records=10):
                messages = list(batch)
                for message in messages:
                    await message.publish(bills, b"of " + message.value)
                await batch.publish(bills, b"of all")
                await messages[0].ack()
                await messages[1].nack(delay=1000)
                await batch.ack()
                break
        await trio.sleep(0.5)
        assert await values(bills) == [b"of 0", b"of 2", b"of 3", b"of all"]


async def test_a_batch_without_messages_left_publishes_nothing(autojump_clock: Any, world: Any) -> None:
    """There is no ack that it could go with."""
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        await orders.publish(b"1")
        async with orders.subscribe("billing") as consumer:
            async for batch in consumer.batches(max_records=10):
                (message,) = batch
                await batch.publish(orders, b"2")
                await message.ack()
                with pytest.raises(InvalidArgument, match="goes with an ack"):
                    await batch.ack()
                break
        assert await values(orders) == [b"1"]


async def test_handlers_publish_with_their_acks(autojump_clock: Any, world: Any) -> None:
    """A handler that raises publishes nothing."""
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        bills = await runtime.create_topic("bills")
        await orders.publish_batch([b"1", b"bad", b"2"])

        async def handle(message: Any) -> None:
            await message.publish("bills", b"of " + message.value)
            if message.value == b"bad":
                raise callboard.Reject("bad")

        async with trio.open_nursery() as nursery:
            await nursery.start(lambda task_status: orders.work(handle, "billing", task_status=task_status))
            await trio.sleep(1)
            nursery.cancel_scope.cancel()
        assert await values(bills) == [b"of 1", b"of 2"]


async def test_what_cannot_be_published_is_refused_at_once(autojump_clock: Any, world: Any) -> None:
    """Before anything is written; the message is there to be settled."""
    foreign_disk = MemoryDisk(clock=world.clock)
    async with (
        world.open() as runtime,
        callboard.open_runtime(disk=foreign_disk, clock=world.clock, seed=7) as other,
    ):
        orders = await runtime.create_topic("orders")
        small = await runtime.create_topic("small", max_message_bytes=10)
        foreign = await other.create_topic("small")
        await orders.publish(b"1")
        async with orders.subscribe("billing") as consumer:
            message = await consumer.get()
            with pytest.raises(MessageTooLarge):
                await message.publish(small, b"x" * 11)
            with pytest.raises(TopicNotFound):
                await message.publish("nowhere", b"")
            with pytest.raises(TopicNotFound, match="another runtime"):
                await message.publish(foreign, b"")
            for value, given in (
                ("text", {}),
                (b"", {"partition": 1}),
                (b"", {"priority": 1}),
                (callboard.Message(b"", delay=-1), {}),
                (callboard.Message(b"", delay=1), {"delay": 1}),
                (callboard.Message(b"", delay=1, dedup_id="a"), {}),
                (b"", {"delay": 1, "deliver_at": datetime(2030, 1, 1, tzinfo=UTC)}),
                (b"", {"deliver_at": datetime(2030, 1, 1)}),  # noqa: DTZ001
                (b"", {"delay": 1, "partition": 1}),
                (callboard.Message(b"", dedup_id="a"), {}),
                (b"", {"headers": {f"{number}": "" for number in range(HEADERS_COUNT_MAX)}}),
            ):
                with pytest.raises((InvalidArgument, MessageTooLarge)):
                    await message.publish(orders, value, **given)
            with pytest.raises(InvalidArgument, match="no topic"):
                await message.publish(3, b"")
            await message.ack()
            assert (await runtime.stats()).outbox == ()
            await orders.publish(b"2")
            message = await consumer.get()
            for _ in range(PUBLISHES_MAX):
                await message.publish(small, b"")
            with pytest.raises(InvalidArgument, match="at most 1000"):
                await message.publish(small, b"")
            await message.ack()
            await trio.sleep(1)
        assert len(await values(small)) == PUBLISHES_MAX


async def test_a_full_outbox_refuses_acks_that_publish_and_no_others(autojump_clock: Any, world: Any) -> None:
    """Nothing is acked then; when there is room, the same ack counts."""
    async with world.open(limits=Limits(outbox=3)) as runtime:
        orders = await runtime.create_topic("orders")
        full = await runtime.create_topic("full", segment_bytes=65_536, retention_bytes=65_536)
        async with full.subscribe("slow"):
            pass
        with pytest.raises(TopicFull):
            while True:
                await full.publish(bytes(20_000))
        count = len(await values(full))
        await orders.publish_batch([b"%d" % number for number in range(6)])
        async with orders.subscribe("billing") as consumer:
            for _ in range(3):
                async with consumer.receive() as message:
                    await message.publish(full, b"of " + message.value)
            await trio.sleep(1)
            message = await consumer.get()
            await message.publish(full, b"of 3")
            with pytest.raises(OutboxFull, match="3 are allowed"):
                await message.ack()
            other = await consumer.get()
            await other.ack()
            (statistics,) = (await runtime.stats()).outbox
            assert (statistics.pending, statistics.held, statistics.refused) == (3, 1, 1)
            async with full.subscribe("slow") as slow:
                for _ in range(count):
                    await (await slow.get()).ack()
            await trio.sleep(60)
            await message.ack()
            await trio.sleep(1)
        assert (await values(full))[-4:] == [b"of 0", b"of 1", b"of 2", b"of 3"]
        (statistics,) = (await runtime.stats()).outbox
        assert (statistics.pending, statistics.held, statistics.discarded) == (0, 0, 1)
        told = [
            logged.event
            for logged in runtime.events()
            if isinstance(logged.event, callboard.events.OutboxHeld)
        ]
        assert [(event.partition, event.target) for event in told] == [("orders/0", "full/0")]


async def test_payloads_that_fill_their_outbox_are_refused(autojump_clock: Any, world: Any) -> None:
    """By their bytes; others go on when they are forwarded."""
    async with world.open(limits=Limits(outbox_bytes=100_000, segment_bytes=65_536)) as runtime:
        orders = await runtime.create_topic("orders")
        full = await runtime.create_topic("full", segment_bytes=65_536, retention_bytes=65_536)
        async with full.subscribe("slow"):
            pass
        with pytest.raises(TopicFull):
            while True:
                await full.publish(bytes(20_000))
        await orders.publish_batch([b"%d" % number for number in range(20)])
        async with orders.subscribe("billing") as consumer:
            with pytest.raises(OutboxFull, match="fills their outbox"):
                while True:
                    async with consumer.receive() as message:
                        await message.publish(full, bytes(20_000))
            await (await consumer.get()).ack()


async def test_what_is_for_a_full_topic_holds_up_nothing_else(autojump_clock: Any, world: Any) -> None:
    """Other topics, and other partitions, get what is theirs."""
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        bills = await runtime.create_topic("bills", partitions=2)
        await orders.publish_batch([b"%d" % number for number in range(3)])
        failing = "topics/bills/0"
        async with orders.subscribe("billing") as consumer:
            async with consumer.receive() as message:
                for partition in range(2):
                    await message.publish(bills, b"%d" % partition, partition=partition)
            while state(runtime, failing) != "failed":
                runtime.crash(failing, ValueError("on purpose"))
                await trio.sleep(0.3)
        await trio.sleep(5)
        assert {record.value async for record in bills.read(partition=1)} == {b"1"}
        await runtime.restart(failing)
        await trio.sleep(40)
        assert await values(bills) == [b"0", b"1"]


async def test_what_is_for_a_deleted_topic_is_dropped_and_told(autojump_clock: Any, world: Any) -> None:
    """Also when another topic has its name by now: that gets nothing of it."""
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        bills = await runtime.create_topic("bills")
        await orders.publish(b"1")
        async with orders.subscribe("billing") as consumer, consumer.receive() as message:
            await message.publish(bills, b"of 1")
            await runtime.delete_topic("bills")
            bills = await runtime.create_topic("bills")
            await message.publish(bills, b"again of 1")
        await trio.sleep(1)
        assert await values(bills) == [b"again of 1"]
        (statistics,) = (await runtime.stats()).outbox
        assert (statistics.pending, statistics.dropped, statistics.forwarded) == (0, 1, 1)
        assert [
            logged.event.records
            for logged in runtime.events()
            if isinstance(logged.event, callboard.events.OutboxDropped)
        ] == [1]


async def test_entries_outlive_their_group(autojump_clock: Any, world: Any) -> None:
    """The group is deleted, and another sought elsewhere, before anything is forwarded."""
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        bills = await runtime.create_topic("bills")
        await orders.publish_batch([b"1", b"2"])
        for group in ("one", "other"):
            async with orders.subscribe(group) as consumer:
                for _ in range(2):
                    async with consumer.receive() as message:
                        await message.publish(bills, group.encode() + b" of " + message.value)
        await runtime.group("one").delete()
        await runtime.group("other").seek("beginning")
        async with orders.subscribe("other") as consumer:
            for _ in range(2):
                async with consumer.receive() as message:
                    await message.publish(bills, b"again of " + message.value)
        await trio.sleep(1)
        assert sorted(await values(bills)) == sorted(
            [b"%s of %d" % (who, number) for who in (b"one", b"other", b"again") for number in (1, 2)]
        )


async def test_everything_is_forwarded_once_however_often_the_forwarder_crashes(
    autojump_clock: Any, world: Any, monkeypatch: Any
) -> None:
    """Also a few at a time."""
    monkeypatch.setattr(waiting_records, "AT_A_TIME", 3)
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders", partitions=2)
        bills = await runtime.create_topic("bills", partitions=3)
        await orders.publish_batch([b"%d" % number for number in range(40)])
        async with orders.subscribe("billing") as consumer, trio.open_nursery() as nursery:
            nursery.start_soon(_crash_now_and_then, runtime)
            for _ in range(40):
                async with consumer.receive() as message:
                    await message.publish(bills, b"of " + message.value, key=message.value)
            await trio.sleep(20)
            nursery.cancel_scope.cancel()
        await trio.sleep(5)
        assert sorted(await values(bills)) == sorted(b"of %d" % number for number in range(40))
        assert await pending(runtime) == 0


async def test_the_forwarder_counts_what_it_has_done(autojump_clock: Any, world: Any) -> None:
    """It answers with its counts, and a later incarnation goes on with them; none are shared with anyone else."""
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        await runtime.create_topic("bills")
        await orders.publish_batch([b"1", b"2"])
        for count in (1, 2):
            await consume(runtime, 1)
            await trio.sleep(1)
            answer = await runtime._session.system.root.child("outbox").ask(CountOutboxes())
            assert answer == [OutboxCounts(orders.topic_id, 0, forwarded=count)]
            runtime.crash("outbox", ValueError("on purpose"))
            await trio.sleep(1)


async def _crash_now_and_then(runtime: Any) -> None:
    while True:
        await trio.sleep(0.05)
        if state(runtime, "outbox") is not None:
            runtime.crash("outbox", ValueError("on purpose"))
            await trio.sleep(1)


async def consume(runtime: Any, count: int | None = None) -> None:
    """Ack messages, each with a publish of its own."""
    async with runtime.topic("orders").subscribe("billing") as consumer:
        while count is None or count:
            message = await consumer.get(timeout=2)
            if message is None:
                return
            await message.publish("bills", b"of " + message.value, key=message.value)
            await message.ack()
            count = None if count is None else count - 1


@pytest.mark.parametrize("lasts", range(0, 60, 1))
async def test_a_power_cut_at_any_verb_neither_doubles_nor_loses(
    autojump_clock: Any, world: Any, lasts: int
) -> None:
    """Of what is acked the publishes come, of what is not they do not, whatever was under way."""
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        await runtime.create_topic("bills", partitions=2)
        await orders.publish_batch([b"%d" % number for number in range(3)])
    await world.live(consume, power_lasts=lasts)
    async with world.open() as runtime:
        await consume(runtime)
        await trio.sleep(5)
        assert sorted(await values(runtime.topic("bills"))) == [b"of 0", b"of 1", b"of 2"]
        assert await pending(runtime) == 0
        for outbox in (await runtime.stats()).outbox:
            assert outbox.lost == outbox.dropped == 0


async def test_what_no_ack_names_is_not_forwarded_after_a_restart(
    autojump_clock: Any, world: Any, monkeypatch: Any
) -> None:
    """The process dies between the payload and the ack: the message comes again, and what it published did not."""
    ask = ActorRef.ask

    async def hangs(self: Any, message: Any, **options: Any) -> Any:
        if isinstance(message, c.AckAndPublish):
            await trio.sleep_forever()
        return await ask(self, message, **options)

    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        await runtime.create_topic("bills")
        await orders.publish(b"1")
    monkeypatch.setattr(ActorRef, "ask", hangs)
    async with world.doomed() as runtime, trio.open_nursery() as nursery:
        nursery.start_soon(consume, runtime)
        await trio.sleep(1)
        (described,) = await runtime._session.partition_statistics(
            [each.port for each in runtime._session.mirror.outboxes()]
        )
        assert described.visible_end == 1
        nursery.cancel_scope.cancel()
    monkeypatch.setattr(ActorRef, "ask", ask)
    async with world.open() as runtime:
        await trio.sleep(1)
        assert await values(runtime.topic("bills")) == []
        (statistics,) = (await runtime.stats()).outbox
        assert (statistics.discarded, statistics.pending) == (1, 0)
        await consume(runtime)
        await trio.sleep(1)
        assert await values(runtime.topic("bills")) == [b"of 1"]


async def test_a_cancelled_ack_leaves_nothing_behind(
    autojump_clock: Any, world: Any, monkeypatch: Any
) -> None:
    """Its payload is settled in the same run, while others are on their way, and none of those is."""
    ask, hangs = ActorRef.ask, True

    async def hanging(self: Any, message: Any, **options: Any) -> Any:
        if hangs and isinstance(message, c.AckAndPublish):
            await trio.sleep(3)
        return await ask(self, message, **options)

    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        await runtime.create_topic("bills")
        await orders.publish_batch([b"1", b"2"])
        monkeypatch.setattr(ActorRef, "ask", hanging)
        async with orders.subscribe("billing") as consumer:
            first, second = [await consumer.get() for _ in range(2)]
            for message in (first, second):
                await message.publish("bills", b"of " + message.value)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(second.ack)
                with trio.move_on_after(1):
                    await first.ack()
                await trio.sleep(1)
                (statistics,) = (await runtime.stats()).outbox
                assert statistics.discarded == 0
            hangs = False
            await trio.sleep(1)
            await first.publish("bills", b"more of 1")
            await first.ack()
        await trio.sleep(1)
        assert await values(runtime.topic("bills")) == [b"of 2", b"of 1", b"more of 1"]
        (statistics,) = (await runtime.stats()).outbox
        assert (statistics.discarded, statistics.pending) == (1, 0)


async def test_an_ack_is_asked_again_when_its_partition_crashes(autojump_clock: Any, world: Any) -> None:
    """Whether it was done before the crash, or not at all: it counts once, also if what it published is forwarded."""
    for moment in range(40):
        async with world.open() as runtime:
            name = f"orders-{moment}"
            orders = await runtime.create_topic(name)
            bills = await runtime.create_topic(f"bills-{moment}")
            await orders.publish(b"1")
            async with orders.subscribe(f"billing-{moment}") as consumer:
                message = await consumer.get()
                await message.publish(bills, b"of 1")
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(message.ack)
                    for _ in range(moment):
                        await trio.lowlevel.cancel_shielded_checkpoint()
                    for path in (f"topics/{name}/0", f"topics/{name}/outbox-0"):
                        if state(runtime, path) is not None:
                            runtime.crash(path, ValueError("on purpose"))
            await trio.sleep(3)
            assert await values(bills) == [b"of 1"]
            assert (await orders.describe())[0].groups[0].floor == 1


@pytest.mark.parametrize("is_written", [True, False])
async def test_an_ack_counts_whose_partition_crashes_while_it_is_written(
    autojump_clock: Any, world: Any, is_written: bool
) -> None:
    """The record is in the journal, and nobody was told: the ack that is asked again hears that it is done."""
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        bills = await runtime.create_topic("bills")
        await orders.publish_batch([b"1", b"2"])
        async with orders.subscribe("billing") as consumer:
            async with consumer.receive() as message:
                await message.publish(bills, b"of 1")
            message = await consumer.get()
            await message.publish(bills, b"of 2")
            world.disk.slow(f"{orders.topic_id}/0/delivery/" if is_written else "/outbox-0/", 1.0)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(message.ack)
                await trio.sleep(0.5)
                runtime.crash("topics/orders/0", ValueError("on purpose"))
            world.disk.unslow()  # a restart takes many steps
        await trio.sleep(10)
        assert await values(bills) == [b"of 1", b"of 2"]
        assert (await orders.describe())[0].groups[0].floor == 2


async def test_a_failing_disk_refuses_and_the_ack_may_be_repeated(autojump_clock: Any, world: Any) -> None:
    """Payloads that cannot be stored: nothing is acked, and nothing is indefinite."""
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        bills = await runtime.create_topic("bills")
        await orders.publish_batch([b"1", b"2"])
        async with orders.subscribe("billing") as consumer:
            async with consumer.receive() as message:
                await message.publish(bills, b"of 1")
            await trio.sleep(1)
            message = await consumer.get()
            await message.publish(bills, b"of 2")
            world.disk.fail_next(Write, OSError(errno.EIO, "broken"), path_contains="outbox-0/0", times=99)
            with pytest.raises(StorageError) as caught:
                await message.ack()
            assert not caught.value.indefinite
            world.disk.faults.clear()
            await message.ack()
        await trio.sleep(1)
        assert await values(bills) == [b"of 1", b"of 2"]


async def test_deleting_a_topic_deletes_what_its_acks_have_published(autojump_clock: Any, world: Any) -> None:
    """And says how much that was, if it had not come to its topic."""
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        bills = await runtime.create_topic("bills")
        await orders.publish(b"1")
        while state(runtime, "topics/bills/0") != "failed":
            runtime.crash("topics/bills/0", ValueError("on purpose"))
            await trio.sleep(0.3)
        async with orders.subscribe("billing") as consumer, consumer.receive() as message:
            await message.publish(bills, b"of 1")
        await trio.sleep(1)
        await runtime.delete_topic("orders")
        assert (await runtime.stats()).outbox == ()
        assert [
            logged.event.records
            for logged in runtime.events()
            if isinstance(logged.event, callboard.events.OutboxDropped)
        ] == [1]
        with pytest.raises((ActorCrashed, TopicNotFound)):
            await orders.publish(b"2")
