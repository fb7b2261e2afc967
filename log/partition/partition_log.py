"""The log of one partition: appends in two steps, reads, healing, retention.

Theory of operation
-------------------
The sequencer hands batches to `stage`, which assigns offsets and returns verbs; the committer submits them, together
with the journal's, in one plan; then it calls `applied`, or `failed`. Nothing here waits for the disk except the
methods that are `async`.

Vocabulary
----------
visible end    the first offset that readers may not see yet
durable end    the first offset that no sync covers yet; never above the visible end
dirty          visible records lie past the durable end: `leader` records, handed to the system and not synced
tainted        a write or sync failed: what the file holds past the durable end is unknown, and no later sync of it
               proves anything. The file is abandoned there.

```
            stage            applied
  ready  ----------> staged ----------> ready
    ^                  |  failed
    |     heal         v
    +------------- needs healing
```

Invariants
----------
PL1  durable end <= visible end = next offset, but for what is staged.
PL2  At most one append is staged, and none while the log needs healing.
PL3  Offsets that were visible are never given to other records.
PL4  Records past the durable end are in the tail cache: they are read from there, and healing writes them anew.
PL5  `committed` is stored after the sync that it speaks of, and never falls.
PL6  At the moment at which a segment is unlinked, each summary made of it (`retention`) is durable past its end.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from itertools import pairwise

import attrs

from callboard.log.errors import (
    DiskFull,
    InternalError,
    OffsetOutOfRange,
    PlanFailed,
    PublishFailed,
    StorageError,
    lacks_space,
)
from callboard.log.format.columns import Columns
from callboard.log.format.committed import (
    COMMITTED_NAME,
    HAD_PUBLISHERS,
    HAS_START,
    Committed,
    encode_committed,
)
from callboard.log.format.frame import encode_frame
from callboard.log.format.segment import SEGMENT_HEADER_BYTES
from callboard.log.format.stamps import Stamps
from callboard.log.limits import INDEX_INTERVAL_BYTES, OFFSET_MAX, READ_BYTES_DEFAULT, USUAL, Limits
from callboard.log.partition.ages import NEVER, SegmentAges
from callboard.log.partition.log_reads import LogReads
from callboard.log.partition.recovery import Opened, Recovery, open_partition, open_proven
from callboard.log.partition.retention import MICROSECONDS, LogSettings, Summary, cover_all, unlink_segments
from callboard.log.partition.rewriting import SegmentWriter
from callboard.log.partition.staged import StagedAppend, StagedRun
from callboard.log.partition.survey import remove_leftovers
from callboard.log.partition.tail_cache import TailCache
from callboard.log.seams.clock import Clock
from callboard.log.seams.disk import Close, Incarnation, Mark, Sync, Verb, Write
from callboard.log.seams.entropy import Entropy
from callboard.log.segments.committed_file import store_copy, sync_slots
from callboard.log.segments.damage_record import DamageRecord
from callboard.log.segments.index_file import index_room_verbs, index_store_verbs
from callboard.log.segments.quarantine import Quarantine
from callboard.log.segments.reading import Reading
from callboard.log.segments.segment_file import SegmentFile
from callboard.log.segments.segments import Damage, Gap, SegmentList, StoredSegment
from callboard.log.segments.time_search import TimeSearch
from callboard.log.segments.wrong_kind import opening_error


@attrs.define(eq=False, repr=False, kw_only=True)
class PartitionLog:
    """The log of one partition, made by `open`. It has one owner and one task that stages; any task may read."""

    label: str
    _files: Incarnation
    _directory: str
    _settings: LogSettings
    _clock: Clock
    _entropy: Entropy
    _ages: SegmentAges
    _named_end: int
    _is_gone: bool
    _limits: Limits
    owed_for: StorageError | None = None
    """Why recovery could not write; None once it could. Until then the log ends where it is proven."""
    needs_healing: bool = False
    recovery: Recovery = attrs.field(init=False)
    record: DamageRecord = attrs.field(init=False)
    visible_end: int = attrs.field(init=False)
    durable_end: int = attrs.field(init=False)
    _opened_end: int = attrs.field(init=False)
    """Where the log ended when `committed` was last known to be durable, or was opened."""
    start_offset: int = attrs.field(init=False)
    """The first offset that retention has not dropped."""
    segment_count: int = attrs.field(init=False)
    """Segments, the one in use included."""
    is_over_limit: bool = attrs.field(init=False)
    """Whether `retention_bytes` is reached while unsettled records, or a summary that lacks some, keep the oldest
    segment.

    Judged by the last arguments of `retain`: call that first when this is True.
    """
    _segments: SegmentList = attrs.field(init=False)
    _tail: TailCache = attrs.field(init=False)
    _reads: LogReads = attrs.field(init=False)
    _committed_map: Mark | None = attrs.field(init=False)
    _flags: int = attrs.field(init=False)
    _start: int = attrs.field(init=False)
    """Where `committed` says that the log begins: what lies before it may be gone."""
    _owed_ends: Committed | None = attrs.field(init=False)
    """What `committed` says while recovery is owed."""
    _staged: StagedAppend | None = None
    _sync_target: int = 0
    _is_tainted: bool = False
    _unmade: list[SegmentFile] = attrs.Factory(list)
    """Segments of plans that failed, which may be open."""
    _is_closed: bool = False
    _kept_from: int = 0
    """What ends behind it may not be dropped, when `retain` looked last."""

    def _use(self, opened: Opened) -> None:
        """Go on with what recovery found."""
        self.recovery = opened.recovery
        self._segments = opened.segments
        self.record = opened.record
        self._committed_map = opened.mark
        self._flags, self._start, self._owed_ends = opened.marks, opened.start, opened.owed_ends
        self.visible_end = self.durable_end = self._opened_end = opened.next_offset
        limits = self._limits
        self._tail = TailCache(
            opened.next_offset, limits.tail_cache_bytes, compact_batches=limits.tail_compact_batches
        )
        self._reads = LogReads(
            self._files,
            opened.segments,
            self._tail,
            open_segments=self._limits.open_segments,
            is_recovered=self.owed_for is None,
        )
        self._ages.opened(opened.segments.active.stamped_us, self._clock.wall_us())
        self._segments_changed()

    def _segments_changed(self) -> None:
        """Segments were begun or dropped, or are kept by other settings: know again what each append looks at."""
        segments, settings = self._segments, self._settings
        self.start_offset = segments[0].base_offset
        self.segment_count = len(segments)
        self._ages.begun(segments.active.created_us, settings.roll_age_s)
        self._judge_size()

    def _judge_size(self) -> None:
        segments, limit = self._segments, self._settings.retention_bytes
        begins_then = segments[1].base_offset if self.segment_count > 1 else segments[0].end_offset
        self.is_over_limit = (
            limit is not None and segments.size_bytes >= limit and begins_then > self._kept_from
        )

    @classmethod
    async def open(
        cls,
        files: Incarnation,
        directory: str,
        settings: LogSettings,
        *,
        label: str,
        clock: Clock,
        entropy: Entropy,
        named_end: int = 0,
        is_gone: bool = False,
        limits: Limits = USUAL,
        stamps: Stamps | None = None,
    ) -> PartitionLog:
        """Recover the partition in `directory`, made when missing; see `recovery` for what that means.

        `label` names it in messages and quarantine ("orders/2"). No offset below `named_end` (one above the highest
        that any journal names) is given to a record again; where all that was there `is_gone`, none that it can have
        had. On a disk too full for what recovery must write, the log is opened as far as it is proven, and `owed_for`
        names the obstacle; `heal` goes on with recovery. Raises `StorageError` and `FormatTooNew`.
        """
        log = cls(
            files=files,
            directory=directory,
            settings=settings,
            label=label,
            clock=clock,
            entropy=entropy,
            named_end=named_end,
            is_gone=is_gone,
            limits=limits,
            ages=SegmentAges(Stamps() if stamps is None else stamps),
        )
        try:
            opened = await log._recover()
        except StorageError as error:
            if not lacks_space(error):
                if isinstance(error, PlanFailed):
                    raise opening_error(label, error) from error
                raise
            opened = await open_proven(files, directory, segment_bytes=settings.segment_bytes)
            log.owed_for, log.needs_healing = error, True
        log._use(opened)
        return log

    async def _recover(self) -> Opened:
        return await open_partition(
            self._writer(self._settings.segment_bytes), self._named_end, is_gone=self._is_gone
        )

    def _writer(self, segment_bytes: int) -> SegmentWriter:
        """Makes new segments, with zeros ahead up to `segment_bytes`."""
        quarantine = Quarantine(self._files, self.label)
        return SegmentWriter(
            self._files, self._directory, quarantine, self._clock, self._entropy, segment_bytes
        )

    def __repr__(self) -> str:
        return f"<PartitionLog {self.label!r} {self.start_offset} to {self.visible_end}>"

    # -- what it holds --------------------------------------------------------------------------------------------

    @property
    def oldest_us(self) -> int:
        """When the oldest segment was begun, in microseconds since 1970."""
        return self._segments[0].created_us

    @property
    def next_offset(self) -> int:
        """The offset that the next record gets."""
        return self.visible_end if self._staged is None else self._staged.end_offset

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments, without the zeros ahead."""
        return self._segments.size_bytes

    @property
    def spare_bytes(self) -> int | None:
        """What `retention_bytes` leaves for others beside the log; None when there is no such limit."""
        limit = self._settings.retention_bytes
        return None if limit is None else max(0, limit - self.size_bytes)

    @property
    def is_dirty(self) -> bool:
        """Whether visible records are not synced yet."""
        return self.visible_end > self.durable_end

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """Offsets that no record has, and why."""
        return tuple(
            Gap(segment.previous_end, segment.base_offset - 1, segment.gap.name.lower())
            for segment in self._segments
            if segment.previous_end < segment.base_offset
        )

    @property
    def damages(self) -> tuple[Damage, ...]:
        """What is known to be damaged, at this opening or an earlier one, and was not accepted yet."""
        return self.record.unaccepted

    @property
    def had_publishers(self) -> bool:
        """Whether a file `publishers` was made for it, as far as is known."""
        return bool(self._flags & HAD_PUBLISHERS)

    def mark_publishers(self) -> None:
        """There is such a file: should it be gone one day, that is known. The next sync of `committed` has it."""
        self._flags |= HAD_PUBLISHERS
        self._store_ends()

    def _store_ends(self) -> None:
        if self._committed_map is not None:
            ends = self.visible_end, self.durable_end
            self._committed_map.store(encode_committed(*ends, self._flags, self._start))

    def alter(self, settings: LogSettings) -> None:
        """Use other settings from now on."""
        self._settings = settings
        self._segments_changed()

    # -- appending --------------------------------------------------------------------------------------------------

    def stage(self, batches: Sequence[Columns], *, durable: bool, now_us: int | None = None) -> StagedAppend:
        """Give `batches` (dense, none empty) their offsets, and return the verbs that append them.

        `durable`: with a sync. It is forced when more than `Limits.unsynced_bytes` would be unsynced. `now_us` is the
        time of the records, and decides whether the segment in use is too old.
        """
        if self._staged is not None or self.needs_healing:
            raise InternalError(f"{self.label} cannot stage: staged already, or not healed", invariant="PL2")
        if not durable:
            pending = self._tail.bytes_from(self.durable_end)
            durable = pending + sum([columns.size_bytes for columns in batches]) > self._limits.unsynced_bytes
        segment = self._segments.active
        index_before = segment.index_stored_to, segment.index_allocated, segment.index_handle
        runs, bases, end = self._lay_out(batches, self._clock.wall_us() if now_us is None else now_us)
        verbs = self._append_verbs(runs, sync=durable)
        self._staged = staged = StagedAppend(verbs, bases, end, durable, runs, index_before)
        return staged

    def _lay_out(self, batches: Sequence[Columns], now_us: int) -> tuple[list[StagedRun], list[int], int]:
        """Give the batches their offsets, and encode them as frames in a run for each segment.

        Also returns the offset at which each batch begins, and the one at which the last ends.
        """
        roll_bytes, compression = self._settings.roll_bytes, self._settings.compression
        bases: list[int] = []
        offset, segment = self.visible_end, self._segments.active
        run = StagedRun(segment, segment.file.position, segment.file.allocated_to)
        runs = [run]
        if self._ages.stamp(now_us) and run.position > SEGMENT_HEADER_BYTES:
            run = self._roll(runs, offset, now_us)
        for columns in batches:
            columns.base_offset = offset
            columns.append_time_us = now_us
            if run.position > SEGMENT_HEADER_BYTES and run.position + columns.size_bytes > roll_bytes:
                run = self._roll(runs, offset, now_us)
            frame = encode_frame(
                columns,
                segment_id=run.segment.segment_id,
                base_offset=offset,
                append_time_us=now_us,
                compression=compression,
            )
            size = sum(map(len, frame))
            run.buffers += frame
            run.frames.append((columns, run.position, size))
            run.position += size
            bases.append(offset)
            offset += columns.span + 1
        return runs, bases, offset

    def _append_verbs(self, runs: Sequence[StagedRun], *, sync: bool) -> list[Verb]:
        """The verbs that write the runs: every segment but the last is sealed, and the last synced if asked."""
        verbs = self._reads.close_idle(len(runs) - 1) if len(runs) > 1 else []
        index_verbs: list[Verb] = []
        for run in runs:
            segment, file, is_last = run.segment, run.segment.file, run is runs[-1]
            verbs += run.making
            if run.buffers:
                if file.position - segment.index_stored_to >= self._limits.index_checkpoint_bytes:
                    verbs += index_room_verbs(self._files, segment)
                    index_verbs += index_store_verbs(segment)
                writing, run.allocated_to = file.append_verbs(
                    run.buffers, run.position - file.position, sync=sync and is_last
                )
                verbs += writing
            if not is_last:
                verbs += file.seal_verbs(run.position, run.allocated_to)
                run.allocated_to = run.position
                index_verbs += index_store_verbs(segment, is_last=True, is_complete=not run.frames)
        return verbs + index_verbs

    def _roll(self, runs: list[StagedRun], offset: int, now_us: int) -> StagedRun:
        """Go on in a new segment that begins at `offset`; the one before is sealed, synced."""
        writer = self._writer(self._settings.roll_bytes)
        made, starting = writer.begin(offset, runs[-1].segment.base_offset, offset, now_us)
        making = (*starting, *made.file.naming_verbs())
        runs.append(StagedRun(made, made.file.position, made.file.allocated_to, making))
        return runs[-1]

    def applied(self, staged: StagedAppend) -> None:
        """The plan with the staged verbs succeeded: the records are visible, and durable when synced."""
        if staged is not self._staged:
            raise self._not_staged()
        self._staged = None
        tail, segments = self._tail, self._segments
        for run in staged.runs:
            segment = run.segment
            segment.file.position, segment.file.allocated_to = run.position, run.allocated_to
            if run.making:
                self.durable_end = segments.active.end_offset
                segment.is_open = True
                segments.append(segment)
                self._segments_changed()
            if not run.frames:
                continue
            index = segment.index_in_use
            for columns, position, size in run.frames:
                last = columns.base_offset + columns.span
                time_us = (
                    columns.append_time_us if columns.append_times is None else max(columns.append_times)
                )
                index.note(position, size, columns.base_offset, last, columns.count, time_us)
                tail.push(columns, size)
            segment.end_offset = tail.end_offset
        self.visible_end = staged.end_offset
        if staged.is_synced:
            self.durable_end = staged.end_offset
        self._evict_tail()
        self._store_ends()
        if self._settings.retention_bytes is not None:
            self._judge_size()

    def failed(self, staged: StagedAppend, error: PlanFailed) -> StorageError:
        """The plan failed in one of the staged verbs, or in `stage_sync`'s: the error for the publishers.

        `DiskFull` when there is no space, else `PublishFailed`; `indefinite` says whether the records may turn up.
        """
        handles = {id(run.segment.file.handle) for run in staged.runs if run.buffers}
        is_certain = False
        for verb in staged.verbs:
            if type(verb) is Write and id(verb.handle) in handles:
                break  # the first that stores a byte of a record
            is_certain = is_certain or verb is error.verb
        is_full = lacks_space(error)
        if is_certain and is_full and len(staged.runs) == 1:
            # Not a byte of the records was written (SF3): the file is as good as before.
            self._withdraw(staged)
        else:
            self._forget(staged)
            self._is_tainted = True
        self.needs_healing = True
        return self._publish_error(error, is_full=is_full, indefinite=not is_certain)

    def withdraw(self, staged: StagedAppend) -> None:
        """The plan failed ahead of the staged verbs: none of them was tried, and the records are not stored."""
        if len(staged.runs) == 1:
            self._withdraw(staged)
        else:
            self._forget(staged)
            self._is_tainted = self.needs_healing = True

    def _withdraw(self, staged: StagedAppend) -> None:
        """Forget an append of which nothing was written."""
        self._forget(staged)
        active = staged.runs[0].segment
        active.index_stored_to, active.index_allocated, active.index_handle = staged.index_before

    def _forget(self, staged: StagedAppend) -> None:
        if staged is not self._staged:
            raise self._not_staged()
        self._staged = None
        self._unmade += [run.segment.file for run in staged.runs if run.making]

    def _not_staged(self) -> InternalError:
        return InternalError(f"{self.label} was given another append than it staged", invariant="PL2")

    def _publish_error(self, error: StorageError, *, is_full: bool, indefinite: bool) -> StorageError:
        fate = "The records may turn up after a restart." if indefinite else "Nothing was stored."
        if is_full:
            cause = error.error.strerror or error.error if isinstance(error, PlanFailed) else error
            return DiskFull(
                f"no space for the log of {self.label}: {cause}. {fate} Free space: publishing continues by itself.",
                indefinite=indefinite,
            )
        return PublishFailed(
            f"the log of {self.label} could not be written: {error} {fate} It continues in a new file; publish again.",
            indefinite=indefinite,
        )

    def stage_sync(self) -> tuple[Verb, ...]:
        """Verbs that make all visible records durable, and with them the staged ones: call `synced` afterwards."""
        staged = self._staged
        self._sync_target = self.next_offset
        segment = self._segments.active if staged is None else staged.runs[-1].segment
        return (Sync(segment.file.handle),)

    def synced(self) -> None:
        """The plan with `stage_sync`'s verbs succeeded."""
        self.durable_end = max(self.durable_end, min(self._sync_target, self.visible_end))
        self._evict_tail()
        self._store_ends()

    def _evict_tail(self) -> None:
        if self._tail.size_bytes > self._tail.limit_bytes:
            self._tail.evict(self.durable_end)

    def sync_failed(self, error: PlanFailed) -> None:
        """The plan failed in `stage_sync`'s verbs: nothing past the durable end is believed any more."""
        del error
        self.needs_healing = self._is_tainted = True

    async def sync(self) -> None:
        """Make all visible records durable, between two commits. Raises `StorageError`."""
        if not self.is_dirty:
            return
        if self.needs_healing:
            raise StorageError(f"{self.label} has records that are not synced, and must be healed first.")
        try:
            await self._files.submit(self.stage_sync())
        except PlanFailed as error:
            self.sync_failed(error)
            raise
        self.synced()

    async def heal(self) -> None:
        """Go on after a failure: a new segment at the durable end, with the visible records that were not synced.

        Raises `DiskFull` or `PublishFailed` (nothing of what waits was stored) while the disk still refuses; call
        it again later.
        """
        if self._staged is not None:
            raise InternalError(f"{self.label} heals with an append staged", invariant="PL2")
        if not self.needs_healing:
            return
        try:
            await self._heal()
        except StorageError as error:
            is_full = lacks_space(error)
            if not is_full and not isinstance(error, PlanFailed):
                raise
            raise self._publish_error(error, is_full=is_full, indefinite=False) from error

    async def _heal(self) -> None:
        if self.owed_for is not None:
            # A reader goes on meanwhile in the files that it has.
            opened = await self._recover()
            reads, earlier = self._reads, list(self._segments)
            self.owed_for, self.needs_healing = None, False
            self._use(opened)
            await reads.close_dropped(earlier)
            return
        for file in self._unmade:
            await file.give_up()
        self._unmade.clear()
        await remove_leftovers(self._files, self._directory, self._segments.active)
        if not self._is_tainted:
            self.needs_healing = False
            return
        abandoned = self._segments.active
        made = await self._writer(self._settings.roll_bytes).heal(
            self._segments,
            self._tail.from_offset(self.durable_end),
            self.durable_end,
            self._settings.compression,
        )
        abandoned.end_offset = self.durable_end
        abandoned.index, abandoned.is_indexed = None, False
        self._segments.append(made)
        self._segments_changed()
        self.durable_end = self.visible_end
        self._evict_tail()
        self._store_ends()
        self.needs_healing = self._is_tainted = False
        if abandoned.base_offset == made.base_offset:
            await self._reads.close_dropped([abandoned])

    # -- reading ----------------------------------------------------------------------------------------------------

    def read_hot(
        self, offset: int, *, max_records: int, max_bytes: int = READ_BYTES_DEFAULT
    ) -> list[Columns] | None:
        """The batches from `offset` on that are in memory; empty at the visible end, None when the disk is needed.

        Never waits, never passes the visible end, cuts the first and the last batch to what was asked.
        """
        if offset >= self.visible_end:
            return []
        found = self._tail.read(offset, max_records=max_records, max_bytes=max_bytes)
        if found is not None:
            return found
        return self._reads.read_cached(offset, self.durable_end, max_records=max_records, max_bytes=max_bytes)

    async def read(self, offset: int, *, max_records: int, max_bytes: int = READ_BYTES_DEFAULT) -> Reading:
        """The batches from `offset` on, at least one when there is any; gaps and damage are passed and named, and so
        is what retention drops meanwhile.

        Raises `OffsetOutOfRange` below `start_offset`, `StorageError` when the disk refuses, `LogCorrupt`.
        """
        if offset < self.start_offset:
            raise OffsetOutOfRange(
                f"offset {offset} of {self.label} is gone: the first one kept is {self.start_offset}. "
                "Read from there.",
                offset=offset,
                start=self.start_offset,
                end=self.visible_end,
            )
        reading = await self._reads.read(
            offset, self.visible_end, self.durable_end, max_records=max_records, max_bytes=max_bytes
        )
        if reading.lost:
            await self.record.note(self._segments.damages, self._clock.wall_us())
        return reading

    async def offset_at(self, time_us: int) -> int:
        """The first offset whose append time, in microseconds, is at or after `time_us`; else the visible end."""
        search = TimeSearch(time_us, partial(self._ages.stamps.believed, now_us=self._clock.wall_us()))
        found = await self._reads.offset_at(search, self.visible_end, self.durable_end)
        await self.record.note(self._segments.damages, self._clock.wall_us())
        return found

    # -- upkeep -----------------------------------------------------------------------------------------------------

    async def retain(
        self, *, now_us: int, unsettled_from: int, drop_unread: bool, summaries: Sequence[Summary] = ()
    ) -> None:
        """Drop the oldest sealed segments that are too old or too many bytes.

        Nothing at or past `unsettled_from` (the lowest floor of the durable groups) is dropped unless `drop_unread`,
        and nothing that one of the `summaries`, or the record of damage, does not cover (PL6). Call it while nothing is
        staged. Raises `StorageError`; what was dropped until then is gone.
        """
        self._kept_from = OFFSET_MAX if drop_unread else unsettled_from
        segments = self._segments
        try:
            droppable = await self._droppable(now_us)
            if not droppable:
                return
            self.record.add((damage for each in droppable for damage in each.damages or ()), now_us)
            end = segments[len(droppable)].base_offset
            covered, failure = await cover_all((self.record, *summaries), end)
            if covered < end:
                self._kept_from = covered
                droppable = [
                    each for place, each in enumerate(droppable, 1) if segments[place].base_offset <= covered
                ]
            if droppable:
                await self._begin_at(segments[len(droppable)].base_offset)
                gone, failed = await unlink_segments(self._files, droppable)
                failure = failure or failed
                segments.drop_first(gone)
                await self._reads.close_dropped(droppable[:gone])
            if failure is not None:
                raise failure
        finally:
            self._segments_changed()

    async def _droppable(self, now_us: int) -> list[StoredSegment]:
        """The oldest segments that go by age or size, and may: each with the offsets behind it that a crash has cost,
        below where the log begins then.
        """
        segments, settings = self._segments, self._settings
        total, age_s = segments.size_bytes, settings.retention_age_s
        found: list[StoredSegment] = []
        for segment, successor in pairwise(tuple(segments)):
            goes = settings.retention_bytes is not None and total > settings.retention_bytes
            if not goes and age_s is not None:
                newest_us = await self._reads.newest_time(segment)
                goes = self._ages.is_old(newest_us, successor.created_us, age_s, now_us)
            if not goes or successor.base_offset > self._kept_from:
                break
            total -= segment.size_bytes
            found.append(segment)
        return found

    async def _begin_at(self, start: int) -> None:
        """Have `committed` say, durably, that the log begins at `start`: what is dropped now is not missing then."""
        if not self._flags & HAS_START:
            return
        self._start, ends = start, self._owed_ends
        self._store_ends()
        slots = None  # they are mapped
        if self._committed_map is None and ends is not None:
            slots = encode_committed(ends.visible_end, ends.durable_end, self._flags, start)
        await sync_slots(self._files, f"{self._directory}/{COMMITTED_NAME}", slots)

    def next_due(self, now_us: int) -> float | None:
        """Seconds until `roll_if_due` or `retain` has something to do for age's sake; None when never."""
        due_us, age_s = NEVER, self._settings.retention_age_s
        if age_s is not None and len(self._segments) > 1:
            due_us = self._ages.drop_at_us(self._segments[1].created_us, age_s, now_us)
        if self._segments.active.file.position > SEGMENT_HEADER_BYTES:
            due_us = min(due_us, self._ages.roll_at_us(now_us))
        return None if due_us == NEVER else max(0.0, (due_us - now_us) / MICROSECONDS)

    async def roll_if_due(self, now_us: int) -> None:
        """Seal the segment in use when it is old enough. Only while nothing is staged."""
        is_empty = self._segments.active.file.position <= SEGMENT_HEADER_BYTES
        if self.needs_healing or is_empty or now_us < self._ages.roll_at_us(now_us):
            return
        staged = self.stage((), durable=True, now_us=now_us)
        try:
            await self._files.submit(staged.verbs)
        except PlanFailed as error:
            raise self.failed(staged, error) from error
        except BaseException:
            # Cancelled before the plan began: nothing happened.
            self._withdraw(staged)
            raise
        self.applied(staged)

    async def close(self) -> None:
        """Sync what is dirty, store the index, close the files. A log that needs healing is left as it is.

        Damage that could not be recorded when it was found is recorded now, unless the disk refuses again.
        """
        if self._is_closed:
            return
        self._is_closed = True
        try:
            if not self.record.is_stored:
                with suppress(PlanFailed):
                    await self.record.store()
            if not self.needs_healing:
                await self._settle()
        finally:
            if self._committed_map is not None:
                self._committed_map.close()
            opened = [segment for segment in self._segments if segment.is_open]
            verbs: list[Verb] = [Close(segment.file.handle) for segment in opened]
            await self._files.submit([*verbs, *self._reads.forget([])])

    async def _settle(self) -> None:
        active = self._segments.active
        await self.sync()
        if active.file.position - active.index_stored_to > INDEX_INTERVAL_BYTES:
            room = index_room_verbs(self._files, active)
            try:
                await self._files.submit((*room, *index_store_verbs(active, is_last=True)))
            except PlanFailed as error:  # without a stored index the next opening scans the segment
                if not lacks_space(error):
                    raise
        if self._committed_map is not None and self.visible_end > self._opened_end:
            ends = Committed(self.visible_end, self.durable_end)
            await store_copy(self._files, f"{self._directory}/{COMMITTED_NAME}", ends)
