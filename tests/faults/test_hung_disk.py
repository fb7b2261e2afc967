"""A disk that does not answer: visible, refused at once, healed by itself, and nothing is lost."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

import pytest
import trio

import callboard
from callboard.actors.notices import PartitionStuck
from callboard.log.limits import STUCK_AFTER_S


async def test_a_hung_disk_marks_the_partition_stuck_and_heals(autojump_clock: Any, world: Any) -> None:
    """The publish in flight waits and succeeds in the end; later ones are refused at once; others go on."""
    stored: dict[int, bytes] = {}
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        other = await runtime.create_topic("other")
        notices: list[PartitionStuck] = []
        runtime.subscribe_events(
            lambda event: notices.append(event) if isinstance(event, PartitionStuck) else None
        )
        await orders.publish(b"before")
        async with trio.open_nursery() as nursery:

            async def publish(value: bytes) -> None:
                receipt = await orders.publish(value)
                stored[receipt.offset] = value

            world.disk.hang(f"topics/{orders.topic_id}")
            nursery.start_soon(publish, b"in flight")
            await trio.sleep(STUCK_AFTER_S - 0.1)
            assert notices == []
            nursery.start_soon(publish, b"in time")
            await trio.sleep(0.2)
            assert [(notice.path, notice.stuck) for notice in notices] == [("topics/orders/0", True)]
            (part,) = await orders.describe()
            assert part.state == "stuck"
            before = trio.current_time()
            with pytest.raises(callboard.PartitionUnavailable) as caught:
                await orders.publish(b"refused")
            assert (caught.value.state, trio.current_time()) == ("stuck", before)
            with pytest.raises(callboard.PartitionUnavailable):
                await orders.publish_batch([b"refused", b"refused"])
            assert "heals by itself" in str(caught.value)
            assert (await other.publish(b"not concerned")).offset == 0
            assert [record.value async for record in orders.read()] == [b"before"]
            await trio.sleep(3600.0)
            assert stored == {}
            world.disk.unhang()
        assert set(stored.values()) == {b"in flight", b"in time"}
        assert [notice.stuck for notice in notices] == [True, False]
        (part,) = await orders.describe()
        assert part.state == "running"
        receipt = await orders.publish(b"after")
        stored |= {0: b"before", receipt.offset: b"after"}
        assert await world.values(runtime) == stored
    async with world.open() as runtime:
        assert await world.values(runtime) == stored


async def test_a_partition_may_hang_more_than_once(autojump_clock: Any, world: Any) -> None:
    """Stuck and healed, again and again: each publish in flight is stored."""
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        for turn in range(5):
            async with trio.open_nursery() as nursery:
                world.disk.hang("topics/")
                nursery.start_soon(orders.publish, b"%d" % turn)
                await trio.sleep(STUCK_AFTER_S + turn)
                (part,) = await orders.describe()
                assert part.state == "stuck"
                world.disk.unhang()
        assert list((await world.values(runtime)).values()) == [b"%d" % turn for turn in range(5)]


async def test_acks_wait_for_a_hung_disk_and_hold(autojump_clock: Any, world: Any) -> None:
    """An ack that waits for a hung journal returns when it is written, and what it promised holds."""
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        await orders.publish_batch([b"0", b"1"])
        async with orders.subscribe("group", visibility_timeout=30.0) as consumer:
            message = await consumer.get()
            async with trio.open_nursery() as nursery:
                world.disk.hang("/delivery/")
                nursery.start_soon(message.ack)
                await trio.sleep(600.0)
                world.disk.unhang()
            assert (await consumer.get()).offset == 1
    async with world.open() as runtime:
        assert await world.drain(runtime) == {1: b"1"}


async def test_a_short_stall_is_no_hang(autojump_clock: Any, world: Any) -> None:
    """Slow plans, each below the limit, make nothing stuck however many there are."""
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        world.disk.latency_s = STUCK_AFTER_S * 0.9
        async with trio.open_nursery() as nursery:
            for number in range(50):
                nursery.start_soon(orders.publish, b"%d" % number)
                await trio.sleep(1.0)
                (part,) = await orders.describe()
                assert part.state == "running"
        assert len(await world.values(runtime)) == 50


async def test_closing_waits_for_a_hung_disk(autojump_clock: Any, world: Any) -> None:
    """A plan is never abandoned: closing ends when the disk answers, and the publish in flight is stored."""
    closed = trio.Event()

    async def life() -> None:
        async with world.open() as runtime:
            orders = await runtime.create_topic("orders")
            await orders.publish(b"before")
            world.disk.hang("topics/")
            await orders.publish(b"in flight", acks="none")
        closed.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(life)
        await trio.sleep(3600.0)
        assert not closed.is_set()
        world.disk.unhang()
        await trio.sleep(60.0)
        assert closed.is_set()
    async with world.open() as runtime:
        assert await world.values(runtime) == {0: b"before", 1: b"in flight"}


@pytest.mark.parametrize("when", ["while it reads", "before it joins", "before the opening"])
async def test_a_hung_partition_delays_only_its_own_messages(
    autojump_clock: Any, world: Any, when: str
) -> None:
    """A consumer gets what the others have at once, what they get later, and the hung one's messages in the end."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", partitions=3)
        for partition in range(3):
            await topic.publish_batch([b"x"] * 2, partition=partition)
    hung = f"{topic.topic_id}/1"
    if when == "before the opening":
        world.disk.hang(hung)
    async with AsyncExitStack() as stack:
        runtime = await stack.enter_async_context(world.open())
        stack.callback(world.disk.unhang)
        topic = runtime.topic("orders")
        if when == "before it joins":
            await topic.flush()
            world.disk.hang(hung)
        consumer = topic.subscribe("group")
        with trio.fail_after(1.0):
            await consumer.__aenter__()
        if when == "while it reads":
            world.disk.hang(hung)
        with trio.fail_after(1.0):
            found = [await consumer.get() for _ in range(4)]
        assert {message.partition for message in found} == {0, 2}
        for message in found:
            await message.ack()
        assert await consumer.get(timeout=30.0) is None
        with trio.fail_after(1.0):
            await topic.publish(b"later", partition=2)
            assert (await consumer.get()).value == b"later"
        world.disk.unhang()
        with trio.fail_after(1.0):
            assert [(await consumer.get()).partition for _ in range(2)] == [1, 1]
        await consumer.__aexit__(None, None, None)


async def test_a_consumer_leaves_although_a_partition_hangs(autojump_clock: Any, world: Any) -> None:
    """It waits a few seconds; what it held is another's, from the hung partition once that answers again."""
    async with AsyncExitStack() as stack:
        runtime = await stack.enter_async_context(world.open())
        stack.callback(world.disk.unhang)
        topic = await runtime.create_topic("orders", partitions=3)
        for partition in range(3):
            await topic.publish(b"x", partition=partition)
        with trio.fail_after(2 * STUCK_AFTER_S):
            async with topic.subscribe("group", visibility_timeout=86_400.0) as consumer:
                assert {(await consumer.get()).partition for _ in range(3)} == {0, 1, 2}
                world.disk.hang(f"{topic.topic_id}/1")
        async with topic.subscribe("group") as other:
            with trio.fail_after(1.0):
                assert {(await other.get()).partition for _ in range(2)} == {0, 2}
            assert await other.get(timeout=3600.0) is None
            world.disk.unhang()
            with trio.fail_after(1.0):
                assert (await other.get()).partition == 1


@pytest.mark.parametrize("upkeep", ["rolling by age", "dropping by age"])
async def test_a_disk_that_hangs_during_upkeep_is_noticed(
    autojump_clock: Any, world: Any, upkeep: str
) -> None:
    """Although nobody publishes: the state says so, later publishes are refused at once, and all heals."""
    settings = (
        {"segment_age": 60.0} if upkeep == "rolling by age" else {"retention_age": 60.0, "segment_age": 20.0}
    )
    async with AsyncExitStack() as stack:
        runtime = await stack.enter_async_context(world.open())
        stack.callback(world.disk.unhang)
        topic = await runtime.create_topic("orders", **settings)
        await topic.publish(b"one")
        if upkeep == "dropping by age":
            await trio.sleep(30.0)
        world.disk.hang(f"topics/{topic.topic_id}")
        await trio.sleep(60.0 + STUCK_AFTER_S)
        (part,) = await topic.describe()
        assert part.state == "stuck"
        with trio.fail_after(1.0), pytest.raises(callboard.PartitionUnavailable, match="is stuck"):
            await topic.publish(b"refused")
        world.disk.unhang()
        await trio.sleep(1.0)
        assert (await topic.describe())[0].state == "running"
        await topic.publish(b"two")
        assert list((await world.values(runtime)).values())[-1] == b"two"
