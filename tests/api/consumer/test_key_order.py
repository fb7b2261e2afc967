"""Order per key in a shared group, as its consumers see it."""

from __future__ import annotations

from typing import Any

import pytest
import trio

import callboard
from callboard.log.limits import Limits
from callboard.simulations.clock import VirtualClock
from callboard.simulations.disk.memory_disk import MemoryDisk
from callboard.simulations.entropy import SeededEntropy


class Shop:
    """A disk in memory, runtimes on it, and what a group handled in which order."""

    def __init__(self, **limits: int) -> None:
        self.clock = VirtualClock()
        self.disk = MemoryDisk(clock=self.clock)
        self.limits = Limits(**limits)
        self.lives = 0
        self.begun: list[tuple[bytes, bytes]] = []

    def open(self) -> Any:
        self.lives += 1
        return callboard.open_runtime(
            disk=self.disk, clock=self.clock, entropy=SeededEntropy(self.lives), limits=self.limits
        )


async def published(runtime: Any, *messages: str, topic: str = "orders") -> Any:
    """A topic with messages such as "a1": the value, under the key "a"; "-1" has no key."""
    orders = await runtime.create_topic(topic)
    for message in messages:
        key = None if message[0] == "-" else message[0].encode()
        await orders.publish(message.encode(), key=key)
    return orders


def subscribe(orders: Any, **settings: Any) -> Any:
    """A consumer of the group with order per key."""
    return orders.subscribe("kitchen", ordering="key", backoff=1.0, **settings)


async def take(consumer: Any, count: int) -> list[Any]:
    """Messages, not settled; fewer when no more are ready."""
    taken = []
    while len(taken) < count:
        message = await consumer.get(timeout=0.2)
        if message is None:
            break
        taken.append(message)
    return taken


def values(messages: list[Any]) -> list[str]:
    return [message.value.decode() for message in messages]


async def test_a_key_is_with_one_consumer_at_a_time(autojump_clock: trio.testing.MockClock) -> None:
    """While a message is not settled, later ones of its key go to nobody; other keys and keyless ones do."""
    async with Shop().open() as runtime:
        orders = await published(runtime, "a1", "a2", "b1", "-1", "a3", "-2", "b2")
        async with subscribe(orders) as first, subscribe(orders) as second:
            mine = await take(first, 10)
            assert values(mine) == ["a1", "b1", "-1", "-2"]
            assert await take(second, 10) == []
            await mine[0].ack()
            assert values(await take(second, 10)) == ["a2"]
            await mine[1].ack()
            assert values(await take(first, 10)) == ["b2"]


@pytest.mark.parametrize("style", ["one by one", "batches"])
async def test_messages_of_a_key_come_in_order_to_many_consumers(
    style: str, autojump_clock: trio.testing.MockClock
) -> None:
    """However many consumers share the work, each key is handled in its order, and all of it."""
    shop, done = Shop(), list[str]()
    names = [f"{key}{number:02}" for number in range(12) for key in "abcde"]

    async def work(orders: Any, patience: float) -> None:
        async with subscribe(orders) as consumer:
            while len(done) < len(names):
                if style == "batches":
                    messages = []
                    with trio.move_on_after(0.5):
                        async for batch in consumer.batches(max_records=7):
                            messages = list(batch)
                            break
                else:
                    message = await consumer.get(timeout=0.5)
                    messages = [] if message is None else [message]
                for message in messages:
                    await trio.sleep(patience)
                    done.append(message.value.decode())
                    await message.ack()

    async with shop.open() as runtime:
        orders = await published(runtime, *names)
        async with trio.open_nursery() as nursery:
            for patience in (0.0, 0.01, 0.03):
                nursery.start_soon(work, orders, patience)
    for key in "abcde":
        assert [name for name in done if name[0] == key] == [name for name in names if name[0] == key]


async def test_a_failing_key_blocks_only_itself(autojump_clock: trio.testing.MockClock) -> None:
    """A nacked message fences its key until it is settled, through its delay; the others are finished meanwhile."""
    async with Shop().open() as runtime:
        orders = await published(runtime, "a1", "b1", "a2", "b2", "a3", "b3")
        async with subscribe(orders) as consumer:
            seen = []
            while len(seen) < 4:
                message = await consumer.get()
                seen.append(message.value.decode())
                if message.value == b"a1":
                    await message.nack(delay=60)
                else:
                    await message.ack()
            assert seen == ["a1", "b1", "b2", "b3"]
            assert await take(consumer, 1) == []
            with trio.fail_after(100):
                [again] = await take_when_due(consumer)
            assert (again.value, again.attempt) == (b"a1", 2)
            await again.ack()
            rest = []
            for _ in range(2):
                message = await consumer.get()
                rest.append(message.value)
                await message.ack()
            assert rest == [b"a2", b"a3"]


async def take_when_due(consumer: Any) -> list[Any]:
    """The next message, whenever it comes."""
    return [await consumer.get()]


async def test_a_lease_that_ran_out_fences_its_key_and_a_late_ack_frees_it(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Until a message is leased again, a late ack counts, and the next of its key comes; afterwards it is lost."""
    async with Shop().open() as runtime:
        orders = await published(runtime, "a1", "a2", "a3")
        async with subscribe(orders, visibility_timeout=1.0) as first:
            [late] = await take(first, 1)
            await trio.sleep(5)
            await late.ack()
            [stale] = await take(first, 1)
            assert stale.value == b"a2"
            await trio.sleep(5)
            async with subscribe(orders) as second:
                [again] = await take(second, 5)
                assert (again.value, again.attempt) == (b"a2", 2)
                with pytest.raises(callboard.LeaseLost):
                    await stale.ack()
                assert await take(first, 1) == []
                await again.ack()
                assert values(await take(first, 5)) == ["a3"]


async def test_fences_are_there_before_the_first_lease_after_opening(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A delayed message still fences its key when the directory was opened again, and when its partition crashed."""
    shop = Shop()
    async with shop.open() as runtime:
        orders = await published(runtime, "a1", "b1", "a2", "b2")
        async with subscribe(orders) as consumer:
            first, second = await take(consumer, 2)
            await first.nack(delay=3600)
            await second.ack()
    async with shop.open() as runtime:
        orders = runtime.topic("orders")
        async with subscribe(orders) as consumer:
            assert values(await take(consumer, 5)) == ["b2"]
            await runtime.restart("topics/orders/0")
            assert await take(consumer, 5) == []
            await orders.publish(b"c1", key=b"c")
            await orders.publish(b"a3", key=b"a")
            assert values(await take(consumer, 5)) == ["c1"]
            await trio.sleep(3700)
            again = await consumer.get()
            assert (again.value, again.attempt) == (b"a1", 2)


async def test_a_window_full_of_fenced_messages_waits_visibly(autojump_clock: trio.testing.MockClock) -> None:
    """At its limit the group looks at nothing further, and says so; it goes on when the key does."""
    async with Shop(range_records=4).open() as runtime:
        orders = await published(runtime, "a1", "a2", "a3", "a4", "a5", "b1")
        async with subscribe(orders) as consumer:
            [first] = await take(consumer, 5)
            [partition] = (await runtime.stats()).partitions
            [group] = partition.groups
            assert (group.fenced, group.window_records, group.is_window_full) == (3, 4, True)
            assert (group.ready, group.pending) == (2, 6)
            await first.ack()
            [second] = await take(consumer, 5)
            assert second.value == b"a2"
            await second.ack()
            assert values(await take(consumer, 5)) == ["a3", "b1"]
            [partition] = (await runtime.stats()).partitions
            assert (partition.groups[0].fenced, partition.groups[0].is_window_full) == (2, True)


async def test_groups_that_share_a_tiny_budget_all_finish(autojump_clock: trio.testing.MockClock) -> None:
    """When all windows together exceed the budget, they are read again instead of being held."""
    async with Shop(window_bytes=100).open() as runtime:
        names = [f"{key}{number:02}" for number in range(20) for key in "abc"]
        orders = await published(runtime, *names)
        found: dict[str, list[str]] = {}

        async def work(group: str) -> None:
            found[group] = []
            async with orders.subscribe(group, ordering="key") as consumer:
                while len(found[group]) < len(names):
                    message = await consumer.get()
                    found[group].append(message.value.decode())
                    await message.ack()

        async with trio.open_nursery() as nursery:
            for group in ("first", "second", "third"):
                nursery.start_soon(work, group)
        for handled in found.values():
            for key in "abc":
                assert [name for name in handled if name[0] == key] == [n for n in names if n[0] == key]


async def test_the_order_of_a_group_is_fixed(autojump_clock: trio.testing.MockClock) -> None:
    """A group keeps the order that it was opened with."""
    async with Shop().open() as runtime:
        orders = await published(runtime, "a1")
        async with subscribe(orders):
            pass
        async with orders.subscribe("kitchen") as consumer:
            assert consumer.settings.ordering == "key"
        with pytest.raises(callboard.CallboardError, match="ordering is 'key'"):
            async with orders.subscribe("kitchen", ordering="none"):
                pass


async def test_messages_without_keys_take_no_place_in_the_window(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Where no message has a key, the order costs nothing for each; the first key is looked at before it is leased."""
    shop = Shop()
    async with shop.open() as runtime:
        orders = await runtime.create_topic("orders")
        await orders.publish_batch([b"-%d" % number for number in range(50)])
        async with subscribe(orders) as consumer:
            taken = await take(consumer, 10)
            [partition] = (await runtime.stats()).partitions
            [group] = partition.groups
            assert (group.window_records, group.window_bytes, group.fenced) == (50, 0, 0)
            await orders.publish_batch([b"a1", b"a2"], keys=[b"a", b"a"])
            taken += await take(consumer, 60)
            assert values(taken) == [*(f"-{number}" for number in range(50)), "a1"]
            for message in taken:
                await message.ack()
            assert values(await take(consumer, 5)) == ["a2"]
