"""The two participants of every partition's commits: its log, and behind it the delivery journal.

The core decides what is written (`core`); what lies here turns that into frames, and tells the core how it ended.

========================  ===========================================================================================
what fails                consequence
========================  ===========================================================================================
the log                   the publishers of this commit hear it (DiskFull: nothing stored; PublishFailed: indefinite);
                          the log heals before the next append
the journal               it heals at once, from a snapshot of the state in memory, and only if that fails too do those
                          who wait hear it; then it heals with the next records, or by itself after a while
========================  ===========================================================================================

Invariants
----------
W1  A publisher at level ALL is answered only after a sync that covers its records succeeded.
W2  The journal is never durable ahead of the log bytes that it names: the log is the first participant, and syncs when
    the journal does.
W3  What the journal could not take is written no more: the snapshot that heals it holds all of it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import attrs

from callboard.actors.partition.committer import NEVER, Commit
from callboard.actors.partition.core import JournalWork, PartitionCore
from callboard.actors.partition.group_states import GroupEvents
from callboard.actors.partition.sequencer import Appends
from callboard.log.errors import CallboardError, PlanFailed, StorageError
from callboard.log.journal.journal import Journal, StagedJournal
from callboard.log.limits import MIB, USUAL, Limits
from callboard.log.partition.partition_log import PartitionLog, StagedAppend
from callboard.log.seams.clock import Clock
from callboard.log.seams.disk import Verb

__all__ = ["JournalParticipant", "LogParticipant", "wall_offset"]

OWED_RETRY_S: Final = 1.0
OWED_RETRY_MAX_S: Final = 60.0
"""How long after a refusal the journal, or what recovery owes, is tried again unasked; doubled each time, up to the
second."""
SNAPSHOT_SPACING: Final = 4
"""No snapshot before so many times the last one's size was journalled: large states are not written over and over."""
CANCELLED_SIFT_BYTES: Final = 1 * MIB
"""Appends are looked through for publishers that gave up when so many bytes wait."""


@attrs.define(eq=False)
class StagedLog:
    """The log's part of a commit: appends, or only a sync of what is visible."""

    verbs: Sequence[Verb]
    append: StagedAppend | None


class LogParticipant:
    """The partition's log. `perform` carries out what the core wants done; `make_room` drops what retention allows;
    `recovered` is called when the log has healed.
    """

    needs_sync = False

    def __init__(
        self,
        core: PartitionCore,
        log: PartitionLog,
        clock: Clock,
        *,
        perform: Callable[[], None],
        make_room: Callable[[], Awaitable[CallboardError | None]],
        is_cancelled: Callable[[object], bool],
        recovered: Callable[[], None] = lambda: None,
    ) -> None:
        self._core = core
        self._log = log
        self._clock = clock
        self._perform = perform
        self._make_room = make_room
        self._recovered = recovered
        self._is_cancelled = is_cancelled
        self._segments = log.segment_count
        self._is_maintenance_due = False
        self._owed_until = clock.monotonic() + OWED_RETRY_S
        """When to try again what recovery owes although nobody publishes."""
        self._owed_delay_s = OWED_RETRY_S
        self._is_closing = False
        self.in_flight: Appends | None = None
        self.heals = 0
        self.failures = 0

    @property
    def due_at(self) -> float:
        """At once for a flush or upkeep that is asked for; else as the sequencer says, or when what is owed is due."""
        if self._is_maintenance_due or self._core.is_flushing:
            return 0.0
        due = self._core.sequencer.due_at
        return due if self._log.owed_for is None or self._is_closing else min(due, self._owed_until)

    @property
    def _has_appends(self) -> bool:
        return self._core.sequencer.records > 0 or self._core.is_flushing

    @property
    def is_healthy(self) -> bool:
        """Whether appends could be staged, or none wait and nothing failed."""
        return not self._log.needs_healing and not (self._core.sequencer.records and self._log.is_over_limit)

    async def healed(self) -> bool:
        """Heal before the next append or flush; refuse what waits while the disk, or the topic's limit, does."""
        is_owed = self._log.owed_for is not None and self._owed_until <= self._clock.monotonic()
        if not self._has_appends and not is_owed:
            return not self._log.needs_healing
        obstacle: CallboardError | None = None
        if self._log.needs_healing:
            try:
                await self._log.heal()
            except StorageError as error:
                obstacle = error
                self._owed_until = self._clock.monotonic() + self._owed_delay_s
                self._owed_delay_s = min(2 * self._owed_delay_s, OWED_RETRY_MAX_S)
            else:
                self.heals += 1
                self._recovered()
                self._moved()
        if obstacle is None and self._core.sequencer.records and self._log.is_over_limit:
            try:
                obstacle = await self._make_room()
            except StorageError as error:
                obstacle = error
        if obstacle is None:
            return True
        appends = self._core.take_appends()
        if appends is not None:
            self.failures += 1
            self._core.append_failed(appends, obstacle, refused=True)
            self._perform()
        return False

    def stage(self, commit: Commit) -> StagedLog | None:
        """Appends, synced when they or the commit want it; else a sync of what is visible, when that is wanted."""
        core, log = self._core, self._log
        if log.needs_healing:
            return None
        sift = core.sequencer.size_bytes >= CANCELLED_SIFT_BYTES
        appends = self.in_flight = core.take_appends(self._is_cancelled if sift else None)
        if appends is not None and appends.batches:
            staged = log.stage(appends.batches, durable=appends.durable or commit.must_sync)
            return StagedLog(staged.verbs, staged)
        if log.is_dirty and (commit.must_sync or (appends is not None and appends.flushes)):
            return StagedLog(log.stage_sync(), None)
        if appends is not None:
            self._stored(appends, ())
        return None

    def applied(self, staged: StagedLog) -> None:
        """The records are visible: tell their publishers, and those who wait for records."""
        appends = self.in_flight
        offsets: Sequence[int] = ()
        if staged.append is None:
            self._log.synced()
        else:
            self._log.applied(staged.append)
            offsets = staged.append.base_offsets
        if appends is not None:
            self._stored(appends, offsets)
        else:
            self._moved()

    def _stored(self, appends: Appends, base_offsets: Sequence[int]) -> None:
        self.in_flight = None
        self._core.appended(appends, base_offsets)
        self._moved()

    def _moved(self) -> None:
        log = self._log
        self._core.log_moved(log.start_offset, log.visible_end, log.durable_end, self._clock.monotonic())
        self._perform()

    def failed(self, staged: StagedLog, error: PlanFailed) -> None:
        """Tell the publishers. The log heals before the next append."""
        if staged.append is None:
            self._log.sync_failed(error)
            self._refused(error)
        else:
            self._refused(self._log.failed(staged.append, error))

    def withdrawn(self, staged: StagedLog) -> None:
        """Nothing of the appends was tried: their publishers hear so."""
        if staged.append is not None:
            self._log.withdraw(staged.append)
        self._refused(
            StorageError(f"{self._log.label}: the commit failed before the log. Nothing was stored.")
        )

    def _refused(self, error: CallboardError) -> None:
        self.failures += 1
        appends, self.in_flight = self.in_flight, None
        if appends is not None:
            self._core.append_failed(appends, error, refused=False)
            self._perform()

    # -- upkeep

    def maintain(self) -> None:
        """Look at retention and the segment's age soon."""
        self._is_maintenance_due = True

    @property
    def needs_upkeep(self) -> bool:
        """After a new segment was begun, or when asked."""
        return self._is_maintenance_due or self._log.segment_count != self._segments

    async def upkeep(self) -> None:
        """Roll by age, drop by retention."""
        self._is_maintenance_due = False
        self._segments = self._log.segment_count
        try:
            await self._log.roll_if_due(self._clock.wall_us())
            await self._make_room()
        except StorageError:
            self.failures += 1
        self._segments = self._log.segment_count
        self._moved()

    def closing(self) -> None:
        """Upkeep, and what recovery owes, is for the next start."""
        self._is_maintenance_due, self._is_closing = False, True
        self._segments = self._log.segment_count


class JournalParticipant:
    """The delivery journal of a partition."""

    def __init__(
        self,
        core: PartitionCore,
        journal: Journal,
        log: PartitionLog,
        clock: Clock,
        *,
        perform: Callable[[], None],
        limits: Limits = USUAL,
    ) -> None:
        self._core = core
        self._journal = journal
        self._log = log
        self._clock = clock
        self._perform = perform
        self._work: JournalWork | None = None
        self._owed_until = 0.0
        """When to try again to write what only the state in memory has; 0 when there is nothing."""
        self._owed_delay_s = OWED_RETRY_S
        self._is_closing = False
        self._snapshot_every_bytes = limits.snapshot_every_bytes
        self._snapshot_beyond = limits.snapshot_every_bytes
        self._snapshots = 0
        self._history_bytes = limits.journal_history_bytes
        self._pruned_for = 0, 0
        """The log's first offset, and how many snapshots there were, when the journal was pruned last."""
        self.heals = 0
        self.failures = 0

    @property
    def due_at(self) -> float:
        """When the core says, or when what is owed is tried again."""
        due = self._core.commit_at
        return min(due, self._owed_until) if self._owed_until else due

    @property
    def needs_sync(self) -> bool:
        """Acks, and leases of records that are not synced, name what the log holds."""
        return self._core.has_journal_work and self._core.journal_syncs(self._clock.monotonic())

    @property
    def is_healthy(self) -> bool:
        """Whether nothing failed."""
        return not self._journal.needs_healing

    async def healed(self) -> bool:
        """After a failure, begin a new journal segment with the state in memory, when there is something to write."""
        core = self._core
        core.commit_at = NEVER
        if not self._journal.needs_healing:
            return True
        if not core.has_journal_work and not 0.0 < self._owed_until <= self._clock.monotonic():
            return False
        error = await self._write_state(self._journal.heal)
        if error is None:
            self.heals += 1
            return True
        self._fail(core.take_journal(), error)
        return False

    def stage(self, commit: Commit) -> StagedJournal | None:
        """Everything that waits for the journal."""
        if not self._core.has_journal_work:
            self._core.commit_at = NEVER
            return None
        work = self._core.take_journal(self._clock.monotonic())
        if work is None:
            return None
        if not work.entries and not (work.sync and self._journal.is_dirty):
            self._core.journalled(work)
            self._perform()
            return None
        self._work = work
        return self._journal.stage(self._records(work.entries), sync=work.sync)

    def _records(self, entries: Sequence[bytes | GroupEvents]) -> list[bytes]:
        offset = wall_offset(self._clock)
        return [entry if isinstance(entry, bytes) else entry.record(offset) for entry in entries]

    def applied(self, staged: StagedJournal) -> None:
        """Tell those who wait; have leased records read."""
        self._journal.applied(staged)
        work, self._work = self._work, None
        if work is not None:
            self._core.journalled(work)
            self._perform()

    def failed(self, staged: StagedJournal, error: PlanFailed) -> None:
        """The journal heals at once, from the state in memory, unless the disk is full."""
        failure = self._journal.failed(staged, error)
        work, self._work = self._work, None
        if work is not None and self._journal.needs_healing:
            self._core.put_back(work)
            return
        # Nothing was stored, but the state in memory has these events (P3). Later ones may build on them, so the next
        # that is written is the whole state.
        self._journal.needs_healing = True
        self._fail(work, failure)

    def withdrawn(self, staged: StagedJournal) -> None:
        """The same work is staged once more."""
        self._journal.withdraw(staged)
        work, self._work = self._work, None
        if work is not None:
            self._core.put_back(work)

    def _fail(self, work: JournalWork | None, error: StorageError) -> None:
        self.failures += 1
        if self._is_closing:
            self._owed_until = 0.0
        elif self._journal.needs_healing:  # else the state was written, and what failed came after that
            self._owed_until = self._clock.monotonic() + self._owed_delay_s
            self._owed_delay_s = min(2 * self._owed_delay_s, OWED_RETRY_MAX_S)
        if work is not None:
            doubtful = error.again()
            doubtful.indefinite = (
                True  # the state in memory has these events, and is written when the disk heals
            )
            self._core.journal_failed(work, doubtful, self._clock.monotonic())
            self._perform()

    async def _write_state(self, write: Callable[[bytes], Awaitable[None]]) -> StorageError | None:
        """Have the journal write the whole state. It covers what still waits, which must not follow it (W3)."""
        covered = self._core.take_journal()
        state = self._core.snapshot(wall_offset(self._clock))
        try:
            await write(state)
        except BaseException as error:
            if covered is not None:
                self._core.put_back(covered)
            if isinstance(error, StorageError):
                return error
            raise
        self._owed_until, self._owed_delay_s = 0.0, OWED_RETRY_S
        self._snapshots += 1
        self._snapshot_beyond = max(self._snapshot_every_bytes, SNAPSHOT_SPACING * len(state))
        if covered is not None:
            self._core.journalled(covered)
            self._perform()
        return None

    # -- upkeep

    @property
    def needs_upkeep(self) -> bool:
        """When the reserve shrinks, a snapshot is due, or there may be segments that nobody needs."""
        journal = self._journal
        return not journal.needs_healing and (
            journal.needs_maintenance
            or journal.bytes_since_snapshot > self._snapshot_beyond
            or self._is_to_prune
        )

    async def upkeep(self) -> None:
        """Keep the reserve, shorten the next recovery, drop segments that are too old or too many."""
        journal = self._journal
        try:
            if journal.needs_maintenance:
                await journal.maintain()
            if (
                journal.bytes_since_snapshot > self._snapshot_beyond
                and not journal.needs_healing
                and await self._write_state(journal.snapshot) is not None
            ):
                self._snapshot_beyond = journal.bytes_since_snapshot + self._snapshot_every_bytes
            if self._is_to_prune and not journal.needs_healing:
                await self._prune()
        except StorageError:
            self.failures += 1

    @property
    def _is_to_prune(self) -> bool:
        return self._pruned_for != (self._log.start_offset, self._snapshots)

    async def _prune(self) -> None:
        """Segments go when a snapshot has replaced them, and the log segments that they tell of are gone.

        There may be no more of them than a limit, and than `retention_bytes` leaves beside the log.
        """
        pruned_for, spare = (self._log.start_offset, self._snapshots), self._log.spare_bytes
        kept = self._history_bytes if spare is None else min(spare, self._history_bytes)
        await self._journal.prune(keep_from_us=self._log.oldest_us, keep_bytes=kept)
        self._pruned_for = pruned_for

    def closing(self) -> None:
        """The last try to write what is owed, if there is one to make."""
        self._owed_until = min(self._owed_until, self._clock.monotonic())
        self._is_closing = True


def wall_offset(clock: Clock) -> float:
    """Wall time minus monotonic time, in seconds."""
    return clock.wall_us() / 1e6 - clock.monotonic()
