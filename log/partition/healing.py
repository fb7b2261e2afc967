"""After a failed write or sync: a new segment at the durable end, with what readers have seen already.

The abandoned file is not touched again: its pages past the durable end may say anything. The new segment's name
supersedes them; until its directory is synced, nothing in it counts.
"""

from __future__ import annotations

from collections.abc import Sequence

from callboard.log.format.columns import Columns
from callboard.log.format.compression import Compression
from callboard.log.format.frame import encode_frame
from callboard.log.format.segment import SEGMENT_HEADER_BYTES, GapReason
from callboard.log.partition.survey import leftovers
from callboard.log.seams.disk import Incarnation, SyncDirectory, Unlink, Verb
from callboard.log.segments.filling import SegmentFill, make_segment
from callboard.log.segments.quarantine import Quarantine
from callboard.log.segments.segment_file import base_offset_of
from callboard.log.segments.segments import StoredSegment


async def remove_leftovers(files: Incarnation, directory: str, active: StoredSegment) -> None:
    """Remove what a failed plan left: half-made files, and segments past the one in use.

    The latter would supersede whatever is appended from now on; nothing in them was acknowledged.
    """
    entries = await files.list(directory)
    stale = leftovers(directory, entries, None)
    stale += [
        f"{directory}/{entry.name}"
        for entry in entries
        if (base_offset_of(entry.name) or 0) > active.base_offset
    ]
    if stale:
        await files.submit([*(Unlink(path) for path in stale), SyncDirectory(directory)])


async def heal_segment(
    files: Incarnation,
    active: StoredSegment,
    unsynced: Sequence[Columns],
    *,
    earlier: StoredSegment | None,
    durable_end: int,
    segment_id: int,
    now_us: int,
    limit_bytes: int,
    compression: Compression,
    quarantine: Quarantine,
) -> StoredSegment:
    """Make the segment that goes on at `durable_end`, holding `unsynced`. All of it is synced at return.

    It takes the place of `active` when nothing in that was synced; `earlier` is the segment before that.
    """
    previous_base, previous_end, gap = active.base_offset, durable_end, GapReason.NONE
    if active.base_offset == durable_end:
        # It follows what that followed, behind the same gap.
        previous_base = durable_end if earlier is None else earlier.base_offset
        previous_end, gap = active.previous_end, active.gap
    made, making = make_segment(
        files,
        active.file.directory,
        durable_end,
        segment_id=segment_id,
        now_us=now_us,
        limit_bytes=limit_bytes,
        previous_base=previous_base,
        previous_end=previous_end,
        gap=gap,
    )
    file = made.file
    fill = SegmentFill(files, file, made.index_in_use)
    verbs = list(making)
    for columns in unsynced:
        frame = encode_frame(
            columns,
            segment_id=segment_id,
            base_offset=columns.base_offset,
            append_time_us=columns.append_time_us,
            compression=compression,
        )
        fill.add(frame, columns.base_offset, columns.last_offset, columns.count, columns.append_time_us)
        verbs += fill.verbs()
    keep: tuple[Verb, ...] = ()
    if active.base_offset == durable_end and active.file.position > SEGMENT_HEADER_BYTES:
        keep = await quarantine.link_verbs(
            active.file.path,
            durable_end,
            SEGMENT_HEADER_BYTES,
            active.file.position,
            active.segment_id,
        )
    verbs += file.naming_verbs(before_naming=keep)
    await files.submit(verbs)
    made.end_offset = made.index_in_use.next_offset
    made.is_open = True
    return made
