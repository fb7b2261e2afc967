"""What a batch promises of each message: errors that name it, offsets that are expected, some that wait."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import attrs
import pytest
import trio

import callboard
from callboard import Message, Receipt
from callboard.hints import ScheduledReceipt
from callboard.log.seams.disk import Write
from callboard.message import values_and_keys
from callboard.publishing.columns import FRAME_BYTES_TARGET
from callboard.publishing.partitioning import consistent


async def stored(topic: Any, partition: int | None = None) -> list[bytes]:
    """What the topic holds."""
    return [record.value async for record in topic.read(partition=partition)]


async def refused(topic: Any, index: int | None, words: str, values: Any, **given: Any) -> None:
    """The batch is refused with these words, which name the message, and nothing is stored."""
    before = await stored(topic)
    with pytest.raises(callboard.InvalidArgument, match=words) as caught:
        await topic.publish_batch(values, **given)
    assert caught.value.index == index
    assert index is None or str(caught.value).startswith(f"message {index} of the batch")
    assert await stored(topic) == before


# -- messages that are nothing but values and keys ------------------------------------------------------------


BESIDE = {
    "headers": {"a": b"b"},
    "timestamp": datetime(2026, 1, 1, tzinfo=UTC),
    "partition": 0,
    "dedup_id": "x",
    "ttl": 60,
    "priority": 5,
    "delay": 1,
    "deliver_at": datetime(2100, 1, 1, tzinfo=UTC),
    "expected_offset": 0,
}


@pytest.mark.parametrize(
    "name", [field.name for field in attrs.fields(Message) if field.name not in ("value", "key")]
)
def test_whatever_else_a_message_carries_is_looked_at(name: str) -> None:
    """A batch counts as values and keys alone only when no message has anything else."""
    assert values_and_keys([Message(b"a", key=b"k"), Message(b"b")]) == ([b"a", b"b"], [b"k", None])
    assert values_and_keys([Message(b"a"), Message(b"b")]) == ([b"a", b"b"], None)
    assert values_and_keys([Message(b"a"), Message(b"b", **{name: BESIDE[name]})]) is None
    assert values_and_keys([Message(b"a"), b"b"]) is None


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize(
    "keys", [[b"k%d" % (n % 7) for n in range(40)], [None, b"", b"long" * 9] * 9, [None] * 4]
)
async def test_messages_with_keys_are_stored_like_values_and_keys(
    autojump_clock: Any, world: Any, partitions: int, keys: list[bytes | None]
) -> None:
    """In the same partitions, in the same order, with the same receipts, whichever form the batch has."""
    values = [b"%d" % n for n in range(len(keys))]
    async with world.open() as runtime:
        found = []
        for name in ("columns", "messages"):
            topic = await runtime.create_topic(name, partitions=partitions)
            if name == "columns":
                receipts = await topic.publish_batch(values, keys=keys)
            else:
                batch = [Message(value, key=key) for value, key in zip(values, keys, strict=True)]
                receipts = await topic.publish_batch(batch)
            records = [
                [(record.value, record.key) async for record in topic.read(partition=index)]
                for index in range(partitions)
            ]
            found.append((receipts.ranges, records))
        assert found[0] == found[1]
        assert sorted(pair for records in found[0][1] for pair in records) == sorted(
            zip(values, keys, strict=True)
        )


async def test_wrong_messages_of_values_and_keys_are_named(autojump_clock: Any, world: Any) -> None:
    """The error says which message has a value or key that is no bytes, and one too large is told with its index."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", max_message_bytes=100)
        await refused(topic, 1, "value", [Message(b"a", key=b"k"), Message("b", key=b"k")])
        await refused(topic, 1, "key", [Message(b"a", key=b"k"), Message(b"b", key="k")])
        with pytest.raises(callboard.MessageTooLarge) as caught:
            await topic.publish_batch([Message(b"a", key=b"k"), Message(b"b" * 60, key=b"k" * 60)])
        assert caught.value.index == 1
        assert await stored(topic) == []


# -- errors name the message ----------------------------------------------------------------------------------


async def test_what_the_topic_does_not_have_is_told_with_the_index(autojump_clock: Any, world: Any) -> None:
    """Priorities and ids, as `Message`s or as columns; a message that is published alone has no index."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders")
        await refused(topic, 1, "has a priority", [b"a", Message(b"b", priority=5)])
        await refused(topic, 2, "has a priority", [b"a"] * 3, priorities=[None, None, 0])
        await refused(topic, 1, "has no dedup_window", [b"a", Message(b"b", dedup_id="x")])
        await refused(topic, 1, "has no dedup_window", [b"a", b"b"], dedup_ids=[None, "x"])
        await refused(topic, 1, "has a priority", [b"a"] * 2, delays=[1, None], priorities=[None, 1])
        await refused(topic, 0, "has a dedup_id", [b"a"] * 2, delays=[1, None], dedup_ids=["x", None])
        async with topic.producer("p") as producer:
            await refused(ProducerOf(topic, producer), 1, "has a priority", [b"a", Message(b"b", priority=5)])
            await refused(ProducerOf(topic, producer), 1, "dedup_id", [b"a", Message(b"b", dedup_id="x")])
            expecting = Message(b"b", expected_offset=0)
            await refused(ProducerOf(topic, producer), 1, "expected_offset", [b"a", expecting])
        for more in (
            {"priority": 5},
            {"dedup_id": "x"},
            {"priority": 5, "delay": 1},
            {"dedup_id": "x", "delay": 1},
        ):
            with pytest.raises(callboard.InvalidArgument) as caught:
                await topic.publish(b"v", **more)
            assert getattr(caught.value, "index", None) is None
            assert "batch" not in str(caught.value)


class ProducerOf:
    """A producer that reads as its topic does."""

    def __init__(self, topic: Any, producer: Any) -> None:
        self.read, self.publish_batch = topic.read, producer.publish_batch


async def test_columns_in_which_no_message_has_anything_are_no_error(autojump_clock: Any, world: Any) -> None:
    """A topic without priorities and ids takes a column of Nones."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders")
        nothing = [None, None]
        receipts = await topic.publish_batch(
            [b"a", b"b"], priorities=nothing, dedup_ids=nothing, delays=nothing
        )
        assert [receipt.offset for receipt in receipts] == [0, 1]


# -- expected offsets -----------------------------------------------------------------------------------------


async def test_a_message_may_expect_its_offset(autojump_clock: Any, world: Any) -> None:
    """As the argument of `publish` does."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders")
        assert (await topic.publish(Message(b"a", expected_offset=0))).offset == 0
        with pytest.raises(callboard.OffsetMismatch) as caught:
            await topic.publish(Message(b"b", expected_offset=0))
        assert caught.value.next_offset == 1
        with pytest.raises(callboard.InvalidArgument, match="Give one"):
            await topic.publish(Message(b"b", expected_offset=1), expected_offset=1)
        with pytest.raises(callboard.InvalidArgument, match="decided when it is due"):
            await topic.publish(Message(b"b", expected_offset=1, delay=1))
        with pytest.raises(callboard.InvalidArgument, match="not an offset"):
            await topic.publish(Message(b"b", expected_offset=-1))
        async with topic.subscribe("billing") as consumer, consumer.receive() as message:
            with pytest.raises(callboard.InvalidArgument, match="decided after the ack"):
                await message.publish("orders", Message(b"b", expected_offset=1))
        assert await stored(topic) == [b"a"]


async def test_a_batch_at_an_expected_offset_is_stored_whole_or_not_at_all(
    autojump_clock: Any, world: Any
) -> None:
    """Its first message has this offset, and the others follow."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", partitions=2)
        receipts = await topic.publish_batch([b"a", b"b"], partition=1, expected_offset=0)
        assert [(each.partition, each.offset) for each in receipts] == [(1, 0), (1, 1)]
        with pytest.raises(callboard.OffsetMismatch) as caught:
            await topic.publish_batch([b"c", b"d"], partition=1, expected_offset=1)
        assert caught.value.next_offset == 2
        receipts = await topic.publish_batch(
            [b"c", b"d"], keys=[b"k"] * 2, expected_offset=2 * consistent(b"k", 2)
        )
        assert len(receipts) == 2
        assert len(await topic.publish_batch([], expected_offset=7)) == 0
        other = next(
            b"%d" % number for number in range(9) if consistent(b"%d" % number, 2) != consistent(b"k", 2)
        )
        await refused(
            topic, None, "goes to the partitions 0, 1", [b"e"] * 2, keys=[b"k", other], expected_offset=4
        )
        await refused(topic, 0, "which one is meant", [b"e"], expected_offset=4)
        await refused(topic, 1, "which one is meant", [b"e"] * 2, keys=[b"k", None], expected_offset=4)
        await refused(topic, 0, "not an offset", [b"e"], partition=0, expected_offset=-1)
        await refused(
            topic, 0, "Give one", [Message(b"e", expected_offset=1)], partition=0, expected_offset=1
        )
        await refused(topic, None, "another batch", [b"e"], delays=[1], expected_offset=1)
        await refused(topic, None, "acks is 'none'", [b"e"], partition=0, expected_offset=1, acks="none")
        assert await stored(topic) in ([b"a", b"b", b"c", b"d"], [b"c", b"d", b"a", b"b"])


async def test_the_first_message_for_each_partition_may_expect_an_offset(
    autojump_clock: Any, world: Any
) -> None:
    """It stands for its part of the batch: another part is stored all the same."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", partitions=2)

        def batch(first: int, second: int) -> list[Message]:
            return [
                Message(b"a", partition=0, expected_offset=first),
                Message(b"b", partition=1, expected_offset=second),
                Message(b"c", partition=0),
            ]

        receipts = await topic.publish_batch(batch(0, 0))
        assert [receipt.offset for receipt in receipts] == [0, 0, 1]
        with pytest.raises(callboard.PartialPublish) as caught:
            await topic.publish_batch(batch(0, 1))
        fates = caught.value.receipts
        assert [type(fate) for fate in fates] == [callboard.OffsetMismatch, Receipt, callboard.OffsetMismatch]
        assert [fate.next_offset for fate in fates[::2]] == [2, 2]
        with pytest.raises(callboard.OffsetMismatch):
            await topic.publish_batch(batch(7, 7))
        assert await stored(topic) == [b"a", b"c", b"b", b"b"]
        expecting = Message(b"d", partition=0, expected_offset=3)
        await refused(
            topic, 1, "message 0 goes to partition 0 before it", [Message(b"x", partition=0), expecting]
        )
        await refused(topic, 1, "which one is meant", [b"x", Message(b"d", expected_offset=2)])


async def test_an_expecting_batch_is_not_cut_into_pieces(autojump_clock: Any, world: Any) -> None:
    """Of two pieces one could be stored without the other."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", max_message_bytes=FRAME_BYTES_TARGET)
        half = bytes(FRAME_BYTES_TARGET // 2 + 1)
        await refused(topic, 0, "Split the batch", [half, half], expected_offset=0)
        assert (await topic.publish_batch([half, b"a"], expected_offset=0))[1].offset == 1


async def test_the_repetition_of_an_expecting_batch_is_a_duplicate(autojump_clock: Any, world: Any) -> None:
    """With ids it can be repeated after an indefinite error."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", dedup_window=60)
        first = await topic.publish_batch([b"a", b"b"], dedup_ids=["a", "b"], expected_offset=0)
        again = await topic.publish_batch([b"a", b"b"], dedup_ids=["a", "b"], expected_offset=0)
        assert list(again) == list(first)
        with pytest.raises(callboard.OffsetMismatch):
            await topic.publish_batch([b"a", b"c"], dedup_ids=["a", "c"], expected_offset=0)
        assert await stored(topic) == [b"a", b"b"]


# -- some that wait -------------------------------------------------------------------------------------------


async def test_what_is_not_delayed_is_stored_at_once(autojump_clock: Any, world: Any) -> None:
    """It has an offset, and the receipts are in the order of the messages; it may have an id, and expect an offset."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", dedup_window=60)
        receipts = await topic.publish_batch(
            [
                Message(b"a", dedup_id="a", expected_offset=0),
                Message(b"later", delay=5),
                Message(b"b", dedup_id="a"),
                Message(b"c"),
                Message(b"now", delay=0),
            ]
        )
        assert [type(each) for each in receipts] == [
            Receipt,
            ScheduledReceipt,
            Receipt,
            Receipt,
            ScheduledReceipt,
        ]
        assert [receipt.offset for receipt in receipts] == [0, None, 0, 1, None]
        assert receipts.ranges == ((0, 0, 1), (0, 0, 2), (0, None, 2))
        assert await stored(topic) == [b"a", b"c"]
        assert (
            await topic.delayed().cancel(each for each in receipts if isinstance(each, ScheduledReceipt)) > 0
        )
        await trio.sleep(9)
        assert (await stored(topic))[:2] == [b"a", b"c"]


async def test_one_half_of_a_batch_may_fail_alone(autojump_clock: Any, world: Any) -> None:
    """`PartialPublish` tells the fate of each message; what waits has a receipt that cancels it."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders")
        await topic.publish_batch([b"a", b"b"], delays=[9, None])
        batch = [Message(b"c", expected_offset=0), Message(b"d", delay=9), Message(b"e")]
        with pytest.raises(callboard.PartialPublish) as caught:
            await topic.publish_batch(batch)
        fates = caught.value.receipts
        mismatch = callboard.OffsetMismatch
        assert [type(fate) for fate in fates] == [mismatch, ScheduledReceipt, mismatch]
        assert not fates[0].indefinite
        assert await topic.delayed().cancel(fates[1]) == 1
        world.disk.fail_next(Write, "EIO", path_contains="/delayed-0/0000")
        with pytest.raises(callboard.PartialPublish) as caught:
            await topic.publish_batch([b"f", b"g"], delays=[None, 9])
        fates = caught.value.receipts
        assert (fates[0].offset, isinstance(fates[1], callboard.CallboardError)) == (1, True)
        await trio.sleep(20)
        assert await stored(topic) == [b"b", b"f", b"a"]


async def test_a_message_of_a_batch_is_had_by_its_index(world: Any) -> None:
    """Also from the end, and by slices; what is settled so is settled for the batch."""
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        await orders.publish_batch([b"%d" % number for number in range(10)])
        async with orders.subscribe("billing", start="beginning") as consumer:
            batch = await consumer.get_batch(max_records=10, max_wait=0.0)
            assert [batch[0].value, batch[-1].value] == [b"0", b"9"]
            assert [message.offset for message in batch[2:8:3]] == [2, 5]
            with pytest.raises(IndexError):
                batch[10]
            await batch[3].nack(delay=0)
            assert batch[3].settled
            assert batch[3] is list(batch)[3]
            await batch.ack()
            again = await consumer.get()
            assert (again.offset, again.attempt) == (3, 2)


@pytest.mark.parametrize("by", ["topic", "producer"])
@pytest.mark.parametrize(
    "arguments",
    [{"partition": 99}, {"partition": "0"}, {"keys": [b"one"]}, {"acks": "some"}],
    ids=["partition", "no number", "columns", "acks"],
)
async def test_an_empty_batch_is_refused_for_what_is_wrong_about_it(
    autojump_clock: Any, world: Any, by: str, arguments: dict[str, Any]
) -> None:
    """So a program that names a partition that does not exist hears it before it has messages."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", partitions=2)
        async with topic.producer("one") as producer:
            with pytest.raises(callboard.InvalidArgument):
                await (topic if by == "topic" else producer).publish_batch([], **arguments)
