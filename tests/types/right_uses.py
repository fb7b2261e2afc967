"""How programs use Callboard: no type checker finds anything to say here. `test_checkers.py` asks two."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, assert_type

import attrs

import callboard
from callboard.actors.catalog.commands import ConsumerAdmission, EnsureGroup, GroupRecord, ListGroups
from callboard.actors.delivery.receipts import Settlement
from callboard.actors.kernel import ActorRef
from callboard.actors.partition import commands as c
from callboard.log.host.clock import HostClock
from callboard.log.host.entropy import HostEntropy
from callboard.supervision import SupervisorSpec, open_system

# -- blocks that end as their bodies do


async def returns_from_a_runtime(directory: str) -> int:
    """The block ends as the body does."""
    async with callboard.open_runtime(directory) as runtime:
        return len(runtime.topics())


async def returns_from_a_message(runtime: callboard.Runtime) -> bytes:
    """Inside the block of a consumer."""
    async with runtime.topic("orders").subscribe("billing") as consumer, consumer.receive() as message:
        return message.value


async def returns_from_a_message_or_none(consumer: callboard.Consumer) -> int:
    """With a timeout, there may be no message."""
    async with consumer.receive(timeout=1) as message:
        assert_type(message, callboard.ReceivedMessage | None)
        return 0 if message is None else message.offset


async def returns_from_a_system() -> str:
    """Without a runtime."""
    async with open_system(SupervisorSpec(name="bank"), clock=HostClock(), entropy=HostEntropy()) as system:
        return system.tree().draw()


# -- consuming


async def waits_for_messages(consumer: callboard.Consumer, patience: float | None) -> None:
    """A message that is waited for without end is never None."""
    assert_type(await consumer.get(), callboard.ReceivedMessage)
    await (await consumer.get()).publish("bills", b"of it", key=b"k", headers={"a": "b"}, ttl=3)
    assert_type(await consumer.get(timeout=None), callboard.ReceivedMessage)
    assert_type(await consumer.get(timeout=5), callboard.ReceivedMessage | None)
    assert_type(await consumer.get(timeout=patience), callboard.ReceivedMessage | None)
    assert_type(consumer.receive(), callboard.hints.Receiving[callboard.ReceivedMessage])
    assert_type(consumer.receive(timeout=0.5), callboard.hints.Receiving[callboard.ReceivedMessage | None])
    assert_type(
        consumer.receive(timeout=patience), callboard.hints.Receiving[callboard.ReceivedMessage | None]
    )
    async for message in consumer:
        assert_type(message, callboard.ReceivedMessage)
        await message.nack(delay=5, reason="busy")
    batches: callboard.hints.Batches = consumer.batches(max_records=100)
    async for batch in batches:
        assert_type(batch, callboard.ReceivedBatch)
        assert_type(batch.values(), list[bytes])
        await batch.ack(wait=False)
    async for mixed in consumer.batches(mixed=True):
        assert_type(mixed, callboard.hints.MixedBatch)
        assert_type(mixed.places(), list[tuple[str, int, int]])
        assert_type(mixed.parts, tuple[callboard.ReceivedBatch, ...])
        await mixed.ack()


# -- settings

QUICK: callboard.hints.GroupOptions = {
    "visibility_timeout": 5,
    "ordering": "key",
    "start": "end",
    "mode": "shared",
}
SMALL: callboard.hints.TopicOptions = {"partitions": 2, "retention_bytes": None, "compression": "zstd"}


async def names_settings(runtime: callboard.Runtime) -> callboard.TopicSettings:
    """Each has its type, alone or in a dictionary."""
    orders = await runtime.create_topic("orders", partitions=6, segment_age=60, drop_unread=True)
    _ = await runtime.create_topic("refunds", **SMALL)
    _ = await runtime.alter_topic("orders", retention_age=86_400.0, compression="gzip")
    _ = orders.subscribe("billing", name="till 1", **QUICK)
    _ = orders.subscribe(
        "later", ordering="none", max_in_flight=10, start=datetime.now(UTC), group_expiry=None
    )
    _ = runtime.subscribe(["orders", "refunds"], "audit", start=12, durable=False)
    changes: callboard.hints.GroupChanges = {"backoff": 0.5, "max_backoff": 10}
    assert_type(await runtime.group("billing").alter(**changes), callboard.GroupSettings)
    settings = orders.settings
    codec: callboard.hints.Codec = settings.compression
    assert codec in ("none", "gzip", "zstd")
    return settings


async def passes_settings_on(runtime: callboard.Runtime, settings: dict[str, Any]) -> callboard.Topic:
    """What was read from a file is checked when it is used."""
    return await runtime.create_topic("orders", **settings)


# -- publishing and reading


async def publishes(
    topic: callboard.Topic, acks: callboard.hints.Acks, headers: callboard.hints.Headers
) -> int | None:
    """One message, or many."""
    receipt = await topic.publish(b"two teas", key=b"alice", headers={"type": "order"}, acks="leader")
    _ = await topic.publish(callboard.Message(b"two teas", headers=headers), acks=acks)
    batch: Sequence[bytes | callboard.Message] = [b"1", callboard.Message(b"2", partition=0)]
    receipts = await topic.publish_batch(batch, acks="none")
    assert_type(receipts[0], callboard.Receipt)
    assert_type(receipts[:1], list[callboard.Receipt])
    return receipt.offset


async def reads(topic: callboard.Topic, start: callboard.hints.Start) -> list[bytes]:
    """From a place of each kind."""
    readers: list[callboard.hints.RecordReader] = [
        topic.read(),
        topic.read(7),
        topic.read("end", follow=True),
    ]
    async for record in readers[0]:
        assert_type(record, callboard.Record)
    return [
        value async for batch in topic.read_batches(start, stop=datetime.now(UTC)) for value in batch.values()
    ]


def by_first_byte(key: bytes, partitions: int, /) -> int:
    """A partitioner of one's own."""
    return key[0] % partitions


CHOSEN: callboard.hints.Partitioner = by_first_byte


# -- actors


@attrs.frozen
class Add:
    """A message without a declared answer."""

    amount: int


@attrs.frozen
class Total(callboard.Question[int]):
    """A question that names the type of its answer."""


class Counter(callboard.Actor[Add | Total]):
    """Counts."""

    def __init__(self, total: int = 0) -> None:
        self.total = total

    async def receive(self, message: Add | Total) -> int:
        """Every message is answered with the total."""
        if isinstance(message, Add):
            self.total += message.amount
        return self.total


class DurableCounter(callboard.DurableActor[Add | Total, int]):
    """Counts, and knows the count after a restart."""

    total = 0

    async def receive(self, message: Add | Total) -> int:
        """The same."""
        if isinstance(message, Add):
            await self.persist(message.amount)
        return self.total

    def apply(self, event: int) -> None:
        """Change the state."""
        self.total += event


async def tally(context: callboard.Context[Add]) -> None:
    """An actor that is a function."""
    while True:
        message, reply = await context.next()
        if reply is not None:
            _ = reply.answer(message.amount)


async def adds(counter: callboard.ActorRef[Add]) -> None:
    """Takes the reference of any actor that can add."""
    await counter.tell(Add(1))


async def spawns(runtime: callboard.Runtime) -> int:
    """The reference takes the actor's messages, and a question has the answer that it names."""
    counter = await runtime.spawn(Counter, name="counter")
    assert_type(counter, callboard.ActorRef[Add | Total])
    assert_type(await runtime.spawn(partial(Counter, 5)), callboard.ActorRef[Add | Total])
    assert_type(await runtime.spawn(lambda: Counter(7), name="third"), callboard.ActorRef[Add | Total])
    assert_type(await runtime.spawn(DurableCounter), callboard.ActorRef[Add | Total])
    assert_type(await runtime.spawn(tally), callboard.ActorRef[Add])
    spec = callboard.ChildSpec(name="limited", start=Counter, significant=False, intensity=3)
    limited: callboard.ActorRef[Add | Total] = await runtime.spawn(spec)
    await adds(counter)
    await limited.tell(Add(2))
    assert_type(await counter.ask(Total(), timeout=1.0), int)
    return await counter.ask(Total())


# -- looking at it


def leased(partition: callboard.statistics.PartitionStatistics) -> dict[int, int]:
    """By group."""
    groups: tuple[callboard.statistics.GroupStatistics, ...] = partition.groups
    return {group.group_id: group.leased for group in groups}


async def counts(runtime: callboard.Runtime) -> int:
    """What `stats` gives has a name in `callboard`."""
    found: callboard.statistics.RuntimeStatistics = await runtime.stats()
    timers: callboard.statistics.TimerStatistics = found.timers
    return timers.armed + sum(len(leased(partition)) for partition in found.partitions)


def hear(event: object) -> str:
    """Events are told apart by their classes."""
    if isinstance(event, callboard.events.IncarnationCrashed | callboard.events.ActorRestarted):
        return f"{event.path}: {event.cause}"
    return (
        event.path
        if isinstance(event, callboard.events.DamageFound | callboard.events.PartitionStuck)
        else ""
    )


def opens(directory: str, clock: callboard.Clock, entropy: callboard.Entropy) -> callboard.Runtime:
    """The seams, and a listener."""
    return callboard.open_runtime(directory, clock=clock, entropy=entropy, on_event=hear)


# -- publishing once


async def publishes_once(topic: callboard.Topic, wait: float | None) -> None:
    """By id, at an offset, as a producer; later, or perhaps later."""
    assert_type(await topic.publish(b"v", dedup_id="1", expected_offset=0), callboard.Receipt)
    assert_type(await topic.publish_batch([b"v"], dedup_ids=[b"1"]), callboard.hints.Receipts)
    assert_type(await topic.publish_batch([b"v"], expected_offset=0), callboard.hints.Receipts)
    assert_type(await topic.publish(callboard.Message(b"v", expected_offset=0)), callboard.Receipt)
    assert_type(await topic.publish_batch([b"v"], ttls=[30, None, 0.5]), callboard.hints.Receipts)
    later = await topic.publish(b"v", delay=30)
    assert_type(later, callboard.hints.ScheduledReceipt)
    assert_type(
        await topic.publish(b"v", key=b"k", deliver_at=datetime.now(UTC)),
        callboard.hints.ScheduledReceipt,
    )
    assert_type(await topic.publish(callboard.Message(b"v", delay=30)), callboard.Receipt)
    assert_type(await topic.publish(b"v", delay=wait), callboard.Receipt | callboard.hints.ScheduledReceipt)
    assert_type(await topic.delayed().cancel(later), int)
    assert_type(await topic.delayed().list(limit=3), tuple[callboard.hints.DelayedMessage, ...])
    assert_type(await topic.publish_batch([b"v"], delays=[30, None]), callboard.hints.Receipts)
    assert_type(await topic.publish(b"v", ttl=30, priority=9), callboard.Receipt)
    report = await topic.schedule(
        "report", cron="0 9 * * MON-FRI", zone="Europe/Berlin", value=b"now", missed="all"
    )
    assert_type(report, callboard.Schedule)
    assert_type(report.next(3), tuple[datetime, ...])
    assert_type(report.statistics(), callboard.statistics.ScheduleStatistics)
    assert_type(topic.schedules(), tuple[callboard.Schedule, ...])
    async with topic.producer("import") as producer:
        assert_type(producer, callboard.Producer)
        assert_type(await producer.publish(b"v", key=b"k"), callboard.Receipt)
        assert_type(await producer.publish_batch([b"v"], partition=0), callboard.hints.Receipts)
        assert_type(await producer.next_sequence(), int)


# -- questions of the broker to its own actors


async def knows_what_the_broker_answers(ref: ActorRef[Any]) -> None:
    """A command that is asked names the type of its answer, also when it is a named tuple."""
    assert_type(await ref.ask(c.Describe()), c.PartitionStatistics)
    assert_type(await ref.ask(c.CountDead(1), timeout=1), int)
    assert_type(await ref.ask(c.Extend(1, 2, 3.0)), bool)
    assert_type(await ref.ask(c.Ack(1, 2, [(3, 4)])), Settlement)
    assert_type(await ref.ask(ListGroups()), tuple[GroupRecord, ...])
    assert_type(await ref.ask(EnsureGroup("billing", ("orders",), {})), ConsumerAdmission)
