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
    lists: dict[int, tuple[list[int], list[int]]] = attrs.field(factory=dict)

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

    def row(self, row: int) -> tuple[list[int], list[int]]:
        """Of one row the sums up to each entry, and the columns, for a loop."""
        found = self.lists.get(row)
        if found is None:
            at = int(self._places(np.array([row]))[0])
            first = int(self.first[at])
            start = int(np.searchsorted(self.ends, first, side="right")) if first else 0
            stop = int(np.searchsorted(self.ends, first + int(self.sums[at]), side="right"))
            found = (self.ends[start:stop] - first).tolist(), self.columns[start:stop].tolist()
            self.lists[row] = found
        return found

    def _places(self, rows: Any) -> Any:
        wanted, which = np.unique(rows, return_inverse=True)
        at = np.minimum(np.searchsorted(self.known, wanted), len(self.known) - 1)
        for missing in np.flatnonzero(self.known[at] != wanted).tolist():
            row = int(wanted[missing])
            classes = np.abs(self.known // self.states - row // self.states)
            at[missing] = np.argmin(
                classes * 2 * self.states + np.abs(self.known % self.states - row % self.states)
            )
        return at[which]


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
