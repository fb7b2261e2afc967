"""When records are due, and how late they were: exact where it can be, and bounded in memory where it cannot."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.log.errors import InvalidArgument
from callboard.replay.lateness import BUCKETS, LatenessMeter
from callboard.replay.pacing import MAX_SPEED, Pace, TimeLine, check_speed, due_count

LATE = st.floats(0, 1e6, allow_nan=False)


@pytest.mark.parametrize(
    "speed", [0, -1, -0.0, math.nan, 1e10, "inf", "nan", "0", "-3", "fast", "", None, True, [1]]
)
def test_a_speed_that_is_no_pace_is_refused(speed: Any) -> None:
    """Zero, negative, not a number, endless by accident, no number at all."""
    with pytest.raises(InvalidArgument, match=r"Nothing was written\. Give"):
        check_speed(speed)


@pytest.mark.parametrize(
    ("speed", "number"), [(1, 1.0), ("10", 10.0), ("0.5", 0.5), ("max", MAX_SPEED), (MAX_SPEED, MAX_SPEED)]
)
def test_speeds_are_numbers_or_max(speed: Any, number: float) -> None:
    """As text, too."""
    assert check_speed(speed) == number


def test_due_times_keep_the_recorded_distances() -> None:
    """Divided by the speed; nothing waits at the highest."""
    pace = Pace(speed=10.0, began=100.0, origin_us=5_000_000)
    assert pace.due(5_000_000) == 100.0
    assert pace.due(25_000_000) == 102.0
    assert Pace(MAX_SPEED, 100.0, 0).due(10**15) == 100.0


def test_passes_follow_each_other() -> None:
    """The second begins when the first has lasted its time."""
    line = TimeLine(first_us=1_000, period_us=500)
    assert [1_000 + line.origin(number) for number in range(3)] == [0, 500, 1_000]


@given(st.lists(st.integers(0, 10_000_000)).map(sorted), st.floats(0, 12), st.data())
def test_what_is_due_is_found_by_halving(positions: list[int], now: float, data: Any) -> None:
    """As a look at each record would."""
    if not positions:
        return
    start = data.draw(st.integers(0, len(positions) - 1))
    pace = Pace(1.0, 0.0, 0)
    wanted = max(1, sum(1 for position in positions[start:] if pace.due(position) <= now))
    assert due_count(positions, start, pace, now) == wanted
    assert due_count(positions, start, Pace(MAX_SPEED, 0.0, 0), now) == len(positions) - start


@given(st.lists(LATE, min_size=1, max_size=300))
def test_quantiles_are_never_below_the_true_ones(lateness: list[float]) -> None:
    """LT2: and at most a bucket above."""
    meter = LatenessMeter()
    for number, late in enumerate(lateness):
        meter.note(float(number), late)
    found, ordered = meter.found(), sorted(lateness)
    assert (found.records, found.max_s) == (len(lateness), ordered[-1])
    for part, quantile in ((0.5, found.p50_s), (0.99, found.p99_s)):
        true = ordered[math.ceil(part * len(ordered)) - 1]
        assert true <= quantile <= max(true * 2 ** (1 / 8) * 1.000_001, 1e-6)


@given(st.floats(-0.001, 0.001), st.integers(2, 500), st.integers(1, 50))
def test_drift_is_how_much_lateness_grew(slope: float, count: int, weight: int) -> None:
    """Of a lateness that grows evenly, exactly that."""
    meter = LatenessMeter()
    for number in range(count):
        meter.note(1e6 + number, 1.0 + slope * number, weight)
    assert meter.found().drift_s == pytest.approx(slope * (count - 1), abs=1e-6)


def test_no_record_no_lateness() -> None:
    """Nothing was late, and nothing fails."""
    assert LatenessMeter().found().p99_s == 0.0


def test_memory_does_not_grow_with_records() -> None:
    """L1."""
    meter = LatenessMeter()
    for number in range(10_000):
        meter.note(number, number * 1e30)
    assert len(meter._buckets) == BUCKETS
