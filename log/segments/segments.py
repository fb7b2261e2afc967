"""The segments of a partition as they are known in memory, in offset order.

A segment *ends* at the base offset of its successor, whatever bytes follow in its file: frames at or past it are
superseded. That is what makes forks after failed syncs, and rewrites after unclean opens, safe at every crash point.

Invariants
----------
SG1  A segment that is being written has its index in memory.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import Final

import attrs

from callboard.log.errors import InternalError
from callboard.log.format.index import SegmentIndex
from callboard.log.format.segment import GapReason
from callboard.log.seams.disk import Handle
from callboard.log.segments.segment_file import SegmentFile

UNKNOWN: Final = -2
"""The last offset of a damage that cost an unknown number of records, with 0 as the first."""


@attrs.frozen
class Damage:
    """Bytes `start` to `end` of a segment cannot be read; offsets `first_offset` to `last_offset` were in them.

    Where `start` is `end`, all bytes can be read and records are missing. No offset is lost when `last_offset` is below
    `first_offset`. `reason` says why the bytes do not count, where it is not that they cannot be read.
    """

    path: str
    start: int
    end: int
    first_offset: int
    last_offset: int
    reason: str = ""

    @property
    def what(self) -> str:
        """What is wrong, for people."""
        if self.reason:
            return self.reason
        if self.start < self.end:
            return f"bytes {self.start} to {self.end} cannot be read"
        return f"records are missing before byte {self.start}" if self.start else "records are missing"

    def __str__(self) -> str:
        what = self.what
        if self.last_offset == UNKNOWN:
            return f"{self.path}: {what}; the number of lost records is unknown"
        if self.last_offset < self.first_offset:
            return f"{self.path}: {what}; no record is lost"
        return f"{self.path}: {what}; offsets {self.first_offset} to {self.last_offset} are lost"


@attrs.frozen
class Gap:
    """Offsets `first` to `last` hold no records; `reason` is "unsynced" or "damaged"."""

    first: int
    last: int
    reason: str

    def __str__(self) -> str:
        return f"no record has the offsets {self.first} to {self.last} ({self.reason})"


@attrs.define(eq=False, repr=False)
class StoredSegment:
    """One segment: its file, what its header says, and what is known of its frames."""

    file: SegmentFile
    created_us: int = attrs.field(kw_only=True)
    previous_end: int = attrs.field(kw_only=True)
    """Where the segment before ended; offsets from there to the base offset hold no records."""
    gap: GapReason = attrs.field(kw_only=True)
    index: SegmentIndex | None = None
    """None until it was loaded or built."""
    base_offset: int = attrs.field(init=False)
    """The offset that its first record has, or would have."""
    segment_id: int = attrs.field(init=False)
    """What its checksums are seeded with."""
    end_offset: int = attrs.field(init=False)
    """First offset past its frames; offsets up to the successor's base may follow that hold none."""
    is_indexed: bool = attrs.field(init=False)
    """Whether `index` is as complete as the frames allow, or None."""
    index_handle: Handle | None = None
    index_allocated: int = 0
    """Bytes of the index file that are zeroed, so that a checkpoint needs no space; 0: no file yet."""
    index_stored_to: int = 0
    """How far into the segment the stored index reaches."""
    damages: tuple[Damage, ...] | None = None
    """Where the frames are damaged, once that was looked for."""
    is_open: bool = False
    is_dropped: bool = False
    """Retention has begun to remove the file."""
    newest_us: int | None = None
    """Latest append time of its records, once sealed and looked up."""
    readers: int = 0
    last_used: int = 0

    def __attrs_post_init__(self) -> None:
        self.base_offset, self.segment_id = self.file.base_offset, self.file.segment_id
        self.end_offset = self.base_offset if self.index is None else self.index.next_offset
        self.is_indexed = self.index is not None

    def __repr__(self) -> str:
        return f"<StoredSegment {self.base_offset} to {self.end_offset}>"

    @property
    def stamped_us(self) -> int:
        """The latest stamp in it, as far as that is known without reading it."""
        return self.created_us if self.index is None else max(self.created_us, self.index.max_time_us)

    @property
    def index_in_use(self) -> SegmentIndex:
        """The index of a segment that is being written."""
        if self.index is None:
            raise InternalError(f"{self!r} is in use without an index", invariant="SG1")
        return self.index

    @property
    def size_bytes(self) -> int:
        """Header and frames, without the zeros ahead."""
        return self.file.position

    def damage_at(self, position: int) -> Damage | None:
        """The damaged range in which a walk stands, one without bytes included."""
        for damage in self.damages or ():
            if damage.start == position or damage.start < position < damage.end:
                return damage
        return None


class SegmentList:
    """Segments in offset order; the last one is in use."""

    __slots__ = ("_bases", "_sealed_bytes", "_segments", "active")

    def __init__(self, segments: list[StoredSegment]) -> None:
        self._segments = segments
        self.active = segments[-1]
        """The one in use."""
        self._bases = [segment.base_offset for segment in segments]
        self._sealed_bytes = sum(segment.size_bytes for segment in segments[:-1])

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[StoredSegment]:
        return iter(self._segments)

    def __getitem__(self, place: int) -> StoredSegment:
        return self._segments[place]

    def holding(self, offset: int) -> tuple[StoredSegment, StoredSegment | None]:
        """The segment that holds, or would hold, `offset` (at least the first), and its successor."""
        place = max(bisect_right(self._bases, offset) - 1, 0)
        following = self._segments[place + 1] if place + 1 < len(self._segments) else None
        return self._segments[place], following

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments, without the zeros ahead."""
        return self._sealed_bytes + self.active.file.position

    @property
    def damages(self) -> list[Damage]:
        """The damages that were found in the segments."""
        return [damage for segment in self._segments for damage in segment.damages or ()]

    def append(self, segment: StoredSegment) -> None:
        """Take a new segment into use; it replaces the last one when it has the same base."""
        if self._bases[-1] == segment.base_offset:
            self._segments[-1] = segment
        else:
            self._sealed_bytes += self.active.size_bytes
            self._bases.append(segment.base_offset)
            self._segments.append(segment)
        self.active = segment

    def drop_first(self, count: int) -> None:
        """Forget the oldest segments; the one in use is never among them."""
        self._sealed_bytes -= sum(segment.size_bytes for segment in self._segments[:count])
        del self._segments[:count], self._bases[:count]
