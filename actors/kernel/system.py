"""ActorSystem: what all actors of one tree share: the seams, the actors by path, dead letters, events."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from callboard.actors.kernel.cell import Cell
from callboard.actors.kernel.deadlines import Deadlines
from callboard.actors.kernel.events import DeadLetters, EventLog
from callboard.log.errors import InternalError, InvalidArgument
from callboard.log.limits import USUAL, Limits
from callboard.log.plain import shown

if TYPE_CHECKING:
    from callboard.actors.kernel.mailbox import MailboxSpec
    from callboard.actors.kernel.ref import ActorRef
    from callboard.actors.kernel.wire import Wire
    from callboard.log.seams.clock import Clock
    from callboard.log.seams.disk import Disk
    from callboard.log.seams.entropy import Entropy


class ActorSystem:
    """What all actors of one tree share. It runs nothing itself; supervisors do.

    Invariant Y1: at most one cell has a path.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        entropy: Entropy,
        disk: Disk | None = None,
        limits: Limits = USUAL,
        wire: Wire | None = None,
    ) -> None:
        self.clock = clock
        self.entropy = entropy
        self.disk = disk
        self.limits = limits
        self.wire = wire
        """With one, what its actors send and answer is delivered as a copy."""
        self.dead_letters = DeadLetters(clock)
        self.events = EventLog(clock)
        self.deadlines = Deadlines()
        self._cells: dict[str, Cell[Any]] = {}

    def register(self, path: str, mailbox: MailboxSpec) -> Cell[Any]:
        """Make the cell of a new actor at `path`."""
        if path in self._cells:
            raise InternalError(f"Two actors at {path!r}", invariant="Y1")
        cell = self._cells[path] = Cell(self, path, mailbox)
        return cell

    def forget(self, path: str) -> None:
        """Forget the cell at `path`: its actor has ended for good."""
        del self._cells[path]

    def actor(self, path: str) -> ActorRef[Any]:
        """The actor at `path`, such as "topics/orders/2". Raises `InvalidArgument` when there is none."""
        cell = self._cells.get(path)
        if cell is None:
            raise InvalidArgument(
                f"There is no actor at {shown(path)}. `tree()` shows the actors that exist.", path=path
            )
        return cell.ref

    def close(self, cause: BaseException | None) -> None:
        """The tree has ended: close every cell that is still open, so that no asker waits any more."""
        with ExitStack() as closing:  # all are closed, whatever foreign code raises that hears of one
            for cell in reversed(self._cells.values()):
                closing.callback(cell.close, cause)
