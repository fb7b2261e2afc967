"""Which keys come in which window of a profile's time, and how often.

Keys are numbers: 0 stands for all events without a key, then come the most frequent keys, then all others. The most
frequent ones have the windows that the profile says, event by event. Of the others it knows in which windows the first
and the last event of how many keys lie; between these their events are spread over the room that is left.
"""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from callboard.simulations.workload.dependence import windows_of
from callboard.simulations.workload.drawing import below, words
from callboard.simulations.workload.profile_format import WorkloadProfile
from callboard.simulations.workload.scaling import Scaling
from callboard.simulations.workload.shares import KeyShares


@attrs.frozen(eq=False)
class Population:
    """For each window its keys, ascending, and how many events each has there."""

    keys: tuple[Any, ...]
    events: tuple[Any, ...]

    @classmethod
    def of(cls, profile: WorkloadProfile, scaling: Scaling, stream: int) -> Population:
        """The keys of a profile."""
        ends = windows_of(profile.bucket_counts)
        sums = np.concatenate([[0], np.cumsum(profile.bucket_counts)])[[0, *ends]]
        found = profile.dependence
        if found is None or scaling.skew != 1:
            return cls._placed(profile, scaling, sums, stream)
        rows = [(key, window, many) for key, hot in enumerate(found.hot) for window, many in hot.windows]
        hot = np.array(rows, dtype=np.int64).reshape(-1, 3)
        room = np.diff(sums) - np.bincount(hot[:, 1], hot[:, 2], len(ends)).astype(np.int64)
        first, last, counts = _others(profile, stream)
        others = _spread(np.arange(len(counts)) + len(found.hot), counts, first, last, room, stream)
        return cls._of_rows(np.concatenate([hot, others]), len(ends))

    @classmethod
    def _placed(cls, profile: WorkloadProfile, scaling: Scaling, sums: Any, stream: int) -> Population:
        """All keys in the windows where they may be, each with a number of events that the profile does not have."""
        known = KeyShares.of(profile, scaling)
        counts = known.counts()
        counts = np.concatenate([[profile.events - int(counts.sum())], counts])
        windows = len(sums) - 1
        first, last = np.zeros_like(counts), np.full_like(counts, windows - 1)
        found = profile.dependence
        if found is not None:
            hot = len(found.hot)
            first[hot:], last[hot:], _ = _others(profile, stream)
            for key, of_key in enumerate(found.hot):
                if of_key.windows:
                    first[key], last[key] = of_key.windows[0][0], of_key.windows[-1][0]
        rows = _spread(np.arange(len(counts)), counts, first, last, np.diff(sums), stream)
        return cls._of_rows(rows, windows)

    @classmethod
    def _of_rows(cls, rows: Any, windows: int) -> Population:
        rows = rows[np.lexsort((rows[:, 0], rows[:, 1]))]
        ends = np.searchsorted(rows[:, 1], np.arange(1, windows))
        parts = np.split(rows, ends)
        return cls(tuple(part[:, 0] for part in parts), tuple(part[:, 2] for part in parts))


def _others(profile: WorkloadProfile, stream: int) -> tuple[Any, Any, Any]:
    """First window, last window and events of the keys that are not hot, the most frequent first."""
    found = profile.dependence
    if found is None or not found.others:
        return (np.zeros(0, np.int64),) * 3
    first, last, which, keys, events = np.array(found.others, dtype=np.int64).T
    member: Any = np.repeat(np.arange(len(keys)), keys)
    drawn = words(stream, np.arange(len(member)))
    member = member[np.lexsort((drawn, -which[member]))]
    known = np.array(profile.key_top[len(found.hot) - 1 :], dtype=np.int64)
    counts: Any = np.zeros(len(member), dtype=np.int64)
    counts[: len(known)] = known
    for each in np.unique(which).tolist():
        of_class = np.flatnonzero(which[member] == each)
        rest = of_class[of_class >= len(known)]
        left = int(events[which == each].sum()) - int(counts[of_class].sum())
        if len(rest):
            counts[rest] = left // len(rest) + (np.arange(len(rest)) < left % len(rest))
    return first[member], last[member], counts


def _spread(keys: Any, counts: Any, first: Any, last: Any, room: Any, stream: int) -> Any:
    """Rows of key, window, events: as many in each window as there is room."""
    borders = np.concatenate([[0], np.cumsum(room)])
    owner: Any = np.repeat(np.arange(len(keys)), counts)
    nth = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
    low, high = borders[first][owner], borders[last + 1][owner]
    high = np.where(nth == 0, borders[first + 1][owner], high)
    low = np.where((nth == 1) & (last > first)[owner], borders[last][owner], low)
    drawn = words(stream ^ 1, np.arange(len(owner)))
    order = np.argsort(low + below(drawn, np.minimum(high - low, 2**32 - 1)), kind="stable")
    window: Any = np.empty(len(owner), dtype=np.int64)
    window[order] = np.searchsorted(borders[1:-1], np.arange(len(owner)), side="right")
    pairs, many = np.unique(owner * len(room) + window, return_counts=True)
    return np.stack([keys[pairs // len(room)], pairs % len(room), many], axis=1)
