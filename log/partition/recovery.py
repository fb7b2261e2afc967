"""Opening a partition's directory, whatever the last process, or the power, left there.

Theory of operation
-------------------
1. Survey: read every segment's header. Half-made files (`.new`) are removed, unknown names are left alone, a
   segment whose header and index are both lost goes to quarantine.
2. Scan the last segment, from where its stored index reaches. Sealed segments are trusted until read: they were synced
   before their successors were made. An exception is a segment before a gap: its successor may have been made by a
   recovery that was interrupted before it had rewritten what lies before the gap.
3. Prove. What the `committed` file calls durable, by its copy if the slots are garbage, is proven. All other frames
   are *unproven*: their pages may be in memory only, and after a failed sync no later sync would show it. They are
   written anew into new segments, synced, and only then served. A torn tail is copied to quarantine. A hole among
   unproven frames is what a power loss leaves, which keeps unsynced writes in any order: no damage.
4. The next offset is above everything that a journal or the record of damage names, that readers may have seen, or
   that was once durable; a gap is recorded in the header of the segment behind it.

When the disk is too full for what recovery must write, the log is opened as far as it is proven (`open_proven`):
nothing is written, set aside or renamed, nothing unproven or doubtful is served, and recovery itself is the work owed.
It is repeated whole, and finds the same records (RC3), when there is space. A log without a segment opens empty.

New segments are made from the highest offsets down, each whole and synced before it gets its name. A name supersedes
the frames of the segments before it, so at each crash point every frame is served from one place or the other, and
the next recovery finds the same log.

Invariants
----------
RC1  Recovery never makes a frame unreachable before its copy is synced under its final name.
RC2  After recovery every frame below the next offset was synced, and the `committed` file says so, with its copy.
RC3  Recovery repeated finds the same records at the same offsets.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import zip_longest
from typing import Final

import attrs

from callboard.log.errors import StorageError
from callboard.log.format.committed import (
    COMMITTED_BYTES,
    COMMITTED_NAME,
    FOREIGN,
    GONE,
    HAS_START,
    Committed,
    decode_copy,
    encode_committed,
    encode_committed_file,
    named_marks,
    noted_entries,
    proven_ends,
)
from callboard.log.format.frame import BASE_OFFSET, LAST_OFFSET, FrameFields
from callboard.log.format.frame_walk import BEYOND_ALL, Tail
from callboard.log.format.segment import GapReason
from callboard.log.limits import OFFSET_JUMP_MAX, OFFSET_MAX
from callboard.log.partition.rewriting import RewrittenRun, SegmentWriter
from callboard.log.partition.survey import Survey, ensure_directory, survey
from callboard.log.seams.disk import Close, Entry, Incarnation, Mark, SyncDirectory
from callboard.log.segments.committed_file import store_copy
from callboard.log.segments.damage_record import DAMAGES_NAME, DamageRecord
from callboard.log.segments.headers import holds_another
from callboard.log.segments.index_file import new_index, trusted_index
from callboard.log.segments.placing import BEGINNING_GONE, TOO_FAR, explains_ends, is_within_reach
from callboard.log.segments.quarantine import Quarantine
from callboard.log.segments.segment_file import SegmentFile, segment_sizes
from callboard.log.segments.segment_scan import damages_of, ensure_open, scan_from
from callboard.log.segments.segments import UNKNOWN, Damage, SegmentList, StoredSegment
from callboard.log.segments.small_files import read_whole, replace_whole
from callboard.log.segments.wrong_kind import check_segments

FOLDER_GONE: Final = "the folder of the log is gone"
FOLDER_EXCHANGED: Final = "its folder holds another log, and its own is not there"


@attrs.frozen
class Recovery:
    """What opening found and did."""

    torn_bytes: int
    damages: tuple[Damage, ...]
    rewritten_records: int = 0
    quarantined: tuple[str, ...] = ()


@attrs.frozen
class Opened:
    """A partition ready for use: all below `next_offset` is durable and visible."""

    segments: SegmentList
    mark: Mark | None
    """The `committed` file; None while recovery is owed: the log ends at `next_offset` for its readers only."""
    next_offset: int
    recovery: Recovery
    record: DamageRecord
    marks: int = 0
    """Of `committed`."""
    start: int = 0
    """Where it says that the log begins."""
    owed_ends: Committed | None = None
    """What it says while recovery is owed."""


def begin_anew_at(now_us: int) -> int:
    """Where a log begins anew when all of it is gone: above every offset that it can have given.

    No log has had a record for every microsecond since 1970.
    """
    return min(max(now_us, OFFSET_JUMP_MAX), OFFSET_MAX)


@attrs.define
class FolderContents:
    """What a partition's folder holds, before its segments are looked at."""

    entries: Sequence[Entry]
    stored: bytes | None
    """The content of the `committed` file."""
    record: DamageRecord
    begins_at: int = 0
    """Where the log begins anew when all that was there is gone, else 0."""


async def open_partition(writer: SegmentWriter, named_end: int, *, is_gone: bool = False) -> Opened:
    """Recover the partition in the directory of `writer`, made when missing; the next offset is `named_end` or above.

    With `is_gone` there is nothing of what was there, and the log begins anew.

    Raises `StorageError` when the disk refuses (also when it is full and frames must be written anew), `LogCorrupt`
    when a folder is in the place of a file, and `FormatTooNew`.
    """
    files, directory, quarantine = writer.files, writer.directory, writer.quarantine
    folder = await open_folder(writer, is_gone=is_gone)
    stored, record, path = folder.stored, folder.record, f"{directory}/{COMMITTED_NAME}"
    mark = None if stored is None else await files.mark(path, COMMITTED_BYTES)
    segments: Sequence[StoredSegment] = ()
    try:
        await files.submit((SyncDirectory(directory),))
        found, committed, doubts = await survey_by(
            stored, files, directory, quarantine, folder.entries, limit_bytes=writer.segment_bytes
        )
        segments, damages = found.segments, [*found.damages, *doubts]
        damages += lost_beginning(directory, segments, committed, damages)
        tail = TailRecovery(files, segments, committed, quarantine)
        await tail.scan()
        damages = tail.without_doubtful(damages)
        if segments and tail.end > 0 and stored is None:
            damages.append(Damage(path, 0, COMMITTED_BYTES, 0, -1, GONE))
        top = tail.plan_top(directory, named_end, record.lost_end, folder.begins_at)
        # Before anything takes the place of what is damaged: a crash must not leave the loss unnoted.
        await record.note((*damages, *tail.damages), writer.clock.wall_us())
        listed = SegmentList(await writer.replace(segments, tail.runs))
        marks = named_marks(0 if committed is None else committed.marks, directory)
        if record.is_stored:
            marks |= HAS_START
        # What is missing at the beginning is not explained away before it is on record.
        start = listed[0].base_offset if record.is_stored or committed is None else committed.start
        if mark is None or committed is None:
            if mark is not None:
                mark.close()
            stored = encode_committed_file(top, marks, start)
            await replace_whole(files, path, stored)
            mark = await files.mark(path, COMMITTED_BYTES)
            await record.count_anew()
    except StorageError:
        if mark is not None:
            mark.close()
        await close_all(files, (*segments, *writer.made))
        raise
    mark.store(encode_committed(top, top, marks, start))
    ends = Committed(top, top)
    if stored is None or decode_copy(stored) != ends:
        await store_copy(files, path, ends)
    listed.active.end_offset = top
    recovery = Recovery(
        torn_bytes=tail.torn_bytes,
        damages=(*damages, *tail.damages),
        rewritten_records=writer.rewritten_records,
        quarantined=tuple(quarantine.kept),
    )
    return Opened(listed, mark, top, recovery, record, marks, start)


async def open_folder(writer: SegmentWriter, *, is_gone: bool) -> FolderContents:
    """Make the folder when it is missing, and read the small files in it.

    When it `is_gone`, or another log's folder is in its place, that is noted before anything else is done.
    """
    files, directory = writer.files, writer.directory
    entries = await ensure_directory(files, directory)
    check_segments(directory, entries)
    names = {entry.name for entry in entries}
    stored = await read_whole(files, f"{directory}/{COMMITTED_NAME}") if COMMITTED_NAME in names else None
    is_noted = DAMAGES_NAME in names or noted_entries(stored or b"", directory) > 0
    record = await DamageRecord.load(files, directory) if is_noted else DamageRecord(files, directory)
    folder = FolderContents(entries, stored, record)
    ends = None if stored is None else proven_ends(stored)
    if is_gone:
        await note_gone(writer, folder)
    elif (ends is None or not ends.is_named(directory)) and await holds_another(
        files, directory, segment_sizes(entries)
    ):
        await note_exchanged(writer, folder)
    return folder


async def note_gone(writer: SegmentWriter, folder: FolderContents) -> None:
    """Note that the folder is gone, before anything is made in it: then it would be there, and not be missed."""
    now_us = writer.clock.wall_us()
    folder.begins_at = begin_anew_at(now_us)
    gone = Damage(writer.directory, 0, 0, 0, UNKNOWN, FOLDER_GONE)
    await folder.record.note([gone], now_us)
    # What an earlier attempt to note it had left is not there any more.
    folder.entries = await writer.files.list(writer.directory)


async def note_exchanged(writer: SegmentWriter, folder: FolderContents) -> None:
    """Have `committed` and the record of damage say that the folder holds another log.

    Before the files of that are moved: without them the log must not seem to be new.
    """
    now_us, directory = writer.clock.wall_us(), writer.directory
    folder.begins_at = begins_at = begin_anew_at(now_us)
    folder.stored = encode_committed_file(begins_at, named_marks(HAS_START, directory), begins_at)
    await replace_whole(writer.files, f"{directory}/{COMMITTED_NAME}", folder.stored)
    await folder.record.count_anew()
    exchanged = Damage(directory, 0, 0, 0, UNKNOWN, FOLDER_EXCHANGED)
    await folder.record.note([exchanged], now_us)
    folder.entries = await writer.files.list(directory)


async def survey_by(
    stored: bytes | None,
    files: Incarnation,
    directory: str,
    quarantine: Quarantine | None,
    entries: Sequence[Entry],
    *,
    limit_bytes: int,
) -> tuple[Survey, Committed | None, list[Damage]]:
    """Survey the segments by the content of a `committed` file; also returns its ends, and why they are not believed.

    Without segments another log's ends are all that there is, and are believed, so that no offset is used again.
    """
    doubts: list[str] = []
    committed = None if stored is None else proven_ends(stored)
    if committed is not None and committed.is_foreign(directory) and segment_sizes(entries):
        doubts.append(FOREIGN)
        committed = None
    found = await survey(
        files, directory, quarantine, limit_bytes=limit_bytes, committed=committed, entries=entries
    )
    if committed is not None:
        last_base = found.segments[-1].base_offset if found.segments else None
        if not explains_ends(last_base, committed):
            doubts.append(f"its ends are {TOO_FAR}")
            committed = None
    path = f"{directory}/{COMMITTED_NAME}"
    return found, committed, [Damage(path, 0, COMMITTED_BYTES, 0, -1, doubt) for doubt in doubts]


async def open_proven(files: Incarnation, directory: str, *, segment_bytes: int) -> Opened:
    """What of the partition can be served although recovery cannot write: what is proven and needs no judgement.

    Nothing is changed; what is to be set aside, or has a wrong name, is left out. Without any segment the log is empty.
    Raises `StorageError` when the disk does not let itself be read.
    """
    stored = await read_whole(files, f"{directory}/{COMMITTED_NAME}")
    entries = await files.list(directory)
    found, committed, _ = await survey_by(stored, files, directory, None, entries, limit_bytes=segment_bytes)
    tail = TailRecovery(files, found.segments, committed, None)
    await tail.scan()
    end = min([found.doubtful_from, tail.proven, tail.end, *(run.base_offset for run in tail.runs)])
    kept = [segment for segment in found.segments if segment.base_offset < end]
    if not kept and found.segments and found.segments[0].base_offset == end:
        kept = found.segments[:1]
    await close_all(files, found.segments[len(kept) :])
    if not kept:
        if committed is not None and not found.segments and found.doubtful_from == BEYOND_ALL:
            end = max(committed.visible_end, committed.durable_end)
        # Stands for the segment that recovery could not make: it has no file, and nothing is read from it.
        file = SegmentFile(files, directory, end, segment_id=0, limit_bytes=segment_bytes)
        none, index = GapReason.NONE, new_index(0, end)
        kept = [StoredSegment(file, index, created_us=0, previous_end=end, gap=none, is_open=True)]
    kept[-1].end_offset = end
    damages = (*tail.without_doubtful(found.damages), *tail.damages)
    record = await DamageRecord.load(files, directory)
    marks, start = (0, 0) if committed is None else (committed.marks, committed.start)
    recovery = Recovery(tail.torn_bytes, damages)
    return Opened(SegmentList(kept), None, end, recovery, record, marks, start, committed)


async def close_all(files: Incarnation, segments: Sequence[StoredSegment]) -> None:
    """Close what is open of `segments`, which are given up."""
    await files.submit([Close(segment.file.handle) for segment in segments if segment.is_open])


class TailRecovery:
    """Steps 2 and 3: what the segments at the end hold, and which of their frames have to be written anew."""

    def __init__(
        self,
        files: Incarnation,
        segments: Sequence[StoredSegment],
        committed: Committed | None,
        quarantine: Quarantine | None,
    ) -> None:
        """Without a `quarantine`, torn bytes stay where they are. `committed` None: what was synced is unknown."""
        self._files = files
        self._segments = segments
        self._is_end_known = committed is not None
        self._committed = committed = committed or Committed(0, 0)
        self._quarantine = quarantine
        self._first = first_of_tail(segments, committed)
        """The first segment to be scanned."""
        ended = 0 if segments else committed.begins_at(max(committed.visible_end, committed.durable_end)) or 0
        self._base = base = segments[self._first].base_offset if segments else ended
        self.proven = max(committed.durable_end, base)
        """Frames that reach it are unproven."""
        self.end = base
        """Where the frames found so far end."""
        self.runs: list[RewrittenRun] = []
        self.damages: list[Damage] = []
        self.torn_bytes = 0

    async def scan(self) -> None:
        """Find the runs of unproven frames, the damage, and the torn tail."""
        tail = self._segments[self._first :]
        for segment, following in zip_longest(tail, tail[1:]):
            await self._scan_segment(segment, BEYOND_ALL if following is None else following.base_offset)

    def without_doubtful(self, damages: Sequence[Damage]) -> list[Damage]:
        """`damages` without the offsets that no file holds by the headers of scanned segments: the scan knows better.

        A recovery that was interrupted has made successors of frames that it had not rewritten yet.
        """
        return [damage for damage in damages if damage.end or damage.first_offset < self._base]

    async def _scan_segment(self, segment: StoredSegment, limit: int) -> None:
        """Scan up to offset `limit`, from where the stored index is proven to reach, else from the first frame."""
        await ensure_open(self._files, segment)
        index = await trusted_index(self._files, segment)
        index.cut(self.proven)
        segment.index, segment.is_indexed = index, True
        segment.index_stored_to = index.end_position
        file, earlier_runs = segment.file, len(self.runs)
        take = partial(self._take_unproven, segment)
        scan = await scan_from(self._files, segment, index, limit=limit, visit=take, visit_from=self.proven)
        damages = damages_of(file.path, scan, limit)
        segment.damages = tuple(damage for damage in damages if not self._is_torn(damage.first_offset))
        self.damages += segment.damages
        is_torn = limit == BEYOND_ALL and scan.tail is Tail.TORN
        if is_torn:
            size_bytes = scan.tail_end - scan.end
            self.torn_bytes += size_bytes
            if self._quarantine is not None:
                await self._quarantine.copy(
                    file.handle, scan.next_offset, scan.end, size_bytes, segment.segment_id
                )
        if len(self.runs) > earlier_runs:
            file.position = self.runs[earlier_runs].positions[0]
            segment.index, segment.is_indexed = None, False
            return
        self.end = max(self.end, min(scan.next_offset, limit))
        if limit == BEYOND_ALL:
            file.position = scan.end
            file.allocated_to = max(scan.end, file.allocated_to)
        if is_torn:
            self._new_run(segment, self.end, self.end)

    def _is_torn(self, offset: int) -> bool:
        """Whether power loss alone may have taken what was at `offset`: no sync is known to cover it.

        Where it is not known how far the log was synced, nothing is.
        """
        return self._is_end_known and offset >= self._committed.durable_end

    def _take_unproven(
        self, segment: StoredSegment, position: int, fields: FrameFields, body: memoryview
    ) -> bool:
        """For the scan: no sync is known to cover this frame. It continues the last run, or begins one."""
        del body
        base, end = fields[BASE_OFFSET], max(self.end, self.proven)
        run = self.runs[-1] if self.runs else None
        if run is None or run.source is not segment or base != end:
            run = self._new_run(segment, base, end)
        run.positions.append(position)
        run.end_offset = self.end = fields[LAST_OFFSET] + 1
        return False

    def _new_run(self, segment: StoredSegment, base: int, end: int) -> RewrittenRun:
        """A run of frames from `base` on, after frames that ended at `end`."""
        previous_end = min(end, base)
        gap = GapReason.NONE
        if previous_end < base:
            gap = GapReason.UNSYNCED if self._is_torn(previous_end) else GapReason.DAMAGED
        if base == segment.base_offset and segment.previous_end <= end:
            # It takes the segment's place, and keeps what that says of the gap before it.
            previous_end, gap = segment.previous_end, segment.gap
        run = RewrittenRun(segment, base, base, previous_end, gap)
        self.runs.append(run)
        return run

    def plan_top(self, directory: str, named_end: int, lost_end: int, begins_at: int) -> int:
        """Step 4: the next offset, and a segment that begins there when no other can take it.

        Journals name offsets below `named_end`, the record of damage below `lost_end`.
        """
        committed, end = self._committed, self.end
        top = max(end, committed.visible_end, committed.durable_end, begins_at)
        if is_within_reach(lost_end, top):
            top = max(top, lost_end)
        if is_within_reach(named_end, top):
            top = max(top, named_end)
        else:
            reason = f"offset {named_end - 1}, named by a journal, is {TOO_FAR}"
            self.damages.append(Damage(directory, 0, 0, top, top - 1, reason))
        if self._segments and end == top:
            return top
        gap = GapReason.NONE
        if end < committed.durable_end:
            gap = GapReason.DAMAGED
            self.damages.append(Damage(directory, 0, 0, end, committed.durable_end - 1))
        elif begins_at or end < lost_end <= top:
            gap = GapReason.DAMAGED
        elif end < top:
            gap = GapReason.UNSYNCED
        if self.runs and not self.runs[-1].positions:
            self.runs.pop()
        self.runs.append(RewrittenRun(None, top, top, end, gap))
        return top


def lost_beginning(
    directory: str, segments: Sequence[StoredSegment], committed: Committed | None, known: Sequence[Damage]
) -> list[Damage]:
    """The damage when the segments begin behind where retention has left the log to begin, but for what is `known`."""
    base = segments[0].previous_end if segments else 0
    start = None if committed is None else committed.begins_at(base)
    found = list[Damage]()
    if start is None:
        return found
    # Damage that costs nothing explains nothing, wherever it is.
    lost = [damage for damage in known if damage.first_offset <= damage.last_offset]
    for first, last in sorted((damage.first_offset, damage.last_offset) for damage in lost):
        if start < min(first, base):
            found.append(Damage(directory, 0, 0, start, min(first, base) - 1, BEGINNING_GONE))
        start = max(start, last + 1)
    if start < base:
        found.append(Damage(directory, 0, 0, start, base - 1, BEGINNING_GONE))
    return found


def first_of_tail(segments: Sequence[StoredSegment], committed: Committed) -> int:
    """The last segment, or the first of those whose successors follow a gap and are themselves unproven."""
    for place in range(len(segments) - 1, 0, -1):
        segment = segments[place]
        if segment.gap is GapReason.NONE or committed.durable_end >= segment.base_offset:
            return place
    return 0
