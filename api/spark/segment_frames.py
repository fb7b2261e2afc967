"""The frames of one segment's file, read by a task. Needs no Spark."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

from callboard.log.format.columns import Columns
from callboard.log.format.faults import FrameInvalid
from callboard.log.format.frame import FrameFields, FrameHeader, decode_body
from callboard.log.format.frame_walk import FrameWalk, run_walk
from callboard.log.format.segment import SegmentHeader
from callboard.log.limits import MIB
from callboard.spark.files import OpenFile

CHUNK_BYTES: Final = 1 * MIB


def segment_frames(
    file: OpenFile, header: SegmentHeader, *, start: int = 0, stop: int
) -> Iterator[tuple[FrameHeader, Columns]]:
    """The readable frames with records from `start` on that end at or below `stop`; the others are passed over.

    A frame whose checksums hold and whose columns make no sense is not readable. Memory is bounded by the largest
    frame and `CHUNK_BYTES` of the file. Raises `StorageError`.
    """
    found: deque[tuple[FrameFields, memoryview]] = deque()

    def visit(position: int, fields: FrameFields, body: memoryview) -> bool:
        del position
        found.append((fields, body))
        return False

    walk = FrameWalk(
        header.segment_id,
        header.base_offset,
        limit=stop,
        check_from=start,
        visit=visit,
        visit_from=start,
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
