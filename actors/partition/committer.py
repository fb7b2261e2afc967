"""The committer: the one task of a partition that writes. One commit in flight; what arrives meanwhile forms the next.

A commit that nothing stands in the way of is begun by the task that wakes the committer: staged, and started where the
disk can do that without waiting. If it only writes, and the disk is quick, it has ended by then. Otherwise the
committer's task waits for it, and does all the rest.

Who writes in a commit is a *participant*. The committer knows nothing else of them: not what a log or a journal is, nor
that there are files. It asks them what they stage, has all of it written as one, in their order, and tells each its own
fate. The order is the promise: what a later participant writes is never durable ahead of what an earlier one wrote.

The disk as an engine of commits (`DiskEngine`) makes one plan of what was staged. Nothing above it assumes files:
another engine, a replicated log say, could write the same values as one transaction.

When a commit fails, the participants before the failing one are `applied`. It has `failed`, and is asked in the same
commit whether it can put that right (`healed`). Those behind it are `withdrawn`, and stage once more. One that
refuses (a full topic, a full disk) stages nothing; the others go on without it.

Invariants
----------
CM1  At most one commit is in flight per partition.
CM2  Whatever a participant staged has exactly one fate: applied, failed or withdrawn, unless the task ends under way.
CM3  When a participant's part is synced, those before it sync all they have in the same commit: they are asked last.
CM4  While the committer waits for the disk, whatever for, `watch` measures how long.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import accumulate
from typing import Any, NamedTuple, Protocol

import trio

from callboard.actors.partition.queues import NEVER, NextWrite
from callboard.log.errors import PlanFailed
from callboard.log.limits import STUCK_AFTER_S
from callboard.log.seams.clock import Clock
from callboard.log.seams.disk import Flight, Incarnation, Verb


class Staged(Protocol):
    """What a participant stages."""

    @property
    def verbs(self) -> Sequence[Verb]: ...

    @property
    def is_synced(self) -> bool:
        """Whether it is durable when the commit succeeds (CM3)."""
        ...


class Participant(Protocol):
    """A part that writes in commits. Only `healed` and `upkeep` may wait. It keeps its attributes right itself."""

    due: NextWrite
    """When it next has something to stage."""
    is_healthy: bool
    """Whether `healed` has nothing to do."""
    needs_upkeep: bool
    """Whether `upkeep` has something to do after the next commit."""

    async def healed(self) -> bool:
        """Put right what an earlier failure left; whether it can stage now. If not, it has answered those that wait."""
        ...

    def stage(self, now: float, *, must_sync: bool) -> Staged | None:
        """Its part of the commit, None for nothing; nothing more is due then. `must_sync`: see CM3."""
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

    async def upkeep(self) -> None:
        """Between two commits, when it is needed. What the disk refuses is tried again at another occasion."""
        ...

    def closing(self) -> None:
        """The partition stops: whatever is put off for later becomes due now, once."""
        ...


class CommitFailure(NamedTuple):
    """Where a commit failed: everything before stands, nothing behind was tried."""

    at: int
    """The place of the value that failed."""
    error: PlanFailed


class DiskEngine:
    """Writes the values of one commit in one plan."""

    def __init__(self, files: Incarnation) -> None:
        self._files = files
        self._flight: Flight | None = None

    @property
    def waiting_since(self) -> float | None:
        """Since when the oldest plan has been in flight (monotonic seconds); None when there is none."""
        return self._files.in_flight_since

    def start(self, values: Sequence[Staged]) -> bool:
        """Start writing the values, if that is possible now; True when all of them are written already.

        Otherwise `write` them next, or call `end`.
        """
        verbs = values[0].verbs if len(values) == 1 else [verb for value in values for verb in value.verbs]
        flight = self._files.start(verbs)
        if flight is not None and flight.has_landed:
            return True
        self._flight = flight
        return False

    async def end(self) -> None:
        """Wait for what was started, and will not be written by `write` any more. Cannot be cancelled."""
        flight, self._flight = self._flight, None
        if flight is not None:
            with suppress(PlanFailed):
                await self._files.landed(flight)

    async def write(self, values: Sequence[Staged]) -> CommitFailure | None:
        """Write the values in order; None when all of them are written."""
        flight, self._flight = self._flight, None
        try:
            if flight is not None:
                await self._files.landed(flight)
            else:
                await self._submit([verb for value in values for verb in value.verbs])
        except PlanFailed as error:
            ends = accumulate(len(value.verbs) for value in values)
            at = next((at for at, end in enumerate(ends) if error.index < end), len(values) - 1)
            return CommitFailure(at, error)
        return None

    async def _submit(self, plan: list[Verb]) -> None:
        await self._files.submit(plan)


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
        """There may be something to write. When it is due, and no participant has to heal first, begin the commit here.

        Never waits for a disk that hangs.
        """
        sleeps_until, participants = self._sleeps_until, self._participants
        if sleeps_until is None or self._closed:
            return
        due, is_healthy = NEVER, True
        for participant in participants:  # loops: each publish runs these two, and a comprehension is a call
            if participant.due.at < due:
                due = participant.due.at
            is_healthy = is_healthy and participant.is_healthy
        if due >= sleeps_until:
            return
        self._sleeps_until, now = None, self._clock.monotonic()
        if due <= now and is_healthy:
            self._begun = parts = self._stage(participants, now)
            if not parts or self._engine.start([staged for _, staged in parts]):
                self._begun = []  # what is left to do, if anything, is the task's
                self.commits += bool(parts)
                for participant, staged in parts:
                    participant.applied(staged)
                is_done = True
                for participant in participants:
                    is_done = is_done and participant.due.at >= sleeps_until and not participant.needs_upkeep
                if is_done:
                    self._begun, self._sleeps_until = None, sleeps_until
                    self._idle.set()
                    return
        self._step_since = now
        self._wake.set()

    def _begin_step(self) -> None:
        """From now on the committer may wait for the disk anew (CM4)."""
        self._step_since = self._clock.monotonic()
        self._stepped.set()

    @staticmethod
    def _stage(participants: Sequence[Participant], now: float) -> list[tuple[Participant, Any]]:
        """What each writes, in their order; the last is asked first (CM3)."""
        parts: list[tuple[Participant, Any]] = []
        must_sync = False
        for participant in reversed(participants):
            staged = participant.stage(now, must_sync=must_sync)
            if staged is not None:
                must_sync = must_sync or staged.is_synced
                parts.append((participant, staged))
        parts.reverse()
        return parts

    async def run(self) -> None:
        """Commit until cancelled."""
        try:
            while True:
                while self._begun is None:
                    if self._closed:
                        await trio.sleep_forever()
                    now = self._clock.monotonic()
                    due = min([participant.due.at for participant in self._participants])
                    if due <= now:
                        self._step_since = now
                        break
                    self._wake, self._sleeps_until = trio.Event(), due
                    if due == NEVER:
                        await self._wake.wait()
                    else:
                        with trio.move_on_at(due):
                            await self._wake.wait()
                    self._sleeps_until = None
                self._busy = True
                self._watched.set()
                await self._commit()
                if any(participant.needs_upkeep for participant in self._participants):
                    for participant in self._participants:
                        self._begin_step()
                        await participant.upkeep()
                self._busy = False
                self._idle.set()
                self._stepped.set()
        finally:
            self._sleeps_until = None
            with trio.CancelScope(shield=True):
                await self._engine.end()

    async def _commit(self) -> None:
        """One round for all; after a failure another one, from the participant that failed on."""
        participants: Sequence[Participant] = self._participants
        while participants:
            parts, self._begun = self._begun, None
            if parts is None:
                self._begin_step()
                able = [participant for participant in participants if await participant.healed()]
                parts = self._stage(able, self._clock.monotonic())
            if not parts:
                return
            failure = await self._engine.write([staged for _, staged in parts])
            for participant, staged in parts if failure is None else parts[: failure.at]:
                participant.applied(staged)
            if failure is None:
                self.commits += 1
                return
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
            is_done = self._begun is None and not self._busy
            if is_done and all(participant.due.at == NEVER for participant in self._participants):
                break
            self._idle = trio.Event()
            await self._idle.wait()
        self._closed = True

    async def watch(self, stuck_changed: Callable[[bool], None]) -> None:
        """Call `stuck_changed(True)` when the disk has not answered for too long, and with False when it has (CM4)."""
        while True:
            if not self._busy:
                self._watched = trio.Event()
                await self._watched.wait()
            since, now = self._waiting_since, self._clock.monotonic()
            if since is None or now < since + STUCK_AFTER_S:
                # Also when that commit has ended already: this task need not be woken with every commit.
                await trio.sleep_until((now if since is None else since) + STUCK_AFTER_S)
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
