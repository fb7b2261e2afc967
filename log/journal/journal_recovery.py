"""Opening a journal: which snapshot to start from, which events follow it, and what to do about the end.

Theory of operation
-------------------
When a file in a wrong place is met, all are put where they belong first (`journal_placing`). The newest segment that
begins with a valid snapshot is restored; the events after it are applied in order. Everything before is not even read.
A damaged snapshot is passed over when the earlier segments say the same (`Kind.SNAPSHOT`; one in the very first segment
has taken the name of the segment that said the same).

The end of the last segment is where crashes leave traces. Whatever lies below the highest `proven` of a valid frame
had been synced: if it is missing now, it was damaged. What lies past it never was acknowledged as durable by a frame
after it, so a hole there is what power loss left of unsynced appends: from the hole on all is torn, moved to
quarantine, and overwritten with zeros. Valid frames past the highest `proven` may be in the page cache only: their
bytes are written anew in place and synced before anybody believes them. The same bytes in the same place: a crash
meanwhile changes nothing.

How far the journal was proven is also known from its `committed` file, and, while the process lives, from memory: a
rotten byte in the very last appends is not taken for a torn write. What is past that end was never acknowledged.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import attrs
import trio

from callboard.log.errors import CallboardError, LogCorrupt, PlanFailed, lacks_space
from callboard.log.format.columns import Columns
from callboard.log.format.faults import SegmentHeaderInvalid
from callboard.log.format.fields import too_new
from callboard.log.format.frame import FrameFields, FrameHeader, decode_body
from callboard.log.format.frame_walk import CHUNK_BYTES, Tail
from callboard.log.format.segment import SEGMENT_HEADER_BYTES
from callboard.log.journal.journal_placing import find_places, put_in_place
from callboard.log.journal.journal_records import Kind, decode_control
from callboard.log.limits import JOURNAL_SEGMENT_BYTES, KIB
from callboard.log.seams.disk import (
    Close,
    Handle,
    Incarnation,
    Sync,
    Verb,
    Write,
    Zero,
)
from callboard.log.segments.placing import StrayReason
from callboard.log.segments.quarantine import Quarantine
from callboard.log.segments.scanning import OpenSegment, open_segment, scan_file
from callboard.log.segments.segment_file import SegmentFile, segment_path

REPLAY_BYTES: Final = 16 * KIB
"""Replay this many bytes of events at a time, or a frame when that is larger: repeating what they say may cost much
more than to read them, and others are to run meanwhile."""
Sink = Callable[[bytes], Iterator[None] | None]
"""Hears a snapshot or an event. What takes long it does in steps, which it returns: others run between them, and
the owner hears nothing else before their end."""


def ignore(*_: object) -> None:
    """For owners that do not want to know."""


def finish(steps: Iterator[None] | None) -> None:
    """Take all steps of a sink at once."""
    for _ in steps or ():
        pass


@attrs.frozen
class Owner:
    """The receivers of what a journal holds, in this order: `versioned` and `written` before what they are about."""

    restore: Sink
    """A snapshot."""
    apply: Sink
    """An event."""
    version: int = 0
    """The newest form of records that the owner reads; what it writes."""
    versioned: Callable[[int], None] = ignore
    """In which form the records that follow are."""
    written: Callable[[int], None] = ignore
    """When what follows was written: microseconds since 1970, by the clock of that time."""
    lost: Callable[[int, int], None] = ignore
    """Which sequence numbers, first and last, were given up by repair: what follows may not fit."""


@attrs.define
class JournalRecovery:
    """What opening a journal found and did."""

    skipped_snapshots: tuple[int, ...] = ()
    """Snapshots that were damaged and passed over."""
    torn_bytes: int = 0
    rewritten_bytes: int = 0
    quarantined: tuple[str, ...] = ()
    strays: tuple[str, ...] = ()
    """Files of other logs that were found in its folder, and why: they are in quarantine. Copies of its own segments,
    and files that only look like segments, cost nothing and are not among them.
    """


def check_version(segment: OpenSegment, owner: Owner) -> None:
    """Raise `FormatTooNew` when the records of the segment are in a form that the owner does not read."""
    version = segment.header.records_version
    if version > owner.version:
        what = f"its records are of version {version}"
        raise too_new(what, found=version, supported=owner.version, path=segment.handle.path)


@attrs.define(eq=False)
class Replay:
    """One open of one journal, and what it has found."""

    files: Incarnation
    directory: str
    owner: Owner
    committed: int
    recovery: JournalRecovery = attrs.Factory(JournalRecovery)
    segment: SegmentFile | None = None
    """The segment in use; None when there is none yet."""
    next: int = 0
    """The sequence of the next record."""
    replayed_bytes: int = 0
    """Since the snapshot."""
    needs_healing: bool = False
    ends_with_mark: bool = False
    is_outdated: bool = False
    """The last segment is in an older form than its owner writes: nothing may be appended to it."""
    proven: int = 0
    snapshot_at: int | None = None
    unproven: deque[tuple[int, int]] = attrs.Factory(deque)
    """(sequence, position) of the frames that no later frame proves."""
    mark_at: int | None = None
    """Position of the last frame when that is a mark."""
    end: int = SEGMENT_HEADER_BYTES
    """Where the last frame that was taken ends, in the segment that is replayed."""
    hole: str | None = None
    """Where events are missing in that segment, in words."""
    _is_moved: bool = False
    _steps: Iterator[None] | None = None
    """Which the owner has still to take before it hears anything else."""
    _unheard: deque[tuple[Callable[..., Iterator[None] | None], tuple[object, ...]]] = attrs.Factory(deque)
    """What it has to hear behind them."""

    async def run(self, bases: list[int]) -> None:
        """Find the start, replay to the end, make the end fit to be appended to. `bases`: of all segments, rising."""
        if not bases:
            if self.committed:
                top = self.committed - 1
                raise LogCorrupt(
                    f"journal {self.directory}: its segments are gone, with the records 0 to {top}. Nothing was"
                    " changed. Restore the directory from a copy.",
                    path=self.directory,
                    offsets=(0, top),
                )
            return
        try:
            start, segment = await self._start(bases)
        except LogCorrupt:
            placed = await self._put_in_place()
            if not placed:
                raise
            bases = placed
            start, segment = await self._start(bases)
        for place, successor in enumerate(bases[start + 1 :], start):
            self._begin(segment, is_start=place == start)
            await self._replay_sealed(segment, successor)
            await self.files.submit((Close(segment.handle),))
            segment = await self._open(successor)
        self._begin(segment, is_start=start == len(bases) - 1)
        await self._replay_last(segment)

    async def _put_in_place(self) -> list[int]:
        """Put files where they belong; the segments then, none when nothing was to be moved."""
        entries = await self.files.list(self.directory)
        places = await find_places(self.files, self.directory, entries)
        if not places.names or not (places.renamed or places.strays):
            return []
        self._is_moved = True
        self.recovery.quarantined += await put_in_place(self.files, self.directory, places, entries)
        self.recovery.strays += tuple(
            f"{segment_path(self.directory, name)}: {stray}"
            for name, stray in places.strays.items()
            if stray.reason is StrayReason.FOREIGN
        )
        return list(places.names)

    # -- where to start -----------------------------------------------------------------------------------------

    async def _start(self, bases: list[int]) -> tuple[int, OpenSegment]:
        """The place of the segment to start from, and it: the newest with a valid snapshot, else the very first."""
        for place in range(len(bases) - 1, -1, -1):
            segment = await self._open(bases[place])
            kind, frames = await announced_snapshot(self.files, segment, 2)
            if (kind is not None and frames == 2) or (kind is None and bases[place] == 0):
                return place, segment
            await self.files.submit((Close(segment.handle),))
            if kind is Kind.HEAL or (kind is Kind.SNAPSHOT and place == 0):
                raise self._corrupt(
                    segment.handle.path, bases[place], bases[place] + 1, "a snapshot that replaced it"
                )
            if kind is Kind.SNAPSHOT:
                self.recovery.skipped_snapshots += (bases[place],)
        raise self._corrupt(segment_path(self.directory, bases[0]), 0, bases[0] - 1, "its beginning")

    async def _open(self, base: int) -> OpenSegment:
        path = segment_path(self.directory, base)
        try:
            segment = await open_segment(self.files, path)
        except SegmentHeaderInvalid as fault:
            raise self._corrupt(path, base, base, f"its header ({fault})") from fault
        try:
            if segment.header.base_offset != base:
                raise self._corrupt(path, base, base, "its name: the header names another base offset")
            check_version(segment, self.owner)
        except CallboardError:
            await self.files.submit((Close(segment.handle),))
            raise
        return segment

    # -- replaying ----------------------------------------------------------------------------------------------

    def _begin(self, segment: OpenSegment, *, is_start: bool) -> None:
        base = segment.header.base_offset
        if is_start:
            self.next = base
        elif base != self.next:
            raise self._corrupt(segment.handle.path, self.next, base - 1, "what lies before it")
        # A segment gets its name only after its predecessor was synced.
        self.proven = max(self.proven, base)
        self.unproven.clear()
        self.end, self.hole = SEGMENT_HEADER_BYTES, None
        self.owner.versioned(segment.header.records_version)

    def _tell(self, hears: Callable[..., Iterator[None] | None], *told: object) -> None:
        """Have the owner hear something, behind what it has not finished."""
        if self._steps is not None:
            self._unheard.append((hears, told))
        else:
            self._steps = hears(*told)

    async def _catch_up(self) -> None:
        """Have the owner finish what takes many steps, and hear what came behind it, while others run."""
        while self._steps is not None:
            for _ in self._steps:
                await trio.lowlevel.checkpoint()
            self._steps = None
            while self._unheard and self._steps is None:
                hears, told = self._unheard.popleft()
                self._steps = hears(*told)

    async def _replay_sealed(self, segment: OpenSegment, successor: int) -> None:
        """Apply a segment that has a successor: all its events must be there."""
        visit = partial(self._visit, segment, successor)
        await scan_file(
            self.files, segment, visit=visit, chunk_bytes=REPLAY_BYTES, between_chunks=self._catch_up
        )
        if self.next + 1 == successor and self.next - 1 in self.recovery.skipped_snapshots:
            self.next = successor
        if self.next < successor:
            raise self._corrupt(segment.handle.path, self.next, successor - 1, "its events")

    async def _replay_last(self, segment: OpenSegment) -> None:
        """Apply the segment in use, and make its end fit to be appended to."""
        visit = partial(self._visit, segment, None)
        scan = await scan_file(
            self.files, segment, visit=visit, chunk_bytes=REPLAY_BYTES, between_chunks=self._catch_up
        )
        recovery = self.recovery
        is_skipped = segment.header.base_offset in recovery.skipped_snapshots
        found = max(self.next, segment.header.base_offset + 2) if is_skipped else self.next
        if found < self.committed:
            raise self._corrupt(segment.handle.path, found, self.committed - 1, "its events")
        kept_end = position = self.end
        is_torn = self.hole is not None or scan.tail is Tail.TORN
        if self.mark_at is not None:
            # The next frame is longer than the mark, takes its number and covers it.
            position, self.next = self.mark_at, self.next - 1
        torn_end = max(scan.end, scan.tail_end) if is_torn else position
        if is_skipped:
            # Only a new segment can carry on after a damaged snapshot: the owner writes one from memory.
            self.next = found
            self.needs_healing = True
        else:
            quarantine, handle = Quarantine(self.files, self.directory), segment.handle
            if torn_end > position:
                # On a full disk the torn bytes are given up: they were never reported as stored.
                try:
                    torn_bytes, segment_id = torn_end - position, segment.header.segment_id
                    await quarantine.copy(handle, self.next, position, torn_bytes, segment_id)
                except PlanFailed as error:
                    if not lacks_space(error):
                        raise
            recovery.quarantined += tuple(quarantine.kept)
            recovery.rewritten_bytes = position - self.unproven[0][1] if self.unproven else 0
            self.needs_healing = not await self._rewrite(
                segment.handle, position, recovery.rewritten_bytes, torn_end
            )
        recovery.torn_bytes = torn_end - kept_end if is_torn else 0
        self.ends_with_mark = self.mark_at is not None and not is_torn
        self.is_outdated = segment.header.records_version < self.owner.version
        self.segment = SegmentFile(
            self.files,
            self.directory,
            segment.header.base_offset,
            position,
            segment.size_bytes,
            segment_id=segment.header.segment_id,
            limit_bytes=JOURNAL_SEGMENT_BYTES,
        )
        self.segment.handle = segment.handle

    def _visit(
        self, segment: OpenSegment, until: int | None, position: int, fields: FrameFields, body: memoryview
    ) -> bool:
        """Apply a frame; one behind a hole only shows what had been proven. True at the first that is superseded."""
        header = FrameHeader(*fields)
        if until is not None and header.base_offset >= until:
            return True
        columns = decode_body(header, body)
        path = segment.handle.path
        if header.base_offset == self.next + 1 and self.next - 1 in self.recovery.skipped_snapshots:
            self.next += 1
        if self.hole is None and header.base_offset != self.next:
            if position == self.end:
                raise self._corrupt(path, self.next, header.base_offset - 1, "its events")
            self.hole = f", bytes {self.end} to {position}"
        if self.hole is not None:
            control = decode_control(columns.value(0), behind_gap=True)
            if control is None or control.proven > self.next:
                raise self._corrupt(path, self.next, header.base_offset - 1, "its events")
            return False
        self._take(position, header, columns)
        self.end = position + header.frame_bytes
        return False

    def _take(self, position: int, header: FrameHeader, columns: Columns) -> None:
        sequence = self.next
        self.next = header.last_offset + 1
        self.unproven.append((sequence, position))
        self.mark_at = None
        self._tell(self.owner.written, header.max_time_us)
        if self.snapshot_at is not None and sequence == self.snapshot_at + 1:
            self._tell(self.owner.restore, columns.value(0) or b"")
            self.replayed_bytes = 0
            return
        control_record, *events = columns.value_list()
        control = decode_control(control_record)
        if control is None:
            raise self._corrupt(
                self.directory, sequence, header.last_offset, "a frame without control record"
            )
        self.proven = max(self.proven, control.proven)
        while self.unproven and self.unproven[0][0] < self.proven:
            self.unproven.popleft()
        if control.kind in (Kind.EVENTS, Kind.GAP):
            self.replayed_bytes += header.frame_bytes  # a mark says nothing that a snapshot could replace
        if control.kind is Kind.EVENTS:
            for event in events:
                self._tell(self.owner.apply, event or b"")
        elif control.kind is Kind.MARK:
            self.mark_at = position
        elif control.kind is Kind.GAP:
            self._tell(self.owner.lost, header.base_offset, header.last_offset)
        elif header.base_offset not in self.recovery.skipped_snapshots:
            self.snapshot_at = header.base_offset

    # -- the end ------------------------------------------------------------------------------------------------

    async def _rewrite(self, handle: Handle, position: int, unproven_bytes: int, torn_end: int) -> bool:
        """Write the unproven frames anew in place and zeros over what is torn, and sync; False when that fails."""
        verbs: list[Verb] = []
        try:
            for at in range(position - unproven_bytes, position, CHUNK_BYTES):
                data = await self.files.read(handle, at, min(CHUNK_BYTES, position - at))
                await self.files.submit((Write(handle, at, (data,)),))
            if torn_end > position:
                verbs.append(Zero(handle, position, torn_end - position))
            if verbs or unproven_bytes:
                await self.files.submit((*verbs, Sync(handle)))
        except PlanFailed:
            return False
        return True

    def _corrupt(self, path: str, first: int, last: int, what: str) -> LogCorrupt:
        changed = "Nothing but names" if self._is_moved else "Nothing"
        return LogCorrupt(
            f"journal {self.directory}: {what} cannot be read: {path}{self.hole or ''}; records {first} to {last} are "
            f"lost, and no later snapshot replaces them. {changed} was changed. Restore the directory from a copy, or "
            "run `callboard repair`: it keeps every readable record and notes the gap.",
            path=path,
            offsets=(first, last),
        )


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
    is_snapshot = control is not None and control.kind in (Kind.SNAPSHOT, Kind.HEAL)
    return control.kind if control is not None and is_snapshot else None, len(found)
