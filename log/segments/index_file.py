"""Index files: stored beside their segments, read back with distrust.

The index of the segment in use is stored now and then, without a sync, so that recovery scans only what follows. Its
file is zeroed in advance, before the frames of the same plan are written: a full disk then fails the plan while
nothing of it is stored, and storing the index later needs no space.

A stored index that is torn, stale or of another segment is noticed by its checksum, which is seeded with the segment's
id, and ignored; one that ends before its segment does is continued by scanning from there.
"""

from __future__ import annotations

from typing import Final

from callboard.log.format.faults import FaultReason, FrameInvalid, IndexInvalid
from callboard.log.format.frame import FRAME_HEADER_BYTES, decode_header
from callboard.log.format.frame_walk import BEYOND_ALL
from callboard.log.format.index import ENTRY_BYTES, INDEX_HEADER_BYTES, INDEX_LAYOUT, SegmentIndex
from callboard.log.limits import INDEX_INTERVAL_BYTES, KIB
from callboard.log.seams.disk import (
    Close,
    Create,
    Handle,
    Incarnation,
    Open,
    Rename,
    Truncate,
    Verb,
    Write,
    Zero,
)
from callboard.log.segments.segment_file import index_path
from callboard.log.segments.segments import StoredSegment
from callboard.log.segments.small_files import read_whole

NEW_SUFFIX: Final = ".new"


def new_index(segment_id: int, base_offset: int) -> SegmentIndex:
    """An empty index with this log's interval."""
    return SegmentIndex(segment_id, base_offset, interval_bytes=INDEX_INTERVAL_BYTES)


def index_room_verbs(files: Incarnation, segment: StoredSegment) -> tuple[Verb, ...]:
    """Make an empty index file, large enough for all entries to come; nothing when it is there."""
    if segment.index_allocated:
        return ()
    path = index_path(segment.file.directory, segment.base_offset)
    extent = max(segment.file.limit_bytes, segment.file.position)
    room = INDEX_HEADER_BYTES + ENTRY_BYTES * (extent // INDEX_INTERVAL_BYTES + 2)
    room += -room % (4 * KIB)
    making = files.handle(path + NEW_SUFFIX)
    segment.index_handle = files.handle(path)
    segment.index_allocated = room
    return (
        Create(making),
        Zero(making, 0, room),
        Rename(making.path, path),
        Open(segment.index_handle),
        Close(making),
    )


def index_store_verbs(
    segment: StoredSegment, *, is_last: bool = False, is_complete: bool = False
) -> tuple[Verb, ...]:
    """Store the index as it is now, if its file was made; nothing otherwise.

    With `is_last` the file is cut to its length and closed; `is_complete`: no frame will follow in the segment.
    """
    index, handle = segment.index, segment.index_handle
    if index is None or handle is None:
        return ()
    index.sealed = is_complete
    data = index.encode()
    segment.index_stored_to = index.end_position
    if not is_last:
        return (Write(handle, 0, (data,)),)
    segment.index_handle = None
    return (Write(handle, 0, (data,)), Truncate(handle, len(data)), Close(handle))


def decode_stored(data: bytes, segment_id: int | None = None) -> SegmentIndex:
    """The index that a file begins with, whatever follows; without `segment_id` that of the segment that it names.

    Raises `IndexInvalid`, `FormatTooNew`.
    """
    if len(data) < INDEX_HEADER_BYTES:
        raise IndexInvalid(FaultReason.SHORT)
    _, _, _, count, named_id, *_ = INDEX_LAYOUT.struct.unpack_from(data)
    whole = data[: INDEX_HEADER_BYTES + ENTRY_BYTES * count]
    segment_id = named_id if segment_id is None else segment_id
    return SegmentIndex.decode(whole, segment_id, interval_bytes=INDEX_INTERVAL_BYTES)


async def load_index(
    files: Incarnation, directory: str, base_offset: int, segment_id: int | None = None
) -> SegmentIndex | None:
    """The stored index when its checksums hold; None when it has to be built anew.

    Without `segment_id` that of the segment that it names: how a segment whose header is lost can be read.
    """
    data = await read_whole(files, index_path(directory, base_offset))
    try:
        return None if data is None else decode_stored(data, segment_id)
    except IndexInvalid:
        return None


async def trusted_index(files: Incarnation, segment: StoredSegment, end: int = BEYOND_ALL) -> SegmentIndex:
    """The stored index, cut at offset `end`, when it fits the segment's file; else an empty one."""
    file = segment.file
    index = await load_index(files, file.directory, segment.base_offset, segment.segment_id)
    if index is not None:
        index.cut(end)
        if index.end_position <= file.position and await proves_itself(files, file.handle, index):
            return index
    return new_index(segment.segment_id, segment.base_offset)


async def proves_itself(files: Incarnation, handle: Handle, index: SegmentIndex) -> bool:
    """Whether the last entry of `index` points at a frame of its segment with the entry's offset."""
    if not index.positions:
        return False
    data = await files.read(handle, index.positions[-1], FRAME_HEADER_BYTES)
    try:
        return decode_header(data, 0, index.segment_id).base_offset == index.offsets[-1]
    except FrameInvalid:
        return False
