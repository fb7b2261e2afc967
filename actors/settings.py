"""Settings of topics and groups: two classes, whose settings are checked as a whole before anything is written.

A setting is one line of `TopicSettings` or `GroupSettings`, with its type, default, meaning and bounds. The tables
`TOPIC_FIELDS` and `GROUP_FIELDS`, the options of the command line and the pages of the reference follow from that. The
same names serve as keyword arguments, in configuration files and on the command line. All problems of a set of
settings are reported in one error: unknown names (with the nearest known one), wrong types, values out of range, and
names that belong to a later version.

For type checkers the keyword arguments have names and types too: `TopicOptions` and `GroupOptions` at creation,
`TopicChanges` and `GroupChanges` afterwards. A test holds them to the classes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from types import NoneType, UnionType
from typing import Any, Final, Literal, TypedDict, Union, get_args, get_origin, get_type_hints

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

DAY_S: Final = 86_400.0
YEAR_S: Final = 366 * DAY_S

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
KINDS: Final[Mapping[frozenset[Any], str]] = {
    frozenset({int}): "int",
    frozenset({float}): "seconds",
    frozenset({bool}): "bool",
    frozenset({str}): "name",
    frozenset({float, Sequence[float]}): "delays",
    frozenset(get_args(Start)): "start",
}
"""The kind of a setting by what its type is a union of; a literal alone is a choice."""


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


def _setting(default: Any, meaning: str, low: float = 0, high: float = 0, *, fixed: bool = False) -> Any:
    """A setting in a class of settings. Its type says the kind, and whether None is a value of its own."""
    return attrs.field(
        default=default, metadata={"meaning": meaning, "low": low, "high": high, "fixed": fixed}
    )


def _fields_of(settings: type) -> dict[str, SettingField]:
    """The table of a class of settings."""
    hints = get_type_hints(settings)
    return {field.name: _field_of(hints[field.name], field.metadata) for field in attrs.fields(settings)}


def _field_of(hint: Any, facts: Mapping[str, Any]) -> SettingField:
    parts = frozenset(get_args(hint)) if get_origin(hint) in (Union, UnionType) else frozenset({hint})
    optional, parts = NoneType in parts, parts - {NoneType}
    kind, choices = KINDS.get(parts, "choice"), ()
    if kind == "choice":
        (literal,) = parts
        choices = get_args(literal)
    return SettingField(kind, optional=optional, choices=choices, **facts)


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
    read_only: bool


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
    paused: bool


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

    partitions: int = _setting(
        1, "how many partitions; fixed once created", 1, limits.PARTITIONS_MAX, fixed=True
    )
    segment_bytes: int = _setting(
        limits.SEGMENT_BYTES_DEFAULT,
        "a segment is rolled at this size",
        limits.SEGMENT_BYTES_MIN,
        limits.SEGMENT_BYTES_MAX,
    )
    segment_age: float | None = _setting(None, "a segment is rolled at this age", 1, 10 * YEAR_S)
    retention_age: float | None = _setting(None, "segments older than this are dropped", 1, 100 * YEAR_S)
    retention_bytes: int | None = _setting(None, "bytes kept per partition", limits.SEGMENT_BYTES_MIN, 2**60)
    drop_unread: bool = _setting(False, "retention may drop what a durable group has not settled")
    compression: Codec = _setting("none", "codec of new batches")
    max_message_bytes: int = _setting(
        limits.MESSAGE_BYTES_DEFAULT, "largest value, key and headers together", 1, limits.MESSAGE_BYTES_MAX
    )
    dedup_window: float | None = _setting(None, "how long a deduplication id is remembered", 0.001, YEAR_S)
    default_ttl: float | None = _setting(
        None, "a message without a ttl of its own expires after this", 0.001, 100 * YEAR_S
    )
    priorities: bool = _setting(False, "messages have priorities; fixed once created", fixed=True)
    read_only: bool = _setting(False, "publishes are refused; all else goes on")

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

    mode: GroupMode = _setting(
        "shared", "whether consumers share all partitions, or each owns some", fixed=True
    )
    distribution: Distribution = _setting(
        "round-robin", "shared groups: which waiting consumer gets the next message"
    )
    ordering: Ordering = _setting("none", "which messages wait for each other within a partition", fixed=True)
    visibility_timeout: float = _setting(30.0, "how long a lease lasts", 0.01, 30 * DAY_S)
    max_deliveries: int | None = _setting(
        None,
        "a message that fails this often becomes a dead letter instead of being delivered again",
        1,
        1_000_000,
    )
    dead_letter_topic: str | None = _setting(
        None, "the topic to which dead letters are forwarded; without one their partitions keep them"
    )
    dead_letter_expired: bool = _setting(False, "a message that expires unhandled becomes a dead letter too")
    max_in_flight: int = _setting(10_000, "messages a consumer may hold unsettled", 1, 1_000_000)
    rebalance_timeout: float = _setting(
        60.0,
        "exclusive groups: how long a consumer may take to release a partition that moves to another",
        0,
        DAY_S,
    )
    session_timeout: float | None = _setting(
        300.0,
        "exclusive groups: a consumer idle this long while messages wait loses its partitions",
        0.01,
        YEAR_S,
    )
    group_expiry: float | None = _setting(
        7 * DAY_S, "a group without members is expired after this", 1, 100 * YEAR_S
    )
    start: Start = _setting(
        "beginning", 'where a new group starts: "beginning", "end", an offset or an instant', fixed=True
    )
    durable: bool = _setting(True, "whether the group outlives its last consumer", fixed=True)
    backoff: float = _setting(1.0, "first delay after a failed body; doubles per attempt", 0, DAY_S)
    max_backoff: float = _setting(60.0, "longest delay after a failed body", 0, 30 * DAY_S)
    priority_window: int = _setting(
        limits.RANGE_RECORDS_MAX,
        "the highest priority comes first among this many unsettled messages of a partition",
        1,
        limits.RANGE_RECORDS_MAX,
        fixed=True,
    )
    starvation_after: float | None = _setting(
        None,
        "a message that has waited for this long comes before those of higher priorities",
        0.001,
        YEAR_S,
        fixed=True,
    )
    retry: float | Sequence[float] | None = _setting(
        None,
        "delay after each failed body, or a list: after the first, the second, ..., all later ones; replaces `backoff`",
        0,
        30 * DAY_S,
    )
    paused: bool = _setting(False, "no message is handed over; those that consumers hold can be settled")


TOPIC_FIELDS: Final = _fields_of(TopicSettings)
GROUP_FIELDS: Final = _fields_of(GroupSettings)

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
            " there is no choice of the consumer that gets its messages",
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
