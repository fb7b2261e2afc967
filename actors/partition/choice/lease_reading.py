"""The reading of one lease's records: what is still to be read, what was found, where nothing is. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from callboard.actors.delivery.receipts import Lease, OffsetRange, merged
from callboard.actors.partition.choice.addressing import addressed_to, may_be_addressed
from callboard.actors.partition.choice.expiry import believed_expiries, enough_expired, may_expire, unexpired
from callboard.log.format.columns import Columns
from callboard.log.format.stamps import Stamps
from callboard.log.limits import STEP_ITEMS

JOIN_MAX: Final = 64
"""Offsets between two leased ranges that are read with them, since one read costs less than two."""


class LeaseReading:
    """What the reading of a lease has found so far, within the bytes asked for (but at least one batch)."""

    __slots__ = ("_at", "_left_bytes", "_span", "_leased", "_spans", "batches", "expired", "filtered", "lost")

    def __init__(self, lease: Lease, max_bytes: int) -> None:
        self.batches: list[Columns] = []
        self.expired: list[OffsetRange] = []
        """What was read, and is not to be handed over."""
        self.filtered: list[OffsetRange] = []
        """The same, because it is for another group only."""
        self.lost: list[OffsetRange] = []
        """Ranges without records; they may reach beyond what is leased."""
        self._left_bytes = max_bytes
        self._leased = merged(lease.ranges)
        """Ranges that touch differ only by their attempt."""
        self._spans = merged(self._leased, JOIN_MAX)
        self._span = 0
        self._at = self._spans[0][0]

    def wanted(self, log_start: int) -> tuple[int, int, int] | None:
        """(from, to, bytes) of the next read; None when there is nothing left to read, or no room for it.

        What lies below `log_start` was dropped by retention since it was leased, and is passed.
        """
        spans = self._spans
        while self._span < len(spans):
            stop = spans[self._span][1]
            if self._at < log_start and self._at < stop:
                passed = min(log_start, stop)
                self.lost.append((self._at, passed))
                self._at = passed
            if self._at < stop:
                if self.batches and self._left_bytes <= 0:
                    return None
                return self._at, stop, max(self._left_bytes, 1)
            self._span += 1
            if self._span < len(spans):
                self._at = max(spans[self._span][0], self._at)
        return None

    def take(self, batches: list[Columns], next_offset: int) -> None:
        """A read from `wanted` found `batches`, and the next one starts at `next_offset`."""
        at, stop = self._at, self._spans[self._span][1]
        position, next_offset = stop, read_up_to(at, stop, next_offset)
        for start, end in [
            *((columns.base_offset, columns.last_offset + 1) for columns in batches),
            (next_offset, 0),
        ]:
            if start > at:
                self.lost.append((at, start))
                if at <= stop < start:
                    position = start
            at = max(end, start)
        found = _among(self._leased, stop, batches)
        self._left_bytes -= sum([columns.size_bytes for columns in found])
        self.batches += found
        self._at = position if at >= stop else at

    def filter(self, group_id: int, now_us: int, stamps: Stamps) -> None:
        """All is read: leave out what is for another group only, and what has expired. Where that lies scattered, the
        reading ends after as much of it as a step handles.
        """
        if may_be_addressed(self.batches):
            self.batches, self.filtered = addressed_to(self.batches, group_id)
        if may_expire(self.batches):
            self.batches = believed_expiries(self.batches, stamps, now_us)
            if (end := enough_expired(self.batches, now_us, STEP_ITEMS)) is not None:
                self._end_at(end)
            self.batches, self.expired = unexpired(self.batches, now_us)

    def _end_at(self, offset: int) -> None:
        """What was read from `offset` on counts as not read."""
        cut = [
            each if each.last_offset < offset else each.select(0, each.index_at(offset))
            for each in self.batches
            if each.base_offset < offset
        ]
        self.batches = [each for each in cut if each.count]
        self.filtered = [(start, min(stop, offset)) for start, stop in self.filtered if start < offset]
        self._at = offset

    def rest(self) -> list[tuple[int, int]]:
        """What of the lease was not read."""
        if self._at >= self._spans[-1][1]:
            return []
        return [(max(start, self._at), stop) for start, stop in self._leased if self._at < stop]


def read_up_to(start: int, stop: int, next_offset: int) -> int:
    """How far a read of `[start, stop)` has come that goes on at `next_offset`.

    One that does not get on would be repeated for ever: it counts as having found that nothing is there.
    """
    return next_offset if next_offset > start else stop


def _among(ranges: Sequence[OffsetRange], limit: int, batches: list[Columns]) -> list[Columns]:
    """What of `batches` lies in one of the sorted `ranges` that begin below `limit`.

    A read finds more: what lies between ranges that it joins, and, when it passes damage, what lies behind them.
    """
    found = []
    for columns in batches:
        for place in range(max(0, bisect_right(ranges, (columns.base_offset, 0)) - 1), len(ranges)):
            start, stop = ranges[place]
            if start > columns.last_offset or start >= limit:
                break
            first, end = columns.index_at(start), columns.index_at(stop)
            if first < end:
                found.append(columns.select(first, end))
    return found
