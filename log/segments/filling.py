"""What fills a new segment with frames before it gets its name."""

from __future__ import annotations

from typing import Final

from callboard.log.format.frame import (
    BASE_OFFSET,
    COUNT,
    LAST_OFFSET,
    MAX_TIME,
    FrameFields,
    frame_length,
    reseal,
    seed_of,
)
from callboard.log.format.frame_walk import FrameWalk
from callboard.log.format.index import SegmentIndex
from callboard.log.limits import MIB
from callboard.log.seams.disk import Buffer, Handle, Incarnation, Verb
from callboard.log.seams.entropy import Entropy
from callboard.log.segments.segment_file import SegmentFile

CHUNK_BYTES: Final = 1 * MIB
SEGMENT_ID_BITS: Final = 64


def new_segment_id(entropy: Entropy) -> int:
    """A random id, never 0."""
    return entropy.integer(SEGMENT_ID_BITS) or 1


class SegmentFill:
    """Fills a segment that has no name yet with frames, and notes them in its index."""

    def __init__(self, files: Incarnation, file: SegmentFile, index: SegmentIndex) -> None:
        self._files = files
        self._file = file
        self._index = index
        self.segment_id = file.segment_id
        self._seed = seed_of(file.segment_id)
        self._buffers: list[Buffer] = []
        self._size_bytes = 0

    def add(self, frame: list[Buffer], base: int, last: int, count: int, time_us: int) -> None:
        """Append a frame; `time_us` is its latest append time."""
        size = frame_length(frame)
        self._index.note(self._file.position + self._size_bytes, size, base, last, count, time_us)
        self._buffers += frame
        self._size_bytes += size

    def take(self, position: int, fields: FrameFields, body: memoryview) -> bool:
        """For a walk over another segment: append the frame, resealed. A million frames go through here."""
        del position
        frame: list[Buffer] = [reseal(fields, body, self._seed), body]
        self.add(frame, fields[BASE_OFFSET], fields[LAST_OFFSET], fields[COUNT], fields[MAX_TIME])
        return False

    async def copy(self, source: Handle, walk: FrameWalk) -> None:
        """Feed `walk`, whose visitor is `take`, from `source`; write a chunk at a time. `flush` writes the rest."""
        while (need := walk.need) is not None:
            walk.feed(await self._files.read(source, need.position, need.length))
            if self._size_bytes >= CHUNK_BYTES:
                await self.flush()

    async def flush(self) -> None:
        """Write what was collected."""
        if self._size_bytes:
            await self._files.submit(self.verbs())

    def verbs(self) -> tuple[Verb, ...]:
        """What writes that which was collected since the last call."""
        data, self._buffers, self._size_bytes = b"".join(self._buffers), [], 0
        return self._file.fill_verbs((data,), len(data))
