"""Opening a journal: which snapshot to start from, which events follow it, and what to do about the end.

Theory of operation
-------------------
When a file in a wrong place is met, all are put where they belong first (`journal_placing`). The newest segment that
begins with a valid snapshot is restored; the events after it are applied in order (`journal_walk`). Everything before
is not even read. Damaged snapshots are passed over where the earlier segments say the same.

The end of the last segment is where crashes leave traces. Whatever lies below the highest `proven` of a valid frame
had been synced: if it is missing now, it was damaged. What lies past it was never acknowledged as durable by a frame
after it, so a hole there is what power loss left of unsynced appends: from the hole on all is torn, moved to
quarantine, and overwritten with zeros. Valid frames past the highest `proven` may be in the page cache only: they are
written again in place, the same bytes, and synced before anybody believes them. A crash meanwhile changes nothing.

How far the journal was proven is also known from its `committed` file, and, while the process lives, from memory: a
rotten byte in the very last appends is not taken for a torn write. What is past that end was never acknowledged.
"""

from __future__ import annotations

from typing import Final

import attrs

from callboard.log.errors import CallboardError, LogCorrupt, PlanFailed, lacks_space
from callboard.log.format.faults import SegmentHeaderInvalid
from callboard.log.format.frame import FrameHeader
from callboard.log.format.frame_walk import CHUNK_BYTES, FrameWalk, Tail
from callboard.log.format.segment import CATALOG
from callboard.log.journal.journal_placing import find_places, put_in_place
from callboard.log.journal.journal_records import Control, Kind
from callboard.log.journal.journal_walk import JournalWalk, Owner, announced_snapshot, check_version
from callboard.log.limits import JOURNAL_SEGMENT_BYTES
from callboard.log.seams.disk import Close, Handle, Incarnation, Sync, Verb, Write, Zero
from callboard.log.segments.open_segment import OpenSegment, open_segment
from callboard.log.segments.placing import StrayReason
from callboard.log.segments.quarantine import Quarantine
from callboard.log.segments.segment_file import SegmentFile, segment_path

WAY_OUT: Final = ", or run `callboard repair`: it notes the gap, and the journal begins behind it"


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


@attrs.define(eq=False)
class JournalOpening:
    """One opening of one journal, and what it has found. It is the judge of the walk through the segments."""

    files: Incarnation
    directory: str
    owner: Owner
    committed: int
    """Every record below it survived a sync, as memory and the `committed` file know."""
    recovery: JournalRecovery = attrs.Factory(JournalRecovery)
    walk: JournalWalk = attrs.field(init=False)
    segment: SegmentFile | None = None
    """The segment in use; None when there is none yet."""
    next_sequence: int = 0
    """The sequence of the next record."""
    needs_healing: bool = False
    ends_with_mark: bool = False
    is_outdated: bool = False
    """The last segment is in an older form than its owner writes: nothing may be appended to it."""
    _path: str = ""
    """Of the segment that is replayed."""
    _hole: str | None = None
    """Where events are missing in that segment, in words."""
    _is_moved: bool = False

    def __attrs_post_init__(self) -> None:
        self.walk = JournalWalk(self.files, self.owner, self)

    async def run(self, bases: list[int]) -> None:
        """Find the start, replay to the end, make the end fit to be appended to. `bases`: of all segments, rising."""
        if not bases:
            if self.committed:
                top = self.committed - 1
                # What the catalog said no repair can make again, and it leaves the files of topics alone.
                way_out = "" if self.directory == CATALOG else WAY_OUT
                raise LogCorrupt(
                    f"journal {self.directory}: its segments are gone, with the records 0 to {top}. Nothing was"
                    f" changed. Restore the directory from a copy{way_out}.",
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
        for successor in bases[start + 1 :]:
            await self._replay_sealed(segment, successor)
            await self.files.submit((Close(segment.handle),))
            segment = await self._open(successor)
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
                    bases[place], bases[place] + 1, "a snapshot that replaced it", segment.handle.path
                )
            if kind is Kind.SNAPSHOT:
                self.recovery.skipped_snapshots += (bases[place],)
        raise self._corrupt(0, bases[0] - 1, "its beginning", segment_path(self.directory, bases[0]))

    async def _open(self, base: int) -> OpenSegment:
        path = segment_path(self.directory, base)
        try:
            segment = await open_segment(self.files, path)
        except SegmentHeaderInvalid as fault:
            raise self._corrupt(base, base, f"its header ({fault})", path) from fault
        try:
            if segment.header.base_offset != base:
                raise self._corrupt(base, base, "its name: the header names another base offset", path)
            check_version(segment, self.owner)
        except CallboardError:
            await self.files.submit((Close(segment.handle),))
            raise
        return segment

    # -- replaying ----------------------------------------------------------------------------------------------

    async def _replay(self, segment: OpenSegment, successor: int | None) -> FrameWalk:
        self._path, self._hole = segment.handle.path, None
        return await self.walk.run(segment, successor)

    async def _replay_sealed(self, segment: OpenSegment, successor: int) -> None:
        """Apply a segment that has a successor: all its events must be there."""
        await self._replay(segment, successor)
        self.walk.pass_over_snapshot(successor)
        if self.walk.next_sequence != successor:
            raise self._corrupt(self.walk.next_sequence, successor - 1, "its events")

    def missing(self, position: int, header: FrameHeader, control: Control) -> bool:
        """As a judge: behind a hole nothing counts, and what had been proven must not be in it."""
        walk = self.walk
        if self._hole is None:
            if position == walk.end:
                raise self._corrupt(walk.next_sequence, header.base_offset - 1, "its events")
            self._hole = f", bytes {walk.end} to {position}"
        if control.proven > walk.next_sequence:
            raise self._corrupt(walk.next_sequence, header.base_offset - 1, "its events")
        return False

    def senseless(self, header: FrameHeader) -> None:
        """As a judge: no such frame is ever written."""
        raise self._corrupt(self.walk.next_sequence, header.last_offset, "a frame without control record")

    # -- the end ------------------------------------------------------------------------------------------------

    async def _replay_last(self, segment: OpenSegment) -> None:
        """Apply the segment in use, and make its end fit to be appended to."""
        scan = await self._replay(segment, None)
        walk, base = self.walk, segment.header.base_offset
        is_skipped = base in self.recovery.skipped_snapshots
        found = max(walk.next_sequence, base + 2) if is_skipped else walk.next_sequence
        if found < self.committed:
            raise self._corrupt(found, self.committed - 1, "its events")
        position, self.next_sequence = walk.end, found
        if walk.mark_at is not None and not is_skipped:
            # The next frame is longer than the mark, takes its number and covers it.
            position, self.next_sequence = walk.mark_at, found - 1
        is_torn = self._hole is not None or scan.tail is Tail.TORN
        torn_end = max(scan.end, scan.tail_end) if is_torn else position
        if is_torn:
            self.recovery.torn_bytes = torn_end - walk.end
        if is_skipped:
            # Only a new segment can carry on after a damaged snapshot: the owner writes one from memory.
            self.needs_healing = True
        else:
            await self._mend_end(segment, position, torn_end)
        self.ends_with_mark = walk.mark_at is not None and not is_torn
        self.is_outdated = segment.header.records_version < self.owner.version
        self.segment = SegmentFile(
            self.files,
            self.directory,
            base,
            position,
            segment.size_bytes,
            segment_id=segment.header.segment_id,
            limit_bytes=JOURNAL_SEGMENT_BYTES,
        )
        self.segment.handle = segment.handle

    async def _mend_end(self, segment: OpenSegment, position: int, torn_end: int) -> None:
        """Move what is torn, from `position` to `torn_end`, to quarantine; write the unproven frames before it anew."""
        recovery, handle, unproven = self.recovery, segment.handle, self.walk.unproven
        if torn_end > position:
            quarantine, segment_id = Quarantine(self.files, self.directory), segment.header.segment_id
            try:
                await quarantine.copy(handle, self.next_sequence, position, torn_end - position, segment_id)
            except PlanFailed as error:
                # On a full disk the torn bytes are given up: they were never reported as stored.
                if not lacks_space(error):
                    raise
            recovery.quarantined += tuple(quarantine.kept)
        recovery.rewritten_bytes = position - unproven[0][1] if unproven else 0
        self.needs_healing = not await self._rewrite(handle, position, recovery.rewritten_bytes, torn_end)

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

    def _corrupt(self, first: int, last: int, what: str, path: str = "") -> LogCorrupt:
        path = path or self._path
        changed = "Nothing but names" if self._is_moved else "Nothing"
        return LogCorrupt(
            f"journal {self.directory}: {what} cannot be read: {path}{self._hole or ''}; records {first} to {last} are "
            f"lost, and no later snapshot replaces them. {changed} was changed. Restore the directory from a copy, or "
            "run `callboard repair`: it keeps every readable record and notes the gap.",
            path=path,
            offsets=(first, last),
        )
