"""A segment that is open for reading, known by its header alone, and walks over all of its frames."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import attrs

from callboard.log.format.faults import FaultReason, SegmentHeaderInvalid
from callboard.log.format.frame import LAST_OFFSET, FrameFields
from callboard.log.format.frame_walk import CHUNK_BYTES, FIRST_BYTES, FrameWalk, Visit, run_walk_async
from callboard.log.format.segment import (
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    belongs_to,
    decode_segment_header,
)
from callboard.log.seams.disk import Close, Handle, Incarnation, Open
from callboard.log.segments.small_files import open_file


@attrs.frozen
class OpenSegment:
    """A segment open for reading."""

    handle: Handle
    header: SegmentHeader
    size_bytes: int


async def open_segment(files: Incarnation, path: str) -> OpenSegment:
    """Open the segment at `path` and read its header.

    Raises `PlanFailed` (missing, refused), `SegmentHeaderInvalid` (a segment of another log, too), `FormatTooNew`; the
    file is closed then. When it is cancelled, the file stays open until its incarnation ends.
    """
    handle = files.handle(path)
    await files.submit((Open(handle),))
    try:
        header = decode_segment_header(await files.read(handle, 0, SEGMENT_HEADER_BYTES))
        if not belongs_to(header, path.rpartition("/")[0]):
            raise SegmentHeaderInvalid(FaultReason.FOREIGN, "the segment belongs to another log")
        return OpenSegment(handle, header, await files.size(handle))
    except BaseException:
        await files.submit((Close(handle),))
        raise


async def scan_file(
    files: Incarnation,
    segment: OpenSegment,
    *,
    visit: Visit | None = None,
    resync: bool = True,
    progress: Callable[[int], None] | None = None,
    chunk_bytes: int = CHUNK_BYTES,
    between_chunks: Callable[[], Awaitable[None]] | None = None,
) -> FrameWalk:
    """Walk through the whole segment, checking every byte. `progress` is called with the bytes of each chunk.

    Other tasks run between two chunks, and what is visited in one is visited in one step. `between_chunks` is awaited
    after each.
    """

    async def pread(position: int, length: int) -> bytes:
        data = await files.read(segment.handle, position, length)
        if progress is not None:
            progress(len(data))
        return data

    header = segment.header
    walk = FrameWalk(
        header.segment_id,
        header.base_offset,
        file_end=segment.size_bytes,
        visit=visit,
        resync=resync,
        chunk_bytes=chunk_bytes,
        # A search for the next frame reads to the end.
        first_bytes=chunk_bytes if resync else FIRST_BYTES,
    )
    if between_chunks is None:
        return await run_walk_async(walk, pread)
    while (need := walk.need) is not None:
        walk.feed(await pread(need.position, need.length))
        await between_chunks()
    return walk


async def frames_end(files: Incarnation, path: str, header: SegmentHeader) -> int:
    """One above the last offset of the frames in the segment with this header, or its base offset, also when the file
    is gone. Raises `PlanFailed`.
    """
    end = header.base_offset
    handle = files.handle(path)
    if not await open_file(files, handle):
        return end

    def visit(position: int, fields: FrameFields, body: memoryview) -> bool:
        nonlocal end
        del position, body
        end = max(end, fields[LAST_OFFSET] + 1)
        return False

    try:
        await scan_file(files, OpenSegment(handle, header, await files.size(handle)), visit=visit)
    finally:
        await files.submit((Close(handle),))
    return end
