"""What the catalog decides about schedules. Pure: each function makes events of a state, or refuses."""

from __future__ import annotations

from typing import Any, Final

from callboard.actors.catalog import state
from callboard.actors.catalog.commands import TopicRecord
from callboard.actors.catalog.state import CatalogState, Event
from callboard.actors.recurring.spec import FIELDS, ScheduleRecord, ScheduleSpec
from callboard.log.errors import InvalidArgument, ScheduleExists, ScheduleNotFound, TopicNotFound
from callboard.log.limits import SCHEDULES_MAX

IN_SECONDS: Final = {"every_us": "every", "ttl_us": "ttl"}
"""What is stored in microseconds and given in seconds."""


def known_topic(found: CatalogState, topic_id: str, name: str) -> TopicRecord:
    """The topic, if it still is. Raises `TopicNotFound`."""
    record = found.topics.get(topic_id)
    if record is None or record.deleting:
        raise TopicNotFound(f"there is no topic {name!r} any more. Nothing was changed.", topic=name)
    return record


def _schedule_named(record: TopicRecord, name: str) -> ScheduleRecord | None:
    return next((each for each in record.schedules if each.spec.name == name), None)


def known_schedule(record: TopicRecord, name: str) -> ScheduleRecord:
    """The schedule of that name. Raises `ScheduleNotFound`."""
    found = _schedule_named(record, name)
    if found is None:
        raise ScheduleNotFound(
            f"topic {record.name!r} has no schedule {name!r}. Nothing was changed. `topic.schedules()` lists those that"
            " it has.",
            topic=record.name,
            schedule=name,
        )
    return found


def _as_given(field: str, stored: Any) -> str:
    """A setting as callers give it."""
    if field in IN_SECONDS and stored is not None:
        return f"{IN_SECONDS[field]}={stored / 1_000_000:g}"
    return f"{field}={stored!r:.60}"


def adding(
    found: CatalogState, topic_id: str, name: str, spec: ScheduleSpec, schedule_id: int, now_us: int
) -> list[Event]:
    """What has to be decided so that the topic has the schedule: nothing when it has it already."""
    record = known_topic(found, topic_id, name)
    twin = _schedule_named(record, spec.name)
    if twin is not None:
        differing = [field for field in FIELDS if getattr(twin.spec, field) != getattr(spec, field)]
        if differing:
            settings = ", ".join(_as_given(field, getattr(twin.spec, field)) for field in differing)
            raise ScheduleExists(
                f"topic {name!r} has a schedule {spec.name!r} with other settings: {settings}. Nothing was changed."
                " A schedule is not altered: call its remove() and add it again, or choose another name.",
                topic=name,
                schedule=spec.name,
            )
        return []
    if sum(len(each.schedules) for each in found.topics.values()) >= SCHEDULES_MAX:
        raise InvalidArgument(
            f"there are {SCHEDULES_MAX} schedules, and no more are allowed. Nothing was changed. Remove some first."
        )
    return [(state.SCHEDULE_ADDED, topic_id, schedule_id, spec.stored(), now_us)]


def removing(found: CatalogState, topic_id: str, name: str, schedule: str) -> list[Event]:
    """The schedule is no more."""
    record = known_topic(found, topic_id, name)
    return [(state.SCHEDULE_REMOVED, topic_id, known_schedule(record, schedule).schedule_id)]


def pausing(
    found: CatalogState, topic_id: str, name: str, schedule: str, *, is_paused: bool, now_us: int
) -> list[Event]:
    """It rests, or goes on: nothing when it does so already."""
    known = known_schedule(known_topic(found, topic_id, name), schedule)
    if known.is_paused == is_paused:
        return []
    if is_paused:
        return [(state.SCHEDULE_PAUSED, topic_id, known.schedule_id)]
    return [(state.SCHEDULE_RESUMED, topic_id, known.schedule_id, now_us)]
