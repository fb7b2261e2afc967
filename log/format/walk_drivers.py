"""What feeds a `FrameWalk`: a plain `pread`, an awaitable one, or one that never waits. None of them needs a runtime.

A `pread(position, length)` gives up to so many bytes from a position of the segment's file, none at its end. With
`os.pread` and `functools.partial` that is all that a data pipeline needs to read a segment.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator

from callboard.log.format.columns import Columns
from callboard.log.format.frame import FrameFields, FrameHeader, decode_body, header_of
from callboard.log.format.frame_walk import EVERYTHING, FrameWalk
from callboard.log.format.index import SegmentIndex
from callboard.log.format.segment import SEGMENT_HEADER_BYTES
from callboard.log.seams.disk import Buffer


def run_walk(walk: FrameWalk, pread: Callable[[int, int], Buffer]) -> FrameWalk:
    """Walk to the end."""
    while (need := walk.need) is not None:
        walk.feed(pread(need.position, need.length))
    return walk


async def run_walk_async(walk: FrameWalk, pread: Callable[[int, int], Awaitable[Buffer]]) -> FrameWalk:
    """As `run_walk`, waiting for the bytes."""
    while (need := walk.need) is not None:
        walk.feed(await pread(need.position, need.length))
    return walk


def run_walk_cached(walk: FrameWalk, pread: Callable[[int, int], Buffer | None]) -> bool:
    """As `run_walk` with a `pread` that never waits, for which it gives None; the walk stands still then.

    It also does once a chunk has given the visitor something. True when the walk is over.
    """
    while (need := walk.need) is not None and not walk.visited:
        data = pread(need.position, need.length)
        if data is None:
            return False
        walk.feed(data)
    return walk.need is None


def walk_buffer(
    buffer: Buffer,
    segment_id: int,
    base_offset: int,
    *,
    position: int = SEGMENT_HEADER_BYTES,
    check_from: int = EVERYTHING,
    index: SegmentIndex | None = None,
) -> FrameWalk:
    """Walk over a whole file that is in memory."""
    view = memoryview(buffer)

    def pread(position: int, length: int) -> memoryview:
        return view[position : position + length]

    walk = FrameWalk(
        segment_id, base_offset, position=position, file_end=len(view), check_from=check_from, index=index
    )
    return run_walk(walk, pread)


def read_frames(
    pread: Callable[[int, int], Buffer], segment_id: int, base_offset: int, *, file_end: int | None = None
) -> Iterator[tuple[int, FrameHeader, Columns]]:
    """Position, header and records of every valid frame; damage is passed over. At most a chunk is held in memory."""
    found: list[tuple[int, FrameHeader, Columns]] = []

    def take(position: int, fields: FrameFields, body: memoryview) -> bool:
        header = header_of(fields, 0)
        found.append((position, header, decode_body(header, body, verify=False)))
        return False

    walk = FrameWalk(segment_id, base_offset, visit=take, file_end=file_end)
    while (need := walk.need) is not None:
        walk.feed(pread(need.position, need.length))
        yield from found
        found.clear()
