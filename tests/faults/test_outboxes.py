"""Outboxes whose files rot, are repaired, or are set back."""

from __future__ import annotations

from typing import Any

import trio

import callboard
from callboard.actors.partition.delivery_reset import reset_deliveries
from callboard.simulations.entropy import SeededEntropy

FAILING = "topics/bills/0"


async def fill(runtime: Any) -> None:
    """Three orders, two of which are acked with a bill each, which its topic does not take."""
    orders = await runtime.create_topic("orders")
    bills = await runtime.create_topic("bills")
    await orders.publish_batch([b"1", b"2", b"3"])
    while next(node.state for node in runtime.tree().walk() if node.path == FAILING) != "failed":
        runtime.crash(FAILING, ValueError("on purpose"))
        await trio.sleep(0.3)
    async with orders.subscribe("billing") as consumer:
        for _ in range(2):
            async with consumer.receive() as message:
                await message.publish(bills, b"of " + message.value)


async def bill(runtime: Any) -> list[bytes]:
    """Ack the rest with a bill each; all bills then."""
    async with runtime.topic("orders").subscribe("billing") as consumer:
        while (message := await consumer.get(timeout=1)) is not None:
            await message.publish("bills", b"of " + message.value)
            await message.ack()
    await trio.sleep(5)
    return [record.value async for record in runtime.topic("bills").read()]


def rot(world: Any, path: str) -> None:
    """Flip one bit in the last byte of a file that is not zero."""
    world.disk.flip(path, len(world.disk.files()[path].rstrip(b"\0")) - 1, 1)


def outbox(runtime: Any) -> str:
    """The folder of the outbox."""
    return f"topics/{runtime.topic('orders').topic_id}/outbox-0"


async def test_a_payload_that_rots_is_told_and_the_others_come(autojump_clock: Any, world: Any) -> None:
    """Those before it; what is stored in its place later is not taken for it."""
    async with world.open() as runtime:
        await fill(runtime)
        folder = outbox(runtime)
    rot(world, max(path for path in world.segments() if path.startswith(f"{folder}/")))
    async with world.open() as runtime:
        assert await bill(runtime) == [b"of 1", b"of 3"]
        (statistics,) = (await runtime.stats()).outbox
        assert (statistics.lost, statistics.pending) == (1, 0)
        told = [each.event for each in runtime.events() if isinstance(each.event, callboard.OutboxLost)]
        assert [(event.partition, event.records) for event in told] == [("orders/0", 1)]


async def test_an_ack_that_the_journal_lost_publishes_when_it_is_repeated(
    autojump_clock: Any, world: Any
) -> None:
    """What it had published is discarded with it, since the message comes again; numbers are not used again."""
    async with world.open() as runtime:
        await fill(runtime)
        folder = f"topics/{runtime.topic('orders').topic_id}/0/delivery"
    journal = max(path for path in world.journals() if path.startswith(f"{folder}/"))
    content = world.disk.files()[journal]
    world.disk.flip(journal, content.rindex(b"aO") + 1, 1)
    async with world.open() as runtime:
        assert await bill(runtime) == [b"of 1", b"of 2", b"of 3"]


async def test_a_group_that_is_set_back_leaves_the_entries_of_others(autojump_clock: Any, world: Any) -> None:
    """Nothing makes no sense here: nothing is reset, and the entries are there afterwards."""
    async with world.open() as runtime:
        await fill(runtime)
        folder = f"topics/{runtime.topic('orders').topic_id}/0"
    files = await world.disk.incarnate("repair")
    resets, kept = await reset_deliveries(
        files,
        f"{folder}/delivery",
        groups=None,
        joined={1: True},
        clock=world.clock,
        entropy=SeededEntropy(9),
        dry_run=False,
    )
    assert (resets, kept) == ([], [])
    async with world.open() as runtime:
        assert await bill(runtime) == [b"of 1", b"of 2", b"of 3"]
