"""Child: what a supervisor needs of those below it, be they actors or supervisors; and the one for actors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import trio

from callboard.actors.kernel import ActorRef, ActorSystem, Ending, Incarnation
from callboard.actors.kernel.events import ActorRestarted
from callboard.actors.kernel.failures import describe
from callboard.log.errors import InternalError
from callboard.supervision.roster import Terms
from callboard.supervision.spec import ChildSpec
from callboard.supervision.tree import TreeNode


class Child(Protocol):
    """Somebody who has one life at a time."""

    changed: trio.lowlevel.ParkingLot
    """Who waits here is woken when the child's phase changes."""

    ended_by: BaseException | None
    """What ended it for good, if that was a failure."""

    @property
    def terms(self) -> Terms: ...

    def begin(self) -> None:
        """Prepare a life: from now on stop and kill concern it."""
        ...

    async def live(self, ready: Callable[[], None]) -> Ending:
        """Run the life that was begun."""
        ...

    def stop(self, *, final: bool) -> None:
        """End the life gracefully."""
        ...

    def kill(self) -> None:
        """End the life now."""
        ...

    def restarting(self, cause: BaseException | None, delay_s: float) -> None:
        """Told: the next life is planned."""
        ...

    def fail(self, cause: BaseException | None) -> None:
        """Told: there will be no next life before somebody asks for it."""
        ...

    def close(self, cause: BaseException | None) -> None:
        """Told: there will be no next life."""
        ...

    def node(self) -> TreeNode:
        """How it is now."""
        ...


class ActorChild:
    """An actor under supervision: its cell and the life it has now."""

    def __init__(self, system: ActorSystem, path: str, spec: ChildSpec) -> None:
        self._spec = spec
        self._cell = system.enlist(path, spec.mailbox)
        self._life: Incarnation[Any] | None = None
        self.changed = trio.lowlevel.ParkingLot()
        self.ended_by: BaseException | None = None

    @property
    def ref(self) -> ActorRef[Any]:
        """How others reach the actor."""
        return self._cell.ref

    @property
    def terms(self) -> Terms:
        """What the roster knows of it."""
        spec = self._spec
        return Terms(
            spec.restart, spec.significant, spec.shutdown_grace, spec.backoff, spec.intensity, spec.awaited
        )

    def begin(self) -> None:
        """A new incarnation."""
        if self._cell.state == "failed":
            self._cell.revive()
        self._life = Incarnation(self._cell, self._spec.start, retry_in_hand=self._spec.retry_in_hand)

    async def live(self, ready: Callable[[], None]) -> Ending:
        """Run the incarnation."""
        if self._life is None:
            raise InternalError(f"Actor {self._cell.path!r} lives without a beginning", invariant="S1")
        try:
            return await self._life.live(ready)
        finally:
            self._life = None
            self._cell.state = "waiting"

    def stop(self, *, final: bool) -> None:
        """After the message in hand."""
        if self._life is not None:
            self._life.request_stop()

    def kill(self) -> None:
        """At once."""
        if self._life is not None:
            self._life.kill()

    def restarting(self, cause: BaseException | None, delay_s: float) -> None:
        """Count and tell."""
        cell = self._cell
        cell.restarts += 1
        cell.system.events.emit(ActorRestarted(cell.path, cell.number + 1, describe(cause), delay_s))

    def fail(self, cause: BaseException | None) -> None:
        """Answer questions with an error from now on."""
        self._cell.fail(cause or InternalError("No failure is known", invariant="S4"), self._spec.on_failed)

    def close(self, cause: BaseException | None) -> None:
        """Nobody will answer any more."""
        self.ended_by = cause
        self._cell.close(cause)

    def node(self) -> TreeNode:
        """From the cell's numbers."""
        statistics = self._cell.statistics()
        return TreeNode(
            path=statistics.path,
            name=self._spec.name,
            kind="actor",
            state=statistics.state,
            restarts=statistics.restarts,
            mailbox_depth=statistics.mailbox_depth,
            rate_per_s=statistics.rate_per_s,
            last_failure=statistics.last_failure,
        )
