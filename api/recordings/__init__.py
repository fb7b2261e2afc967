"""Recordings of topics, and web traffic: read from log files, measured into a profile of numbers, and made from one."""

from __future__ import annotations

from callboard.recordings.event import Event, digest_of
from callboard.recordings.lines import LineColumns
from callboard.recordings.profile import Profile, load_profile
from callboard.recordings.reading import Format, Tally, detect, read_events
from callboard.recordings.records import LINE_BYTES_MAX
from callboard.recordings.synthesis import synthesise
from callboard.recordings.times import TimeFormat, parse_time, time_form

__all__ = ["LINE_BYTES_MAX", "Event", "Format", "LineColumns", "Profile", "Tally", "TimeFormat"]
__all__ += ["detect", "digest_of", "load_profile", "parse_time", "read_events", "synthesise", "time_form"]
