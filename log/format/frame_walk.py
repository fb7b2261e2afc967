"""Walking a segment from frame to frame: which frames are valid, what is damaged, and where the segment ends.

Theory of operation
-------------------
A `FrameWalk` does no I/O. It says which bytes it needs next (`need`: a number of bytes and a position) and is fed them,
until it needs none; `run_walk_async` and `run_walk_cached` feed it. However it is fed, and whatever the size of the
chunks, the result is the same.

It goes from frame to frame. Where no valid frame continues the segment it looks on for the next one:

    walking   --no valid frame--> searching   for the magic of a frame, then its checksums
    walking   --zeros-----------> blank       maybe the clean end of a preallocated file
    blank     --a byte not 0----> searching
    searching --valid frame-----> walking     what lies between is a damaged range
    any       --enough----------> over        the limit, the visitor, or the end of the file
    at the end of the file: walking, blank -> a clean end (CLEAN); searching -> a torn tail (TORN)

A frame whose header holds and whose body does not is a *casualty*: its offsets are known to be lost. Its length is not
believed: the header may lie at a wrong place, and whole frames where its body would be. So its body is searched too. A
frame whose checksums both hold, and which the visitor refuses, has the length that its header says.

A frame is valid when both checksums hold under this segment's id, and its base offset is not below the next one
expected. The first keeps payloads that are frames of other segments from being taken for records, the second
payloads that are earlier frames of this one.

A disk may write frames to a wrong place. A valid frame that jumps ahead of the next offset is therefore only a
*suspect*, unless casualties account for every offset that it leaves out. The walk looks on, behind the frames that
continue the suspect, for at most `LOOK_AHEAD_BYTES`: when the next valid frame there is a lower one, the suspect lies
where that one's predecessors lay, and all up to the lower frame is damaged. When it is a higher one, or there is none,
the suspect stands. Lower frames from the very offset expected on prove nothing: they are what was left out, written
to a wrong place themselves, behind the suspect.

Work is linear: a byte is checksummed as part of one body, seldom of two, and 56 bytes for each magic found, or for two
when it lies behind a suspect. Memory is a chunk, or a frame when that is larger; with a suspect it is the frame,
`LOOK_AHEAD_BYTES` and a chunk. A length is compared with the limits, and with the end of the file when that is known,
before anything of that length is asked for.

Invariants
----------
FW1  Positions and offsets of the frames found rise.
FW2  Damaged ranges are disjoint, and each lies between two valid frames or before the first. One without bytes stands
     where offsets are missing between two frames.
FW3  `end` is where the last valid frame ends; all offsets from `next_offset` on are unused or torn.
FW4  Bytes are asked for with rising positions, none twice.
"""

from __future__ import annotations

import enum
import re
import zlib
from array import array
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

import attrs

from callboard.log import limits
from callboard.log.errors import InternalError
from callboard.log.format.columns import NO_TIME
from callboard.log.format.faults import FrameInvalid
from callboard.log.format.frame import (
    FRAME_HEADER_BYTES,
    FRAME_MAGIC,
    FRAME_VERSION,
    HEADER,
    NEWEST_CODEC,
    SEALED_BYTES,
    FrameFields,
    FrameHeader,
    read_header,
    seed_of,
)
from callboard.log.format.index import SegmentIndex
from callboard.log.format.layout import CHECKSUM
from callboard.log.format.segment import SEGMENT_HEADER_BYTES
from callboard.log.seams.disk import Buffer

MAGIC_PATTERN: Final = re.compile(re.escape(FRAME_MAGIC), re.DOTALL)
NOT_ZERO: Final = re.compile(rb"[^\x00]")
ZEROS: Final = bytes(64 * limits.KIB)
COUNT_LIMIT: Final = limits.BATCH_RECORDS_MAX
CHUNK_BYTES: Final = 1 * limits.MIB
FIRST_BYTES: Final = 64 * limits.KIB
PART_BYTES: Final = 4 * limits.MIB
"""Longer frames are asked for, and their bodies checked, in parts of this size: other tasks run in between."""
LOOK_AHEAD_BYTES: Final = 256 * limits.KIB
"""How far behind a frame that jumps ahead a lower one is looked for, which shows that it lies at a wrong place."""
EVERYTHING: Final = 0
BEYOND_ALL: Final = 2**65
"""As `check_from` or `visit_from`: above every offset."""

Visit = Callable[[int, FrameFields, memoryview], bool]
"""Called with a frame's position, its header's fields and its stored body. True: that is enough, stop before it.

`FrameInvalid`, when raised, says that the frame is none although its checksums hold.
"""


class Tail(enum.Enum):
    """How a segment ends."""

    CLEAN = "clean"
    """At the end of the file, or in zeros up to there."""
    TORN = "torn"
    """In bytes that are no valid frame, with no valid frame after them."""


class Mode(enum.Enum):
    """The walk's state; see the transitions above."""

    WALKING = "walking"
    BLANK = "blank"
    SEARCHING = "searching"
    OVER = "over"


class Need(NamedTuple):
    """Bytes of the file that a walk needs next."""

    position: int
    length: int


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


class FrameWalk:
    """One walk over one segment. See the module's docstring."""

    # What most walks never change lies here: making a walk is a good part of a small read.
    records = 0
    max_time_us = NO_TIME
    tail = Tail.CLEAN
    torn_offsets: tuple[int, int] | None = None
    """First and last offset of a torn frame, when its header survived."""
    visited = 0
    """Frames that were handed to the visitor, the one at which it had enough included."""
    _mode = Mode.WALKING
    _pending = memoryview(b"")
    _needed_bytes = FRAME_HEADER_BYTES
    _casualty: Casualty | None = None
    _refused_at = -1
    _jump_at = -1
    """Where a frame lies that was found to stand although it jumps ahead."""
    _is_final = False
    _long: bytearray | None = None
    """A long frame that is not whole yet, in place of the pending bytes, and room for what is still to come."""
    _long_have = 0
    _long_crc = 0
    """The checksum of its body as far as that is there."""
    _checked_below = EVERYTHING
    """Bodies of frames that end below this offset were checked while they came."""

    def __init__(
        self,
        segment_id: int,
        base_offset: int,
        *,
        position: int = SEGMENT_HEADER_BYTES,
        file_end: int | None = None,
        limit: int = BEYOND_ALL,
        check_from: int = EVERYTHING,
        visit: Visit | None = None,
        visit_from: int = EVERYTHING,
        index: SegmentIndex | None = None,
        resync: bool = True,
        chunk_bytes: int = CHUNK_BYTES,
        first_bytes: int = FIRST_BYTES,
    ) -> None:
        """Begin at byte `position` of the file, where the record `base_offset` or a later one is expected.

        The walk ends before the first frame that reaches the offset `limit`, and at byte `file_end` (None: where a read
        gives nothing). The bodies of frames that end below the offset `check_from` are not checked, nor read when they
        reach beyond the chunk. Frames that end at or above `visit_from` (no less than that) are handed to `visit`.
        `index` notes every valid frame. Without `resync` the walk ends where no valid frame follows, instead of
        searching for the next one. `first_bytes` are asked for at first, then `chunk_bytes` at a time, or a frame
        when that is larger.
        """
        self.next_offset = base_offset
        self.end = position
        self.positions: array[int] = array("Q")
        """Byte positions of all valid frames passed."""
        self.damages: list[DamagedRange] = []
        self.tail_end = position
        """Where the bytes of a torn tail end, trailing zeros left out; equal to `end` when clean."""
        self._seed = seed_of(segment_id)
        self._file_end = file_end
        self._limit = limit
        self._check_from = check_from
        self._visit = visit
        self._visit_from = visit_from if visit is not None else BEYOND_ALL
        self._index = index
        self._resync = resync
        self._chunk_bytes = chunk_bytes
        self._next_bytes = min(first_bytes, chunk_bytes)
        self._pending_at = position
        if base_offset >= limit:
            self._mode = Mode.OVER
        elif file_end is not None and position >= file_end:
            self._finish()

    @property
    def need(self) -> Need | None:
        """What to feed next; None when the walk is over."""
        if self._mode is Mode.OVER:
            return None
        have = len(self._pending) + self._long_have
        position = self._pending_at + have
        length = max(self._needed_bytes - have, self._next_bytes)
        if self._needed_bytes > PART_BYTES and self._mode is Mode.WALKING:
            length = min(PART_BYTES, self._needed_bytes - have)
        if self._file_end is not None:
            length = min(length, self._file_end - position)
        return Need(position, length)

    def feed(self, data: Buffer) -> None:
        """The bytes at `need.position`, as many as there are; none at the end of the file.

        Raises `FormatTooNew` at a frame that a newer Callboard wrote, and whatever the visitor raises.
        """
        if self._mode is Mode.OVER:
            raise InternalError("a walk was fed after its end", invariant="FW3")
        if self._needed_bytes > PART_BYTES and self._mode is Mode.WALKING:
            if not self._gather(data):
                return
        elif len(data):
            self._pending = memoryview(b"".join((self._pending, data)) if len(self._pending) else data)
        if not len(data):
            self._finish()
            return
        self._next_bytes = self._chunk_bytes
        if len(self._pending) >= self._needed_bytes:
            self._advance()
        if self._file_end is not None and self._pending_at + len(self._pending) >= self._file_end:
            self._finish()

    def _gather(self, data: Buffer) -> bool:
        """Put what has come behind the pending bytes of a long frame; whether that is all of it, or all there is."""
        if self._long is None:
            self._long, pending = bytearray(self._needed_bytes), self._pending
            self._long_have = len(pending)
            self._long[: self._long_have], self._pending = pending, memoryview(b"")
            self._long_crc = zlib.crc32(pending[FRAME_HEADER_BYTES:], self._seed)
        have, self._long_have = self._long_have, self._long_have + len(data)
        self._long[have : self._long_have] = data
        self._long_crc = zlib.crc32(memoryview(data)[: self._needed_bytes - have], self._long_crc)
        is_end = self._file_end is not None and self._pending_at + self._long_have >= self._file_end
        if self._long_have < self._needed_bytes and len(data) and not is_end:
            return False
        self._pending = memoryview(self._long)[: self._long_have]
        header = FrameHeader(*HEADER.unpack_from(self._pending))
        if self._long_have >= self._needed_bytes and header.body_checksum == self._long_crc:
            self._checked_below = header.last_offset + 1
        self._long, self._long_have = None, 0
        return True

    def _finish(self) -> None:
        """There are no more bytes: judge what is left over, and how the segment ends."""
        self._is_final = True
        if self._mode is not Mode.OVER:
            self._advance()
        if self._mode is Mode.SEARCHING:
            self.tail = Tail.TORN
            if self._casualty is not None:
                self.torn_offsets = self._casualty.base_offset, self._casualty.last_offset
        else:
            self.tail_end = self.end
        self._mode = Mode.OVER
        self._pending = memoryview(b"")

    def _advance(self) -> None:
        """Go through the states until more bytes are needed; keep what was not consumed."""
        view, at = self._pending, 0
        self._needed_bytes = 0
        while not self._needed_bytes and self._mode is not Mode.OVER:
            if self._mode is Mode.WALKING:
                at = self._walk(view, at)
            elif self._mode is Mode.BLANK:
                at = self._skip_zeros(view, at)
            else:
                at = self._search(view, at)
        self._pending = view[at:]
        self._pending_at += at

    # -- states: each returns how far it came, and sets `_needed_bytes` when it can come no further ----------------

    def _walk(self, view: memoryview, at: int) -> int:
        """From frame to frame; the loop that a million frames go through."""
        unpack, crc32, seed = HEADER.unpack_from, zlib.crc32, self._seed
        check_from = max(self._check_from, self._checked_below)
        append, start, size, limit = self.positions.append, self._pending_at, len(view), self._limit
        next_offset, records, latest, index = self.next_offset, self.records, self.max_time_us, self._index
        body_limit, plain_limit = limits.FRAME_BODY_BYTES_MAX, limits.FRAME_DECOMPRESSED_BYTES_MAX
        visit, visit_from, file_end = self._visit, self._visit_from, self._file_end
        jump_at = self._jump_at
        needed, is_over = 0, False
        while True:
            body_at = at + FRAME_HEADER_BYTES
            if body_at > size:
                needed = FRAME_HEADER_BYTES
                break
            fields = unpack(view, at)
            magic, version, codec, flags, count, body_crc, length, plain, base, last, first, max_us, crc = (
                fields
            )
            if (
                magic != FRAME_MAGIC
                or (base != next_offset and (base < next_offset or start + at != jump_at))
                or crc32(view[at : at + SEALED_BYTES], seed) != crc
                or version != FRAME_VERSION
                or flags
                or codec > NEWEST_CODEC
                or not 0 < count <= last - base + 1
                or length > body_limit
                or count > COUNT_LIMIT
                or plain > plain_limit
                or (not codec and plain != length)
                or max_us < first
            ):
                break
            if last >= limit:
                is_over = True
                break
            end = body_at + length
            if end > size and (last >= check_from or file_end is None or start + end > file_end):
                needed = FRAME_HEADER_BYTES + length
                break
            if last >= check_from and crc32(view[body_at:end], seed) != body_crc:
                break
            if last >= visit_from and visit is not None:
                self.visited += 1
                try:
                    is_over = visit(start + at, fields, view[body_at:end])
                except FrameInvalid:
                    self._refused_at = start + at
                    break
                if is_over:
                    break
            append(start + at)
            if index is not None:
                index.note(start + at, end - at, base, last, count, max_us)
            next_offset = last + 1
            records += count
            if max_us > latest:
                latest = max_us
            at = end
            if next_offset >= limit:
                is_over = True
                break
        self.next_offset, self.records, self.max_time_us, self.end = next_offset, records, latest, start + at
        self._stand(view, at, needed, is_over=is_over)
        return at

    def _stand(self, view: memoryview, at: int, needed: int, *, is_over: bool) -> None:
        """Where the frames do not go on: why, and what is to be done about it."""
        if not is_over and (at >= len(view) or (needed and self._may_come(self.end + needed))):
            self._needed_bytes = needed
        elif is_over or not self._resync:
            self._mode = Mode.OVER
            self.tail_end = self.end
        else:
            blank = not any(view[at : at + len(FRAME_MAGIC)])
            self._mode = Mode.BLANK if blank else Mode.SEARCHING
            self._casualty = None

    def _may_come(self, position: int) -> bool:
        """Whether the file may reach so far: else nothing of that length is asked for."""
        return not self._is_final and (self._file_end is None or position <= self._file_end)

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
                if not self._is_final:
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
                continue
            wanted = self._wanted_bytes(at, header)
            if wanted > len(view) - at:
                self._needed_bytes = wanted
                return at
            if self._pending_at + at == self._refused_at or not self._body_holds(view, at, header):
                at = self._pass_casualty(at, header)
                continue
            lower_at = self._lower_frame(view, at, header)
            if self._needed_bytes:
                return at
            if lower_at is None:
                self._close_damage(at, header)
                return at
            at = lower_at

    def _lower_frame(self, view: memoryview, at: int, header: FrameHeader) -> int | None:
        """Where the frame lies that shows that the one at `at` lies at a wrong place; None when that stands."""
        if header.base_offset == self.next_offset or self._is_explained(at, header):
            return None
        end = at + header.frame_bytes
        stop, follows, left_out = end + LOOK_AHEAD_BYTES, header.last_offset + 1, self.next_offset
        bounded = view[:stop]
        while (following := self._header_at(bounded, end)) and following.base_offset == follows:
            follows = following.last_offset + 1
            if not self._body_holds(bounded, end, following):
                end += 1
                break
            end += following.frame_bytes
        while match := MAGIC_PATTERN.search(bounded, end):
            end = match.start()
            found = self._header_at(bounded, end)
            if found is not None and found.base_offset >= follows:
                return None
            if found is not None and self._body_holds(bounded, end, found):
                if found.base_offset == left_out:
                    left_out = found.last_offset + 1
                elif left_out < found.base_offset < header.base_offset:
                    return end
            end += 1
        if len(view) < stop and self._may_come(self._pending_at + len(view) + 1):
            self._needed_bytes = stop - at
        return None

    def _is_explained(self, at: int, header: FrameHeader) -> bool:
        """Whether the headers of casualties account for all offsets that the frame leaves out."""
        lost = self._casualty
        return (
            lost is not None
            and lost.base_offset == self.next_offset
            and lost.last_offset == header.base_offset - 1
            and lost.end == self._pending_at + at
        )

    def _wanted_bytes(self, at: int, header: FrameHeader) -> int:
        """Bytes needed to judge the frame at `at`: to its end and the header behind it, as far as the file goes."""
        wanted = header.frame_bytes + FRAME_HEADER_BYTES
        position = self._pending_at + at
        if self._is_final or not self._may_come(position + header.frame_bytes):
            return 0
        return wanted if self._file_end is None else min(wanted, self._file_end - position)

    def _pass_casualty(self, at: int, header: FrameHeader) -> int:
        """Past what cannot be used of a frame whose header holds; notes which offsets it had."""
        position = self._pending_at + at
        before, end = self._casualty, position + header.frame_bytes
        if position == self.end:
            self._casualty = Casualty(header.base_offset, header.last_offset, end)
        elif before is not None and before.end == position and header.base_offset > before.last_offset:
            self._casualty = Casualty(before.base_offset, header.last_offset, end)
        return at + header.frame_bytes if position == self._refused_at else at + 1

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
        lost = self._casualty
        if lost is not None and lost.end == position and lost.last_offset < header.base_offset:
            first, last = lost.base_offset, lost.last_offset
        self.damages.append(DamagedRange(self.end, position, first, last))
        self._casualty = None
        self._jump_at = position
        self._mode = Mode.WALKING

    def _note_data(self, view: memoryview, at: int) -> None:
        """Remember where bytes that are not 0 end: `tail_end`, should nothing valid follow."""
        stop = len(view)
        while stop > at:
            block = bytes(view[max(at, stop - len(ZEROS)) : stop])
            if block != ZEROS[: len(block)]:  # most often it is, and comparing takes a tenth of the time
                kept = len(block.rstrip(b"\0"))
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


async def run_walk_async(walk: FrameWalk, pread: Callable[[int, int], Awaitable[Buffer]]) -> FrameWalk:
    """Walk to the end. `pread(position, length)` gives up to `length` bytes of the file, none at its end."""
    while (need := walk.need) is not None:
        walk.feed(await pread(need.position, need.length))
    return walk


def run_walk(walk: FrameWalk, pread: Callable[[int, int], Buffer]) -> bool:
    """As `run_walk_async`, with a `pread` that blocks. Stands still once a chunk has given the visitor something.

    True when the walk is over; else it is to be called again. So a chunk's frames are in memory, and no more.
    """
    visited = walk.visited
    while (need := walk.need) is not None and walk.visited == visited:
        walk.feed(pread(need.position, need.length))
    return walk.need is None


def run_walk_cached(walk: FrameWalk, pread: Callable[[int, int], Buffer | None]) -> bool:
    """As `run_walk_async` with a `pread` that never waits, for which it gives None; the walk stands still then.

    It also does once a chunk has given the visitor something. True when the walk is over.
    """
    while (need := walk.need) is not None and not walk.visited:
        data = pread(need.position, need.length)
        if data is None:
            return False
        walk.feed(data)
    return walk.need is None
