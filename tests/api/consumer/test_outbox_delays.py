"""Acks that publish what is delayed: handle now, follow up later."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import cbor2
import pytest
import trio

import callboard
from callboard.actors.catalog import state as catalog
from callboard.actors.partition import commands as c

LONG_AGO = datetime(2001, 2, 3, tzinfo=UTC)


async def values(topic: Any, partition: int | None = None) -> list[bytes]:
    """All that a topic holds."""
    return [record.value async for record in topic.read(partition=partition)]


async def test_what_is_delayed_waits_after_the_ack(autojump_clock: Any, world: Any) -> None:
    """It comes once, when it is due, as it was published; what is not delayed comes at once."""
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders", priorities=True)
        bills = await runtime.create_topic("bills", partitions=2, priorities=True)
        await orders.publish(b"1")
        at = datetime.fromtimestamp(world.clock.wall_us() / 1e6, UTC)
        given: dict[str, Any] = {
            "key": b"k",
            "headers": {"h": "1"},
            "timestamp": LONG_AGO,
            "ttl": 99.0,
            "priority": 7,
        }
        async with orders.subscribe("billing") as consumer, consumer.receive() as message:
            await message.publish(bills, b"later", delay=60, partition=1, **given)
            await message.publish(bills, callboard.Message(b"at", deliver_at=at + timedelta(seconds=90)))
            await message.publish(bills, b"now", partition=1)
            assert await bills.delayed().list() == ()
        await trio.sleep(1)
        assert await values(bills) == [b"now"]
        waiting = await bills.delayed().list()
        assert sorted(each.value for each in waiting) == [b"at", b"later"]
        await trio.sleep(58.9)
        assert await values(bills) == [b"now"]
        await trio.sleep(0.2)
        assert await values(bills, 1) == [b"now", b"later"]
        (later,) = [record async for record in bills.read(partition=1) if record.value == b"later"]
        found = {name: getattr(later, name) for name in given}
        assert found == {**given, "headers": {"h": b"1"}}
        await trio.sleep(31)
        assert sorted(await values(bills)) == [b"at", b"later", b"now"]
        (statistics,) = (await runtime.stats()).outbox
        assert (statistics.forwarded, statistics.pending, statistics.lost) == (3, 0, 0)


async def test_a_header_that_would_be_lost_is_refused(autojump_clock: Any, world: Any) -> None:
    """A delayed message keeps under that name when it is due; one that does not wait may have it."""
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        await orders.publish(b"1")
        own = {"callboard-delayed": b"mine"}
        async with orders.subscribe("billing") as consumer, consumer.receive() as message:
            for refused in (
                partial(message.publish, orders, b"later", headers=own, delay=1),
                partial(message.publish, orders, callboard.Message(b"later", headers=own, delay=1)),
            ):
                with pytest.raises(callboard.InvalidArgument, match="keeps when it is due"):
                    await refused()
            await message.publish(orders, b"now", headers=own)
        await trio.sleep(9)
        found = [(record.value, record.headers) async for record in orders.read()]
        assert found == [(b"1", {}), (b"now", own)]


async def test_what_is_delayed_and_not_acked_never_comes(autojump_clock: Any, world: Any) -> None:
    """Nor does it wait anywhere."""
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        await orders.publish(b"1")
        async with orders.subscribe("billing") as consumer:
            message = await consumer.get()
            await message.publish(orders, b"never", delay=1)
            await message.nack(delay=100)
        await trio.sleep(9)
        assert await values(orders) == [b"1"]
        assert await orders.delayed().count() == 0


async def test_what_is_delayed_survives_crashes_and_a_closed_directory(
    autojump_clock: Any, world: Any
) -> None:
    """It comes once; a delay that is over before the ack comes at once after it."""
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        await orders.publish(b"1")
        async with orders.subscribe("billing") as consumer, consumer.receive() as message:
            await message.publish(orders, b"long", delay=60)
            await message.publish(orders, b"over", delay=2)
            await trio.sleep(5)
        for name in ("outbox", "scheduler", "topics/orders/delayed-0", "topics/orders/outbox-0"):
            runtime.crash(name, ValueError("on purpose"))
        await trio.sleep(2)
        assert await values(orders) == [b"1", b"over"]
    async with world.open() as runtime:
        orders = runtime.topic("orders")
        await trio.sleep(70)
        assert await values(orders) == [b"1", b"over", b"long"]
        async with orders.subscribe("billing") as consumer:
            message = await consumer.get()
            await message.publish(orders, b"again", delay=1)
            await message.ack()
        await trio.sleep(3)
        assert await values(orders) == [b"1", b"over", b"long", b"again"]


async def test_what_waits_is_deleted_with_its_topic(autojump_clock: Any, world: Any) -> None:
    """Also what was on its way there."""
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        bills = await runtime.create_topic("bills")
        await orders.publish(b"1")
        async with orders.subscribe("billing") as consumer:
            message = await consumer.get()
            await message.publish(bills, b"never", delay=1)
            await runtime.delete_topic("bills")
            await message.ack()
        await trio.sleep(9)
        (statistics,) = (await runtime.stats()).outbox
        assert (statistics.dropped, statistics.pending) == (1, 0)


async def test_older_versions_refuse_what_an_ack_has_delayed(autojump_clock: Any, world: Any) -> None:
    """The catalog says so before the first of it is stored, and not before."""

    def is_refused() -> bool:
        kinds = [
            cbor2.dumps({"kind": kind})[1:] for kind in (catalog.TOPIC_OUTBOX, catalog.TOPIC_OUTBOX_DELAYS)
        ]
        files = b"".join(data for path, data in world.disk.files().items() if "catalog" in path)
        assert kinds[0] in files
        return kinds[1] in files

    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        await orders.publish_batch([b"1", b"2"])
        async with orders.subscribe("billing") as consumer:
            for more, refused in (({}, False), ({"delay": 1}, True)):
                async with consumer.receive() as message:
                    await message.publish(orders, b"of it", **more)
                assert is_refused() is refused


async def test_a_waiting_partition_forgets_sources_that_have_ended(autojump_clock: Any, world: Any) -> None:
    """As the partitions of the topic do."""
    async with world.open() as runtime:
        reminders = await runtime.create_topic("reminders")
        for number in range(3):
            topic = await runtime.create_topic(f"orders-{number}")
            await topic.publish(b"1")
            async with topic.subscribe("billing") as consumer, consumer.receive() as message:
                await message.publish(reminders, b"later", delay=1)
            await trio.sleep(5)
            if number < 2:
                await runtime.delete_topic(f"orders-{number}")
        await trio.sleep(20)
        (waiting,) = reminders._live.waiting
        assert len(await waiting.ref.ask(c.ListSources())) == 1
        assert await values(reminders) == [b"later"] * 3
