"""Curves and the largest difference between two of them."""

from __future__ import annotations

from bisect import bisect_right
from fractions import Fraction
from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from callboard.simulations.workload.curves import Curve, largest_difference

SAMPLES = st.lists(st.integers(-50, 50), min_size=1, max_size=40)


@st.composite
def curves(draw: st.DrawFn) -> Curve:
    """Classes of any width, some of them jumps, some with nothing between them."""
    steps = draw(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=12))
    manys = draw(st.lists(st.integers(1, 9), min_size=len(steps), max_size=len(steps)))
    ends = list(accumulate(number + 1 for step in steps for number in step))
    lows, highs = ends[::2], ends[1::2]
    jumps = draw(st.lists(st.booleans(), min_size=len(steps), max_size=len(steps)))
    return Curve.of_classes(
        (low, low if jump else high, many)
        for low, high, many, jump in zip(lows, highs, manys, jumps, strict=True)
    )


def of_sample(sample: list[int]) -> Curve:
    """The curve of numbers that are known exactly."""
    return Curve.of_classes((number, number, sample.count(number)) for number in sorted(set(sample)))


@given(SAMPLES, SAMPLES)
def test_the_distance_of_two_samples_is_that_of_kolmogorov_and_smirnov(
    one: list[int], two: list[int]
) -> None:
    """It is the largest difference of the parts of the samples that lie at or below some number."""
    expected = max(
        abs(
            Fraction(sum(number <= x for number in one), len(one))
            - Fraction(sum(number <= x for number in two), len(two))
        )
        for x in [*one, *two]
    )
    assert largest_difference(of_sample(one), of_sample(two))[0] == expected


@given(curves(), curves(), curves())
def test_it_is_a_distance(one: Curve, two: Curve, three: Curve) -> None:
    """It is 0 for equal curves only, at most 1, the same both ways, and no longer than a way round."""
    between = largest_difference(one, two)[0]
    assert largest_difference(one, one)[0] == 0
    assert (between == 0) == (_values(one, two) == _values(two, one))
    assert 0 <= between <= 1
    assert between == largest_difference(two, one)[0]
    assert between <= largest_difference(one, three)[0] + largest_difference(three, two)[0]


def _values(of: Curve, other: Curve) -> list[tuple[Fraction, Fraction]]:
    places = sorted({x for curve in (of, other) for x, _ in curve.points})
    return list(of.sides(places))


@given(curves(), curves(), st.fractions(Fraction(1, 50), 50))
def test_the_unit_does_not_matter(one: Curve, two: Curve, unit: Fraction) -> None:
    """Curves in another unit are as far apart, at the same place."""
    found, where = largest_difference(one, two)
    scaled = [Curve(tuple((x * unit, y) for x, y in curve.points)) for curve in (one, two)]
    assert largest_difference(*scaled) == (found, where * unit)


@given(curves(), curves(), st.lists(st.fractions(-1, 150, max_denominator=60), max_size=20))
def test_nowhere_is_the_difference_larger(one: Curve, two: Curve, places: list[Fraction]) -> None:
    """Between the points of the curves, too, the distance is the largest difference."""
    found, where = largest_difference(one, two)
    places = sorted({*places, where})
    for first, second in zip(one.sides(places), two.sides(places), strict=True):
        assert max(abs(first[0] - second[0]), abs(first[1] - second[1])) <= found


@given(curves(), st.fractions(0, 1))
def test_a_quantile_is_where_the_curve_has_risen_so_far(curve: Curve, level: Fraction) -> None:
    """Just below it the curve is at most at the level, and at it at least."""
    below, above = next(curve.sides([curve.quantile(level)]))
    assert below <= level <= above


def test_inside_a_class_numbers_are_spread_evenly() -> None:
    """Ten from 0 to 10 and one of 4: at 4 the one has risen to 0.4 and the other from 0 to 1."""
    even, jump = Curve.of_classes([(0, 10, 10)]), Curve.of_classes([(4, 4, 3)])
    assert largest_difference(even, jump) == (Fraction(6, 10), 4)
    assert even.quantile(Fraction(1, 2)) == 5
    numbers = [1, 1, 2, 5]
    for level in (Fraction(1, 8), Fraction(1, 2), Fraction(5, 8), Fraction(1)):
        at = bisect_right([Fraction(i + 1, 4) for i in range(4)], level - Fraction(1, 1000))
        assert of_sample(numbers).quantile(level) == numbers[at]
