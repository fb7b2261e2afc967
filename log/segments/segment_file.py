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

Invariants
----------
SF1  A segment gets its final name only after its bytes so far are synced, and nothing in it may be acknowledged
     before the directory is synced (`naming_verbs` does both, in this order).
SF2  The appender moves `position` and `allocated_to` when the plan succeeded, and stages one append at a time. After
     a failed plan the file is abandoned, unless the plan failed before the write.
SF3  Space is zeroed before frames are written over it, so a full disk fails an append before any byte of it is
     written: it is certain that nothing was stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import attrs

from callboard.log.errors import InternalError, PlanFailed
from callboard.log.limits import KIB, MIB
from callboard.log.seams.disk import (
    Buffer,
    Close,
    Create,
    Entry,
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

SEGMENT_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
NEW_SUFFIX: Final = ".log.new"
"""A segment under creation; opening removes it."""
OFFSET_DIGITS: Final = 20

AHEAD_BYTES_MIN: Final = 16 * KIB
AHEAD_BYTES_MAX: Final = 512 * KIB
"""Between the two, a file is zeroed ahead by its own length: small topics stay small."""
LARGE_COMMIT_BYTES: Final = 64 * KIB
LARGE_AHEAD_BYTES_MAX: Final = 4 * MIB
"""The upper bound when commits are large. Measured with 110 KiB: on a disk at rest zeroing costs as much as the longer
syncs of a growing file; on a busy disk a sync that changes metadata takes twice as long."""


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


def segment_sizes(entries: Sequence[Entry]) -> dict[int, int]:
    """The bytes of each segment in a directory with `entries`, by base offset, rising."""
    return {
        base: entry.size_bytes
        for entry in entries
        if not entry.is_directory and (base := base_offset_of(entry.name)) is not None
    }


def regular_sizes(entries: Sequence[Entry]) -> dict[int, int]:
    """As `segment_sizes`, without links, pipes and the like, which cannot be read."""
    return segment_sizes([entry for entry in entries if entry.is_file])


@attrs.define(eq=False)
class SegmentFile:
    """A segment that is being written, or was recovered. It makes verbs, which its owner submits."""

    _files: Incarnation
    directory: str
    base_offset: int
    segment_id: int = attrs.field(kw_only=True)
    limit_bytes: int = attrs.field(kw_only=True)
    """Bounds what is zeroed ahead."""
    position: int = 0
    allocated_to: int = 0
    path: str = attrs.field(init=False)
    handle: Handle = attrs.field(init=False)
    _syncing: Sync = attrs.field(init=False)
    _temporary: Handle | None = attrs.field(default=None, init=False)
    _made_as: Handle | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self.path = segment_path(self.directory, self.base_offset)
        self.handle = self._files.handle(self.path)
        self._syncing = Sync(self.handle)
        self.allocated_to = max(self.position, self.allocated_to)

    # -- creation (SF1) ------------------------------------------------------------------------------------------

    def start_verbs(self, header: bytes, *, allocate_bytes: int = 0) -> tuple[Verb, ...]:
        """Create the file under its temporary name, with its header and `allocate_bytes` zeros.

        The position moves at once: no reader sees the file yet.
        """
        temporary = self._files.handle(self.path.removesuffix(SEGMENT_SUFFIX) + NEW_SUFFIX)
        self._temporary = self._made_as = temporary
        self.position = self.allocated_to = len(header)
        verbs: tuple[Verb, ...] = (Create(temporary), Write(temporary, 0, (header,)))
        if allocate_bytes:
            verbs += (Zero(temporary, self.position, allocate_bytes),)
            self.allocated_to += allocate_bytes
        return verbs

    def fill_verbs(self, buffers: Sequence[Buffer], size_bytes: int) -> tuple[Verb, ...]:
        """Write `buffers` into the file while it has its temporary name."""
        if self._temporary is None:
            raise InternalError(f"{self.path} has its name already", invariant="SF1")
        start = self.position
        self.position += size_bytes
        self.allocated_to = max(self.allocated_to, self.position)
        return (Write(self._temporary, start, buffers),)

    def naming_verbs(self, *, before_naming: Sequence[Verb] = ()) -> tuple[Verb, ...]:
        """Sync the file and give it its name, replacing a file that has it; the handle is open afterwards.

        `before_naming` run just before the rename: links that keep what the rename replaces.
        """
        temporary = self._temporary
        if temporary is None:
            raise InternalError(f"{self.path} was not started", invariant="SF1")
        self._temporary = None
        return (
            Sync(temporary),
            *before_naming,
            Rename(temporary.path, self.path),
            Open(self.handle),
            Close(temporary),
            SyncDirectory(self.directory),
        )

    async def give_up(self) -> None:
        """Close the file after a plan that was to start it failed: an open file takes space without a name, too."""
        for handle in (self._made_as, self.handle):
            if handle is not None:
                with suppress(PlanFailed):
                    await self._files.submit((Close(handle),))

    # -- appending (SF2, SF3) -------------------------------------------------------------------------------------

    def append_verbs(
        self, buffers: Sequence[Buffer], size_bytes: int, *, sync: bool
    ) -> tuple[list[Verb], int]:
        """Write `buffers`, `size_bytes` long in all, at the position; zero ahead when the zeros run out.

        Also returns up to where the file is zeroed when the verbs have run.
        """
        handle, end = self.handle, self.position + size_bytes
        verbs: list[Verb] = [Write(handle, self.position, buffers)]
        if sync:
            verbs.append(self._syncing)
        if end <= self.allocated_to:
            return verbs, self.allocated_to
        # As many again as are written, between two bounds.
        most = AHEAD_BYTES_MAX if size_bytes < LARGE_COMMIT_BYTES else LARGE_AHEAD_BYTES_MAX
        target = end + max(0, min(max(end, AHEAD_BYTES_MIN), most, self.limit_bytes - end))
        return [Zero(handle, self.allocated_to, target - self.allocated_to), *verbs], target

    def seal_verbs(self, position: int, allocated_to: int) -> tuple[Verb, ...]:
        """Cut off the zeros from `position` to `allocated_to` and sync: nothing more will be written here.

        The handle stays open for readers.
        """
        if allocated_to > position:
            return (Truncate(self.handle, position), Sync(self.handle))
        return (Sync(self.handle),)
