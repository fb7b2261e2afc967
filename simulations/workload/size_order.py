"""Which event of a window has which size.

A window's sizes are given (`window_sizes`); which events have the large ones, a chain along each key draws. An event
gets the class of the key's event before, or one that is frequent with this key; with a rare key, one that follows the
class before. Events in the order of these classes get the sizes in their order. Within
a class, an event has the place of the key's event before where its size stays the same.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, Final

import attrs
import numpy as np

from callboard.simulations.workload.dependence import AGAIN_ONE, Dependence
from callboard.simulations.workload.drawing import words
from callboard.simulations.workload.tables import Table

_RANKS: Final = 2**62 - 1


@attrs.frozen(eq=False)
class SizeChains:
    """The classes of sizes along keys."""

    hot: tuple[tuple[list[int], list[int], int], ...]
    """Of each hot key: sums up to each class, the classes, and how often one comes again."""
    first: Table
    following: Table
    stays: int
    stream: int

    @classmethod
    def of(cls, found: Dependence, stream: int) -> SizeChains:
        """The chains of a profile."""
        hot = []
        for key in found.hot:
            total = 0
            ends = [total := total + many for _, many in key.sizes]
            hot.append((ends, [which for which, _ in key.sizes], key.again))
        return cls(
            tuple(hot), Table.of(found.size_first), Table.of(found.size_next), found.size_stays, stream
        )

    def ranks(self, keys: Sequence[int], stream: int) -> list[tuple[int, int]]:
        """A class for each event, by their keys, and what puts it in order with others of the class."""
        rare = sorted({key for key in keys if key >= len(self.hot)})
        last: dict[int, int] = dict(zip(rare, self._anchors(rare), strict=True))
        drawn = words(stream, np.arange(len(keys))).tolist()
        found: list[tuple[int, int]] = []
        places: dict[int, tuple[int, int]] = {}
        hot, stays = self.hot, self.stays
        for key, word in zip(keys, drawn, strict=True):
            if key < len(hot):
                ends, classes, again = hot[key]
                before = last.get(key)
                if before is None or word & AGAIN_ONE - 1 >= again:
                    before = classes[bisect_right(ends, (word >> 32) * ends[-1] >> 32)]
            else:
                before = last[key]
                if before < 0:  # its first event in the window has the class that the key has everywhere
                    before = -1 - before
                elif not self.following.is_empty:
                    ends, classes = self.following.row(before)
                    before = classes[bisect_right(ends, (word >> 32) * ends[-1] >> 32)]
            last[key] = before
            rank = places.get(key)
            if rank is None or rank[0] != before or (word >> 16 & AGAIN_ONE - 1) >= stays:
                places[key] = rank = before, word & _RANKS
            found.append(rank)
        return found

    def _anchors(self, keys: Sequence[int]) -> list[int]:
        if self.first.is_empty or not keys:
            return [-1] * len(keys)
        drawn = words(self.stream, np.array(keys, dtype=np.int64))
        found: list[int] = (-1 - self.first.draw(np.zeros(len(keys), dtype=np.int64), drawn)).tolist()
        return found


def in_order(sizes: Any, ranks: Sequence[tuple[int, int]]) -> Any:
    """The sizes, the smallest for the event of the lowest rank."""
    classes, places = np.array(ranks, dtype=np.int64).reshape(-1, 2).T
    found = np.empty_like(sizes)
    found[np.lexsort((places, classes))] = np.sort(sizes)
    return found
