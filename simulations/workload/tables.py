"""Counts of a profile to draw from: a column, given a row.

A row that was never counted has the nearest one that was: first of the same class, then of the same state (rows are
`class * states + state`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import attrs
import numpy as np

SUM_MAX: Final = 2**31
"""Of a row: larger ones are shrunk, so that half a word chooses among them."""


@attrs.frozen(eq=False)
class Table:
    """The counts of one table. Without any, `is_empty`."""

    known: Any
    """Rows that have counts, ascending."""
    first: Any
    """Sum of all rows before."""
    sums: Any
    ends: Any
    """Sums up to each entry, over all rows."""
    columns: Any
    states: int
    near: Any = attrs.field(factory=lambda: np.zeros(0, dtype=np.int64))
    """For each row the place, counted from 1, of the one in `known` that it draws from; 0 until it is asked for."""

    @classmethod
    def of(cls, counts: Sequence[tuple[int, int, int]], states: int = 1) -> Table:
        """A table of `[row, column, many]`, ascending."""
        rows, columns, many = np.array(counts, dtype=np.int64).reshape(-1, 3).T
        known, starts = np.unique(rows, return_index=True)
        most = int(np.add.reduceat(many, starts).max()) if len(known) else 0
        many = np.maximum(many >> max(most.bit_length() - SUM_MAX.bit_length() + 2, 0), 1)
        sums = np.add.reduceat(many, starts) if len(known) else many
        return cls(known, np.cumsum(sums) - sums, sums, np.cumsum(many), columns, states)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was counted."""
        return not len(self.known)

    def draw(self, rows: Any, drawn: Any) -> Any:
        """A column for each row, by a word each."""
        at = self._places(rows)
        share = ((drawn >> np.uint64(32)) * self.sums[at].astype(np.uint64) >> np.uint64(32)).astype(np.int64)
        return self.columns[np.searchsorted(self.ends, self.first[at] + share, side="right")]

    def means(self, rows: Any, values: Any) -> Any:
        """The mean of each of these rows, rounded down, where a column counts as its value in `values`."""
        weights = np.diff(self.ends, prepend=0) * values
        starts = np.searchsorted(self.ends, self.first, side="right")
        return (np.add.reduceat(weights, starts) // self.sums)[self._places(rows)]

    def _places(self, rows: Any) -> Any:
        """Where these rows are, or those that stand for them."""
        rows = np.asarray(rows)
        most = int(rows.max(initial=0))
        if most >= len(self.near):
            self.near.resize(most + 1, refcheck=False)
        at = self.near[rows] - 1
        if at.min(initial=0) < 0:
            wanted = np.unique(rows[at < 0])
            self.near[wanted] = [self._nearest(row) + 1 for row in wanted.tolist()]
            at = self.near[rows] - 1
        return at

    def _nearest(self, row: int) -> int:
        at = int(np.searchsorted(self.known, row))
        if at < len(self.known) and self.known[at] == row:
            return at
        classes = np.abs(self.known // self.states - row // self.states)
        states = np.abs(self.known % self.states - row % self.states)
        return int(np.argmin(classes * 2 * self.states + states))


def counted(rows: Any, columns: Any) -> Any:
    """`[row, column, many]` of pairs, ascending."""
    pairs, many = np.unique(np.stack([rows, columns]), axis=1, return_counts=True)
    return np.concatenate([pairs, many[None, :]]).T


def lengths_of_bits(numbers: Any) -> Any:
    """How many bits these numbers from 0 on have, exactly."""
    found: Any = np.zeros(len(numbers), dtype=np.int64)
    rest = np.asarray(numbers, dtype=np.int64).copy()
    for bits in (32, 16, 8, 4, 2, 1):
        high = rest >> bits
        found += np.where(high > 0, bits, 0)
        rest = np.where(high > 0, high, rest)
    return found + rest


def fine_classes(numbers: Any) -> Any:
    """`fine_class` of many numbers."""
    shift = np.maximum(lengths_of_bits(numbers) - 3, 0)
    return np.where(numbers < 8, numbers, 4 * shift + (numbers >> shift))
