"""Which event of a window has which size.

A window's sizes are given (`window_sizes`). Which events have the large ones, a chain along each key draws. An event
gets the class of the key's event before, or one that is frequent with this key; with a rare key, one that follows the
class before. Events in the order of these classes get the sizes in their order. Within a class, an event has the place
of the key's event before where its size is the same, and one near it where it stays in the same 16 bytes. Those of a
chain that have one place share some neighbouring sizes, in no order.
"""

from __future__ import annotations

from typing import Any, Final

import attrs
import numpy as np

from callboard.simulations.workload.dependence import AGAIN_ONE, Dependence
from callboard.simulations.workload.drawing import words
from callboard.simulations.workload.tables import Table

_RANK_BITS: Final = 55
"""Below a class, which is less than 256."""
_NEAR: Final = (1 << _RANK_BITS - 2) - 1
"""Bits of a rank that differ where a size stays near another: in a quarter of its class."""
_OWN: Final = (1 << 20) - 1
"""Bits of a rank that tell apart events which have one place."""


@attrs.frozen(eq=False)
class SizeChains:
    """The sizes along keys: their classes, and where they lie in these."""

    hot: Table
    """The classes of each hot key."""
    again: Any
    """How often the class of a hot key comes again, of `AGAIN_ONE` cases."""
    first: Table
    following: Table
    stays: int
    """How often a size stays near the one before if its class does, of `AGAIN_ONE` cases."""
    same: int
    """How often it is the same."""
    stream: int

    @classmethod
    def of(cls, found: Dependence, stream: int) -> SizeChains:
        """The chains of a profile."""
        return cls(
            Table.of([(at, which, many) for at, key in enumerate(found.hot) for which, many in key.sizes]),
            np.array([key.again for key in found.hot], dtype=np.int64),
            Table.of(found.size_first),
            Table.of(found.size_next),
            found.size_stays,
            found.size_stays if found.size_same is None else found.size_same,
            stream,
        )

    def ranks(self, keys: Any, chains: Any, drawn: Any) -> Any:
        """What puts events in the order of their sizes: by class, and within it.

        Events have a key, and a chain: those of one chain have one key, and are in the order of time.
        """
        order = np.argsort(chains, kind="stable")
        keys, chains, drawn = keys[order], chains[order], drawn[order]
        begins: Any = np.ones(len(keys), dtype=bool)
        begins[1:] = chains[1:] != chains[:-1]
        part = (drawn & np.uint64(AGAIN_ONE - 1)).astype(np.int64)
        is_hot = keys < len(self.again)
        is_drawn = is_hot & begins
        is_drawn[is_hot] |= part[is_hot] >= self.again[keys[is_hot]]
        classes: Any = np.zeros(len(keys), dtype=np.int64)
        classes[is_drawn] = self.hot.draw(keys[is_drawn], drawn[is_drawn])
        classes = classes[_latest(is_drawn | ~is_hot)]
        self._follow(classes, np.flatnonzero(~is_hot), keys, begins, drawn)
        change = (drawn >> np.uint64(16)).astype(np.int64) & AGAIN_ONE - 1
        begins[1:] |= classes[1:] != classes[:-1]
        places = (words(14, drawn) >> np.uint64(64 - _RANK_BITS)).astype(np.int64)
        near = places & _NEAR | places[_latest(begins | (change >= self.stays))] & ~_NEAR
        within = near[_latest(begins | (change >= self.same))] & ~_OWN | places >> 32 & _OWN
        found: Any = np.empty(len(keys), dtype=np.int64)
        found[order] = classes << _RANK_BITS | within
        return found

    def _follow(self, classes: Any, rare: Any, keys: Any, begins: Any, drawn: Any) -> None:
        """The classes of the events at `rare`: the first of a chain has the class that the key has everywhere."""
        begin = _latest(begins)
        nth = rare - begin[rare]
        by_nth = rare[np.argsort(nth, kind="stable")]
        for number, some in enumerate(np.split(by_nth, np.cumsum(np.bincount(nth))[:-1])):
            if not number and not self.first.is_empty:
                classes[some] = self.first.draw(np.zeros_like(some), words(self.stream, keys[some]))
            elif number:
                before = classes[some - 1]
                classes[some] = (
                    before if self.following.is_empty else self.following.draw(before, drawn[some])
                )


def _latest(chosen: Any) -> Any:
    """For each place the last one that is chosen, up to it."""
    return np.maximum.accumulate(np.where(chosen, np.arange(len(chosen)), 0))


def in_order(sizes: Any, ranks: Any) -> Any:
    """The sizes for each row of events, the first for the event of the lowest rank."""
    found = np.empty_like(ranks)
    places = np.argsort(ranks, axis=1, kind="stable")
    np.put_along_axis(found, places, np.broadcast_to(sizes, ranks.shape), axis=1)
    return found
