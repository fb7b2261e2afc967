"""Measure a trace into a profile of numbers.

Usage: `python -m callboard.recordings.measure < trace > profile.json`.

The trace that ships as numbers with Callboard is NASA Kennedy Space Center's web server log of 31 July and
1 August 1995, from the Internet Traffic Archive, as tab-separated values.
"""

from __future__ import annotations

import sys

from callboard.recordings.profile import measure

SOURCE = (
    "NASA Kennedy Space Center web server, 31 July to 1 August 1995 (12.87 h), the Internet Traffic Archive, "
    "collected by Jim Dumoulin, contributed by M. Arlitt and C. Williamson; numbers only"
)


def main() -> None:
    """Read the trace on standard input, write its profile on standard output."""
    sys.stdout.write(measure(sys.stdin.buffer, source=SOURCE).to_json())


if __name__ == "__main__":
    main()
