"""ActorSystem: the actors of one tree by path, and what they share."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import attrs

from callboard.actors.kernel.cell import Cell
from callboard.actors.kernel.ref import ActorRef
from callboard.actors.kernel.system_services import SystemServices
from callboard.log.errors import InternalError, InvalidArgument
from callboard.log.plain import shown

if TYPE_CHECKING:
    from callboard.actors.kernel.mailbox_spec import MailboxSpec


@attrs.define(eq=False, kw_only=True)
class ActorSystem(SystemServices):
    """What all actors of one tree share. It runs nothing itself; supervisors do.

    Invariant SY1: at most one cell has a path.
    """

    _refs: dict[str, ActorRef[Any]] = attrs.field(init=False, factory=dict)

    def register(self, path: str, mailbox: MailboxSpec) -> ActorRef[Any]:
        """Make the cell of a new actor at `path`, and the reference to it."""
        if path in self._refs:
            raise InternalError(f"Two actors at {path!r}", invariant="SY1")
        cell: Cell[Any] = Cell(self, path, mailbox, self._forget)
        ref = self._refs[path] = ActorRef(cell)
        return ref

    def _forget(self, path: str) -> None:
        """Forget the actor at `path`: it has ended for good."""
        del self._refs[path]

    def actor(self, path: str) -> ActorRef[Any]:
        """The actor at `path`, such as "topics/orders/2". Raises `InvalidArgument` when there is none."""
        ref = self._refs.get(path)
        if ref is None:
            raise InvalidArgument(
                f"There is no actor at {shown(path)}. `tree()` shows the actors that exist.", path=path
            )
        return ref

    def find(self, path: str) -> ActorRef[Any] | None:
        """The actor at `path`; None when there is none."""
        return self._refs.get(path)

    def close(self, cause: BaseException | None) -> None:
        """The tree has ended: close every cell that is still open, so that no asker waits any more."""
        with ExitStack() as closing:  # all are closed, whatever foreign code raises that hears of one
            for ref in reversed(self._refs.values()):
                closing.callback(ref._cell.close, cause)
