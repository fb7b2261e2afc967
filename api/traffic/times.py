"""How traffic files write time, and how it becomes microseconds since 1970.

A number without a named unit is recognised by its size: seconds below 1e11 (the year 5138), milliseconds below
1e14, microseconds below 1e17, else nanoseconds. An instant without a zone is taken as UTC. ISO 8601 dates may be
written with slashes (`2015/01/31`). Other forms are described by a pattern of `datetime.strptime`.
"""

from __future__ import annotations

import datetime as dt
import enum
import re
import warnings

from callboard.message import EPOCH, MICROSECOND, TIME_US_MAX

_NUMBER = re.compile(r"(\d{1,20})(?:\.(\d{1,20}))?")
_CLF = re.compile(r"\[?(\d{2})/(\w{3})/(\d{4}):(\d{2}):(\d{2}):(\d{2}) ([+-])(\d{2})(\d{2})\]?", re.ASCII)
_FRACTION = re.compile(r"([.,]\d{6})\d+")
_SLASHES = re.compile(r"(\d{4})/(\d{2})/(\d{2})(?!\d)", re.ASCII)
_MONTHS = {
    name: number
    for number, name in enumerate(
        ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"], start=1
    )
}
_SHOWN = 40
_EXAMPLE = "%d/%m/%Y %H:%M:%S"


class TimeFormat(enum.Enum):
    """How a time is written; `AUTO` recognises numbers, ISO 8601 and the access logs' form."""

    AUTO = "auto"
    SECONDS = "s"
    MILLISECONDS = "ms"
    MICROSECONDS = "us"
    ISO = "iso"
    CLF = "clf"


TimeForm = TimeFormat | str
"""A known form, or a pattern of `datetime.strptime`, as in `%d/%m/%Y %H:%M:%S`."""

_PATTERN_SAMPLE = dt.datetime(2024, 11, 27, tzinfo=dt.UTC)
_DIGITS_BELOW_SECOND = {TimeFormat.SECONDS: 0, TimeFormat.MILLISECONDS: 3, TimeFormat.MICROSECONDS: 6}


def time_form(text: str) -> TimeForm:
    """The form named by `text`: the value of a `TimeFormat`, or a pattern with a whole date in it.

    Raises ValueError, in words for people, for anything else.
    """
    if "%" not in text:
        try:
            return TimeFormat(text)
        except ValueError:
            known = ", ".join(form.value for form in TimeFormat)
            raise ValueError(
                f"{text[:_SHOWN]!r} is none of {known}, nor a pattern like {_EXAMPLE!r}"
            ) from None
    text = text.strip()  # as each time is
    try:
        with warnings.catch_warnings():
            # From Python 3.13 on, a day without a year warns: that is refused below.
            warnings.simplefilter("ignore", DeprecationWarning)
            read = dt.datetime.strptime(_PATTERN_SAMPLE.strftime(text), text)  # noqa: DTZ007 # only its date counts
    except (ValueError, re.error) as error:
        raise ValueError(f"{text[:_SHOWN]!r} is not a pattern of times: {str(error)[:80]}") from None
    if read.date() != _PATTERN_SAMPLE.date():
        raise ValueError(
            f"the pattern {text[:_SHOWN]!r} lacks part of the date: it needs year, month and day"
        )
    return text


def parse_time(text: str, form: TimeForm = TimeFormat.AUTO) -> int:
    """Microseconds since 1970 (UTC). Raises ValueError, in words for people, for anything else."""
    text = text.strip()
    if not isinstance(form, TimeFormat):
        time_us = _from_pattern(text, form)
    elif form is TimeFormat.AUTO:
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
        return _from_clf(text) if "/" in text and not _SLASHES.match(text) else _from_iso(text)
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
        raise ValueError(
            f"{text[:_SHOWN]!r} is not a time like 01/Aug/1995:00:00:01 -0400. Describe its form (--time-format"
            f" {_EXAMPLE!r})"
        )
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
        moment = dt.datetime.fromisoformat(_FRACTION.sub(r"\1", _SLASHES.sub(r"\1-\2-\3", text), count=1))
    except ValueError:
        raise ValueError(
            f"{text[:_SHOWN]!r} is not a time in a form known here. Describe it (--time-format {_EXAMPLE!r})"
        ) from None
    return _since_epoch(moment)


def _from_pattern(text: str, pattern: str) -> int:
    try:
        moment = dt.datetime.strptime(text, pattern)  # noqa: DTZ007 # a time without a zone is taken as UTC
    except ValueError:
        raise ValueError(f"{text[:_SHOWN]!r} is not a time like {pattern[:_SHOWN]!r}") from None
    return _since_epoch(moment)


def _since_epoch(moment: dt.datetime) -> int:
    # Differences of local times, the offset taken off afterwards: nothing leaves datetime's years.
    since = moment.replace(tzinfo=dt.UTC) - EPOCH
    return (since - (moment.utcoffset() or dt.timedelta())) // MICROSECOND
