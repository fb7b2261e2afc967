"""How traffic files write time, and how it becomes microseconds since 1970.

A number without a named unit is told by its size: seconds below 1e11 (the year 5138), milliseconds below
1e14, microseconds below 1e17, else nanoseconds. An ISO 8601 instant without a zone is taken as UTC.
"""

from __future__ import annotations

import datetime as dt
import enum
import re

from callboard.message import EPOCH, MICROSECOND
from callboard.recordings.event import TIME_US_MAX

_NUMBER = re.compile(r"(\d{1,20})(?:\.(\d{1,20}))?")
_CLF = re.compile(r"\[?(\d{2})/(\w{3})/(\d{4}):(\d{2}):(\d{2}):(\d{2}) ([+-])(\d{2})(\d{2})\]?", re.ASCII)
_FRACTION = re.compile(r"([.,]\d{6})\d+")
_MONTHS = {
    name: number
    for number, name in enumerate(
        ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"], start=1
    )
}
_SHOWN = 40


class TimeFormat(enum.Enum):
    """How a time is written; `AUTO` tells numbers, ISO 8601 and the access logs' form apart by looks."""

    AUTO = "auto"
    SECONDS = "s"
    MILLISECONDS = "ms"
    MICROSECONDS = "us"
    ISO = "iso"
    CLF = "clf"


_DIGITS_BELOW_SECOND = {TimeFormat.SECONDS: 0, TimeFormat.MILLISECONDS: 3, TimeFormat.MICROSECONDS: 6}


def parse_time(text: str, form: TimeFormat = TimeFormat.AUTO) -> int:
    """Microseconds since 1970 (UTC). Raises ValueError, in words for people, for anything else."""
    text = text.strip()
    if form is TimeFormat.AUTO:
        time_us = _guess(text)
    elif form is TimeFormat.CLF:
        time_us = _from_clf(text)
    elif form is TimeFormat.ISO:
        time_us = _from_iso(text)
    else:
        time_us = _from_number(text, _DIGITS_BELOW_SECOND[form])
    if not 0 <= time_us <= TIME_US_MAX:
        raise ValueError(f"the time {text[:_SHOWN]!r} lies outside the years 1970 to 9999")
    return time_us


def _guess(text: str) -> int:
    matched = _NUMBER.fullmatch(text)
    if matched is None:
        return _from_clf(text) if "/" in text else _from_iso(text)
    digits = len(matched[1].lstrip("0"))
    if digits <= 11:
        return _from_number(text, 0)
    if digits <= 14:
        return _from_number(text, 3)
    return _from_number(text, 6 if digits <= 17 else 9)


def _from_number(text: str, below_second: int) -> int:
    """A count of seconds times ten to the minus `below_second`, by integers: floats lose microseconds."""
    matched = _NUMBER.fullmatch(text)
    if matched is None:
        raise ValueError(f"{text[:_SHOWN]!r} is not a number of time units")
    whole, fraction = matched[1], matched[2] or ""
    if below_second > 6:
        return int(whole) // 1000
    shift = 6 - below_second
    return int(whole + fraction.ljust(shift, "0")[:shift])


def _from_clf(text: str) -> int:
    matched = _CLF.fullmatch(text)
    if matched is None or matched[2].lower() not in _MONTHS:
        raise ValueError(f"{text[:_SHOWN]!r} is not a time like 01/Aug/1995:00:00:01 -0400")
    day, month, year, hour, minute, second, sign, zone_hours, zone_minutes = matched.groups()
    offset = dt.timedelta(hours=int(zone_hours), minutes=int(zone_minutes))
    try:
        # A leap second (":60") is the first second of the next minute, hence seconds are added apart.
        moment = dt.datetime(
            int(year), _MONTHS[month.lower()], int(day), int(hour), int(minute), tzinfo=dt.UTC
        )
    except ValueError as error:
        raise ValueError(f"{text[:_SHOWN]!r} is not a time: {error}") from None
    if int(second) > 60:
        raise ValueError(f"{text[:_SHOWN]!r} is not a time: second must be in 0..60")
    since = moment - EPOCH + dt.timedelta(seconds=int(second))
    return (since - offset if sign == "+" else since + offset) // MICROSECOND


def _from_iso(text: str) -> int:
    # Python 3.11 takes any number of digits after the point, other versions need not: cut to microseconds.
    try:
        moment = dt.datetime.fromisoformat(_FRACTION.sub(r"\1", text, count=1))
    except ValueError:
        raise ValueError(f"{text[:_SHOWN]!r} is not a time in a form known here") from None
    # Differences of local times, the offset taken off afterwards: nothing leaves datetime's years.
    since = moment.replace(tzinfo=dt.UTC) - EPOCH
    return (since - (moment.utcoffset() or dt.timedelta())) // MICROSECOND
