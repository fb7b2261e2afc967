"""Groups that are described, sought elsewhere and reset, as users meet them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import trio
import trio.lowlevel

import callboard
from callboard.log.errors import GroupNotFound, InvalidArgument, LeaseLost, OffsetOutOfRange, RuntimeClosed


async def taken(consumer: Any, count: int = 1000) -> list[bytes]:
    """What it is given, and acks."""
    found = []
    while len(found) < count and (message := await consumer.get(timeout=1)) is not None:
        found.append(message.value)
        await message.ack()
    return found


def numbers(*offsets: int) -> list[bytes]:
    """The values of these."""
    return [b"%d" % offset for offset in offsets]


@pytest.mark.parametrize(
    "settings", [{}, {"ordering": "key"}, {"ordering": "partition"}, {"mode": "exclusive"}]
)
async def test_a_group_goes_on_from_elsewhere(autojump_clock: Any, world: Any, settings: Any) -> None:
    """With its consumers: from an offset, an end, a time and a message; and after a reopening."""
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        await orders.publish_batch(numbers(*range(5)), keys=[b"k", b"l"] * 2 + [b"k"])
        await trio.sleep(10)
        later = datetime.fromtimestamp(world.clock.wall_us() / 1e6, UTC)
        await orders.publish_batch(numbers(*range(5, 8)))
        async with orders.subscribe("billing", **settings) as consumer:
            assert await taken(consumer) == numbers(*range(8))
            assert await runtime.group("billing").seek(6) == {("orders", 0): 6}
            assert await taken(consumer) == numbers(6, 7)
            assert await runtime.group("billing").seek("beginning") == {("orders", 0): 0}
            assert sorted(await taken(consumer, 2)) == numbers(0, 1)
            assert await runtime.group("billing").seek(later) == {("orders", 0): 5}
            assert await taken(consumer) == numbers(5, 6, 7)
            record = [record async for record in orders.read()][3]
            await runtime.group("billing").seek(record)
            assert sorted(await taken(consumer)) == numbers(*range(3, 8))
            assert await runtime.group("billing").reset() == {("orders", 0): 0}
            assert await runtime.group("billing").seek("end") == {("orders", 0): 8}
            assert await taken(consumer) == []
            await runtime.group("billing").seek(later - timedelta(days=1))
    async with world.open() as runtime, runtime.topic("orders").subscribe("billing") as consumer:
        assert sorted(await taken(consumer)) == numbers(*range(8))


async def test_what_consumers_had_is_theirs_no_more(autojump_clock: Any, world: Any) -> None:
    """Neither what they hold, nor what was fetched for them; old receipts settle nothing."""
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        await orders.publish_batch(numbers(*range(100)))
        async with orders.subscribe("billing") as consumer:
            held = await consumer.get()
            await runtime.group("billing").seek(90)
            with pytest.raises(LeaseLost):
                await held.ack()
            assert await taken(consumer) == numbers(*range(90, 100))
            await runtime.group("billing").seek(0)
            again = await consumer.get()
            assert (again.offset, again.attempt) == (0, 1)
            await again.ack()
            assert await taken(consumer) == numbers(*range(1, 100))
        async with orders.subscribe("other") as consumer:
            batches = consumer.batches(max_records=10)
            first = await anext(batches)
            await runtime.group("other").seek(50)
            second = await anext(batches)
            assert second.offsets()[0] == 50
            with pytest.raises(LeaseLost):
                await first.ack()


async def test_dead_letters_stay_when_a_group_is_sought(autojump_clock: Any, world: Any) -> None:
    """And those to come have numbers of their own."""
    async with world.open() as runtime:
        await runtime.create_topic("dead")
        orders = await runtime.create_topic("orders")
        await orders.publish_batch(numbers(0, 1))
        for _ in range(2):
            async with orders.subscribe("billing", dead_letter_topic="dead") as consumer:
                for _ in range(2):
                    await (await consumer.get()).reject(reason="no")
            await trio.sleep(1)
            await runtime.group("billing").seek("beginning")
        found = [record async for record in runtime.topic("dead").read()]
        assert [record.value for record in found] == numbers(0, 1, 0, 1)
        assert [record.headers["callboard-number"] for record in found] == [b"0", b"1", b"2", b"3"]


async def test_what_cannot_be_sought_is_refused(autojump_clock: Any, world: Any) -> None:
    """In words; and nothing is changed."""
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders", partitions=2)
        await orders.publish_batch(numbers(0, 1), partition=0)
        async with orders.subscribe("billing") as consumer:
            assert len(await taken(consumer)) == 2
            with pytest.raises(OffsetOutOfRange, match="0 to 1, and 2 comes next"):
                await runtime.group("billing").seek(3, topic="orders", partition=0)
            for to in (-1, True, "start", None, 1.5, datetime(2020, 1, 1)):  # noqa: DTZ001
                with pytest.raises(InvalidArgument, match="Nothing was changed"):
                    await runtime.group("billing").seek(to)
            with pytest.raises(InvalidArgument, match="an offset of one"):
                await runtime.group("billing").seek(1)
            with pytest.raises(InvalidArgument, match="reads no topic 'nosuch'"):
                await runtime.group("billing").seek(1, topic="nosuch")
            with pytest.raises(GroupNotFound):
                await runtime.group("nosuch").seek("end")
            assert await taken(consumer) == []
            assert await runtime.group("billing").seek(1, topic="orders", partition=0) == {("orders", 0): 1}
            assert await taken(consumer) == numbers(1)
    with pytest.raises(RuntimeClosed):
        await runtime.group("billing").seek("end")


async def test_a_group_is_described(autojump_clock: Any, world: Any) -> None:
    """Its members by name, its lag, what is in flight, and how old the oldest message is that is not settled."""
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders", partitions=2)
        await orders.publish(b"first", partition=0)
        begun = datetime.fromtimestamp(world.clock.wall_us() / 1e6, UTC)
        await trio.sleep(60)
        await orders.publish_batch(numbers(1, 2), partition=1)
        async with orders.subscribe("billing", name="clerk") as consumer:
            message = await consumer.get()
            found = await runtime.group("billing").describe()
            assert [member.name for member in found.group.consumers] == ["clerk"]
            assert (found.lag, len(found.places)) == (3, 2)
            assert found.in_flight >= 1
            assert found.oldest_unsettled is not None
            assert abs(found.oldest_unsettled - begun) < timedelta(seconds=1)
            await message.ack()
            assert (await runtime.group("billing").describe()).lag == 2
            await taken(consumer)
            found = await runtime.group("billing").describe()
            assert (found.lag, found.in_flight, found.oldest_unsettled) == (0, 0, None)
            assert isinstance(found, callboard.statistics.GroupDescription)
        with pytest.raises(GroupNotFound):
            await runtime.group("nosuch").describe()


@pytest.mark.parametrize("mode", ["shared", "exclusive"])
async def test_members_tell_what_they_have_leased(autojump_clock: Any, world: Any, mode: Any) -> None:
    """How many messages, over all partitions, and since when; a crash of a partition begins that anew."""

    async def members() -> dict[str, tuple[int, float | None]]:
        """By name: how much is in flight, and for how long the oldest lease has been."""
        found = await runtime.group("billing").describe()
        assert sum(member.in_flight for member in found.group.consumers) == found.in_flight
        now = datetime.fromtimestamp(world.clock.wall_us() / 1e6, UTC)
        return {
            member.name: (
                member.in_flight,
                None if (at := member.oldest_leased) is None else round((now - at).total_seconds()),
            )
            for member in found.group.consumers
        }

    async with world.open() as runtime:
        orders = await runtime.create_topic("orders", partitions=2)
        settings = {"mode": mode, "visibility_timeout": 1000}
        async with orders.subscribe("billing", name="ada", **settings) as ada:
            await orders.publish_batch(numbers(*range(3)), partition=0)
            first = await anext(ada.batches(max_records=3))
            assert await members() == {"ada": (3, 0)}
            await trio.sleep(60)
            async with orders.subscribe("billing", name="bob", **settings) as bob:
                assert await members() == {"ada": (3, 60), "bob": (0, None)}
                place = (await runtime.group("billing").describe()).group.consumers[1].assigned
                assert bool(place) == (mode == "exclusive")
                await orders.publish_batch(numbers(3, 4), partition=place[0][1] if place else 1)
                second = await anext((bob if place else ada).batches(max_records=2))
                await trio.sleep(10)
                has = {"ada": (3, 70), "bob": (2, 10)} if place else {"ada": (5, 70), "bob": (0, None)}
                assert await members() == has
                await first.ack()
                assert (await members())["ada"] == ((0, None) if place else (2, 10))
                runtime.crash(f"topics/orders/{second.partition}", OSError("a test"))
                await trio.sleep(5)
                count, age = (await members())["bob" if place else "ada"]
                assert count == 2
                assert age is not None
                assert age < 6
                await second.ack()
                assert await members() == {"ada": (0, None), "bob": (0, None)}
        assert [member.in_flight for group in await runtime.groups() for member in group.consumers] == []


async def test_a_partition_crashes_while_a_group_is_sought(autojump_clock: Any, world: Any) -> None:
    """It is sought all the same, and consumers go on from there."""
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        await orders.publish_batch(numbers(*range(20)))
        async with orders.subscribe("billing") as consumer:
            await taken(consumer)
            for offset in (5, 10, 15):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(runtime.group("billing").seek, offset)
                    await trio.lowlevel.checkpoint()
                    runtime.crash("topics/orders/0", OSError("a test"))
                assert await taken(consumer) == numbers(*range(offset, 20))


async def test_what_a_coordinator_does_is_counted(autojump_clock: Any, world: Any) -> None:
    """Rebalances, hand-overs that were forced and members that stalled; anew when the directory is opened."""

    async def counted() -> tuple[int, int, int]:
        (group,) = (await runtime.stats()).groups
        return group.rebalances, group.forced_handovers, group.stalled_members

    settings: Any = {"rebalance_timeout": 3.0, "session_timeout": 20.0, "visibility_timeout": 600.0}
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders", partitions=2)
        for partition in range(2):
            await orders.publish(b"x", partition=partition)
        async with orders.subscribe("billing", mode="exclusive", max_in_flight=2, **settings) as idler:
            for _ in range(2):
                await idler.get()
            assert await counted() == (1, 0, 0)
            async with orders.subscribe("billing") as busy:
                runtime.crash("groups/billing", RuntimeError("a drill"))
                assert await taken(busy, 1) == []
                await trio.sleep(5)
                assert await taken(busy, 1) == [b"x"]
                assert await counted() == (2, 1, 0)
                for partition in range(2):
                    await orders.publish(b"y", partition=partition)
                with trio.move_on_after(60):
                    while True:
                        await (await busy.get()).ack()
                assert await counted() == (3, 1, 1)
    async with world.open() as runtime:
        assert await counted() == (0, 0, 0)


async def test_the_runtime_does_the_same_by_name(world: Any) -> None:
    """Its methods are those of the handle."""
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        await orders.publish_batch([b"a", b"b"])
        async with orders.subscribe("billing"):
            pass
        group = runtime.group("billing")
        assert await runtime.group("billing").seek("end") == await group.seek("end") == {("orders", 0): 2}
        assert await runtime.group("billing").reset() == await group.reset()
        assert await runtime.group("billing").alter(backoff=7.0) == await group.alter(backoff=7.0)
        assert await runtime.group("billing").describe() == await group.describe()
        await runtime.group("billing").delete()
        with pytest.raises(callboard.GroupNotFound):
            await group.delete()
