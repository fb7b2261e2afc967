"""Rescales a recording in a process of its own: MASTER SHUFFLE_PARTITIONS RECORDING OUT. Prints the digest."""

from __future__ import annotations

import sys
from fractions import Fraction

from callboard.simulations.workload.rescaling import Rescaling, rescale
from callboard.simulations.workload.session import open_session


def main() -> None:
    """Make three copies and a half, scrubbed, in three partitions."""
    master, shuffles, recording, out = sys.argv[1:]
    with open_session(master) as session:
        session.conf.set("spark.sql.shuffle.partitions", shuffles)
        rescaling = Rescaling(scale=Fraction(7, 2), scrubs=True, partitions=3, seed="7")
        print(rescale(session, recording, out, rescaling).digest)


if __name__ == "__main__":
    main()
