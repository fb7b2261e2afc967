"""What exists: topics and groups, as a pure state machine over journalled events.

A topic has an id of its own, which names its directory and binds its groups' states, so a topic that is created again
under an old name inherits nothing. Deleting is two events: DELETING hides the topic at once and is the decision;
DELETED is written when its files are gone, and a start that finds only the first finishes the work.

Events are CBOR arrays whose first item is the kind:

=================  =============================================================
event              items after the kind
=================  =============================================================
TOPIC_CREATED      name, id, settings (only those that differ from the defaults)
TOPIC_ALTERED      id, settings
TOPIC_DELETING     id
TOPIC_DELETED      id
GROUP_OPENED       name, id, settings, wall time in microseconds
GROUP_JOINED       id, topic id
GROUP_IDLE         id, wall time in microseconds since when it has no member, or None
GROUP_DELETED      id
CONSUMERS_RESERVED id: consumers' ids below it may have been given away
=================  =============================================================
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import attrs
import cbor2

from callboard.actors.names import folded, name_problem
from callboard.actors.settings import GroupSettings, TopicSettings, group_settings, topic_settings
from callboard.log.errors import LogCorrupt

TOPIC_CREATED: Final = 1
TOPIC_ALTERED: Final = 2
TOPIC_DELETING: Final = 3
TOPIC_DELETED: Final = 4
GROUP_OPENED: Final = 5
GROUP_JOINED: Final = 6
GROUP_IDLE: Final = 7
GROUP_DELETED: Final = 8
CONSUMERS_RESERVED: Final = 9

TOPIC_ID: Final = re.compile("[0-9a-f]{2,32}")
"""Ids become directory names, so what a damaged journal says is not taken on trust."""

Event = Sequence[Any]


@attrs.define
class TopicRecord:
    """A topic as the catalog knows it."""

    name: str
    topic_id: str
    settings: TopicSettings
    deleting: bool = False


@attrs.define
class GroupRecord:
    """A consumer group as the catalog knows it. `idle_since_us` is None while it has members."""

    name: str
    group_id: int
    settings: GroupSettings
    topic_ids: list[str] = attrs.field(factory=list)
    idle_since_us: int | None = None


class CatalogState:
    """Topics and groups. `apply` is the only way in which anything changes."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicRecord] = {}
        self.groups: dict[int, GroupRecord] = {}
        self.next_group_id = 1
        self.consumers_reserved = 1
        """No consumer whose id is not below this was ever known."""

    def topic(self, name: str) -> TopicRecord | None:
        """The topic of that name, unless it is being deleted."""
        for record in self.topics.values():
            if record.name == name and not record.deleting:
                return record
        return None

    def colliding(self, name: str) -> TopicRecord | None:
        """A topic whose name is another spelling of `name` (case, Unicode form)."""
        wanted = folded(name)
        for record in self.topics.values():
            if record.name != name and not record.deleting and folded(record.name) == wanted:
                return record
        return None

    def group(self, name: str) -> GroupRecord | None:
        """The group of that name."""
        for record in self.groups.values():
            if record.name == name:
                return record
        return None

    def apply(self, event: Event) -> None:
        """Change the state by one event. Raises `LogCorrupt` when the event makes no sense."""
        try:
            _APPLY[event[0]](self, *event[1:])
        except (AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
            raise LogCorrupt(
                f"catalog: the event {event!r:.200} makes no sense here ({type(error).__name__}: {error})."
                " Run `callboard verify`, then `callboard repair`.",
                path="catalog",
                offsets=None,
            ) from error

    def _topic_created(self, name: str, topic_id: str, settings: dict[str, Any]) -> None:
        if name_problem(name) is not None or TOPIC_ID.fullmatch(topic_id) is None:
            raise ValueError("a name or id that no catalog writes")
        self.topics[topic_id] = TopicRecord(name, topic_id, topic_settings(settings, name))

    def _topic_altered(self, topic_id: str, settings: dict[str, Any]) -> None:
        self.topics[topic_id].settings = topic_settings(settings, topic_id)

    def _topic_deleting(self, topic_id: str) -> None:
        self.topics[topic_id].deleting = True

    def _topic_deleted(self, topic_id: str) -> None:
        del self.topics[topic_id]
        for group in self.groups.values():
            if topic_id in group.topic_ids:
                group.topic_ids.remove(topic_id)

    def _group_opened(self, name: str, group_id: int, settings: dict[str, Any], now_us: int) -> None:
        if name_problem(name) is not None or type(group_id) is not int or group_id in self.groups:
            raise ValueError("a name or id that no catalog writes")
        self.groups[group_id] = GroupRecord(name, group_id, group_settings_of(settings), idle_since_us=now_us)
        self.next_group_id = max(self.next_group_id, group_id + 1)

    def _group_joined(self, group_id: int, topic_id: str) -> None:
        if topic_id not in self.groups[group_id].topic_ids:
            self.groups[group_id].topic_ids.append(topic_id)

    def _group_idle(self, group_id: int, since_us: int | None) -> None:
        if since_us is not None and type(since_us) is not int:
            raise ValueError("a time that is no number")
        self.groups[group_id].idle_since_us = since_us

    def _group_deleted(self, group_id: int) -> None:
        del self.groups[group_id]

    def _consumers_reserved(self, below: int) -> None:
        if type(below) is not int:
            raise ValueError("an id that is no number")
        self.consumers_reserved = max(self.consumers_reserved, below)

    def snapshot(self) -> bytes:
        """The state as the events that would rebuild it."""
        events: list[Event] = []
        for topic in self.topics.values():
            events.append((TOPIC_CREATED, topic.name, topic.topic_id, changed(topic.settings)))
            if topic.deleting:
                events.append((TOPIC_DELETING, topic.topic_id))
        for group in self.groups.values():
            events.append(
                (GROUP_OPENED, group.name, group.group_id, changed(group.settings), group.idle_since_us or 0)
            )
            events.extend((GROUP_JOINED, group.group_id, topic_id) for topic_id in group.topic_ids)
            events.append((GROUP_IDLE, group.group_id, group.idle_since_us))
        if self.consumers_reserved > 1:
            events.append((CONSUMERS_RESERVED, self.consumers_reserved))
        return cbor2.dumps([self.next_group_id, events])

    def restore(self, data: bytes) -> None:
        """Replace the state by a snapshot."""
        next_group_id, events = _loads(data)
        self.__init__()  # type: ignore[misc]
        for event in events:
            self.apply(event)
        self.next_group_id = max(self.next_group_id, int(next_group_id))


_APPLY: Final[dict[int, Callable[..., None]]] = {
    TOPIC_CREATED: CatalogState._topic_created,
    TOPIC_ALTERED: CatalogState._topic_altered,
    TOPIC_DELETING: CatalogState._topic_deleting,
    TOPIC_DELETED: CatalogState._topic_deleted,
    GROUP_OPENED: CatalogState._group_opened,
    GROUP_JOINED: CatalogState._group_joined,
    GROUP_IDLE: CatalogState._group_idle,
    GROUP_DELETED: CatalogState._group_deleted,
    CONSUMERS_RESERVED: CatalogState._consumers_reserved,
}


def changed(settings: TopicSettings | GroupSettings) -> dict[str, Any]:
    """The settings that differ from their defaults, in a form that CBOR holds."""
    found = {}
    for field in attrs.fields(type(settings)):
        value = getattr(settings, field.name)
        if value != field.default:
            found[field.name] = value.isoformat() if isinstance(value, datetime) else value
    return found


def group_settings_of(stored: dict[str, Any]) -> GroupSettings:
    """Group settings from their stored form."""
    start = stored.get("start")
    if isinstance(start, str) and start not in ("beginning", "end"):
        stored = {**stored, "start": datetime.fromisoformat(start).astimezone(UTC)}
    return group_settings(stored, "a stored group")


def encode(event: Event) -> bytes:
    """One event as a journal record."""
    return cbor2.dumps(list(event))


def decode(data: bytes) -> Event:
    """One event from a journal record. Raises `LogCorrupt`."""
    return _loads(data)


def _loads(data: bytes) -> list[Any]:
    try:
        decoded = cbor2.loads(data)
    except (cbor2.CBORDecodeError, ValueError) as error:
        raise _malformed(error) from error
    if not isinstance(decoded, list) or not decoded:
        raise _malformed(f"it is {decoded!r:.80}")
    return decoded


def _malformed(why: object) -> LogCorrupt:
    return LogCorrupt(
        f"catalog: a journal record does not parse ({why}). Run `callboard verify`, then `callboard repair`.",
        path="catalog",
        offsets=None,
    )
