"""Priorities, and order per partition, as users meet them."""

from __future__ import annotations

from typing import Any

import pytest
import trio

import callboard
from callboard import Message


async def taken(topic: Any, group: str = "billing", **settings: Any) -> list[Any]:
    """What a group's new consumer gets one by one, until nothing comes."""
    found = []
    async with topic.subscribe(group, **settings) as consumer:
        while (message := await consumer.get(timeout=0.2)) is not None:
            found.append(message.value)
            await message.ack()
    return found


async def test_the_highest_priority_comes_first(autojump_clock: Any, world: Any) -> None:
    """Within one the order of publishing; without a priority 4 counts; 0 is low."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", priorities=True)
        for value, priority in (
            (b"a", 0),
            (b"b", None),
            (b"c", 9),
            (b"d", 4),
            (b"e", 5),
            (b"f", 9),
            (b"g", 0),
        ):
            await topic.publish(value, priority=priority)
        assert await taken(topic) == [b"c", b"f", b"e", b"b", b"d", b"a", b"g"]
        assert await taken(topic, "audit", max_in_flight=1) == [b"c", b"f", b"e", b"b", b"d", b"a", b"g"]


async def test_what_comes_later_goes_before_what_waits(autojump_clock: Any, world: Any) -> None:
    """A consumer that holds one message at a time never handles a lower one while a higher one is there."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", priorities=True)
        await topic.publish_batch([b"low %d" % number for number in range(100)], priorities=[1] * 100)
        handled = []
        async with topic.subscribe("billing", max_in_flight=1) as consumer:
            for number in range(5):
                async with consumer.receive() as message:
                    handled.append(message.value)
                await topic.publish(b"high %d" % number, priority=7)
        assert handled == [b"low 0", b"high 0", b"high 1", b"high 2", b"high 3"]


async def test_a_message_that_failed_keeps_its_priority(autojump_clock: Any, world: Any) -> None:
    """It comes again before lower ones, and after higher ones that came meanwhile."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", priorities=True)
        await topic.publish_batch([b"low", b"middle"], priorities=[2, 5])
        async with topic.subscribe("billing", max_in_flight=1) as consumer:
            first = await consumer.get()
            await first.nack(delay=0)
            await topic.publish(b"high", priority=8)
            found = []
            for _ in range(3):
                async with consumer.receive() as message:
                    found.append((message.value, message.attempt))
        assert found == [(b"high", 1), (b"middle", 2), (b"low", 1)]


async def test_priorities_survive_restarts_and_segments(autojump_clock: Any, world: Any) -> None:
    """Nothing is lost or repeated, over many segments, with what was acked anywhere."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", priorities=True, segment_bytes=65_536)
        values = [b"%04d" % number + bytes(1000) for number in range(300)]
        await topic.publish_batch(values, priorities=[number * 7 % 10 for number in range(300)])
    handled: list[tuple[int, int]] = []
    for _ in range(4):
        async with world.open() as runtime:
            async with runtime.topic("orders").subscribe("billing", max_in_flight=5) as consumer:
                for _ in range(75):
                    message = await consumer.get(timeout=1)
                    assert message is not None
                    handled.append((-message.priority, int(message.value[:4])))
                    await message.ack()
    assert handled == sorted((-(number * 7 % 10), number) for number in range(300))


async def test_what_starves_goes_first(autojump_clock: Any, world: Any) -> None:
    """After `starvation_after`, the oldest first."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", priorities=True)
        await topic.publish_batch([b"old 1", b"old 2"], priorities=[0, 3])
        await trio.sleep(8)
        await topic.publish(b"younger", priority=1)
        await trio.sleep(3)
        await topic.publish(b"new", priority=9)
        assert await taken(topic, starvation_after=10) == [b"old 1", b"old 2", b"new", b"younger"]
        assert await taken(topic, "audit") == [b"new", b"old 2", b"younger", b"old 1"]


async def test_what_starves_follows_the_wall_clock_when_it_is_set(autojump_clock: Any, world: Any) -> None:
    """Set back: what is published from then on does not starve at once. Set forward: it starves in its time."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", priorities=True)
        async with topic.subscribe("billing", starvation_after=600, max_in_flight=1) as consumer:
            for shift in (-3600, 7200):
                world.clock.shift(shift)
                await topic.publish_batch([b"low", b"high"], priorities=[0, 9])
                for value in (b"high", b"low"):
                    message = await consumer.get(timeout=5)
                    assert message.value == value
                    await message.ack()
                await topic.publish(b"low", priority=0)
                message = await consumer.get(timeout=5)
                await topic.publish_batch([b"waited", b"other"], priorities=[0, 0])
                await message.extend(900)
                await trio.sleep(700)
                await topic.publish(b"high", priority=9)
                for value in (b"waited", b"other", b"high"):
                    await message.ack()
                    message = await consumer.get(timeout=5)
                    assert message.value == value
                await message.ack()


async def test_what_goes_first_because_it_starves_is_counted(autojump_clock: Any, world: Any) -> None:
    """Only what leaves something of a higher priority behind."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", priorities=True)
        await topic.publish_batch([b"old 1", b"old 2"], priorities=[0, 3])
        await trio.sleep(11)
        await topic.publish(b"new", priority=9)
        settings: Any = {"max_in_flight": 1, "starvation_after": 10}
        async with topic.subscribe("billing", **settings) as consumer:
            promoted = []
            for value in (b"old 1", b"old 2", b"new"):
                message = await consumer.get()
                assert message.value == value
                (group,) = (await runtime.stats()).partitions[0].groups
                promoted.append(group.promoted)
                await message.ack()
            await trio.sleep(20)
            await topic.publish_batch([b"high", b"low"], priorities=[9, 1])
            await trio.sleep(20)
            for value in (b"high", b"low"):
                message = await consumer.get()
                assert message.value == value
                await message.ack()
            (group,) = (await runtime.stats()).partitions[0].groups
        assert [*promoted, group.promoted] == [1, 2, 2, 2]


async def test_the_highest_priority_comes_first_of_thousands_that_come_again(
    autojump_clock: Any, world: Any
) -> None:
    """However many were leased and given back, the choice among them is by priority."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", priorities=True)
        await topic.publish_batch([b"low"] * 3000, priorities=[1] * 3000)
        await topic.publish(b"high", priority=9)
        async with topic.subscribe("billing", max_in_flight=4000) as consumer:
            given_back = 0
            while given_back < 3001:
                batch = await consumer.get_batch(max_records=4000, max_wait=0.0)
                given_back += len(batch)
        await runtime.group("billing").alter(max_in_flight=1)
        async with topic.subscribe("billing", max_in_flight=1) as consumer:
            assert [(await consumer.get()).value] == [b"high"]


async def test_what_waits_for_room_among_the_dead_letters_lets_others_pass(
    autojump_clock: Any, world: Any
) -> None:
    """A healthy message of a low priority comes, although failed ones of a high priority have to wait."""
    async with world.open(limits=callboard.Limits(dead_letters=1)) as runtime:
        topic = await runtime.create_topic("orders", priorities=True)
        await topic.publish_batch([b"bad 0", b"bad 1", b"bad 2"], priorities=[9, 9, 9])
        async with topic.subscribe("billing", max_in_flight=1, max_deliveries=2, backoff=0.01) as consumer:
            for _ in range(6):
                message = await consumer.get(timeout=1.0)
                if message is not None:
                    await message.nack()
            await topic.publish(b"healthy", priority=0)
            message = await consumer.get(timeout=1.0)
            assert message is not None
            assert message.value == b"healthy"


async def test_the_window_keeps_its_size_over_a_restart(autojump_clock: Any, world: Any) -> None:
    """What was passed over before counts among its records."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", priorities=True)
        await topic.publish_batch([b"low"] * 200, priorities=[1] * 200)
        settings = {"priority_window": 20, "max_in_flight": 1}
        async with topic.subscribe("billing", **settings) as consumer, consumer.receive():
            await topic.publish(b"high", priority=9)
    async with world.open() as runtime:
        topic = runtime.topic("orders")
        async with topic.subscribe("billing", **settings) as consumer, consumer.receive():
            (group,) = (await topic.describe())[0].groups
            assert group.window_records <= 20


async def test_priority_is_strict_within_the_window(autojump_clock: Any, world: Any) -> None:
    """What lies beyond `priority_window` unsettled messages waits until it comes into it."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", priorities=True)
        await topic.publish_batch([b"a", b"b", b"c", b"d", b"e"], priorities=[1, 2, 3, 4, 9])
        assert await taken(topic, priority_window=3, max_in_flight=1) == [b"c", b"d", b"e", b"b", b"a"]


async def test_keys_keep_their_order_with_priorities(autojump_clock: Any, world: Any) -> None:
    """A high priority does not lift a message over an earlier one of its key."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", priorities=True)
        for value, key, priority in ((b"a1", b"a", 1), (b"b1", b"b", 5), (b"a2", b"a", 9), (b"x", None, 3)):
            await topic.publish(value, key=key, priority=priority)
        assert await taken(topic, ordering="key") == [b"b1", b"x", b"a1", b"a2"]


async def test_only_priorities_are_taken_and_only_where_there_are_any(
    autojump_clock: Any, world: Any
) -> None:
    """Nothing is stored of anything else."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", priorities=True)
        wrong: list[Any] = [-1, 10, 4.0, True, "5", b"5"]
        for priority in wrong:
            with pytest.raises(callboard.InvalidArgument, match="priority is"):
                await topic.publish(b"a", priority=priority)
        plain = await runtime.create_topic("plain")
        for publish in (
            lambda: plain.publish(b"a", priority=4),
            lambda: plain.publish(b"a", priority=4, expected_offset=0),
            lambda: plain.publish(Message(b"a", priority=0)),
            lambda: plain.publish_batch([b"a", b"b"], priorities=[None, 3]),
            lambda: plain.publish_batch([b"a", Message(b"b", priority=3)]),
        ):
            with pytest.raises(callboard.InvalidArgument, match="priorities=True"):
                await publish()
        async with plain.producer("import") as producer:
            with pytest.raises(callboard.InvalidArgument, match="priorities=True"):
                await producer.publish(b"a", priority=1)
        assert [part.next_offset for part in (*await topic.describe(), *await plain.describe())] == [0, 0]
        with pytest.raises(callboard.ConfigurationError, match="priorities cannot be changed"):
            await runtime.alter_topic("plain", priorities=True)


# -- order per partition --------------------------------------------------------------------------------------


async def test_a_partition_is_handled_in_order(autojump_clock: Any, world: Any) -> None:
    """A message that failed blocks all that come after it, for every consumer; other partitions go on."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", partitions=2)
        for number in range(3):
            await topic.publish(b"%d" % number, partition=0)
        await topic.publish(b"other", partition=1)
        async with (
            topic.subscribe("billing", ordering="partition") as one,
            topic.subscribe("billing", ordering="partition") as two,
        ):
            found = [await one.get(timeout=1), await two.get(timeout=1)]
            (first,) = [message for message in found if message is not None and message.partition == 0]
            (other,) = [message for message in found if message is not None and message.partition == 1]
            await other.ack()
            await first.nack(delay=5)
            assert await one.get(timeout=1) is None
            assert await two.get(timeout=1) is None
            await trio.sleep(4)
            handled = []
            for consumer in (one, two, one):
                message = await consumer.get(timeout=1)
                assert message is not None
                handled.append((message.value, message.attempt))
                await message.ack()
        assert handled == [(b"0", 2), (b"1", 1), (b"2", 1)]


async def test_priorities_and_order_per_partition_exclude_each_other(autojump_clock: Any, world: Any) -> None:
    """The error says why, and which orders there are."""
    async with world.open() as runtime:
        await runtime.create_topic("orders", priorities=True)
        await runtime.create_topic("plain")
        with pytest.raises(
            callboard.ConfigurationError, match="its priorities want another: use ordering 'key'"
        ):
            async with runtime.topic("orders").subscribe("billing", ordering="partition"):
                pass
        async with runtime.topic("plain").subscribe("ledger", ordering="partition"):
            pass
        with pytest.raises(callboard.ConfigurationError, match="its priorities want another"):
            async with runtime.subscribe(["plain", "orders"], "ledger"):
                pass
