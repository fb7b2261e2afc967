"""Words for tests, and for the code under test: they find the simulated world that they are in by themselves.

So they can stand in what several tests share, simulated and plain, and in the program itself: each says what it
does outside a world. Nothing of the simulator is imported for them; where no world was ever made, they cost a look-up.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from callboard.simulations.world import World

__all__ = ["always", "eventually", "note", "sometimes"]

LOOK_EVERY_S = 0.01
"""How often `eventually` looks, outside a world."""


def sometimes(name: str, condition: bool = True) -> None:
    """Say that this should happen under some seed: counts a hit of the point `name` if `condition` holds.

    A point that was reached or stands in the body of the test, and was hit under no seed, is listed at the end of
    the pytest run, and fails the test with `--callboard-strict`. So a test cannot quietly cease to test what it is
    there for. Outside a simulated world nothing happens.
    """
    world = _world()
    if world is not None:
        world.sometimes(name, condition)


def always(condition: bool, words: str) -> None:
    """Demand `condition`, in a simulated world and outside; `words` say what was promised.

    Raises `Violation`. In a world it ends the run as a failure, also when the code under test, or a supervisor,
    catches it; that is what it has over an `assert`.
    """
    if not condition:
        raise _violation("always", words)


async def eventually(predicate: Callable[[], bool], *, within: float, words: str) -> None:
    """Wait until `predicate()` is true, for at most `within` seconds; in a simulated world they are virtual.

    Say `world.heal()` before it if faults may go on for ever. Outside a world it looks every 10 ms of trio's clock.
    Raises `Violation` with `words` when the time is up.
    """
    world = _world()
    if world is not None:
        await world.eventually(predicate, within=within, words=words)
        return
    with trio.move_on_after(within):
        while not predicate():  # noqa: ASYNC110 - the predicate is the caller's: no event tells
            await trio.sleep(LOOK_EVERY_S)
        return
    if not predicate():
        raise _violation("eventually", f"{words}: not within {within:g} seconds")


def note(words: str, **fields: object) -> None:
    """Write a line into the history of the run, so that it stands in the story of a failure.

    `fields` are small values: numbers, short strings. Outside a simulated world nothing happens.
    """
    world = _world()
    if world is not None:
        world.note(words, **fields)


def _world() -> World | None:
    """The world that the current task runs in. Where none can be, the simulator was never imported."""
    module = sys.modules.get("callboard.simulations.world.world")
    found: World | None = None if module is None else module.CURRENT.get()
    return found


def _violation(promise: str, words: str) -> Exception:
    """The violation, told to the world as well: it then counts even if somebody catches it."""
    from callboard.simulations.violations import Violation

    world = _world()
    violation = Violation(promise, words)
    return violation if world is None else world.broken(violation)
