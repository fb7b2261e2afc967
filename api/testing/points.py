"""Functions for tests and for the code under test. They find the current simulated world by themselves.

So helpers of simulated and plain tests, and the program itself, can call them: each says what it does outside a world.
They do not import the simulator; where no world was ever made, a call costs one look-up.
"""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from callboard.log.errors import InvalidArgument

if TYPE_CHECKING:
    from callboard.simulations.world import World

CALLABLES = (types.FunctionType, types.MethodType, types.BuiltinFunctionType)
"""Always true, and never meant as a condition."""
LOOK_EVERY_S = 0.01
"""How often `eventually` checks its predicate outside a world."""


def sometimes(name: str, condition: bool = True) -> None:
    """Say that this should happen under some seed: counts a hit of the point `name` if `condition` holds.

    A point that a run reached, or that is in the body of the test, and that no seed hit is listed at the end of the
    pytest run and, with `--callboard-strict`, fails the test. So you notice when a test no longer reaches its case.
    Outside a simulated world nothing happens.
    """
    _check_words("sometimes", "name", name)
    _check_truth("sometimes", condition)
    world = _world()
    if world is not None:
        world.sometimes(name, bool(condition))


def always(condition: bool, words: str) -> None:
    """Require `condition`, in a simulated world and outside; `words` say what was promised.

    Raises `Violation`. Unlike an `assert`, it fails the run in a world even when the code under test, or a supervisor,
    catches the exception.
    """
    _check_words("always", "words", words)
    _check_truth("always", condition)
    if not condition:
        raise _violation("always", words)


async def eventually(predicate: Callable[[], bool], *, within: float, words: str) -> None:
    """Wait until `predicate()` is true, for at most `within` seconds; in a simulated world they are virtual.

    Call `world.heal()` first if faults may continue for ever. Outside a world it checks every 10 ms of trio's clock.
    Raises `Violation` with `words` when the time is up.
    """
    _check_words("eventually", "words", words)
    if not callable(predicate) or inspect.iscoroutinefunction(predicate):
        raise InvalidArgument(
            f"eventually(predicate={predicate!r:.100}): wants a plain function without arguments that returns a bool, "
            "such as `lambda: done`. An async function cannot be checked: let a task set a variable."
        )
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
    """Write a line into the history of the run, so that the story of a failure shows it.

    `fields` are small values: numbers, short strings. Outside a simulated world nothing happens.
    """
    world = _world()
    if world is not None:
        world.note(words, **fields)


def _check_words(function: str, argument: str, given: object) -> None:
    if not isinstance(given, str):
        raise InvalidArgument(f"{function}({argument}={given!r:.100}): wants text.")


def _check_truth(function: str, condition: object) -> None:
    """Refuse a function or a coroutine: it is always true, and was meant to be called or awaited."""
    if isinstance(condition, types.CoroutineType):
        condition.close()
        raise InvalidArgument(
            f"{function}(condition={condition!r:.100}): is a coroutine, which is always true. Await it first."
        )
    if isinstance(condition, CALLABLES):
        raise InvalidArgument(
            f"{function}(condition={condition!r:.100}): is a function, which is always true. Call it."
        )


def _world() -> World | None:
    """The world that the current task runs in. Without the simulator there is none, and this does not import it."""
    module = sys.modules.get("callboard.simulations.world.world")
    found: World | None = None if module is None else module.CURRENT.get()
    return found


def _violation(promise: str, words: str) -> Exception:
    """The violation, also reported to the world, so that it counts even if it is caught."""
    from callboard.simulations.violations import Violation

    world = _world()
    violation = Violation(promise, words)
    return violation if world is None else world.broken(violation)
