"""The committer: the one task of a partition that writes. One commit in flight; what arrives meanwhile forms the next.

A commit that nothing stands in the way of is begun by whoever wakes the committer: staged, and started where the disk
can do that without waiting. If it only writes, and the disk is quick, it has ended by then. Otherwise the committer's
task waits for it, and does all the rest.

Who writes in a commit is a *participant*. The committer knows nothing else of them: not what a log or a journal is, nor
that there are files (`commit_plan`). It asks them in their order what they stage, has all of it written as one, and
tells each its own fate. The order is the promise: what a later participant writes is never durable ahead of what an
earlier one wrote before it.

What happens when a commit fails
--------------------------------
=======================  ============================================================================================
the participant          hears
=======================  ============================================================================================
before the failing one   `applied`: what it staged stands
the failing one          `failed`; it is asked in the same commit whether it can put that right (`healed`)
behind it                `withdrawn`: nothing of it was tried; it stages once more, in the same commit
=======================  ============================================================================================

A participant that refuses (a full topic, a full disk) stages nothing; the others go on without it.

Invariants
----------
C1  At most one commit is in flight per partition.
C2  Whatever a participant staged has exactly one fate: applied, failed or withdrawn, unless the task ends under way.
C3  When a participant's part names what others wrote (`needs_sync`), those before it sync all they have in the same
    commit.
C4  While the committer waits for the disk, whatever for, `watch` measures how long.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol

import trio

from callboard.actors.partition.commit_plan import DiskEngine, Staged
from callboard.log.errors import PlanFailed
from callboard.log.limits import STUCK_AFTER_S
from callboard.log.seams.clock import Clock

__all__ = ["NEVER", "Commit", "Committer", "Participant"]

NEVER: Final = float("inf")


class Commit(NamedTuple):
    """What participants have to know of a commit."""

    must_sync: bool
    """Some participant names what others have written: it must be durable no later than that name."""


class Participant(Protocol):
    """Somebody who writes in commits. Only `healed` and `upkeep` may wait."""

    @property
    def due_at(self) -> float:
        """When it next has something to stage, in monotonic seconds; `NEVER` when it has nothing."""
        ...

    @property
    def needs_sync(self) -> bool:
        """Whether what it stages next names what others wrote (C3)."""
        ...

    @property
    def is_healthy(self) -> bool:
        """Whether `healed` has nothing to do."""
        ...

    async def healed(self) -> bool:
        """Put right what an earlier failure left; whether it can stage now. If not, it has told those who wait."""
        ...

    def stage(self, commit: Commit) -> Staged | None:
        """Its part of the commit; None for nothing."""
        ...

    def applied(self, staged: Any) -> None:
        """Its part is written."""
        ...

    def failed(self, staged: Any, error: PlanFailed) -> None:
        """Its part failed, and may be written in parts."""
        ...

    def withdrawn(self, staged: Any) -> None:
        """Something before it failed: nothing of its part was tried."""
        ...

    @property
    def needs_upkeep(self) -> bool:
        """Whether `upkeep` has something to do now."""
        ...

    async def upkeep(self) -> None:
        """Between two commits. What the disk refuses is tried again at another occasion."""
        ...

    def closing(self) -> None:
        """The partition stops: whatever is put off for later becomes due now, once."""
        ...


class Committer:
    """Writes for one incarnation of a partition."""

    def __init__(self, participants: Sequence[Participant], engine: DiskEngine, clock: Clock) -> None:
        self._participants = tuple(participants)
        self._engine = engine
        self._clock = clock
        self._wake = trio.Event()
        self._idle = trio.Event()
        self._watched = trio.Event()
        self._stepped = trio.Event()
        self._step_since = 0.0
        self._sleeps_until: float | None = None
        """None while it does not sleep."""
        self._begun: list[tuple[Participant, Any]] | None = None
        """What was staged for a commit that was begun, and that the task has not come to yet."""
        self._busy = False
        self._closed = False
        self.commits = 0
        """Plans that were written whole."""

    def wake(self) -> None:
        """There may be something to write: begin to, when nothing is in the way. Never waits for a disk that hangs."""
        sleeps_until = self._sleeps_until
        if sleeps_until is None or self._closed:
            return
        due = self._due_at()
        if due >= sleeps_until:
            return
        self._sleeps_until = None
        if (due <= 0.0 or due <= self._clock.monotonic()) and self._begin():
            self._idle.set()
            if self._due_at() >= sleeps_until:
                self._sleeps_until = sleeps_until  # the task sleeps on
                return
        self._wake.set()

    def _due_at(self) -> float:
        return min([participant.due_at for participant in self._participants])

    def _begin(self) -> bool:
        """Stage the commit and start it, unless somebody has to heal first. Whether all is done already."""
        for participant in self._participants:
            if not participant.is_healthy:
                return False
        parts = self._stage(self._participants)
        if parts and not self._engine.start([staged for _, staged in parts]):
            self._begun = parts
            self._begin_work()
            return False
        self._applied(parts)
        for participant in self._participants:
            if participant.needs_upkeep:
                self._begun = []  # the task does the rest
                self._begin_work()
                return False
        return True

    def _begin_work(self) -> None:
        self._busy = True
        self._begin_step()
        self._watched.set()

    def _applied(self, parts: Sequence[tuple[Participant, Any]]) -> None:
        if parts:
            self.commits += 1
        for participant, staged in parts:
            participant.applied(staged)

    def _stage(self, participants: Sequence[Participant]) -> list[tuple[Participant, Any]]:
        commit = Commit(any(participant.needs_sync for participant in participants))
        return [
            (participant, staged)
            for participant in participants
            if (staged := participant.stage(commit)) is not None
        ]

    async def run(self) -> None:
        """Commit until cancelled."""
        try:
            while True:
                await self._work_waits()
                if not self._busy:
                    self._begin_work()
                await self._commit()
                for participant in self._participants:
                    if participant.needs_upkeep:
                        self._begin_step()
                        await participant.upkeep()
                self._busy = False
                self._idle.set()
                self._stepped.set()
        finally:
            self._sleeps_until = None
            with trio.CancelScope(shield=True):
                await self._engine.end()

    def _begin_step(self) -> None:
        self._step_since = self._clock.monotonic()
        self._stepped.set()

    async def _work_waits(self) -> None:
        """Return when something is due, or begun."""
        while self._begun is None:
            if self._closed:
                await trio.sleep_forever()
            due = self._due_at()
            if due <= self._clock.monotonic():
                return
            self._wake = trio.Event()
            self._sleeps_until = due
            try:
                if due == NEVER:
                    await self._wake.wait()
                else:
                    with trio.move_on_at(due):
                        await self._wake.wait()
            finally:
                self._sleeps_until = None

    async def _commit(self) -> None:
        """One round for everybody; after a failure another one, from the participant that failed on."""
        participants: Sequence[Participant] = self._participants
        while participants:
            parts, self._begun = self._begun, None
            if parts is None:
                self._begin_step()
                parts = self._stage(
                    [participant for participant in participants if await participant.healed()]
                )
            if not parts:
                return
            failure = await self._engine.write([staged for _, staged in parts])
            if failure is None:
                self._applied(parts)
                return
            for participant, staged in parts[: failure.at]:
                participant.applied(staged)
            failing, staged = parts[failure.at]
            failing.failed(staged, failure.error)
            for participant, staged in parts[failure.at + 1 :]:
                participant.withdrawn(staged)
            participants = participants[participants.index(failing) :]

    async def closed(self) -> None:
        """Return once everything handed over was committed, or has failed, and the committer writes no more."""
        for participant in self._participants:
            participant.closing()
        while True:
            self.wake()
            if not self._busy and self._due_at() == NEVER:
                break
            self._idle = trio.Event()
            await self._idle.wait()
        self._closed = True

    async def watch(self, stuck_changed: Callable[[bool], None]) -> None:
        """Call `stuck_changed(True)` when the disk has not answered for too long, and with False when it has (C4)."""
        while True:
            if not self._busy:
                self._watched = trio.Event()
                await self._watched.wait()
            since = self._waiting_since
            if since is None:
                continue
            if self._clock.monotonic() < since + STUCK_AFTER_S:
                await trio.sleep_until(since + STUCK_AFTER_S)
                continue
            stuck_changed(True)
            while self._waiting_since == since:
                self._stepped = trio.Event()
                await self._stepped.wait()
            stuck_changed(False)

    @property
    def _waiting_since(self) -> float | None:
        """Since when the committer has waited for the present plan or, between plans, has been at its present step."""
        if not self._busy:
            return None
        since = self._engine.waiting_since
        return self._step_since if since is None else since
