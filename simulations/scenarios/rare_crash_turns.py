"""Seldom calls beside crashes: what operators and clients do while the catalog or a partition crashes under them."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import trio
import trio.lowlevel

from callboard.log.errors import CallboardError, InvalidArgument, LeaseLost, RuntimeClosed
from callboard.log.limits import KIB
from callboard.simulations.scenarios.draws import between, one_of

if TYPE_CHECKING:
    from callboard.simulations.scenarios.rare_client import RareClient

WAIT_S: Final = 3.0
PAUSES_S: Final = (0.0, 0.0, 0.001, 0.003, 0.01, 0.05)
STEPS: Final = 40
"""Of other tasks, of which the catalog's are some."""
MANY: Final = 140
"""So many messages that what is settled between two that are not is passed over, and not read."""


async def administer_through_crashes(at: RareClient) -> None:
    """Operators who make, alter and delete topics and groups of the same names while the catalog crashes.

    What somebody was told is so afterwards, as far as he alone used the name.
    """
    shared, group = at.new_name(), at.new_name()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_crash_catalog, at)
        for _ in range(between(at.draws, 1, 3)):
            nursery.start_soon(_administer, at, shared, group)
        own = at.new_name()
        is_there = None
        for _ in range(between(at.draws, 1, 4)):
            is_there = await _make_or_delete(at, own, is_there)
    if is_there is not None:
        found = own in [topic.name for topic in at.runtime.topics()]
        at.expect(found, is_there, f"whether topic {own} is there")
    if is_there:
        receipt = await at.runtime.topic(own).publish(b"1")
        at.expect(receipt.topic, own, "publishing to what was made through crashes")


async def _crash_catalog(at: RareClient) -> None:
    """Crash it at any step of what it does."""
    for _ in range(between(at.draws, 1, 3)):
        await trio.sleep(one_of(at.draws, PAUSES_S))
        for _ in range(between(at.draws, 0, STEPS)):
            await trio.lowlevel.checkpoint()
        with suppress(InvalidArgument, RuntimeClosed):
            at.runtime.crash("catalog", OSError("by mistake"))


async def _make_or_delete(at: RareClient, name: str, is_there: bool | None) -> bool | None:
    """Make the topic, or delete it; whether it is there now, None when that is not known."""
    try:
        if is_there:
            await at.runtime.delete_topic(name)
            return False
        await at.runtime.create_topic(name, partitions=2)
    except CallboardError:
        return None
    return True


async def _administer(at: RareClient, shared: str, group: str) -> None:
    for _ in range(between(at.draws, 2, 6)):
        await trio.sleep(one_of(at.draws, PAUSES_S))
        with suppress(CallboardError):
            await _one_change(at, shared, group)


async def _one_change(at: RareClient, shared: str, group: str) -> None:
    runtime = at.runtime
    match one_of(at.draws, ("make", "make", "delete", "join", "join", "alter", "alter", "end")):
        case "make":
            await runtime.create_topic(shared, partitions=2)
        case "delete":
            await runtime.delete_topic(shared)
        case "join":
            settings: dict[str, Any] = one_of(at.draws, ({}, {"durable": False}, {"group_expiry": 1.0}))
            async with runtime.subscribe(shared, group, **settings) as consumer:
                message = await consumer.get(timeout=one_of(at.draws, (0, 0.01)))
                if message is not None:
                    await message.ack()
        case "alter":
            await runtime.group(group).alter(visibility_timeout=one_of(at.draws, (1.0, 2.0, 3.0)))
        case _:
            await runtime.group(group).delete()


async def wait_for_room(at: RareClient) -> None:
    """Publishers who wait for room at a partition that crashes until it has failed: each hears, and none is forgotten.

    Afterwards the partition is revived, and has room again.
    """
    room = at.world.limits.pending_bytes
    if room > 64 * KIB:
        return
    topic = await at.new_topic(partitions=1)
    path, value = f"topics/{topic.name}/0", bytes(max(1, room // 2))
    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(_publish_and_hear, topic, value)
        for _ in range(30):
            with suppress(InvalidArgument):
                at.runtime.crash(path, OSError("by mistake"))
            await trio.sleep(0.02)
            if (await topic.describe())[0].state == "failed":
                break
            await trio.sleep(one_of(at.draws, (0.0, 0.1)))
        await trio.sleep(0.1)
        with suppress(InvalidArgument):
            await at.runtime.restart(path)
        await trio.sleep(0.1)
        nursery.cancel_scope.cancel()
    await topic.publish(value)


async def _publish_and_hear(topic: Any, value: bytes) -> None:
    while True:
        with suppress(CallboardError):
            await topic.publish(value)
        await trio.sleep(0.05)


async def settle_all_but_the_ends(at: RareClient) -> None:
    """All but the first and the last message are settled when the partition crashes: those two come, and no other."""
    topic = await at.new_topic()
    count = between(at.draws, 3, MANY)
    await topic.publish_batch(
        [b"%d" % number for number in range(count)], keys=[b"%d" % number for number in range(count)]
    )
    group, ordering = at.new_name(), one_of(at.draws, ("none", "key"))
    ends: Any = ({0, count - 1}, {0, 1, count - 1}, {0}, {count - 1}, {count // 2})
    kept: set[int] = one_of(at.draws, ends)
    async with topic.subscribe(group, ordering=ordering, max_in_flight=1_000) as consumer:
        held = [await consumer.get(timeout=WAIT_S) for _ in range(count)]
        if None in held:
            return  # something is slow, or was lost and published again
        for message in held:
            if message.offset not in kept:
                await message.ack(wait=False)
        try:
            await consumer.flush()
            for message in held:
                if message.offset in kept:
                    await message.release()
        except LeaseLost:
            return
    with suppress(InvalidArgument, RuntimeClosed):
        at.runtime.crash(f"topics/{topic.name}/0", OSError("by mistake"))
    again: set[int] = set()
    async with topic.subscribe(group) as consumer:
        while again != kept and (message := await consumer.get(timeout=WAIT_S)) is not None:
            await message.ack()
            again.add(message.offset)
        if not at.world.fault_counts:
            at.expect(sorted(again), sorted(kept), "what comes again of what was not settled")
            at.expect(await consumer.get(timeout=0), None, "receiving what is settled")


async def begin_through_a_crash(at: RareClient, topic: Any, start: str, first: int, end: int) -> None:
    """A group that has joined and read nothing begins at `first` although the partition crashes; once it is deleted,
    the next crash does not bring it back.
    """

    async def crash() -> None:
        with suppress(InvalidArgument, RuntimeClosed):
            at.runtime.crash(f"topics/{topic.name}/0", OSError("by mistake"))
        await trio.sleep(0.1)

    async def open_groups() -> set[int]:
        (partition,) = await topic.describe()
        return {group.group_id for group in partition.groups}

    group, before = at.new_name(), await open_groups()
    async with topic.subscribe(group, start=start):
        pass
    await crash()
    async with topic.subscribe(group) as consumer:
        message = await consumer.get(timeout=WAIT_S if first < end else 0)
    found = end if message is None else message.offset
    if at.world.fault_counts:
        return  # something may be slow, or lost
    at.expect(found, first, f"the first message of a group from the {start}, after a crash of the partition,")
    await at.runtime.group(group).delete()
    await crash()
    at.expect(await open_groups() - before, set(), "looking for a deleted group after a crash")


CRASH_TURNS: Final = (
    administer_through_crashes,
    administer_through_crashes,
    administer_through_crashes,
    wait_for_room,
    settle_all_but_the_ends,
)
"""What crashes at one step of many is made more often."""
