"""Looking at one log, byte by byte: what verify reports and repair acts on.

`inspect_log` reads the headers of all segments, then each segment twice: a scan finds the valid frames and the damage
between them, a second pass decodes every column. Memory is bounded: of each segment only the *runs* are kept, ranges
of frames whose offsets continue one another.

A segment ends where its successor begins. A successor's header may explain that the offsets before it hold no
records: such a gap is a note. So is whatever power loss may do to bytes that were never proven: in a partition those
from the durable end on, in a journal those that no later frame calls proven.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from callboard.log.errors import PlanFailed
from callboard.log.format.columns import Columns
from callboard.log.format.committed import COMMITTED_BYTES, Committed, decode_committed
from callboard.log.format.faults import CommittedInvalid, FrameInvalid, IndexInvalid, SegmentHeaderInvalid
from callboard.log.format.frame import FrameHeader
from callboard.log.format.index import INDEX_HEADER_BYTES, SegmentIndex
from callboard.log.format.scan import SegmentScan, Tail
from callboard.log.format.segment import (
    SEGMENT_HEADER_BYTES,
    GapReason,
    SegmentHeader,
    SegmentKind,
    decode_segment_header,
)
from callboard.log.journal.journal_disk import is_journal, segment_bases
from callboard.log.journal.journal_records import Kind, decode_control
from callboard.log.seams.disk import Close, Handle, Incarnation, Open
from callboard.log.segments.index_file import segment_id_in
from callboard.log.segments.segment_file import index_path, segment_path
from callboard.log.segments.segment_walk import FrameReader, OpenSegment, scan_file

__all__ = ["Inspection", "Problem", "Run", "SegmentState", "inspect_log", "read_whole"]

Tell = Callable[[int], None]


@attrs.frozen
class Problem:
    """Something found. `kind` is one of the words listed in the how-to; offsets are None when no record is lost."""

    path: str
    kind: str
    position: int | None
    first_offset: int | None
    last_offset: int | None
    message: str


@attrs.define
class Run:
    """Frames whose offsets continue one another: bytes `spans` hold offsets `base` to `end` (exclusive)."""

    base: int
    end: int
    spans: list[tuple[int, int]]


@attrs.define
class SegmentState:
    """One segment as found. `segment_id` is None when nothing in it can be read."""

    base: int
    path: str
    size_bytes: int
    header: SegmentHeader | None
    segment_id: int | None
    runs: list[Run] = attrs.Factory(list)
    problems: list[Problem] = attrs.Factory(list)
    records: int = 0
    index_is_sound: bool = True
    lost_snapshot: bool = False
    """The segment announces a snapshot that cannot be read."""
    heals: bool = False
    """The segment begins with a snapshot that replaces whatever is missing before it."""

    @property
    def end(self) -> int:
        """One above the last readable record's offset."""
        return self.runs[-1].end if self.runs else self.base


@attrs.define
class Inspection:
    """A whole log as found."""

    directory: str
    kind: str
    segments: list[SegmentState]
    committed: Committed | None = None
    problems: list[Problem] = attrs.Factory(list)
    notes: list[Problem] = attrs.Factory(list)
    has_snapshot: bool = False

    @property
    def end(self) -> int:
        """One above the last readable record's offset in the log."""
        return max((segment.end for segment in self.segments), default=0)

    @property
    def journal_end(self) -> int:
        """Of a journal: the sequence below which every record was synced."""
        return self.committed.durable_end if self.kind == "journal" and self.committed is not None else 0


async def inspect_log(files: Incarnation, directory: str, *, progress: Tell | None = None) -> Inspection:
    """Read the log in `directory`. `progress` is told the bytes of each chunk."""
    return await Inspector(files, directory, progress).run()


async def read_whole(files: Incarnation, path: str) -> bytes | None:
    """A small file's bytes; None when it is missing."""
    handle = files.handle(path)
    try:
        await files.submit((Open(handle),))
    except PlanFailed as error:
        if isinstance(error.error, FileNotFoundError):
            return None
        raise
    data = await files.read(handle, 0, await files.size(handle))
    await files.submit((Close(handle),))
    return data


class Inspector:
    """One inspection of one log."""

    def __init__(self, files: Incarnation, directory: str, progress: Tell | None) -> None:
        self.files = files
        self.directory = directory
        self.progress = progress
        self.found = Inspection(directory, "partition", [])

    async def run(self) -> Inspection:
        """Headers first, then each segment, then what they say together."""
        found = self.found
        # First, so that a log that grows meanwhile holds at least what the file says.
        committed = await read_whole(self.files, f"{self.directory}/committed")
        for base in await segment_bases(self.files, self.directory):
            state = await self._look(base)
            if state is not None:
                found.segments.append(state)
        kinds = {state.header.kind for state in found.segments if state.header is not None}
        if SegmentKind.LOG not in kinds and (SegmentKind.JOURNAL in kinds or is_journal(self.directory)):
            found.kind = "journal"
        if committed is not None:
            self._read_committed(committed)
        for place in range(len(found.segments)):
            await self._segment(place)
        if found.kind == "journal":
            self._check_beginning()
        else:
            self._note_first_gap()
            self._check_committed()
        for state in found.segments:
            found.problems += state.problems
        return found

    # -- headers ------------------------------------------------------------------------------------------------

    async def _look(self, base: int) -> SegmentState | None:
        """Read a segment's header; None when retention removed the file since it was listed."""
        path = segment_path(self.directory, base)
        handle = self.files.handle(path)
        if not await self._open(handle):
            return None
        data = await self.files.read(handle, 0, SEGMENT_HEADER_BYTES)
        state = await self._header(
            base, SegmentState(base, path, await self.files.size(handle), None, None), data
        )
        if state.header is not None and state.header.kind is SegmentKind.JOURNAL:
            first = await FrameReader(self.files, handle, state.header.segment_id).valid()
            control = None if first is None else decode_control(first[1].value(0))
            state.heals = control is not None and control.kind is Kind.HEAL
        await self.files.submit((Close(handle),))
        return state

    async def _header(self, base: int, state: SegmentState, data: bytes) -> SegmentState:
        try:
            header = decode_segment_header(data)
        except SegmentHeaderInvalid as fault:
            state.segment_id = await self._id_from_index(base)
            self._tell(
                state, "header", 0, None, None, f"both copies of the segment's header are damaged ({fault})"
            )
            return state
        state.segment_id = header.segment_id
        if header.base_offset != base:
            self._tell(
                state, "header", 0, None, None, f"the header says that it begins at {header.base_offset}"
            )
            return state
        state.header = header
        if not header.intact:
            self._tell(state, "header-copy", 0, None, None, "one of the two copies of the header is damaged")
        return state

    async def _open(self, handle: Handle) -> bool:
        try:
            await self.files.submit((Open(handle),))
        except PlanFailed as error:
            if isinstance(error.error, FileNotFoundError):
                return False
            raise
        return True

    async def _id_from_index(self, base: int) -> int | None:
        data = await read_whole(self.files, index_path(self.directory, base))
        return None if data is None else segment_id_in(data)

    # -- segments -----------------------------------------------------------------------------------------------

    async def _segment(self, place: int) -> None:
        state = self.found.segments[place]
        following = self.found.segments[place + 1] if place + 1 < len(self.found.segments) else None
        if state.segment_id is None:
            last = None if following is None else following.base - 1
            self._tell(
                state, "lost", 0, state.base, last, "without its header nothing in the segment can be read"
            )
            return
        header = state.header or SegmentHeader(state.segment_id, state.base, 0)
        handle = self.files.handle(state.path)
        if not await self._open(handle):
            return
        opened = OpenSegment(handle, header, state.size_bytes)
        scan = await scan_file(self.files, opened, progress=self.progress)
        index = await self._index(state) if self.found.kind == "partition" else None
        walk = FramesWalk(self, state, opened, None if following is None else following.base)
        if index is not None:
            walk.entries = dict(zip(index.positions, index.offsets, strict=True))
        await walk.run(scan)
        self._check_damages(state, scan, walk, following)
        self._check_end(state, scan, walk, following)
        if index is not None:
            self._check_index(state, index, scan, walk)
        await self.files.submit((Close(handle),))

    def _check_damages(
        self, state: SegmentState, scan: SegmentScan, walk: FramesWalk, following: SegmentState | None
    ) -> None:
        for damage in scan.damages:
            first, last = damage.first_offset_lost, damage.last_offset_lost
            if damage.start >= walk.superseded_at:
                continue
            if following is not None:
                last = min(last, following.base - 1)
            words = f"bytes {damage.start} to {damage.end} are damaged"
            if last < first:
                self._tell(state, "damage", damage.start, None, None, words + "; no record is lost")
            elif self._is_unproven(first, walk, following):
                self._note(state, "torn", damage.start, first, last, words + "; nothing had proven them yet")
            elif following is not None and explains(following, first):
                self._note(
                    state, "gap", damage.start, first, last, words + "; the next segment explains the gap"
                )
            else:
                self._tell(state, "damage", damage.start, first, last, words)

    def _is_unproven(self, first: int, walk: FramesWalk, following: SegmentState | None) -> bool:
        """Whether power loss alone may have taken the record: nobody was told that it is durable."""
        if following is not None and not following.heals:
            return False
        if self.found.committed is None:
            return self.found.kind == "journal" and first >= walk.proven
        return first >= max(walk.proven, self.found.committed.durable_end)

    def _check_end(
        self, state: SegmentState, scan: SegmentScan, walk: FramesWalk, following: SegmentState | None
    ) -> None:
        """What lies behind the last frame, and whether the next segment continues it."""
        end = state.end if state.runs else state.base
        is_torn = scan.tail is Tail.TORN and walk.superseded_at > scan.end
        words = f"bytes {scan.end} to {scan.tail_end} are no frame" if is_torn else "records are missing"
        if following is None:
            proven = self.found.journal_end
            if end + (state.lost_snapshot and end == state.base + 1) < proven:
                self._tell(state, "damage", scan.end, end, proven - 1, words + ", and were synced")
            elif is_torn:
                first, last = scan.torn_offsets or (None, None)
                self._note(state, "torn", scan.end, first, last, words + ": a torn tail")
        elif end >= following.base:
            if is_torn:
                self._note(state, "torn", scan.end, None, None, words + "; no record is missing")
        elif explains(following, end):
            reason = f"explained by the next segment ({gap_name(following)})"
            self._note(state, "gap", scan.end, end, following.base - 1, f"a gap, {reason}")
        elif not any(problem.last_offset == following.base - 1 for problem in state.problems):
            kind = "damage" if is_torn else "lost"
            self._tell(state, kind, scan.end, end, following.base - 1, words + " before the next segment")

    def _note_first_gap(self) -> None:
        """A log may begin with a gap: when its only segment could not be read, and was taken out of service whole."""
        header = self.found.segments[0].header if self.found.segments else None
        if (
            header is not None
            and header.gap is not GapReason.NONE
            and header.previous_end < header.base_offset
        ):
            state = self.found.segments[0]
            message = f"a gap, explained by the first segment ({gap_name(state)})"
            self._note(state, "gap", None, header.previous_end, header.base_offset - 1, message)

    async def _index(self, state: SegmentState) -> SegmentIndex | None:
        """The stored index; None when there is none, or only what a crash leaves of one."""
        path = index_path(self.directory, state.base)
        data = await read_whole(self.files, path)
        if data is None or not any(data) or state.segment_id is None:
            return None
        count = int.from_bytes(data[12:16], "little")
        try:
            return SegmentIndex.decode(data[: INDEX_HEADER_BYTES + 24 * count], state.segment_id)
        except IndexInvalid as fault:
            message = f"the index is not valid ({fault}): it will be built anew"
            self.found.notes.append(Problem(path, "index", None, None, None, message))
            return None

    def _check_index(
        self, state: SegmentState, index: SegmentIndex, scan: SegmentScan, walk: FramesWalk
    ) -> None:
        """Every entry leads to a frame with its offset, unless that frame is damaged, or power loss took it."""
        is_whole = not state.problems and not scan.damages and index.end_position <= scan.end
        wrong = [*walk.wrong_entries, *(walk.entries.values() if is_whole else ())]
        if wrong:
            state.index_is_sound = False
            path = index_path(self.directory, state.base)
            message = f"the index leads to a wrong place for offset {wrong[0]}, and for {len(wrong) - 1} more"
            self.found.problems.append(Problem(path, "index", None, None, None, message))

    # -- the whole log ------------------------------------------------------------------------------------------

    def _check_beginning(self) -> None:
        segments = self.found.segments
        if segments and segments[0].base > 0 and not self.found.has_snapshot:
            message = "the journal's beginning was pruned, and no snapshot that replaces it can be read"
            self._tell(segments[0], "snapshot", None, 0, segments[0].base - 1, message)

    def _read_committed(self, data: bytes) -> None:
        path = f"{self.directory}/committed"
        try:
            self.found.committed = decode_committed(data[:COMMITTED_BYTES])
        except CommittedInvalid as fault:
            if any(data):
                message = f"the committed file is damaged ({fault})"
                self.found.problems.append(Problem(path, "committed", 0, None, None, message))
            else:
                self.found.notes.append(
                    Problem(path, "committed", 0, None, None, "nothing was committed yet")
                )

    def _check_committed(self) -> None:
        committed = self.found.committed
        if committed is None:
            return
        path, end = f"{self.directory}/committed", max(self.found.end, self._top())
        if committed.durable_end > committed.visible_end:
            message = f"durable end {committed.durable_end} lies beyond visible end {committed.visible_end}"
            self.found.problems.append(Problem(path, "committed", 0, None, None, message))
        if committed.durable_end > end:
            message = "records that were synced are missing at the end of the log"
            self.found.problems.append(Problem(path, "lost", None, end, committed.durable_end - 1, message))
        elif committed.visible_end > end:
            message = "records that no sync had proven are missing at the end of the log"
            self.found.notes.append(Problem(path, "torn", None, end, committed.visible_end - 1, message))

    def _top(self) -> int:
        return self.found.segments[-1].base if self.found.segments else 0

    # -- telling ------------------------------------------------------------------------------------------------

    def _tell(
        self,
        state: SegmentState,
        kind: str,
        position: int | None,
        first: int | None,
        last: int | None,
        message: str,
    ) -> None:
        state.problems.append(Problem(state.path, kind, position, first, last, message))

    def _note(
        self,
        state: SegmentState,
        kind: str,
        position: int | None,
        first: int | None,
        last: int | None,
        message: str,
    ) -> None:
        self.found.notes.append(Problem(state.path, kind, position, first, last, message))


class FramesWalk:
    """The second pass over a segment: decode each frame that counts, and note the runs."""

    def __init__(
        self, inspector: Inspector, state: SegmentState, opened: OpenSegment, until: int | None
    ) -> None:
        self.inspector = inspector
        self.state = state
        self.reader = FrameReader(inspector.files, opened.handle, opened.header.segment_id)
        self.until = until
        self.superseded_at = opened.size_bytes + 1
        """Byte from which on all belongs to the successor."""
        self.proven = 0
        """Journals: the highest sequence that a frame calls proven."""
        self.entries: dict[int, int] = {}
        """Of the index: offset by position, until the frame was met."""
        self.wrong_entries: list[int] = []

    async def run(self, scan: SegmentScan) -> FramesWalk:
        """Decode the frames that the scan found, up to the first that is superseded."""
        behind_damage = {damage.end for damage in scan.damages}
        for position in scan.positions:
            try:
                header, columns = await self.reader.frame(position)
            except FrameInvalid as fault:
                await self._undecodable(position, fault)
                continue
            if self.until is not None and header.last_offset >= self.until:
                self.superseded_at = position
                self.entries = {at: offset for at, offset in self.entries.items() if at < position}
                break
            end = self.state.end
            if header.base_offset > end and position not in behind_damage:
                message = "records are missing between two frames"
                self.inspector._tell(self.state, "lost", position, end, header.base_offset - 1, message)
            self._take(position, header, columns)
        self._check_snapshot()
        return self

    async def _undecodable(self, position: int, fault: FrameInvalid) -> None:
        header = await self.reader.header(position)
        message = f"the frame's checksums hold, but it cannot be decoded ({fault})"
        self.inspector._tell(
            self.state, "undecodable", position, header.base_offset, header.last_offset, message
        )

    def _take(self, position: int, header: FrameHeader, columns: Columns) -> None:
        state, end = self.state, position + header.frame_bytes
        state.records += columns.count
        if self.inspector.found.kind == "partition":
            if self.entries.pop(position, header.base_offset) != header.base_offset:
                self.wrong_entries.append(header.base_offset)
        elif not self._take_control(position, header, columns):
            return
        run = state.runs[-1] if state.runs else None
        if run is None or run.end != header.base_offset:
            run = Run(header.base_offset, header.base_offset, [])
            state.runs.append(run)
        run.end = header.last_offset + 1
        if run.spans and run.spans[-1][1] == position:
            run.spans[-1] = run.spans[-1][0], end
        else:
            run.spans.append((position, end))

    def _take_control(self, position: int, header: FrameHeader, columns: Columns) -> bool:
        """Note what a journal's frame says of itself; False when it cannot be made sense of."""
        if self.state.lost_snapshot and header.base_offset == self.state.base + 1:
            # The snapshot itself: it has no control record.
            self.state.lost_snapshot = False
            self.inspector.found.has_snapshot = True
            return True
        control = decode_control(columns.value(0))
        if control is None:
            message = "a frame of the journal has no control record"
            self.inspector._tell(
                self.state, "undecodable", position, header.base_offset, header.last_offset, message
            )
            return False
        self.proven = max(self.proven, control.proven)
        if control.kind in (Kind.SNAPSHOT, Kind.HEAL):
            self.state.lost_snapshot = True
        elif control.kind is Kind.GAP:
            message = "a gap, recorded by repair"
            self.inspector._note(self.state, "gap", position, header.base_offset, header.last_offset, message)
        return True

    def _check_snapshot(self) -> None:
        state = self.state
        if state.lost_snapshot:
            message = "the snapshot that the segment begins with cannot be read"
            self.inspector._tell(state, "snapshot", None, state.base + 1, state.base + 1, message)


def explains(following: SegmentState, end: int) -> bool:
    """Whether the next segment's header records that the offsets from `end` up to it hold no records."""
    header = following.header
    if header is None:
        return False
    return following.heals or (header.gap is not GapReason.NONE and header.previous_end <= end)


def gap_name(following: SegmentState) -> str:
    """Why the records before the segment are missing, for people."""
    header = following.header
    if header is None or following.heals:
        return "a snapshot that replaces them"
    return header.gap.name.lower()
