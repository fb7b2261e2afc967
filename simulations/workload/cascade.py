"""How the events of an interval divide between its halves, and these between theirs: counted, and drawn again.

An interval holds this many steps, and is a node of a binary tree; of an odd number of steps the left half has one more.
What a split depends on is its row in a table:

- how many events the node has: one by one up to 4, then in quarters of a power of two,
- its state: which part of the parent's events it has. A burst that lies in one half is likely to lie in one half of it,
- whether it has 3, 5 or 7 steps, so that its halves differ,
- its slope, where that is asked for: whether the neighbours on the left and right have more events or fewer. What rises
  over several intervals rises inside of them.

The column says which part of the events the left half has: none (0), all (18), or so many sixteenths, rounded, and one
more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import attrs
import numpy as np

from callboard.simulations.workload.drawing import below, words
from callboard.simulations.workload.tables import Table, counted, lengths_of_bits

SHARES: Final = 16
ALL: Final = SHARES + 2
STATES: Final = 4
SLOPES: Final = 5
KINDS: Final = 2 * STATES
"""Rows of one number of events, without slopes."""
LEVEL: Final = 2
"""The slope of a node whose neighbours have as many events, or are not known."""


def count_splits(whole: Any, steps: Any, length: int, first_depth: int, *, has_slopes: bool) -> list[Any]:
    """For each depth from `first_depth` on, counts of the splits of events at `steps` of intervals of `length` steps.

    `whole` numbers the intervals; events are in ascending order.
    """
    places, low, high = _at_depth(whole, steps, length, first_depth)
    first, many = _ends(places)
    states = np.full(len(first), LEVEL)
    if first_depth:
        _, of_whole = _ends(whole)
        states = _states(np.repeat(of_whole, of_whole)[first], many)
    found = []
    for _ in range(first_depth, (length - 1).bit_length()):
        middle = _middle(low, high)
        is_right = steps >= middle
        left = many - np.add.reduceat(is_right.astype(np.int64), first)
        nodes = Nodes(places[first], low[first], high[first], many, states, many)
        several = nodes.high - nodes.low > 1
        rows = nodes.rows(has_slopes=has_slopes)
        found.append(counted(rows[several], _columns(many, left)[several]))
        parents: Any = np.repeat(many, many)
        places, low, high = _halved(places, low, high, middle, is_right)
        first, many = _ends(places)
        states = _states(parents[first], many)
    return found


def parts_of(whole: Any, steps: Any, length: int, depth: int) -> Any:
    """In which part, of those so deep, the events of intervals lie."""
    places, _, _ = _at_depth(whole, steps, length, depth)
    return places & (1 << depth) - 1


def _at_depth(whole: Any, steps: Any, length: int, depth: int) -> tuple[Any, Any, Any]:
    places, low, high = whole, np.zeros_like(steps), np.full_like(steps, length)
    for _ in range(depth):
        middle = _middle(low, high)
        places, low, high = _halved(places, low, high, middle, steps >= middle)
    return places, low, high


def _halved(places: Any, low: Any, high: Any, middle: Any, is_right: Any) -> tuple[Any, Any, Any]:
    return 2 * places + is_right, np.where(is_right, middle, low), np.where(is_right, high, middle)


def _middle(low: Any, high: Any) -> Any:
    return (low + high + 1) // 2


def _ends(places: Any) -> tuple[Any, Any]:
    """Where each of the places begins, which ascend, and how often it is there."""
    first = np.flatnonzero(np.concatenate([[True], places[1:] != places[:-1]]))
    return first, np.diff(np.append(first, len(places)))


@attrs.frozen(eq=False)
class Nodes:
    """Nodes of one depth that have events. Each draws from a seed of its own, so it divides alike in any company."""

    places: Any
    low: Any
    """The first step of each."""
    high: Any
    """The step behind its last."""
    many: Any
    states: Any
    seeds: Any

    @classmethod
    def whole(cls, many: Any, length: int, seeds: Any) -> Nodes:
        """Intervals of `length` steps that have this many events."""
        places: Any = np.arange(len(many), dtype=np.int64)
        found = cls(
            places,
            np.zeros_like(places),
            np.full_like(places, length),
            many,
            np.full(len(many), LEVEL),
            seeds,
        )
        return found.chosen(many > 0)

    @classmethod
    def parts(cls, whole: Any, length: int, depth: int, parts: Any, seeds: Any) -> Nodes:
        """The parts, so deep, of intervals that have `whole` events."""
        low: Any = np.zeros(1, np.int64)
        high: Any = np.full(1, length)
        for _ in range(depth):
            middle = _middle(low, high)
            low, high = _both(low, middle), _both(middle, high)
        states = _states(np.repeat(whole, len(low)), parts) if depth else np.full(len(parts), LEVEL)
        places: Any = np.arange(len(parts), dtype=np.int64)
        found = cls(places, np.tile(low, len(whole)), np.tile(high, len(whole)), parts, states, seeds)
        return found.chosen(parts > 0)

    def chosen(self, which: Any) -> Nodes:
        """Those of a mask."""
        return Nodes(*(column[which] for column in attrs.astuple(self, recurse=False)))

    def divided(self, table: Table, *, has_slopes: bool) -> Nodes:
        """Their halves that have events."""
        many = self.many
        column = self._columns(table, has_slopes=has_slopes)
        twice = 2 * np.clip(column - 1, 0, SHARES)
        least = np.clip(-(-(twice - 1) * many // (2 * SHARES)), 1, np.maximum(many - 1, 1))
        most = np.clip(-(-(twice + 1) * many // (2 * SHARES)) - 1, least, np.maximum(many - 1, 1))
        left = least + below(words(2, self.seeds), np.minimum(most - least + 1, 2**32 - 1))
        left = np.where(column == 0, 0, np.where(column >= ALL, many, left))
        left = np.where(self.high - self.low == 1, many, left)
        middle = _middle(self.low, self.high)
        parts = _both(left, many - left)
        return Nodes(
            _both(2 * self.places, 2 * self.places + 1),
            _both(self.low, middle),
            _both(middle, self.high),
            parts,
            _states(np.repeat(many, 2), parts),
            _both(words(3, self.seeds), words(4, self.seeds)),
        ).chosen(parts > 0)

    def _columns(self, table: Table, *, has_slopes: bool) -> Any:
        """Where nothing was counted, all lie in one half."""
        drawn = words(1, self.seeds)
        if table.is_empty:
            return np.where(drawn >> np.uint64(63) == 0, 0, ALL)
        return table.draw(self.rows(has_slopes=has_slopes), drawn)

    def descended(self, table: Table) -> Nodes:
        """The halves that have the event, of nodes that have one each: as `divided` does, in fewer steps."""
        length = self.high - self.low
        rows = (STATES + self.states) * 2 + ((length & 1) & (length < 8))
        drawn = words(1, self.seeds)
        if table.is_empty:
            is_right = drawn >> np.uint64(63) == 0
        else:
            is_right = table.draw(rows, drawn) == 0
        is_right &= length > 1
        middle = _middle(self.low, self.high)
        return Nodes(
            2 * self.places + is_right,
            np.where(is_right, middle, self.low),
            np.where(is_right, self.high, middle),
            self.many,
            np.zeros_like(self.states),
            words(3 + is_right.astype(np.uint64), self.seeds),
        )

    def with_more(self, others: Nodes) -> Nodes:
        """These and those."""
        columns = zip(*(attrs.astuple(each, recurse=False) for each in (self, others)), strict=True)
        return Nodes(*map(np.concatenate, columns))

    def rows(self, *, has_slopes: bool) -> Any:
        """The row of each node in a table."""
        many = self.many
        shift = np.maximum(lengths_of_bits(many) - 3, 0)
        size = np.where(many <= 4, many, 4 * shift + 5 + (many >> shift & 3))
        length = self.high - self.low
        is_uneven = (length & 1) & (length < 8)
        rows = (size * STATES + self.states) * 2 + is_uneven
        return rows * SLOPES + _slopes(self.places, many) if has_slopes else rows


def divide(nodes: Nodes, tables: Sequence[Table], *, has_slopes: bool) -> Nodes:
    """Let nodes divide as often as there are tables."""
    if has_slopes:
        for table in tables:
            nodes = nodes.divided(table, has_slopes=True)
        return nodes
    # Most nodes soon have one event.
    alone = nodes.chosen(nodes.many == 1)
    nodes = nodes.chosen(nodes.many > 1)
    for table in tables:
        alone = alone.descended(table)
        nodes = nodes.divided(table, has_slopes=False)
        is_one = nodes.many == 1
        if is_one.any():
            alone = alone.with_more(nodes.chosen(is_one))
            nodes = nodes.chosen(~is_one)
    nodes = nodes.with_more(alone)
    return nodes.chosen(np.argsort(nodes.places, kind="stable"))


def _both(left: Any, right: Any) -> Any:
    return np.stack([left, right], axis=1).reshape(-1)


def _columns(many: Any, left: Any) -> Any:
    return np.where(left == 0, 0, np.where(left == many, ALL, 1 + (2 * left * SHARES + many) // (2 * many)))


def _states(whole: Any, parts: Any) -> Any:
    """0: all; 1: most; 2: about a half; 3: few."""
    return np.where(parts == whole, 0, np.where(4 * parts >= 3 * whole, 1, np.where(4 * parts > whole, 2, 3)))


def _slopes(nodes: Any, many: Any) -> Any:
    before, after = np.zeros_like(many), np.zeros_like(many)
    are_neighbours = np.diff(nodes) == 1
    before[1:][are_neighbours] = many[:-1][are_neighbours]
    after[:-1][are_neighbours] = many[1:][are_neighbours]
    rise = after - before
    steep = np.abs(rise)
    return LEVEL + np.sign(rise) * ((6 * steep > many).astype(np.int64) + (2 * steep > many))
