"""Opening a segment file and walking through it: for journals, verify, repair and readers without the lock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs

from callboard.log.format.columns import Columns
from callboard.log.format.faults import FaultReason, FrameInvalid, SegmentHeaderInvalid
from callboard.log.format.frame import FRAME_HEADER_BYTES, FrameHeader, decode_body, read_header, seed_of
from callboard.log.format.frame_walk import FrameWalk, Visit
from callboard.log.format.identity import belongs_to
from callboard.log.format.segment import SEGMENT_HEADER_BYTES, SegmentHeader, decode_segment_header
from callboard.log.format.walk_drivers import run_walk_async
from callboard.log.limits import KIB, MIB
from callboard.log.seams.disk import Close, Handle, Incarnation, Open

__all__ = ["CHUNK_BYTES", "FrameReader", "OpenSegment", "open_segment", "scan_file"]

CHUNK_BYTES: Final = 1 * MIB
FIRST_BYTES: Final = 64 * KIB
"""What is read at first where frames are read: who only looks at the beginning of a file needs no more."""


@attrs.frozen
class OpenSegment:
    """A segment open for reading."""

    handle: Handle
    header: SegmentHeader
    size_bytes: int


async def open_segment(files: Incarnation, path: str) -> OpenSegment:
    """Open the segment at `path` and read its header.

    Raises `PlanFailed` (missing, refused), `SegmentHeaderInvalid` (a segment of another log, too), `FormatTooNew`; the
    file is closed then.
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
    progress: Callable[[int], None] | None = None,
) -> FrameWalk:
    """Walk through the whole segment, checking every byte. `progress` is told the bytes of each chunk."""

    async def pread(position: int, length: int) -> bytes:
        data = await files.read(segment.handle, position, length)
        if progress is not None:
            progress(len(data))
        return data

    header = segment.header
    walk = FrameWalk(header.segment_id, header.base_offset, file_end=segment.size_bytes, visit=visit)
    return await run_walk_async(walk, pread)


class FrameReader:
    """Reads frames at rising positions of one file."""

    __slots__ = ("_ahead", "_at", "_bytes", "_files", "_handle", "_seed")

    def __init__(self, files: Incarnation, handle: Handle, segment_id: int) -> None:
        self._files = files
        self._handle = handle
        self._seed = seed_of(segment_id)
        self._at = 0
        self._bytes = memoryview(b"")
        self._ahead = FIRST_BYTES

    async def header(self, position: int) -> FrameHeader:
        """The header of the frame at `position`. Raises `FrameInvalid`."""
        return read_header(await self.raw(position, FRAME_HEADER_BYTES), 0, self._seed)

    async def frame(self, position: int) -> tuple[FrameHeader, Columns]:
        """The frame at `position`, checked and decoded. Raises `FrameInvalid`."""
        held, start = self._bytes, position - self._at
        if 0 <= start <= len(held) - FRAME_HEADER_BYTES:
            header = read_header(held, start, self._seed)
            end = start + header.frame_bytes
            if end <= len(held):  # the loop that a replay of a million frames goes through
                return header, decode_body(header, held[start + FRAME_HEADER_BYTES : end])
        else:
            header = await self.header(position)
        body = await self.raw(position + FRAME_HEADER_BYTES, header.body_bytes)
        return header, decode_body(header, body)

    async def valid(self, position: int = SEGMENT_HEADER_BYTES) -> tuple[FrameHeader, Columns] | None:
        """The frame at `position` (the first of the segment), None when there is no valid one."""
        try:
            return await self.frame(position)
        except FrameInvalid:
            return None

    async def raw(self, position: int, length: int) -> memoryview:
        """`length` bytes from `position`, fewer at the end of the file."""
        start = position - self._at
        if start < 0 or start + length > len(self._bytes):
            data = await self._files.read(self._handle, position, max(length, self._ahead))
            self._bytes, self._at, start = memoryview(data), position, 0
            self._ahead = CHUNK_BYTES
        return self._bytes[start : start + length]
