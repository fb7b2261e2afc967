"""The committer: the one task of a partition that writes. One commit in flight; what arrives meanwhile forms the next.

A commit is one disk plan: log bytes, log sync, then delivery-journal bytes and their sync, so the journal is never
durable ahead of the log bytes that it names. The partition's loop never waits for it: it hands over appends (through
the sequencer) and journal records, and the committer answers those who wait.

What happens when a plan fails
------------------------------
========================  ===========================================================================================
failing verb              consequence
========================  ===========================================================================================
of the log                the publishers of this commit hear it (DiskFull: nothing stored; PublishFailed: indefinite);
                          the journal's part goes out in a plan of its own; the log heals before the next append
of the journal            the appends stand; the journal heals at once, from a snapshot of the state in memory, and
                          only if that fails too do the settlers hear it (DiskFull: they hear it at once, and the
                          journal heals with the next records)
========================  ===========================================================================================

Invariants
----------
C1  At most one plan is in flight per partition.
C2  A publisher at level ALL is answered only after a sync that covers its records succeeded.
C3  A journal sync is preceded, in the same plan or earlier, by a sync of every log byte then visible.
C4  Every reply and every `done` handed over is called exactly once, also when the actor crashes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, Protocol

import trio

from callboard.actors.partition.journal_work import Done, JournalWork
from callboard.actors.partition.port import PartitionPort
from callboard.actors.partition.sequencer import Commit, Sequencer
from callboard.log.errors import CallboardError, PlanFailed, StorageError, TopicFull
from callboard.log.journal.journal import Journal, StagedJournal
from callboard.log.limits import STUCK_AFTER_S, Limits
from callboard.log.partition.partition_log import PartitionLog, StagedAppend
from callboard.log.seams.clock import Clock
from callboard.log.seams.disk import Incarnation, Verb

LINGER_S: Final = 0.01
"""How long settlements that nobody waits for may wait for company."""
OWED_RETRY_S: Final = 1.0
OWED_RETRY_MAX_S: Final = 60.0
"""How long after a refusal the journal is tried again although nobody asks; doubled each time, up to the second."""
SNAPSHOT_SPACING: Final = 4
"""No snapshot before so many times the last one's size was journalled: large states are not written over and over."""


class Owner(Protocol):
    """What the committer needs of the partition it serves."""

    def visible_advanced(self) -> None:
        """Records became visible: wake those who wait for them."""
        ...

    def delivery_snapshot(self) -> bytes:
        """The delivery state as it stands in memory."""
        ...

    async def make_room(self) -> TopicFull | None:
        """Drop what retention allows; the error for publishers when the topic stays full."""
        ...


class Committer:
    """Writes for one incarnation of a partition."""

    def __init__(
        self,
        *,
        files: Incarnation,
        log: PartitionLog,
        journal: Journal,
        sequencer: Sequencer,
        clock: Clock,
        port: PartitionPort,
        owner: Owner,
        limits: Limits,
    ) -> None:
        self._files = files
        self._log = log
        self._journal = journal
        self._sequencer = sequencer
        self._clock = clock
        self._port = port
        self._owner = owner
        self._records: list[bytes] = []
        self._done: list[Done] = []
        self._sync = False
        self._urgent = False
        self._linger_until = 0.0
        self._owed_until = 0.0
        """When to try again to write events that only the state in memory has; 0 when there are none."""
        self._owed_delay_s = OWED_RETRY_S
        self._wake = trio.Event()
        self._idle = trio.Event()
        self._busy = False
        self._closed = False
        self._in_flight: Commit | None = None
        self._in_flight_work: JournalWork | None = None
        self._watched = trio.Event()
        self._maintenance = False
        self._flushes: list[tuple[int, Done]] = []
        """Who waits for all appends up to a number, counted from the start."""
        self._taken = 0
        """Records that went into commits."""
        self._segments = log.segment_count
        self._snapshots = 0
        self._history_bytes = limits.journal_history_bytes
        self._pruned_for: tuple[int, int] | None = None
        """The log's first offset, and how many snapshots there were, when the journal was pruned last."""
        self._snapshot_every_bytes = limits.snapshot_every_bytes
        self._snapshot_beyond = limits.snapshot_every_bytes
        self.commits = 0
        self.failed_commits = 0
        self.heals = 0

    # -- handing over: called from the partition's loop, never waits

    def kick(self) -> None:
        """There are appends, or maintenance, to do."""
        if self._closed:
            return
        self._urgent = True
        self._wake.set()

    def record(
        self, data: bytes | None, done: Done | None = None, *, sync: bool, urgent: bool = True
    ) -> None:
        """Journal `data` (None: only call `done` behind what was handed over before) in the next commit."""
        if self._closed:
            return  # a step that nobody waits for: the next start does without it
        if data is not None:
            self._records.append(data)
        if done is not None:
            self._done.append(done)
        self._sync = self._sync or sync
        if urgent:
            self._urgent = True
            self._wake.set()
        elif not self._urgent and self._linger_until == 0.0:
            self._linger_until = self._clock.monotonic() + LINGER_S
            self._wake.set()

    def flush(self, done: Done) -> None:
        """Call `done` once every append handed over before is synced, or has failed."""
        self._flushes.append((self._taken + self._sequencer.records, done))
        self.kick()

    def maintain(self) -> None:
        """Look at retention and the segment's age before the next commit."""
        self._maintenance = True
        self.kick()

    async def closed(self) -> None:
        """Return once everything handed over was committed, or has failed, and the committer writes no more."""
        self._maintenance = False
        now = self._clock.monotonic()
        self._owed_until = min(self._owed_until, now)  # the last try, if there is one to make
        while self._busy or self._sequencer.records or self._has_work():
            self._urgent = True
            self._wake.set()
            if self._idle.is_set():
                self._idle = trio.Event()
            await self._idle.wait()
        self._closed = True

    def _has_work(self) -> bool:
        return bool(self._records or self._done or self._flushes) or self._owes_now()

    def _owes_now(self) -> bool:
        """Whether it is time to try again to write what only the state in memory has."""
        return 0.0 < self._owed_until <= self._clock.monotonic()

    def abandon(self, error: CallboardError) -> None:
        """The incarnation is over: whoever still waits hears `error` (C4)."""
        commits = [self._in_flight, self._sequencer.take()]
        while commits[-1] is not None:
            commits.append(self._sequencer.take())
        for commit in commits:
            if commit is not None:
                commit.fail(error)
        flushes = [done for _, done in self._flushes]
        work = [self._in_flight_work, JournalWork([], [*self._done, *flushes], False)]
        self._in_flight = self._in_flight_work = None
        self._done, self._flushes = [], []
        for part in work:
            if part is not None:
                part.finish(error)

    # -- the task

    async def run(self) -> None:
        """Commit until cancelled."""
        while True:
            await self._work_waits()
            self._busy = True
            self._urgent = False
            self._linger_until = 0.0
            if self._maintenance:
                self._maintenance = False
                await self._upkeep()
            await self._commit()
            if self._log.segment_count != self._segments:
                self._segments = self._log.segment_count
                await self._upkeep()
            if self._journal.needs_maintenance:
                await self._maintain_journal()
            if self._journal.bytes_since_snapshot > self._snapshot_beyond and not self._journal.needs_healing:
                await self._take_snapshot()
            self._busy = False
            self._idle.set()

    async def _upkeep(self) -> None:
        """Roll by age, drop by retention. What the disk refuses now is tried again at the next occasion."""
        try:
            await self._log.roll_if_due(self._clock.wall_us())
            await self._owner.make_room()
            await self._prune_journal()
        except StorageError:
            self.failed_commits += 1

    async def _prune_journal(self) -> None:
        """Journal segments go when a snapshot has replaced them, and the log segments that they tell of are gone.

        There may be no more of them than a limit, and than `retention_bytes` leaves beside the log.
        """
        start, spare = self._log.start_offset, self._log.spare_bytes
        if self._journal.needs_healing or (start, self._snapshots) == self._pruned_for:
            return
        kept = self._history_bytes if spare is None else min(spare, self._history_bytes)
        await self._journal.prune(keep_from_us=self._log.oldest_us, keep_bytes=kept)
        self._pruned_for = start, self._snapshots

    async def _work_waits(self) -> None:
        while not (self._urgent or self._sequencer.records):
            waits = [until for until in (self._linger_until, self._owed_until) if until]
            if waits:
                with trio.move_on_at(min(waits)) as scope:
                    await self._wake.wait()
                if scope.cancelled_caught:
                    return
            else:
                await self._wake.wait()
            self._wake = trio.Event()

    def _take_journal_work(self) -> JournalWork | None:
        if not self._records and not self._done:
            return None
        work = JournalWork(self._records, self._done, self._sync)
        self._records, self._done, self._sync = [], [], False
        return work

    async def _commit(self) -> None:
        commit = self._in_flight = self._sequencer.take()
        if commit is not None:
            self._taken += commit.records
        work = self._in_flight_work = self._take_journal_work()
        if commit is not None:
            refusal = await self._refusal()
            if refusal is not None:
                self._fail(commit, refusal)
                commit = None
        staged = self._log.stage(commit.batches, durable=commit.durable) if commit is not None else None
        if self._journal.needs_healing:
            if work is not None and work.records:
                await self._heal_journal(work)
            elif self._owes_now():
                await self._heal_journal(JournalWork([], [], True))
        if staged is not None or (work is not None and work.records):
            await self._write(commit, staged, work)
        if work is not None and self._in_flight_work is work:
            work.finish(None)
            self._in_flight_work = None
        flushes = self._take_flushes()
        if flushes:
            await self._flush(flushes)

    def _take_flushes(self) -> list[Done]:
        """Those who wait for appends that have all gone into commits."""
        ready = [done for upto, done in self._flushes if upto <= self._taken]
        if ready:
            self._flushes = [flush for flush in self._flushes if flush[0] > self._taken]
        return ready

    async def _flush(self, flushes: list[Done]) -> None:
        """Sync what is visible and not durable, for those who asked."""
        work = self._in_flight_work = JournalWork([], flushes, True)
        error: StorageError | None = None
        if self._log.needs_healing:
            error = await self._heal_log()
        elif self._log.is_dirty:
            try:
                await self._submit([*self._log.stage_sync()])
            except PlanFailed as failed:
                self._log.sync_failed(failed)
                error = failed
            else:
                self._log.synced()
        work.finish(error)
        self._in_flight_work = None

    async def _write(
        self, commit: Commit | None, staged: StagedAppend | None, work: JournalWork | None
    ) -> None:
        plan: list[Verb] = list(staged.verbs) if staged is not None else []
        log_verbs = len(plan)
        log_synced = False
        journalled = None
        if work is not None and work.records:
            if work.sync and self._log_must_sync(commit, staged):
                plan.extend(self._log.stage_sync())
                log_synced = True
                log_verbs = len(plan)
            journalled = self._journal.stage(work.records, sync=work.sync)
            plan.extend(journalled.verbs)
        try:
            await self._submit(plan)
        except PlanFailed as error:
            await self._plan_failed(error, log_verbs, commit, staged, work, journalled)
            return
        self.commits += 1
        if staged is not None and commit is not None:
            self._log.applied(staged)
        if log_synced:
            self._log.synced()
        if staged is not None and commit is not None:
            self._in_flight = None
            commit.answer(staged.base_offsets)
            self._owner.visible_advanced()
        if journalled is not None:
            self._journal.applied(journalled)

    def _log_must_sync(self, commit: Commit | None, staged: StagedAppend | None) -> bool:
        """Whether the journal's sync would be durable ahead of log bytes (C3)."""
        if (commit is not None and commit.durable) or self._log.needs_healing:
            return False
        return staged is not None or self._log.is_dirty

    async def _submit(self, plan: list[Verb]) -> None:
        self._watched.set()
        await self._files.submit(plan)

    # -- failures

    async def _refusal(self) -> CallboardError | None:
        """Why nothing can be appended now; heals the log first when it needs that."""
        if self._log.needs_healing:
            error = await self._heal_log()
            if error is not None:
                return error
        if not self._log.over_limit():
            return None
        try:
            return await self._owner.make_room()
        except StorageError as refused:
            return refused

    async def _heal_log(self) -> StorageError | None:
        """Let the log go on after a failure; what the disk said if it still refuses."""
        self._watched.set()
        try:
            await self._log.heal()
        except StorageError as error:
            return error
        self.heals += 1
        self._owner.visible_advanced()
        return None

    async def _plan_failed(
        self,
        error: PlanFailed,
        log_verbs: int,
        commit: Commit | None,
        staged: StagedAppend | None,
        work: JournalWork | None,
        journalled: StagedJournal | None,
    ) -> None:
        if error.index >= log_verbs:
            if staged is not None and commit is not None:
                self._log.applied(staged)
                self._in_flight = None
                commit.answer(staged.base_offsets)
                self._owner.visible_advanced()
            if work is not None and journalled is not None:
                await self._journal_failed(self._journal.failed(journalled, error), work)
            return
        if staged is not None and commit is not None:
            self._fail(commit, self._log.failed(staged, error))
        else:
            self._log.sync_failed(error)
        if journalled is not None:
            self._journal.withdraw(journalled)
        if work is not None and work.records:
            await self._write(None, None, work)

    async def _journal_failed(self, error: StorageError, work: JournalWork) -> None:
        if self._journal.needs_healing:
            await self._heal_journal(work)
        else:
            # Nothing was stored, but the state in memory has these events (P3). Later ones may build on them, so the
            # next that is written is the whole state.
            self._journal.needs_healing = True
            self._fail_work(work, error)

    def _fail_work(self, work: JournalWork, error: StorageError) -> None:
        self.failed_commits += 1
        work.records = []
        doubtful = error.again()
        doubtful.indefinite = True  # the state in memory has these events, and is written when the disk heals
        work.finish(doubtful)
        self._in_flight_work = None
        if self._journal.needs_healing:  # else the state was written, and what failed came after that
            self._owed_until = self._clock.monotonic() + self._owed_delay_s
            self._owed_delay_s = min(2 * self._owed_delay_s, OWED_RETRY_MAX_S)

    async def _heal_journal(self, work: JournalWork) -> None:
        """Begin a new journal segment with the state in memory, which already includes what `work` records."""
        error = await self._write_state(self._journal.heal)
        if error is None:
            self.heals += 1
            work.records = []
        else:
            self._fail_work(work, error)

    async def _maintain_journal(self) -> None:
        try:
            await self._journal.maintain()
        except StorageError:
            self.failed_commits += 1

    async def _write_state(self, write: Callable[[bytes], Awaitable[None]]) -> StorageError | None:
        """Have the journal write the whole state. It covers the records still waiting: they must not follow it."""
        covered = self._take_journal_work()
        self._watched.set()
        state = self._owner.delivery_snapshot()
        try:
            await write(state)
        except BaseException as error:
            if covered is not None:
                self._put_back(covered)
            if isinstance(error, StorageError):
                return error
            raise
        self._owed_until, self._owed_delay_s = 0.0, OWED_RETRY_S
        self._snapshots += 1
        self._snapshot_beyond = max(self._snapshot_every_bytes, SNAPSHOT_SPACING * len(state))
        if covered is not None:
            try:
                covered.finish(None)
            finally:
                self._done += covered.done  # nobody, unless telling one raised
        return None

    def _put_back(self, work: JournalWork) -> None:
        """What a state that was not written would have covered waits again, before what came since."""
        self._records = [*work.records, *self._records]
        self._done = [*work.done, *self._done]
        self._sync = self._sync or work.sync
        self.kick()

    async def _take_snapshot(self) -> None:
        """Shorten the next recovery; when the disk refuses, try again after as many bytes more."""
        if await self._write_state(self._journal.snapshot) is not None:
            self._snapshot_beyond = self._journal.bytes_since_snapshot + self._snapshot_every_bytes
            return
        try:
            await self._prune_journal()
        except StorageError:
            self.failed_commits += 1

    def _fail(self, commit: Commit, error: CallboardError) -> None:
        self.failed_commits += 1
        self._in_flight = None
        commit.fail(error)

    # -- a disk that does not answer

    async def watch(self, stuck_changed: Callable[[bool], None]) -> None:
        """Call `stuck_changed(True)` when a plan is in flight for too long, and with False when it ended."""
        while True:
            await self._watched.wait()
            self._watched = trio.Event()
            since = self._files.in_flight_since
            if since is None:
                continue
            await trio.sleep_until(since + STUCK_AFTER_S)
            if self._files.in_flight_since != since:
                self._watched.set()
                continue
            stuck_changed(True)
            while self._files.in_flight_since == since:
                if self._idle.is_set():
                    self._idle = trio.Event()
                await self._idle.wait()
            stuck_changed(False)
