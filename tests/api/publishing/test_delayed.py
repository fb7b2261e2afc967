"""Delayed messages, as users meet them."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
import trio

import callboard
from callboard.actors.forwarding import delayed_forwarder
from callboard.log.errors import ActorCrashed, InvalidArgument, TopicFull, TopicNotFound
from callboard.log.seams.disk import Write
from callboard.publishing import delayed

LONG_AGO = datetime(2001, 2, 3, tzinfo=UTC)


async def values(topic: Any) -> list[bytes]:
    """All that a topic holds."""
    return [record.value async for record in topic.read()]


async def test_a_delayed_message_comes_when_it_is_due(autojump_clock: Any, world: Any) -> None:
    """Not before, as it was published, with the next offset, and its time to live from then on."""
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders", priorities=True)
        receipt = await orders.publish(
            b"late", key=b"k", headers={"a": "b"}, timestamp=LONG_AGO, ttl=60, priority=7, delay=30
        )
        assert isinstance(receipt, callboard.hints.ScheduledReceipt)
        assert (receipt.partition, receipt.offset, receipt.schedule_id) == (0, None, 0)
        await orders.publish(b"now")
        await trio.sleep(29.99)
        assert await values(orders) == [b"now"]
        await trio.sleep(0.02)
        (_, record) = [record async for record in orders.read()]
        assert (record.offset, record.value, record.key, record.headers) == (1, b"late", b"k", {"a": b"b"})
        assert (record.timestamp, record.ttl, record.priority) == (LONG_AGO, 60.0, 7)
        assert receipt.due <= record.append_time < receipt.due + timedelta(seconds=0.01)
        statistics = (await runtime.stats()).delayed[0]
        assert (statistics.pending, statistics.moved, statistics.next_due) == (0, 1, None)


async def test_a_receipt_of_a_deleted_topic_cancels_nothing_in_the_next_of_its_name(
    autojump_clock: Any, world: Any
) -> None:
    """Nor does what was listed of it, whatever it is cancelled together with."""
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        first = await orders.publish(b"old", delay=100)
        (listed,) = await orders.delayed().list()
        (in_batch,) = await orders.publish_batch([b"old too"], delays=[100])
        await runtime.delete_topic("orders")
        orders = await runtime.create_topic("orders")
        receipt = await orders.publish(b"new", delay=100)
        for old in (first, listed, in_batch, [receipt, first]):
            with pytest.raises(TopicNotFound, match="of another topic 'orders'"):
                await orders.delayed().cancel(old)
        assert await orders.delayed().count() == 1
        made = callboard.hints.ScheduledReceipt("orders", 0, None, receipt.schedule_id, receipt.due)
        assert made == receipt
        assert await orders.delayed().cancel(made) == 1


async def test_delayed_messages_of_a_closed_runtime_are_not_told_of(autojump_clock: Any, world: Any) -> None:
    """All that is asked about them says that the runtime is closed."""
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        receipt = await orders.publish(b"late", delay=30)
        waiting = orders.delayed()
    for ask in (waiting.list, waiting.next, waiting.count, partial(waiting.cancel, receipt)):
        with pytest.raises(callboard.RuntimeClosed, match="is closed"):
            await ask()


async def test_deliver_at_follows_the_wall_clock_and_delays_do_not(autojump_clock: Any, world: Any) -> None:
    """The clock is set ahead by an hour."""
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        at = datetime.fromtimestamp(world.clock.wall_us() / 1e6, UTC) + timedelta(hours=1)
        await orders.publish(b"instant", deliver_at=at)
        await orders.publish(b"delay", delay=1800)
        await trio.sleep(100)
        world.clock.shift(3600)
        await trio.sleep(60)
        assert await values(orders) == [b"instant"]
        await trio.sleep(1800)
        assert await values(orders) == [b"instant", b"delay"]


async def test_delays_go_on_while_the_directory_is_closed(autojump_clock: Any, world: Any) -> None:
    """What became due meanwhile comes at once, the rest in its time."""
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        await orders.publish(b"first", delay=10)
        await orders.publish(b"second", delay=100)
    await trio.sleep(50)
    async with world.open() as runtime:
        orders = runtime.topic("orders")
        assert [each.value for each in await orders.delayed().list()] in ([b"second"], [b"first", b"second"])
        await trio.sleep(1)
        assert await values(orders) == [b"first"]
        await trio.sleep(48)
        assert await values(orders) == [b"first"]
        await trio.sleep(2)
        assert await values(orders) == [b"first", b"second"]


async def test_delays_that_ended_long_ago_come_in_the_order_in_which_they_were_due(
    autojump_clock: Any, world: Any
) -> None:
    """Also when they were due before the monotonic clock of the process began, and as a list tells them."""
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        for minutes in (60, 1, 30):
            await orders.publish(b"%d" % minutes, delay=minutes * 60.0)
    world.clock.shift(60 * 86400)
    async with world.open() as runtime:
        orders = runtime.topic("orders")
        listed = await orders.delayed().list()
        assert [each.value for each in sorted(listed, key=lambda each: each.due)] in (
            [],
            [b"1", b"30", b"60"],
        )
        await trio.sleep(1)
        assert await values(orders) == [b"1", b"30", b"60"]


async def test_a_batch_of_delayed_messages(autojump_clock: Any, world: Any) -> None:
    """Each has its own delay, and one without comes at once; `Message`s say the same."""
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders", partitions=2)
        receipts = await orders.publish_batch(
            [b"a", b"b", b"c"], keys=[b"k"] * 3, delays=[3, None, 1], headers=[{"n": "1"}, None, None]
        )
        assert [getattr(receipt, "schedule_id", None) for receipt in receipts] == [0, None, 1]
        assert [receipt.offset for receipt in receipts] == [None, 0, None]
        await orders.publish_batch(
            [callboard.Message(b"d", key=b"k", delay=2), callboard.Message(b"e", key=b"k")]
        )
        await trio.sleep(5)
        assert await values(orders) == [b"b", b"e", b"c", b"d", b"a"]
        at = datetime.fromtimestamp(world.clock.wall_us() / 1e6, UTC)
        await orders.publish_batch([b"x"], keys=[b"k"], deliver_ats=[at - timedelta(days=9)])
        await trio.sleep(0.1)
        assert (await values(orders))[-1] == b"x"


async def test_what_waits_is_listed_counted_and_cancelled(autojump_clock: Any, world: Any) -> None:
    """Cancelling says how many waited; what is cancelled never comes, also after a reopening."""
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        assert await orders.delayed().list() == ()
        receipts = await orders.publish_batch(
            [b"%d" % number for number in range(5)],
            keys=[b"k"] * 5,
            delays=[10.0 + number for number in range(5)],
            ttls=[math.inf] * 5,
            timestamps=[LONG_AGO] * 5,
            headers=[{"h": "v"}] * 5,
        )
        waiting = orders.delayed()
        found = await waiting.list()
        assert [(each.schedule_id, each.value) for each in found] == [(n, b"%d" % n) for n in range(5)]
        first = found[0]
        assert (first.key, first.headers, first.timestamp, first.ttl) == (
            b"k",
            {"h": b"v"},
            LONG_AGO,
            math.inf,
        )
        assert abs(first.due - receipts[0].due) <= timedelta(milliseconds=1)
        assert len(await waiting.list(limit=2)) == 2
        assert await waiting.cancel(receipts[1]) == 1
        assert await waiting.cancel(receipts[1]) == 0
        assert await waiting.cancel([found[3], found[1]]) == 1
        assert await waiting.cancel_ids(0, [4, 4, 99]) == [4]
        assert await waiting.count() == 2
        assert (await runtime.stats()).delayed[0].cancelled == 3
    async with world.open() as runtime:
        orders = runtime.topic("orders")
        await trio.sleep(60)
        assert await values(orders) == [b"0", b"2"]
        assert await orders.delayed().cancel_ids(0, [0]) == []


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"delay": -1}, "not seconds from 0"),
        ({"delay": math.nan}, "not seconds from 0"),
        ({"delay": math.inf}, "not seconds from 0"),
        ({"delay": True}, "not seconds from 0"),
        ({"delay": "5"}, "not seconds from 0"),
        ({"deliver_at": datetime(2030, 1, 1)}, "no time zone"),  # noqa: DTZ001
        ({"deliver_at": "2030-01-01"}, "not a datetime"),
        ({"delay": 1, "deliver_at": LONG_AGO}, "Give one"),
        ({"delay": 1, "dedup_id": b"x"}, "dedup_id"),
        ({"delay": 1, "expected_offset": 0}, "expected_offset"),
        ({"delay": 1, "acks": "none"}, "acks is 'none'"),
        ({"delay": 1, "priority": 4}, "priorit"),
        ({"delay": 1, "partition": 1}, "no partition"),
        ({"delay": 1, "headers": {str(number): b"" for number in range(256)}}, "255"),
        ({"delay": 1, "headers": {"callboard-delayed": b"x"}}, "keeps when it is due"),
    ],
)
async def test_what_cannot_be_delayed_is_refused(
    autojump_clock: Any, world: Any, given: dict[str, Any], words: str
) -> None:
    """Before anything is written, in words."""
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        with pytest.raises(InvalidArgument, match=words):
            await orders.publish(b"v", **given)
        assert (await runtime.stats()).delayed == ()


async def test_batches_are_refused_in_words(autojump_clock: Any, world: Any) -> None:
    """Naming the message; and delayed `Message`s where nothing takes them."""
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders", dedup_window=60)
        with pytest.raises(InvalidArgument, match="message 1 of the batch: delay is -1"):
            await orders.publish_batch([b"a", b"b"], delays=[1, -1])
        with pytest.raises(InvalidArgument, match="2 values but 1 delays"):
            await orders.publish_batch([b"a", b"b"], delays=[1])
        own = [{"callboard-delayed": b"x"}] * 2
        with pytest.raises(InvalidArgument, match="message 1 has a header 'callboard-delayed'") as refused:
            await orders.publish_batch([b"a", b"b"], headers=own, delays=[None, 1])
        assert refused.value.index == 1
        assert await values(orders) == []
        delayed = callboard.Message(b"m", delay=1)
        with pytest.raises(InvalidArgument, match="Use one form"):
            await orders.publish_batch([delayed], delays=[1])
        async with orders.producer("import") as producer:
            with pytest.raises(InvalidArgument, match="has a delay"):
                await producer.publish_batch([delayed])
        with pytest.raises(InvalidArgument, match="attributes beside it"):
            await orders.publish(delayed, key=b"k")
        with pytest.raises(InvalidArgument, match="no receipt of a delayed message"):
            await orders.delayed().cancel(await orders.publish(b"plain"))
        assert await values(orders) == [b"plain"]


async def test_what_is_due_next_is_told_first(autojump_clock: Any, world: Any, monkeypatch: Any) -> None:
    """Over all partitions, however many wait; what is due together by partition and id."""
    monkeypatch.setattr(delayed, "PAGE", 3)
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders", partitions=2)
        delays = [float(5 + number * 7 % 20) for number in range(20)]
        for partition in range(2):
            messages = [b"%d/%g" % (partition, delay) for delay in delays]
            await orders.publish_batch(messages, delays=delays, partition=partition)
        for limit in (1, 2, 7, 40, 99):
            found = await orders.delayed().next(limit=limit)
            expected = [b"%d/%g" % (partition, delay) for delay in sorted(delays) for partition in range(2)]
            assert [each.value for each in found] == expected[:limit]
        with pytest.raises(InvalidArgument, match="limit is 0"):
            await orders.delayed().next(limit=0)
        assert await runtime.create_topic("others") is not None
        assert await runtime.topic("others").delayed().next() == ()


async def test_what_waits_is_listed_in_pages(autojump_clock: Any, world: Any) -> None:
    """Each page goes on behind the last message of the one before, whether that still waits or not."""
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders", partitions=3)
        kept = []
        for partition in (0, 2):
            delays = [100.0 + number % 3 for number in range(7)]
            kept += await orders.publish_batch(
                [b"%d" % n for n in range(7)], delays=delays, partition=partition
            )
        found, last = [], None
        while page := await orders.delayed().list(limit=2, after=last):
            last = page[-1]
            assert await orders.delayed().cancel(last) == 1
            found += page
        assert [(each.partition, each.value) for each in found] == [
            (partition, b"%d" % number) for partition in (0, 2) for number in range(7)
        ]
        assert await orders.delayed().count() == 7
        rest = await orders.delayed().list(after=kept[6])
        assert [(each.partition, each.value) for each in rest] == [(2, b"1"), (2, b"3"), (2, b"5")]
        with pytest.raises(InvalidArgument, match="Nothing was listed"):
            await orders.delayed().list(after="0 3")
        with pytest.raises(InvalidArgument, match="Nothing was listed"):
            await orders.delayed().list(after=await orders.publish(b"now"))


async def test_a_full_topic_holds_what_is_due(autojump_clock: Any, world: Any) -> None:
    """It comes when there is room, in order; meanwhile what waits can be listed and cancelled, and it is told."""
    events: list[Any] = []
    async with world.open(on_event=events.append) as runtime:
        orders = await runtime.create_topic("orders", segment_bytes=65536, retention_bytes=65536)
        async with orders.subscribe("slow", durable=True):
            with pytest.raises(TopicFull):
                while True:
                    await orders.publish(bytes(30_000))
            receipts = [await orders.publish(b"%d" % number, delay=number) for number in range(1, 4)]
            await trio.sleep(20)
            assert [each for each in events if isinstance(each, callboard.events.DelayedHeld)]
            waiting = orders.delayed()
            assert await waiting.count() == 2  # the first is on its way
            assert await waiting.cancel(receipts) == 2
        await runtime.group("slow").delete()
        await orders.publish(b"plain")
        await trio.sleep(60)
        assert (await values(orders))[-1] in (b"1", b"plain")
        assert b"1" in await values(orders)


async def test_everything_crashes_and_each_comes_once(autojump_clock: Any, world: Any) -> None:
    """The delayed forwarder, the partition in which they wait, the one they go to, the catalog."""
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        for number in range(40):
            await orders.publish(b"%d" % number, delay=number / 10)
        for path in ("scheduler", "topics/orders/delayed-0", "topics/orders/0", "catalog") * 5:
            await trio.sleep(0.17)
            runtime.crash(path, OSError("a test"))
        await trio.sleep(5)
        assert await values(orders) == [b"%d" % number for number in range(40)]


async def test_cancelling_while_the_forwarder_crashes_is_reported(
    autojump_clock: Any, world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As indefinite; asked again, it is known."""
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        receipt = await orders.publish(b"v", delay=60)

        def raises(self: Any, ids: Any) -> None:
            raise OSError("a test")

        with monkeypatch.context() as patch:
            patch.setattr(delayed_forwarder.Pending, "cancel", raises)
            with pytest.raises(ActorCrashed):
                await orders.delayed().cancel(receipt)
        assert await orders.delayed().cancel(receipt) == 0  # it was cancelled before the crash
        await trio.sleep(100)
        assert await values(orders) == []


async def test_a_topic_that_is_deleted_takes_what_waits_with_it(autojump_clock: Any, world: Any) -> None:
    """Also its files; and one that is made anew under its name has nothing of it."""
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        await orders.publish(b"old", delay=5)
        await runtime.delete_topic("orders")
        with pytest.raises(TopicNotFound):
            await orders.publish(b"v", delay=5)
        with pytest.raises(TopicNotFound):
            await orders.delayed().count()
        orders = await runtime.create_topic("orders")
        assert await orders.delayed().count() == 0
        await orders.publish(b"new", delay=1)
        await trio.sleep(10)
        assert await values(orders) == [b"new"]


async def test_files_of_what_has_come_are_deleted(autojump_clock: Any, world: Any) -> None:
    """Segments in which nothing waits any more."""
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders", segment_bytes=65536)
        for _ in range(20):
            await orders.publish_batch([bytes(1000)] * 100, delays=[1.0] * 100)
        await trio.sleep(300)
        assert len(await values(orders)) == 2000
        files = await world.disk.incarnate("test")
        names = [entry.name for entry in await files.list(f"topics/{orders.topic_id}/delayed-0")]
        assert len([name for name in names if name.endswith(".log")]) <= 2


async def test_an_empty_batch_of_delayed_messages_is_published_as_any_is(
    autojump_clock: Any, world: Any
) -> None:
    """There are no receipts, and nothing was raised."""
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        assert len(await orders.publish_batch([], delays=[])) == 0
        assert await orders.delayed().count() == 0


@pytest.mark.parametrize(
    ("values", "delays", "told"),
    [
        ([b"a", b"b"], b"ab", "delays are bytes"),
        ([b"a", b"b"], 5, "delays are int"),
        ([b"a", b"b"], [1], "2 values but 1 delays"),
        (5, [1], "a batch is int"),
        (b"a", [1], "a batch is bytes"),
    ],
)
async def test_delays_are_checked_as_any_column_is(
    autojump_clock: Any, world: Any, values: Any, delays: Any, told: str
) -> None:
    """Bytes are numbers to Python; they are no delays."""
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        with pytest.raises(InvalidArgument, match=told):
            await orders.publish_batch(values, delays=delays)
        assert await orders.delayed().count() == 0


async def test_the_partition_of_a_message_goes_before_that_of_the_call(
    autojump_clock: Any, world: Any
) -> None:
    """Delayed or not."""
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders", partitions=3)
        for delay in (None, 9):
            message = callboard.Message(b"a", partition=1, delay=delay)
            assert (await orders.publish(message, partition=2)).partition == 1


@pytest.mark.parametrize(("partition", "ids"), [(0, ["x"]), (0, [-1]), (0, [None]), ("a", [1]), (1, [1])])
async def test_bad_ids_are_refused_before_the_forwarder_hears_of_them(
    autojump_clock: Any, world: Any, partition: Any, ids: Any
) -> None:
    """It would crash by them, and hold up every topic."""
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        await orders.publish(b"late", delay=30)
        with pytest.raises(InvalidArgument, match="Nothing was cancelled"):
            await orders.delayed().cancel_ids(partition, ids)
        assert await orders.delayed().count() == 1


async def test_what_is_no_receipt_is_not_cancelled(autojump_clock: Any, world: Any) -> None:
    """Nor is it iterated."""
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        receipts: Any = 5
        with pytest.raises(InvalidArgument, match="no receipt"):
            await orders.delayed().cancel(receipts)


async def test_what_becomes_due_is_no_dead_letter(autojump_clock: Any, world: Any) -> None:
    """Also when part of it is published before the rest: nobody is told of failures."""
    events: list[Any] = []
    for delay in (1.0, 0.5):
        async with world.open(on_event=events.append) as runtime:
            reminders = await runtime.create_topic("reminders")
            for _ in range(5):
                await reminders.publish(b"remind", delay=delay)
            await trio.sleep(1.2 if delay < 1 else 0)
    assert [each for each in events if isinstance(each, callboard.events.DeadLettered)] == []


async def test_a_batch_may_mix_bytes_with_delayed_messages_in_any_order(
    autojump_clock: Any, world: Any
) -> None:
    """What is not delayed is stored at once."""
    async with world.open() as runtime:
        reminders = await runtime.create_topic("reminders")
        for batch in ([b"a", callboard.Message(b"b", delay=1)], [callboard.Message(b"b", delay=1), b"a"]):
            receipts = await reminders.publish_batch(batch)
            told = {type(receipts[index]).__name__ for index in range(2)}
            assert told == {"Receipt", "ScheduledReceipt"}
        await trio.sleep(2)
        assert [record.value async for record in reminders.read()] == [b"a", b"a", b"b", b"b"]


async def test_what_is_due_beyond_the_calendar_is_refused(autojump_clock: Any, world: Any) -> None:
    """Its due time could not be told."""
    async with world.open() as runtime:
        reminders = await runtime.create_topic("reminders")
        with pytest.raises(callboard.InvalidArgument, match="later than the year 9900"):
            await reminders.publish(b"", deliver_at=datetime.max.replace(tzinfo=UTC))
        await reminders.publish(b"", deliver_at=datetime(9899, 1, 1, tzinfo=UTC))
        assert len(await reminders.delayed().list()) == 1


async def test_what_is_delayed_after_a_crash_is_not_late(autojump_clock: Any, world: Any) -> None:
    """The partition in which it waits crashed while nothing else was due for long."""
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders", partitions=1)
        await orders.publish(b"in a week", delay=600_000)
        await trio.sleep(1)
        assert runtime.crash("topics/orders/delayed-0", OSError("a test"))
        await trio.sleep(30)
        await orders.publish(b"soon", delay=2)
        with trio.fail_after(60):
            async for record in orders.read("beginning", follow=True):
                assert record.value == b"soon"
                break


async def test_a_delayed_message_that_may_wait_fails_with_its_own_error(
    autojump_clock: Any, world: Any
) -> None:
    """A single publish never raises `PartialPublish`, whether or not it is delayed."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders")
        await topic.publish(b"first", delay=9)
        world.disk.fail_next(Write, "EIO", path_contains="/delayed-0/0000")
        with pytest.raises(callboard.PublishFailed) as caught:
            await topic.publish(b"second", delay=9)
        assert caught.value.indefinite


async def test_messages_of_a_batch_bring_their_delays_themselves(autojump_clock: Any, world: Any) -> None:
    """A column of delays beside `Message`s is refused, as one of any other attribute is."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders")
        with pytest.raises(InvalidArgument, match="separate columns"):
            await topic.publish_batch([callboard.Message(b"a")], delays=[9])
