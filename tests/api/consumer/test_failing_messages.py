"""Messages that fail too often, or are rejected: who gets them, and what is kept of them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import callboard
from callboard.log.limits import Limits
from callboard.simulations.clock import VirtualClock
from callboard.simulations.disk.memory_disk import MemoryDisk
from callboard.simulations.entropy import SeededEntropy


class Shop:
    """A disk in memory, and runtimes on it, one after the other."""

    def __init__(self, **limits: int) -> None:
        self.clock = VirtualClock()
        self.disk = MemoryDisk(clock=self.clock)
        self.limits = Limits(**limits)
        self.lives = 0

    def open(self) -> Any:
        self.lives += 1
        return callboard.open_runtime(
            disk=self.disk, clock=self.clock, entropy=SeededEntropy(self.lives), limits=self.limits
        )


async def orders_of(runtime: Any, *values: bytes, **settings: Any) -> Any:
    """The topic, with messages of these values in one partition."""
    orders = await runtime.create_topic("orders", **settings)
    for value in values:
        await orders.publish(value, key=b"alice", headers={"kind": "order"})
    return orders


async def handle(consumer: Any, fails: bytes, *, idle: float = 5.0) -> list[tuple[bytes, int]]:
    """Handle what comes until nothing comes any more; what is `fails` raises in the consumer's body."""
    seen = []
    while True:
        try:
            async with consumer.receive(timeout=idle) as message:
                if message is None:
                    return seen
                seen.append((message.value, message.attempt))
                if message.value == fails:
                    raise RuntimeError("no such customer")
        except RuntimeError:
            pass


@pytest.mark.parametrize("ordering", ["none", "key"])
async def test_a_message_that_fails_too_often_is_a_dead_letter(autojump_clock: Any, ordering: str) -> None:
    """It comes `max_deliveries` times; what is known of it survives; its neighbours are handled once it is settled."""
    shop = Shop()
    async with shop.open() as runtime:
        orders = await orders_of(runtime, b"one", b"two", b"three")
        async with orders.subscribe("billing", max_deliveries=3, ordering=ordering, backoff=0.5) as consumer:
            seen = await handle(consumer, b"two")
        assert [attempt for value, attempt in seen if value == b"two"] == [1, 2, 3]
        assert [attempt for value, attempt in seen if value != b"two"] == [1, 1]
    async with shop.open() as runtime:
        orders = runtime.topic("orders")
        (letter,) = await orders.dead_letters("billing").list()
        assert (letter.offset, letter.number, letter.attempts) == (1, 0, 3)
        assert "no such customer" in letter.reason
        assert letter.consumer_id is not None
        assert (letter.record.value, letter.record.key) == (b"two", b"alice")
        assert letter.record.headers == {"kind": b"order"}
        assert letter.failed_at - letter.record.append_time < timedelta(minutes=1)
        (statistics,) = (await orders.describe())[0].groups
        assert (statistics.pending, statistics.dead_lettered, statistics.dead) == (0, 1, 1)
        assert await orders.dead_letters("billing").forget(letter) == 1
        assert await orders.dead_letters("billing").list() == ()
    async with shop.open() as runtime:
        orders = runtime.topic("orders")
        assert await orders.dead_letters("billing").list() == ()
        (statistics,) = (await orders.describe())[0].groups
        assert (statistics.dead_lettered, statistics.dead) == (1, 0)


async def test_a_rejected_message_is_a_dead_letter_at_once(autojump_clock: Any) -> None:
    """Without `max_deliveries` too; singly or as a batch; it is settled once."""
    async with Shop().open() as runtime:
        orders = await orders_of(runtime, b"one", b"two", b"three")
        async with orders.subscribe("billing") as consumer:
            message = await consumer.get()
            await message.reject(reason="not an order")
            with pytest.raises(callboard.InvalidArgument, match="settled already"):
                await message.ack()
            batch = await consumer.batches(max_records=10).__anext__()
            await batch.reject(reason="neither are these")
            assert await consumer.get(timeout=100.0) is None
        letters = await orders.dead_letters("billing").list()
        assert [(each.offset, each.attempts, each.reason) for each in letters] == [
            (0, 1, "not an order"),
            (1, 1, "neither are these"),
            (2, 1, "neither are these"),
        ]


async def test_a_lease_that_runs_out_is_a_failure(autojump_clock: Any) -> None:
    """What nobody settles in time dies in its last attempt, which it has alone; what came with it does not."""
    async with Shop().open() as runtime:
        orders = await orders_of(runtime, b"one", b"two")
        async with orders.subscribe("billing", max_deliveries=2, visibility_timeout=10.0) as consumer:
            for _ in range(3):
                batch = await consumer.batches(max_records=2, max_wait=1.0).__anext__()
                if [message.offset for message in batch] == [1]:
                    await batch.ack()
            assert await consumer.get(timeout=30.0) is None
        (letter,) = await orders.dead_letters("billing").list()
        assert (letter.offset, letter.attempts, letter.reason) == (0, 2, "the lease ran out")


async def test_a_full_store_of_dead_letters_refuses_and_loses_nothing(autojump_clock: Any) -> None:
    """A reject raises, failed messages wait, healthy ones are delivered; once some are forgotten, all goes on."""
    async with Shop(dead_letters=1).open() as runtime:
        orders = await orders_of(runtime, b"bad", b"bad", b"good")
        async with orders.subscribe("billing", max_deliveries=2, backoff=0.5) as consumer:
            seen = await handle(consumer, b"bad")
            assert sorted(seen) == [(b"bad", 1), (b"bad", 1), (b"bad", 2), (b"good", 1)]
            (statistics,) = (await orders.describe())[0].groups
            assert statistics.is_dead_full
            await orders.publish(b"later")
            message = await consumer.get(timeout=5.0)
            assert message.value == b"later"
            with pytest.raises(callboard.DeadLettersFull):
                await message.reject(reason="no")
            await message.ack()
            kept = orders.dead_letters("billing")
            (letter,) = await kept.list()
            await kept.forget(letter)
            assert await handle(consumer, b"bad") == [(b"bad", 2)]
            (letter,) = await kept.list()
            assert letter.number == 1


async def test_retention_keeps_what_a_dead_letter_names(autojump_clock: Any) -> None:
    """Its segment stays, although all is settled, until the dead letter is forgotten."""
    shop = Shop(segment_bytes=4096)
    async with shop.open() as runtime:
        orders = await orders_of(runtime, b"bad", retention_age=60.0)
        async with orders.subscribe("billing") as consumer:
            message = await consumer.get()
            await message.reject(reason="bad")
            for index in range(20):
                await orders.publish(b"%d" % index * 1000)
                await (await consumer.get()).ack()
            assert await consumer.get(timeout=200.0) is None
            kept = orders.dead_letters("billing")
            (letter,) = await kept.list()
            assert letter.record.value == b"bad"
            assert (await orders.describe())[0].start_offset == 0
            await kept.forget(letter)
            assert await consumer.get(timeout=200.0) is None
            assert (await orders.describe())[0].start_offset > 0


async def test_dead_letters_are_asked_of_a_group_that_is_there(autojump_clock: Any) -> None:
    """Of another topic's group, or with another group's letter, it is refused with words."""
    async with Shop().open() as runtime:
        orders = await orders_of(runtime, b"bad")
        with pytest.raises(callboard.GroupNotFound, match="no group 'billing'"):
            await orders.dead_letters("billing").list()
        for group in ("billing", "audit"):
            async with orders.subscribe(group) as consumer:
                await (await consumer.get()).reject()
        (letter,) = await orders.dead_letters("billing").list()
        assert letter.reason is None
        with pytest.raises(callboard.InvalidArgument, match="Nothing was forgotten"):
            await orders.dead_letters("audit").forget(letter)


async def test_dead_letters_survive_a_crash_of_the_partition(autojump_clock: Any) -> None:
    """Its successor knows them, and gives higher numbers, above all that any copy of the journal can have given."""
    async with Shop().open() as runtime:
        orders = await orders_of(runtime, b"one", b"two")
        async with orders.subscribe("billing") as consumer:
            await (await consumer.get()).reject(reason="first")
            assert runtime.crash("topics/orders/0", RuntimeError("crashed by the test"))
            await (await consumer.get()).reject(reason="second")
        letters = await orders.dead_letters("billing").list()
        assert [(each.offset, each.reason) for each in letters] == [(0, "first"), (1, "second")]
        assert letters[0].number == 0 < letters[1].number
