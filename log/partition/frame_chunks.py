"""Frames at known positions of a file, read in large chunks: many frames cost one read and one plain loop."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from callboard.log.errors import LogCorrupt
from callboard.log.format.frame import FRAME_HEADER_BYTES, HEADER
from callboard.log.limits import MIB
from callboard.log.seams.disk import Handle, Incarnation

__all__ = ["BASE_OFFSET", "LAST_OFFSET", "FrameChunks"]

CHUNK_BYTES: Final = 1 * MIB
BODY_BYTES: Final = 6
BASE_OFFSET: Final = 8
LAST_OFFSET: Final = 9
"""Places in an unpacked frame header."""


class FrameChunks:
    """Goes over the frames that begin at the rising `positions`, which a scan found valid."""

    __slots__ = ("_files", "_handle", "_next", "_positions")

    def __init__(self, files: Incarnation, handle: Handle, positions: Sequence[int]) -> None:
        self._files = files
        self._handle = handle
        self._positions = positions
        self._next = 0

    async def next(self) -> tuple[memoryview, list[int]]:
        """(bytes, where in them whole frames begin); no frames at the end."""
        first = self._next
        if first == len(self._positions):
            return memoryview(b""), []
        start = self._positions[first]
        length = CHUNK_BYTES
        while True:
            view = memoryview(await self._files.read(self._handle, start, length))
            stop = bisect_right(self._positions, start + len(view) - FRAME_HEADER_BYTES, first)
            needed = FRAME_HEADER_BYTES
            if stop > first:
                last = self._positions[stop - 1] - start
                needed = last + FRAME_HEADER_BYTES + HEADER.unpack_from(view, last)[BODY_BYTES]
                if needed > len(view):
                    stop -= 1
            if stop > first:
                self._next = stop
                return view, [position - start for position in self._positions[first:stop]]
            if len(view) < length:
                raise LogCorrupt(
                    f"{self._handle.path} became shorter while it was read: a frame at byte {start} is gone. "
                    "Check the disk, then open it again.",
                    path=self._handle.path,
                    offsets=(),
                )
            length = needed
