"""Spans: a set of integers that mostly come in order, kept as ranges, so that it stays small."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

__all__ = ["Spans"]


class Spans:
    """Integers as disjoint ranges `[first, end)`, ascending, never touching each other."""

    __slots__ = ("_ranges",)

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._ranges: list[tuple[int, int]] = []
        for first, end in ranges:
            if not 0 <= first < end or (self._ranges and self._ranges[-1][1] >= first):
                raise ValueError(f"[{first}, {end}) is no range, or not in order")
            self._ranges.append((first, end))

    def add(self, number: int) -> None:
        """Add one number."""
        ranges = self._ranges
        at = bisect_right(ranges, (number, 1 << 70))
        first, end = number, number + 1
        if at and ranges[at - 1][1] >= number:
            if ranges[at - 1][1] > number:
                return
            at -= 1
            first = ranges.pop(at)[0]
        if at < len(ranges) and ranges[at][0] == end:
            end = ranges.pop(at)[1]
        ranges.insert(at, (first, end))

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self._ranges, (number, 1 << 70))
        return bool(at) and self._ranges[at - 1][1] > number

    def __len__(self) -> int:
        return sum(end - first for first, end in self._ranges)

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """The ranges, as the constructor takes them."""
        return list(self._ranges)
