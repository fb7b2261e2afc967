"""When a record is due, and how late it was. Pure: the time comes in as an argument.

Vocabulary
----------
position   microseconds on the replay's own time line: recorded time since the beginning of the first pass; each pass
           follows the one before it. Positions never fall. At a fixed rate, a second for each record
due        the monotonic time at which a record is to be handed over; at the highest speed everything is due at once
lateness   seconds from a record's due time to its hand-over

Invariants
----------
LT1  Memory is bounded: a histogram of `BUCKETS` numbers and the sums of a regression, however many records there are.
LT2  A quantile is never below the true one, and at most one bucket (9 %) above it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import attrs

from callboard.log.errors import InvalidArgument

NUMBER_US: Final = 1_000_000
"""From the position of a record to that of the next, in a replay at a fixed rate: the rate is its speed."""
MAX_SPEED: Final = math.inf
"""As fast as possible."""
SPEED_MIN: Final = 1e-6
"""A second then takes eleven days."""
SPEED_MAX: Final = 1e9
"""A finite speed is at most this."""
PER_OCTAVE: Final = 8
"""Buckets from a lateness to twice as much."""
BUCKETS: Final = 48 * PER_OCTAVE
"""Up to nine years."""
EDGES: Final = tuple(2 ** (bucket / PER_OCTAVE) / 1e6 for bucket in range(BUCKETS))
"""The upper end of each bucket, in seconds: the first is a microsecond."""


def check_speed(speed: float | str) -> float:
    """`speed` as a number, `MAX_SPEED` for "max". Raises `InvalidArgument` for anything that is no pace."""
    if speed == "max":
        return MAX_SPEED
    try:
        number = math.nan if isinstance(speed, bool) else float(speed)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if number == MAX_SPEED and not isinstance(speed, str):
        return number
    if not SPEED_MIN <= number <= SPEED_MAX:
        raise InvalidArgument(
            f"the speed is {speed!r:.40}. Nothing was written. Give a number from {SPEED_MIN} to {SPEED_MAX:.0f} (1: as"
            " recorded), or 'max'."
        )
    return number


def check_rate(rate: float | str) -> float:
    """`rate` as a number. Raises `InvalidArgument` for anything that is no number of records per second."""
    try:
        number = math.nan if isinstance(rate, bool) else float(rate)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not SPEED_MIN <= number <= SPEED_MAX:
        raise InvalidArgument(
            f"the rate is {rate!r:.40}. Nothing was written. Give records per second, from {SPEED_MIN} to"
            f" {SPEED_MAX:.0f}."
        )
    return number


@attrs.frozen
class TimeLine:
    """Recorded times as positions. A pass lasts `period_us`, from `first_us` on."""

    first_us: int
    period_us: int

    def origin(self, number: int) -> int:
        """What is added to a recorded time in pass `number` to get its position."""
        return number * self.period_us - self.first_us


@attrs.frozen
class Pace:
    """Due times: the record at position `origin_us` is due at `began`, monotonic seconds."""

    speed: float
    began: float
    origin_us: int

    def due(self, position_us: int) -> float:
        """When the record at this position is due."""
        return self.began + (position_us - self.origin_us) / (1e6 * self.speed)


def due_count(positions: Sequence[int], start: int, pace: Pace, now: float) -> int:
    """How many records from `start` on are due at `now`, at least the first; positions do not fall."""
    if pace.speed == MAX_SPEED:
        return len(positions) - start
    low, high = start + 1, len(positions)
    while low < high:
        middle = (low + high) // 2
        if pace.due(positions[middle]) <= now:
            low = middle + 1
        else:
            high = middle
    return low - start


@attrs.frozen
class Lateness:
    """How late records were handed over, in seconds. Quantiles may be 9 % too high, never too low."""

    records: int = 0
    p50_s: float = 0.0
    p99_s: float = 0.0
    max_s: float = 0.0
    drift_s: float = 0.0
    """By how much lateness grew from the first due time to the last: the slope of a regression, times the span."""


class LatenessMeter:
    """Takes note of lateness, in bounded memory (LT1)."""

    def __init__(self) -> None:
        self._buckets = [0] * BUCKETS
        self._records = 0
        self._max_s = 0.0
        self._mean_due = self._mean_late = self._spread = self._together = 0.0
        self._first_due = math.inf
        self._last_due = -math.inf

    def note(self, due: float, late_s: float, records: int = 1) -> None:
        """`records` that were due at `due` were handed over `late_s` seconds later; never before their time."""
        late_s = max(0.0, late_s)
        self._buckets[_bucket(late_s)] += records
        self._records += records
        self._max_s = max(self._max_s, late_s)
        self._first_due, self._last_due = min(self._first_due, due), max(self._last_due, due)
        # Welford's sums, with weights: they stay exact however long the run is.
        from_mean = due - self._mean_due
        self._mean_due += from_mean * records / self._records
        self._mean_late += (late_s - self._mean_late) * records / self._records
        self._spread += records * from_mean * (due - self._mean_due)
        self._together += records * from_mean * (late_s - self._mean_late)

    def found(self) -> Lateness:
        """What was noted so far."""
        if not self._records:
            return Lateness()
        slope = self._together / self._spread if self._spread > 0 else 0.0
        return Lateness(
            records=self._records,
            p50_s=self._quantile(0.5),
            p99_s=self._quantile(0.99),
            max_s=self._max_s,
            drift_s=slope * (self._last_due - self._first_due),
        )

    def _quantile(self, part: float) -> float:
        wanted, seen = math.ceil(part * self._records), 0
        for bucket, count in enumerate(self._buckets):
            seen += count
            if seen >= wanted:
                return min(EDGES[bucket], self._max_s)
        return self._max_s


def _bucket(late_s: float) -> int:
    if late_s <= EDGES[0]:
        return 0
    bucket = min(BUCKETS - 1, math.ceil(math.log2(late_s * 1e6) * PER_OCTAVE))
    # The logarithm may round to either side of an edge (LT2).
    return bucket + 1 if EDGES[bucket] < late_s and bucket + 1 < BUCKETS else bucket
