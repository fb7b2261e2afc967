"""From bytes of a segment to the batches a reader asked for: pure, so that waiting and unwaiting reads share it.

A `Wish` says what is still wanted. `walk` takes frames out of a chunk until the wish is fulfilled (DONE), the chunk
ends within a frame (MORE), or no valid frame is where one should be (BROKEN). Who drives it reads more bytes, or looks
for the damage, and goes on.
"""

from __future__ import annotations

import enum

import attrs

from callboard.log.format.columns import Columns
from callboard.log.format.faults import FrameInvalid
from callboard.log.format.frame import FRAME_HEADER_BYTES, decode_body, read_header

__all__ = ["Outcome", "Reading", "Wish", "walk"]


@attrs.frozen
class Reading:
    """What a read found: batches in offset order, where to go on, and the offsets in between that hold no record."""

    batches: list[Columns]
    next_offset: int
    lost: tuple[tuple[int, int], ...] = ()
    """(first, last) of each range that was damaged, or that no record has."""


class Outcome(enum.Enum):
    """Why `walk` stopped."""

    DONE = "done"
    MORE = "more"
    BROKEN = "broken"


@attrs.define
class Wish:
    """What is still wanted, and where the walk is. Offsets below `offset` are passed over."""

    offset: int
    records: int
    size_bytes: int
    limit: int = 0
    """The walk ends at this offset: the segment's end, or the visible end."""
    position: int = 0
    """Byte of the segment at which the next frame begins,"""
    expected: int = 0
    """and the least offset that it may have."""
    needed_bytes: int = 0
    """After MORE: how many bytes from `position` on are needed."""
    restarted: bool = False
    """Whether the walk began anew because an index was wrong; once is enough."""
    batches: list[Columns] = attrs.Factory(list)
    lost: list[tuple[int, int]] = attrs.Factory(list)

    @property
    def is_fulfilled(self) -> bool:
        """Whether enough was read. The last batch may exceed the bytes wanted, never the records."""
        return self.records <= 0 or self.size_bytes <= 0

    def take(self, columns: Columns) -> None:
        """Add a batch, cut to what is wanted; the wish goes on behind it."""
        start = columns.index_at(self.offset) if columns.base_offset < self.offset else 0
        stop = min(columns.count, start + self.records)
        end = columns.last_offset + 1 if stop == columns.count else columns.offset(stop)
        if stop > start:
            if stop - start < columns.count:
                columns = columns.select(start, stop)
            self.batches.append(columns)
            self.records -= stop - start
            self.size_bytes -= columns.size_bytes
        self.offset = end

    def lose(self, first: int, last: int) -> None:
        """Offsets `first` to `last` are not to be had: name those that were wanted, and go on behind them."""
        first = max(first, self.offset)
        if first <= last:
            if self.lost and self.lost[-1][1] + 1 == first:
                first = self.lost.pop()[0]
            self.lost.append((first, last))
        self.offset = max(self.offset, last + 1)

    def reading(self) -> Reading:
        """What was found."""
        return Reading(self.batches, self.offset, tuple(self.lost))


def walk(view: memoryview, seed: int, wish: Wish) -> Outcome:
    """Take frames from `view`, which begins at `wish.position`, and move the wish on."""
    at, size, start = 0, len(view), wish.position
    while True:
        wish.position = start + at
        if wish.expected >= wish.limit:
            # What is still wanted below the limit lies in damage before the first frame that the index names.
            wish.lose(wish.offset, wish.limit - 1)
            return Outcome.DONE
        if wish.is_fulfilled:
            return Outcome.DONE
        if at + FRAME_HEADER_BYTES > size:
            wish.needed_bytes = FRAME_HEADER_BYTES
            return Outcome.MORE
        try:
            header = read_header(view, at, seed)
        except FrameInvalid:
            return Outcome.BROKEN
        base, last = header.base_offset, header.last_offset
        if base < wish.expected or last >= wish.limit:
            return Outcome.BROKEN
        end = at + header.frame_bytes
        if last >= wish.offset:
            if end > size:
                wish.needed_bytes = header.frame_bytes
                return Outcome.MORE
            try:
                columns = decode_body(header, view[at + FRAME_HEADER_BYTES : end])
            except FrameInvalid:
                return Outcome.BROKEN
            if base > wish.offset:
                wish.lose(wish.offset, base - 1)
            wish.take(columns)
            if wish.offset <= last:
                return Outcome.DONE
        wish.expected = last + 1
        at = end
