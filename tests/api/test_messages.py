"""What a message carries: the same attributes in every form of publishing, and in everything that comes back."""

from __future__ import annotations

import inspect
from datetime import UTC, datetime
from typing import Any, get_overloads

import attrs
import pytest

import callboard
from callboard.consumer.consumer import Consumer
from callboard.consumer.messages import ReceivedBatch, ReceivedMessage
from callboard.log.format.columns import Columns
from callboard.log.limits import KEY_BYTES_MAX
from callboard.message import ATTRIBUTES, Message, Record, RecordBatch
from callboard.topic import Topic

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


def test_every_form_of_a_message_has_the_attributes_of_the_table() -> None:
    """`Message`, the arguments of both publishes, records and batches agree with the one table, in its order."""
    names = [attribute.name for attribute in ATTRIBUTES]
    plurals = [attribute.plural for attribute in ATTRIBUTES]
    assert [field.name for field in attrs.fields(Message)] == [
        "value",
        *names[:3],
        "partition",
        *names[3:],
        "delay",
        "deliver_at",
        "expected_offset",
    ]
    single = ["partition", "expected_offset", "delay", "deliver_at", "acks"]
    assert list(inspect.signature(Topic.publish).parameters)[2:] == [*names, *single]
    several = ["delays", "deliver_ats", "partition", "expected_offset", "acks"]
    assert list(inspect.signature(Topic.publish_batch).parameters)[2:] == [*plurals, *several]
    assert all(hasattr(kind, name) for kind in (Record, ReceivedMessage) for name in names)
    assert all(hasattr(kind, plural) for kind in (RecordBatch, ReceivedBatch) for plural in plurals)


async def test_a_message_is_published_like_its_attributes(world: Any, autojump_clock: Any) -> None:
    """A `Message`, keywords, a batch of messages and a batch of columns store the same."""

    def given(form: str) -> dict[str, Any]:
        return {
            "key": b"k",
            "headers": {"h": "1"},
            "timestamp": NOON,
            "dedup_id": form,
            "ttl": 9.5,
            "priority": 7,
        }

    columns = {attribute.plural: [given("3")[attribute.name]] for attribute in ATTRIBUTES}
    async with world.open() as runtime:
        topic = await runtime.create_topic("jobs", partitions=3, dedup_window=60, priorities=True)
        await topic.publish(b"v", **given("1"))
        await topic.publish(Message(b"v", **given("2")))
        await topic.publish_batch([b"v"], **columns)
        await topic.publish_batch([Message(b"v", **given("4"))])
        found = [
            (record.partition, record.value, record.key, record.headers, record.timestamp)
            async for record in topic.read()
        ]
        assert [record.dedup_id async for record in topic.read()] == [b"1", b"2", b"3", b"4"]
        found_others = [(record.ttl, record.priority) async for record in topic.read()]
        assert found_others == [(9.5, 7)] * 4
    assert len(found) == 4
    assert set(map(repr, found)) == {repr((found[0][0], b"v", b"k", {"h": b"1"}, NOON))}


async def test_batches_give_every_column(world: Any, autojump_clock: Any) -> None:
    """Headers and timestamps come as columns like values and keys, with and without a group."""
    messages = [Message(b"a", b"k", {"h": b"1"}, NOON), Message(b"b")]
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 0)
        await topic.publish_batch(messages)
        await topic.publish(b"c", headers={"g": "2"})
        appended = [record.append_time async for record in topic.read()]
        stored = await topic.read_batches(stop=2).__anext__()
        assert (stored.headers(), stored.timestamps()) == ([{"h": b"1"}, {}], [NOON, appended[1]])
        assert (stored.values(), stored.keys(), stored.offsets()) == ([b"a", b"b"], [b"k", None], [0, 1])
        async with topic.subscribe("group") as consumer:
            received = await consumer.batches(max_records=3).__anext__()
            assert received.headers() == [{"h": b"1"}, {}, {"g": b"2"}]
            assert received.timestamps() == [NOON, *appended[1:]]
            assert (received.values(), received.keys()) == ([b"a", b"b", b"c"], [b"k", None, None])
            assert (received.offsets(), len(received)) == ([0, 1, 2], 3)
            await received.ack()


async def test_a_message_may_name_its_partition(world: Any, autojump_clock: Any) -> None:
    """In a batch each message goes where it says, the others where the call says, by key, or in turn."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("jobs", partitions=4)
        batch = [
            Message(b"a", partition=2),
            Message(b"b", b"k"),
            Message(b"c", b"k", partition=1),
            Message(b"d"),
        ]
        of_key = (await topic.publish(b"x", key=b"k")).partition
        receipts = await topic.publish_batch(batch)
        assert [receipt.partition for receipt in receipts] == [2, of_key, 1, 0]
        receipts = await topic.publish_batch(batch, partition=3)
        assert [receipt.partition for receipt in receipts] == [2, 3, 1, 3]
        assert (await topic.publish(batch[0], partition=3)).partition == 2
        stored = {(record.partition, record.value) async for record in topic.read()}
        assert {(2, b"a"), (of_key, b"b"), (1, b"c"), (0, b"d"), (3, b"b"), (3, b"d")} <= stored


async def test_a_message_and_attributes_beside_it_are_refused(world: Any, autojump_clock: Any) -> None:
    """Neither publish guesses which of two forms was meant, and no partition is made up."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 0)
        with pytest.raises(callboard.InvalidArgument, match="Put them into the Message"):
            await topic.publish(Message(b"v"), key=b"k")
        with pytest.raises(callboard.InvalidArgument, match="one form"):
            await topic.publish_batch([Message(b"v")], headers=[{}])
        with pytest.raises(callboard.InvalidArgument, match="no partition 1"):
            await topic.publish_batch([Message(b"v", partition=1)])
        assert [record async for record in topic.read()] == []


async def test_a_key_too_long_is_refused_in_a_batch_too(world: Any, autojump_clock: Any) -> None:
    """The limit on keys holds however large the topic's messages may be."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 0, partitions=2)
        keys = [b"k", bytes(KEY_BYTES_MAX + 1)]
        with pytest.raises(callboard.InvalidArgument, match="a key has"):
            await topic.publish_batch([b"a", b"b"], keys=keys)
        with pytest.raises(callboard.InvalidArgument, match="a key has"):
            await topic.publish(b"b", key=keys[1])


def test_a_tombstone_has_no_value() -> None:
    """The value of a tombstone reads as empty, in records and in batches; a record says which it is, also in words."""
    columns = Columns.build([None, b""])
    batch = RecordBatch("jobs", 0, columns)
    assert batch.values() == [record.value for record in batch] == [b"", b""]
    assert [record.is_tombstone for record in batch] == [True, False]
    assert [repr(record) for record in batch] == ["<Record jobs/0@0 tombstone>", "<Record jobs/0@1 0 bytes>"]


@pytest.mark.parametrize("method", [Consumer.get, Consumer.receive])
def test_only_a_timeout_makes_a_message_optional(method: Any) -> None:
    """The types say that None is received only where a timeout was given."""
    endless, timed = get_overloads(method)
    assert "None" not in endless.__annotations__["return"]
    assert "None" in timed.__annotations__["return"]
