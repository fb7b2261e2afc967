"""The frames of one segment's file, read by a task. Needs no Spark."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

from callboard.log.format.columns import Columns
from callboard.log.format.faults import FrameInvalid
from callboard.log.format.frame import FrameFields, FrameHeader, decode_body
from callboard.log.format.frame_walk import EVERYTHING, FrameWalk, run_walk
from callboard.log.format.segment import SEGMENT_HEADER_BYTES, SegmentHeader
from callboard.log.limits import MIB
from callboard.spark.files import OpenFile

CHUNK_BYTES: Final = 1 * MIB


def segment_frames(
    file: OpenFile,
    header: SegmentHeader,
    *,
    start: int = 0,
    stop: int,
    place: tuple[int, int] | None = None,
) -> Iterator[tuple[FrameHeader, Columns]]:
    """The readable frames with records from `start` on that end at or below `stop`; the others are passed over.

    `place` is a position, and the offset of the frame that should begin there. With it, the walk begins there and ends
    where no frame follows the one before; if another frame lies there, it yields none. Without, all frames are checked
    from the beginning on, so that one below `start` whose length is wrong hides none behind it.

    A frame whose checksums are right but whose columns make no sense is not readable. Memory is bounded by the largest
    frame and `CHUNK_BYTES` of the file. Raises `StorageError`.
    """
    found: deque[tuple[FrameFields, memoryview]] = deque()
    position, offset = place or (SEGMENT_HEADER_BYTES, header.base_offset)

    def visit(at: int, fields: FrameFields, body: memoryview) -> bool:
        del at
        found.append((fields, body))
        return False

    walk = FrameWalk(
        header.segment_id,
        offset,
        position=position,
        limit=stop,
        check_from=EVERYTHING if place is None else start,
        visit=visit,
        visit_from=start,
        resync=place is None,
        chunk_bytes=CHUNK_BYTES,
        first_bytes=CHUNK_BYTES,
    )
    is_over = False
    while not is_over:
        is_over = run_walk(walk, file.read)
        while found:
            # Decoded one by one: a chunk of the file may be a thousand times as large without its compression.
            fields, body = found.popleft()
            frame_header = FrameHeader(*fields)
            try:
                columns = decode_body(frame_header, body)
            except FrameInvalid:
                continue
            yield frame_header, columns
