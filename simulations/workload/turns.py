"""In which order the keys of a window come: counted, and drawn again.

Each key is a renewal process of its own, whose clock is the number of events so far: its first run begins somewhere in
the window, a run is followed by so many events of other keys, and then comes the next run. How long a run is depends on
how many events the key has left; how soon the next one comes, on how many it has in the window.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from typing import Any, Final

import numpy as np

from callboard.simulations.workload.dependence import START_COLUMNS, fine_class, fine_low
from callboard.simulations.workload.drawing import Draws
from callboard.simulations.workload.tables import Table, counted, fine_classes

ONE: Final = 65_536
"""Places are counted in these parts of an event, so that few are equal."""


def count_turns(keys: Any) -> dict[str, Any]:
    """`starts`, `runs` and `returns` of the keys of a window, in the order of their events."""
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
    return {
        "starts": counted(classes[is_first], starts[is_first] * START_COLUMNS // len(keys)),
        "runs": counted(fine_classes(many[key] - before), fine_classes(lengths)),
        "returns": counted(classes[later], fine_classes(between)),
    }


def take_turns(
    many: Any, starts: Table, runs: Table, returns: Table, draws: Draws
) -> tuple[list[int], list[int]]:
    """The runs of keys that have so many events each: which key, and how many events."""
    events = int(many.sum())
    if starts.is_empty or runs.is_empty:
        return _shuffled(many, draws), [1] * events
    classes = fine_classes(many)
    drawn = draws.take(len(many))
    begin = (starts.draw(classes, drawn) * ONE + (drawn & np.uint64(ONE - 1)).astype(np.int64)) * events
    due = list(zip((begin // START_COLUMNS).tolist(), range(len(many)), strict=True))
    heapq.heapify(due)
    left, of_key, word = many.tolist(), classes.tolist(), draws.loop()
    who: list[int] = []
    lengths: list[int] = []
    last = -1
    while due:
        entry = heapq.heappop(due)
        if entry[1] == last and due:  # a run ends where another key comes
            entry = heapq.heapreplace(due, entry)
        key = entry[1]
        length = min(max(_number(runs, fine_class(left[key]), next(word)), 1), left[key])
        who.append(key)
        lengths.append(length)
        last = key
        left[key] -= length
        if left[key]:
            between = 1 if returns.is_empty else max(_number(returns, of_key[key], next(word)), 1)
            # From where the run was due, not from where it came: else delays of some runs would delay all others.
            heapq.heappush(due, (entry[0] + (length + between) * ONE, key))
    return who, lengths


def _number(table: Table, row: int, word: int) -> int:
    """A number whose class the table has in that row."""
    ends, columns = table.row(row)
    column = columns[bisect_right(ends, (word >> 32) * ends[-1] >> 32)]
    low = fine_low(column)
    return low if column < 8 else low + ((word >> 16 & 0xFFFF) * (fine_low(column + 1) - low) >> 16)


def _shuffled(many: Any, draws: Draws) -> list[int]:
    keys: Any = np.repeat(np.arange(len(many)), many)
    found: list[int] = keys[np.argsort(draws.take(len(keys)), kind="stable")].tolist()
    return found
