"""The lives of a program in a scenario: it is opened again after each failure, until nothing fails and all is done."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import trio

from callboard.log.errors import CallboardError
from callboard.simulations.checkers import no_bugs
from callboard.simulations.checkers.terms import DEFAULT
from callboard.simulations.history.surviving import Surviving
from callboard.simulations.scenarios.operator import OPERATOR_S, is_passing
from callboard.simulations.violations import Violation
from callboard.simulations.world import bounds

if TYPE_CHECKING:
    from callboard.simulations.world import World

HEAL_AT_S: Final = 20.0
LARGEST_BYTES: Final = 1 << 16
"""More than such a program publishes at a time."""
AMID_STEPS: Final = ("event.", "fault")
"""What the names of probes begin with that actors may pass amid a step of their own."""


async def heal_in_time(world: World, at_s: float = HEAL_AT_S) -> None:
    """Wait for the last fault, but no longer than that; nothing fails from then on."""
    with trio.move_on_after(at_s):
        await world.healed.wait()
    world.heal()


async def came_to_its_end(world: World, session: Callable[[], Awaitable[object]]) -> bool:
    """Run a session; False when it failed for what may pass, and an operator can open the runtime again."""
    try:
        await session()
    except (CallboardError, BaseExceptionGroup) as error:
        if not is_passing(error):
            raise
        await world.rest(OPERATOR_S)
        return False
    return True


async def live_until_done(world: World, session: Callable[[], Awaitable[object]]) -> None:
    """Sessions until one comes to its end. At the probes of clients it is looked inside."""
    if world.inspect is None:
        world.inspect = partial(_look_inside, world)
    while not await came_to_its_end(world, session):
        pass


def _look_inside(world: World, probe: str) -> None:
    problem = (
        None
        if world.machine is None or probe.startswith(AMID_STEPS)
        else bounds.inside(world.machine, LARGEST_BYTES)
    )
    if problem is not None:
        raise world.broken(Violation(bounds.PROMISE, problem))


async def until_readable(world: World, topic: Any) -> None:
    """Wait until all that is stored can be read: a full disk hides what it cannot prove."""
    while True:
        parts = await topic.describe()
        if all(part.state in ("running", "full") and not part.is_recovery_owed for part in parts):
            return
        await world.rest(1.0)


def expect_no_bugs(world: World) -> None:
    """Nothing went wrong inside."""
    broken = no_bugs.check(world.history, Surviving(()), DEFAULT)
    if broken:
        raise world.broken(broken[0])
