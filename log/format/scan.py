"""Scanning a segment: which frames are valid, what is damaged, and where the segment ends.

Theory of operation
-------------------
`SegmentScan` is fed the segment's bytes in chunks of any size, from the first frame (or from a position that an index
proved) to the end of the file, then told to `finish`. It walks from frame to frame. Where no valid frame continues
the segment it looks on for the next one:

    walking   --no valid frame--> searching   for the magic of a frame, then its checksums
    walking   --zeros-----------> blank       maybe the clean end of a preallocated file
    blank     --a byte not 0----> searching
    searching --valid frame-----> walking     what lies between is a damaged range
    finish: walking, blank -> a clean end (CLEAN); searching -> a torn tail (TORN)

A frame whose header holds and whose body does not is a *casualty*: its offsets are known to be lost, and its length is
known, so the search passes over its body if something known follows there.

A frame is valid when both checksums hold under this segment's id, and its base offset is not below the next one
expected. The first keeps payloads that are frames of other segments from being taken for records, the second
payloads that are earlier frames of this one.

Work is linear: a byte is checksummed as part of one body, seldom of two, and 56 bytes for each magic found.

Invariants
----------
S1  Positions and offsets of the frames found rise.
S2  Damaged ranges are disjoint, and each lies between two valid frames or before the first.
S3  `end` is where the last valid frame ends; all offsets from `next_offset` on are unused or torn.
"""

from __future__ import annotations

import enum
import re
import zlib
from array import array
from collections.abc import Iterator
from typing import Final

import attrs

from callboard.log import limits
from callboard.log.errors import InternalError
from callboard.log.format.arrays import NO_TIME
from callboard.log.format.columns import Columns
from callboard.log.format.compression import Codec
from callboard.log.format.faults import FrameInvalid
from callboard.log.format.frame import (
    CHECKSUM,
    FRAME_HEADER_BYTES,
    FRAME_MAGIC,
    FRAME_VERSION,
    HEADER,
    SEALED_BYTES,
    FrameHeader,
    decode_body,
    read_header,
    seed_of,
)
from callboard.log.format.index import SegmentIndex
from callboard.log.format.segment import SEGMENT_HEADER_BYTES
from callboard.log.seams.disk import Buffer

__all__ = ["DamagedRange", "FoundFrame", "SegmentScan", "Tail", "read_frames", "scan_segment"]

MAGIC_PATTERN: Final = re.compile(re.escape(FRAME_MAGIC), re.DOTALL)
NOT_ZERO: Final = re.compile(rb"[^\x00]")
ZEROS: Final = bytes(64 * limits.KIB)
CODEC_MAX: Final = max(Codec)


class Tail(enum.Enum):
    """How a segment ends."""

    CLEAN = "clean"
    """At the end of the file, or in zeros up to there."""
    TORN = "torn"
    """In bytes that are no valid frame, with no valid frame after them."""


class Mode(enum.Enum):
    """The scan's state; see the transitions above."""

    WALKING = "walking"
    BLANK = "blank"
    SEARCHING = "searching"


@attrs.frozen
class FoundFrame:
    """A valid frame at a byte position of the file."""

    position: int
    header: FrameHeader


@attrs.frozen
class DamagedRange:
    """Bytes start to end are damaged; with them the offsets, first and last included.

    No offset is lost when `last_offset_lost` is below `first_offset_lost`.
    """

    start: int
    end: int
    first_offset_lost: int
    last_offset_lost: int


@attrs.frozen
class Casualty:
    """Consecutive frames whose headers hold and whose bodies do not: their offsets are known exactly."""

    base_offset: int
    last_offset: int
    end: int


class SegmentScan:
    """One pass over a segment. `check_bodies=False` walks over headers only, for parts proven before."""

    def __init__(
        self,
        segment_id: int,
        base_offset: int,
        *,
        position: int = SEGMENT_HEADER_BYTES,
        check_bodies: bool = True,
        index: SegmentIndex | None = None,
    ) -> None:
        """Begin at byte `position` of the file, where the record `base_offset` or a later one is expected.

        `index`, when given, notes every valid frame.
        """
        self.next_offset = base_offset
        self.end = position
        self.positions: array[int] = array("Q")
        """Byte positions of all valid frames."""
        self.records = 0
        self.max_time_us = NO_TIME
        self.damages: list[DamagedRange] = []
        self.tail = Tail.CLEAN
        self.tail_end = position
        """Where the bytes of a torn tail end, trailing zeros left out; equal to `end` when clean."""
        self.torn_offsets: tuple[int, int] | None = None
        """First and last offset of a torn frame, when its header survived."""
        self._seed = seed_of(segment_id)
        self._check_bodies = check_bodies
        self._index = index
        self._mode = Mode.WALKING
        self._pending: list[Buffer] = []
        self._pending_bytes = 0
        self._needed_bytes = 1
        self._pending_at = position
        self._casualty: Casualty | None = None
        self._final = False

    def feed(self, chunk: Buffer) -> None:
        """The next bytes of the file. Raises `FormatTooNew` at a frame that a newer Callboard wrote."""
        if self._final:
            raise InternalError("a scan was fed after its end", invariant="S3")
        self._pending.append(chunk)
        self._pending_bytes += len(chunk)
        if self._pending_bytes >= self._needed_bytes:
            self._advance()

    def finish(self) -> None:
        """There are no more bytes: judge what is left over, and how the segment ends."""
        self._final = True
        self._advance()
        self._pending = []
        if self._mode is Mode.SEARCHING:
            self.tail = Tail.TORN
            if self._casualty is not None:
                self.torn_offsets = self._casualty.base_offset, self._casualty.last_offset
        else:
            self.tail_end = self.end

    def _advance(self) -> None:
        """Go through the states until more bytes are needed; keep what was not consumed."""
        view = memoryview(self._pending[0] if len(self._pending) == 1 else b"".join(self._pending))
        at = 0
        self._needed_bytes = 0
        while not self._needed_bytes:
            if self._mode is Mode.WALKING:
                at = self._walk(view, at)
            elif self._mode is Mode.BLANK:
                at = self._skip_zeros(view, at)
            else:
                at = self._search(view, at)
        self._pending = [view[at:]]
        self._pending_bytes = len(view) - at
        self._pending_at += at

    # -- states: each returns how far it came, and sets `_needed_bytes` when it can come no further ----------------

    def _walk(self, view: memoryview, at: int) -> int:
        """From frame to frame; the loop that a million frames go through."""
        unpack, crc32, seed, check_bodies = HEADER.unpack_from, zlib.crc32, self._seed, self._check_bodies
        append, start, size = self.positions.append, self._pending_at, len(view)
        next_offset, records, latest, index = self.next_offset, self.records, self.max_time_us, self._index
        body_limit, count_limit = limits.FRAME_BODY_BYTES_MAX, limits.BATCH_RECORDS_MAX
        plain_limit = limits.FRAME_DECOMPRESSED_BYTES_MAX
        needed = 0
        while True:
            body_at = at + FRAME_HEADER_BYTES
            if body_at > size:
                needed = FRAME_HEADER_BYTES
                break
            (
                magic,
                version,
                codec,
                flags,
                count,
                body_sum,
                length,
                plain,
                base,
                last,
                first_us,
                time_us,
                header_sum,
            ) = unpack(view, at)
            if (
                magic != FRAME_MAGIC
                or base < next_offset
                or crc32(view[at : at + SEALED_BYTES], seed) != header_sum
                or version != FRAME_VERSION
                or flags
                or codec > CODEC_MAX
                or not 0 < count <= last - base + 1
                or length > body_limit
                or count > count_limit
                or plain > plain_limit
                or (not codec and plain != length)
                or time_us < first_us
            ):
                break
            end = body_at + length
            if end > size:
                needed = FRAME_HEADER_BYTES + length
                break
            if check_bodies and crc32(view[body_at:end], seed) != body_sum:
                break
            append(start + at)
            if index is not None:
                index.note(start + at, end - at, base, last, count, time_us)
            next_offset = last + 1
            records += count
            if time_us > latest:
                latest = time_us
            at = end
        self.next_offset, self.records, self.max_time_us, self.end = next_offset, records, latest, start + at
        if at == size or (needed and not self._final):
            self._needed_bytes = needed
            return at
        blank = not any(view[at : at + len(FRAME_MAGIC)])
        self._mode = Mode.BLANK if blank else Mode.SEARCHING
        self._casualty = None
        return at

    def _skip_zeros(self, view: memoryview, at: int) -> int:
        at = first_not_zero(view, at)
        if at == len(view):
            self._needed_bytes = 1
        else:
            self._mode = Mode.SEARCHING
        return at

    def _search(self, view: memoryview, at: int) -> int:
        """To the next valid frame, whatever lies before it."""
        self._note_data(view, at)
        find, crc32, checksum_at = MAGIC_PATTERN.search, zlib.crc32, CHECKSUM.unpack_from
        while True:
            match = find(view, at)
            if match is None:
                self._needed_bytes = len(FRAME_MAGIC)
                return max(at, len(view) - len(FRAME_MAGIC) + 1)
            at = match.start()
            if len(view) - at < FRAME_HEADER_BYTES:
                if not self._final:
                    self._needed_bytes = FRAME_HEADER_BYTES
                    return at
                at += 1
                continue
            if crc32(view[at : at + SEALED_BYTES], self._seed) != checksum_at(view, at + SEALED_BYTES)[0]:
                at += 1  # most often a payload that holds the magic: the quick way out
                continue
            header = self._header_at(view, at)
            if header is None:
                at += 1
            elif at + header.frame_bytes + FRAME_HEADER_BYTES > len(view) and not self._final:
                self._needed_bytes = header.frame_bytes + FRAME_HEADER_BYTES
                return at
            elif self._body_holds(view, at, header):
                self._close_damage(at, header)
                return at
            else:
                at = self._pass_casualty(view, at, header)

    def _pass_casualty(self, view: memoryview, at: int, header: FrameHeader) -> int:
        """Past a frame whose header holds and whose body does not, and note which offsets it had.

        When its end is the beginning of something known, the body is skipped, else searched: bytes may be missing.
        """
        position = self._pending_at + at
        before, end = self._casualty, at + header.frame_bytes
        if position == self.end:
            self._casualty = Casualty(header.base_offset, header.last_offset, self._pending_at + end)
        elif before is not None and before.end == position and header.base_offset > before.last_offset:
            self._casualty = Casualty(before.base_offset, header.last_offset, self._pending_at + end)
        following = view[end : end + FRAME_HEADER_BYTES]
        return end if end <= len(view) and (not any(following) or self._header_at(view, end)) else at + 1

    # -- parts -----------------------------------------------------------------------------------------------------

    def _header_at(self, view: memoryview, at: int) -> FrameHeader | None:
        """The header at `at` when it is one of this segment and its offsets may follow, else None."""
        try:
            header = read_header(view, at, self._seed)
        except FrameInvalid:
            return None
        return header if header.base_offset >= self.next_offset else None

    def _body_holds(self, view: memoryview, at: int, header: FrameHeader) -> bool:
        body = view[at + FRAME_HEADER_BYTES : at + header.frame_bytes]
        return len(body) == header.body_bytes and zlib.crc32(body, self._seed) == header.body_checksum

    def _close_damage(self, at: int, header: FrameHeader) -> None:
        position = self._pending_at + at
        first, last = self.next_offset, header.base_offset - 1
        if self._casualty is not None and self._casualty.end == position:
            first, last = self._casualty.base_offset, self._casualty.last_offset
        self.damages.append(DamagedRange(self.end, position, first, last))
        self._casualty = None
        self._mode = Mode.WALKING

    def _note_data(self, view: memoryview, at: int) -> None:
        """Remember where bytes that are not 0 end: `tail_end`, should nothing valid follow."""
        stop = len(view)
        while stop > at:
            block = bytes(view[max(at, stop - len(ZEROS)) : stop])
            kept = len(block.rstrip(b"\0"))
            if kept:
                self.tail_end = max(self.tail_end, self._pending_at + stop - len(block) + kept)
                return
            stop -= len(block)


def first_not_zero(view: memoryview, at: int) -> int:
    """The index of the first byte from `at` on that is not 0, else the length."""
    size = len(view)
    while at < size:
        block = bytes(view[at : at + len(ZEROS)])
        if block != ZEROS[: len(block)]:
            match = NOT_ZERO.search(block)
            return at + match.start() if match else at
        at += len(block)
    return size


def scan_segment(
    buffer: Buffer,
    segment_id: int,
    base_offset: int,
    *,
    position: int = SEGMENT_HEADER_BYTES,
    check_bodies: bool = True,
    index: SegmentIndex | None = None,
) -> SegmentScan:
    """Scan a whole file at once; `position` is where the first frame is expected."""
    scan = SegmentScan(segment_id, base_offset, position=position, check_bodies=check_bodies, index=index)
    scan.feed(memoryview(buffer)[position:])
    scan.finish()
    return scan


def read_frames(buffer: Buffer, scan: SegmentScan, segment_id: int) -> Iterator[tuple[FoundFrame, Columns]]:
    """The frames that `scan` found in the whole file `buffer`, decoded one at a time."""
    view, seed = memoryview(buffer), seed_of(segment_id)
    for position in scan.positions:
        header = read_header(view, position, seed)
        body = view[position + FRAME_HEADER_BYTES : position + header.frame_bytes]
        yield FoundFrame(position, header), decode_body(header, body)
