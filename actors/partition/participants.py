"""The two participants of every partition's commits: its log, and behind it the delivery journal.

The core decides what is written (`core`); what lies here turns that into frames, and tells the core how it ended.

When the log fails, the publishers of this commit hear it (DiskFull: nothing stored; PublishFailed: indefinite), and it
heals before the next append. A journal that fails heals at once, from a snapshot of the state in memory; only if that
fails too do those that wait hear it, and then it heals with the next records, or by itself after a while.

Invariants
----------
PP1  A publisher at level ALL is answered only after a sync that covers its records succeeded.
PP2  The journal is never durable ahead of the log bytes that it names: the log is the first participant, and syncs when
     the journal does.
PP3  What the journal could not take is written no more: the snapshot that heals it holds all of it.
PP4  Retention drops a segment when the journal has what memory knew then of what the groups have settled, synced.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final

import attrs
import trio

from callboard.actors.delivery.pieces import gathered
from callboard.actors.partition.choice.expiry import stamp
from callboard.actors.partition.core import PartitionCore
from callboard.actors.partition.noticed import NoticedStamps
from callboard.actors.partition.publishing.publishers import Publishers, not_stored
from callboard.actors.partition.queues import NEVER, Appends, JournalWork
from callboard.log.errors import CallboardError, DiskFull, PlanFailed, StorageError
from callboard.log.journal.journal import Journal, StagedJournal
from callboard.log.limits import OFFSET_MAX, USUAL, Limits
from callboard.log.partition.partition_log import PartitionLog
from callboard.log.partition.staged import StagedAppend
from callboard.log.seams.clock import Clock, wall_offset
from callboard.log.seams.disk import Verb

OWED_RETRY_S: Final = 1.0
OWED_RETRY_MAX_S: Final = 60.0
"""How long after a refusal the journal, or what recovery owes, is tried again unasked; doubled each time, up to the
second."""
SNAPSHOT_SPACING: Final = 4
"""No snapshot before this multiple of the last one's size was journalled: a large state is not written too often."""

PIECES_PER_SNAPSHOT: Final = 8
"""A snapshot is made in pieces of this part of what is journalled between two: 128 KiB, unless a limit is changed."""


@attrs.define(eq=False)
class StagedSync:
    """The log's part of a commit without appends: a sync of what is visible."""

    verbs: Sequence[Verb]
    is_synced: bool = True


@attrs.define(eq=False)
class OwedRetry:
    """When to try again, unasked, what could not be written."""

    at: float = NEVER
    _delay_s: float = OWED_RETRY_S

    def begin(self, now: float) -> None:
        """Something is owed from now on."""
        self.at = now + OWED_RETRY_S

    def failed(self, now: float) -> None:
        """It failed once more. What is tried before its time puts nothing off."""
        if not now < self.at < NEVER:
            self.at = now + self._delay_s
            self._delay_s = min(2 * self._delay_s, OWED_RETRY_MAX_S)

    def end(self) -> None:
        """Nothing is owed, or there is nothing to try again."""
        self.at, self._delay_s = NEVER, OWED_RETRY_S


class LogParticipant:
    """The partition's log. `perform` carries out what the core wants done; `make_room` drops what retention allows;
    `recovered` is called when the log has healed, `space_changed` when the disk has become too full for records (with
    the reason), or takes them again (None). `reported_lack`: the last report, before a crash, said that the disk is too
    full, so the first write tells how it is now. Without `publishers` nothing may be published guarded.
    """

    def __init__(
        self,
        core: PartitionCore,
        log: PartitionLog,
        clock: Clock,
        *,
        perform: Callable[[], None],
        make_room: Callable[[], Awaitable[CallboardError | None]],
        recovered: Callable[[], None] = lambda: None,
        space_changed: Callable[[CallboardError | None], None] = lambda lack: None,
        reported_lack: bool = False,
        publishers: Publishers | None = None,
        noticed: NoticedStamps | None = None,
        default_ttl_us: int | None = None,
    ) -> None:
        self._core = core
        self._log = log
        self._publishers = publishers
        self._noticed = noticed
        self.default_ttl_us = default_ttl_us
        """How long records live that say nothing of it."""
        self._clock = clock
        self._perform = perform
        self._make_room = make_room
        self._recovered = recovered
        self._space_changed = space_changed
        self.due = core.sequencer.due
        self.is_healthy = not log.needs_healing
        """Whether it may append: nothing failed, and the topic is not full."""
        self.needs_upkeep = False
        """A segment was begun or dropped, or that was asked for."""
        self._retry = OwedRetry()
        """For what recovery and upkeep owe, although nothing is published."""
        self._is_closing = False
        if log.owed_for is not None:
            self._retry.begin(clock.monotonic())
            self.due.at = self._retry.at
        self.in_flight: Appends | None = None
        self.lacks_space = False
        """The disk was full when something was last to be written."""
        self._reported_lack = reported_lack
        self.heals = 0
        self.failures = 0

    async def healed(self) -> bool:
        """Heal before the next append or flush; refuse what waits while the disk, or the topic's limit, does."""
        core, log = self._core, self._log
        has_records, is_owed = core.sequencer.records > 0, self._retry.at <= self._clock.monotonic()
        if self.is_healthy:
            return True
        if not (has_records or core.sequencer.is_flushing or is_owed):
            self.due.at = self._retry.at
            return not log.needs_healing
        obstacle: CallboardError | None = None
        if log.needs_healing:
            try:
                await log.heal()
            except StorageError as error:
                obstacle = error
                if is_owed:
                    self._failed_unasked()
            else:
                self.heals += 1
                self.needs_upkeep = True
                self._retry.end()
                self._recovered()
                self._moved()
        if obstacle is None and self._publishers is not None:
            obstacle = await self._publishers.made_ready(core.sequencer, log)
        if obstacle is None and has_records and log.is_over_limit:
            segments = log.segment_count
            try:
                obstacle = await self._make_room()
            except StorageError as error:
                obstacle = not_stored(f"no room could be made in {log.label}", error)
            self.needs_upkeep = self.needs_upkeep or log.segment_count != segments
        if obstacle is None:
            self.is_healthy = not log.is_over_limit
            return True
        appends = core.sequencer.take()
        self.due.at = min(self.due.at, self._retry.at)
        self._judge_space(obstacle)
        if appends is not None:
            self.failures += 1
            is_behind = self._publishers is not None and self._publishers.is_behind(log)
            core.append_failed(appends, obstacle, refused=log.needs_healing or is_behind)
            self._perform()
        return False

    def stage(self, now: float, *, must_sync: bool) -> StagedAppend | StagedSync | None:
        """Appends, synced when they or the commit want it; else a sync of what is visible, when that is wanted."""
        log, publishers, now_us = self._log, self._publishers, None
        sequencer = self._core.sequencer
        is_guarded = publishers is not None and (sequencer.guarded > 0 or publishers.admission.is_guarded)
        if is_guarded and publishers is not None and publishers.must_prepare(sequencer, log):
            appends, self.is_healthy = None, False  # for `healed`
        else:
            appends = self.in_flight = sequencer.take()
            if is_guarded and publishers is not None and appends is not None:
                now_us = publishers.decide(appends, log)
        if appends is not None and appends.batches:
            if self.default_ttl_us is not None or appends.has_ttls:
                now_us = self._clock.wall_us() if now_us is None else now_us
                first_us = stamp(appends.batches, now_us, self.default_ttl_us)
                if first_us is not None:
                    self._core.expiry.expires((first_us - now_us) / 1e6, now)
            return log.stage(appends.batches, durable=appends.durable or must_sync, now_us=now_us)
        if log.visible_end > log.durable_end and (must_sync or (appends is not None and appends.durable)):
            return StagedSync(log.stage_sync())
        if appends is not None:
            self._moved()
        return None

    def applied(self, staged: StagedAppend | StagedSync) -> None:
        """The records are visible: answer their publishers, and those that wait for records."""
        log = self._log
        if isinstance(staged, StagedSync):
            log.synced()
            self._moved()
            return
        log.applied(staged)
        if self.lacks_space or self._reported_lack:
            self._judge_space(None)
        self.is_healthy = not log.is_over_limit
        is_due = self._publishers is not None and self._publishers.stored(log)
        if is_due or len(staged.runs) > 1:
            self.needs_upkeep = True
        self._moved(staged.base_offsets)

    def _moved(self, base_offsets: Sequence[int] = ()) -> None:
        """The log begins, ends or is durable elsewhere. What was in flight is written."""
        log, appends, self.in_flight = self._log, self.in_flight, None
        now = self._clock.monotonic()
        self._core.log_moved(log.start_offset, log.visible_end, log.durable_end, now, appends, base_offsets)
        self._perform()

    def failed(self, staged: StagedAppend | StagedSync, error: PlanFailed) -> None:
        """Tell the publishers. The log heals before the next append."""
        if isinstance(staged, StagedSync):
            self._log.sync_failed(error)
            self._refused(error)
        else:
            self._refused(self._log.failed(staged, error))

    def withdrawn(self, staged: StagedAppend | StagedSync) -> None:
        """Nothing of the appends was tried: their publishers hear so."""
        if not isinstance(staged, StagedSync):
            self._log.withdraw(staged)
        self._refused(
            StorageError(f"{self._log.label}: the commit failed before the log. Nothing was stored.")
        )

    def _judge_space(self, obstacle: CallboardError | None) -> None:
        """Note whether the disk is too full, and tell when that has changed."""
        lacks_space = isinstance(obstacle, DiskFull)
        if lacks_space != self.lacks_space or self._reported_lack:
            self.lacks_space, self._reported_lack = lacks_space, False
            self._space_changed(obstacle if lacks_space else None)

    def _refused(self, error: CallboardError) -> None:
        self.failures += 1
        self._judge_space(error)
        self.is_healthy = not self._log.needs_healing
        appends, self.in_flight = self.in_flight, None
        if self._publishers is not None:
            self._publishers.admission.failed()
        if appends is not None:
            self._core.append_failed(appends, error, refused=False)
            self._perform()

    # -- upkeep

    def maintain(self) -> None:
        """Look at retention and the segment's age soon."""
        self.needs_upkeep = True
        self.due.at = 0.0

    async def upkeep(self) -> None:
        """Roll by age, drop by retention."""
        if not self.needs_upkeep:
            return
        self.needs_upkeep = False
        log = self._log
        try:
            await log.roll_if_due(self._clock.wall_us())
            await self._make_room()
            if self._publishers is not None:
                await self._publishers.keep(log)
            if self._noticed is not None:
                await self._noticed.keep()
        except StorageError:
            self.failures += 1
        if log.needs_healing:
            self._failed_unasked()
        self.is_healthy = not (log.needs_healing or log.is_over_limit)
        self._moved()

    def _failed_unasked(self) -> None:
        """Nobody waits for it: try again by itself, unless the partition closes."""
        if self._is_closing:
            self._retry.end()
        else:
            self._retry.failed(self._clock.monotonic())
        self.due.at = min(self.due.at, self._retry.at)

    def closing(self) -> None:
        """Upkeep, and what recovery owes, is for the next start."""
        self._is_closing = True
        self.needs_upkeep = False
        self._retry.end()
        if not (self._core.sequencer.records or self._core.sequencer.is_flushing):
            self.due.at = NEVER


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
        self.due = core.journal.due
        self.is_healthy = core.journal.is_healthy = not journal.needs_healing
        self.needs_upkeep = False
        """The reserve shrinks, or a snapshot is due."""
        self._work: JournalWork | None = None
        self._retry = OwedRetry()
        """For what only the state in memory has."""
        self._is_closing = False
        self._limits = limits
        self._snapshot_beyond = limits.snapshot_every_bytes
        self._snapshots = 0
        self._history_bytes = limits.journal_history_bytes
        self._covered_end = 0
        self._pruned_for = 0, 0
        """The log's first offset, and how many snapshots there were, when the journal was pruned last."""
        self.heals = 0
        self.failures = 0

    def _set_healthy(self, is_healthy: bool) -> None:
        """Whether nothing failed: for the committer, and for the core, which asks its queue."""
        self.is_healthy = self._core.journal.is_healthy = is_healthy

    async def healed(self) -> bool:
        """After a failure, begin a new journal segment with the state in memory, when there is something to write."""
        if self.is_healthy:
            return True
        self.due.at = self._retry.at
        if not self._core.journal.has_work and self._retry.at > self._clock.monotonic():
            return False
        error = await self._write_state(self._journal.heal)
        if error is None:
            self.heals += 1
            self._set_healthy(True)
            return True
        self._fail(self._core.journal.take(), error)
        return False

    def stage(self, now: float, *, must_sync: bool) -> StagedJournal | None:
        """Everything that waits for the journal."""
        journal, work = self._journal, self._core.journal.take(now)
        if work is None:
            return journal.stage((), sync=True) if must_sync and journal.is_dirty else None
        sync = must_sync or work.sync
        if not work.entries and not (sync and journal.is_dirty):
            self._core.journalled(work)
            self._perform()
            return None
        self._work = work
        return journal.stage(self._records(work), sync=sync)

    def _records(self, work: JournalWork) -> list[bytes]:
        offset_s = wall_offset(self._clock)
        return [entry if isinstance(entry, bytes) else entry.record(offset_s) for entry in work.entries]

    def applied(self, staged: StagedJournal) -> None:
        """Answer those that wait; have leased records read."""
        journal = self._journal
        journal.applied(staged)
        self.needs_upkeep = journal.bytes_since_snapshot > self._snapshot_beyond or journal.needs_maintenance
        work, self._work = self._work, None
        if work is not None:
            self._core.journalled(work)
            self._perform()

    def failed(self, staged: StagedJournal, error: PlanFailed) -> None:
        """The journal heals at once, from the state in memory, unless the disk is full."""
        failure = self._journal.failed(staged, error)
        self._set_healthy(False)
        work, self._work = self._work, None
        if work is not None and self._journal.needs_healing:
            self._core.journal.put_back(work)
            return
        # Nothing was stored, but the state in memory has these events (PC3). Later ones may build on them, so the next
        # that is written is the whole state.
        self._journal.needs_healing = True
        self._fail(work, failure)

    def withdrawn(self, staged: StagedJournal) -> None:
        """The same work is staged once more."""
        self._journal.withdraw(staged)
        work, self._work = self._work, None
        if work is not None:
            self._core.journal.put_back(work)

    def _fail(self, work: JournalWork | None, error: StorageError) -> None:
        self.failures += 1
        if self._is_closing:
            self._retry.end()
        elif self._journal.needs_healing:  # else the state was written, and what failed came after that
            self._retry.failed(self._clock.monotonic())
        self._set_healthy(not self._journal.needs_healing)
        self.due.at = min(self.due.at, self._retry.at)
        if work is not None:
            doubtful = error.again()
            doubtful.indefinite = (
                True  # the state in memory has these events, and is written when the disk heals
            )
            self._core.journal_failed(work, doubtful, self._clock.monotonic())
            self._perform()

    async def _write_state(
        self, write: Callable[[Sequence[bytes]], Awaitable[None]], *, is_equal: bool = False
    ) -> StorageError | None:
        """Have the journal write the whole state. It covers what still waits, which must not follow it (PP3).

        With `is_equal` what waits goes before it: should the state be damaged, the events before it say the same.
        """
        covered = self._core.journal.take()
        pieces = self._core.states.snapshot_in_pieces(wall_offset(self._clock))
        try:
            state = await made_in_steps(pieces, self._limits)
            if is_equal and covered is not None and covered.entries:
                await self._journal.append(self._records(covered), sync=covered.sync)
                written, covered = covered, None
                self._core.journalled(written)
                self._perform()
            await write(state)
        except BaseException as error:
            if covered is not None:
                self._core.journal.put_back(covered)
            if isinstance(error, StorageError):
                return error
            raise
        self._retry.end()
        self._snapshots += 1
        self._snapshot_beyond = max(
            self._limits.snapshot_every_bytes, SNAPSHOT_SPACING * sum(map(len, state))
        )
        if covered is not None:
            self._core.journalled(covered)
            self._perform()
        return None

    # -- as a summary of the log

    @property
    def covered_end(self) -> int:
        """What the groups have settled below this is in the journal, synced; `OFFSET_MAX` when all of it is."""
        journal = self._journal
        is_behind = self._core.journal.has_events or journal.is_dirty or journal.needs_healing
        is_behind = is_behind or any(group.unwritten_since_us is not None for group in self._core.states)
        return self._covered_end if is_behind else OFFSET_MAX

    async def cover(self, end: int) -> None:
        """Between two commits: write and sync all that memory has, behind the log's bytes (PP2, PP4)."""
        del end
        await self._log.sync()
        for group in self._core.states:
            self._core.journal.open(group)  # it begins where the log does, which is about to change
        covered_end = self._core.states.unsettled_from(self._log.visible_end)
        if self._journal.needs_healing:
            if (error := await self._write_state(self._journal.heal)) is not None:
                raise error
            self.heals += 1
            self._set_healthy(True)
        elif (staged := self.stage(self._clock.monotonic(), must_sync=True)) is not None:
            try:
                await self._journal.submit(staged)
            except PlanFailed as error:
                self.failed(staged, error)
                raise
            except BaseException:
                self.withdrawn(staged)
                raise
            self.applied(staged)
        self._covered_end = covered_end

    # -- upkeep

    async def upkeep(self) -> None:
        """Keep the reserve, shorten the next recovery, drop segments that are too old or too many."""
        self.needs_upkeep = False
        journal = self._journal
        if journal.needs_healing:
            return
        try:
            if journal.needs_maintenance:
                await journal.maintain()
            if (
                journal.bytes_since_snapshot > self._snapshot_beyond
                and not journal.needs_healing
                and await self._write_state(journal.snapshot, is_equal=True) is not None
            ):
                self._snapshot_beyond = journal.bytes_since_snapshot + self._limits.snapshot_every_bytes
            if self._pruned_for != (self._log.start_offset, self._snapshots) and not journal.needs_healing:
                await self._prune()
        except StorageError:
            self.failures += 1
        self._set_healthy(not journal.needs_healing)

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
        self._is_closing = True
        if self._retry.at < NEVER:
            self.due.at = self._retry.at = 0.0


async def made_in_steps(pieces: Iterator[bytes], limits: Limits) -> list[bytes]:
    """Make all pieces of a snapshot, each in a step of its own."""
    made: list[bytes] = []
    for place, piece in enumerate(
        gathered(pieces, max(1, limits.snapshot_every_bytes // PIECES_PER_SNAPSHOT))
    ):
        if place:
            await trio.lowlevel.checkpoint()
        if piece:
            made.append(piece)
    return made
