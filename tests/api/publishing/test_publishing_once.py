"""Producers, deduplication ids and expected offsets, as users publish with them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
import trio

import callboard
from callboard import Message
from callboard.log.limits import DEDUP_ID_BYTES_MAX, Limits
from callboard.log.seams.disk import Sync
from callboard.publishing.partitioning import consistent


async def stored(topic: Any, partition: int | None = None) -> list[bytes]:
    """What the topic holds."""
    return [record.value async for record in topic.read(partition=partition)]


# -- deduplication ids ----------------------------------------------------------------------------------------


async def test_a_message_with_the_same_id_is_stored_once(autojump_clock: Any, world: Any) -> None:
    """Each publish returns the receipt of the first, also after the runtime was opened again."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", dedup_window=60)
        first = await topic.publish(b"a", dedup_id="order 1")
        assert await topic.publish(b"b", dedup_id=b"order 1") == first
        assert await topic.publish(Message(b"c", dedup_id="order 1")) == first
        assert (await topic.publish(b"d", dedup_id="order 2")).offset == 1
    async with world.open() as runtime:
        topic = runtime.topic("orders")
        assert await topic.publish(b"e", dedup_id="order 1") == first
        assert await stored(topic) == [b"a", b"d"]
        (partition,) = (await runtime.stats()).partitions
        assert (partition.duplicates, partition.dedup_ids, partition.dedup_forgotten) == (1, 2, 0)
        found = [record.dedup_id async for record in topic.read()]
        assert found == [b"order 1", b"order 2"]


async def test_an_id_is_new_again_when_the_window_has_passed(autojump_clock: Any, world: Any) -> None:
    """Not a moment earlier."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", dedup_window=60)
        await topic.publish(b"a", dedup_id="1")
        await trio.sleep(59.9)
        assert (await topic.publish(b"b", dedup_id="1")).offset == 0
        await trio.sleep(0.2)
        assert (await topic.publish(b"c", dedup_id="1")).offset == 1
        await trio.sleep(59)
        assert (await topic.publish(b"d", dedup_id="1")).offset == 1


async def test_an_id_without_a_key_goes_to_the_partition_of_its_hash(autojump_clock: Any, world: Any) -> None:
    """So a repetition finds the original; with a key, or a partition, these decide."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", partitions=5, dedup_window=60)
        for number in range(20):
            dedup_id = b"%d" % number
            receipt = await topic.publish(b"v", dedup_id=dedup_id)
            assert receipt.partition == consistent(dedup_id, 5)
            batch = await topic.publish_batch([b"v", b"w"], dedup_ids=[dedup_id, b"w"])
            assert batch[0] == receipt
        keyed = await topic.publish(b"v", key=b"alice", dedup_id=b"1")
        assert keyed.partition == consistent(b"alice", 5)
        assert (await topic.publish(b"v", partition=3, dedup_id=b"none")).partition == 3


async def test_a_receipt_says_whether_it_is_a_duplicate(autojump_clock: Any, world: Any) -> None:
    """Of a message, and in a batch that repeats some of its own ids; it compares equal all the same."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", dedup_window=3600)
        first = await topic.publish(b"a", dedup_id="1")
        again = await topic.publish(b"a", dedup_id="1")
        assert (first.duplicate, again.duplicate) == (False, True)
        assert again == first
        batch = await topic.publish_batch([b"b", b"c", b"d", b"e"], dedup_ids=["2", "1", "2", "3"])
        assert [receipt.duplicate for receipt in batch] == [False, True, True, False]
        assert [receipt.offset for receipt in batch] == [1, 0, 1, 2]
        assert not any(receipt.duplicate for receipt in await topic.publish_batch([b"f", b"g"]))


async def test_a_batch_is_stored_without_its_duplicates(autojump_clock: Any, world: Any) -> None:
    """Each message has the receipt of its original; those without an id are stored."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", dedup_window=60)
        await topic.publish(b"0", dedup_id="a")
        receipts = await topic.publish_batch(
            [b"1", b"2", b"3", b"4", b"5"], dedup_ids=["b", "a", None, "b", "c"]
        )
        assert [receipt.offset for receipt in receipts] == [1, 0, 2, 1, 3]
        assert receipts.ranges == ((0, 1, 1), (0, 0, 1), (0, 2, 1), (0, 1, 1), (0, 3, 1))
        assert await stored(topic) == [b"0", b"1", b"3", b"5"]


async def test_a_window_longer_than_the_retention_still_knows_the_id(autojump_clock: Any, world: Any) -> None:
    """The record is gone, its id is not: the receipt names an offset that nobody can read."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", dedup_window=10_000, retention_bytes=1 << 18)
        await topic.publish(bytes(1000), dedup_id="old")
        for _ in range(40):
            await topic.publish_batch([bytes(1000)] * 20)
    async with world.open() as runtime:
        topic = runtime.topic("orders")
        assert (await topic.describe())[0].start_offset > 0
        assert (await topic.publish(b"again", dedup_id="old")).offset == 0


async def test_a_full_table_still_accepts_and_counts_what_it_forgets(autojump_clock: Any, world: Any) -> None:
    """The oldest id goes; it would be stored again."""
    async with world.open(limits=Limits(dedup_ids=2)) as runtime:
        topic = await runtime.create_topic("orders", dedup_window=60)
        for dedup_id in ("a", "b", "c"):
            await topic.publish(b"v", dedup_id=dedup_id)
        (partition,) = (await runtime.stats()).partitions
        assert (partition.dedup_ids, partition.dedup_forgotten) == (2, 1)
        assert (await topic.publish(b"v", dedup_id="c")).offset == 2
        assert (await topic.publish(b"v", dedup_id="a")).offset == 3


async def test_a_window_may_be_altered(autojump_clock: Any, world: Any) -> None:
    """A shorter one holds at once; without one ids are refused, and forgotten."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", dedup_window=60)
        await topic.publish(b"v", dedup_id="a")
        await trio.sleep(30)
        await runtime.alter_topic("orders", dedup_window=20)
        assert (await topic.publish(b"v", dedup_id="a")).offset == 1
        await runtime.alter_topic("orders", dedup_window=None)
        with pytest.raises(callboard.InvalidArgument, match="has no dedup_window"):
            await topic.publish(b"v", dedup_id="a")
        await runtime.alter_topic("orders", dedup_window=60)
        assert (await topic.publish(b"v", dedup_id="a")).offset == 2


@pytest.mark.parametrize("interruption", ["crash", "kill", "close"])
@pytest.mark.parametrize("has_file", [False, True])
@pytest.mark.parametrize(
    ("windows", "is_slow"),
    [
        pytest.param((None, 3600), False, id="none and back"),
        pytest.param((5, 3600), False, id="shorter and back"),
        pytest.param((7200,), True, id="longer when the window has passed"),
    ],
)
async def test_an_altered_window_forgets_for_good(
    autojump_clock: Any,
    world: Any,
    interruption: str,
    has_file: bool,
    windows: tuple[float | None, ...],
    is_slow: bool,
) -> None:
    """Neither the file nor the log brings an id back: after a crash or a start a message with that id is new."""
    limits = Limits(publishers_every_bytes=1 if has_file else Limits().publishers_every_bytes)
    async with world.open(limits=limits) as runtime:
        topic = await runtime.create_topic("orders", dedup_window=3600)
        await topic.publish(b"old", dedup_id="a")
        await topic.publish(b"old", dedup_id="b")
        await trio.sleep(3601 if is_slow else 10)
        for window in windows:
            await runtime.alter_topic("orders", dedup_window=window)
        assert (await topic.publish(b"new", dedup_id="a")).offset == 2
        if interruption == "crash":
            assert runtime.crash("topics/orders/0", RuntimeError("a drill"))
            await trio.sleep(1)
            assert (await topic.publish(b"new", dedup_id="a")).offset == 2
            assert (await topic.publish(b"new", dedup_id="b")).offset == 3
        if interruption == "kill":
            world.disk.kill()
    async with world.open() as runtime:
        topic = runtime.topic("orders")
        assert (await topic.publish(b"new", dedup_id="a")).offset == 2
        assert (await topic.publish(b"new", dedup_id="b")).offset == 3
        assert (await runtime.stats()).partitions[0].dedup_ids == 2


async def test_ids_stay_forgotten_when_the_partition_crashes_before_its_file_says_so(
    autojump_clock: Any, world: Any
) -> None:
    """The records after them are not synced, so that the file has to wait."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", dedup_window=3600)
        await topic.publish(b"old", dedup_id="a", acks="leader")
        await runtime.alter_topic("orders", dedup_window=None)
        await runtime.alter_topic("orders", dedup_window=3600)
        assert runtime.crash("topics/orders/0", RuntimeError("a drill"))
        await trio.sleep(1)
        assert (await runtime.stats()).partitions[0].dedup_ids == 0
        assert (await topic.publish(b"new", dedup_id="a")).offset == 1


@pytest.mark.parametrize("bad", ["", b"", "x" * (DEDUP_ID_BYTES_MAX + 1), 7, "\ud800"])
async def test_a_bad_id_is_refused(autojump_clock: Any, world: Any, bad: Any) -> None:
    """In every form, before anything is written."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", dedup_window=60)
        forms: list[Callable[[], Awaitable[object]]] = [
            lambda: topic.publish(b"v", dedup_id=bad),
            lambda: topic.publish(Message(b"v", dedup_id=bad)),
            lambda: topic.publish_batch([b"v", b"w"], dedup_ids=["good", bad]),
        ]
        for publish in forms:
            with pytest.raises(callboard.InvalidArgument, match="dedup_id"):
                await publish()
        assert await stored(topic) == []


async def test_what_could_not_be_told_to_anybody_is_refused(autojump_clock: Any, world: Any) -> None:
    """Level none has no receipts."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", dedup_window=60)
        for more in ({"dedup_id": "a"}, {"expected_offset": 0}):
            with pytest.raises(callboard.InvalidArgument, match="acks is 'none'"):
                await topic.publish(b"v", acks="none", **more)
        async with topic.producer("p") as producer:
            with pytest.raises(callboard.InvalidArgument, match="acks is 'none'"):
                await producer.publish(b"v", acks="none")


# -- expected offsets -----------------------------------------------------------------------------------------


async def test_one_of_those_who_expect_the_same_offset_wins(autojump_clock: Any, world: Any) -> None:
    """The others hear the actual next offset, and may try again."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders")
        won, lost = [], []

        async def publish(number: int) -> None:
            try:
                won.append((await topic.publish(b"%d" % number, expected_offset=0)).offset)
            except callboard.OffsetMismatch as error:
                assert error.expected_offset == 0
                lost.append(error.next_offset)

        async with trio.open_nursery() as nursery:
            for number in range(5):
                nursery.start_soon(publish, number)
        assert (won, lost) == ([0], [1, 1, 1, 1])
        assert (await topic.publish(b"next", expected_offset=lost[0])).offset == 1


async def test_an_expected_offset_needs_a_partition(autojump_clock: Any, world: Any) -> None:
    """By key or by number; and it must be an offset."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", partitions=2)
        with pytest.raises(callboard.InvalidArgument, match="which one is meant"):
            await topic.publish(b"v", expected_offset=0)
        for bad in (-1, True, 1.0, 2**62 + 1):
            with pytest.raises(callboard.InvalidArgument, match="not an offset"):
                await topic.publish(b"v", key=b"k", expected_offset=bad)
        assert (await topic.publish(b"v", partition=1, expected_offset=0)).partition == 1
        with pytest.raises(callboard.OffsetMismatch):
            await topic.publish(b"v", partition=0, expected_offset=2**62)


async def test_the_repetition_of_a_publish_that_won_is_a_duplicate(autojump_clock: Any, world: Any) -> None:
    """With an id, a publish at an expected offset can be repeated."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", dedup_window=60)
        first = await topic.publish(b"v", dedup_id="a", expected_offset=0)
        await topic.publish(b"w")
        assert await topic.publish(b"v", dedup_id="a", expected_offset=0) == first
        with pytest.raises(callboard.OffsetMismatch):
            await topic.publish(b"v", dedup_id="b", expected_offset=0)


# -- producers ------------------------------------------------------------------------------------------------


async def test_a_producer_publishes_once_although_the_disk_fails(autojump_clock: Any, world: Any) -> None:
    """It repeats what may have failed, and goes on behind it."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders")
        async with topic.producer("import") as producer:
            for number in range(4):
                if number % 2:
                    world.disk.fail_next(Sync, "EIO", path_contains="/0/00000")
                assert (await producer.publish(b"%d" % number)).offset == number
        assert await stored(topic) == [b"0", b"1", b"2", b"3"]


async def test_a_producer_that_cannot_find_out_says_so(autojump_clock: Any, world: Any) -> None:
    """After some tries; what it publishes next is stored all the same."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders")
        async with topic.producer("import") as producer:
            await producer.publish(b"0")
            world.disk.fail_next(Sync, "EIO", path_contains="/0/0000", times=100)
            with pytest.raises(callboard.PublishFailed) as failed:
                await producer.publish(b"1")
            assert failed.value.indefinite
            world.disk.heal()
            assert (await producer.publish(b"2")).offset is not None
        assert (await stored(topic))[-1] == b"2"


async def test_what_a_cancelled_publish_left_is_not_taken_for_the_next_one(
    autojump_clock: Any, world: Any
) -> None:
    """The producer asks first what the partition has."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders")
        async with topic.producer("import") as producer:
            world.disk.hang("/0/00000")
            for _ in range(3):  # the later ones while the producer asks
                with trio.move_on_after(1) as cancelled:
                    await producer.publish(b"0")
                assert cancelled.cancelled_caught
            world.disk.unhang()
            assert (await producer.publish(b"1")).offset == 1
        assert await stored(topic) == [b"0", b"1"]


async def test_the_producer_that_began_last_publishes(autojump_clock: Any, world: Any) -> None:
    """An earlier one of the name is fenced, also when it has to ask what became of its last publish."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders")
        async with topic.producer("import") as zombie:
            await zombie.publish(b"0")
            world.disk.hang("/0/00000")
            with trio.move_on_after(1):
                await zombie.publish(b"1")
            world.disk.unhang()
            async with topic.producer("import") as heir, topic.producer("another") as another:
                for _ in range(2):
                    with pytest.raises(
                        callboard.ProducerFenced, match=r"producer 'import' of topic .* has epoch"
                    ):
                        await zombie.publish(b"zombie")
                assert await heir.next_sequence() == 2
                assert (await heir.publish(b"2")).offset == 2
                assert (await another.publish(b"3")).offset == 3
        assert await stored(topic) == [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize("others_come", ["before the heir", "after the heir"])
@pytest.mark.parametrize("stored_before", [[], [b"0"]])
async def test_a_producer_stays_fenced_however_many_others_begin(
    autojump_clock: Any, world: Any, others_come: str, stored_before: list[bytes]
) -> None:
    """Also while nobody has published in the new life: the heir publishes, and never the zombie."""
    async with world.open(limits=Limits(producers=3)) as runtime:
        topic = await runtime.create_topic("orders")

        async def others() -> None:
            for number in range(200):
                async with topic.producer(f"other-{number}"):
                    pass

        async with topic.producer("import") as zombie:
            for value in stored_before:
                await zombie.publish(value)
            if others_come == "before the heir":
                await others()
            async with topic.producer("import") as heir:
                if others_come == "after the heir":
                    await others()
                with pytest.raises(callboard.ProducerFenced):
                    await zombie.publish(b"zombie")
                await heir.publish(b"heir")
                with pytest.raises(callboard.ProducerFenced):
                    await zombie.publish(b"zombie")
        assert await stored(topic) == [*stored_before, b"heir"]


async def test_an_epoch_is_not_given_out_twice_after_its_life_is_forgotten(
    autojump_clock: Any, world: Any
) -> None:
    """A producer that is entered again publishes in the life it had, unless another one has begun meanwhile."""
    async with world.open(limits=Limits(producers=3)) as runtime:
        topic = await runtime.create_topic("orders")
        async with topic.producer("import") as early:
            assert await early.next_sequence() == 0
        for number in range(10):
            async with topic.producer(f"other-{number}"):
                pass
        async with topic.producer("import") as heir, early:
            await heir.publish(b"heir")
            with pytest.raises(callboard.ProducerFenced):
                await early.publish(b"early")
        assert await stored(topic) == [b"heir"]


async def test_many_open_producers_are_all_remembered(autojump_clock: Any, world: Any) -> None:
    """None of them is taken for one that another has fenced, and the last of each name publishes."""
    async with world.open(limits=Limits(producers=100)) as runtime:
        topic = await runtime.create_topic("orders")
        async with AsyncExitStack() as stack:
            zombies = [await stack.enter_async_context(topic.producer(f"p{at}")) for at in range(90)]
            heirs = [await stack.enter_async_context(topic.producer(f"p{at}")) for at in range(90)]
            for number in range(150):
                async with topic.producer(f"other-{number}"):
                    pass
            for zombie in zombies:
                with pytest.raises(callboard.ProducerFenced):
                    await zombie.publish(b"zombie")
            for heir in heirs:
                await heir.publish(b"heir")
        assert await stored(topic) == [b"heir"] * 90


async def test_a_producer_goes_on_in_another_process(autojump_clock: Any, world: Any) -> None:
    """Its next sequence tells how much of a source it has stored."""
    source = [b"%d" % number for number in range(10)]
    for rounds in range(1, 4):
        async with world.open() as runtime:
            topic = await runtime.create_topic("orders")
            async with topic.producer("import") as producer:
                done = await producer.next_sequence()
                await producer.publish_batch(source[done : rounds * 3])
    async with world.open() as runtime:
        assert await stored(runtime.topic("orders")) == source[:9]


async def test_a_producer_that_was_forgotten_is_told_and_begins_anew(autojump_clock: Any, world: Any) -> None:
    """The publish that finds out is refused; the next one is stored."""
    async with world.open(limits=Limits(producers=1)) as runtime:
        topic = await runtime.create_topic("orders")
        async with topic.producer("a") as first, topic.producer("b") as second:
            await first.publish(b"0")
            await second.publish(b"1")
            with pytest.raises(callboard.SequenceOutOfOrder, match="0 comes next") as refused:
                await first.publish(b"never")
            assert not refused.value.indefinite
            assert (await first.publish(b"2")).offset == 2
            assert await first.next_sequence() == 1
        assert await stored(topic) == [b"0", b"1", b"2"]


async def test_a_producers_batch_goes_to_several_partitions(autojump_clock: Any, world: Any) -> None:
    """In order in each; an empty one is nothing."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", partitions=3)
        async with topic.producer("import") as producer:
            assert len(await producer.publish_batch([])) == 0
            keys = [b"%d" % (number % 5) for number in range(20)]
            receipts = await producer.publish_batch([b"%d" % number for number in range(20)], keys=keys)
            assert [receipt.partition for receipt in receipts] == [consistent(key, 3) for key in keys]
            counts = [await producer.next_sequence(partition) for partition in range(3)]
            assert sum(counts) == 20
            record = await topic.read().__anext__()
            assert record.key is not None


async def test_a_producer_has_to_be_entered_and_has_no_ids(autojump_clock: Any, world: Any) -> None:
    """Its sequence is what its messages are known by."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", dedup_window=60)
        producer = topic.producer("import")
        with pytest.raises(callboard.InvalidArgument, match="not entered"):
            await producer.publish(b"v")
        async with producer:
            with pytest.raises(callboard.InvalidArgument, match="known by its sequence"):
                await producer.publish(Message(b"v", dedup_id="a"))
            with pytest.raises(callboard.MessageTooLarge):
                await producer.publish(bytes(2 << 20))
            assert (await producer.publish(b"v")).offset == 0
        with pytest.raises(callboard.InvalidArgument):
            topic.producer("a/b\x00")
