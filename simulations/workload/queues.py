"""Simulated queues: how long events wait, and how many wait, when each takes the same time to serve. Pure.

Events arrive in the order of time. A queue has *servers*, and each event takes a server for the *service time*:

    consumer     one server (or several that take what has waited longest): no order is kept
    partitions   each has one server; an event's key, mixed with a salt, chooses its partition
    workers      several servers, and events with one key are served one after the other, in their order; a server that
                 becomes free takes what has been ready longest. Events without a key have no order

An event's *wait* is the time from its arrival to the start of its service. Its *depth* is how many events that came
before it, in its queue, have not started when it arrives. Times are whole *ticks*, so results are exact and the same on
every machine. Of each number a histogram of `number_class` is kept: exact up to 127, then within 1.6 %.

A queue holds what waits. One in which more than `BACKLOG_MAX` events wait is *overloaded*: it is given up.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Any, Final, Protocol

import numpy as np

from callboard.simulations.workload.behaviour import QueueFacts, quantile

BACKLOG_MAX: Final = 1_000_000
FINE_BITS: Final = 6
"""A class knows a number's first seven bits, the leading one included."""
_MIX: Final = np.uint64(0x9E3779B97F4A7C15)


def number_classes(numbers: Any) -> Any:
    """The class of each number, which is at least 0: the number itself, with all but its first seven bits set to 0."""
    bits = np.frexp(numbers.astype(np.float64))[1].astype(np.int64)
    # A number above 2**53 may be rounded up to the next power of two, and would lose a bit more.
    drop = np.maximum(bits - FINE_BITS - 1, 0)
    return numbers >> drop << drop


class QueueHistogram:
    """A histogram of classes."""

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()

    def add(self, numbers: Any) -> None:
        """Count them."""
        found, many = np.unique(number_classes(numbers), return_counts=True)
        self.counts.update(dict(zip(found.tolist(), many.tolist(), strict=True)))

    def pairs(self) -> tuple[tuple[int, int], ...]:
        """What, and how many, in ascending order."""
        return tuple(sorted(self.counts.items()))


class Queue(Protocol):
    """What all of them do."""

    def add(self, times: Any, keys: Any, keyed: Any) -> None:
        """These events arrive: times in ticks, their keys as words, and whether they have one."""

    def facts(self) -> QueueFacts:
        """How they waited, after the last of them has started."""


class QueueServer:
    """One server: `finish` is when it has served all that arrived."""

    def __init__(self, service: int) -> None:
        self._service = service
        self._finish = -(1 << 62)

    def starts(self, times: Any) -> Any:
        """When each of these events, the next ones in the order of time, is started."""
        steps: Any = np.arange(len(times), dtype=np.int64) * self._service
        latest = np.maximum.accumulate(times - steps)
        starts: Any = np.maximum(latest, self._finish) + steps
        if len(starts):
            self._finish = int(starts[-1]) + self._service
        return starts


class QueueConsumer:
    """Servers of one queue without order: with one service time for all, event n waits for event n - servers."""

    def __init__(self, service: int, servers: int = 1) -> None:
        self._service = service
        self._lanes = [QueueServer(service) for _ in range(servers)]
        self._next = 0
        self._waiting: Any = np.empty(0, dtype=np.int64)
        """The starts of events that wait at the last arrival."""
        self._waits, self._depths = QueueHistogram(), QueueHistogram()
        self._is_overloaded = False

    def add(self, times: Any, keys: Any, keyed: Any) -> None:
        """As in `Queue`; keys do not matter."""
        if self._is_overloaded or not len(times):
            return
        servers = len(self._lanes)
        starts: Any = np.empty_like(times)
        for lane in range(min(servers, len(times))):
            starts[lane::servers] = self._lanes[(self._next + lane) % servers].starts(times[lane::servers])
        self._next = (self._next + len(times)) % servers
        held = np.concatenate([self._waiting, starts])
        before: Any = np.arange(len(times)) + len(self._waiting)
        depths = before - np.minimum(np.searchsorted(held, times, side="right"), before)
        self._waits.add(starts - times)
        self._depths.add(depths)
        self._waiting = held[held > times[-1]]
        self._is_overloaded = len(self._waiting) > BACKLOG_MAX

    def facts(self) -> QueueFacts:
        """As in `Queue`."""
        return QueueFacts(self._service, self._waits.pairs(), self._depths.pairs(), self._is_overloaded)


class Partitions:
    """A server for each partition. Several salts are several ways to deal keys out, so that one does not decide.

    What counts is the way by which the events that wait longest wait neither longer nor shorter than by most others.
    All ways together would not do: frequent keys in one partition are rare, but make up for a hundredth of all waits.
    """

    def __init__(self, service: int, partitions: int, salts: int) -> None:
        self._service = service
        self._partitions = partitions
        self._lanes = [[QueueServer(service) for _ in range(partitions)] for _ in range(salts)]
        self._keyless = 0
        self._tallies = [(QueueHistogram(), QueueHistogram()) for _ in range(salts)]
        """Waits and depths of each way."""

    def add(self, times: Any, keys: Any, keyed: Any) -> None:
        """As in `Queue`. Events without a key are dealt out in turn."""
        turns: Any = np.cumsum(~keyed) + self._keyless
        self._keyless += int((~keyed).sum())
        for salt, lanes in enumerate(self._lanes):
            places = np.where(keyed, partition_of(keys, salt, self._partitions), turns % self._partitions)
            # A sort of numbers of 16 bits takes no comparisons.
            order = np.argsort(
                places.astype(np.uint16 if self._partitions <= 1 << 16 else np.int64), kind="stable"
            )
            ends = np.cumsum(np.bincount(places, minlength=self._partitions))
            own = np.split(times[order], ends[:-1])
            waits = np.concatenate([lane.starts(each) - each for lane, each in zip(lanes, own, strict=True)])
            self._tallies[salt][0].add(waits)
            self._tallies[salt][1].add(np.maximum(-(-waits // self._service) - 1, 0))

    def facts(self) -> QueueFacts:
        """As in `Queue`. Nothing is held, so they are never overloaded."""
        found = [(waits.pairs(), depths.pairs()) for waits, depths in self._tallies]
        found.sort(key=lambda way: (quantile(way[0], 99), way))
        waits, depths = found[len(found) // 2]
        return QueueFacts(self._service, waits, depths, False)


def partition_of(keys: Any, salt: int, partitions: int) -> Any:
    """The partition of each key, a word of 64 bits."""
    words = (keys.astype(np.uint64) ^ np.uint64(salt << 40 | salt)) * _MIX
    words = (words ^ (words >> np.uint64(29))) * _MIX
    return ((words >> np.uint64(32)) % np.uint64(partitions)).astype(np.int64)


class Workers:
    """Servers of one queue, with order for each key.

    W1. Something is ready only while no server is free.
    W2. A key is in `_later` while an event with it is ready or served; those behind it wait there.
    W3. Starts, and so ends, are in the order of time: all take equally long.
    """

    def __init__(self, service: int, servers: int) -> None:
        self._service = service
        self._free = servers
        self._served: deque[tuple[int, int | None]] = deque()
        """When each event in service ends, and its key."""
        self._ready: deque[tuple[int, int | None]] = deque()
        """When each arrived, and its key."""
        self._later: dict[int, deque[int] | None] = {}
        self._waiting = 0
        self._ended: list[int] = []
        self._waits, self._depths = QueueHistogram(), QueueHistogram()
        self._is_overloaded = False

    def add(self, times: Any, keys: Any, keyed: Any) -> None:
        """As in `Queue`."""
        depths: list[int] = []
        later, ready, served = self._later, self._ready, self._served
        for time, word, has_key in zip(times.tolist(), keys.tolist(), keyed.tolist(), strict=True):
            if self._is_overloaded:
                return
            if served and served[0][0] <= time:
                self._end_until(time)
            depths.append(self._waiting)
            key = word if has_key else None
            if key is not None and key in later:
                behind = later[key]
                if behind is None:
                    later[key] = behind = deque()
                behind.append(time)
                self._waiting += 1
            else:
                if key is not None:
                    later[key] = None
                if self._free:
                    self._free -= 1
                    served.append((time + self._service, key))
                    self._ended.append(0)
                else:
                    ready.append((time, key))
                    self._waiting += 1
            self._is_overloaded = self._waiting > BACKLOG_MAX
        self._depths.add(np.array(depths, dtype=np.int64))
        self._count()

    def _end_until(self, time: int | None) -> None:
        """Serve on: all that ends up to a time, or to the end."""
        served, ready, later = self._served, self._ready, self._later
        while served and (time is None or served[0][0] <= time):
            now, key = served.popleft()
            self._free += 1
            if key is not None:
                behind = later[key]
                if behind:
                    ready.append((behind.popleft(), key))
                else:
                    del later[key]
            if ready:
                arrived, key = ready.popleft()
                self._free -= 1
                self._waiting -= 1
                served.append((now + self._service, key))
                self._ended.append(now - arrived)
            if len(self._ended) > BACKLOG_MAX:
                self._count()

    def _count(self) -> None:
        self._waits.add(np.array(self._ended, dtype=np.int64))
        self._ended.clear()

    def facts(self) -> QueueFacts:
        """As in `Queue`."""
        if not self._is_overloaded:
            self._end_until(None)
            self._count()
        return QueueFacts(self._service, self._waits.pairs(), self._depths.pairs(), self._is_overloaded)
