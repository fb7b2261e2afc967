"""Settings of topics and groups: data tables, checked as a whole before anything is written.

The same names serve as keyword arguments, in configuration files and on the command line. All problems of a set of
settings are reported in one error: unknown names (with the nearest known one), wrong types, values out of range, and
names that belong to a later version.

For type checkers the keyword arguments have names and types too: `TopicOptions` and `GroupOptions` at creation,
`TopicChanges` and `GroupChanges` afterwards. A test holds them to the tables and to the classes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Literal, TypedDict

import attrs

from callboard.actors.names import meant, name_problem
from callboard.log import limits
from callboard.log.errors import ConfigurationError, NotInThisVersion
from callboard.log.plain import (
    EPOCH,
    MICROSECOND,
    instant,
    is_a,
    items,
    number,
    shown,
    text,
    utc_us,
    wall,
    whole,
)

YEAR_S: Final = 366 * 86_400.0

Codec = Literal["none", "gzip", "zstd"]
"""The codec of new batches."""
GroupMode = Literal["shared", "exclusive"]
"""How the messages of a group are shared among its consumers."""
Distribution = Literal["round-robin", "least-busy", "random"]
"""Which of a group's consumers that wait for a message gets the next one."""
Ordering = Literal["none", "key", "partition"]
"""Which messages of a group wait for each other within a partition."""
Start = int | Literal["beginning", "end"] | datetime
"""Where reading starts: an offset, one of the two ends, or a zoned datetime (by append time)."""


@attrs.frozen
class SettingField:
    """How one setting is checked: its kind, its range (inclusive), and whether None is a value of its own."""

    kind: str
    low: float = 0
    high: float = 0
    optional: bool = False
    fixed: bool = False
    """Whether it keeps the value that it was created with."""
    choices: tuple[str, ...] = ()
    meaning: str = ""


TOPIC_FIELDS: Final[dict[str, SettingField]] = {
    "partitions": SettingField(
        "int", 1, limits.PARTITIONS_MAX, fixed=True, meaning="how many partitions; fixed once created"
    ),
    "segment_bytes": SettingField(
        "int", limits.SEGMENT_BYTES_MIN, limits.SEGMENT_BYTES_MAX, meaning="a segment is rolled at this size"
    ),
    "segment_age": SettingField(
        "seconds", 1, 10 * YEAR_S, optional=True, meaning="a segment is rolled at this age"
    ),
    "retention_age": SettingField(
        "seconds", 1, 100 * YEAR_S, optional=True, meaning="segments older than this are dropped"
    ),
    "retention_bytes": SettingField(
        "int", limits.SEGMENT_BYTES_MIN, 2**60, optional=True, meaning="bytes kept per partition"
    ),
    "drop_unread": SettingField("bool", meaning="retention may drop what a durable group has not settled"),
    "compression": SettingField("choice", choices=("none", "gzip", "zstd"), meaning="codec of new batches"),
    "max_message_bytes": SettingField(
        "int", 1, limits.MESSAGE_BYTES_MAX, meaning="largest value, key and headers together"
    ),
    "dedup_window": SettingField(
        "seconds", 0.001, YEAR_S, optional=True, meaning="how long a deduplication id is remembered"
    ),
    "priorities": SettingField("bool", fixed=True, meaning="messages have priorities; fixed once created"),
    "default_ttl": SettingField(
        "seconds",
        0.001,
        100 * YEAR_S,
        optional=True,
        meaning="a message without a ttl of its own expires after this",
    ),
}
GROUP_FIELDS: Final[dict[str, SettingField]] = {
    "mode": SettingField(
        "choice",
        fixed=True,
        choices=("shared", "exclusive"),
        meaning="whether consumers share all partitions, or own some each",
    ),
    "distribution": SettingField(
        "choice",
        choices=("round-robin", "least-busy", "random"),
        meaning="shared groups: which of the consumers that wait gets the next message",
    ),
    "ordering": SettingField(
        "choice",
        fixed=True,
        choices=("none", "key", "partition"),
        meaning="which messages wait for each other within a partition",
    ),
    "visibility_timeout": SettingField("seconds", 0.01, 30 * 86_400.0, meaning="how long a lease lasts"),
    "max_deliveries": SettingField(
        "int",
        1,
        1_000_000,
        optional=True,
        meaning="a message that failed so often is not delivered again, but kept as a dead letter",
    ),
    "dead_letter_topic": SettingField(
        "name",
        optional=True,
        meaning="the topic that dead letters are forwarded to; without one their partitions keep them",
    ),
    "dead_letter_expired": SettingField(
        "bool", meaning="a message that expires unhandled becomes a dead letter, too"
    ),
    "priority_window": SettingField(
        "int",
        1,
        limits.RANGE_RECORDS_MAX,
        fixed=True,
        meaning="among so many unsettled messages of a partition the highest priority comes first",
    ),
    "starvation_after": SettingField(
        "seconds",
        0.001,
        YEAR_S,
        optional=True,
        fixed=True,
        meaning="a message that has waited for this long comes before those of higher priorities",
    ),
    "max_in_flight": SettingField("int", 1, 1_000_000, meaning="messages a consumer may hold unsettled"),
    "rebalance_timeout": SettingField(
        "seconds",
        0,
        86_400.0,
        meaning="exclusive groups: how long a consumer may take to let go of a partition that another is to own",
    ),
    "session_timeout": SettingField(
        "seconds",
        0.01,
        YEAR_S,
        optional=True,
        meaning="exclusive groups: a consumer that does nothing for this long while messages wait loses its partitions",
    ),
    "group_expiry": SettingField(
        "seconds", 1, 100 * YEAR_S, optional=True, meaning="a group without members is expired after this"
    ),
    "start": SettingField(
        "start", fixed=True, meaning='where a new group starts: "beginning", "end", an offset or an instant'
    ),
    "durable": SettingField("bool", fixed=True, meaning="whether the group outlives its last consumer"),
    "backoff": SettingField(
        "seconds", 0, 86_400.0, meaning="first delay after a failed body; doubles per attempt"
    ),
    "max_backoff": SettingField("seconds", 0, 30 * 86_400.0, meaning="longest delay after a failed body"),
    "retry": SettingField(
        "delays",
        0,
        30 * 86_400.0,
        optional=True,
        meaning="delay after each failed body, or after the first, the second, ... and all later ones; instead of"
        " `backoff`",
    ),
}
LATER: Final = {
    "topic": frozenset({"compaction", "archive", "compression_level"}),
    "group": frozenset({"filter"}),
}
"""Settings that are planned and not built."""


class TopicChanges(TypedDict, total=False):
    """The settings of a topic that `Runtime.alter_topic` takes."""

    segment_bytes: int
    segment_age: float | None
    retention_age: float | None
    retention_bytes: int | None
    drop_unread: bool
    compression: Codec
    max_message_bytes: int
    dedup_window: float | None
    default_ttl: float | None


class TopicOptions(TopicChanges, total=False):
    """The settings of a topic that `Runtime.create_topic` takes."""

    partitions: int
    priorities: bool


class GroupChanges(TypedDict, total=False):
    """The settings of a group that `Group.alter` takes."""

    distribution: Distribution
    visibility_timeout: float
    max_deliveries: int | None
    dead_letter_topic: str | None
    dead_letter_expired: bool
    max_in_flight: int
    rebalance_timeout: float
    session_timeout: float | None
    group_expiry: float | None
    backoff: float
    max_backoff: float
    retry: float | Sequence[float] | None


class GroupOptions(GroupChanges, total=False):
    """The settings of a group that `Topic.subscribe` and `Runtime.subscribe` take."""

    mode: GroupMode
    ordering: Ordering
    start: Start
    durable: bool
    priority_window: int
    starvation_after: float | None


@attrs.frozen(kw_only=True)
class TopicSettings:
    """Settings of a topic; durations in seconds, sizes in bytes."""

    partitions: int = 1
    segment_bytes: int = limits.SEGMENT_BYTES_DEFAULT
    segment_age: float | None = None
    retention_age: float | None = None
    retention_bytes: int | None = None
    drop_unread: bool = False
    compression: Codec = "none"
    max_message_bytes: int = limits.MESSAGE_BYTES_DEFAULT
    dedup_window: float | None = None
    default_ttl: float | None = None
    priorities: bool = False

    @property
    def default_ttl_us(self) -> int | None:
        """The time to live in microseconds."""
        return None if self.default_ttl is None else round(self.default_ttl * 1_000_000)

    @property
    def dedup_window_us(self) -> int | None:
        """The window in microseconds."""
        return None if self.dedup_window is None else round(self.dedup_window * 1_000_000)

    @property
    def ages(self) -> bool:
        """Whether something becomes due with age alone."""
        return self.segment_age is not None or self.retention_age is not None


@attrs.frozen(kw_only=True)
class GroupSettings:
    """Settings of a consumer group; durations in seconds."""

    mode: GroupMode = "shared"
    distribution: Distribution = "round-robin"
    ordering: Ordering = "none"
    visibility_timeout: float = 30.0
    max_deliveries: int | None = None
    dead_letter_topic: str | None = None
    dead_letter_expired: bool = False
    max_in_flight: int = 10_000
    rebalance_timeout: float = 60.0
    session_timeout: float | None = 300.0
    group_expiry: float | None = 7 * 86_400.0
    start: Start = "beginning"
    durable: bool = True
    backoff: float = 1.0
    max_backoff: float = 60.0
    priority_window: int = limits.RANGE_RECORDS_MAX
    starvation_after: float | None = None
    retry: float | Sequence[float] | None = None


Checked = tuple[Any, str | None]
"""A value as plain data, and what is wrong with it."""


def _checked(field: SettingField, name: str, value: object) -> Checked:
    if value is None:
        return None, None if field.optional else f"{name} may not be None"
    if field.kind == "bool":
        return value, None if type(value) is bool else f"{name} is {shown(value)}, not True or False"
    if field.kind == "choice":
        word = text(value)
        if word in field.choices:
            return word, None
        return (
            None,
            f"{name} is {shown(value)}, not one of {', '.join(field.choices)}{meant(word, field.choices)}",
        )
    if field.kind == "start":
        return checked_start(name, value)
    if field.kind == "delays" and is_a(value, Sequence):
        return _checked_delays(field, name, value)
    if field.kind == "name":
        problem = name_problem(value)
        return text(
            value
        ), None if problem is None else f"{name} is {shown(value)}, no name of a topic: {problem}"
    found = whole(value) if field.kind == "int" else number(value)
    if found is None:
        return (
            None,
            f"{name} is {shown(value)}, not {'an integer' if field.kind == 'int' else 'a number of seconds'}",
        )
    if type(found) is float and not math.isfinite(found):
        return None, f"{name} is {found!r}, not a finite number"
    if not field.low <= found <= field.high:
        return None, f"{name} is {_told(found)}, outside {_bound(field.low)} to {_bound(field.high)}"
    return found, None


def _told(value: float) -> str:
    return repr(value) if abs(value) < 10**20 else "an enormous number"


def _bound(value: float) -> str:
    return f"{int(value):,}" if value == int(value) else f"{value:g}"


def _checked_delays(field: SettingField, name: str, value: object) -> Checked:
    found = items(value, limits.RETRIES_MAX)
    if found is None or not 0 < len(found) <= limits.RETRIES_MAX:
        return None, f"{name} is {shown(value)}, not seconds, or a list of 1 to {limits.RETRIES_MAX} of them"
    if any(each is None for each in found):
        return None, f"{name} is {shown(value)}, and each of a list is a number of seconds"
    one = attrs.evolve(field, kind="seconds")
    checked = [_checked(one, f"{name}[{index}]", each) for index, each in enumerate(found)]
    problem = next((problem for _, problem in checked if problem is not None), None)
    return tuple(each for each, _ in checked), problem


def checked_start(name: str, value: object) -> Checked:
    """Where to start, and why `value` does not say where."""
    offset, word, moment = whole(value), text(value), instant(value)
    if offset is not None:
        if offset < 0:
            least = 'and offsets begin at 0: "beginning" is the oldest message that is kept'
            return None, f"{name} is {_told(offset)}, {least}"
        return offset, None if offset < 2**63 else f"{name} is {_told(offset)}, not an offset"
    if moment is not None:
        found = utc_us(moment)
        if isinstance(found, str):
            return None, f"{name} is {wall(moment)}, which {found}"
        return EPOCH + found * MICROSECOND, None
    if word in ("beginning", "end"):
        return word, None
    near = meant(word, ("beginning", "end"))
    return None, f'{name} is {shown(value)}, not "beginning", "end", an offset or a zoned datetime{near}'


def check(
    kind: str,
    fields: Mapping[str, SettingField],
    given: Mapping[str, Any],
    where: str,
    stored: TopicSettings | GroupSettings | None = None,
) -> dict[str, Any]:
    """The settings in `given` as plain data, checked against `fields`, and against what is `stored` if they are to
    replace that.

    Raises `NotInThisVersion` when the only problem is a setting of a later version, else `ConfigurationError` with
    every problem.
    """
    checked: dict[str, Any] = {}
    problems: list[str] = []
    later: list[str] = []
    for name, value in given.items():
        if name in LATER[kind]:
            later.append(f"{name} is not in this version")
        elif name not in fields:
            problems.append(f"unknown setting {name!r}{meant(name, fields, LATER[kind])}")
        else:
            checked[name], problem = _checked(fields[name], name, value)
            if problem is None and fields[name].fixed and stored is not None:
                differs = checked[name] != getattr(stored, name)
                problem = f"{name} cannot be changed once a {kind} exists" if differs else None
            if problem is not None:
                problems.append(problem)
    if problems or later:
        found = (*problems, *later)
        error = NotInThisVersion if later and not problems else ConfigurationError
        raise error(f"settings of {where}: {'; '.join(found)}. Nothing was changed.", problems=found)
    return checked


def check_topic(name: str, given: Mapping[str, Any], stored: TopicSettings | None = None) -> dict[str, Any]:
    """The settings that are named for a topic, as plain data; whether they fit each other is not looked at."""
    return check("topic", TOPIC_FIELDS, given, f"topic {name!r}", stored)


def check_group(name: str, given: Mapping[str, Any], stored: GroupSettings | None = None) -> dict[str, Any]:
    """The same for a group."""
    return check("group", GROUP_FIELDS, given, f"group {name!r}", stored)


def topic_settings(
    given: Mapping[str, Any], where: str, stored: TopicSettings | None = None
) -> TopicSettings:
    """What is `stored`, or else the defaults, with `given` on top.

    Raises as `check` does, and when settings contradict each other.
    """
    checked = check("topic", TOPIC_FIELDS, given, where, stored)
    settings = TopicSettings(**checked) if stored is None else attrs.evolve(stored, **checked)
    if settings.retention_age is not None and (settings.segment_age or 0) > settings.retention_age:
        raise _contradiction(
            where,
            f"segment_age ({settings.segment_age:g}) is longer than retention_age ({settings.retention_age:g}), so"
            " nothing could be dropped in time",
        )
    return settings


def group_settings(
    given: Mapping[str, Any], where: str, stored: GroupSettings | None = None
) -> GroupSettings:
    """As `topic_settings`."""
    if stored is not None and not given:
        raise _contradiction(where, "none is named that is to change")
    checked = check("group", GROUP_FIELDS, given, where, stored)
    retry = checked.get("retry")
    has_backoff = not {"backoff", "max_backoff"}.isdisjoint(given)
    if retry is not None and has_backoff:
        problem = "retry says how long a failed message waits, and so do backoff and max_backoff: name one or the other"
        raise _contradiction(where, problem)
    if stored is not None and retry is not None:  # the last word counts
        checked |= {"backoff": GroupSettings().backoff, "max_backoff": GroupSettings().max_backoff}
    elif stored is not None and has_backoff:
        checked["retry"] = None
    settings = GroupSettings(**checked) if stored is None else attrs.evolve(stored, **checked)
    if settings.backoff > settings.max_backoff:
        problem = f"backoff ({settings.backoff}) is longer than max_backoff ({settings.max_backoff})"
        raise _contradiction(where, problem)
    usual = GroupSettings()
    for name in ("rebalance_timeout", "session_timeout"):
        value = getattr(settings, name)
        if settings.mode != "exclusive" and value != getattr(usual, name):
            raise _contradiction(
                where,
                f"{name} is {value!r}, and mode is {settings.mode!r}: only in an exclusive group a partition goes from"
                " one consumer to another",
            )
    if settings.mode == "exclusive" and settings.distribution != usual.distribution:
        raise _contradiction(
            where,
            f"distribution is {settings.distribution!r}, and mode is 'exclusive': each partition is one consumer's, and"
            " there is no choice of who gets its messages",
        )
    return settings


def check_order(name: str, group: GroupSettings, topic: str, settings: TopicSettings) -> None:
    """Raise `ConfigurationError` when a group cannot have its order in a topic."""
    if group.ordering == "partition" and settings.priorities:
        raise _contradiction(
            f"group {name!r}",
            f"ordering 'partition' delivers topic {topic!r} in the order of its offsets, and its priorities want"
            " another: use ordering 'key' or 'none'",
        )


def _contradiction(where: str, problem: str) -> ConfigurationError:
    return ConfigurationError(f"settings of {where}: {problem}. Nothing was changed.", problems=(problem,))
