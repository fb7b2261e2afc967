"""Damaging the files of a partition at rest, at chosen places, with the offsets that this costs known exactly."""

from __future__ import annotations

from bisect import bisect_right
from functools import partial
from typing import TYPE_CHECKING, Final

import attrs

from callboard.log.format.frame import BASE_OFFSET, LAST_OFFSET, FrameFields
from callboard.log.format.frame_walk import FrameWalk, run_walk_cached
from callboard.log.format.segment import SEGMENT_HEADER_BYTES, decode_segment_header
from callboard.log.segments.segment_file import base_offset_of
from callboard.simulations.scenarios.draws import between, one_of

if TYPE_CHECKING:
    from callboard.simulations.disk.memory_disk import MemoryDisk
    from callboard.simulations.entropy import SeededEntropy

KINDS: Final = ("flip", "flip", "flip", "zeros", "cut", "copy", "index", "missing")
"""A bit of a frame, frames that are zeros, the end of a file, one of the two copies of a segment's header, an index, a
segment."""


@attrs.frozen
class StoredFrame:
    """Where a frame lies, and the offsets in it."""

    path: str
    start: int
    end: int
    first: int
    last: int


def frames_of(disk: MemoryDisk, directory: str) -> list[StoredFrame]:
    """All frames of an undamaged partition, in order."""
    files = disk.files()
    found: list[StoredFrame] = []
    for path in sorted(path for path in files if path.rpartition("/")[0] == directory):
        base = base_offset_of(path.rpartition("/")[2])
        if base is None:
            continue
        content, here = files[path], list[tuple[int, int, int]]()
        header = decode_segment_header(content[:SEGMENT_HEADER_BYTES])

        def visit(
            position: int, fields: FrameFields, body: memoryview, here: list[tuple[int, int, int]] = here
        ) -> bool:
            del body
            here.append((position, fields[BASE_OFFSET], fields[LAST_OFFSET]))
            return False

        walk = FrameWalk(header.segment_id, base, file_end=len(content), visit=visit)
        run_walk_cached(walk, partial(_piece, content))
        ends = [position for position, *_ in here[1:]] + [walk.end]
        found += [
            StoredFrame(path, start, end, first, last)
            for (start, first, last), end in zip(here, ends, strict=True)
        ]
    return found


def _piece(content: bytes, position: int, length: int) -> bytes:
    return content[position : position + length]


class Damaging:
    """Damages one partition. `lost` are the offsets that this has cost so far."""

    def __init__(self, disk: MemoryDisk, directory: str, entropy: SeededEntropy) -> None:
        self.lost: set[int] = set()
        self._disk = disk
        self._directory = directory
        self._entropy = entropy
        self._frames = frames_of(disk, directory)
        self._paths = sorted({frame.path for frame in self._frames})
        self._gone: set[str] = set()

    def damage(self, kind: str) -> str | None:
        """Damage something; in words what, or None when there was nothing of that kind."""
        frames = [frame for frame in self._frames if frame.path not in self._gone]
        if not frames:
            return None
        if kind == "missing":
            return self._remove()
        frame = self._choose(frames)
        if kind == "copy":
            return self._flip(frame.path, between(self._entropy, 0, SEGMENT_HEADER_BYTES // 2 - 1))
        if kind == "index":
            path = frame.path.removesuffix(".log") + ".index"
            size = len(self._disk.files().get(path, b""))
            return self._flip(path, between(self._entropy, 0, size - 1)) if size else None
        if kind == "flip":
            self._lose(frame.path, frame.start, frame.end)
            return self._flip(frame.path, between(self._entropy, frame.start, frame.end - 1))
        start = between(self._entropy, frame.start, frame.end - 1)
        end = len(self._disk.files()[frame.path])
        if kind == "zeros":
            place = bisect_right([other.start for other in frames if other.path == frame.path], start)
            behind = [other for other in frames if other.path == frame.path][place - 1 :]
            start, end = frame.start, one_of(self._entropy, behind[:3]).end
        self._lose(frame.path, start, end)
        inode = self._disk.tree.inode(frame.path)
        for content in (inode.volatile, inode.durable):
            if kind == "cut":
                content.resize(start)
            else:
                content.zero(start, end)
        return f"{frame.path}: {kind} from {start} to {end}"

    def _choose(self, frames: list[StoredFrame]) -> StoredFrame:
        """Any frame, or the first or the last of a segment, or the very last."""
        path = one_of(self._entropy, frames).path
        of_one = [frame for frame in frames if frame.path == path]
        return one_of(self._entropy, (one_of(self._entropy, frames), of_one[0], of_one[-1], frames[-1]))

    def _lose(self, path: str, start: int, end: int) -> None:
        for frame in self._frames:
            if frame.path == path and frame.start < end and start < frame.end:
                self.lost.update(range(frame.first, frame.last + 1))

    def _flip(self, path: str, byte: int) -> str:
        self._disk.flip(path, byte, 1 << self._entropy.integer(3))
        return f"{path}: a bit of byte {byte}"

    def _remove(self) -> str | None:
        """Remove a segment, which is neither the first nor the last: a log may begin anywhere."""
        inner = [path for path in self._paths[1:-1] if path not in self._gone]
        if not inner:
            return None
        path = one_of(self._entropy, inner)
        self._gone.add(path)
        self._lose(path, 0, 1 << 62)
        self._disk.tree.unlink(path)
        self._disk.tree.directory(self._directory).sync()
        return f"{path} is gone"
