"""Measure a trace into a profile of numbers.

Usage: `python -m callboard.traffic.measure < trace > profile.json`.

The trace that ships as numbers with Callboard is NASA Kennedy Space Center's web server log of 31 July and
1 August 1995, from the Internet Traffic Archive, as tab-separated values.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Iterable
from itertools import groupby, pairwise
from operator import itemgetter

from callboard.log.errors import InvalidArgument
from callboard.traffic.profile import Pairs, Profile

BUCKET_S = 300
FIELDS = 7
SOURCE = (
    "NASA Kennedy Space Center web server, 31 July to 1 August 1995 (12.87 h), the Internet Traffic Archive, "
    "collected by Jim Dumoulin, contributed by M. Arlitt and C. Williamson; numbers only"
)


def measure(lines: Iterable[bytes], *, source: str) -> Profile:
    """Measure a trace: tab-separated lines of host, user, unix seconds, method, URL, status and bytes.

    They are in the order of time. Lines that are none of this, the header for one, are left out.
    """
    split = (line.rstrip(b"\r\n").split(b"\t") for line in lines)
    rows = [fields for fields in split if len(fields) >= FIELDS and fields[2].isdigit()]
    if not rows:
        raise InvalidArgument("The trace holds no requests: there is nothing to measure.")
    hosts, urls = (Counter(fields[column] for fields in rows) for column in (0, 4))
    first, last = int(rows[0][2]), int(rows[-1][2])
    buckets = [0] * ((last - first) // BUCKET_S + 1)
    for fields in rows:
        buckets[(int(fields[2]) - first) // BUCKET_S] += 1
    bursts = Counter(len(list(burst)) for _, burst in groupby(rows, itemgetter(2)))
    neighbours = [one[0] == two[0] for one, two in pairwise(rows) if one[2] == two[2]]
    requests = Counter(f"{fields[3].decode('latin-1')} {fields[5].decode('latin-1')}" for fields in rows)
    answers = [fields[6] for fields in rows if fields[5] == b"200"]
    return Profile(
        source=source,
        bucket_s=BUCKET_S,
        buckets=tuple(buckets),
        bursts=_pairs(bursts),
        same_host=(sum(neighbours), len(neighbours)),
        hosts=_pairs(Counter(hosts.values()), descending=True),
        urls=_pairs(Counter(urls.values()), descending=True),
        host_bytes=_pairs(Counter(map(len, hosts))),
        url_bytes=_pairs(Counter(map(len, urls))),
        requests=tuple(sorted(requests.items(), key=lambda pair: (-pair[1], pair[0]))),
        sizes=_pairs(Counter(size_class(int(size) if size.isdigit() else 0) for size in answers)),
    )


def size_class(size_bytes: int) -> int:
    """The class of an answer's size: quarter powers of two, -1 for nothing."""
    return math.floor(math.log2(size_bytes) * 4) if size_bytes > 0 else -1


def _pairs(counts: Counter[int], *, descending: bool = False) -> Pairs:
    return tuple(sorted(counts.items(), reverse=descending))


def main() -> None:
    """Read the trace on standard input, write its profile on standard output."""
    sys.stdout.write(measure(sys.stdin.buffer, source=SOURCE).to_json())


if __name__ == "__main__":
    main()
