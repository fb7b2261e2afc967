"""Walking through a journal: from the frames of its segments to what its owner hears.

Theory of operation
-------------------
A walk goes through segments in their order, frame by frame. A snapshot replaces all that the owner heard before; the
announcement before it says whether the segments that precede it say the same, so that it may be passed over when it is
damaged (`Kind.SNAPSHOT`; one in the very first segment has taken the name of the segment that said the same).

Where records are missing the walk asks its *judge*. Opening a journal (`journal_recovery`) is one: it refuses to go on
past synced records that are gone, and believes nothing behind a hole in the unproven tail. Without a judge, as in
`read_journal`, everything that can be read counts, and the owner hears what is lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from itertools import zip_longest
from typing import Final, Protocol

import attrs
import trio

from callboard.log.format.columns import Columns
from callboard.log.format.faults import FrameInvalid, SegmentHeaderInvalid
from callboard.log.format.fields import too_new
from callboard.log.format.frame import FrameFields, FrameHeader, decode_body
from callboard.log.format.frame_walk import FrameWalk
from callboard.log.format.segment import SEGMENT_HEADER_BYTES
from callboard.log.journal.journal_placing import find_places
from callboard.log.journal.journal_records import Control, Kind, decode_control
from callboard.log.limits import KIB
from callboard.log.seams.disk import Close, Incarnation
from callboard.log.segments.open_segment import OpenSegment, open_segment, scan_file
from callboard.log.segments.segment_file import base_offset_of, segment_path

REPLAY_BYTES: Final = 16 * KIB
"""Bytes of events between two chances for other tasks to run, or a frame when that is larger: applying events may cost
much more than reading them."""
SNAPSHOTS: Final = frozenset({Kind.SNAPSHOT, Kind.HEAL})

Sink = Callable[[bytes], Iterator[None] | None]
"""Hears a snapshot or an event. What takes long it does in steps, which it returns: other tasks run between them, and
the owner hears nothing else before they are done."""


def ignore(*_: object) -> None:
    """For owners that do not want to know."""


@attrs.frozen
class Owner:
    """The receivers of what a journal holds: `versioned` and `written` are called before what they are about."""

    restore: Sink
    """A snapshot."""
    apply: Sink
    """An event."""
    version: int = 0
    """The newest form of records that the owner reads; the one that it writes."""
    versioned: Callable[[int], None] = ignore
    """In which form the records that follow are."""
    written: Callable[[int], None] = ignore
    """When what follows was written: microseconds since 1970, by the clock of that time."""
    lost: Callable[[int, int], None] = ignore
    """First and last sequence number of records that are lost: what follows may not fit."""


class Judge(Protocol):
    """Decides whether a walk goes on where something is missing. Its methods may raise."""

    def missing(self, position: int, header: FrameHeader, control: Control) -> bool:
        """Records before the frame at byte `position` are missing; whether the frame counts all the same."""
        ...

    def senseless(self, header: FrameHeader) -> None:
        """The frame has no control record, and so does not count."""
        ...


@attrs.frozen
class Announcement:
    """A snapshot that is to come next."""

    sequence: int
    lost_from: int | None
    """From where on records are lost without it; None when the segments before it say the same."""


@attrs.define(eq=False)
class JournalWalk:
    """One walk through segments of a journal; `run` takes one after the other."""

    _files: Incarnation
    _owner: Owner
    _judge: Judge | None = None
    next_sequence: int = 0
    """The sequence of the next record."""
    faults: list[str] = attrs.Factory(list)
    """What cannot be read and no later snapshot replaces, for people."""
    replayed_bytes: int = 0
    """Bytes of events since the snapshot."""
    end: int = SEGMENT_HEADER_BYTES
    """Where the last frame that counts ends, in the segment that was walked through last."""
    mark_at: int | None = None
    """The position of that frame when it is a mark."""
    unproven: deque[tuple[int, int]] = attrs.Factory(deque)
    """(sequence, position) of the frames in that segment that no later frame proves."""
    _proven: int = 0
    _announced: Announcement | None = None
    _steps: Iterator[None] | None = None
    """What the owner has still to do before it hears anything else."""
    _waiting: deque[tuple[Callable[..., Iterator[None] | None], tuple[object, ...]]] = attrs.Factory(deque)
    """What it has to hear behind them."""

    async def run(self, segment: OpenSegment, successor: int | None) -> FrameWalk:
        """Walk through a segment, up to where its successor begins. Raises what the owner and the judge raise."""
        # A segment gets its name only after its predecessor was synced.
        self._proven = max(self._proven, segment.header.base_offset)
        self.unproven.clear()
        self.end, self.mark_at = SEGMENT_HEADER_BYTES, None
        self._owner.versioned(segment.header.records_version)
        visit = partial(self._visit, successor)
        return await scan_file(
            self._files, segment, visit=visit, chunk_bytes=REPLAY_BYTES, between_chunks=self._catch_up
        )

    def pass_over_snapshot(self, following: int) -> None:
        """The record `following` comes next: if a snapshot was announced, it cannot be read."""
        announced, self._announced = self._announced, None
        if announced is None:
            return
        if announced.lost_from is not None:
            self.next_sequence = announced.lost_from
        elif following == announced.sequence + 1:
            self.next_sequence = following

    # -- frames ---------------------------------------------------------------------------------------------------

    def _visit(self, successor: int | None, position: int, fields: FrameFields, body: memoryview) -> bool:
        """For the walk over a segment: True at the first frame that its successor replaces."""
        header = FrameHeader(*fields)
        if successor is not None and header.base_offset >= successor:
            return True
        try:
            columns = decode_body(header, body)
        except FrameInvalid as fault:
            self.faults.append(f"the frame at byte {position} cannot be decoded ({fault})")
            raise
        announced = self._announced
        if announced is not None and header.base_offset == announced.sequence:
            self._take_snapshot(position, header, columns)
        else:
            self.pass_over_snapshot(header.base_offset)
            self._take(position, header, columns)
        return False

    def _take_snapshot(self, position: int, header: FrameHeader, columns: Columns) -> None:
        self._announced = None
        self._count(position, header)
        self.replayed_bytes = 0
        self.faults.clear()
        self._pass_on(self._owner.restore, columns.value(0) or b"")

    def _take(self, position: int, header: FrameHeader, columns: Columns) -> None:
        """Take a frame that begins with a control record, unless that, or the judge, says that it does not count."""
        base, expected = header.base_offset, self.next_sequence
        record, *events = columns.value_list()
        control = decode_control(record, behind_gap=base > expected)
        if control is None:
            if self._judge is not None:
                self._judge.senseless(header)
            self.faults.append("a frame has no control record")
            return
        is_first = position == SEGMENT_HEADER_BYTES
        if control.kind in SNAPSHOTS and (is_first or base == expected):
            replaces = control.kind is Kind.HEAL or base == 0
            lost_from = expected if base > expected else base if replaces else None
            self._announced = Announcement(base + 1, lost_from)
        elif (
            base > expected and self._judge is not None and not self._judge.missing(position, header, control)
        ):
            return
        self._count(position, header)
        self._prove(control.proven)
        if base > expected and self._announced is None:
            self._lose(expected, base - 1)
        if control.kind is Kind.EVENTS:
            self.replayed_bytes += header.frame_bytes
            for event in events:
                self._pass_on(self._owner.apply, event or b"")
        elif control.kind is Kind.GAP:
            self.replayed_bytes += header.frame_bytes
            self._lose(base, header.last_offset)
        elif control.kind is Kind.MARK:
            self.mark_at = position

    def _count(self, position: int, header: FrameHeader) -> None:
        """The frame counts: what it says comes next."""
        self.next_sequence = header.last_offset + 1
        self.end = position + header.frame_bytes
        self.unproven.append((header.base_offset, position))
        self.mark_at = None
        self._pass_on(self._owner.written, header.max_time_us)

    def _prove(self, proven: int) -> None:
        self._proven = max(self._proven, proven)
        while self.unproven and self.unproven[0][0] < self._proven:
            self.unproven.popleft()

    def _lose(self, first: int, last: int) -> None:
        self.faults.append(f"records {first} to {last} are lost")
        self._pass_on(self._owner.lost, first, last)

    # -- the owner ------------------------------------------------------------------------------------------------

    def _pass_on(self, receive: Callable[..., Iterator[None] | None], *arguments: object) -> None:
        """Have the owner hear something, behind what it has not finished."""
        if self._steps is not None:
            self._waiting.append((receive, arguments))
        else:
            self._steps = receive(*arguments)

    async def _catch_up(self) -> None:
        """Have the owner finish what takes many steps, and hear what came behind it, while others run."""
        while self._steps is not None:
            for _ in self._steps:
                await trio.lowlevel.checkpoint()
            self._steps = None
            while self._waiting and self._steps is None:
                receive, arguments = self._waiting.popleft()
                self._steps = receive(*arguments)


async def read_journal(files: Incarnation, directory: str, owner: Owner) -> JournalWalk:
    """Read the journal as its files lie: no lock, nothing changed, as far as it makes sense.

    Raises `PlanFailed` (also when a segment is pruned meanwhile), `FormatTooNew`, and whatever `owner` raises.
    """
    walk = JournalWalk(files, owner)
    entries = await files.list(directory)
    for entry in entries:
        if entry.is_special and base_offset_of(entry.name) is not None:
            walk.faults.append(f"{entry.name} is a symbolic link, a pipe or the like")
    entries = [entry for entry in entries if not entry.is_special]
    names = (await find_places(files, directory, entries)).names
    bases = list(names)
    for base, successor in zip_longest(bases, bases[1:]):
        try:
            segment = await open_segment(files, segment_path(directory, names[base]))
        except SegmentHeaderInvalid as fault:
            walk.faults.append(f"segment {base} has no readable header ({fault})")
            continue
        try:
            check_version(segment, owner)
            await walk.run(segment, successor)
        finally:
            await files.submit((Close(segment.handle),))
    return walk


def check_version(segment: OpenSegment, owner: Owner) -> None:
    """Raise `FormatTooNew` when the records of the segment are in a form that the owner does not read."""
    version = segment.header.records_version
    if version > owner.version:
        what = f"its records are of version {version}"
        raise too_new(what, found=version, supported=owner.version, path=segment.handle.path)


async def announced_snapshot(
    files: Incarnation, segment: OpenSegment, frames: int = 1
) -> tuple[Kind | None, int]:
    """Which kind of snapshot a segment announces, if it does, and how many of its first `frames` frames are valid."""
    found: list[Columns] = []

    def visit(position: int, fields: FrameFields, body: memoryview) -> bool:
        del position
        found.append(decode_body(FrameHeader(*fields), body))
        return len(found) == frames

    await scan_file(files, segment, visit=visit, resync=False)
    control = decode_control(found[0].value(0)) if found else None
    is_snapshot = control is not None and control.kind in SNAPSHOTS
    return control.kind if control is not None and is_snapshot else None, len(found)
