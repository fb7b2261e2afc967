"""Web traffic: read from log files, measured into a profile of numbers, and made from one."""

from __future__ import annotations

from callboard.traffic.event import LINE_BYTES_MAX, Event, digest_of
from callboard.traffic.lines import LineColumns
from callboard.traffic.profile import Profile, load_profile
from callboard.traffic.reading import Format, Tally, detect, read_events
from callboard.traffic.synthesis import synthesise
from callboard.traffic.times import TimeFormat, parse_time, time_form

__all__ = ["LINE_BYTES_MAX", "Event", "Format", "LineColumns", "Profile", "Tally", "TimeFormat"]
__all__ += ["detect", "digest_of", "load_profile", "parse_time", "read_events", "synthesise", "time_form"]
