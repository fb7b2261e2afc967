"""What is to be served."""

from __future__ import annotations

import trio
import trio.testing

from callboard.actors.unserved import Unserved


async def test_each_thing_is_taken_once_in_order() -> None:
    """What is added twice before it is taken comes once; what is added meanwhile comes with the next call."""
    unserved = Unserved[str]()
    for thing in ("b", "a", "b"):
        unserved.add(thing)
    assert await unserved.take() == ["b", "a"]
    unserved.begin(["a", "c"])
    assert await unserved.take() == ["a", "c"]


async def test_taking_waits_while_there_is_nothing() -> None:
    """Also when a flag is still set of what was taken, or cleared, before."""
    unserved, taken = Unserved[str](), list[str]()

    async def take() -> None:
        taken.extend(await unserved.take())

    unserved.add("gone")
    unserved.clear()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(take)
        await trio.testing.wait_all_tasks_blocked()
        assert taken == []
        unserved.add("late")
    assert taken == ["late"]
