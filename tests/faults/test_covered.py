"""Power loss right after retention has dropped a segment: whatever is made of its records is known without it."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
import trio

import callboard
from callboard.simulations.disk.inodes import lose_unsynced

KEPT: dict[str, Any] = {"segment_bytes": 65_536, "retention_bytes": 65_536}
FILLER = bytes(30_000)
"""Two fill a segment."""
LOSSES = (
    callboard.events.UnreadDropped,
    callboard.events.OutboxLost,
    callboard.events.DelayedLost,
    callboard.events.PublishersLost,
)


@attrs.define
class Known:
    """What the clients of one life were told."""

    ids: set[str] = attrs.Factory(set)
    sequence: int = 0
    acked: set[int] = attrs.Factory(set)
    once: set[tuple[bytes, bytes]] = attrs.Factory(set)
    """Of what the broker publishes: the value, and the instant of a schedule's."""

    def note(self, message: Any) -> None:
        """The broker publishes each of its messages once."""
        if message.value == FILLER:
            return
        instant = message.headers.get("callboard-due", b"")
        assert (message.value, instant) not in self.once
        self.once.add((message.value, instant))


async def live(runtime: Any, known: Known) -> None:
    """Use everything that is made of records, in topics of which little is kept."""
    orders = await runtime.create_topic("orders", dedup_window=1e6, **KEPT)
    bills = await runtime.create_topic("bills", **KEPT)
    await runtime.create_topic("odd")
    await bills.schedule("tick", every=10.0, value=b"tick")
    async with (
        orders.subscribe("billing") as consumer,
        bills.subscribe("books", dead_letter_topic="odd") as books,
        orders.producer("import") as producer,
        trio.open_nursery() as nursery,
    ):

        async def keep_books() -> None:
            async for message in books:
                if message.value == b"of 3":
                    await message.reject(reason="odd")
                    continue
                await message.ack()
                known.note(message)

        nursery.start_soon(keep_books)
        for number in range(8):
            await orders.publish(b"%d" % number, dedup_id=f"order {number}")
            known.ids.add(f"order {number}")
            await bills.publish(b"late %d" % number, delay=3.0)
            for _ in range(min(3, 3 * number + 1)):
                async with consumer.receive(wait=number % 2 == 0) as message:
                    if message.value != FILLER:
                        await message.publish(bills, b"of " + message.value)
                if number % 2 == 0:
                    known.acked.add(message.offset)
            if number % 2:
                assert await consumer.get(timeout=0) is None  # the acks are sent
            # What was acked just now may go at once, before the journal is synced for its own sake.
            await producer.publish_batch([FILLER] * 2)
            known.sequence += 2
            await bills.publish_batch([FILLER] * 2)
            await trio.sleep(4.0)
        await trio.sleep(20.0)
        nursery.cancel_scope.cancel()


async def check(runtime: Any, known: Known) -> None:
    """Nothing is stored again, delivered again, or told to be lost."""
    orders, bills = runtime.topic("orders"), runtime.topic("bills")
    async with orders.subscribe("billing") as consumer:
        while (message := await consumer.get(timeout=1.0)) is not None:
            assert message.offset not in known.acked
            await message.ack()
    end = (await orders.describe())[0].next_offset
    for dedup_id in sorted(known.ids):
        assert (await orders.publish(b"again", dedup_id=dedup_id)).offset < end
    async with orders.producer("import") as producer:
        assert await producer.next_sequence() >= known.sequence
    async with bills.subscribe("books") as consumer:
        while (message := await consumer.get(timeout=15.0)) is not None:
            known.note(message)
            await message.ack()
            if message.value == b"tick":
                break
    letters = [record.value async for record in runtime.topic("odd").read()]
    assert letters in ([], [b"of 3"])
    assert [logged.event for logged in runtime.events() if isinstance(logged.event, LOSSES)] == []
    for partition in (await runtime.stats()).partitions:
        assert (partition.state, partition.lost_records) == ("running", 0)


async def lose_power_at_drop(world: Any, number: int) -> bool:
    """Live until the segment of that number has gone, durably; False when fewer go."""
    known, seen = Known(), 0

    def observe(_: str, verb: str, path: str) -> None:
        nonlocal seen
        if verb != "unlink" or not path.endswith(".log") or "/delivery/" in path:
            return
        if seen == number:
            # The names are synced next, and then the power is lost.
            world.disk.crash_after(2, lose_unsynced, answered=False)
        seen += 1

    world.disk.observer = observe
    with trio.CancelScope() as life:
        try:
            async with trio.open_nursery() as nursery:

                async def watch() -> None:
                    await world.disk.crashed.wait()
                    life.cancel()

                nursery.start_soon(watch)
                async with world.open() as runtime:
                    await live(runtime, known)
                nursery.cancel_scope.cancel()
        except* callboard.CallboardError:
            if not world.disk.is_off:
                raise
    world.disk.observer = None
    is_lost = bool(world.disk.is_off)
    world.disk.power_on()
    if is_lost:
        async with world.open() as runtime:
            await check(runtime, known)
    return is_lost


@pytest.mark.parametrize("latency_s", [0.0, 0.003, 0.02])
async def test_nothing_made_of_a_dropped_segment_is_forgotten(
    autojump_clock: Any, world: Any, latency_s: float
) -> None:
    """Ids, sequences, acks, outboxes, delays, schedules, dead letters: at every segment that goes."""
    start, number = world.disk.snapshot(), 0
    world.disk.latency_s = latency_s
    while await lose_power_at_drop(world, number):
        world.disk.restore(start)
        number += 1
    print("NUMBER", number)
    assert number > 10
