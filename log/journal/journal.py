"""The journal: small state kept as events, in order, on disk, and got back by replaying them.

Theory of operation
-------------------
The owner keeps its state in memory and changes it by *events*, opaque bytes that it appends here. At open the journal
hands back the newest snapshot and every event after it. The segments and frames are those of every log
(`journal_records` says what is in them); records are numbered by *sequence*.

Appending is split, so that a committer can put the journal's verbs behind those of the log in one plan: `stage` makes
the verbs, then `applied` or `failed` hears how the plan ended. `append` does all of it. A staged append that was not
applied has no effect on what the journal believes.

A snapshot only speeds recovery: it starts a new segment, and earlier segments stay until `prune`. `heal` writes the
same kind of segment after a failure, but there the snapshot *replaces* the earlier segments: nothing that was written
since the last good sync needs to be believed, because the owner's memory knows better.

Space is kept in reserve: `Limits.journal_reserve_bytes` of zeros lie ahead of the last frame, to be overwritten on a
full disk. The reserve is topped up by `maintain`, apart from the plans that carry events: a full disk must not fail
those.

Vocabulary
----------
proven      records below this sequence survived a sync (see `journal_records`). It is kept in the frames, in the mapped
            file `committed` (what the next process knows), and in a `ProvenEnd` that outlives this object (what the
            next incarnation of an actor knows, whatever became of the file). Both are advanced behind a sync and never
            ahead of it, so what lies below and is missing is damage.
version     the form in which the owner writes its records; each segment's header says which form is in it.
dirty       events were handed to the OS that no sync has proven: they survive a crash of the process only.

Invariants
----------
JN1  One operation at a time: nothing is staged while another append is staged or the journal changes segments.
JN2  Sequence numbers are never used twice: what a failed plan may have written keeps its numbers.
JN3  A segment exists under its name only with all it began with, synced. Everything in the segments before the last is
     proven: a segment is synced before its successor is named, unless the successor heals, whose snapshot replaces
     what lies before it.
JN4  After a plan failed in a way that may have left bytes behind, nothing is staged before `heal`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import Final

import attrs

from callboard.log import limits
from callboard.log.errors import (
    DiskFull,
    InternalError,
    InvalidArgument,
    PlanFailed,
    StorageError,
    lacks_space,
)
from callboard.log.format.columns import Columns
from callboard.log.format.committed import (
    COMMITTED_BYTES,
    COMMITTED_NAME,
    FOREIGN,
    decode_committed,
    encode_committed,
    identity_marks,
)
from callboard.log.format.faults import CommittedInvalid, SegmentHeaderInvalid
from callboard.log.format.frame import encode_frame, encode_value, encode_values, frame_length
from callboard.log.format.segment import SegmentKind, encode_segment_header, identity_of
from callboard.log.journal.journal_disk import (
    close_quietly,
    error_of,
    leave_segment,
    make_directory,
    may_have_named,
    remove_unfinished,
    segment_bases,
    start_segment,
)
from callboard.log.journal.journal_records import CONTROL, Kind, columns_of_control
from callboard.log.journal.journal_recovery import JournalOpening, JournalRecovery
from callboard.log.journal.journal_walk import Owner, announced_snapshot, read_journal
from callboard.log.limits import USUAL, Limits
from callboard.log.seams.clock import Clock
from callboard.log.seams.disk import (
    Buffer,
    Close,
    Incarnation,
    Mark,
    Sync,
    SyncDirectory,
    Unlink,
    Verb,
    Write,
    Zero,
)
from callboard.log.seams.entropy import Entropy
from callboard.log.segments.filling import new_segment_id
from callboard.log.segments.open_segment import open_segment
from callboard.log.segments.segment_file import SegmentFile, segment_path, segment_sizes
from callboard.log.segments.small_files import entries_of
from callboard.log.segments.wrong_kind import check_segments, wrong_kind

TOP_UPS_PER_RESERVE: Final = 2
"""What part of the reserve is written beyond it each time that it is topped up."""
RETRIES_PER_RESERVE: Final = 16
"""On a full disk, topping up is tried again after this part of the reserve was appended."""
SNAPSHOT_RECORDS: Final = 2
"""Sequence numbers that a snapshot takes: its announcement has one too."""


@attrs.define(eq=False)
class ProvenEnd:
    """What memory knows: for owners that outlive an incarnation which had the journal open."""

    sequence: int = 0
    """Every record below it survived a sync."""


@attrs.define(eq=False)
class StagedJournal:
    """An append whose plan has not ended. `verbs` belong at the end of a plan, in this order."""

    verbs: list[Verb]
    size_bytes: int
    """Bytes that the journal grows by."""
    end_sequence: int
    is_synced: bool
    """Whether everything appended so far is proven when the plan succeeds."""


@attrs.define(eq=False, kw_only=True)
class Journal:
    """Events and snapshots of one owner. See the module's docstring; `open` makes one."""

    _files: Incarnation
    directory: str
    _clock: Clock
    _entropy: Entropy
    _version: int
    _end: ProvenEnd = attrs.Factory(ProvenEnd)
    _limits: Limits = USUAL
    _mark: Mark | None = None
    _name_marks: int = attrs.field(init=False)
    """Name the journal in its `committed` file, which every sync changes."""
    _segment: SegmentFile = attrs.field(init=False)
    _next: int = 0
    _proven: int = 0
    _unproven_bytes: int = 0
    _staged: StagedJournal | None = None
    _busy: str | None = None
    _ends_with_mark: bool = False
    _is_outdated: bool = False
    _lacks_directory: bool = False
    _maintain_at: int = 0
    recovery: JournalRecovery = attrs.Factory(JournalRecovery)
    needs_healing: bool = False
    """A plan failed: `heal` before anything is staged (JN4)."""
    needs_maintenance: bool = False
    """Whether `maintain` has something to do: call it between two plans, unless the journal needs healing."""
    is_committed_foreign: bool = False
    """The `committed` file that was found belongs to another log: how far the journal was synced is not known."""
    lack: DiskFull | None = None
    """Why the journal was opened without a segment."""
    is_short_of_space: bool = False
    """The reserve could not be topped up: the disk is full."""
    bytes_since_snapshot: int = 0
    """How much an open would replay."""
    history_bytes: int = 0
    """Bytes of segments that no open needs, when `prune` looked last: they only hold the past."""
    dropped_history_bytes: int = 0
    """What `prune` removed of the history since the open because there was too much of it."""

    def __attrs_post_init__(self) -> None:
        self._name_marks = identity_marks(self.directory)

    @property
    def wrong_files(self) -> list[str]:
        """Files that were found here and belong elsewhere, for people."""
        path = f"{self.directory}/{COMMITTED_NAME}"
        foreign = [f"{path}: {FOREIGN}"] if self.is_committed_foreign else []
        return [*foreign, *self.recovery.strays]

    # -- opening and closing ------------------------------------------------------------------------------------

    @classmethod
    async def open(
        cls,
        files: Incarnation,
        directory: str,
        owner: Owner,
        *,
        clock: Clock,
        entropy: Entropy,
        is_damaged: bool = False,
        proven_end: ProvenEnd | None = None,
        limits: Limits = USUAL,
    ) -> Journal:
        """Replay the journal in `directory`, made when missing: `owner` hears the snapshot, then each event.

        A torn tail is moved to quarantine; events that no sync has proven are written anew and synced before this
        returns. When that fails, or the last segment is of an older version, the journal opens all the same, with
        `needs_healing` set; so does one that is without a segment, or cannot sync its names, on a full disk. With
        `is_damaged` nothing is written, what can be read is replayed, and the journal needs healing.

        Raises `LogCorrupt` when events are damaged that no later snapshot replaces, when events are missing that
        `proven_end` or the `committed` file proves, or when a folder is in the place of a file; `FormatTooNew` when a
        newer Callboard wrote something; `StorageError` when the disk fails. Errors of the owner come out as they are.
        """
        journal = cls(
            files=files,
            directory=directory,
            clock=clock,
            entropy=entropy,
            version=owner.version,
            end=ProvenEnd() if proven_end is None else proven_end,
            limits=limits,
        )
        try:
            await (journal._read(owner) if is_damaged else journal._recover(owner))
        except BaseException:
            journal._close_mark()
            raise
        return journal

    @classmethod
    async def replace(
        cls,
        files: Incarnation,
        directory: str,
        *,
        clock: Clock,
        entropy: Entropy,
        version: int,
        base: int,
        snapshot: bytes,
    ) -> None:
        """Write a journal that begins at sequence `base` with `snapshot`, which replaces all before. It is not open."""
        journal = cls(
            files=files, directory=directory, clock=clock, entropy=entropy, version=version, next=base
        )
        await journal._open_mark()
        try:
            await journal._begin_segment("replacing", Kind.HEAL, (snapshot,), needs_reserve=False)
            await journal.close()
        finally:
            journal._close_mark()

    async def _read(self, owner: Owner) -> None:
        """Read what a damaged journal still says. A segment behind all there are will replace them."""
        await self._open_mark()
        try:
            reading = await read_journal(self._files, self.directory, owner)
            bases = await segment_bases(self._files, self.directory)
        except PlanFailed as error:
            raise error_of(self.directory, "reading", error) from error
        end = max(reading.next_sequence, self._end.sequence, bases[-1] + 1 if bases else 0)
        if reading.faults or reading.next_sequence < end:
            owner.lost(reading.next_sequence, max(reading.next_sequence, end - 1))
        self._next = self._proven = end
        self._segment = self._new_segment()
        self.needs_healing = self.is_short_of_space = True

    async def _recover(self, owner: Owner) -> None:
        await self._open_mark()
        found = JournalOpening(self._files, self.directory, owner, self._end.sequence)
        entries = await self._files.list(self.directory)
        check_segments(self.directory, entries)
        try:
            await found.run(await remove_unfinished(self._files, self.directory, entries))
        except PlanFailed as error:
            raise error_of(self.directory, "opening", error) from error
        self.recovery = found.recovery
        self._next = self._proven = found.next_sequence
        if self._mark is not None and (self._end.sequence or self.is_committed_foreign):
            # Only now is it known that what lies here is this journal.
            self._mark.store(encode_committed(self._end.sequence, self._end.sequence, self._name_marks))
        if found.segment is None:
            try:
                await self._begin_segment("opening", needs_reserve=False)
            except DiskFull as error:  # the journal is without a segment until it is healed
                self._segment, self.lack = self._new_segment(), error
                self.needs_healing = self.is_short_of_space = True
            return
        self._segment = found.segment
        self.bytes_since_snapshot = found.walk.replayed_bytes
        # Names that could not be synced may go with the power, and the segments with them.
        is_in_doubt = found.needs_healing or self._lacks_directory
        self.needs_healing = is_in_doubt or found.is_outdated
        self._is_outdated = found.is_outdated and not is_in_doubt
        self._ends_with_mark = found.ends_with_mark
        if not is_in_doubt:
            self._prove()
        self._plan_maintenance()
        if self.needs_maintenance and not self.needs_healing:
            await self.maintain()

    async def _open_mark(self) -> None:
        """Make the directory and map `committed`; without space for them, memory alone knows what is proven.

        Raises `StorageError` when the disk refuses, `FormatTooNew`.
        """
        try:
            await make_directory(self._files, self.directory)
        except PlanFailed as error:
            if not lacks_space(error):
                await entries_of(self._files, self.directory)  # raises when a place above it is no folder
                raise error_of(self.directory, "opening", error) from error
            self._lacks_directory = True
            return
        try:
            self._mark = await self._files.mark(f"{self.directory}/{COMMITTED_NAME}", COMMITTED_BYTES)
        except StorageError as error:
            if (wrong := wrong_kind(f"{self.directory}/{COMMITTED_NAME}", error.__cause__)) is not None:
                raise wrong from error
            if not lacks_space(error):
                raise
            return
        end, known = self._end, 0
        with suppress(CommittedInvalid):
            stored = decode_committed(self._mark.load())
            if stored.is_foreign(self.directory) and await segment_bases(self._files, self.directory):
                self.is_committed_foreign = True  # it stays until what lies here is known to be this journal
            else:
                known = stored.durable_end
                end.sequence = max(end.sequence, stored.durable_end)
        if end.sequence > known and not self.is_committed_foreign:
            # What memory knows is what repair must know.
            self._mark.store(encode_committed(end.sequence, end.sequence, self._name_marks))

    def _close_mark(self) -> None:
        mark, self._mark = self._mark, None
        if mark is not None:
            mark.close()

    def _prove(self) -> None:
        """A sync covered everything that was appended."""
        self._unproven_bytes = 0
        self._proven = end = self._next
        if end > self._end.sequence:
            self._end.sequence = end
            if self._mark is not None:
                self._mark.store(encode_committed(end, end, self._name_marks))

    async def close(self) -> None:
        """Sync what is dirty, mark the end as clean, close the file. Raises `StorageError` when the sync fails."""
        self._check_idle("close")
        handle = self._segment.handle
        if self.needs_healing:
            self._close_mark()
            await close_quietly(self._files, self._segment)
            return
        verbs: list[Verb] = [Sync(handle)] if self.is_dirty else []
        if not self._ends_with_mark:
            control = columns_of_control(Kind.MARK, self._next)
            frames = self._encode(control, self._next, self._segment.segment_id)
            if self._segment.position + frame_length(frames) <= self._segment.allocated_to:
                verbs.append(Write(handle, self._segment.position, frames))
        self.needs_healing = True  # Whatever comes, nothing is staged any more.
        try:
            await self._files.submit((*verbs, Close(handle)))
        except PlanFailed as error:
            await close_quietly(self._files, self._segment)
            if isinstance(error.verb, Sync):
                raise error_of(self.directory, "closing", error) from error
        else:
            self._prove()
        finally:
            self._close_mark()

    # -- appending ----------------------------------------------------------------------------------------------

    def stage(self, records: Sequence[bytes], *, sync: bool = True) -> StagedJournal:
        """The verbs that append `records`; submit them, then call `applied` or `failed`.

        `sync=False` hands the events to the OS only: they survive a crash of the process, not a power loss.
        `stage(())` proves what was appended before. Raises `StorageError` while the journal needs healing.
        """
        if self._staged is not None or self._busy is not None:
            raise self._not_idle("stage")
        if self.needs_healing:
            raise StorageError(
                f"journal {self.directory}: an earlier write failed. Heal the journal before appending.",
                path=self.directory,
            )
        segment, sequence = self._segment, self._next
        buffers: list[Buffer] = []
        if records:
            control, now_us = CONTROL.pack(Kind.EVENTS, self._proven), self._clock.wall_us()
            per_frame = max(1, self._limits.frame_records - 1)
            for first in range(0, len(records), per_frame):
                values = [control, *records[first : first + per_frame]]
                buffers.append(
                    encode_values(
                        values, segment_id=segment.segment_id, base_offset=sequence, append_time_us=now_us
                    )
                )
                sequence += len(values)
        size = sum(map(len, buffers))
        verbs: list[Verb] = []
        if buffers:
            beyond = segment.position + size - segment.allocated_to
            if beyond > 0:
                # Only when the reserve is used up. Zeros first: a full disk then fails before anything is stored.
                verbs.append(Zero(segment.handle, segment.allocated_to, beyond))
            verbs.append(Write(segment.handle, segment.position, buffers))
        unproven = self._unproven_bytes + size
        is_synced = sync or unproven > self._limits.journal_unproven_bytes
        if is_synced and unproven:
            verbs.append(Sync(segment.handle))
        self._staged = staged = StagedJournal(verbs, size, sequence, is_synced)
        return staged

    def applied(self, staged: StagedJournal) -> None:
        """The plan succeeded: the events are in the journal."""
        if staged is not self._staged:
            raise self._not_idle("applying another append")
        self._staged = None
        segment = self._segment
        segment.position = position = segment.position + staged.size_bytes
        if position > segment.allocated_to:
            segment.allocated_to = position
        if staged.size_bytes:
            self._ends_with_mark = False
        self._next = staged.end_sequence
        self.bytes_since_snapshot += staged.size_bytes
        self._unproven_bytes += staged.size_bytes
        self.needs_maintenance = position >= self._maintain_at
        if staged.is_synced:
            self._prove()

    def failed(self, staged: StagedJournal, error: PlanFailed) -> StorageError:
        """The plan failed: the error for waiting tasks. Sets `needs_healing` unless nothing can have been written.

        The error is indefinite when the events may be found at the next open, unless the journal is healed before.
        """
        self.withdraw(staged)
        if not any(verb is error.verb for verb in staged.verbs):
            return error_of(self.directory, "appending", error, "Nothing was stored in it.")
        if isinstance(error.verb, Zero) and lacks_space(error):
            self.is_short_of_space = True
            advice = "Nothing was stored. Free space: the journal continues by itself."
            return error_of(self.directory, "appending", error, advice)
        self._next = staged.end_sequence
        self.needs_healing = True
        advice = "The events may or may not be stored. The journal must be healed."
        found = error_of(self.directory, "appending", error, advice)
        found.indefinite = True
        return found

    async def append(self, records: Sequence[bytes], *, sync: bool = True) -> None:
        """Stage, submit and apply `records`. Raises what `failed` returns: then the owner's state stays as it was.

        When `needs_maintenance` is set then, call `maintain`, but only after the owner's state has changed too: the
        events are stored, whatever becomes of the upkeep.
        """
        staged = self.stage(records, sync=sync)
        try:
            await self.submit(staged)
        except PlanFailed as error:
            raise self.failed(staged, error) from error
        except BaseException:
            # Cancelled before the plan started, or fenced: nothing was written. Or a signal handler raised while the
            # plan ran: it has ended all the same, and what opens the journal next may find its events.
            self._staged = None
            raise
        self.applied(staged)

    async def submit(self, staged: StagedJournal) -> None:
        """Run the verbs of an append, in a plan of its own. Raises `PlanFailed`."""
        await self._files.submit(staged.verbs)

    def withdraw(self, staged: StagedJournal) -> None:
        """The plan was never submitted: forget the staged append."""
        if staged is not self._staged:
            raise self._not_idle("ending another append")
        self._staged = None

    # -- snapshots, healing, space ------------------------------------------------------------------------------

    async def snapshot(self, data: bytes | Sequence[bytes]) -> None:
        """Begin a new segment with `data`, which must equal the replay of everything applied so far, maybe in parts.

        Earlier segments stay until `prune`. Raises `InvalidArgument` when the snapshot is too large, `DiskFull` when
        there is no space (the journal goes on as before), `StorageError` else.
        """
        parts = self._checked(data)
        self._check_idle("snapshot")
        if self.needs_healing:
            await self.heal(parts)
        else:
            await self._change_segment("taking a snapshot", Kind.SNAPSHOT, parts)

    async def heal(self, snapshot: bytes | Sequence[bytes]) -> None:
        """After a failure: begin a new segment with the owner's state, synced, that replaces all earlier ones.

        Raises `StorageError` while the disk still refuses: the journal then still needs healing.
        """
        parts = self._checked(snapshot)
        self._check_idle("heal")
        # What is only of an older version is as good as its snapshot, should that be damaged.
        kind = Kind.SNAPSHOT if self._is_outdated else Kind.HEAL
        await self._change_segment("healing", kind, parts, needs_reserve=False)

    def _plan_maintenance(self, earliest: int = 0) -> None:
        """Maintain when the segment is long or its reserve short, but not before it has grown to `earliest`."""
        segment, limits = self._segment, self._limits
        reserve_ends = segment.allocated_to - limits.journal_reserve_bytes + 1
        self._maintain_at = max(earliest, min(limits.journal_segment_bytes, reserve_ends))
        self.needs_maintenance = segment.position >= self._maintain_at

    async def maintain(self) -> None:
        """Top up the reserve, or begin a new segment when this one is long. A full disk is noted, not raised."""
        self._check_idle("maintain")
        segment, limits = self._segment, self._limits
        try:
            if segment.position >= limits.journal_segment_bytes:
                await self._change_segment("beginning a segment")
            elif self.reserve_bytes < limits.journal_reserve_bytes:
                await self._top_up(segment)
        except DiskFull:
            self.is_short_of_space = True
            self._plan_maintenance(segment.position + limits.journal_reserve_bytes // RETRIES_PER_RESERVE)

    async def _top_up(self, segment: SegmentFile) -> None:
        target = segment.position + self._topped_up_bytes
        zeros = Zero(segment.handle, segment.allocated_to, target - segment.allocated_to)
        self._busy = "topping up the reserve"
        try:
            await self._files.submit((zeros, Sync(segment.handle)))
        except PlanFailed as error:
            if error.verb is not zeros or not lacks_space(error):
                self.needs_healing = True
            raise error_of(self.directory, "topping up the reserve", error) from error
        finally:
            self._busy = None
        segment.allocated_to = target
        self.is_short_of_space = False
        self._plan_maintenance()
        self._prove()

    async def prune(self, *, keep_from_us: int | None = None, keep_bytes: int | None = None) -> int:
        """Remove segments that the newest snapshot made superfluous; returns how many.

        With `keep_from_us` (microseconds since 1970) those stay that hold events from that instant on, as far as they
        are no more than `keep_bytes`: then the oldest go all the same, counted in `dropped_history_bytes`.
        """
        self._check_idle("prune")
        self._busy = "pruning"
        try:
            return await self._prune(keep_from_us, keep_bytes)
        except PlanFailed as error:
            raise error_of(self.directory, "pruning", error) from error
        finally:
            self._busy = None

    async def _prune(self, keep_from_us: int | None, keep_bytes: int | None) -> int:
        directory = self.directory
        sizes = segment_sizes(await self._files.list(directory))
        superfluous, created_us = await self._superfluous(list(sizes))
        verbs: list[Verb] = []
        kept = sum(sizes[base] for base in superfluous)
        excess = 0
        for base in superfluous:
            ended_us = None
            for later in sizes:
                if later > base and ended_us is None:
                    if later not in created_us:
                        created_us[later], _ = await self._beginning(later)
                    ended_us = created_us[later]
            if keep_from_us is not None and (ended_us is None or ended_us > keep_from_us):
                if keep_bytes is None or kept <= keep_bytes:
                    break
                excess += sizes[base]
            verbs.append(Unlink(segment_path(directory, base)))
            kept -= sizes[base]
        if verbs:
            await self._files.submit((*verbs, SyncDirectory(directory)))
        self.history_bytes = kept
        self.dropped_history_bytes += excess
        return len(verbs)

    async def _superfluous(self, bases: Sequence[int]) -> tuple[Sequence[int], dict[int, int | None]]:
        """Those of the segments that precede the newest with a snapshot; and when those looked into were created."""
        created_us: dict[int, int | None] = {}
        for place in range(len(bases) - 1, -1, -1):
            created_us[bases[place]], kind = await self._beginning(bases[place])
            if kind is not None:
                return bases[:place], created_us
        return (), created_us

    async def _beginning(self, base: int) -> tuple[int | None, Kind | None]:
        """When a segment was created, and what snapshot it begins with; nothing of one whose header is damaged, or is
        another's.
        """
        try:
            segment = await open_segment(self._files, segment_path(self.directory, base))
        except SegmentHeaderInvalid:
            return None, None
        kind, _ = await announced_snapshot(self._files, segment)
        await self._files.submit((Close(segment.handle),))
        return (segment.header.created_us, kind) if segment.header.base_offset == base else (None, None)

    # -- state --------------------------------------------------------------------------------------------------

    @property
    def next_sequence(self) -> int:
        """The sequence number of the next record."""
        return self._next

    @property
    def is_dirty(self) -> bool:
        """Whether events were appended that no sync has proven."""
        return self._unproven_bytes > 0

    @property
    def has_unproven_reads(self) -> bool:
        """Whether opening read events that no sync has proven, and could not sync: power loss may take them."""
        is_written = self._is_outdated or not (self.recovery.rewritten_bytes or self._lacks_directory)
        return self.needs_healing and not is_written and self._end.sequence < self._next

    @property
    def reserve_bytes(self) -> int:
        """Zeros ahead of the last frame."""
        return self._segment.allocated_to - self._segment.position

    @property
    def next_id(self) -> int:
        """An id for what begins with the next record: 62 bits. No other place in this journal has it, and none in a
        journal that takes its place.
        """
        place = f"{self._segment.segment_id}/{self._next}"
        return (int.from_bytes(blake2b(place.encode(), digest_size=8).digest(), "little") >> 2) or 1

    @property
    def segment(self) -> SegmentFile:
        """The segment written to now."""
        return self._segment

    @property
    def _topped_up_bytes(self) -> int:
        reserve_bytes = self._limits.journal_reserve_bytes
        return reserve_bytes + reserve_bytes // TOP_UPS_PER_RESERVE

    # -- inner --------------------------------------------------------------------------------------------------

    async def _change_segment(
        self, doing: str, kind: Kind | None = None, data: Sequence[bytes] = (), *, needs_reserve: bool = True
    ) -> None:
        """Begin a new segment as `_begin_segment` does, and leave the present one (JN3)."""
        earlier = self._segment
        await self._begin_segment(doing, kind, data, earlier=earlier, needs_reserve=needs_reserve)
        await leave_segment(self._files, earlier, self._segment)

    async def _begin_segment(
        self,
        doing: str,
        kind: Kind | None = None,
        data: Sequence[bytes] = (),
        *,
        earlier: SegmentFile | None = None,
        needs_reserve: bool,
    ) -> None:
        """Begin a new segment behind the `earlier` one, with the snapshot `data` unless `kind` is None.

        With `needs_reserve` a disk too full for the reserve fails it; else the segment begins without one.
        """
        segment = self._new_segment()
        frames = [] if kind is None else self._snapshot_frames(segment, kind, data)
        syncs_earlier = earlier is not None and self.is_dirty and kind is not Kind.HEAL
        first = (Sync(earlier.handle),) if earlier is not None and syncs_earlier else ()
        self._busy = doing
        try:
            if self._lacks_directory:
                await make_directory(self._files, self.directory)
                self._lacks_directory = False
            header = encode_segment_header(
                segment_id=segment.segment_id,
                kind=SegmentKind.JOURNAL,
                base_offset=segment.base_offset,
                previous_base=None if earlier is None else earlier.base_offset,
                created_us=self._clock.wall_us(),
                records_version=self._version,
                identity=identity_of(self.directory),
            )
            reserve_bytes = self._topped_up_bytes
            reserves = (reserve_bytes,) if needs_reserve else (reserve_bytes, 0)
            await start_segment(self._files, segment, header, frames, reserves, first)
        except PlanFailed as error:
            if any(verb is error.verb for verb in first) or may_have_named(error):
                self.needs_healing = True
            advice = "Free space: the journal goes on by itself." if lacks_space(error) else ""
            raise error_of(self.directory, doing, error, advice) from error
        finally:
            self._busy = None
        self._segment = segment
        if kind is not None:
            self._next += SNAPSHOT_RECORDS
            self.bytes_since_snapshot = 0
        self._plan_maintenance()
        self._prove()
        self._ends_with_mark = False
        self.needs_healing = self._is_outdated = False
        self.is_short_of_space = self.reserve_bytes < self._limits.journal_reserve_bytes

    def _snapshot_frames(self, segment: SegmentFile, kind: Kind, data: Sequence[bytes]) -> list[Buffer]:
        """The announcement of a snapshot, and the snapshot: what `segment` begins with."""
        base, segment_id = segment.base_offset, segment.segment_id
        announcement = columns_of_control(kind, base + SNAPSHOT_RECORDS)
        return [
            *self._encode(announcement, base, segment_id),
            *encode_value(
                data, segment_id=segment_id, base_offset=base + 1, append_time_us=self._clock.wall_us()
            ),
        ]

    def _new_segment(self) -> SegmentFile:
        """The segment that begins here; there is no file yet."""
        return SegmentFile(
            self._files,
            self.directory,
            self._next,
            segment_id=new_segment_id(self._entropy),
            limit_bytes=self._limits.journal_segment_bytes,
        )

    def _encode(self, columns: Columns, sequence: int, segment_id: int) -> list[Buffer]:
        return encode_frame(
            columns, segment_id=segment_id, base_offset=sequence, append_time_us=self._clock.wall_us()
        )

    def _checked(self, data: bytes | Sequence[bytes]) -> Sequence[bytes]:
        """The parts of a snapshot. Raises `InvalidArgument` when it is too large."""
        parts: Sequence[bytes] = (data,) if isinstance(data, bytes) else data
        size = sum(map(len, parts))
        if size > limits.SNAPSHOT_BYTES_MAX:
            raise InvalidArgument(
                f"journal {self.directory}: a snapshot of {size} bytes, at most {limits.SNAPSHOT_BYTES_MAX} are "
                "allowed. Nothing was written; the journal continues. Keep less state, or split it.",
                size_bytes=size,
                limit_bytes=limits.SNAPSHOT_BYTES_MAX,
            )
        return parts

    def _check_idle(self, doing: str) -> None:
        if self._staged is not None or self._busy is not None:
            raise self._not_idle(doing)

    def _not_idle(self, doing: str) -> InternalError:
        return InternalError(
            f"{doing} in journal {self.directory} during {self._busy or 'a staged append'}", invariant="JN1"
        )
