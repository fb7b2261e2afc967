"""Distribution functions over a histogram, and the largest difference between two of them. Pure and exact.

A *curve* rises from 0 to 1 in straight lines: inside a class of a histogram values count as spread evenly, and a class
of one value is a *jump*. All numbers are `Fraction`s, so a distance has one value whatever the order of the work.

The largest difference is the Kolmogorov-Smirnov distance of two samples, as far as histograms know them: 0 for equal
curves, 1 where all of one sample lies below all of the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from itertools import accumulate

import attrs

Class = tuple[Fraction | int, Fraction | int, Fraction | int]
"""Where a class begins and ends, and how many are in it. One that ends where it begins is a jump."""


@attrs.frozen
class Curve:
    """Points (x, y) with ascending x and ascending y; a jump is two points of one x."""

    points: tuple[tuple[Fraction, Fraction], ...]

    @classmethod
    def of_classes(cls, classes: Iterable[Class]) -> Curve:
        """The distribution function of classes that ascend and do not overlap; at least one holds something."""
        kept = [(Fraction(low), Fraction(high), Fraction(many)) for low, high, many in classes if many]
        total = sum((many for _, _, many in kept), Fraction(0))
        points: list[tuple[Fraction, Fraction]] = []
        ends = accumulate(many for _, _, many in kept)
        for (low, high, many), end in zip(kept, ends, strict=True):
            for point in ((low, (end - many) / total), (high, end / total)):
                if not points or points[-1] != point:
                    points.append(point)
        return cls(tuple(points))

    def quantile(self, level: Fraction) -> Fraction:
        """The first x at which the curve has risen to `level`, from 0 to 1."""
        at = next(index for index, (_, y) in enumerate(self.points) if y >= level)
        if at == 0 or self.points[at - 1][0] == self.points[at][0]:
            return self.points[at][0]
        (left, low), (right, high) = self.points[at - 1], self.points[at]
        return left + (right - left) * (level - low) / (high - low)

    def sides(self, places: Sequence[Fraction]) -> Iterator[tuple[Fraction, Fraction]]:
        """The value just below and just above each of these x, which ascend."""
        points, at = self.points, 0
        for x in places:
            while at < len(points) and points[at][0] < x:
                at += 1
            last = at
            while last < len(points) and points[last][0] == x:
                last += 1
            if last > at:
                yield points[at][1], points[last - 1][1]
            else:
                value = self._between(at, x)
                yield value, value

    def _between(self, at: int, x: Fraction) -> Fraction:
        """The value at x, which lies before the point `at` and after the one before that."""
        points = self.points
        if at == 0:
            return Fraction(0)
        if at == len(points):
            return points[-1][1]
        (left, low), (right, high) = points[at - 1], points[at]
        return low if low == high else low + (high - low) * (x - left) / (right - left)


def largest_difference(one: Curve, two: Curve) -> tuple[Fraction, Fraction]:
    """The largest difference between two curves, and the first x at which it is met."""
    places = sorted({x for curve in (one, two) for x, _ in curve.points})
    found, where = Fraction(0), Fraction(0)
    for x, first, second in zip(places, one.sides(places), two.sides(places), strict=True):
        difference = max(abs(first[0] - second[0]), abs(first[1] - second[1]))
        if difference > found:
            found, where = difference, x
    return found, where
