"""What a delivery gives its consumers, leases and settlements, and the state that it keeps of each lease.

Named tuples instead of attrs classes: one of each is made for every message consumed singly.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import attrs

from callboard.log.errors import InvalidArgument

OffsetRange = tuple[int, int]
"""[start, stop)"""

HistoryRow = tuple[int, int, int]
"""(start, stop, history); history is twice the attempts so far, plus one if the last one held its record alone."""

OFFSET_END = 2**63 - 1
"""Offsets are stored in 64 bits, signed."""


BEYOND = (OFFSET_END + 1, OFFSET_END + 2)
"""Behind all ranges."""


class Lease(NamedTuple):
    """A lease as its consumer sees it. `lease_id` is the receipt: no other lease ever has it."""

    lease_id: int
    ranges: tuple[tuple[int, int, int], ...]
    """(start, stop, attempt), sorted; attempt 1 is the first delivery."""
    consumer: int
    deadline: float
    """Monotonic seconds."""


class Settlement(NamedTuple):
    """What became of the ranges that a receipt named."""

    accepted: tuple[OffsetRange, ...]
    lost: tuple[OffsetRange, ...]
    """No longer this receipt's: leased again since, or settled. The call had no effect on them."""


class Holding(NamedTuple):
    """What a consumer has leased: how many offsets, and since when it has its oldest lease."""

    leased: int
    since: float


@attrs.define(eq=False)
class LeaseState:
    """Offsets leased to one consumer until `deadline`. `rows` are sorted and disjoint."""

    consumer: int
    deadline: float
    alone: bool
    """The lease held one record when it began."""
    rows: list[HistoryRow]
    """Histories as they were before this lease."""
    since: float | None = None
    """When it began; None while that is only in a journal: until it is renewed."""

    def overlapping(self, start: int, stop: int) -> list[HistoryRow]:
        """The rows that share an offset with `[start, stop)`, cut to it."""
        rows = self.rows
        index = max(0, bisect_left(rows, (start,)) - 1)
        return [
            (max(row[0], start), min(row[1], stop), row[2])
            for row in rows[index : bisect_left(rows, (stop,), index)]
            if row[1] > start
        ]

    def carve(self, start: int, stop: int) -> list[HistoryRow]:
        """Take `[start, stop)` out; returns the rows that were in it, cut to it."""
        rows = self.rows
        index = bisect_left(rows, (start,))
        if index and rows[index - 1][1] > start:
            index -= 1
        end = bisect_left(rows, (stop,), index)
        taken = rows[index:end]
        if not taken:
            return taken
        kept = []
        first, last = taken[0], taken[-1]
        if first[0] < start:
            kept.append((first[0], start, first[2]))
            taken[0] = (start, first[1], first[2])
        if last[1] > stop:
            kept.append((stop, last[1], last[2]))
            taken[-1] = (taken[-1][0], stop, last[2])
        rows[index:end] = kept
        return taken

    def carve_all(self, ranges: Iterable[OffsetRange]) -> list[HistoryRow]:
        """`carve` for sorted ranges that are disjoint; many of many rows in one pass."""
        ranges = list(ranges)
        taken: list[HistoryRow] = []
        if len(ranges) < 8:
            for start, stop in ranges:
                taken += self.carve(start, stop)
            return taken
        kept: list[HistoryRow] = []
        wanted = iter(ranges)
        start, stop = next(wanted)
        for first, last, history in self.rows:
            while stop <= first:  # nothing of it is here any more
                start, stop = next(wanted, BEYOND)
            while start < last:
                if first < start:
                    kept.append((first, start, history))
                    first = start
                if last < stop:
                    break
                taken.append((first, stop, history))
                first = stop
                start, stop = next(wanted, BEYOND)
            if first < last:
                (taken if start <= first else kept).append((first, last, history))
        self.rows = kept
        return taken

    def take_front(self, most: int) -> list[HistoryRow]:
        """Take the first rows out, at most `most`."""
        taken = self.rows[:most]
        del self.rows[:most]
        return taken

    def counted(self, rows: Iterable[HistoryRow]) -> list[HistoryRow]:
        """The same rows, with this lease's attempt in their histories."""
        alone = 1 if self.alone else 0
        return [(start, stop, ((history >> 1) + 1) << 1 | alone) for start, stop, history in rows]

    def to_lease(self, lease_id: int) -> Lease:
        """The lease as its consumer sees it, without what is settled already."""
        ranges = tuple([(start, stop, (history >> 1) + 1) for start, stop, history in self.rows])
        return Lease(lease_id, ranges, self.consumer, self.deadline)


def merged(ranges: Iterable[Sequence[int]], apart: int = 0) -> tuple[OffsetRange, ...]:
    """Sorted ranges; those that overlap, or are at most so far `apart`, made one. What follows a stop is dropped."""
    whole: list[OffsetRange] = []
    for row in ranges:
        if whole and row[0] <= whole[-1][1] + apart:
            whole[-1] = (whole[-1][0], max(whole[-1][1], row[1]))
        else:
            whole.append((row[0], row[1]))
    return tuple(whole)


def joined(rows: Iterable[HistoryRow]) -> list[HistoryRow]:
    """Sorted rows; those that touch and have the same history made one."""
    whole: list[HistoryRow] = []
    for row in rows:
        if whole and whole[-1][1] == row[0] and whole[-1][2] == row[2]:
            whole[-1] = (whole[-1][0], row[1], row[2])
        else:
            whole.append(row)
    return whole


def common(ranges: Iterable[Sequence[int]], start: int, stop: int) -> list[OffsetRange]:
    """The parts of `[start, stop)` that are in the ranges."""
    return [(max(row[0], start), min(row[1], stop)) for row in ranges if row[0] < stop and row[1] > start]


def between(start: int, stop: int, ranges: Iterable[Sequence[int]]) -> list[OffsetRange]:
    """The parts of `[start, stop)` that are in none of the sorted `ranges`, which lie inside it."""
    parts = []
    for row in ranges:
        if start < row[0]:
            parts.append((start, row[0]))
        start = max(start, row[1])
    if start < stop:
        parts.append((start, stop))
    return parts


def normal_ranges(ranges: Sequence[OffsetRange]) -> tuple[OffsetRange, ...]:
    """`ranges` sorted and merged. Raises InvalidArgument for what is no range of offsets."""
    for start, stop in ranges:
        if type(start) is not int or type(stop) is not int or not 0 <= start < stop <= OFFSET_END:
            raise InvalidArgument(
                f"[{start!r}, {stop!r}) is no range of offsets. Nothing was settled. Give whole numbers, start < stop.",
            )
    return merged(sorted(ranges)) if len(ranges) > 1 else tuple(ranges)
