"""How an actor is the child of a supervisor. (Another supervisor is one too, with the same methods.)

A `TreeNode` is the tree of both at one moment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

import attrs
import trio

from callboard.actors.kernel import ActorIncarnation, ActorRef, ActorSystem, Ending
from callboard.actors.kernel.cell import crashed
from callboard.actors.kernel.events import ActorRestarted
from callboard.actors.kernel.failures import describe
from callboard.log.errors import InternalError
from callboard.supervision.spec import ChildSpec


@attrs.frozen(kw_only=True)
class TreeNode:
    """One supervisor or actor, with its children."""

    path: str
    """ Its path in the tree; empty for the root."""
    name: str
    """The last part of the path."""
    kind: Literal["actor", "supervisor"]
    """What it is."""
    state: str
    """new, starting, running, waiting (for a restart), stopping, failed or stopped."""
    restarts: int
    """How often it was started again after a failure, since the runtime opened."""
    mailbox_depth: int = 0
    """Messages that wait in its mailbox; 0 for a supervisor."""
    rate_per_s: float = 0.0
    """Messages taken from its mailbox per second, an average that decays; 0 for a supervisor."""
    last_failure: str | None = None
    """The last exception that ended it, in words; None before the first."""
    children: tuple[TreeNode, ...] = ()
    """Those below a supervisor, in start order."""

    def walk(self) -> Iterator[TreeNode]:
        """This node and all below it, in start order."""
        yield self
        for child in self.children:
            yield from child.walk()

    def draw(self) -> str:
        """The tree as lines of text."""
        return "\n".join(self._lines("", ""))

    def _lines(self, head: str, indent: str) -> Iterator[str]:
        facts = [self.state]
        if self.restarts:
            facts.append(f"restarts {self.restarts}")
        if self.mailbox_depth:
            facts.append(f"mailbox {self.mailbox_depth}")
        if self.last_failure is not None:
            facts.append(self.last_failure)
        yield f"{head}{self.name} ({', '.join(facts)})"
        for number, child in enumerate(self.children, start=1):
            last = number == len(self.children)
            yield from child._lines(
                indent + ("└── " if last else "├── "), indent + ("    " if last else "│   ")
            )


class ActorChild:
    """An actor under supervision: its cell and its current incarnation. It has at most one life at a time."""

    def __init__(self, system: ActorSystem, path: str, spec: ChildSpec) -> None:
        self._spec = spec
        self._system = system
        self.handle: ActorRef[Any] = system.register(path, spec.mailbox)
        self._cell = self.handle._cell
        self._life: ActorIncarnation[Any] | None = None
        self.changed = trio.lowlevel.ParkingLot()
        """Tasks parked here are woken when the child's phase changes."""
        self.ended_by: BaseException | None = None
        """The failure that ended it for good; None when it ended in order."""

    def begin(self) -> None:
        """Prepare a life; later calls of `stop` and `kill` apply to it."""
        if self._cell.state == "failed":
            self._cell.revive()
        self._life = ActorIncarnation(
            self._system, self.handle, self._spec.start, retry_in_hand=self._spec.retry_in_hand
        )

    async def live(self, ready: Callable[[], None]) -> Ending:
        """Run the life that was begun."""
        if self._life is None:
            raise InternalError(f"Actor {self._cell.path!r} runs without `begin`", invariant="S1")
        try:
            return await self._life.live(ready)
        finally:
            self._life = None
            self._cell.state = "waiting"

    def stop(self, *, final: bool) -> None:
        """End the life gracefully."""
        if self._life is not None:
            self._life.request_stop(final=final)

    def kill(self) -> None:
        """End the life now."""
        if self._life is not None:
            self._life.kill()

    def restarting(self, cause: BaseException | None, delay_s: float) -> None:
        """The next life is planned."""
        cell = self._cell
        cell.restarts += 1
        self._system.events.emit(ActorRestarted(cell.path, cell.number + 1, describe(cause), delay_s))

    def fail(self, cause: BaseException | None) -> None:
        """There will be no next life until a restart is requested."""
        path = self._cell.path
        if cause is None:
            cause = crashed(path, None, "was stopped or killed too often")
        self._cell.fail(cause, self._spec.on_failed)

    def close(self, cause: BaseException | None) -> None:
        """There will be no next life."""
        self.ended_by = cause
        self._cell.close(cause)

    def node(self) -> TreeNode:
        """The child as a value."""
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
