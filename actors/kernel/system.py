"""ActorSystem: what all actors of one tree share. The seams, who lives at which path, dead letters, events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from callboard.actors.kernel.cell import Cell
from callboard.actors.kernel.dead_letters import DeadLetters
from callboard.actors.kernel.deadlines import Deadlines
from callboard.actors.kernel.events import EventLog
from callboard.log.errors import InternalError, InvalidArgument
from callboard.log.limits import USUAL, Limits

if TYPE_CHECKING:
    from callboard.actors.kernel.mailbox import MailboxSpec
    from callboard.actors.kernel.ref import ActorRef
    from callboard.log.seams.clock import Clock
    from callboard.log.seams.disk import Disk
    from callboard.log.seams.entropy import Entropy


class ActorSystem:
    """The common ground of a tree of actors. It runs nothing itself: supervisors do, and who runs those.

    Invariant Y1: at most one cell lives at a path.
    """

    def __init__(
        self, *, clock: Clock, entropy: Entropy, disk: Disk | None = None, limits: Limits = USUAL
    ) -> None:
        self.clock = clock
        self.entropy = entropy
        self.disk = disk
        self.limits = limits
        self.dead_letters = DeadLetters(clock)
        self.events = EventLog(clock)
        self.deadlines = Deadlines()
        self._cells: dict[str, Cell[Any]] = {}

    def enlist(self, path: str, mailbox: MailboxSpec) -> Cell[Any]:
        """A new cell at `path`."""
        if path in self._cells:
            raise InternalError(f"Two actors at {path!r}", invariant="Y1")
        cell = self._cells[path] = Cell(self, path, mailbox)
        return cell

    def discharge(self, path: str) -> None:
        """Forget the cell at `path`: its actor has ended for good."""
        del self._cells[path]

    def actor(self, path: str) -> ActorRef[Any]:
        """The actor at `path`, such as "topics/orders/2". Raises `InvalidArgument` when nobody lives there."""
        cell = self._cells.get(path)
        if cell is None:
            raise InvalidArgument(f"No actor lives at {path!r}. `tree()` shows those that do.", path=path)
        return cell.ref

    def actors(self) -> list[ActorRef[Any]]:
        """All actors, in the order in which they were enlisted."""
        return [cell.ref for cell in self._cells.values()]

    def close(self, cause: BaseException | None) -> None:
        """The tree has ended, and with it everybody who was not told so: nobody waits for an answer any more."""
        for cell in tuple(self._cells.values()):
            cell.close(cause)
