"""The measures of `throughput.py` on a disk made slower: `python benchmarks/slower_disk.py SMALL MIDDLE LARGE ...`.

The cheaper a sync, the more of the time is Python's, so ratios say little without the disk that they were measured on.
This lets a quick disk stand for a slower one: every synced write, of Callboard and of the bare file alike, sleeps
besides: SMALL microseconds for next to nothing, MIDDLE at 12 KB, LARGE at 120 KB, in between in proportion. Turn them
until the bare file has the rates of the disk in question (a sleep takes some 60 us longer than it is asked to). What
follows the three is handed to `throughput.py`.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import throughput

from callboard.log.host import verbs

SIZES = (0, 12_000, 120_000)


class SlowerDisk:
    """Stands where `os` keeps the calls that write and sync."""

    def __init__(self, costs_us: tuple[float, float, float]) -> None:
        self._costs = [cost / 1e6 for cost in costs_us]
        self._pwrite, self._pwritev, self._sync = os.pwrite, os.pwritev, os.fdatasync
        self._unsynced = 0

    def install(self) -> None:
        """Slow down this process."""
        os.pwrite, os.pwritev, os.fdatasync = self.pwrite, self.pwritev, self.sync  # type: ignore[assignment]
        verbs._sync = self.sync

    def _cost(self, size_bytes: int) -> float:
        small, middle, large = self._costs
        if size_bytes <= SIZES[1]:
            return small + (middle - small) * size_bytes / SIZES[1]
        return middle + (large - middle) * (size_bytes - SIZES[1]) / (SIZES[2] - SIZES[1])

    def pwrite(self, descriptor: int, data: bytes, offset: int) -> int:
        """As `os.pwrite`; a sync will follow."""
        self._unsynced = len(data)
        return self._pwrite(descriptor, data, offset)

    def pwritev(self, *arguments: Any) -> int:
        """As `os.pwritev`, which may sync at once."""
        written = self._pwritev(*arguments)
        if len(arguments) > 3 and arguments[3] == os.RWF_DSYNC:
            time.sleep(self._cost(written))
        else:
            self._unsynced = written
        return written

    def sync(self, descriptor: int) -> None:
        """As `os.fdatasync`."""
        self._sync(descriptor)
        time.sleep(self._cost(self._unsynced))


def main() -> None:
    """Take the three costs off the command line, and leave the rest."""
    try:
        small, middle, large = map(float, sys.argv[1:4])
    except ValueError:
        sys.exit("usage: slower_disk.py SMALL_US MIDDLE_US LARGE_US [what throughput.py takes]")
    del sys.argv[1:4]
    SlowerDisk((small, middle, large)).install()
    throughput.main()


if __name__ == "__main__":
    main()
