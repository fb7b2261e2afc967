"""From the frames of a segment to what a reader asked for: pure, so that all kinds of reads share it."""

from __future__ import annotations

import attrs

from callboard.log.format.columns import Columns
from callboard.log.format.frame import FrameFields, FrameHeader, decode_body


@attrs.frozen
class Reading:
    """What a read found: batches in offset order, where to go on, and the offsets in between that hold no record."""

    batches: list[Columns]
    next_offset: int
    lost: tuple[tuple[int, int], ...] = ()
    """(first, last) of each range that was damaged, or dropped, or that no record has."""
    dropped: int = 0
    """How many of these offsets retention dropped before they could be read."""


@attrs.define
class ReadRequest:
    """What is still wanted: a number of records and of bytes, from `offset` on."""

    offset: int
    records: int
    size_bytes: int
    batches: list[Columns] = attrs.Factory(list)
    lost: list[tuple[int, int]] = attrs.Factory(list)
    cut: Columns | None = None
    """The last frame of which only a part was wanted."""
    dropped: int = 0
    """Of what is lost: how many offsets retention dropped."""

    @property
    def is_fulfilled(self) -> bool:
        """Whether enough was read. The last batch may exceed the bytes wanted, never the records."""
        return self.records <= 0 or self.size_bytes <= 0

    def visit(self, position: int, fields: FrameFields, body: memoryview) -> bool:
        """For a walk: take a frame that reaches `offset`; True when that was enough."""
        del position
        header = FrameHeader(*fields)
        columns = decode_body(header, body)
        if header.base_offset > self.offset:
            self.lose(self.offset, header.base_offset - 1)
        self.take(columns)
        return self.is_fulfilled

    def take(self, columns: Columns) -> None:
        """Add a batch, cut to what is wanted; the request goes on behind it."""
        start = columns.index_at(self.offset) if columns.base_offset < self.offset else 0
        stop = min(columns.count, start + self.records)
        end = columns.last_offset + 1 if stop == columns.count else columns.offset(stop)
        if stop > start:
            if stop - start < columns.count:
                self.cut = columns
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

    def drop(self, end: int) -> None:
        """Retention has dropped what is wanted below `end`."""
        self.dropped += max(0, end - self.offset)
        self.lose(self.offset, end - 1)

    def reading(self) -> Reading:
        """What was found."""
        return Reading(self.batches, self.offset, tuple(self.lost), self.dropped)
