"""One line of traffic in each known format, sans I/O: bytes in, an `Event` out, or `BadLine` with the reason.

The value of an event is the whole line as it was written, unless a value column is named. Keys are the client's
host in access logs, and the key column elsewhere. An event whose key field is absent, null or empty has no key.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from callboard.log.errors import InvalidArgument
from callboard.traffic.event import Event
from callboard.traffic.times import TimeForm, TimeFormat, parse_time

TIME_COLUMNS = ("time", "timestamp", "@timestamp", "ts", "datetime", "date")
KEY_COLUMNS = ("host", "key", "client", "client_ip", "remote_addr", "ip", "user", "id")
_KEY_BYTES_MAX = 4096
_ABSENT = object()
_NUMBER_BITS_MAX = 128

_QUOTED = rb'"(?:[^"\\]|\\.)*"'
_COMMON = (
    rb"(?P<host>\S+) \S+ (?P<user>.+?) \[(?P<time>[^\]]{1,40})\] " + _QUOTED + rb" (?:\d{3}|-) (?:\d+|-)"
)
COMMON = re.compile(_COMMON)
COMBINED = re.compile(_COMMON + rb" " + _QUOTED + rb" " + _QUOTED + rb".*")
VHOST = re.compile(rb"(?P<vhost>\S+) (?!- )" + _COMMON + rb"(?: .*)?")
BEGINS_WITH_VHOST = re.compile(
    rb"\S+:\d{1,5} (?!- )|\S+ (?:(?:\d{1,3}\.){3}\d{1,3}|[\da-fA-F]*:[\da-fA-F:.]+) \S+ \S+ \["
)
"""A host with a port, or something before an address where a client's identity is expected: else it is the client."""
SYSLOG = re.compile(
    rb"(?:<\d{1,3}>)?(?:1 (?P<new>\S+)|(?P<old>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d)"
    rb"|(?P<iso>\d{4}-\d\d-\d\dT[\d:]+(?:[.,]\d+)?(?:Z|[+-][\d:]+)?))"
    rb" (?P<host>\S+)(?: (?P<app>[^\s:\[]+)?(?:\[[^\]]*\])?(?:[: ].*)?)?"
)
TIMED = re.compile(
    rb"(?P<open>[\[(])?(?P<time>\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?|\d{9,20}(?:\.\d{1,20})?)"
    rb"(?: ?(?P<zone>Z|UTC|GMT|[+-]\d\d:?\d\d))?(?(open)[\])]|)(?:[\s:](?P<text>.*))?"
)
"""What programs write by default: an instant, maybe in brackets, and anything behind it."""
_UTC = (b"UTC", b"GMT")
_NIL = b"-"
"""Stands for what syslog does not know."""


class BadLine(ValueError):
    """The line is not what its format promises; the text says why."""


@attrs.frozen
class LineColumns:
    """Which columns (or JSON fields) hold what. A number counts from 1; None takes the first known name."""

    time: str | None = None
    key: str | None = None
    value: str | None = None
    time_format: TimeForm = TimeFormat.AUTO
    delimiter: str | None = None
    """What separates the fields of CSV: one character; None for a comma."""
    year: int | None = None
    """Of syslog lines whose times have none."""
    records: str | None = None
    """The file is one JSON object: the name of its member, an array, whose elements are the records."""
    keeps_empty_keys: bool = False
    """Whether an empty key field is the key `b""`; else the event has no key."""


Parse = Callable[[bytes], Event | None]
"""Gives the event on a line, None for a line that rightly holds no event, such as a header. Raises `BadLine`."""


def access_log(pattern: re.Pattern[bytes], columns: LineColumns) -> Parse:
    """For the common log format, the combined one that appends referer and user agent, and either behind the name of a
    virtual host.
    """
    key, begins = columns.key or "host", "vhost " if "vhost" in pattern.groupindex else ""

    def parse(line: bytes) -> Event:
        matched = pattern.fullmatch(line)
        if matched is None:
            raise BadLine(f"not an access log line ({begins}host ident user [time] request status bytes ...)")
        return Event(_time(matched["time"].decode("latin-1"), TimeFormat.CLF), _key(matched[key]), line)

    return parse


def syslog(columns: LineColumns) -> Parse:
    """For syslog as RFC 5424 and RFC 3164 write it, with or without the priority, and with times in ISO 8601.

    A line may lack the name of the process; where that is the key, it has none.
    """
    name = columns.key or "host"

    def key_of(matched: re.Match[bytes]) -> bytes | None:
        found: bytes | None = matched[name]
        return None if found in (None, _NIL) else _key(found)

    def parse(line: bytes) -> Event:
        matched = SYSLOG.fullmatch(line)
        if matched is None:
            raise BadLine("not a syslog line (<priority>time host app[process]: message)")
        key = key_of(matched)
        if matched["old"] is None:
            time = (matched["new"] or matched["iso"]).decode("latin-1")
            return Event(_time(time, TimeFormat.ISO), key, line)
        if columns.year is None:
            raise BadLine("the time has no year: name one (--year)")
        month, day, clock = matched["old"].decode().split()
        time = f"{int(day):02d}/{month}/{columns.year:04d}:{clock} +0000"
        return Event(_time(time, TimeFormat.CLF), key, line)

    return parse


def timed(columns: LineColumns) -> Parse:
    """For lines that begin with their time. The key is one of the words behind it, if its number is named."""
    place = None if columns.key is None else int(columns.key)

    def parse(line: bytes) -> Event:
        matched = TIMED.fullmatch(line)
        if matched is None:
            raise BadLine("does not begin with a time (2026-05-01 12:00:00 text)")
        zone = matched["zone"] or b""
        time = (matched["time"] + (b"Z" if zone in _UTC else zone)).decode("latin-1")
        words = [] if place is None else (matched["text"] or b"").split(maxsplit=place)
        key = words[place - 1] if place is not None and place <= len(words) else None
        return Event(_time(time, TimeFormat.AUTO), None if key is None else _key(key), line)

    return parse


def json_lines(columns: LineColumns) -> Parse:
    """For one JSON object per line."""

    def parse(line: bytes) -> Event:
        try:
            members = json.loads(line)
        except json.JSONDecodeError as error:  # its own words tell a line, which is always the first
            raise BadLine(f"not JSON: {error.msg[:80]}, at character {error.colno}") from None
        except (ValueError, RecursionError) as error:
            raise BadLine(f"not JSON: {str(error)[:80]}") from None
        if not isinstance(members, dict):
            raise BadLine("not a JSON object")
        time = _text(_required_member(members, columns.time, TIME_COLUMNS, "time"), "time")
        if time is None:
            raise BadLine("the time is null")
        text = _text(_member(members, columns.key, KEY_COLUMNS), "key")
        key = None
        if text or (text is not None and columns.keeps_empty_keys):
            key = _key(text.encode("utf-8", "surrogatepass"))
        value = (
            line
            if columns.value is None
            else _json_value(_required_member(members, columns.value, (), "value"))
        )
        return Event(_time(time, columns.time_format), key, value)

    return parse


class DelimitedLines:
    """Lines of separated fields: CSV, with quotes, or TSV, without any quoting.

    The first line is a header unless all columns are given by number and its time is a time.
    """

    def __init__(self, columns: LineColumns, *, separator: str, is_quoted: bool = True) -> None:
        self._columns = columns
        self._separator = separator
        self._is_quoted = is_quoted
        self._width = 0
        """How many fields a line has at least; 0 until the columns were found."""
        self._time = 0
        self._key: int | None = None
        self._value: int | None = None

    def __call__(self, line: bytes) -> Event | None:
        """See `Parse`."""
        fields = self._split(line)
        if not self._width and self._find_columns(fields):
            return None
        if len(fields) < self._width:
            raise BadLine(f"{len(fields)} fields where column {self._width} is needed")
        key, value = None, line
        if self._key is not None and (fields[self._key] or self._columns.keeps_empty_keys):
            key = _key(fields[self._key].encode("utf-8", "surrogateescape"))
        if self._value is not None:
            value = fields[self._value].encode("utf-8", "surrogateescape")
        return Event(_time(fields[self._time], self._columns.time_format), key, value)

    def _split(self, line: bytes) -> list[str]:
        text = line.decode("utf-8", "surrogateescape")
        if not self._is_quoted or '"' not in text:
            return text.split(self._separator)
        try:
            return next(csv.reader([text], delimiter=self._separator, strict=True), [])
        except csv.Error as error:
            why = "a quoted field is not closed" if "end of data" in str(error) else str(error)
            raise BadLine(f"not CSV: {why}") from None

    def _find_columns(self, fields: Sequence[str]) -> bool:
        """Find the columns; True when `fields` is a header."""
        names = {name.strip().lower(): index for index, name in reversed(list(enumerate(fields)))}
        columns = self._columns
        time = _column(names, columns.time, TIME_COLUMNS)
        if time is None:
            listed = ", ".join(fields)[:200]
            raise InvalidArgument(f"the first line names no time column ({listed}). Name one: --time-column.")
        self._time = time
        self._key, self._value = _column(names, columns.key, KEY_COLUMNS), _column(names, columns.value, ())
        self._width = max(time, self._key or 0, self._value or 0) + 1
        chosen = [name for name in (columns.time, columns.key, columns.value) if name is not None]
        if columns.time is None or not all(name.isdecimal() for name in chosen) or len(fields) < self._width:
            return True
        try:
            parse_time(fields[self._time], columns.time_format)
        except ValueError:
            return True
        return False


def _column(names: Mapping[str, int], wanted: str | None, known: Sequence[str]) -> int | None:
    """The index of the wanted column, by its name or number from 1; without any, of the first known one."""
    if wanted is None:
        return next((names[name] for name in known if name in names), None)
    if wanted.lower() in names:
        return names[wanted.lower()]
    if wanted.isdecimal() and len(wanted) < 6 and int(wanted) > 0:
        return int(wanted) - 1
    listed = ", ".join(sorted(names, key=names.__getitem__))[:200]
    raise InvalidArgument(f"there is no column {wanted!r}; the first line has: {listed}.")


def _member(members: Mapping[str, Any], wanted: str | None, known: Sequence[str]) -> Any:
    """The wanted member of a JSON object, dots leading into others, or the first known one; else `_ABSENT`."""
    if wanted is None:
        return next((members[name] for name in known if name in members), _ABSENT)
    if wanted in members:
        return members[wanted]
    found: Any = members
    for part in wanted.split("."):
        found = found.get(part, _ABSENT) if isinstance(found, dict) else _ABSENT
    return found


def _required_member(members: Mapping[str, Any], wanted: str | None, known: Sequence[str], what: str) -> Any:
    found = _member(members, wanted, known)
    if found is _ABSENT:
        raise BadLine(f"no {what} field" if wanted is None else f"no field {wanted!r} for the {what}")
    return found


def _text(value: Any, what: str) -> str | None:
    if value is None or value is _ABSENT:
        return None
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        if value.bit_length() > _NUMBER_BITS_MAX:
            raise BadLine(f"the {what} is a number of {value.bit_length()} bits")
        return str(value)
    if not isinstance(value, float) or not math.isfinite(value):
        raise BadLine(f"the {what} is neither text nor a number")
    return repr(value)


def _json_value(value: Any) -> bytes:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass")


def _key(key: bytes) -> bytes:
    if len(key) > _KEY_BYTES_MAX:
        raise BadLine(f"the key has {len(key)} bytes, more than {_KEY_BYTES_MAX}")
    return key


def _time(text: str, form: TimeForm) -> int:
    try:
        return parse_time(text, form)
    except ValueError as error:
        raise BadLine(str(error)) from None
