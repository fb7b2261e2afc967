"""Power loss at every verb that a publishing and consuming runtime asks of its disk."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import attrs
import pytest
import trio

import callboard
from callboard.log.seams.disk import SyncDirectory
from callboard.simulations.disk.inodes import Unsynced, keep_unsynced, lose_unsynced


@attrs.define
class Promises:
    """What the runtime's user was told before the power went."""

    sent: list[bytes] = attrs.Factory(list)
    stored: dict[int, bytes] = attrs.Factory(dict)
    delivered: dict[int, bytes] = attrs.Factory(dict)
    tried: set[int] = attrs.Factory(set)
    acked: set[int] = attrs.Factory(set)


async def story(runtime: Any, told: Promises) -> None:
    """Publish at every level, roll segments by age, consume and ack some, in one partition."""
    topic = await runtime.create_topic("orders", segment_age=60.0)
    async with topic.subscribe("group", max_in_flight=3) as consumer:
        for turn in range(4):
            await _publish(topic, told, "all", 1)
            await _publish(topic, told, "leader", 2)
            for _ in range(2):
                message = await consumer.get()
                assert told.delivered.setdefault(message.offset, message.value) == message.value
                told.tried.add(message.offset)
                await message.ack()
                told.acked.add(message.offset)
            await _publish(topic, told, "all" if turn % 2 else "leader", 2)
            await trio.sleep(70.0)


async def _publish(topic: Any, told: Promises, acks: str, count: int) -> None:
    values = [b"message %d" % (len(told.sent) + number) for number in range(count)]
    told.sent += values
    receipts = await topic.publish_batch(values, acks=acks)
    if acks == "all":
        told.stored.update({receipt.offset: value for receipt, value in zip(receipts, values, strict=True)})


async def live(world: Any, told: Promises) -> bool:
    """One life; returns whether the power was lost in it."""
    disk = world.disk
    with trio.CancelScope() as life:
        try:
            async with trio.open_nursery() as nursery:

                async def watch() -> None:
                    await disk.crashed.wait()
                    life.cancel()

                nursery.start_soon(watch)
                async with world.open() as runtime:
                    await story(runtime, told)
                nursery.cancel_scope.cancel()
        except* callboard.CallboardError:
            if not disk.is_off:
                raise
    is_lost = bool(disk.is_off)
    disk.power_on()
    return is_lost


async def check(world: Any, told: Promises, what: str) -> None:
    """Whatever was promised holds, and the log goes on."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", segment_age=60.0)
        log = await world.values(runtime)
        assert {offset: log.get(offset) for offset in told.stored} == told.stored, what
        numbers = [told.sent.index(log[offset]) for offset in sorted(log)]
        assert numbers == sorted(set(numbers)), f"{what}: out of order, or twice: {log}"
        seen = {offset: value for offset, value in told.delivered.items() if offset in log}
        assert seen == {offset: log[offset] for offset in seen}, what
        receipt = await topic.publish(b"after")
        assert receipt.offset not in told.delivered, f"{what}: a consumed offset was given away again"
        assert receipt.offset > max(log, default=-1), what
        log[receipt.offset] = b"after"
        again = await world.drain(runtime)
        assert told.acked.isdisjoint(again), f"{what}: an awaited ack was forgotten"
        assert again == {offset: log[offset] for offset in again}, what
        assert set(log) - told.tried <= set(again), f"{what}: an unacked message does not come again"
        assert await world.drain(runtime) == {}, what
    async with world.open() as runtime:
        assert await world.values(runtime) == log, what


def choices(seed: int) -> Any:
    """Power loss that keeps a random half of what was not synced; a directory's changes in order."""
    draw = random.Random(seed)

    def choose(unsynced: Unsynced) -> Iterable[int]:
        if unsynced.is_directory:
            return unsynced.items[: draw.randint(0, len(unsynced.items))]
        return [item for item in unsynced.items if draw.random() < 0.5]

    return choose


async def count_verbs(world: Any) -> int:
    """How many verbs a whole life takes; leaves the disk as it found it."""
    start, before = world.disk.snapshot(), world.disk.verbs_executed
    assert not await live(world, Promises())
    world.disk.restore(start)
    return int(world.disk.verbs_executed - before)


async def lose_power_everywhere(world: Any, every: int, first: int, mode: str) -> None:
    """A life, its power loss and the check, for every so many verbs."""
    start, verbs = world.disk.snapshot(), await count_verbs(world)
    for verb in range(first, verbs, every):
        world.disk.restore(start)
        choose = {"lost": lose_unsynced, "kept": keep_unsynced}.get(mode) or choices(verb)
        world.disk.crash_after(verb, choose, answered=verb % 2 == 0)
        told = Promises()
        lost = await live(world, told)
        assert lost or verb > verbs - 10
        await check(world, told, f"power lost at verb {verb}, unsynced {mode}")


@pytest.mark.parametrize("mode", ["lost", "kept", "random"])
async def test_power_loss_at_any_verb_breaks_no_promise(autojump_clock: Any, world: Any, mode: str) -> None:
    """Synced records and awaited acks are there, consumed offsets are never reused, the rest comes again."""
    await lose_power_everywhere(world, 4, {"lost": 0, "kept": 1, "random": 2}[mode], mode)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["lost", "kept", "random"])
async def test_power_loss_at_every_verb_breaks_no_promise(autojump_clock: Any, world: Any, mode: str) -> None:
    """The same at each verb."""
    await lose_power_everywhere(world, 1, 0, mode)


async def test_two_power_losses_in_a_row_break_no_promise(autojump_clock: Any, world: Any) -> None:
    """Power lost in the middle of recovering from a power loss: recovery begins anew and ends the same."""
    start, verbs = world.disk.snapshot(), await count_verbs(world)
    for first in range(20, verbs, 17):
        for second in range(0, 24, 3):
            world.disk.restore(start)
            told = Promises()
            world.disk.crash_after(first, choices(first))
            await live(world, told)
            world.disk.crash_after(second, choices(second))
            await live(world, told)
            await check(world, told, f"power lost at verb {first}, then {second}")


async def test_a_consumed_leader_record_leaves_its_offset_unused(autojump_clock: Any, world: Any) -> None:
    """A record that power loss took, but that a group had settled durably, leaves an explained gap behind."""
    async with world.doomed(lose_unsynced) as runtime:
        topic = await runtime.create_topic("orders")
        await topic.publish(b"synced")
        receipt = await topic.publish(b"not synced", acks="leader")
        async with topic.subscribe("group") as consumer:
            for value in (b"synced", b"not synced"):
                message = await consumer.get()
                assert message.value == value
                await message.ack()
            # What follows it is synced by nobody.
            lost = await topic.publish(b"nobody saw it", acks="leader")
    assert (receipt.offset, lost.offset) == (1, 2)
    async with world.open() as runtime:
        topic = runtime.topic("orders")
        found = await world.values(runtime)
        assert found[0] == b"synced"
        again = await topic.publish(b"later")
        assert again.offset >= 2
        assert await world.drain(runtime) == {again.offset: b"later"}


async def test_a_leader_record_in_a_consumers_hands_leaves_its_offset_unused(
    autojump_clock: Any, world: Any
) -> None:
    """The same when the journal that names it survived by chance, and the log did not."""

    def journal_survives(unsynced: Unsynced) -> Iterable[int]:
        return unsynced.items if "delivery" in unsynced.path else ()

    async with world.doomed(journal_survives) as runtime:
        topic = await runtime.create_topic("orders")
        await topic.publish(b"synced")
        await topic.publish_batch([b"one", b"two"], acks="leader")
        async with topic.subscribe("group") as consumer:
            held = [await consumer.get() for _ in range(3)]
            await held[0].ack()
            await trio.sleep(1.0)
            await topic.publish(b"three", acks="leader")
            held.append(await consumer.get())
    consumed = {message.offset for message in held}
    async with world.open() as runtime:
        log = await world.values(runtime)
        receipt = await runtime.topic("orders").publish(b"later")
        assert receipt.offset not in consumed
        (part,) = await runtime.topic("orders").describe()
        assert consumed <= set(log) or part.gaps
        del log[0]
        assert await world.drain(runtime) == {**log, receipt.offset: b"later"}


async def test_a_missing_directory_sync_would_be_noticed(autojump_clock: Any, world: Any) -> None:
    """On a disk that ignores directory syncs the checks above fail: they do look at lost names."""
    honest = world.disk._verbs[SyncDirectory]
    world.disk._verbs[SyncDirectory] = lambda _incarnation, _verb: None
    told = Promises()
    with pytest.raises(AssertionError):
        async with world.doomed(lose_unsynced) as runtime:
            topic = await runtime.create_topic("orders")
            await _publish(topic, told, "all", 3)
        world.disk._verbs[SyncDirectory] = honest
        await check(world, told, "directory syncs ignored")
