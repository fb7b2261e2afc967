"""Power loss at every verb of a runtime whose publishers repeat what they do not know, until they know."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import attrs
import pytest
import trio

import callboard
from callboard.log.limits import Limits
from callboard.simulations.disk.inodes import Unsynced, keep_unsynced, lose_unsynced

SMALL = Limits(publishers_every_bytes=500)
COUNT = 6


@attrs.define
class Known:
    """What publishers were told, over all lives."""

    by_id: dict[bytes, int] = attrs.Factory(dict)
    by_sequence: dict[bytes, int] = attrs.Factory(dict)
    by_offset: dict[bytes, int] = attrs.Factory(dict)


async def publish(runtime: Any, known: Known) -> None:
    """Publish what is not known to be stored, each message in its own way, and every message with an id once more."""
    topic = await runtime.create_topic("orders", dedup_window=1e6, segment_bytes=1 << 16)
    async with topic.producer("import") as producer:
        done = await producer.next_sequence()
        assert done >= len(known.by_sequence), "a stored record of a producer was forgotten"
        for number in range(COUNT):
            value = b"i%d" % number
            receipt = await topic.publish(value, dedup_id=value, acks="leader" if number % 2 else "all")
            if not number % 2:
                assert known.by_id.setdefault(value, receipt.offset) == receipt.offset
            if number >= done:
                value = b"p%d" % number
                known.by_sequence[value] = (await producer.publish(value)).offset
            await expect(topic, known, number)
            await trio.sleep(1)


async def expect(topic: Any, known: Known, number: int) -> None:
    """A compare-and-set, which is known to be won, or is not tried again."""
    value = b"o%d" % number
    if value not in known.by_offset:
        (statistics,) = await topic.describe()
        next_offset = statistics.next_offset
        known.by_offset[value] = -1
        receipt = await topic.publish(value, expected_offset=next_offset)
        assert receipt.offset == next_offset
        known.by_offset[value] = receipt.offset


async def live(world: Any, known: Known) -> bool:
    """One life; returns whether the power was lost in it."""
    with trio.CancelScope() as life:
        try:
            async with trio.open_nursery() as nursery:

                async def watch() -> None:
                    await world.disk.crashed.wait()
                    life.cancel()

                nursery.start_soon(watch)
                async with world.open(limits=SMALL) as runtime:
                    await publish(runtime, known)
                nursery.cancel_scope.cancel()
        except* callboard.CallboardError:
            if not world.disk.is_off:
                raise
    is_lost = bool(world.disk.is_off)
    world.disk.power_on()
    return is_lost


async def check(world: Any, known: Known, what: str) -> None:
    """Everything is stored once, where its publisher was told."""
    async with world.open(limits=SMALL) as runtime:
        log = await world.values(runtime)
        values = list(log.values())
        for prefix in (b"i", b"p"):
            found = [value for value in values if value.startswith(prefix)]
            assert sorted(found) == [b"%c%d" % (prefix[0], number) for number in range(COUNT)], what
        assert [value for value in values if value[:1] == b"p"] == sorted(
            value for value in values if value[:1] == b"p"
        ), what
        for told in (known.by_id, known.by_sequence, known.by_offset):
            stored = {value: offset for value, offset in told.items() if offset >= 0}
            assert stored == {value: offset for offset, value in log.items() if value in stored}, what


def choices(seed: int) -> Any:
    """Power loss that keeps a random half of what was not synced; a directory's changes in order."""
    draw = random.Random(seed)

    def choose(unsynced: Unsynced) -> Iterable[int]:
        if unsynced.is_directory:
            return unsynced.items[: draw.randint(0, len(unsynced.items))]
        return [item for item in unsynced.items if draw.random() < 0.5]

    return choose


async def lose_power_everywhere(world: Any, every: int, first: int, mode: str) -> None:
    """A life that ends with the power, one or two more, and the check, for every so many verbs."""
    start, before = world.disk.snapshot(), world.disk.verbs_executed
    assert not await live(world, Known())
    verbs = world.disk.verbs_executed - before
    for verb in range(first, verbs, every):
        world.disk.restore(start)
        known = Known()
        choose = {"lost": lose_unsynced, "kept": keep_unsynced}.get(mode) or choices(verb)
        world.disk.crash_after(verb, choose, answered=verb % 2 == 0)
        assert await live(world, known) or verb > verbs - 10
        if verb % 3 == 0:
            world.disk.crash_after(verb % 23, choose)
            await live(world, known)
        assert not await live(world, known)
        await check(world, known, f"power lost at verb {verb}, unsynced {mode}")


@pytest.mark.parametrize("mode", ["lost", "kept", "random"])
async def test_power_loss_at_any_verb_stores_nothing_twice(
    autojump_clock: Any, world: Any, mode: str
) -> None:
    """Nor loses anything, nor tells a receipt that does not hold."""
    await lose_power_everywhere(world, 5, {"lost": 0, "kept": 1, "random": 2}[mode], mode)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["lost", "kept", "random"])
async def test_power_loss_at_every_verb_stores_nothing_twice(
    autojump_clock: Any, world: Any, mode: str
) -> None:
    """The same at each verb."""
    await lose_power_everywhere(world, 1, 0, mode)
