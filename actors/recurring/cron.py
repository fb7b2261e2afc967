"""When a schedule is due: rules that name due instants, from a cron expression or a number of seconds. Pure.

Instants are microseconds since 1970. A rule remembers nothing: given an instant it tells the first one after it. The
expression itself is read by cronsim, which is only asked for wall times of a calendar without time zones; what they
mean in a zone is decided here.

Vocabulary
----------
wall time    what a clock in the zone shows. When clocks go forward some do not exist: the *gap*. When they go back some
             exist twice.
times of day an expression names these when none of its fields for second, minute and hour begins with `*`.

Invariants
----------
CR1  `after(instant)` is later than `instant`, and there is no due instant between the two.
CR2  Times of day: each wall time that matches is due once: the first time that it exists; one in the gap, at its end.
CR3  Other expressions: due is each instant at which the zone's clock shows a wall time that matches.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final, Protocol

from cronsim import CronSim, CronSimError

from callboard.log.errors import InvalidArgument
from callboard.log.limits import CRON_LETTERS_MAX, MISSED_COUNTED_MAX, YEAR_MAX
from callboard.log.plain import shown, text

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND: Final = timedelta(microseconds=1)
SECOND: Final = timedelta(seconds=1)
WEEK: Final = timedelta(days=7)
"""No zone changes its clocks twice within it, so that they are as before."""
LATEST: Final = datetime(YEAR_MAX, 1, 1, tzinfo=UTC)
LATEST_US: Final = (LATEST - EPOCH) // MICROSECOND
CHANGES_MAX: Final = 1000
"""Changes of a zone's clocks that are looked through for the next due instant."""
FIELDS: Final = {
    "second": "0 to 59",
    "minute": "0 to 59",
    "hour": "0 to 23",
    "day-of-month": "1 to 31, L or LW",
    "month": "1 to 12, or JAN to DEC",
    "day-of-week": "0 to 7 (0 and 7 are Sunday), or SUN to SAT, with L or #1 to #5",
}
"""What each may hold."""
SINGLE: Final = re.compile(r"(?<![\w*-])(\w+)-\1/\d+(?!\w)")
"""A range of one value, with a step."""
ALLOWED: Final = re.compile(r"[0-9A-Za-z*/,#\-]+")


class Rule(Protocol):
    """Names due instants."""

    def after(self, instant_us: int) -> int | None:
        """The first due instant later than this one; None when there is none any more."""

    def count(self, after_us: int, until_us: int) -> int:
        """How many due instants are in `(after_us, until_us]`: all, or at least `MISSED_COUNTED_MAX` of them."""


class Every:
    """Instants so far apart from one another, one of them a given one."""

    def __init__(self, every_us: int, anchor_us: int) -> None:
        self._every_us = every_us
        self._anchor_us = anchor_us

    def after(self, instant_us: int) -> int | None:
        """See `Rule`."""
        due_us = self._anchor_us + (self._passed(instant_us) + 1) * self._every_us
        return None if due_us > LATEST_US else due_us

    def count(self, after_us: int, until_us: int) -> int:
        """See `Rule`."""
        return max(0, self._passed(min(until_us, LATEST_US)) - self._passed(after_us))

    def _passed(self, instant_us: int) -> int:
        """How many due instants lie behind the given one at this instant, itself included; negative before it."""
        return (instant_us - self._anchor_us) // self._every_us


class Cron:
    """A cron expression in a zone. Raises `InvalidArgument` for one that is wrong, or never due."""

    def __init__(self, expression: str, zone: tzinfo) -> None:
        self._expression = check_cron(expression)
        self._read = as_read(self._expression)
        self._zone = zone
        *_, minute, hour, _, _, _ = fields = self._expression.split()
        of_seconds = fields[0] if len(fields) == 6 else "0"
        self.names_times_of_day = not any(each.startswith("*") for each in (of_seconds, minute, hour))

    def after(self, instant_us: int) -> int | None:
        """See `Rule`."""
        at = EPOCH + instant_us // 1_000_000 * SECOND
        if at > LATEST:
            return None
        found = self._time_of_day_after(at) if self.names_times_of_day else self._shown_after(at)
        return None if found is None else (found - EPOCH) // MICROSECOND

    def count(self, after_us: int, until_us: int) -> int:
        """See `Rule`."""
        return len(dues(self, after_us, until_us, MISSED_COUNTED_MAX))

    def _time_of_day_after(self, at: datetime) -> datetime | None:
        """CR2. Instants never fall while wall times rise, but they may be equal, and before `at`."""
        for wall in CronSim(self._read, self._wall(at)):
            instant = self._first_instant(wall)
            if instant > at:
                return instant
        return None

    def _first_instant(self, wall: datetime) -> datetime:
        """When a clock in the zone shows the wall time for the first time; for one in the gap, the end of the gap."""
        instant = wall.replace(tzinfo=self._zone).astimezone(UTC)
        if self._wall(instant) == wall:
            return instant
        earlier = wall.replace(tzinfo=self._zone, fold=1).astimezone(UTC)
        return self._change(earlier, instant) or instant

    def _shown_after(self, at: datetime) -> datetime | None:
        """CR3. Between two changes of the zone's clocks wall times and instants differ by a constant."""
        offset, wall = self._offset(at), self._wall(at)
        for _ in range(CHANGES_MAX):
            shown = next(CronSim(self._read, wall), None)
            if shown is None:
                return None
            instant = (shown - offset).replace(tzinfo=UTC)
            change = self._change(at, instant)
            if change is None:
                return instant
            at, offset = change, self._offset(change)
            wall = self._wall(change) - SECOND  # the change itself may be due
        return None

    def _wall(self, at: datetime) -> datetime:
        return at.astimezone(self._zone).replace(tzinfo=None, fold=0)

    def _offset(self, at: datetime) -> timedelta:
        return at.astimezone(self._zone).utcoffset() or timedelta()

    def _change(self, after: datetime, until: datetime) -> datetime | None:
        """The first instant in `(after, until]` at which the zone's clocks differ from those at `after`."""
        offset, low = self._offset(after), after
        while low < until:
            high = min(low + WEEK, until)
            if self._offset(high) != offset:
                while high - low > SECOND:
                    middle = low + (high - low) // (2 * SECOND) * SECOND
                    low, high = (middle, high) if self._offset(middle) == offset else (low, middle)
                return high
            low = high
        return None


def check_cron(expression: object) -> str:
    """The expression, if it is one. Raises `InvalidArgument`: which field is wrong, and what it may hold."""
    words = text(expression)
    if words is None:
        raise InvalidArgument(
            f'cron is {shown(expression, 40)}, not an expression such as "0 9 * * MON-FRI". Nothing was changed.'
        )
    found, names = words.upper().split(), list(FIELDS)
    if len(found) not in (5, 6) or len(words) > CRON_LETTERS_MAX:
        hint = " Write @daily as `0 0 * * *`, @hourly as `0 * * * *`." if words.startswith("@") else ""
        raise InvalidArgument(
            f"cron {shown(words)} has {len(found)} fields and {len(words)} letters. Nothing was changed. Write"
            f" five fields in at most {CRON_LETTERS_MAX} letters: minute, hour, day of the month, month, day of the"
            f" week; or six, the first one for seconds.{hint}"
        )
    for name, field in zip(names[-len(found) :], found, strict=True):
        _check_field(words, name, field)
    try:
        words = as_read(" ".join(found))
        first = next(CronSim(words, datetime(2000, 1, 1)), None)  # noqa: DTZ001 - a calendar without zones
    except CronSimError:
        first = None
    if first is None:
        raise InvalidArgument(
            f"cron {shown(expression)} is never due: the calendar has no such day (day of month {found[-3]!r:.20},"
            f" month {found[-2]!r:.20}, day of week {found[-1]!r:.20}). Nothing was changed. Name a day that exists."
        )
    return " ".join(found)


def as_read(expression: str) -> str:
    """The same for the library, which takes a range of one value with a step, `5-5/10`, for one to the field's end."""
    return SINGLE.sub(r"\1", expression)


def _check_field(expression: str, name: str, field: str) -> None:
    """Alone in an expression of which all else is right."""
    alone = ["*"] * 6
    alone[list(FIELDS).index(name)] = field
    problem = ALLOWED.fullmatch(field) is None
    try:
        CronSim(" ".join(alone), datetime(2000, 1, 1))  # noqa: DTZ001 - a calendar without zones
    except (CronSimError, AssertionError):  # it asserts for some steps behind days of the week
        problem = True
    if problem:
        raise InvalidArgument(
            f"cron {shown(expression)}: its field for the {name.replace('-', ' ')} is {shown(field, 40)}. Nothing was"
            f" changed. It may hold {FIELDS[name]}; * for all, ranges 1-5, lists 1,3,5 and steps */2."
        )


def dues(rule: Rule, after_us: int, until_us: int, limit: int) -> list[int]:
    """The first due instants in `(after_us, until_us]`, at most `limit`."""
    found: list[int] = []
    while len(found) < limit:
        due = rule.after(after_us)
        if due is None or due > until_us:
            break
        found.append(due)
        after_us = due
    return found


def latest(rule: Rule, after_us: int, until_us: int) -> int | None:
    """The last due instant in `(after_us, until_us]`; None without one. It takes few steps, however long that is."""
    low = until_us
    step = 1_000_000
    while True:
        if low <= after_us:
            return None
        low = max(after_us, until_us - step)
        found = rule.after(low)
        if found is not None and found <= until_us:
            break
        step *= 4
    low, high = found, until_us
    while (later := rule.after(low)) is not None and later <= until_us:
        middle = (later + high) // 2
        beyond = rule.after(middle)
        if beyond is not None and beyond <= until_us:
            low = beyond
        else:
            low, high = later, middle
    return low
