"""The index and the damages of a stored segment: what a scan of its frames finds."""

from __future__ import annotations

from functools import partial

from callboard.log.format.frame_walk import BEYOND_ALL, EVERYTHING, FrameWalk, Visit, run_walk_async
from callboard.log.format.index import SegmentIndex
from callboard.log.seams.disk import Incarnation, Open
from callboard.log.segments.index_file import new_index, trusted_index
from callboard.log.segments.segments import Damage, StoredSegment


async def ensure_open(files: Incarnation, segment: StoredSegment) -> None:
    """Open the segment's file unless it is."""
    if not segment.is_open:
        await files.submit((Open(segment.file.handle),))
        segment.is_open = True


async def scan_from(
    files: Incarnation,
    segment: StoredSegment,
    index: SegmentIndex,
    *,
    check_bodies: bool = True,
    limit: int = BEYOND_ALL,
    visit: Visit | None = None,
    visit_from: int = EVERYTHING,
) -> FrameWalk:
    """Walk through the file from where `index` ends to its position, and note the frames found in `index`."""
    walk = FrameWalk(
        segment.segment_id,
        index.next_offset,
        position=index.end_position,
        file_end=segment.file.position,
        index=index,
        limit=limit,
        check_from=EVERYTHING if check_bodies else BEYOND_ALL,
        visit=visit,
        visit_from=visit_from,
    )
    return await run_walk_async(walk, partial(files.read, segment.file.handle))


def damages_of(path: str, scan: FrameWalk, limit: int = BEYOND_ALL) -> list[Damage]:
    """The damage below offset `limit` that a walk over the file at `path` has found."""
    return [
        Damage(path, found.start, found.end, found.first_offset_lost, min(found.last_offset_lost, limit - 1))
        for found in scan.damages
        if found.first_offset_lost < limit
    ]


async def scan_stored(
    files: Incarnation, segment: StoredSegment, *, limit: int, kept: SegmentIndex | None = None
) -> int:
    """Check every frame below offset `limit`: set the segment's damages and its index.

    An index to be `kept` gets the entries that the check found, and the segment's stays as it is. Returns where the
    frames end, `limit` at most.
    """
    await ensure_open(files, segment)
    index = new_index(segment.segment_id, segment.base_offset)
    end = segment.file.position
    scan = await scan_from(files, segment, index, limit=limit)
    path = segment.file.path
    damages = damages_of(path, scan, limit)
    if scan.next_offset < limit:
        damages.append(Damage(path, scan.end, end, scan.next_offset, limit - 1))
    segment.damages = tuple(damages)
    if kept is not None:
        kept.replace(index)
    else:
        if index.next_offset > limit:
            index.cut(limit)
        segment.index, segment.is_indexed = index, True
    return min(scan.next_offset, limit)


async def index_stored(files: Incarnation, segment: StoredSegment) -> SegmentIndex:
    """The index of a sealed segment: in memory, else stored, continued by a scan where it ends too early."""
    if segment.index is not None and segment.is_indexed:
        return segment.index
    await ensure_open(files, segment)
    index = await trusted_index(files, segment, segment.end_offset)
    if index.next_offset < segment.end_offset:
        scan = await scan_from(files, segment, index, check_bodies=False, limit=segment.end_offset)
        if scan.damages:
            # The index begins, or goes on, behind them: no walk would come upon them, so they are named here.
            await scan_stored(files, segment, limit=segment.end_offset, kept=index)
        if index.next_offset > segment.end_offset:
            index.cut(segment.end_offset)
    segment.index, segment.is_indexed = index, True
    return index
