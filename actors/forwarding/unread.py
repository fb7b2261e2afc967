"""What of a waiting partition is pending and has not been read yet, when a directory opens. Pure.

Cancelled records leave holes, and each read gives a batch whole. So the pending records of a part of the partition are
read in long stretches, and picked out of what these give.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from callboard.actors.delivery.receipts import OffsetRange
from callboard.actors.records.delayed_records import moments_of

if TYPE_CHECKING:
    from callboard.log.format.columns import Columns

Moments = Sequence[tuple[int, ...]]


class Unread:
    """Sorted ranges of offsets that do not touch, of which batches are given in order."""

    def __init__(self, ranges: Iterable[OffsetRange]) -> None:
        self._left = deque(ranges)
        self.missing: list[OffsetRange] = []
        """Where there are no records: damage, or a gap."""

    def span(self) -> OffsetRange | None:
        """From where to where to read on; None when all was read."""
        return (self._left[0][0], self._left[-1][1]) if self._left else None

    def take(self, columns: Columns) -> tuple[Sequence[int], Moments]:
        """The records of the next batch that are among these: their offsets and their moments (see `moments_of`)."""
        self.pass_over(columns.base_offset)
        end = columns.base_offset + columns.span + 1
        offsets, moments, is_dense = columns.offset_list(), moments_of(columns), columns.offset_deltas is None
        left, base = self._left, columns.base_offset
        if left and left[0][0] <= base and left[0][1] >= end and is_dense:
            self._cut(end)
            return offsets, moments
        ids: list[int] = []
        found: list[tuple[int, ...]] = []
        while left and left[0][0] < end:
            start, stop = self._cut(end)
            first, last = start - base, stop - base
            if not is_dense:  # compaction, or a repair, took some out
                first, last = columns.index_at(start), columns.index_at(stop)
                self._note_missing(start, stop, offsets[first:last])
            ids += offsets[first:last]
            found += moments[first:last]
        return ids, found

    def _cut(self, end: int) -> OffsetRange:
        """The first range, which begins before `end`, up to there: it is left no more."""
        start, stop = self._left.popleft()
        if stop > end:
            self._left.appendleft((end, stop))
            stop = end
        return start, stop

    def pass_over(self, end: int) -> None:
        """There are no records before `end` that were not given."""
        while self._left and self._left[0][0] < end:
            self.missing.append(self._cut(end))

    def _note_missing(self, start: int, stop: int, found: Sequence[int]) -> None:
        for offset in found:
            if offset > start:
                self.missing.append((start, offset))
            start = offset + 1
        if start < stop:
            self.missing.append((start, stop))
