"""How faults reach into a running system: to actors by their path.

All that is looked at or changed here is the kernel's own state, at moments at which no task is between two statements
that belong together. Nothing of it is public, and the kernel knows nothing of faults.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import trio

from callboard.actors.kernel import ActorRef
from callboard.log.errors import CallboardError

if TYPE_CHECKING:
    from callboard.actors.kernel import ActorIncarnation
    from callboard.actors.kernel.cell import Cell
    from callboard.simulations.world.world import World


class InjectedCrash(Exception):
    """What an actor's code raises when a fault lets it crash. No error of Callboard's: nothing expects it."""


def is_up(world: World) -> bool:
    """Whether a machine runs."""
    return world.machine is not None and not world.machine.dead


def is_alive(task: trio.lowlevel.Task) -> bool:
    """Whether the task is outside of machines, or its machine runs."""
    from callboard.simulations.world.driver import MEMBER  # the world's package imports this one

    member = task.context.get(MEMBER)
    return member is not None and not member.dead


def cell_of(world: World, path: str) -> Cell[Any] | None:
    """What the kernel keeps of the actor at `path`, where a system runs and has one, opening and closing included."""
    machine = world.machine
    if machine is None or machine.dead or machine.runtime is None:
        return None
    session = machine.runtime._session
    if not hasattr(session, "system"):  # the runtime takes its lock just now
        return None
    try:
        ref: ActorRef[Any] = session.system.actor(path)
    except CallboardError:
        return None
    return None if ref._cell.closed else ref._cell


def life_of(cell: Cell[Any]) -> ActorIncarnation[Any] | None:
    """The actor's incarnation, with what only the kernel sees of it."""
    return cast("ActorIncarnation[Any] | None", cell.incarnation)


def crash(world: World, cell: Cell[Any] | None, words: str) -> bool:
    """Let the actor's incarnation fail, as a task of its machine; whether it has one that lives."""
    life = None if cell is None else life_of(cell)
    if cell is None or life is None or life._nursery is None:
        return False
    from callboard.simulations.world.driver import MEMBER  # the world's package imports this one

    before = MEMBER.set(world.machine)
    try:
        ActorRef(cell).crash(InjectedCrash(words))
    except RuntimeError:  # its nursery closes just now
        return False
    finally:
        MEMBER.reset(before)
    return True
