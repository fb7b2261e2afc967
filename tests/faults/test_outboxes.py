"""Outboxes whose files rot, are gone, are repaired, or are set back; and waiting partitions whose files are gone."""

from __future__ import annotations

from typing import Any

import pytest
import trio

import callboard
from callboard.actors.kernel import ActorRef
from callboard.actors.partition import commands as c
from callboard.actors.partition.delivery_reset import reset_deliveries
from callboard.log.limits import Limits
from callboard.log.seams.disk import Unlink
from callboard.simulations.disk.memory_disk import lose_unsynced
from callboard.simulations.entropy import SeededEntropy

FAILING = "topics/bills/0"
DAY_S = 86_400


async def fill(runtime: Any, bills_of: int = 1, size_bytes: int = 0) -> None:
    """Three orders, two of which are acked with so many bills each, which their topic does not take."""
    orders = await runtime.create_topic("orders")
    bills = await runtime.create_topic("bills")
    await orders.publish_batch([b"1", b"2", b"3"])
    while next(node.state for node in runtime.tree().walk() if node.path == FAILING) != "failed":
        runtime.crash(FAILING, ValueError("on purpose"))
        await trio.sleep(0.3)
    async with orders.subscribe("billing") as consumer:
        for _ in range(2):
            async with consumer.receive() as message:
                for _ in range(bills_of):
                    await message.publish(bills, b"of " + message.value + b"." * size_bytes)


async def remove(world: Any, paths: list[str]) -> None:
    """Delete these files."""
    files = await world.disk.incarnate("drill")
    await files.submit(tuple(Unlink(path) for path in paths))


def lost_events(runtime: Any) -> list[tuple[str, int]]:
    """Where it was told that something which acks had published is lost, and how much."""
    told = [each.event for each in runtime.events() if isinstance(each.event, callboard.events.OutboxLost)]
    return [(event.partition, event.records) for event in told]


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
        assert lost_events(runtime) == [("orders/0", 1)]


@pytest.mark.parametrize(
    "also", [(), ("committed",), ("delivery/",), ("delivery/", "committed")], ids=" and ".join
)
@pytest.mark.parametrize("dies", [False, True])
async def test_an_outbox_whose_file_is_gone_is_told(
    autojump_clock: Any, world: Any, also: tuple[str, ...], dies: bool
) -> None:
    """All that it held counts as lost, also without its journal, or when the process dies before anybody looked; the
    rest comes.
    """
    async with world.open() as runtime:
        await fill(runtime)
        folder = outbox(runtime)
    others = tuple(f"{folder}/{name}" for name in also)
    await remove(
        world,
        [*world.segments(f"{folder}/"), *(path for path in world.disk.files() if path.startswith(others))],
    )
    if dies:
        async with world.doomed():
            pass
    async with world.open() as runtime:
        assert await bill(runtime) == [b"of 3"]
        (statistics,) = (await runtime.stats()).outbox
        assert (statistics.lost, statistics.pending, statistics.forwarded) == (2, 0, 1)
        assert lost_events(runtime) == [("orders/0", 2)]
    async with world.open() as runtime:
        await trio.sleep(5)
        assert lost_events(runtime) == []


async def test_an_outbox_whose_first_file_is_gone_is_told(autojump_clock: Any, world: Any) -> None:
    """What lies in later files comes."""
    async with world.open(limits=Limits(segment_bytes=65_536)) as runtime:
        await fill(runtime, bills_of=4, size_bytes=30_000)
        folder = outbox(runtime)
    segments = world.segments(f"{folder}/")
    assert len(segments) > 1
    await remove(world, segments[:1])
    async with world.open() as runtime:
        found = await bill(runtime)
        (statistics,) = (await runtime.stats()).outbox
        assert 0 < statistics.lost == 9 - len(found) < 8
        assert sum(records for _, records in lost_events(runtime)) == statistics.lost


async def test_retention_takes_nothing_that_is_to_be_forwarded(autojump_clock: Any, world: Any) -> None:
    """However long it waits, however full the outbox is, and over restarts."""
    limits = Limits(segment_bytes=65_536, outbox_bytes=131_072)
    async with world.open(limits=limits) as runtime:
        await fill(runtime, bills_of=6, size_bytes=20_000)
        await trio.sleep(DAY_S)
        (statistics,) = (await runtime.stats()).outbox
        assert (statistics.pending, statistics.lost) == (12, 0)
    async with world.doomed(lose_unsynced) as runtime:
        await trio.sleep(0.001)
    async with world.open(limits=limits) as runtime:
        await trio.sleep(DAY_S)
        assert len(await bill(runtime)) == 13
        (statistics,) = (await runtime.stats()).outbox
        assert (statistics.pending, statistics.lost) == (0, 0)


async def test_what_was_forwarded_is_not_lost_when_its_files_are_deleted_and_its_source_forgot_that(
    autojump_clock: Any, world: Any, monkeypatch: Any
) -> None:
    """Its payloads were settled before: it came, and nobody is told anything else."""
    ask = ActorRef.ask

    async def ask_others(ref: Any, message: Any, **given: Any) -> Any:
        if isinstance(message, c.ForgetOutbox):
            return None
        return await ask(ref, message, **given)

    monkeypatch.setattr(ActorRef, "ask", ask_others)
    async with world.open(limits=Limits(segment_bytes=65_536)) as runtime:
        await fill(runtime, bills_of=6, size_bytes=20_000)
        folder = outbox(runtime)
        before = world.segments(f"{folder}/")
        await runtime.restart(FAILING)
        await trio.sleep(DAY_S)
        assert not set(before[:-1]) & set(world.segments(f"{folder}/"))
        (statistics,) = (await runtime.stats()).outbox
        assert (statistics.pending, statistics.forwarded) == (12, 12)
    monkeypatch.undo()
    async with world.open() as runtime:
        assert len(await bill(runtime)) == 13
        (statistics,) = (await runtime.stats()).outbox
        assert (statistics.pending, statistics.lost) == (0, 0)


async def test_delayed_messages_whose_file_is_gone_are_told(autojump_clock: Any, world: Any) -> None:
    """All that waited counts as lost, what came before does not; others come."""
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        await orders.publish(b"early", delay=1)
        await trio.sleep(5)
        for _ in range(3):
            await orders.publish(b"late", delay=DAY_S)
        folder = f"topics/{orders.topic_id}/delayed-0"
    await remove(world, world.segments(f"{folder}/"))
    async with world.open() as runtime:
        await runtime.topic("orders").publish(b"new", delay=1)
        await trio.sleep(2 * DAY_S)
        assert [record.value async for record in runtime.topic("orders").read()] == [b"early", b"new"]
        (statistics,) = (await runtime.stats()).delayed
        assert (statistics.lost, statistics.pending) == (3, 0)


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
