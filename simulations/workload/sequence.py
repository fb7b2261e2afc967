"""Measures what joins the events of a recording: one pass over them, in the order of time. Pure; needs numpy.

The memory of a pass does not grow with the number of events: it holds what waits in a queue, and numbers for each key.
Of more than `KEYS_MAX` keys a sample of whole keys stands for all, chosen by the bits of their words; a cache has then
the sample's share of its places (Waldspurger, Park, Garthwaite, Ahmad: "Efficient MRC construction with SHARDS", 2015).
All sums are of integers, so one order of events has one result.
"""

from __future__ import annotations

from collections import OrderedDict
from fractions import Fraction
from itertools import pairwise
from typing import Any, Final

import attrs
import numpy as np

from callboard.simulations.workload.behaviour import LOADS, QUEUES, SERVERS, Behaviour, QueueFacts
from callboard.simulations.workload.profile_format import SECOND_US
from callboard.simulations.workload.queues import Partitions, Queue, QueueConsumer, Workers, partition_of

KEYS_MAX: Final = 1 << 18
WINDOWS: Final = 20
FINE_US: Final = 10_000
"""Of `dispersion`."""
LIFE_EVENTS_MIN: Final = 10
LIFE_PARTS: Final = 10
CACHE_PARTS: Final = 10
OFTEN_MAX: Final = 1_000
SALTS: Final = 15
"""This many ways to deal keys out to partitions are tried: with four, chance alone made waits twice as long."""
TICKS_A_US: Final = 1_024
_EXACT: Final = 1 << 20
"""Quotients are whole numbers of such parts, rounded down."""


@attrs.frozen
class SequencePlan:
    """What is known of a recording before the pass."""

    events: int
    start_us: int
    span_us: int
    time_step_us: int
    distinct_keys: int
    times: int = 1
    """How many times the servers each queue has."""
    often: tuple[int, ...] = ()
    """The words of the most frequent keys, the most frequent first."""

    @property
    def sampling(self) -> int:
        """One key of this many is in the sample."""
        return -(-self.distinct_keys // KEYS_MAX) or 1

    def service(self, servers: int, load: int) -> int:
        """The ticks that each event takes, for the servers to be busy for `load` percent of the time."""
        return self.span_us * TICKS_A_US * servers * load // (100 * self.events)

    def queues(self) -> dict[str, Queue]:
        """All of them; none when the service time would be nothing."""
        found: dict[str, Queue] = {}
        if not self.service(1, min(LOADS)):
            return found
        for name, (kind, load) in QUEUES.items():
            servers = self.times * (1 if kind == "consumer" else SERVERS)
            service = self.service(servers, load)
            if kind == "consumer":
                found[name] = QueueConsumer(service, servers)
            elif kind == "workers":
                found[name] = Workers(service, servers)
            else:
                found[name] = Partitions(service, servers, SALTS)
        return found


class SuccessorSums:
    """Sums over numbers and their successors, for mean, variance and autocorrelation."""

    def __init__(self) -> None:
        self.count = self.sum = self.squares = self.products = self.first = self.last = 0

    def add(self, numbers: Any) -> None:
        """The next numbers, as int64."""
        if not len(numbers):
            return
        exact = numbers.astype(object) if int(numbers.max()) > 1 << 24 else numbers
        self.sum += int(exact.sum())
        self.squares += int((exact * exact).sum())
        self.products += int((exact[1:] * exact[:-1]).sum())
        if self.count:
            self.products += self.last * int(numbers[0])
        else:
            self.first = int(numbers[0])
        self.last = int(numbers[-1])
        self.count += len(numbers)

    @property
    def variance(self) -> Fraction:
        """Of the whole, by `count`."""
        return Fraction(self.squares, self.count) - Fraction(self.sum, self.count) ** 2

    def autocorrelation(self) -> Fraction | None:
        """Of neighbours; None where all are equal, or there are too few."""
        if self.count < 2 or not self.variance:
            return None
        mean = Fraction(self.sum, self.count)
        together = self.products - mean * (2 * self.sum - self.first - self.last)
        return (together + (self.count - 1) * mean * mean) / (self.variance * self.count)


class Counts:
    """Moments of the events in each interval of a length, the empty ones included."""

    def __init__(self, width_us: int, span_us: int) -> None:
        self._width_us = width_us
        self._all = span_us // width_us + 1
        self._held: tuple[Any, Any] = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        """The last interval that is over, if there is one, and the one that is not: number and events."""
        self._over = 0
        """How many of `_held` are over."""
        self.moments = SuccessorSums()

    def add(self, times_us: Any) -> None:
        """These events are next: times from the recording's start."""
        intervals = np.concatenate([self._held[0], times_us // self._width_us])
        weights = np.concatenate([self._held[1], np.ones(len(times_us), dtype=np.int64)])
        starts: Any = np.flatnonzero(np.diff(intervals, prepend=-1))
        self._close(intervals[starts], np.add.reduceat(weights, starts), 1)

    def _close(self, intervals: Any, events: Any, still_open: int) -> None:
        """Take what is over, but for the last `still_open`, into the sums."""
        moments, stop = self.moments, len(intervals) - still_open
        closing = events[self._over : stop]
        if not moments.sum and len(closing):
            moments.first = int(closing[0])
        moments.sum += int(closing.sum())
        moments.squares += int((closing * closing).sum())
        beside = intervals[1:stop] == intervals[: max(stop - 1, 0)] + 1
        moments.products += int((events[1:stop] * events[: max(stop - 1, 0)])[beside].sum())
        kept = max(stop - 1, 0)
        self._held = intervals[kept:], events[kept:]
        self._over = stop - kept

    def finish(self) -> SuccessorSums:
        """The moments, after the last event: it lies in the last interval, as the first one does in the first."""
        self._close(*self._held, 0)
        self.moments.last = int(self._held[1][-1])
        self.moments.count = self._all
        return self.moments


class Keys:
    """Numbers of each key of the sample, by its place in the order in which keys come first."""

    def __init__(self, plan: SequencePlan) -> None:
        self._plan = plan
        self._places: dict[int, int] = {}
        self._events: Any = np.zeros(1_024, dtype=np.int64)
        self._sizes: Any = np.zeros(1_024, dtype=np.int64)
        self._first: Any = np.zeros(1_024, dtype=np.int64)
        self._last: Any = np.zeros(1_024, dtype=np.int64)
        self._windows: dict[int, dict[int, int]] = {}
        self._shares: list[tuple[int, Any, Any]] = []
        """Of each window that is over: its events, its keys, and the events of each."""
        self._window = 0
        self._in_window: Any = np.zeros(1_024, dtype=np.int64)
        self._cache: OrderedDict[int, None] = OrderedDict()
        self._room = max(1, plan.distinct_keys // CACHE_PARTS // plan.sampling)
        self._hits = 0
        self._moments = SuccessorSums()

    def add(self, times_us: Any, words: Any, sizes: Any) -> None:
        """These events, all with a key, are next."""
        if self._plan.sampling > 1:
            chosen = partition_of(words, 1 << 8, self._plan.sampling) == 0
            times_us, words, sizes = times_us[chosen], words[chosen], sizes[chosen]
        if not len(words):
            return
        windows = times_us * WINDOWS // (self._plan.span_us + 1)
        cuts: Any = np.flatnonzero(np.diff(windows)) + 1
        bounds = [0, *cuts.tolist(), len(words)]
        for start, stop in pairwise(bounds):
            if windows[start] != self._window:
                self._close_window()
                self._window = int(windows[start])
            self._add(times_us[start:stop], words[start:stop], sizes[start:stop])

    def _add(self, times_us: Any, words: Any, sizes: Any) -> None:
        """Events of one window."""
        found, first_at, inverse = np.unique(words, return_index=True, return_inverse=True)
        known = len(self._places)
        # A key's place is its rank among keys by first appearance, so names do not matter.
        places: Any = np.empty(len(found), dtype=np.int64)
        for at in np.argsort(first_at, kind="stable").tolist():
            places[at] = self._places.setdefault(int(found[at]), len(self._places))
        while len(self._places) > len(self._events):
            for name in ("_events", "_sizes", "_first", "_last", "_in_window"):
                held = getattr(self, name)
                setattr(self, name, np.concatenate([held, np.zeros_like(held)]))
        new = places >= known
        self._first[places[new]] = times_us[first_at[new]]
        own = places[inverse]
        self._last[own] = times_us  # the last of equal places stays
        many = np.bincount(inverse, minlength=len(found))
        self._events[places] += many
        self._in_window[places] += many
        np.add.at(self._sizes, own, sizes)
        self._moments.add(sizes)
        self._use(own.tolist())

    def _use(self, places: list[int]) -> None:
        cache, room = self._cache, self._room
        for place in places:
            if place in cache:
                self._hits += 1
                cache.move_to_end(place)
            else:
                cache[place] = None
                if len(cache) > room:
                    cache.popitem(last=False)

    def _close_window(self) -> None:
        kept = np.flatnonzero(self._in_window)
        if len(kept):
            counts = self._in_window[kept].copy()
            self._shares.append((int(counts.sum()), kept.astype(np.int32), counts))
            self._in_window[kept] = 0

    def rows(self) -> dict[str, Fraction | None]:
        """The rows that are of keys."""
        events = self._moments.count
        if not events:
            return dict.fromkeys(("drift", "short_lives", "lru_hits", "size_by_key"))
        self._close_window()
        return {
            "drift": self._drift(events),
            "short_lives": self._short_lives(),
            "lru_hits": Fraction(self._hits, events),
            "size_by_key": self._size_by_key(),
        }

    def _drift(self, events: int) -> Fraction:
        apart = 0
        for in_window, keys, counts in self._shares:
            shares = self._events[keys].astype(object) * in_window
            present = int(self._events[keys].sum())
            apart += int(np.abs(counts.astype(object) * events - shares).sum())
            apart += in_window * (events - present)
        return Fraction(apart, 2 * events * events)

    def _short_lives(self) -> Fraction | None:
        judged = np.flatnonzero(self._events >= LIFE_EVENTS_MIN)
        if not len(judged) or not self._plan.span_us:
            return None
        lives = self._last[judged] - self._first[judged]
        return Fraction(int((lives * LIFE_PARTS < self._plan.span_us).sum()), len(judged))

    def _size_by_key(self) -> Fraction | None:
        moments = self._moments
        if not moments.variance:
            return None
        kept = np.flatnonzero(self._events)
        squares = self._sizes[kept].astype(object) ** 2 * _EXACT // self._events[kept].astype(object)
        between = Fraction(int(squares.sum()), _EXACT) - Fraction(moments.sum**2, moments.count)
        return max(between, Fraction(0)) / (moments.variance * moments.count)


class Sequence:
    """The pass. `add` takes the events in order, and `finish` gives what was found."""

    def __init__(self, plan: SequencePlan) -> None:
        self._plan = plan
        self._queues = plan.queues()
        often = np.array(plan.often, dtype=np.int64)
        self._ranks = np.argsort(often, kind="stable")
        self._often = often[self._ranks]
        self._fine = Counts(FINE_US, plan.span_us) if plan.time_step_us < FINE_US else None
        self._seconds = Counts(SECOND_US, plan.span_us) if plan.time_step_us <= SECOND_US else None
        self._keys = Keys(plan)
        self._sizes = SuccessorSums()
        self._same_instant = self._same_key = 0
        self._last: tuple[Any, ...] | None = None
        """The columns of the last event."""

    def add(self, times_us: Any, words: Any, keyed: Any, sizes: Any) -> None:
        """The next events: absolute times, a word of 64 bits for each key, whether there is a key, and sizes."""
        if not len(times_us):
            return
        times_us = times_us - self._plan.start_us
        words = self._ranked(words)
        self._neighbours(times_us, words, keyed)
        for counts in filter(None, (self._fine, self._seconds)):
            counts.add(times_us)
        self._keys.add(times_us[keyed], words[keyed], sizes[keyed])
        self._sizes.add(sizes)
        ticks = times_us * TICKS_A_US
        for queue in self._queues.values():
            queue.add(ticks, words, keyed)

    def _ranked(self, words: Any) -> Any:
        """The words, but ranks for those of the most frequent keys.

        So two recordings deal these out to partitions alike: which of them are together would decide, not what differs.
        """
        if not len(self._often):
            return words
        at = np.minimum(np.searchsorted(self._often, words), len(self._often) - 1)
        return np.where(self._often[at] == words, self._ranks[at], words)

    def _neighbours(self, times_us: Any, words: Any, keyed: Any) -> None:
        columns: tuple[Any, ...] = times_us, words, keyed
        if self._last is not None:
            columns = tuple(np.concatenate(pair) for pair in zip(self._last, columns, strict=True))
        self._last = tuple(column[-1:] for column in columns)
        times_us, words, keyed = columns
        self._same_instant += int((times_us[1:] == times_us[:-1]).sum())
        self._same_key += int(((words[1:] == words[:-1]) & keyed[1:] & keyed[:-1]).sum())

    def finish(self) -> Behaviour:
        """What was found, but for `compression`."""
        plan, events = self._plan, self._sizes.count
        pairs = max(events - 1, 1)
        dispersion = None
        if self._fine is not None and events:
            moments = self._fine.finish()
            dispersion = moments.variance * moments.count / moments.sum
        keys = self._keys.rows()
        return Behaviour(
            events=events,
            rate=Fraction(events * SECOND_US, max(plan.span_us, SECOND_US)),
            rows={
                "dispersion": dispersion,
                "autocorrelation": self._seconds.finish().autocorrelation() if self._seconds else None,
                "same_instant": Fraction(self._same_instant, pairs),
                "same_key": None if keys["drift"] is None else Fraction(self._same_key, pairs),
                **keys,
                "size_autocorrelation": self._sizes.autocorrelation(),
                "compression": None,
            },
            queues={name: self._facts(name, queue) for name, queue in self._queues.items()},
        )

    def _facts(self, name: str, queue: Queue) -> QueueFacts:
        """Each partition is a queue with one server, however many there are."""
        kind, _ = QUEUES[name]
        return attrs.evolve(queue.facts(), times=1 if kind == "partitions" else self._plan.times)
