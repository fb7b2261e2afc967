"""Times to live, as users meet them: what has expired is delivered to no group, and in nobody's way."""

from __future__ import annotations

import math
from typing import Any

import pytest
import trio

import callboard
from callboard import Message
from callboard.message import Record


async def taken(topic: Any, group: str = "billing", **settings: Any) -> list[bytes]:
    """What a group's new consumer gets, until nothing comes."""
    found = []
    async with topic.subscribe(group, **settings) as consumer:
        while (message := await consumer.get(timeout=0.2)) is not None:
            found.append(message.value)
            await message.ack()
    return found


async def group_of(topic: Any) -> Any:
    """The statistics of the only group in partition 0."""
    return (await topic.describe())[0].groups[0]


async def test_an_expired_message_is_not_delivered(autojump_clock: Any, world: Any) -> None:
    """Neither earlier nor later ones, without a time to live or with a longer one, are touched."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders")
        for value, ttl in ((b"a", None), (b"b", 10), (b"c", 11), (b"d", math.inf), (b"e", 9.5)):
            await topic.publish(value, ttl=ttl)
        await trio.sleep(10.5)
        assert await taken(topic) == [b"a", b"c", b"d"]
        group = await group_of(topic)
        assert (group.expired_records, group.pending, group.floor, group.expired) == (2, 0, 5, 0)


async def test_a_message_is_delivered_until_it_expires(autojump_clock: Any, world: Any) -> None:
    """Not a moment less."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders")
        await topic.publish(b"a", ttl=10)
        await trio.sleep(9.99)
        assert await taken(topic) == [b"a"]


async def test_the_topics_default_is_for_messages_that_say_nothing(autojump_clock: Any, world: Any) -> None:
    """A message's own time to live, also for ever, comes before it; altering it changes nothing that is stored."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", default_ttl=5)
        await topic.publish(b"a")
        await topic.publish_batch([b"b", b"c", b"d"], ttls=[None, 60, math.inf])
        await topic.publish_batch([Message(b"e"), Message(b"f", ttl=20)])
        await runtime.alter_topic("orders", default_ttl=None)
        await topic.publish(b"g")
        assert [record.ttl async for record in topic.read()] == [5, 5, 60, None, 5, 20, None]
        await trio.sleep(6)
        assert await taken(topic) == [b"c", b"d", b"f", b"g"]


async def test_thousands_of_expired_messages_are_passed_at_once(autojump_clock: Any, world: Any) -> None:
    """The first message that a consumer gets is the one that has not expired, and few events tell of the others."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders")
        for _ in range(50):
            await topic.publish_batch([b"old"] * 100, ttls=[1.0] * 100)
        await trio.sleep(0.5)
        await topic.publish(b"new")
        async with topic.subscribe("billing") as consumer:
            await trio.sleep(1)
            async with consumer.receive() as message:
                assert message.value == b"new"
        group = await group_of(topic)
        assert (group.expired_records, group.pending, group.floor) == (5000, 0, 5001)


async def test_what_nobody_consumes_expires_all_the_same(autojump_clock: Any, world: Any) -> None:
    """It counts as lag no longer, and keeps no segment, soon after it has expired; behind what does not, it stays."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders")
        async with topic.subscribe("billing"):
            pass
        await topic.publish_batch([b"x"] * 10, ttls=[3.0] * 5 + [600.0] * 5)
        await topic.publish(b"stays")
        await topic.publish(b"behind", ttl=1)
        await trio.sleep(4.5)
        assert (await group_of(topic)).pending == 7
        await trio.sleep(660)
        group = await group_of(topic)
        assert (group.pending, group.floor, group.expired_records) == (2, 10, 10)
        assert await taken(topic) == [b"stays"]
        assert (await group_of(topic)).pending == 0


async def test_expiry_survives_a_restart(autojump_clock: Any, world: Any) -> None:
    """The instant is stored: closing the runtime neither keeps a message alive, nor brings one back."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", default_ttl=5)
        assert await taken(topic) == []
        await topic.publish(b"a")
        await topic.publish(b"b", ttl=50)
    await trio.sleep(6)
    async with world.open() as runtime:
        topic = runtime.topic("orders")
        await trio.sleep(2)
        assert (await group_of(topic)).floor == 1
        assert await taken(topic) == [b"b"]


async def test_a_nacked_message_that_expires_does_not_come_again(autojump_clock: Any, world: Any) -> None:
    """Whoever has it may still ack it."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders")
        await topic.publish_batch([b"a", b"b"], ttls=[5, 5])
        async with topic.subscribe("billing") as consumer:
            first, second = await consumer.get(), await consumer.get()
            await first.nack(delay=6)
            await trio.sleep(6)
            await second.ack()
            assert await consumer.get(timeout=5) is None
        group = await group_of(topic)
        assert (group.pending, group.expired_records) == (0, 1)


async def test_a_message_does_not_outlive_its_time_in_a_buffer(autojump_clock: Any, world: Any) -> None:
    """A consumer that fetched several messages gives back what expires before its caller asks."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders")
        async with topic.subscribe("billing") as consumer:
            await topic.publish_batch([b"%d" % number for number in range(64)])
            for _ in range(64):
                message = await consumer.get()
                assert message is not None
                await message.ack()
            await topic.publish_batch([b"a", b"b", b"c", b"d"], ttls=[None, 5, 30, None])
            first = await consumer.get()
            await trio.sleep(6)
            rest = [await consumer.get() for _ in range(2)]
            assert [message.value for message in (first, *rest)] == [b"a", b"c", b"d"]
            assert await consumer.get(timeout=1) is None


@pytest.mark.parametrize("ordering", ["none", "key"])
async def test_batches_are_without_what_has_expired(autojump_clock: Any, world: Any, ordering: Any) -> None:
    """With order per key the next of the key comes after what has expired."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders")
        values = [b"%d" % number for number in range(20)]
        ttls = [5.0 if number % 3 else None for number in range(20)]
        await topic.publish_batch(values, keys=[b"k%d" % (number % 4) for number in range(20)], ttls=ttls)
        await trio.sleep(6)
        found: list[bytes] = []
        async with topic.subscribe("billing", ordering=ordering) as consumer:
            async for batch in consumer.batches(max_records=8, max_wait=0.01):
                found += batch.values()
                await batch.ack()
                if len(found) == 7:
                    break
            assert await consumer.get(timeout=1) is None
        assert sorted(found) == sorted(values[::3])
        assert (await group_of(topic)).pending == 0


async def test_readers_see_what_has_expired(autojump_clock: Any, world: Any) -> None:
    """The log is what was published."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders")
        await topic.publish(b"a", ttl=2.5)
        await trio.sleep(3)
        (record,) = [record async for record in topic.read()]
        assert isinstance(record, Record)
        assert record.ttl == 2.5
        assert record.expires_at is not None
        assert (record.expires_at - record.append_time).total_seconds() == 2.5


async def test_producers_and_ids_go_with_times_to_live(autojump_clock: Any, world: Any) -> None:
    """Only what is stored counts: a duplicate changes nothing."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", dedup_window=60)
        await topic.publish(b"a", ttl=5, dedup_id="1")
        await topic.publish(b"a", ttl=50, dedup_id="1")
        async with topic.producer("import") as producer:
            await producer.publish(b"b", ttl=7)
            await producer.publish_batch([b"c", b"d"], ttls=[None, 8])
        assert [record.ttl async for record in topic.read()] == [5, 7, None, 8]


async def test_only_times_to_live_are_taken(autojump_clock: Any, world: Any) -> None:
    """Nothing is stored of anything else."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders")
        wrong: list[Any] = [0, -1, 0.0001, math.nan, True, "5", b"5"]
        for ttl in wrong:
            with pytest.raises(callboard.InvalidArgument, match="ttl is"):
                await topic.publish(b"a", ttl=ttl)
        with pytest.raises(callboard.InvalidArgument, match="message 1 of the batch: ttl is -3"):
            await topic.publish_batch([b"a", b"b"], ttls=[1, -3])
        assert (await topic.describe())[0].next_offset == 0
