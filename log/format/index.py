"""The index of a segment: where frames are, by offset and by append time; and how far the segment is known.

An index is never needed, only quick: it is written beside the segment, its checksum is seeded with the segment's id,
and whatever does not check out is rebuilt by scanning. An entry is noted for a frame when at least `interval_bytes`
lie between it and the last one.

An entry's time is the latest append time of all records *before* its frame, so entries rise in time even when the
wall clock was set back, and every record before an entry is known to be older than what follows from its time.

Invariants
----------
IX1  Offsets and positions of the entries rise strictly, times never fall.
IX2  Every entry lies within [first frame, end_position), which is where the record at `next_offset` would be written.
"""

from __future__ import annotations

import zlib
from array import array
from bisect import bisect_left, bisect_right
from typing import Final

import attrs

from callboard.log import limits
from callboard.log.format.columns import NO_TIME
from callboard.log.format.faults import FaultReason, IndexInvalid
from callboard.log.format.fields import too_new
from callboard.log.format.frame import seed_of
from callboard.log.format.layout import Layout, LayoutField
from callboard.log.format.segment import SEGMENT_HEADER_BYTES
from callboard.log.seams.disk import Buffer

INDEX_MAGIC: Final = b"CALLIDX1"
INDEX_VERSION: Final = 1
ENTRY_BYTES: Final = 24
ENTRIES_MAX: Final = limits.SEGMENT_BYTES_MAX // 64
SEALED: Final = 1

INDEX_LAYOUT: Final = Layout(
    LayoutField("magic", "8s", "`CALLIDX1`"),
    LayoutField("version", "H", "1"),
    LayoutField("flags", "H", "bit 0: the segment is sealed, nothing follows end_position"),
    LayoutField("count", "I", "entries"),
    LayoutField("segment_id", "Q", "of the segment"),
    LayoutField("next_offset", "Q", "one above the last offset of the frames covered"),
    LayoutField("end_position", "Q", "byte position where the frames covered end"),
    LayoutField("records", "Q", "records in the frames covered"),
    LayoutField("max_time_us", "q", "latest append time of these records; -2^63 when there is none"),
    LayoutField(
        "entries_checksum",
        "I",
        "CRC-32 of all that follows the header, seeded with the CRC-32 of the segment id",
    ),
    LayoutField("header_checksum", "I", "CRC-32 of the 60 bytes before, seeded likewise"),
)
INDEX_HEADER_BYTES: Final = INDEX_LAYOUT.size_bytes


@attrs.define(eq=False, repr=False)
class SegmentIndex:
    """Grows by `note` for each frame written or found; see the module's docstring."""

    segment_id: int
    next_offset: int
    """The segment's base offset at first."""
    end_position: int = SEGMENT_HEADER_BYTES
    interval_bytes: int = limits.INDEX_INTERVAL_BYTES
    records: int = 0
    max_time_us: int = NO_TIME
    sealed: bool = False
    offsets: array[int] = attrs.Factory(lambda: array("Q"))
    times: array[int] = attrs.Factory(lambda: array("q"))
    positions: array[int] = attrs.Factory(lambda: array("Q"))

    def __len__(self) -> int:
        return len(self.offsets)

    def note(
        self, position: int, frame_bytes: int, base_offset: int, last_offset: int, count: int, time_us: int
    ) -> None:
        """A valid frame lies at `position`; `time_us` is its latest append time."""
        if not self.positions or position - self.positions[-1] >= self.interval_bytes:
            self.offsets.append(base_offset)
            self.times.append(self.max_time_us)
            self.positions.append(position)
        self.records += count
        self.next_offset = last_offset + 1
        self.end_position = position + frame_bytes
        if time_us > self.max_time_us:
            self.max_time_us = time_us

    def find_offset(self, offset: int) -> tuple[int, int]:
        """(position, base offset) of the frame from which a walk meets `offset`."""
        return self._frame(bisect_right(self.offsets, offset) - 1)

    def bytes_between(self, offset: int, stop: int) -> tuple[int, int]:
        """From the frame found for `offset` on: bytes up to the next entry, and to the first one at or past `stop`."""
        offsets, positions = self.offsets, self.positions
        if not positions:
            return 0, 0
        place = max(bisect_right(offsets, offset) - 1, 0)
        after = bisect_left(offsets, stop, place + 1)
        start, count = positions[place], len(positions)
        following = positions[place + 1] if place + 1 < count else self.end_position
        return following - start, (positions[after] if after < count else self.end_position) - start

    def find_time(self, time_us: int) -> tuple[int, int]:
        """(position, base offset) of the frame from which a walk meets the first record at or after `time_us`."""
        return self._frame(bisect_left(self.times, time_us) - 1)

    def _frame(self, place: int) -> tuple[int, int]:
        place = max(place, 0)
        return (
            (self.positions[place], self.offsets[place])
            if self.positions
            else (self.end_position, self.next_offset)
        )

    def cut(self, offset: int) -> None:
        """End at the last entry at or below `offset`: what follows is to be scanned, or superseded."""
        if self.next_offset <= offset or not self.positions:
            return
        place = max(bisect_right(self.offsets, offset) - 1, 0)
        self.next_offset, self.end_position = self.offsets[place], self.positions[place]
        self.max_time_us = self.times[place]
        self.records = max(0, self.next_offset - self.offsets[0])
        self.sealed = False
        del self.offsets[place:], self.positions[place:], self.times[place:]

    def replace(self, found: SegmentIndex) -> None:
        """Say what a scan has `found`, as far as that came; this index may have grown meanwhile."""
        count = bisect_left(self.positions, found.end_position)
        self.offsets[:count], self.times[:count] = found.offsets, found.times
        self.positions[:count] = found.positions

    def encode(self) -> bytes:
        """The bytes of the index file."""
        seed = seed_of(self.segment_id)
        entries = self.offsets.tobytes() + self.times.tobytes() + self.positions.tobytes()
        header = INDEX_LAYOUT.seal(
            INDEX_MAGIC,
            INDEX_VERSION,
            SEALED if self.sealed else 0,
            len(self.offsets),
            self.segment_id,
            self.next_offset,
            self.end_position,
            self.records,
            self.max_time_us,
            zlib.crc32(entries, seed),
            seed=seed,
        )
        return header + entries

    @classmethod
    def decode(
        cls, buffer: Buffer, segment_id: int, *, interval_bytes: int = limits.INDEX_INTERVAL_BYTES
    ) -> SegmentIndex:
        """The index that `buffer` (the whole file) holds for the segment.

        Raises `IndexInvalid`: build it anew; `FormatTooNew` when a newer Callboard wrote it.
        """
        view = memoryview(buffer)
        if len(view) < INDEX_HEADER_BYTES:
            raise IndexInvalid(FaultReason.SHORT)
        magic, version, flags, count, found_id, next_offset, end, records, latest, entries_sum, _ = (
            INDEX_LAYOUT.struct.unpack_from(view)
        )
        seed = seed_of(segment_id)
        if magic != INDEX_MAGIC:
            raise IndexInvalid(FaultReason.MAGIC)
        if found_id != segment_id or not INDEX_LAYOUT.is_sealed(view[:INDEX_HEADER_BYTES], seed):
            raise IndexInvalid(FaultReason.HEADER_CHECKSUM)
        if version > INDEX_VERSION or flags > SEALED:
            raise too_new(
                f"an index has version {version}, flags {flags}", found=version, supported=INDEX_VERSION
            )
        entries = view[INDEX_HEADER_BYTES:]
        if count > ENTRIES_MAX or len(entries) != count * ENTRY_BYTES:
            raise IndexInvalid(FaultReason.SHORT, f"{len(entries)} bytes for {count} entries")
        if zlib.crc32(entries, seed) != entries_sum:
            raise IndexInvalid(FaultReason.CHECKSUM)
        is_sealed = bool(flags & SEALED)
        index = cls(segment_id, next_offset, end, interval_bytes, records, latest, is_sealed)
        index.offsets.frombytes(entries[: 8 * count])
        index.times.frombytes(entries[8 * count : 16 * count])
        index.positions.frombytes(entries[16 * count :])
        index._check()
        return index

    def _check(self) -> None:
        """Raise `IndexInvalid` unless IX1 and IX2 hold."""
        for column in (self.offsets, self.positions):
            items = list(column)
            if any(map(int.__ge__, items, items[1:])):
                raise IndexInvalid(FaultReason.BODY, "entries do not rise")
        times = list(self.times)
        if times != sorted(times) or (times and times[-1] > self.max_time_us):
            raise IndexInvalid(FaultReason.BODY, "times fall")
        if self.positions and (
            self.positions[0] < SEGMENT_HEADER_BYTES
            or self.positions[-1] >= self.end_position
            or self.offsets[-1] >= self.next_offset
        ):
            raise IndexInvalid(FaultReason.BODY, "entries beyond the end")
