"""What faults set into mailboxes: a trap that crashes an actor with messages in hand, and an observer of messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import trio

from callboard.simulations.faults.reaching import InjectedCrash, crash, life_of

if TYPE_CHECKING:
    from callboard.actors.kernel.cell import Cell
    from callboard.simulations.faults.injector import FaultCase


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
        life = life_of(self._cell)
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
        life = life_of(self._cell)
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
        waiting = mailbox.front or mailbox._left or mailbox._receive._state.data
        if waiting:
            self._taken(self._cell, waiting[0].message)
