"""One segment on disk: its names, where the next frame goes, and the verbs that create, extend and seal it.

The partition log and the journals share this class. It knows nothing of frames or offsets beyond its own base: it
turns buffers into disk verbs and remembers how far the file is written and how far it is zeroed ahead.

Vocabulary
----------
*base offset*    the offset of the first record the segment may hold; the file is named after it.
*position*       where the next frame is written.
*allocated to*   up to where the file is known to hold zeros behind the position: overwriting them changes no
                 metadata, so that a small sync costs 1.3 to 1.7 times less than one that makes the file longer.
                 Zeros also mark the clean end of the frames.
*staged*         verbs were handed out but their plan has not ended yet.

Invariants
----------
F1  A segment gets its final name only after its header is synced, and nothing in it may be acknowledged before the
    directory is synced (`creation_verbs` does both, in this order).
F2  At most one append is staged; `advance` moves the position after its plan succeeded. After a failed plan the file
    is abandoned: its position is never moved again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from callboard.log.errors import InternalError
from callboard.log.limits import KIB, MIB
from callboard.log.seams.disk import (
    Buffer,
    Close,
    Create,
    Handle,
    Incarnation,
    Open,
    Rename,
    Sync,
    SyncDirectory,
    Truncate,
    Verb,
    Write,
    Zero,
)

__all__ = ["SegmentFile", "base_offset_of", "index_path", "segment_path"]

SEGMENT_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
NEW_SUFFIX: Final = ".log.new"
"""A segment under creation; whoever finds one at open removes it."""
OFFSET_DIGITS: Final = 20

AHEAD_BYTES_MIN: Final = 256 * KIB
AHEAD_BYTES_MAX: Final = 1 * MIB
AHEAD_COMMITS: Final = 64
"""Zeroing ahead aims to serve this many commits like the present one."""
LARGE_COMMIT_BYTES: Final = 64 * KIB
"""Commits of this size gain nothing from zeroing ahead: they would write every byte twice."""


def segment_path(directory: str, base_offset: int) -> str:
    """The path of the segment that starts at `base_offset`."""
    return f"{directory}/{base_offset:020d}{SEGMENT_SUFFIX}"


def index_path(directory: str, base_offset: int) -> str:
    """The path of that segment's index."""
    return f"{directory}/{base_offset:020d}{INDEX_SUFFIX}"


def base_offset_of(name: str, suffix: str = SEGMENT_SUFFIX) -> int | None:
    """The base offset in a file name such as `00000000000000000000.log`; None for any other name."""
    digits = name.removesuffix(suffix)
    if len(digits) != OFFSET_DIGITS or digits == name or not (digits.isascii() and digits.isdecimal()):
        return None
    return int(digits)


class SegmentFile:
    """A segment that is being written, or was recovered. Pure: its verbs are submitted by the owner."""

    __slots__ = (
        "_staged_allocated_to",
        "_staged_position",
        "allocated_to",
        "base_offset",
        "directory",
        "handle",
        "limit_bytes",
        "path",
        "position",
        "segment_id",
    )

    def __init__(
        self,
        files: Incarnation,
        directory: str,
        base_offset: int,
        *,
        segment_id: int,
        limit_bytes: int,
        position: int = 0,
        allocated_to: int = 0,
    ) -> None:
        """Describe the segment at `base_offset` in `directory`; `limit_bytes` bounds what is zeroed ahead."""
        self.directory = directory
        self.base_offset = base_offset
        self.segment_id = segment_id
        self.limit_bytes = limit_bytes
        self.path = segment_path(directory, base_offset)
        self.handle: Handle = files.handle(self.path)
        self.position = position
        self.allocated_to = max(position, allocated_to)
        self._staged_position = -1
        self._staged_allocated_to = 0

    def creation_verbs(
        self,
        files: Incarnation,
        header: bytes,
        *,
        allocate_bytes: int = 0,
        synced_before_naming: Sequence[Verb] = (),
    ) -> tuple[Verb, ...]:
        """Create the file with its header and `allocate_bytes` zeros, then name it, replacing a file of its base (F1).

        `synced_before_naming` run just before the rename: links that keep what the rename replaces. The position
        is set at once, so that `append_verbs` may follow in the same plan; the handle is open after the plan.
        """
        temporary = files.handle(self.path.removesuffix(SEGMENT_SUFFIX) + NEW_SUFFIX)
        verbs: list[Verb] = [Create(temporary), Write(temporary, 0, (header,))]
        self.position = self.allocated_to = len(header)
        if allocate_bytes:
            verbs.append(Zero(temporary, self.position, allocate_bytes))
            self.allocated_to += allocate_bytes
        verbs += (Sync(temporary), *synced_before_naming, Rename(temporary.path, self.path))
        verbs += (Close(temporary), Open(self.handle), SyncDirectory(self.directory))
        return tuple(verbs)

    def append_verbs(
        self,
        buffers: Sequence[Buffer],
        size_bytes: int,
        *,
        sync: bool,
        keep_ahead_bytes: int = 0,
        zero: bool = True,
    ) -> list[Verb]:
        """Write `buffers`, `size_bytes` long in all, at the position; zero ahead when the zeros run out (F2).

        At least `keep_ahead_bytes` zeros are kept behind the frames: a reserve that can be written on a full
        disk. With `zero=False` nothing is zeroed, whatever is left (the disk is full).
        """
        if self._staged_position >= 0:
            raise InternalError(f"an append to {self.path} is staged already", invariant="F2")
        end = self.position + size_bytes
        verbs: list[Verb] = [Write(self.handle, self.position, buffers)]
        allocated_to = self.allocated_to
        if end + keep_ahead_bytes > allocated_to:
            ahead = self._ahead_bytes(end, size_bytes, keep_ahead_bytes) if zero else 0
            start = max(end, allocated_to)
            if end + ahead > start:
                verbs.append(Zero(self.handle, start, end + ahead - start))
            allocated_to = max(start, end + ahead)
        if sync:
            verbs.append(Sync(self.handle))
        self._staged_position = end
        self._staged_allocated_to = allocated_to
        return verbs

    def _ahead_bytes(self, end: int, size_bytes: int, keep_ahead_bytes: int) -> int:
        """How many zeros the next small commits can use, not beyond the segment's own limit."""
        if keep_ahead_bytes:
            return max(2 * keep_ahead_bytes, AHEAD_BYTES_MIN)
        if size_bytes >= LARGE_COMMIT_BYTES:
            return 0
        ahead = min(max(size_bytes * AHEAD_COMMITS, AHEAD_BYTES_MIN), AHEAD_BYTES_MAX)
        return max(0, min(ahead, self.limit_bytes - end))

    def advance(self) -> None:
        """The plan with the staged append succeeded: the next frame goes behind it (F2)."""
        if self._staged_position < 0:
            raise InternalError(f"nothing is staged for {self.path}", invariant="F2")
        self.position = self._staged_position
        self.allocated_to = self._staged_allocated_to
        self._staged_position = -1

    def seal_verbs(self) -> tuple[Verb, ...]:
        """Cut the zeros off and sync: nothing more will be written here. The handle stays open for readers."""
        if self.allocated_to > self.position:
            return (Truncate(self.handle, self.position), Sync(self.handle))
        return (Sync(self.handle),)
