"""The recorded traffic, if it is here: the one place of the scenarios that looks at the real file system.

It is read once per process, before any run: inside a run nothing reaches around the seams.
"""

from __future__ import annotations

import os
import pathlib
from functools import lru_cache
from typing import Final

from callboard.recordings import Event, load_profile, read_events, synthesise
from callboard.simulations.entropy import SeededEntropy

__all__ = ["VARIABLE", "recorded_day"]

VARIABLE: Final = "CALLBOARD_TRAFFIC_DIR"
FILE: Final = "nasa-http/nasa_19950801.tsv"
EVENTS: Final = 30_969
"""Of the recorded day; as many are made when there is no recording."""


@lru_cache(maxsize=1)
def recorded_day() -> tuple[tuple[Event, ...], bool]:
    """A day's events in the order of time, and whether they are real: else they are made from the profile."""
    directory = os.environ.get(VARIABLE)
    path = pathlib.Path(directory) / FILE if directory else None
    if path is not None and path.is_file():
        with path.open("rb") as lines:
            found = tuple(read_events(lines))
        return tuple(sorted(found, key=lambda event: event.time_us)), True
    made = synthesise(load_profile(), EVENTS, SeededEntropy(1).fork("traffic"))
    return tuple(made), False
