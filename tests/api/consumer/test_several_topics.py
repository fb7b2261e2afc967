"""One consumer that reads several topics."""

from __future__ import annotations

from typing import Any

import pytest
import trio

import callboard
from callboard.actors.groups.commands import Fence
from callboard.simulations.disk.inodes import lose_unsynced


async def filled(runtime: Any, **counts: int) -> list[Any]:
    """Topics that hold so many messages: 0, 1, 2, ..."""
    topics = []
    for name, count in counts.items():
        topics.append(await runtime.create_topic(name, partitions=2))
        await topics[-1].publish_batch([b"%d" % number for number in range(count)], partition=0)
    return topics


async def pending_of(topic: Any) -> int:
    """How many messages the topic's only group has not settled."""
    return sum(group.pending for part in await topic.describe() for group in part.groups)


async def test_a_consumer_of_two_topics_gets_all_of_both(autojump_clock: Any, world: Any) -> None:
    """Every message of either topic comes once, and tells its topic; acks settle where the message is from."""
    async with world.open() as runtime:
        topics = await filled(runtime, orders=30, refunds=20)
        seen: dict[str, list[int]] = {"orders": [], "refunds": []}
        async with runtime.subscribe(["orders", "refunds"], "billing") as consumer:
            for number in range(50):
                message = await consumer.get()
                seen[message.topic].append(message.offset)
                await message.ack(wait=number % 2 == 0)
            await consumer.flush()
            assert await consumer.get(timeout=0) is None
            (group,) = await runtime.groups()
            assert (group.topics, group.consumers[0].topics) == (("orders", "refunds"), ("orders", "refunds"))
        assert {name: sorted(offsets) for name, offsets in seen.items()} == {
            "orders": list(range(30)),
            "refunds": list(range(20)),
        }
        assert [await pending_of(topic) for topic in topics] == [0, 0]


async def test_topics_take_turns_whatever_their_sizes(autojump_clock: Any, world: Any) -> None:
    """A topic with a large backlog in many partitions does not keep the messages of another waiting."""
    async with world.open() as runtime:
        busy = await runtime.create_topic("busy", partitions=8)
        for partition in range(8):
            await busy.publish_batch([b"much"] * 500, partition=partition)
        quiet = await runtime.create_topic("quiet")
        await quiet.publish_batch([b"little"] * 40)
        async with runtime.subscribe(("busy", "quiet"), "billing") as consumer:
            names = []
            async for batch in consumer.batches(max_records=10, max_wait=0.0):
                names.append(batch.topic)
                await batch.ack()
                await trio.sleep(1.0)
                if names.count("quiet") == 4:
                    break
            assert names[:8].count("quiet") == 4


async def test_several_topics_wake_one_consumer(autojump_clock: Any, world: Any) -> None:
    """A consumer that waits for two topics hears of a message in either at once, and so does a batch."""
    async with world.open() as runtime:
        orders, refunds = await filled(runtime, orders=0, refunds=0)
        async with (
            runtime.subscribe(["orders", "refunds"], "billing") as consumer,
            trio.open_nursery() as nursery,
        ):
            got: list[tuple[str, float]] = []

            async def work() -> None:
                async for message in consumer:
                    got.append((message.topic, trio.current_time()))
                    await message.ack()

            nursery.start_soon(work)
            wanted = []
            for topic in (orders, refunds, refunds, orders):
                await trio.sleep(100.0)
                wanted.append((topic.name, trio.current_time()))
                await topic.publish(b"wake up", partition=1)
            await trio.sleep(1.0)
            assert got == wanted
            nursery.cancel_scope.cancel()


async def test_a_group_of_several_topics_goes_on_after_a_power_loss(autojump_clock: Any, world: Any) -> None:
    """What was acked in either topic does not come again; the rest does, in both."""

    async def begin(runtime: Any) -> None:
        await filled(runtime, orders=10, refunds=10)
        async with runtime.subscribe(["orders", "refunds"], "billing") as consumer:
            for _ in range(12):
                message = await consumer.get()
                acked.add((message.topic, message.offset))
                await message.ack()
            world.disk.crash(lose_unsynced)

    acked: set[tuple[str, int]] = set()
    await world.live(begin)
    async with world.open() as runtime:
        rest = set()
        async with runtime.subscribe(["orders", "refunds"], "billing") as consumer:
            while (message := await consumer.get(timeout=1.0)) is not None:
                rest.add((message.topic, message.offset))
                await message.ack()
        assert not rest & acked
        assert len(rest) + len(acked) == 20
        assert {name for name, _ in acked} == {"orders", "refunds"}


async def test_a_crash_of_a_partition_costs_nothing(autojump_clock: Any, world: Any) -> None:
    """Partitions of both topics crash under the consumer: it gets everything, at the first attempt, and settles it."""
    async with world.open() as runtime:
        topics = await filled(runtime, orders=60, refunds=60)
        seen: set[tuple[str, int]] = set()
        async with runtime.subscribe(["orders", "refunds"], "billing") as consumer:
            for turn in range(120):
                if turn % 20 == 10:
                    name = ("orders", "refunds")[turn // 20 % 2]
                    runtime.crash(f"topics/{name}/0", RuntimeError("injected"))
                message = await consumer.get(timeout=60.0)
                assert message.attempt == 1
                seen.add((message.topic, message.offset))
                await message.ack()
        assert len(seen) == 120
        assert [await pending_of(topic) for topic in topics] == [0, 0]


async def test_a_deleted_topic_is_told_once_and_the_others_go_on(autojump_clock: Any, world: Any) -> None:
    """`TopicNotFound` names the deleted topic, also to who waits; then the rest is read; the last one ends it."""
    async with world.open() as runtime:
        orders, _ = await filled(runtime, orders=0, refunds=0)
        async with (
            runtime.subscribe(["orders", "refunds"], "billing") as consumer,
            trio.open_nursery() as nursery,
        ):

            async def delete(name: str) -> None:
                await trio.sleep(10.0)
                await runtime.delete_topic(name)

            nursery.start_soon(delete, "refunds")
            with pytest.raises(callboard.TopicNotFound, match="continues with orders") as raised:
                await consumer.get()
            assert raised.value.topic == "refunds"
            await orders.publish(b"still here")
            message = await consumer.get()
            assert message.value == b"still here"
            await message.ack()
            nursery.start_soon(delete, "orders")
            with pytest.raises(callboard.RuntimeClosed, match="'orders' was deleted"):
                await consumer.get()


async def test_a_full_topic_is_read_and_settled_like_the_others(autojump_clock: Any, world: Any) -> None:
    """Publishers are refused; the consumer gets all of both topics, and what it settles makes room."""
    async with world.open() as runtime:
        segment = 65_536
        small = await runtime.create_topic("small", segment_bytes=segment, retention_bytes=3 * segment)
        large = await runtime.create_topic("large")
        async with runtime.subscribe(["small", "large"], "billing") as consumer:
            stored = 0
            with pytest.raises(callboard.TopicFull):
                while True:
                    await small.publish(bytes(60_000))
                    stored += 1
            await large.publish_batch([b"x"] * stored)
            seen = []
            for _ in range(2 * stored):
                message = await consumer.get(timeout=5.0)
                seen.append((message.topic, message.offset))
                await message.ack()
            assert sorted(seen) == [(name, at) for name in ("large", "small") for at in range(stored)]
            assert (await small.publish(b"room")).offset == stored
            assert (await consumer.get(timeout=5.0)).value == b"room"


async def test_a_fenced_consumer_loses_its_leases_in_all_topics(autojump_clock: Any, world: Any) -> None:
    """A new generation voids the receipts of every topic; the consumer joins again with all of them."""
    async with world.open() as runtime:
        await filled(runtime, orders=5, refunds=5)
        async with runtime.subscribe(["orders", "refunds"], "billing") as consumer:
            leased = [await consumer.get() for _ in range(6)]
            assert {message.topic for message in leased} == {"orders", "refunds"}
            (group,) = await runtime.groups()
            await runtime._session.system.actor("groups/billing").ask(Fence(group.consumers[0].consumer))
            for message in leased:
                with pytest.raises(callboard.LeaseLost):
                    await message.ack()
            again = [await consumer.get(timeout=5.0) for _ in range(10)]
            assert len({(message.topic, message.offset) for message in again}) == 10


@pytest.mark.parametrize("topics", ["orders", [], ["orders", "orders"], 7, [7], None, b"orders", range(2)])
async def test_what_is_no_list_of_topics_is_refused(autojump_clock: Any, world: Any, topics: Any) -> None:
    """A string is not taken for a list of letters, and no topic is named twice."""
    async with world.open() as runtime:
        await filled(runtime, orders=0)
        with pytest.raises(callboard.InvalidArgument, match="topics"):
            runtime.subscribe(topics, "billing")


async def test_an_unknown_topic_is_named(autojump_clock: Any, world: Any) -> None:
    """Subscribing to a topic that does not exist says which, and opens no group."""
    async with world.open() as runtime:
        await filled(runtime, orders=0)
        with pytest.raises(callboard.TopicNotFound, match="'refunds'"):
            runtime.subscribe(["orders", "refunds"], "billing")
        assert await runtime.groups() == ()


async def test_acks_nobody_waits_for_do_not_wait_for_the_restart_of_another_topic(
    autojump_clock: Any, world: Any
) -> None:
    """While a partition that crashed cannot start, messages of other topics are taken and acked without waiting."""
    async with world.open() as runtime:
        orders, refunds = await filled(runtime, orders=1, refunds=3)
        async with runtime.subscribe(["orders", "refunds"], "billing") as consumer:
            messages = [await consumer.get() for _ in range(3)]
            (order,) = [message for message in messages if message.topic == "orders"]
            first, second = [message for message in messages if message.topic == "refunds"]
            await order.ack(wait=False)
            await first.ack(wait=False)  # the one before is sent
            await trio.sleep(0.0005)
            runtime.crash("topics/orders/0", RuntimeError("its recovery will hang"))
            world.disk.hang(f"topics/{orders.topic_id}/0")
            await trio.sleep(1.0)
            try:
                with trio.fail_after(0.5):
                    await second.ack(wait=False)
                    last = await consumer.get()
                    assert last.topic == "refunds"
                    await last.ack(wait=False)
            finally:
                world.disk.unhang()
            await consumer.flush()
        assert [await pending_of(topic) for topic in (orders, refunds)] == [0, 0]
