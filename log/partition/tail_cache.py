"""The newest batches of a partition, kept in memory.

Readers that keep up are served from here without touching a file. It is also the only place to read what is visible
but not yet synced: after a failed sync the pages of the file may have reverted, so whatever lies past the durable end
stays here until a sync proves it, and healing writes it anew from here.

Invariants
----------
TC1  The batches continue one another: each begins where the one before ends.
TC2  Nothing at or past the durable end is evicted.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Final

import attrs

from callboard.log.errors import InternalError
from callboard.log.format.columns import Columns
from callboard.log.limits import TAIL_COMPACT_BATCHES

BATCH_OVERHEAD_BYTES: Final = 512
"""What a batch costs in memory besides its payload."""


@attrs.define(eq=False)
class TailCache:
    """Columns by offset, bounded by `limit_bytes`."""

    end_offset: int
    limit_bytes: int
    compact_batches: int = TAIL_COMPACT_BATCHES
    """Evicted entries are removed from the lists in runs of this many."""
    size_bytes: int = 0
    """Bytes held now."""
    _bases: list[int] = attrs.Factory(list)
    _batches: list[Columns] = attrs.Factory(list)
    _totals: list[int] = attrs.Factory(list)
    """Bytes of all batches ever pushed, up to and with each one."""
    _first: int = 0

    def push(self, columns: Columns, size_bytes: int) -> None:
        """Append a batch; the caller evicts when that takes the cache above its limit."""
        if columns.base_offset != self.end_offset:
            raise InternalError(
                f"a batch at {columns.base_offset} does not continue a cache that ends at {self.end_offset}",
                invariant="TC1",
            )
        totals, size_bytes = self._totals, size_bytes + BATCH_OVERHEAD_BYTES
        self._bases.append(columns.base_offset)
        self._batches.append(columns)
        totals.append(totals[-1] + size_bytes if totals else size_bytes)
        self.size_bytes += size_bytes
        self.end_offset = columns.base_offset + columns.span + 1

    def evict(self, durable_end: int) -> None:
        """Let the oldest batches go until the limit, which is exceeded, is kept; those not yet durable stay (TC2).

        They are freed at once, and their places in the lists now and then.
        """
        totals, batches = self._totals, self._batches
        first = bisect_left(totals, totals[-1] - self.limit_bytes, self._first) + 1
        if self.end_offset > durable_end:
            first = min(first, bisect_right(self._bases, durable_end, self._first) - 1)
        if first <= self._first:
            return
        for index in range(self._first, first):
            batches[index] = EVICTED
        self._first = first
        self.size_bytes = totals[-1] - totals[first - 1]
        if first >= self.compact_batches:
            kept = first - 1
            del self._bases[:kept], batches[:kept], totals[:kept]
            self._first = 1

    def read(self, offset: int, *, max_records: int, max_bytes: int) -> list[Columns] | None:
        """The batches from `offset` on, cut at it and at `max_records`; None when they are not here.

        At least one batch is given, whatever its size.
        """
        bases, totals, first = self._bases, self._totals, self._first
        start = bisect_right(bases, offset, first) - 1
        if start < first or offset >= self.end_offset:
            return None
        stop_offset = offset + max_records
        stop = bisect_left(bases, stop_offset, start + 1)
        stop_bytes = max_bytes + (totals[start - 1] if start else 0)
        found = self._batches[start : min(stop, max(start + 1, bisect_right(totals, stop_bytes, start)))]
        if bases[start] < offset:
            found[0] = found[0].select(found[0].index_at(offset), found[0].count)
        last = found[-1]
        if last.base_offset + last.span >= stop_offset:
            found[-1] = last.select(0, last.index_at(stop_offset))
        return found

    def from_offset(self, offset: int) -> list[Columns]:
        """All batches that begin at or past `offset`."""
        return self._batches[bisect_left(self._bases, offset, self._first) :]

    def bytes_from(self, offset: int) -> int:
        """The bytes of the batches that begin at or past `offset`."""
        place = bisect_left(self._bases, offset, self._first)
        if place == len(self._totals):
            return 0
        return self._totals[-1] - (self._totals[place - 1] if place else 0)


EVICTED: Final = Columns.build([])
"""Stands where an evicted batch was."""
