"""The character of a day of web traffic, as numbers: rates, skew, sizes and mix, and no name or address.

`profile.json` beside this module was measured from a public trace of 12.87 hours (see its `source`) by
`python -m callboard.recordings.measure`. Every list holds pairs `(what, how many)`.

buckets      events in each `bucket_s` seconds, in the order of time
bursts       (events that share a second, seconds)
same_host    (neighbours within a second that come from one host, neighbours within a second)
hosts, urls  (requests, hosts or URLs with that many), most popular first
host_bytes   (length of the name, hosts); url_bytes likewise
requests     ("method status", requests)
sizes        (size class, answers with status 200): class c holds sizes from 2**(c/4)
             up to 2**((c+1)/4) bytes; -1 no body
"""

from __future__ import annotations

import json
import math
import pkgutil
from collections import Counter
from collections.abc import Iterable
from typing import Any

import attrs

from callboard.log.errors import InvalidArgument

BUCKET_S = 300
_TSV_FIELDS = 7
_PROFILE_FILE = "profile.json"

Pairs = tuple[tuple[int, int], ...]


@attrs.frozen(kw_only=True)
class Profile:
    """See the module. Made by `measure` or `load_profile`."""

    source: str
    bucket_s: int
    buckets: tuple[int, ...]
    bursts: Pairs
    same_host: tuple[int, int]
    hosts: Pairs
    urls: Pairs
    host_bytes: Pairs
    url_bytes: Pairs
    requests: tuple[tuple[str, int], ...]
    sizes: Pairs

    def to_json(self) -> str:
        """The text of `profile.json`: one line per field, ends with a newline."""
        fields = attrs.asdict(self)
        lines = [f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in fields.items()]
        return "{\n" + ",\n".join(lines) + "\n}\n"


def profile_from_json(text: str | bytes) -> Profile:
    """The inverse of `Profile.to_json`. Raises `InvalidArgument` for anything else."""
    try:
        found = json.loads(text)
        return Profile(**{name: _frozen(value) for name, value in found.items()})
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidArgument(f"This is not a traffic profile: {error}") from None


def load_profile() -> Profile:
    """The profile that is shipped with Callboard."""
    data = pkgutil.get_data(__package__, _PROFILE_FILE)
    if data is None:
        raise InvalidArgument(f"{_PROFILE_FILE} is missing from this installation. Install Callboard again.")
    return profile_from_json(data)


def measure(lines: Iterable[bytes], *, source: str) -> Profile:
    """Measure a trace: tab-separated lines of host, user, unix seconds, method, URL, status and bytes.

    They are in the order of time. Lines that are none of this, the header for one, are left out.
    """
    count = _Counts()
    for line in lines:
        fields = line.rstrip(b"\r\n").split(b"\t")
        if len(fields) >= _TSV_FIELDS and fields[2].isdigit():
            count.add(fields)
    count.end_burst()
    if not count.hosts:
        raise InvalidArgument("The trace holds no requests: there is nothing to measure.")
    return Profile(
        source=source,
        bucket_s=BUCKET_S,
        buckets=tuple(count.buckets),
        bursts=_pairs(count.bursts),
        same_host=(count.same_host, count.neighbours),
        hosts=_pairs(Counter(count.hosts.values()), descending=True),
        urls=_pairs(Counter(count.urls.values()), descending=True),
        host_bytes=_pairs(Counter(map(len, count.hosts))),
        url_bytes=_pairs(Counter(map(len, count.urls))),
        requests=tuple(sorted(count.requests.items(), key=lambda pair: (-pair[1], pair[0]))),
        sizes=_pairs(count.sizes),
    )


def size_class(size_bytes: int) -> int:
    """The class of an answer's size: quarter powers of two, -1 for nothing."""
    return math.floor(math.log2(size_bytes) * 4) if size_bytes > 0 else -1


class _Counts:
    """What `measure` adds up."""

    def __init__(self) -> None:
        self.buckets: list[int] = []
        self.bursts: Counter[int] = Counter()
        self.hosts: Counter[bytes] = Counter()
        self.urls: Counter[bytes] = Counter()
        self.requests: Counter[str] = Counter()
        self.sizes: Counter[int] = Counter()
        self.same_host = self.neighbours = 0
        self._first: int | None = None
        self._second = 0
        self._burst = 0
        self._host = b""

    def add(self, fields: list[bytes]) -> None:
        host, _, time, method, url, status, size = fields[:_TSV_FIELDS]
        self._add_time(int(time), host)
        self.hosts[host] += 1
        self.urls[url] += 1
        self.requests[f"{method.decode('latin-1')} {status.decode('latin-1')}"] += 1
        if status == b"200":
            self.sizes[size_class(int(size) if size.isdigit() else 0)] += 1

    def _add_time(self, second: int, host: bytes) -> None:
        if self._first is None:
            self._first = second
        elif second == self._second:
            self.neighbours += 1
            self.same_host += host == self._host
        else:
            self.end_burst()
        self._burst += 1
        self._second, self._host = second, host
        bucket = (second - self._first) // BUCKET_S
        self.buckets.extend([0] * (bucket + 1 - len(self.buckets)))
        self.buckets[bucket] += 1

    def end_burst(self) -> None:
        if self._burst:
            self.bursts[self._burst] += 1
        self._burst = 0


def _pairs(counts: Counter[int], *, descending: bool = False) -> Pairs:
    return tuple(sorted(counts.items(), reverse=descending))


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
