"""Generates a recording in a process of its own: MASTER SHUFFLE_PARTITIONS PROFILE OUT...

Or several, one after the other, each of its own profile.
"""

from __future__ import annotations

import sys
from fractions import Fraction
from pathlib import Path

from callboard.simulations.workload.generating import generate
from callboard.simulations.workload.profile_format import profile_from_json
from callboard.simulations.workload.scaling import Scaling
from callboard.simulations.workload.session import open_session

EVENTS = ("retry-storm@00:17,for=3,times=2",)


def main() -> None:
    """Generate 160,000 events and some retries, in three partitions; they are made in several pieces."""
    master, shuffles, *places = sys.argv[1:]
    with open_session(master) as session:
        session.conf.set("spark.sql.shuffle.partitions", shuffles)
        for profile, out in zip(places[::2], places[1::2], strict=True):
            generate(
                session,
                [profile_from_json(Path(profile).read_bytes())],
                out,
                scaling=Scaling(volume=Fraction(20_000)),
                events=EVENTS,
                partitions=3,
                seed=7,
            )


if __name__ == "__main__":
    main()
