"""Web traffic: read from log files, measured into a profile of numbers, and made from one. Sans I/O."""

from __future__ import annotations

from callboard.simulations.traffic.event import Event, digest_of
from callboard.simulations.traffic.lines import Columns
from callboard.simulations.traffic.profile import Profile, load_profile, measure
from callboard.simulations.traffic.reading import LINE_BYTES_MAX, Format, Tally, detect, read_events
from callboard.simulations.traffic.synthesis import synthesise
from callboard.simulations.traffic.times import TimeFormat, parse_time

__all__ = [
    "LINE_BYTES_MAX",
    "Columns",
    "Event",
    "Format",
    "Profile",
    "Tally",
    "TimeFormat",
    "detect",
    "digest_of",
    "load_profile",
    "measure",
    "parse_time",
    "read_events",
    "synthesise",
]
