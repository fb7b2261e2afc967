"""In which order the keys of a window come: counted, and drawn again.

Each key is a renewal process of its own, whose clock is the number of events so far: its first run begins somewhere in
the window, a run is followed by this many events of other keys, and then comes the next run. How long a run is depends
on how many events the key has left. How soon the next one comes depends on the key's *pace* in the window: how many
events of others come between two of its runs, in the mean. So a short visit is short from its first event to its last.
"""

from __future__ import annotations

from collections import deque
from functools import cached_property
from typing import Any, Final

import attrs
import numpy as np

from callboard.simulations.workload.dependence import START_COLUMNS, Counts, fine_low
from callboard.simulations.workload.drawing import words
from callboard.simulations.workload.tables import Table, counted, fine_classes

ONE: Final = 65_536
"""Places are counted in these parts of an event, so that few are equal."""
TRIES_MAX: Final = 65_536
"""Runs of a key that are drawn at a time, at most."""
_LOW: Final[Any] = np.array([fine_low(found) for found in range(248)], dtype=np.int64)
"""The least number of each class of numbers below 2**62."""


def count_turns(keys: Any) -> dict[str, Any]:
    """`starts`, `runs`, `returns`, `paces` and `pace_returns` of a window's keys, in the order of their events."""
    _, which, many = np.unique(keys, return_inverse=True, return_counts=True)
    starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
    lengths: Any = np.diff(np.append(starts, len(keys)))
    order = np.argsort(which[starts], kind="stable")  # by key, then by time
    starts, lengths = starts[order], lengths[order]
    key = which[starts]
    is_first = np.concatenate([[True], key[1:] != key[:-1]])
    before = np.cumsum(lengths) - lengths
    before -= before[np.maximum.accumulate(np.where(is_first, np.arange(len(key)), 0))]
    classes = fine_classes(many)[key]
    later = np.flatnonzero(~is_first)
    between = starts[later] - starts[later - 1] - lengths[later - 1]
    returns = np.bincount(key[later], minlength=len(many))
    in_all: Any = np.zeros(len(many), dtype=np.int64)
    np.add.at(in_all, key[later], between)
    several = np.flatnonzero(returns)
    paces = fine_classes(in_all // np.maximum(returns, 1))
    return {
        "starts": counted(classes[is_first], starts[is_first] * START_COLUMNS // len(keys)),
        "runs": counted(fine_classes(many[key] - before), fine_classes(lengths)),
        "returns": counted(classes[later], fine_classes(between)),
        "paces": counted(fine_classes(many)[several], paces[several]),
        "pace_returns": counted(paces[key[later]], fine_classes(between)),
    }


@attrs.frozen(eq=False)
class Turns:
    """The tables that keys take their turns by."""

    starts: Table
    runs: Table
    paces: Table
    returns: Table
    """By pace; without `paces`, as a profile of an earlier version has it, by a key's events in the window."""

    @classmethod
    def of(
        cls,
        *,
        starts: Counts = (),
        runs: Counts = (),
        returns: Counts = (),
        paces: Counts = (),
        pace_returns: Counts = (),
    ) -> Turns:
        """Those of a profile. Without `starts` or `runs`, keys come in any order."""
        by_pace = len(paces) > 0
        return cls(*map(Table.of, (starts, runs, paces, pace_returns if by_pace else returns)))

    @cached_property
    def _run_means(self) -> Any:
        """About how long a run is, for each class of events that a key has left."""
        lengths = np.minimum(_LOW[np.minimum(self.runs.columns, len(_LOW) - 1)], TRIES_MAX)
        return np.maximum(self.runs.means(np.arange(len(_LOW)), lengths), 1)

    def take(self, many: Any, seeds: Any) -> tuple[Any, Any]:
        """The runs of layers: key k comes `many[k]` times in each, and a layer draws from its seed.

        Which key, as `layer * len(many) + k`, and how many events: one layer after the other.
        """
        keys, layers = len(many), len(seeds)
        drawn = words(7, (seeds[:, None] + np.arange(keys, dtype=np.uint64)[None, :]).reshape(-1))
        if self.starts.is_empty or self.runs.is_empty:
            events = int(many.sum())
            order = words(8, seeds[:, None] + np.arange(events, dtype=np.uint64)[None, :])
            shuffled: Any = np.repeat(np.arange(keys), many)[np.argsort(order, axis=1, kind="stable")]
            found = (shuffled + keys * np.arange(layers)[:, None]).reshape(-1)
            return found, np.ones(len(found), dtype=np.int64)
        who, lengths, due = self._runs(np.tile(many, layers), int(many.sum()), drawn)
        order = np.argsort(due, kind="stable")
        # A sort of numbers of 16 bits takes no comparisons.
        layer = (who[order] // keys).astype(np.uint16 if layers <= 1 << 16 else np.int64)
        order = order[np.argsort(layer, kind="stable")]
        order = order[_apart(who[order], np.cumsum(np.bincount(layer, minlength=layers)), keys)]
        return who[order], lengths[order]

    def _runs(self, many: Any, events: int, drawn: Any) -> tuple[Any, Any, Any]:
        """All runs, in no order: of which key, how many events, and when they are due.

        What a key draws from depends on how many events it has left, by class. So those runs that it takes to leave a
        class are drawn at once, and those of all keys together. The next run is due from where one was due, not from
        where it came: else delays of some runs would delay all others.
        """
        classes = fine_classes(many)
        begin = self.starts.draw(classes, drawn) * ONE + (drawn & np.uint64(ONE - 1)).astype(np.int64)
        due, left = begin * events // START_COLUMNS, many.copy()
        pace = classes if self.paces.is_empty else self.paces.draw(classes, words(13, drawn))
        made: Any = np.zeros(len(many), dtype=np.int64)
        found: list[tuple[Any, Any, Any]] = []
        active = np.flatnonzero(left)
        while len(active):
            has, of_left = left[active], fine_classes(left[active])
            above = has - _LOW[of_left]
            tries = np.minimum(above // self._run_means[of_left] + 1, TRIES_MAX)
            place: Any = np.repeat(np.arange(len(active)), tries)
            first = np.cumsum(tries) - tries
            nth = np.arange(len(place)) - first[place]
            word = words(9, drawn[active][place] + (made[active][place] + nth).astype(np.uint64))
            lengths = np.maximum(_numbers(self.runs, of_left[place], word), 1)
            before = _sums_before(lengths, first, place)
            kept = before <= above[place]
            place, lengths, before, word = place[kept], lengths[kept], before[kept], word[kept]
            lengths = np.minimum(lengths, has[place] - before)
            steps = lengths + 1
            if not self.returns.is_empty:
                between = _numbers(self.returns, pace[active][place], words(10, word))
                steps = lengths + np.clip(between, 1, events)
            runs = np.bincount(place, minlength=len(active))
            first = np.cumsum(runs) - runs
            later = _sums_before(steps, first, place)
            who = active[place]
            found.append((who, lengths, due[who] + later * ONE))
            last = first + runs - 1
            made[active] += runs
            left[active] -= before[last] + lengths[last]
            due[active] += (later[last] + steps[last]) * ONE
            active = active[left[active] > 0]
        who, lengths, due = (np.concatenate(columns) for columns in zip(*found, strict=True))
        return who, lengths, due


def _numbers(table: Table, rows: Any, drawn: Any) -> Any:
    """Numbers whose classes the table has in these rows."""
    column = np.minimum(table.draw(rows, drawn), len(_LOW) - 2)
    low = _LOW[column]
    inside = (drawn >> np.uint64(16) & np.uint64(0xFFFF)).astype(np.int64)
    return low + ((_LOW[column + 1] - low) * inside >> 16)


def _sums_before(numbers: Any, first: Any, place: Any) -> Any:
    """Of each number the sum of those before it, from the first of its place on."""
    before = np.cumsum(numbers) - numbers
    return before - before[first][place]


def _apart(who: Any, ends: Any, keys: int) -> Any:
    """An order in which neighbours are runs of different keys: a run ends where another key comes.

    A run that would follow one of its own key waits until another key has come, if one is left in the layer, which
    ends at `ends`.
    """
    order: Any = np.arange(len(who))
    meets: Any = np.flatnonzero(who[1:] == who[:-1]) + 1
    if not len(meets):
        return order
    names, found, at = who.tolist(), order.tolist(), 0
    for meet in meets.tolist():
        if meet < at:
            continue
        key, out, at = names[meet], meet, meet
        last, stop = key, int(ends[key // keys])
        waiting: deque[int] = deque()
        while True:
            if waiting and last != key:
                found[out] = waiting.popleft()
                last = key
            elif at < stop and names[at] == last:
                waiting.append(at)
                key, at = last, at + 1
                continue
            elif at < stop and waiting:
                found[out] = at
                last, at = names[at], at + 1
            else:
                break
            out += 1
        found[out : out + len(waiting)] = waiting
    return np.array(found, dtype=np.int64)
