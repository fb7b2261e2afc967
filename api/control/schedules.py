"""Recurring publishes on the control socket, where all that is given is text."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict, cast

from callboard.log.errors import InvalidArgument, ScheduleNotFound
from callboard.log.plain import shown
from callboard.publishing.schedules import Schedule


class ScheduleArguments(TypedDict):
    """What `Topic.schedule` takes besides the name."""

    value: bytes
    cron: str | None
    zone: str | None
    every: float | None
    missed: Any
    key: bytes | None
    headers: dict[str, bytes] | None
    ttl: float | None
    priority: int | None
    partition: int | None


def settings_text(given: Mapping[str, Any]) -> str:
    """Settings of a schedule as text; those that are None are left out."""
    plain = {
        name: item.hex()
        if isinstance(item, bytes)
        else {header: text.hex() for header, text in item.items()}
        if name == "headers"
        else item
        for name, item in given.items()
        if item is not None
    }
    return json.dumps(plain)


def settings_of_text(text: str) -> ScheduleArguments:
    """The settings from that text. Raises `InvalidArgument`."""
    fields = tuple(ScheduleArguments.__annotations__)
    try:
        found = json.loads(text)
        if not isinstance(found, dict) or set(found) - set(fields):
            raise ValueError(f"the settings are {', '.join(fields)}")
        given: dict[str, Any] = {name: found.get(name) for name in fields}
        for name in ("value", "key"):
            given[name] = None if given[name] is None else bytes.fromhex(given[name])
        if given["headers"] is not None:
            given["headers"] = {name: bytes.fromhex(item) for name, item in given["headers"].items()}
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidArgument(
            f"these are no settings of a schedule: {error}. Nothing was changed."
        ) from error
    given["missed"] = given["missed"] or "latest"
    given["value"] = given["value"] or b""
    return cast("ScheduleArguments", given)


def find_schedule(schedules: Sequence[Schedule], topic: str, name: str) -> Schedule:
    """The one of that name. Raises `ScheduleNotFound`."""
    for schedule in schedules:
        if schedule.name == name:
            return schedule
    known = ", ".join(each.name for each in schedules[:10]) or "none"
    raise ScheduleNotFound(
        f"topic {topic!r} has no schedule {shown(name, 60)}. Nothing was changed. It has {known}.",
        topic=topic,
        schedule=name,
    )


def plain_schedule(schedule: Schedule) -> dict[str, Any]:
    """All that is known of a schedule, as a map of plain values."""
    stands = schedule.statistics()
    return {
        "topic": schedule.topic,
        "name": schedule.name,
        "partition": schedule.partition,
        "cron": schedule.cron,
        "zone": schedule.zone,
        "every": schedule.every,
        "missed": schedule.missed,
        "value": schedule.value,
        "key": schedule.key,
        "headers": schedule.headers,
        "ttl": "never" if schedule.ttl == math.inf else schedule.ttl,
        "priority": schedule.priority,
        "created": schedule.created.isoformat(),
        "paused": schedule.is_paused,
        "next_due": None if stands.next_due is None else stands.next_due.isoformat(),
        "last_due": None if stands.last_due is None else stands.last_due.isoformat(),
        "fired": stands.fired,
        "passed_over": stands.passed_over,
        "problem": stands.problem,
    }
