"""Dead letters across power loss at any verb, and across SIGKILL: none is lost or doubled, nobody healthy dies."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

import callboard
from callboard.simulations.disk.inodes import keep_unsynced, lose_unsynced

CHILD = Path(__file__).with_name("dead_letter_child.py")
LIMIT = 3
VALUES = [b"good 0", b"reject 1", b"fail 2", b"good 3", b"hang 4", b"reject 5", b"good 6", b"fail 7"]
DOOMED = {1, 2, 4, 5, 7}


@attrs.define
class Told:
    """What the user of one life, or of several, was told."""

    rejected: set[int] = attrs.Factory(set)
    listed: dict[int, tuple[int, int, str | None]] = attrs.Factory(dict)
    """Number, attempts and reason by offset."""
    forgetting: int = -1
    forgotten: int = -1
    attempts: Counter[int] = attrs.Factory(Counter)
    acked: set[int] = attrs.Factory(set)


async def look(orders: Any, told: Told, *, forget: bool) -> None:
    """List the dead letters; all that was told before is still so."""
    kept = orders.dead_letters("group")
    letters = await kept.list()
    assert [each.number for each in letters] == sorted({each.number for each in letters})
    for letter in letters:
        assert letter.offset in DOOMED, f"{letter.offset} is healthy, and dead"
        assert letter.record.value == VALUES[letter.offset]
        assert letter.number > told.forgotten, "a forgotten dead letter is back"
        fact = letter.number, letter.attempts, letter.reason
        assert told.listed.setdefault(letter.offset, fact) == fact, "a dead letter has changed, or came twice"
    there = {letter.offset for letter in letters}
    for offset, (number, _, _) in told.listed.items():
        assert offset in there or number <= told.forgetting, f"the dead letter of {offset} is lost"
    if forget and letters:
        told.forgetting = max(told.forgetting, letters[0].number)
        await kept.forget(letters[0])
        told.forgotten = told.forgetting


async def story(runtime: Any, told: Told) -> None:
    """Publish what is missing, handle what comes, look at the dead letters now and then."""
    orders = await runtime.create_topic("orders")
    end = (await orders.describe())[0].next_offset
    for value in VALUES[end:]:
        await orders.publish(value)
    async with orders.subscribe(
        "group", max_deliveries=LIMIT, visibility_timeout=5.0, backoff=0.1
    ) as consumer:
        await look(orders, told, forget=False)
        while (message := await consumer.get(timeout=8.0)) is not None:
            offset, fate = message.offset, message.value.split()[0]
            assert offset not in told.rejected | told.acked, f"{offset} comes again"
            told.attempts[offset] += 1
            if fate == b"reject":
                await message.reject(reason=f"reason {offset}")
                told.rejected.add(offset)
            elif fate == b"fail":
                await message.nack(reason=f"reason {offset}")
            elif fate == b"hang":
                await trio.sleep(6.0)
            else:
                await message.ack()
                told.acked.add(offset)
            await look(orders, told, forget=offset % 2 == 0)
        await look(orders, told, forget=False)


async def live(world: Any, told: Told) -> bool:
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


def check(told: Told) -> None:
    """All that is doomed died, once, with its reason; the rest was acked; nothing came too often."""
    assert set(told.listed) == DOOMED
    assert told.acked <= {0, 3, 6}  # an ack that was cut off may have counted
    assert len({number for number, _, _ in told.listed.values()}) == len(DOOMED)
    for offset, (_, attempts, reason) in told.listed.items():
        assert attempts <= LIMIT
        if offset in told.rejected:
            assert reason == f"reason {offset}"
        elif VALUES[offset].split()[0] in (b"reject", b"fail"):  # or power was lost in its last attempt
            assert reason in (f"reason {offset}", "the process ended")
        else:
            assert reason in ("the lease ran out", "the process ended")


@pytest.mark.parametrize("mode", ["lost", "kept"])
async def test_power_loss_at_any_verb_loses_no_dead_letter(
    autojump_clock: Any, world: Any, mode: str
) -> None:
    """What was told of dead letters holds in the next life, and the failing still die once, with their reasons."""
    start, before = world.disk.snapshot(), world.disk.verbs_executed
    told = Told()
    assert not await live(world, told)
    check(told)
    verbs = world.disk.verbs_executed - before
    for verb in range(0 if mode == "lost" else 3, verbs, 6):
        world.disk.restore(start)
        world.disk.crash_after(
            verb, {"lost": lose_unsynced, "kept": keep_unsynced}[mode], answered=verb % 4 == 0
        )
        told = Told()
        await live(world, told)
        assert not await live(world, told)
        try:
            check(told)
        except AssertionError as error:
            raise AssertionError(f"power lost at verb {verb}, unsynced {mode}: {told}") from error


async def dead_letters_in(directory: Path) -> tuple[callboard.DeadLetter, ...]:
    """Those of the group, as another process finds them."""
    async with callboard.open_runtime(directory) as runtime:
        return await runtime.topic("orders").dead_letters("group").list()


def test_dead_letters_survive_sigkill(tmp_path: Path) -> None:
    """A process is killed again and again, also by a message: that one dies, and no other than the doomed."""
    draw, facts = random.Random(7), tmp_path / "facts"
    ended = False
    for _ in range(40):
        with subprocess.Popen(
            [sys.executable, str(CHILD), str(tmp_path / "data"), str(facts)], stdout=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            process.stdout.readline()
            try:
                process.wait(timeout=draw.choice((0.005, 0.02, 0.1, 10.0)))
            except subprocess.TimeoutExpired:
                process.kill()
            ended = process.wait() == 0
        if ended:
            break
    assert ended, "the message that kills goes on for ever"
    told = [line.split() for line in facts.read_text().splitlines()]
    settled: set[int] = set()
    for kind, place, *_ in told:
        if kind == "D":
            assert int(place) not in settled, "a settled message came again"
        else:
            settled.add(int(place))
    letters = trio.run(dead_letters_in, tmp_path / "data")
    by_offset = {letter.offset: letter for letter in letters}
    assert len(letters) == len(by_offset)
    assert {1, 2, 4, 5, 7} <= set(by_offset)
    assert by_offset[4].reason == "the process ended"
    assert {by_offset[offset].reason for offset in (1, 7)} == {"reason 1", "reason 7"}
