"""A log as an inspection finds it: problems, segments, runs of frames, and the content of each frame."""

from __future__ import annotations

import enum

import attrs

from callboard.log.format.columns import Columns
from callboard.log.format.committed import COMMITTED_NAME, Committed
from callboard.log.format.faults import FrameInvalid
from callboard.log.format.frame import FrameFields, FrameHeader, decode_body
from callboard.log.format.segment import CATALOG, GapReason, SegmentHeader
from callboard.log.journal.journal_records import Kind, decode_control


class ProblemKind(enum.StrEnum):
    """The kinds of problems and notes, as `verify` prints them; `docs/how-to/verify-and-repair.md` explains each."""

    # of a segment
    DAMAGE = "damage"
    LOST = "lost"
    HEADER = "header"
    HEADER_COPY = "header-copy"
    UNDECODABLE = "undecodable"
    SNAPSHOT = "snapshot"
    NAME = "name"
    STRAY = "stray"
    INDEX = "index"
    # of the other files and folders of a log
    COMMITTED = "committed"
    DAMAGES = "damages"
    PUBLISHERS = "publishers"
    CATALOG = "catalog"
    FOLDER = "folder"
    NOT_A_FILE = "not-a-file"
    NOT_A_FOLDER = "not-a-folder"
    # only notes
    TORN = "torn"
    GAP = "gap"
    RECORDED = "recorded"
    # of what sound bytes say, which the command line checks
    SENSELESS = "senseless"
    NAMELESS = "nameless"
    MISSING = "missing"


class LogKind(enum.StrEnum):
    """What a log holds."""

    PARTITION = "partition"
    """Messages."""
    JOURNAL = "journal"
    """State."""


@attrs.frozen
class Problem:
    """Something found. The offsets are None when no record is lost, the position when it is at no byte of the file."""

    path: str
    kind: ProblemKind
    message: str
    position: int | None = None
    first_offset: int | None = None
    last_offset: int | None = None


@attrs.define
class FoundRun:
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
    runs: list[FoundRun] = attrs.Factory(list)
    problems: list[Problem] = attrs.Factory(list)
    records: int = 0
    index_is_sound: bool = True
    is_blank: bool = False
    is_misnamed: bool = False
    """The file has another segment's name; `base` is what its header says."""
    lost_snapshot: bool = False
    """The segment announces a snapshot that cannot be read."""
    heals: bool = False
    """The segment begins with a snapshot that replaces whatever is missing before it."""
    unproven_hole: int | None = None
    """The offset at which records are missing that no sync had proven: what follows in the segment is torn, too."""

    @property
    def end(self) -> int:
        """One above the last readable record's offset."""
        return self.runs[-1].end if self.runs else self.base

    def explains_gap(self, end: int) -> bool:
        """Whether the header records that the offsets from `end` up to the segment hold no records."""
        header = self.header
        return header is not None and header.gap is not GapReason.NONE and header.previous_end <= end

    def is_rewritten(self, durable_end: int) -> bool:
        """Whether an opening that was interrupted made the segment: it may not have written yet what lies before it."""
        header = self.header
        return header is not None and header.gap is not GapReason.NONE and durable_end < self.base

    def report(
        self,
        kind: ProblemKind,
        message: str,
        position: int | None = None,
        first: int | None = None,
        last: int | None = None,
    ) -> None:
        """Add a problem; `first` and `last` are the offsets that it cost."""
        self.problems.append(Problem(self.path, kind, message, position, first, last))


@attrs.define
class Inspection:
    """A whole log, as the inspection found it."""

    directory: str
    kind: LogKind = LogKind.PARTITION
    segments: list[SegmentState] = attrs.Factory(list)
    committed: Committed | None = None
    refused: list[SegmentState] = attrs.Factory(list)
    """Files that have a segment's name and are no part of the log."""
    problems: list[Problem] = attrs.Factory(list)
    notes: list[Problem] = attrs.Factory(list)
    has_snapshot: bool = False
    lost_beginning: tuple[int, int] | None = None
    """First and last offset of what is gone before the first segment."""
    publishers_end: int | None = None
    """The offset up to which the record of publishers knows the log; None when there is no sound one."""
    wrong_kinds: list[str] = attrs.Factory(list)
    """What has the name of a file, and is none: folders, links, pipes."""

    @property
    def remembers_damage(self) -> bool:
        """Whether what it lost is reported until a person acknowledges it: that of a delivery journal comes again."""
        return self.kind is LogKind.PARTITION or self.directory == CATALOG

    @property
    def journal_end(self) -> int:
        """Of a journal: the sequence below which every record was synced."""
        is_journal = self.kind is LogKind.JOURNAL
        return self.committed.durable_end if is_journal and self.committed is not None else 0

    @property
    def start_of_nothing(self) -> int:
        """Where a log that has no segment any more had begun, as far as is known."""
        ends = self.committed
        return 0 if ends is None else ends.begins_at(max(ends.visible_end, ends.durable_end)) or 0

    @property
    def committed_path(self) -> str:
        """The log's committed file."""
        return f"{self.directory}/{COMMITTED_NAME}"

    def doubt_committed(self, message: str, position: int | None = 0) -> None:
        """Add a problem of the committed file, which costs no record."""
        self.problems.append(Problem(self.committed_path, ProblemKind.COMMITTED, message, position))

    def report_lost(self, first: int, last: int, message: str) -> None:
        """Add a problem: the committed file proves that records are missing."""
        self.problems.append(Problem(self.committed_path, ProblemKind.LOST, message, None, first, last))

    def note(
        self,
        path: str,
        kind: ProblemKind,
        message: str,
        position: int | None = None,
        first: int | None = None,
        last: int | None = None,
    ) -> None:
        """Note something that is no damage."""
        self.notes.append(Problem(path, kind, message, position, first, last))

    @property
    def end(self) -> int:
        """One above the last readable record's offset in the log."""
        return max((segment.end for segment in self.segments), default=0)


@attrs.define
class FramesFound:
    """Decodes each frame that counts, and notes the runs: the visitor of a walk over one segment."""

    log: Inspection
    state: SegmentState
    following: SegmentState | None
    superseded_at: int
    """Byte from which on all belongs to the successor."""
    entries: dict[int, int]
    """Of the index: offset by position, until the frame was met."""
    wrong_entries: list[int] = attrs.Factory(list)
    proven: int = 0
    """Journals: the highest sequence that a frame calls proven."""

    def visit(self, position: int, fields: FrameFields, body: memoryview) -> bool:
        """Take one frame. It never ends the walk."""
        header = FrameHeader(*fields)
        if self.superseded_at <= position:
            return False
        if self.following is not None and header.last_offset >= self.following.base:
            self.superseded_at = position
            self.entries = {at: offset for at, offset in self.entries.items() if at < position}
            return False
        try:
            columns = decode_body(header, body)
        except FrameInvalid as fault:
            self._refuse(position, header, f"the frame's checksums hold, but it cannot be decoded ({fault})")
            return False
        self._take(position, header, columns)
        return False

    def _refuse(self, position: int, header: FrameHeader, message: str) -> None:
        kind = ProblemKind.UNDECODABLE
        self.state.report(kind, message, position, header.base_offset, header.last_offset)

    def _take(self, position: int, header: FrameHeader, columns: Columns) -> None:
        state, end = self.state, position + header.frame_bytes
        state.records += columns.count
        if self.log.kind is LogKind.PARTITION:
            if self.entries.pop(position, header.base_offset) != header.base_offset:
                self.wrong_entries.append(header.base_offset)
        elif not self._take_control(position, header, columns):
            return
        run = state.runs[-1] if state.runs else None
        if run is None or run.end != header.base_offset:
            run = FoundRun(header.base_offset, header.base_offset, [])
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
            self.log.has_snapshot = True
            return True
        control = decode_control(columns.value(0), behind_gap=header.base_offset > self.state.end)
        if control is None:
            self._refuse(position, header, "a frame of the journal has no control record")
            return False
        self.proven = max(self.proven, control.proven)
        if control.kind in (Kind.SNAPSHOT, Kind.HEAL):
            self.state.lost_snapshot = True
        elif control.kind is Kind.GAP:
            lost = header.base_offset, header.last_offset
            self.log.note(self.state.path, ProblemKind.GAP, "a gap, recorded by repair", position, *lost)
        return True
