"""Turns at recovering: how many, how much memory, whose is next."""

from __future__ import annotations

from typing import Any

import trio
from trio.testing import wait_all_tasks_blocked

from callboard.actors.partition.openings import Openings, Turn


async def test_topics_take_turns(autojump_clock: Any) -> None:
    """A topic of many partitions does not keep another's waiting until all of its own are done."""
    openings, order = Openings(count_max=1), list[str]()

    async def recover(topic: str, number: int) -> None:
        turn = await openings.wait_turn(topic)
        order.append(f"{topic}{number}")
        await trio.sleep(1)
        openings.end(turn)

    async with trio.open_nursery() as nursery:
        for topic, count in (("a", 4), ("b", 2)):
            for number in range(count):
                nursery.start_soon(recover, topic, number)
                await wait_all_tasks_blocked()
    assert order == ["a0", "a1", "b0", "a2", "b1", "a3"]
    assert openings.counted == 0


async def test_a_needed_turn_comes_before_those_that_nobody_needs(autojump_clock: Any) -> None:
    """Whoever publishes meanwhile, or has published before the turn is asked for, waits only for needed ones (O3)."""
    openings, order = Openings(count_max=1), list[str]()
    turns = {name: Turn(name[0]) for name in ("a0", "a1", "a2", "a3", "b0")}

    async def recover(name: str) -> None:
        turn = turns[name]
        openings.add(turn)
        if name == "b0":
            openings.need(turn)
        await openings.wait(turn)
        order.append(name)
        await trio.sleep(1)
        openings.end(turn)

    async with trio.open_nursery() as nursery:
        for name in turns:
            nursery.start_soon(recover, name)
            await wait_all_tasks_blocked()
        openings.need(turns["a3"])
        openings.need(turns["a3"])
    assert order == ["a0", "b0", "a3", "a1", "a2"]
    assert not openings.counted


async def test_memory_is_held_within_the_budget(autojump_clock: Any) -> None:
    """Recoveries wait until what they may hold fits; one that never would fits when nobody else holds any."""
    openings, most = Openings(count_max=16, bytes_max=100), 0

    async def recover(size_bytes: int) -> None:
        nonlocal most
        turn = await openings.wait_turn("topic")
        await openings.hold(turn, size_bytes)
        if size_bytes <= 100:
            most = max(most, openings.memory.waiting_bytes)
        else:
            assert openings.memory.waiting_bytes == size_bytes
        await trio.sleep(1)
        openings.end(turn)

    async with trio.open_nursery() as nursery:
        for size_bytes in (40, 40, 40, 500, 10, 90, 30):
            nursery.start_soon(recover, size_bytes)
    assert most <= 100
    assert (openings.counted, openings.memory.waiting_bytes) == (0, 0)


async def test_whoever_gives_up_leaves_nothing_behind(autojump_clock: Any) -> None:
    """Cancelled while waiting for a turn, or for memory, it stands in nobody's way."""
    openings = Openings(count_max=2, bytes_max=100)
    turns: list[Turn] = [await openings.wait_turn("a"), await openings.wait_turn("c")]
    await openings.hold(turns[0], 100)
    with trio.move_on_after(1):
        await openings.wait_turn("b")
    with trio.move_on_after(1):
        await openings.hold(turns[1], 50)
    openings.end(turns[1])
    openings.end(turns[1])
    third = await openings.wait_turn("b")
    openings.end(turns[0])
    await openings.hold(third, 100)
    openings.end(third)
    assert (openings.counted, openings.memory.waiting_bytes) == (0, 0)


async def test_a_hung_topic_keeps_half_of_its_turns_and_nobody_elses(autojump_clock: Any) -> None:
    """Its overdue recoveries make room for others, and not for more of its own."""
    openings, begun = Openings(count_max=4), list[str]()

    async def recover(topic: str) -> None:
        turn = await openings.wait_turn(topic)
        begun.append(topic)
        await trio.sleep(5)
        openings.overdue(turn)
        await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        for topic in ("hung", "hung", "hung", "hung", "also", "also", "also", "fine"):
            nursery.start_soon(recover, topic)
            await wait_all_tasks_blocked()
        assert begun == ["hung", "hung", "also", "also"]
        await trio.sleep(6)
        assert begun[4:] == ["fine"]
        assert openings.counted == 1
        nursery.cancel_scope.cancel()
