"""Inspect one log, byte by byte, for what verify reports and repair acts on.

`inspect_log` reads the headers of all segments, then each segment once: a walk finds the valid frames and the damage
between them, and each frame is decoded on the way. Memory is bounded: of each segment only the *runs* are kept, ranges
of frames whose offsets continue one another.

A segment ends where its successor begins. A successor's header may explain that the offsets before it hold no
records: such a gap is a note. So is whatever power loss may do to bytes that were never proven: in a partition those
from the durable end on, in a journal those that no later frame calls proven.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from itertools import zip_longest
from typing import Final

import attrs
import cbor2

from callboard.log.errors import LogCorrupt
from callboard.log.format.committed import (
    COMMITTED_COPY_AT,
    FOREIGN,
    GONE,
    NOTED_AT,
    PUBLISHERS,
    decode_committed,
    decode_copy,
    says_nothing,
)
from callboard.log.format.faults import CommittedInvalid, IndexInvalid, SegmentHeaderInvalid
from callboard.log.format.fields import CBOR_ERRORS
from callboard.log.format.frame_walk import FrameWalk, Tail
from callboard.log.format.index import SegmentIndex
from callboard.log.format.segment import (
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    SegmentKind,
    decode_segment_header,
    identity_of,
    kind_of,
)
from callboard.log.journal.journal_disk import segment_bases
from callboard.log.journal.journal_floor import owner_of_journal, read_floor, with_floor
from callboard.log.journal.journal_placing import goes_past
from callboard.log.journal.journal_records import Kind
from callboard.log.journal.journal_walk import announced_snapshot
from callboard.log.limits import OFFSET_MAX
from callboard.log.offline.inspected_log import (
    FramesFound,
    Inspection,
    LogKind,
    Problem,
    ProblemKind,
    SegmentState,
)
from callboard.log.offline.wrong_kinds import ACTORS, is_wrong_beside, is_wrong_file, problem_of
from callboard.log.seams.disk import Close, Incarnation
from callboard.log.segments.damage_record import DAMAGES_NAME, DamageRecord
from callboard.log.segments.headers import find_covered, is_blank
from callboard.log.segments.index_file import decode_stored, load_index
from callboard.log.segments.open_segment import OpenSegment, frames_end, scan_file
from callboard.log.segments.placing import (
    BEGINNING_GONE,
    TOO_FAR,
    Stray,
    StrayReason,
    explains_ends,
    passed_over,
    place_segments,
)
from callboard.log.segments.segment_file import (
    index_path,
    segment_path,
)
from callboard.log.segments.small_files import listed, open_file, read_whole

PUBLISHERS_GONE: Final = (
    "the record of publishers is gone, and with it what it knew of records that retention has dropped: opening the"
    " directory makes it again from the records that are there"
)
PUBLISHERS_DAMAGED: Final = PUBLISHERS_GONE.replace("is gone", "cannot be read")
PUBLISHERS_FOREIGN: Final = PUBLISHERS_GONE.replace("is gone", "belongs to another log")
PUBLISHERS_OLD: Final = PUBLISHERS_GONE.replace("is gone", "is an older copy")
Progress = Callable[[int], None]


async def inspect_log(files: Incarnation, directory: str, *, progress: Progress | None = None) -> Inspection:
    """Read the log in `directory`. `progress` is called with the bytes of each chunk."""
    return await Inspector(files, Inspection(directory), progress).run()


@attrs.define(eq=False)
class Inspector:
    """One inspection of one log."""

    files: Incarnation
    log: Inspection
    progress: Progress | None
    owner: str = ""
    """The folder of the journal that lies here; empty unless it was asked for."""

    async def run(self) -> Inspection:
        """Read the headers, then each segment, then compare them."""
        log = self.log
        await self._find_wrong_kinds()
        # Before the segments, so that a log that grows meanwhile holds at least what the file says.
        committed = await self._read(log.committed_path)
        states = await self._read_headers()
        log.kind = self._kind(states)
        if committed is not None:
            self._read_committed(committed, has_segments=bool(states))
        if log.kind is LogKind.JOURNAL or not states:
            floor = await read_floor(self.files, log.directory)
            log.committed = with_floor(log.committed, floor.end)
            self.owner = await owner_of_journal(self.files, log.directory, floor)
        await self._sort_segments(states)
        for state, following in zip_longest(log.segments, log.segments[1:]):
            await self._segment(state, following)
        if log.kind is LogKind.JOURNAL:
            self._check_journal()
        else:
            self._note_first_gap()
            self._check_beginning()
            self._check_committed()
            await self._check_publishers()
        if log.remembers_damage and f"{log.directory}/{DAMAGES_NAME}" not in log.wrong_kinds:
            await self._note_recorded()
        for state in (*log.segments, *log.refused):
            log.problems += state.problems
        return log

    async def _find_wrong_kinds(self) -> None:
        """Report what is no file, and has the place of one: it cannot be read, or written, while it is there."""
        log = self.log
        beside = f"{log.directory}/{PUBLISHERS.rpartition('/')[0]}"
        wrong = [
            (f"{log.directory}/{entry.name}", entry)
            for entry in await self.files.list(log.directory)
            if is_wrong_file(entry)
        ]
        wrong += [
            (f"{beside}/{entry.name}", entry)
            for entry in await listed(self.files, beside)
            if is_wrong_beside(entry)
        ]
        log.wrong_kinds += [path for path, _ in wrong]
        log.problems += [problem_of(path, entry) for path, entry in wrong]

    async def _read(self, path: str) -> bytes | None:
        """The small file's bytes; None when it is missing, or something else is in its place or its folder's."""
        if path in self.log.wrong_kinds:
            return None
        try:
            return await read_whole(self.files, path)
        except LogCorrupt:
            return None

    # -- which files are segments ---------------------------------------------------------------------------------

    async def _read_headers(self) -> dict[int, SegmentState]:
        """The files that are named like segments, by the offset in their name."""
        states: dict[int, SegmentState] = {}
        for base in await segment_bases(self.files, self.log.directory):
            state = await self._look(base)
            if state is not None:
                states[base] = state
        return states

    def _kind(self, states: dict[int, SegmentState]) -> LogKind:
        """What the log holds, by its folder, else by the headers that can be read."""
        expected = kind_of(self.log.directory)
        kinds = {state.header.kind for state in states.values() if state.header is not None}
        if not kinds and self.log.directory.startswith(ACTORS):
            expected = SegmentKind.JOURNAL
        is_journal = kinds == {SegmentKind.JOURNAL} if expected is None else expected is SegmentKind.JOURNAL
        return LogKind.JOURNAL if is_journal else LogKind.PARTITION

    async def _sort_segments(self, states: dict[int, SegmentState]) -> None:
        """Sort out which files are segments of this log, as opening does, and where they belong."""
        log = self.log
        headers = {name: state.header for name, state in states.items() if not state.is_blank}
        placing = place_segments(self.log.directory, headers, log.committed)
        for name, state in states.items():
            if state.is_blank:
                self._refuse(state, Stray(StrayReason.BLANK))
            elif self.owner not in ("", log.directory):
                self._refuse(state, Stray(StrayReason.FOREIGN), f", {self.owner}")
            elif (stray := placing.refused.get(name)) is not None:
                self._refuse(state, stray)
            else:
                log.segments.append(state)
                if name in placing.renamed:
                    state.base, state.is_misnamed = placing.renamed[name], True
                    message = f"the segment has a wrong name: its header says that it begins at {state.base}"
                    state.report(ProblemKind.NAME, message, 0)
        log.segments.sort(key=lambda state: state.base)
        await self._refuse_headless()
        committed = log.committed
        known = log.segments[-1].base if log.segments else None
        if committed is not None and not explains_ends(known, committed):
            ends = f"{committed.visible_end} and {committed.durable_end}"
            log.doubt_committed(f"the ends that it names are {TOO_FAR}: {ends}")
            log.committed = None

    def _refuse(self, state: SegmentState, stray: Stray, whose: str = "") -> None:
        state.problems.clear()
        state.report(ProblemKind.STRAY, f"the file is no part of the log: {stray}{whose}", 0)
        self.log.refused.append(state)

    async def _refuse_headless(self) -> None:
        """Leave out files that only their name puts here, where the other segments leave no place for them."""
        segments = self.log.segments
        headless = [state for state in segments if state.segment_id is None]
        if not headless:
            return
        refused: dict[int, Stray] = {}
        if self.log.kind is LogKind.PARTITION:
            headers = {state.base: _believed(state) for state in segments}
            paths = {state.base: state.path for state in segments}
            within = await find_covered(self.files, headers, paths)
            ended_at = await self._ended_at()
            beyond = {state.base for state in headless if state.base >= ended_at}
            refused.update(dict.fromkeys(beyond, Stray(StrayReason.BEYOND)))
        else:
            within = await self._covered_in_journal()
        for state in headless:
            if state.base in within:
                refused.setdefault(state.base, Stray(StrayReason.WITHIN))
            if state.base in refused:
                self._refuse(state, refused[state.base])
        self.log.segments = [state for state in segments if state.base not in refused]

    async def _covered_in_journal(self) -> set[int]:
        """The files of a journal that have nothing but a name, and whose number a segment before them has used."""
        headers = {state.base: _believed(state) for state in self.log.segments}
        covered = passed_over(headers)
        before: SegmentState | None = None
        for state in self.log.segments:
            if state.header is not None:
                before = state
                continue
            is_doubtful = state.segment_id is None and state.base not in covered
            if is_doubtful and before is not None and await goes_past(self.files, before.path, state.base):
                covered.add(state.base)
        return covered

    async def _ended_at(self) -> int:
        """Where a partition's log ends, as its committed file and its last segment with a header say, when those behind
        it have nothing but a name; `OFFSET_MAX` when that is not known, or there are none.
        """
        segments, committed = self.log.segments, self.log.committed
        before = next((state for state in reversed(segments) if state.segment_id is not None), None)
        header = None if before is None else _believed(before)
        if before is None or header is None or committed is None or before is segments[-1]:
            return OFFSET_MAX
        end = await frames_end(self.files, before.path, header)
        return max(committed.visible_end, committed.durable_end, end)

    # -- headers ------------------------------------------------------------------------------------------------

    async def _look(self, base: int) -> SegmentState | None:
        """Read a segment's header; None when retention removed the file since it was listed."""
        path = segment_path(self.log.directory, base)
        handle = self.files.handle(path)
        if path in self.log.wrong_kinds or not await open_file(self.files, handle):
            return None
        data = await self.files.read(handle, 0, SEGMENT_HEADER_BYTES)
        state = SegmentState(base, path, await self.files.size(handle), None, None)
        state.is_blank = is_blank(data, state.size_bytes)
        try:
            state.header = header = decode_segment_header(data)
        except SegmentHeaderInvalid as fault:
            is_readable = index_path(self.log.directory, base) not in self.log.wrong_kinds
            index = await load_index(self.files, self.log.directory, base) if is_readable else None
            state.segment_id = None if index is None else index.segment_id
            state.report(ProblemKind.HEADER, f"both copies of the segment's header are damaged ({fault})", 0)
        else:
            state.segment_id = header.segment_id
            if not header.intact:
                state.report(ProblemKind.HEADER_COPY, "one of the two copies of the header is damaged", 0)
            if header.kind is SegmentKind.JOURNAL:
                opened = OpenSegment(handle, header, state.size_bytes)
                state.heals = (await announced_snapshot(self.files, opened))[0] is Kind.HEAL
        await self.files.submit((Close(handle),))
        return state

    # -- segments -----------------------------------------------------------------------------------------------

    async def _segment(self, state: SegmentState, following: SegmentState | None) -> None:
        if state.segment_id is None:
            last = None if following is None else following.base - 1
            message = "without its header nothing in the segment can be read"
            state.report(ProblemKind.LOST, message, 0, state.base, last)
            return
        header = state.header or SegmentHeader(state.segment_id, state.base, 0)
        handle = self.files.handle(state.path)
        if not await open_file(self.files, handle):
            return
        index = await self._index(state) if self.log.kind is LogKind.PARTITION else None
        entries = {} if index is None else dict(zip(index.positions, index.offsets, strict=True))
        frames = FramesFound(self.log, state, following, state.size_bytes + 1, entries)
        opened = OpenSegment(handle, header, state.size_bytes)
        walk = await scan_file(self.files, opened, visit=frames.visit, progress=self.progress)
        if state.lost_snapshot:
            message = "the snapshot that the segment begins with cannot be read"
            state.report(ProblemKind.SNAPSHOT, message, None, state.base + 1, state.base + 1)
        self._check_damages(walk, frames)
        self._check_end(walk, frames)
        if index is not None:
            self._check_index(index, walk, frames)
        await self.files.submit((Close(handle),))

    def _check_damages(self, walk: FrameWalk, frames: FramesFound) -> None:
        state, following = frames.state, frames.following
        for damage in walk.damages:
            first, last = damage.first_offset_lost, damage.last_offset_lost
            if damage.start >= frames.superseded_at or (following is not None and first >= following.base):
                continue  # the segment ends before that, where the next one begins
            if following is not None:
                last = min(last, following.base - 1)
            words = f"bytes {damage.start} to {damage.end} are damaged"
            if damage.start == damage.end:
                words = "records are missing between two frames"
            if last < first:
                state.report(ProblemKind.DAMAGE, words + "; no record is lost", damage.start)
            elif self._is_unproven(first, frames):
                if state.unproven_hole is None and (following is None or not following.heals):
                    state.unproven_hole = first
                words += "; nothing had proven them yet"
                self.log.note(state.path, ProblemKind.TORN, words, damage.start, first, last)
            elif following is not None and (following.heals or following.explains_gap(first)):
                words += "; the next segment explains the gap"
                self.log.note(state.path, ProblemKind.GAP, words, damage.start, first, last)
            else:
                state.report(ProblemKind.DAMAGE, words, damage.start, first, last)

    def _is_unproven(self, first: int, frames: FramesFound) -> bool:
        """Whether power loss alone may have taken the record: it was never reported as durable."""
        following, committed = frames.following, self.log.committed
        if committed is None:
            is_last = following is None or following.heals
            return is_last and self.log.kind is LogKind.JOURNAL and first >= frames.proven
        if (
            following is not None
            and not following.heals
            and not following.is_rewritten(committed.durable_end)
        ):
            return False
        return first >= max(frames.proven, committed.durable_end)

    def _check_end(self, walk: FrameWalk, frames: FramesFound) -> None:
        """What lies behind the last frame, and whether the next segment continues it."""
        state, following = frames.state, frames.following
        end = state.end if state.runs else state.base
        is_torn = walk.tail is Tail.TORN and frames.superseded_at > walk.end
        words = f"bytes {walk.end} to {walk.tail_end} are no frame" if is_torn else "records are missing"
        if following is None:
            proven = self.log.journal_end
            if end + (state.lost_snapshot and end == state.base + 1) < proven:
                state.report(ProblemKind.DAMAGE, words + ", and were synced", walk.end, end, proven - 1)
            elif is_torn:
                lost = walk.torn_offsets or (None, None)
                self.log.note(state.path, ProblemKind.TORN, words + ": a torn tail", walk.end, *lost)
        elif end >= following.base:
            if is_torn:
                self.log.note(state.path, ProblemKind.TORN, words + "; no record is missing", walk.end)
        elif following.heals or following.explains_gap(end):
            message = f"a gap, explained by the next segment ({gap_name(following)})"
            self.log.note(state.path, ProblemKind.GAP, message, walk.end, end, following.base - 1)
        elif not any(problem.last_offset == following.base - 1 for problem in state.problems):
            kind = ProblemKind.DAMAGE if is_torn else ProblemKind.LOST
            state.report(kind, words + " before the next segment", walk.end, end, following.base - 1)

    def _note_first_gap(self) -> None:
        """A log may begin with a gap: when its only segment could not be read, and was taken out of service whole."""
        first = self.log.segments[0] if self.log.segments else None
        header = None if first is None else first.header
        if first is not None and header is not None and first.explains_gap(header.base_offset - 1):
            message = f"a gap, explained by the first segment ({gap_name(first)})"
            lost = header.previous_end, header.base_offset - 1
            self.log.note(first.path, ProblemKind.GAP, message, None, *lost)

    async def _index(self, state: SegmentState) -> SegmentIndex | None:
        """The stored index; None when there is none, or only what a crash leaves of one."""
        path = index_path(self.log.directory, state.base)
        data = await self._read(path)
        if data is None or not any(data) or state.segment_id is None:
            return None
        try:
            return decode_stored(data, state.segment_id)
        except IndexInvalid as fault:
            message = f"the index is not valid ({fault}): it will be rebuilt"
            self.log.note(path, ProblemKind.INDEX, message)
            return None

    def _check_index(self, index: SegmentIndex, walk: FrameWalk, frames: FramesFound) -> None:
        """Every entry leads to a frame with its offset, unless that frame is damaged, or power loss took it."""
        state = frames.state
        is_whole = not state.problems and not walk.damages and index.end_position <= walk.end
        wrong = [*frames.wrong_entries, *(frames.entries.values() if is_whole else ())]
        if wrong:
            state.index_is_sound = False
            path = index_path(self.log.directory, state.base)
            message = f"the index leads to a wrong place for offset {wrong[0]}, and for {len(wrong) - 1} more"
            self.log.problems.append(Problem(path, ProblemKind.INDEX, message))

    # -- the whole log ------------------------------------------------------------------------------------------

    def _read_committed(self, data: bytes, *, has_segments: bool) -> None:
        """Take over what the committed file says, unless it is another log's, and there are segments to go by."""
        log, copy = self.log, decode_copy(data)
        if copy is None and any(data[COMMITTED_COPY_AT:NOTED_AT]):
            message = "the copy in the committed file is damaged: the next opening writes it anew"
            log.note(log.committed_path, ProblemKind.COMMITTED, message, COMMITTED_COPY_AT)
        try:
            log.committed = decode_committed(data)
        except CommittedInvalid as fault:
            log.committed = copy
            if says_nothing(data):
                log.note(log.committed_path, ProblemKind.COMMITTED, "nothing was committed yet", 0)
            else:
                log.doubt_committed(f"the committed file is damaged ({fault})")
        if has_segments and log.committed is not None and log.committed.is_foreign(log.directory):
            log.doubt_committed(f"the committed file is not believed: {FOREIGN}")
            log.committed = None

    def _check_journal(self) -> None:
        """Whether a journal lacks its beginning, or all of its segments."""
        log = self.log
        first = log.segments[0] if log.segments else None
        if first is None:
            if log.journal_end:
                message = "every segment of the journal is gone, and records in them were synced"
                log.report_lost(0, log.journal_end - 1, message)
        elif first.base > 0 and not log.has_snapshot:
            message = "the journal's beginning was pruned, and no snapshot that replaces it can be read"
            first.report(ProblemKind.SNAPSHOT, message, None, 0, first.base - 1)

    def _check_committed(self) -> None:
        log, committed = self.log, self.log.committed
        if committed is None:
            reported = {problem.path for problem in (*log.problems, *log.notes)}
            if log.end > 0 and log.committed_path not in reported:
                log.doubt_committed(f"the committed file is not there: {GONE}", position=None)
            return
        durable_end, visible_end = committed.durable_end, committed.visible_end
        end = max(log.end, log.segments[-1].base if log.segments else log.start_of_nothing)
        if durable_end > visible_end:
            log.doubt_committed(f"durable end {durable_end} lies beyond visible end {visible_end}")
        if durable_end > end:
            message = "records that were synced are missing at the end of the log"
            if not log.segments:
                message = "every segment of the log is gone, and records in them were synced"
            log.report_lost(end, durable_end - 1, message)
        elif visible_end > end:
            message = "records that no sync had proven are missing at the end of the log"
            log.note(log.committed_path, ProblemKind.TORN, message, None, end, visible_end - 1)

    def _check_beginning(self) -> None:
        """Retention has left the log to begin where `committed` says, or it began there since it was made."""
        log = self.log
        first = log.segments[0] if log.segments else None
        base = 0 if first is None else first.base if first.header is None else first.header.previous_end
        start = None if log.committed is None else log.committed.begins_at(base)
        if start is not None and start < base:
            log.lost_beginning = start, base - 1
            log.report_lost(start, base - 1, BEGINNING_GONE)

    async def _check_publishers(self) -> None:
        log, path = self.log, f"{self.log.directory}/{PUBLISHERS}"
        data = await self._read(path)
        if data is not None:
            head, checksum = data[:8], int.from_bytes(data[8:12], "little")
            message = PUBLISHERS_DAMAGED
            if len(data) >= 12 and checksum == zlib.crc32(data[12:], zlib.crc32(head)):
                message = self._doubt_publishers(path, data[12:])
            if message:
                log.problems.append(Problem(path, ProblemKind.PUBLISHERS, message, 0))
        elif log.committed is not None and log.committed.had_publishers:
            log.problems.append(Problem(path, ProblemKind.PUBLISHERS, PUBLISHERS_GONE))

    def _doubt_publishers(self, path: str, body: bytes) -> str:
        """What is wrong with a record of publishers whose checksum is right: "" for nothing."""
        try:
            content = cbor2.loads(body)
            identity, end = content.get("identity"), content["end"]
        except (*CBOR_ERRORS, AttributeError):
            return PUBLISHERS_DAMAGED
        if identity not in (None, identity_of(path.rpartition("/")[0])):
            return PUBLISHERS_FOREIGN
        if type(end) is not int:
            return ""
        self.log.publishers_end = end
        segments = self.log.segments
        return PUBLISHERS_OLD if segments and end < segments[0].base else ""

    async def _note_recorded(self) -> None:
        """Note what was lost earlier, and is not acknowledged."""
        record = await DamageRecord.load(self.files, self.log.directory)
        if record.fault:
            message = f"{record.fault}: opening the directory, or repair, makes it anew and reports that"
            self.log.problems.append(Problem(record.path, ProblemKind.DAMAGES, message))
        for damage in record.unaccepted:
            first, last = damage.first_offset, damage.last_offset
            message = f"{damage.what}: found earlier; `callboard repair --accept` acknowledges it"
            lost: tuple[int | None, int | None] = (first, last) if first <= last else (None, None)
            self.log.note(record.path, ProblemKind.RECORDED, message, None, *lost)


def _believed(state: SegmentState) -> SegmentHeader | None:
    """The segment's header, or what its index knows of it when both copies are lost."""
    if state.header is not None or state.segment_id is None:
        return state.header
    return SegmentHeader(state.segment_id, state.base, 0, previous_end=state.base, previous_base=state.base)


def gap_name(following: SegmentState) -> str:
    """Why the records before the segment are missing, for people."""
    header = following.header
    if header is None or following.heals:
        return "a snapshot that replaces them"
    return header.gap.name.lower()
