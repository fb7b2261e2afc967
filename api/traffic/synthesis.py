"""Make a day of web traffic of a measured character. Same profile, count and entropy: same events.

The measured trace's shape is stretched over 24 hours. Requests come in bursts that share a second, as often from
one host as measured; hosts and URLs are drawn with the measured skew and carry made-up names of measured lengths.
Each value is a line in the common log format. Memory is bounded by the profile, not by the number of events.
"""

from __future__ import annotations

import datetime as dt
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, chain, repeat
from typing import Generic, TypeVar

from callboard.log.errors import InvalidArgument
from callboard.log.seams.entropy import Entropy
from callboard.traffic.event import Event
from callboard.traffic.profile import Pairs, Profile

DAY_S = 86_400
FIRST_DAY = dt.datetime(1995, 8, 1, tzinfo=dt.UTC)

T = TypeVar("T")


def synthesise(profile: Profile, events: int, entropy: Entropy) -> Iterator[Event]:
    """`events` events within the 24 hours from `FIRST_DAY` on, in the order of time."""
    if events < 0:
        raise InvalidArgument(f"The number of events must not be negative, and it is {events}.")
    return _Day(profile, entropy).run(events)


class _Draw(Generic[T]):
    """Draws values with given weights."""

    def __init__(self, values: Sequence[T], weights: Sequence[int], entropy: Entropy) -> None:
        self._values = values
        self._sums = list(accumulate(weights))
        self._random = entropy.random

    def __call__(self) -> T:
        return self._values[bisect_right(self._sums, self._random() * self._sums[-1])]


class _Day:
    """One run of the synthesis; all draws come from one entropy, in the order of the code."""

    def __init__(self, profile: Profile, entropy: Entropy) -> None:
        self._random = entropy.random
        self._buckets = profile.buckets
        self._burst = _draw_pairs(profile.bursts, entropy)
        same, neighbours = profile.same_host
        self._stay = same / max(neighbours, 1)
        host_bytes = _draw_pairs(profile.host_bytes, entropy)
        url_bytes = _draw_pairs(profile.url_bytes, entropy)
        self._host = _draw_ranked(profile.hosts, lambda rank: _host_name(rank, host_bytes()), entropy)
        self._url = _draw_ranked(profile.urls, lambda rank: _url_name(rank, url_bytes()), entropy)
        kinds = [tuple(kind.encode("latin-1").rpartition(b" ")[::2]) for kind, _ in profile.requests]
        self._request = _Draw(kinds, [count for _, count in profile.requests], entropy)
        self._size = _draw_pairs(profile.sizes, entropy)

    def run(self, events: int) -> Iterator[Event]:
        weights = list(accumulate(self._buckets))
        span_s = DAY_S / len(self._buckets)
        made = 0
        for bucket, weight in enumerate(weights):
            wanted = events * weight // weights[-1] - made
            made += wanted
            yield from self._bucket(bucket * span_s, span_s, wanted)

    def _bucket(self, start_s: float, span_s: float, events: int) -> Iterator[Event]:
        """The events of one stretch of time: bursts at random seconds."""
        sizes: list[int] = []
        remaining = events
        while remaining > 0:
            sizes.append(min(self._burst(), remaining))
            remaining -= sizes[-1]
        seconds = sorted(int(start_s + self._random() * span_s) for _ in sizes)
        for second, size in zip(seconds, sizes, strict=True):
            moment = FIRST_DAY + dt.timedelta(seconds=second)
            stamp = moment.strftime("%d/Aug/%Y:%H:%M:%S +0000").encode()
            time_us = int(moment.timestamp()) * 1_000_000
            host = self._host()
            for index in range(size):
                if index and self._random() >= self._stay:
                    host = self._host()
                yield Event(time_us, host, self._line(host, stamp))

    def _line(self, host: bytes, stamp: bytes) -> bytes:
        method, status = self._request()
        size_class = self._size() if status == b"200" else -1
        size = b"0" if size_class < 0 else b"%d" % 2 ** ((size_class + self._random()) / 4)
        return b'%b - - [%b] "%b %b HTTP/1.0" %b %b' % (host, stamp, method, self._url(), status, size)


def _draw_pairs(pairs: Pairs, entropy: Entropy) -> _Draw[int]:
    return _Draw([what for what, _ in pairs], [count for _, count in pairs], entropy)


def _draw_ranked(pairs: Pairs, name: Callable[[int], bytes], entropy: Entropy) -> _Draw[bytes]:
    """One name per rank, weighted by how often the trace saw that rank."""
    weights = list(chain.from_iterable(repeat(requests, many) for requests, many in pairs))
    return _Draw([name(rank) for rank in range(1, len(weights) + 1)], weights, entropy)


def _host_name(rank: int, length: int) -> bytes:
    return b"h%d" % rank + b".net".rjust(length - 1 - len(str(rank)), b"x")


def _url_name(rank: int, length: int) -> bytes:
    return b"/%d/" % rank + b".html".rjust(length - 2 - len(str(rank)), b"x")
