"""Stories that end well: topics, records and groups of every kind, closed in good order."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import trio
from story import (
    BEGIN,
    KIB,
    Story,
    attempts_of,
    lower,
    story,
    take,
)

import callboard
from callboard.actors.broker import commands as c
from callboard.log.format.columns import Columns

PIECE = b"the quick brown fox jumps over the lazy dog, "


# -- topics and records


@story()
async def empty(tell: Story) -> None:
    """Opened once, nothing done, closed."""
    async with tell.open():
        pass


@story()
async def topics_closed(tell: Story) -> None:
    """Topics of every setting, records of every shape and acks level, several segments, a beginning that retention
    has dropped; closed."""
    lower(index_file__INDEX_CHECKPOINT_BYTES=20 * KIB)
    async with tell.open() as runtime:
        await _orders(tell, await runtime.create_topic("orders", partitions=3))
        for codec in ("none", "gzip", "zstd"):
            topic = await runtime.create_topic(f"packed.{codec}", compression=codec)
            await tell.publish_batch(topic, [PIECE * 3 + b"%d" % n for n in range(40)])
            await tell.publish(topic, b"short")
        topic = await runtime.create_topic("history", segment_bytes=64 * KIB)
        for n in range(100):
            await tell.publish(topic, (b"%05d" % n) + b"." * 4000, key=b"k%d" % (n % 7))
            tell.clock.skip(60)
        topic = await runtime.create_topic("shortened", segment_bytes=64 * KIB, retention_bytes=256 * KIB)
        for n in range(40):
            await topic.publish_batch([(b"%05d" % (n * 4 + m)) + b"-" * 4000 for m in range(4)])
        await _unread_dropped(tell, runtime)
        await _odd_topics(runtime)
        await _tombstones(runtime)


async def _orders(tell: Story, topic: Any) -> None:
    """Keys, headers, event times, acks levels, one by one and in batches."""
    event = BEGIN - timedelta(days=400, microseconds=7)
    for n in range(12):
        level = ("all", "leader", "none")[n % 3]
        value = b"single %d" % n
        receipt = await topic.publish(
            value,
            key=(None, b"", b"key-%d" % n)[n // 3 % 3],
            headers=(None, {"trace": "4711", "raw": b"\xff\x00"}, {"trace": "Grüße", "empty": b""})[
                n // 2 % 3
            ],
            timestamp=event + timedelta(seconds=n) if n % 4 == 0 else None,
            acks=level,
        )
        tell.promise(receipt, value)
    await topic.flush()
    await tell.publish(topic, b"", key=b"no value", partition=0)
    await tell.publish(topic, bytes(range(256)), key=bytes(range(256)), partition=1)
    await tell.publish_batch(
        topic,
        [b"batch %d" % n for n in range(30)],
        keys=[None if n % 5 == 0 else b"user-%d" % (n % 4) for n in range(30)],
        headers=[{"n": str(n), "repeated": "always"} if n % 3 else None for n in range(30)],
        timestamps=[event + timedelta(hours=n) if n % 2 else None for n in range(30)],
    )
    messages = [callboard.Message(b"message %d" % n, key=b"m", headers={"as": "Message"}) for n in range(5)]
    for receipt, message in zip(await topic.publish_batch(messages), messages, strict=True):
        tell.promise(receipt, message.value)
    await topic.publish_batch([b"fire", b"and", b"forget"], partition=2, acks="none")
    await tell.publish_batch(topic, [b"leader 1", b"leader 2"], partition=2, acks="leader")


async def _unread_dropped(tell: Story, runtime: Any) -> None:
    """Retention has dropped what a group had not settled."""
    topic = await runtime.create_topic(
        "unread", segment_bytes=64 * KIB, retention_bytes=192 * KIB, drop_unread=True
    )
    async with topic.subscribe("late") as consumer:
        await topic.publish(b"the first")
        await (await consumer.get()).ack()
    for n in range(80):
        await topic.publish((b"%05d" % n) + b"_" * 4000)


async def _odd_topics(runtime: Any) -> None:
    """Settings far from the defaults, altered ones, names beyond ASCII."""
    await runtime.create_topic(
        "settings.all",
        partitions=2,
        segment_bytes=100_000,
        segment_age=3600.0,
        retention_age=50 * 366 * 86_400.0,
        retention_bytes=1_000_000_000,
        drop_unread=True,
        compression="zstd",
        max_message_bytes=5_000,
    )
    await runtime.create_topic("grüße.öffentlich", retention_age=86_400.0 * 366)
    await runtime.create_topic("altered", compression="gzip")
    topic = await runtime.alter_topic("altered", compression="zstd", retention_bytes=10_000_000)
    await topic.publish(b"after the change " * 3)
    await runtime.alter_topic("altered", retention_bytes=None, max_message_bytes=77_777)
    gone = await runtime.create_topic("gone")
    await gone.publish(b"never again")
    await runtime.delete_topic("gone")
    again = await runtime.create_topic("gone")
    await again.publish(b"another of this name")


async def _tombstones(runtime: Any) -> None:
    """Records without a value: the format has them, users cannot publish them yet."""
    topic = await runtime.create_topic("tombstones")
    values, keys = [b"one", None, b"", None], [b"a", b"a", b"b", None]
    columns = Columns.build(values, keys, None, None)
    await topic._live.ports[0].ref.ask(c.PublishMany(columns, c.Level.ALL, 100))
    await topic.publish(b"after them")


# -- groups


@story()
async def groups_closed(tell: Story) -> None:
    """Groups in every state that a closing leaves: done, in the middle, with islands, delayed, retried, with leases out
    and run out, idle, of two topics, deleted; with settings of every kind."""
    async with tell.open() as runtime:
        topic = await runtime.create_topic("jobs")
        for n in range(10):
            await tell.publish(topic, b"job %d" % n)
        middle = BEGIN + timedelta(hours=1)
        tell.clock.skip(7200)
        for n in range(10, 20):
            await tell.publish(topic, b"job %d" % n)
        more = await runtime.create_topic("more", partitions=2)
        await tell.publish_batch(
            more, [b"more %d" % n for n in range(10)], keys=[b"%d" % n for n in range(10)]
        )
        await _settled_groups(tell, topic)
        await _failing_groups(tell, topic)
        await _groups_with_a_start(tell, topic, more, middle)
        expiring = topic.subscribe("expired", visibility_timeout=0.05)
        async with expiring as consumer:
            await consumer.get_batch(max_records=4, max_wait=0)  # and four more ahead
            await trio.sleep(0.3)
        tell.delivers["expired of jobs"] = attempts_of(range(8), 2) + attempts_of(range(8, 20))
        leaving = await topic.subscribe("leases").__aenter__()
        batch = await leaving.get_batch(max_records=5, max_wait=0)
        await next(iter(batch)).ack()
        tell.delivers["leases of jobs"] = attempts_of(range(1, 10), 2) + attempts_of(range(10, 20))


async def _settled_groups(tell: Story, topic: Any) -> None:
    async with topic.subscribe("all-done") as consumer:
        await (await consumer.get_batch(max_records=20, max_wait=1)).ack()
    tell.delivers["all-done of jobs"] = []
    async with topic.subscribe("middle") as consumer:
        for message in await take(consumer, 7):
            await message.ack()
    tell.delivers["middle of jobs"] = attempts_of(range(7, 20))
    async with topic.subscribe("islands", visibility_timeout=12.5, max_in_flight=50) as consumer:
        for message in await take(consumer, 12):
            if message.offset in (0, 3, 4, 7, 11):
                await message.ack(wait=False)
            else:
                await message.release()
    tell.delivers["islands of jobs"] = attempts_of(n for n in range(20) if n not in (0, 3, 4, 7, 11))
    async with topic.subscribe("idle", group_expiry=None):
        pass
    tell.delivers["idle of jobs"] = attempts_of(range(20))
    async with topic.subscribe("ephemeral", durable=False) as consumer:
        await (await consumer.get()).ack()
    async with topic.subscribe("deleted") as consumer:
        await (await consumer.get()).ack()
    await topic._runtime.delete_group("deleted")


async def _failing_groups(tell: Story, topic: Any) -> None:
    async with topic.subscribe("delayed") as consumer:
        for message in await take(consumer, 6):
            if message.offset % 2:
                await message.nack(delay=3600.0 + message.offset, reason="not before the afternoon")
            else:
                await message.ack()
    tell.delivers["delayed of jobs"] = attempts_of(range(6, 20))
    for attempt in (1, 2, 3):
        async with topic.subscribe("retried") as consumer:
            messages = await take(consumer, 3)
            assert [(m.offset, m.attempt) for m in messages] == [(n, attempt) for n in range(3)]
            for message in messages:
                await message.nack(reason=f"failed for the {attempt}. time: Grüße")
    tell.delivers["retried of jobs"] = attempts_of(range(3), 4) + attempts_of(range(3, 20))
    async with topic.subscribe("failing", backoff=600.0, max_backoff=1000.0) as consumer:
        for _ in range(2):
            try:
                async with consumer.receive():
                    raise ValueError("the handler failed")
            except ValueError:
                continue
    tell.delivers["failing of jobs"] = attempts_of(range(2, 20))


async def _groups_with_a_start(tell: Story, topic: Any, more: Any, middle: datetime) -> None:
    settings = {"group_expiry": 90_000.0, "backoff": 0.25, "max_backoff": 30.0, "max_in_flight": 7}
    async with topic.subscribe("from-end", start="end", **settings):
        pass
    async with topic.subscribe("from-offset", start=15) as consumer:
        await (await consumer.get()).ack()
    async with topic.subscribe("from-instant", start=middle):
        pass
    tell.delivers["from-end of jobs"] = []
    tell.delivers["from-offset of jobs"] = attempts_of(range(16, 20))
    tell.delivers["from-instant of jobs"] = attempts_of(range(10, 20))
    async with topic.subscribe("both") as first, more.subscribe("both") as second:
        await (await first.get()).ack()
        for message in await take(second, 4):
            await message.ack()
    tell.delivers["both of jobs"] = attempts_of(range(1, 20))
