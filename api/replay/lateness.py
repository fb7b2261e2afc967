"""How late records were handed over: seconds from a record's due time to its hand-over. Pure.

Invariants
----------
LT1  Memory is bounded: a histogram of `BUCKETS` numbers and the sums of a regression, however many records there are.
LT2  A quantile is never below the true one, and at most one bucket (9 %) above it.
"""

from __future__ import annotations

import math
from typing import Final

import attrs

PER_OCTAVE: Final = 8
"""Buckets from a lateness to twice as much."""
BUCKETS: Final = 48 * PER_OCTAVE
"""Up to nine years."""
EDGES: Final = tuple(2 ** (bucket / PER_OCTAVE) / 1e6 for bucket in range(BUCKETS))
"""The upper end of each bucket, in seconds: the first is a microsecond."""


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
