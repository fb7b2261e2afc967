"""How faults reach into a running system: to actors by their path, to their steps, their mailboxes and their recovery.

All that is looked at or changed here is the kernel's own state, at moments at which no task is between two statements
that belong together. Nothing of it is public, and the kernel knows nothing of faults.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import trio

from callboard.actors.kernel import ActorRef
from callboard.log.errors import CallboardError

if TYPE_CHECKING:
    from callboard.actors.kernel.cell import Cell
    from callboard.simulations.faults.injector import FaultCase
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


def crash(world: World, cell: Cell[Any] | None, words: str) -> bool:
    """Let the actor's incarnation fail, as a task of its machine; whether it has one that lives."""
    if cell is None or cell.incarnation is None or cell.incarnation._nursery is None:
        return False
    from callboard.simulations.world.driver import MEMBER  # the world's package imports this one

    before = MEMBER.set(world.machine)
    try:
        cell.ref.crash(InjectedCrash(words))
    except RuntimeError:  # its nursery closes just now
        return False
    finally:
        MEMBER.reset(before)
    return True


class HeldActors:
    """Which cases hold which actors. The latest hold on an actor counts, then the one before."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._held: dict[str, list[tuple[FaultCase, Callable[[], None]]]] = {}

    def take(self, path: str, case: FaultCase, apply: Callable[[], None]) -> None:
        """Let `apply` hold or slow the actor until the case is over."""
        held = self._held.setdefault(path, [])
        self._world.scheduler.release(path)
        held.append((case, apply))
        apply()
        case.finally_(lambda: self._let_go(path, case))

    def _let_go(self, path: str, case: FaultCase) -> None:
        left = self._held[path] = [hold for hold in self._held[path] if hold[0] is not case]
        self._world.scheduler.release(path)
        if left:
            left[-1][1]()


class Recoveries:
    """Counts the disk verbs of actors that recover."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._watched: dict[FaultCase, tuple[str, Callable[[], None]]] = {}

    def install(self) -> None:
        """Begin to observe every verb."""
        disk = self._world.disk
        first = disk.observer

        def observe(owner: str, verb: str, path: str) -> None:
            if first is not None:
                first(owner, verb, path)
            if self._watched:
                self._see()

        disk.observer = observe

    def watch(self, path: str, case: FaultCase, call: Callable[[], None]) -> None:
        """Call `call` before each disk verb of the actor at `path`, until the case is over."""
        self._watched[case] = (path, call)
        case.finally_(lambda: self._watched.pop(case, None))

    def _see(self) -> None:
        name = trio.lowlevel.current_task().name
        for path, call in tuple(self._watched.values()):
            if name == path or name.startswith(f"{path}:"):
                call()


class Trap:
    """Sees the messages leave a mailbox whose actor must crash with messages in hand.

    It is called before each message that a batch takes. When the actor takes the second message of a batch it raises
    instead, as if the code that handles the first had. When the actor stops in the middle of the first, it is crashed
    there.
    """

    def __init__(self, case: FaultCase, cell: Cell[Any], sprung: Callable[[], None]) -> None:
        self._case = case
        self._cell = cell
        self._sprung = sprung
        cell.mailbox.trap = self

    @property
    def is_set(self) -> bool:
        """Whether it still waits for its actor."""
        return not self._case.is_over

    def open(self) -> None:
        """Remove the trap from the mailbox."""
        mailbox = self._cell.mailbox
        if mailbox.trap is self:
            mailbox.trap = None

    def __call__(self) -> None:
        """The crash, if it is time for it."""
        life = self._cell.incarnation
        batch = None if life is None else life._batch
        if batch is None or self._case.is_over or trio.lowlevel.current_task().name != self._cell.path:
            return
        if batch.taken > 0 and batch.current is not None and len(self._cell.mailbox):
            self._sprung()
            self.open()
            raise InjectedCrash("crashed in the middle of a batch")
        self._case.injector.task(self._look_again, batch)

    async def _look_again(self, batch: object) -> None:
        """The actor may wait for something in the middle of the message that it just took."""
        await trio.lowlevel.checkpoint()
        life = self._cell.incarnation
        if self._case.is_over or life is None or life._batch is not batch:
            return
        if crash(self._case.world, self._cell, "crashed in the middle of a message"):
            self._sprung()


class MessageObserver:
    """Sees each message that leaves a mailbox, before its actor does."""

    def __init__(self, cell: Cell[Any], taken: Callable[[Cell[Any], object], None]) -> None:
        self._cell = cell
        self._taken = taken

    def open(self) -> None:
        """Look no more."""
        if self._cell.mailbox.trap is self:
            self._cell.mailbox.trap = None

    def __call__(self) -> None:
        """A message is about to be taken, if there is one."""
        mailbox: Any = self._cell.mailbox
        waiting = mailbox.front or mailbox._receive._state.data
        if waiting:
            self._taken(self._cell, waiting[0].message)
