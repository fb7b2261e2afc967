"""What exists: topics and groups, as a pure state machine over journalled events.

A topic has an id of its own, which names its directory and binds its groups' states, so a topic that is created again
under an old name inherits nothing. Deleting is two events: DELETING hides the topic at once and is the decision;
DELETED is written when its files are gone, and a start that finds only the first finishes the work.

Events are a kind and the items listed in `EVENTS`; stored (version 1), they are CBOR maps of `kind` and the items by
name. A field of an event that is not known here becomes one of the topic or group that the event is about, an unknown
setting is kept with the known ones, and all of them are in the next snapshot. In version 0 an event is an array of kind
and items.

A snapshot is the map {"next_group", "topics": [...], "groups": [...]} of maps; in version 0 it is [next group id, the
events that rebuild the state].
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from datetime import UTC, datetime
from typing import Any, Final

import attrs
import cbor2

from callboard.actors.catalog.commands import GroupRecord, TopicRecord
from callboard.actors.names import folded, name_problem
from callboard.actors.recurring.spec import ScheduleRecord, spec_of
from callboard.actors.settings import (
    GROUP_FIELDS,
    TOPIC_FIELDS,
    GroupSettings,
    TopicSettings,
    group_settings,
    topic_settings,
)
from callboard.actors.topic_patterns import TopicPattern, pattern_problem
from callboard.log.errors import JournalInvalid, NotInThisVersion
from callboard.log.format.fields import CBOR_ERRORS, MUST, check_kind, too_new, unknown_fields
from callboard.log.limits import CONSUMER_IDS_PER_BLOCK, LOSSES_NAMED

RECORDS_VERSION: Final = 1
"""The form in which records are written; older ones are read."""

TOPIC_CREATED: Final = 1
TOPIC_ALTERED: Final = 2
TOPIC_DELETING: Final = 3
TOPIC_DELETED: Final = 4
GROUP_OPENED: Final = 5
GROUP_JOINED: Final = 6
GROUP_IDLE: Final = 7
GROUP_DELETED: Final = 8
CONSUMERS_RESERVED: Final = 9
GROUP_ALTERED: Final = 10
TOPIC_DELAYS: Final = 11
TOPIC_OUTBOX: Final = 12
GROUP_PATTERN: Final = 13
GROUP_FOUND: Final = 14
SCHEDULE_ADDED: Final = 15
SCHEDULE_REMOVED: Final = 16
SCHEDULE_PAUSED: Final = 17
SCHEDULE_RESUMED: Final = 18
TOPIC_OUTBOX_DELAYS: Final = 19
TOPIC_MADE: Final = 131
"""Optional: an older version skips it, and then it is unknown whether a missing folder is gone."""
GROUP_BORN: Final = 132
GROUP_NOTICED: Final = 133
"""Optional: an older version skips it, and then it is unknown which group of this id it is."""

TOPIC_STATE: Final = ("name", "topic", "settings", "deleting")
TOPIC_BESIDES: Final = ("delays", "outbox", "outbox_delays")
"""What a topic may have besides, true and mandatory: without it delayed records would wait for ever, and what acks have
published too; and what acks have published for later would be lost."""
TAKES_DEAD_LETTERS: Final = "dead_letters"
"""What a topic has besides that a group has named for its dead letters."""
MADE: Final = "made"
"""Which of its folders are there for certain (`folders.FolderKind.holds`): one that is not there later is gone."""
SCHEDULES: Final = "schedules"
"""What a topic with recurring publishes has besides, mandatory: what is due would never come."""
SCHEDULE_STATE: Final = ("schedule", "settings", "created_us", "since_us", "paused")
GROUP_STATE: Final = ("name", "group", "settings", "idle_since_us", "topics")
BIRTH: Final = "birth"
"""What tells a group from those that an older copy of the catalog does not know, and that have had its id."""
IDLE_NOTICED: Final = "idle_noticed"
"""An instant of a group that is ahead of the time, and when that was noticed."""
PATTERN_STATE: Final = ("words", "dead_letters", "found")
SNAPSHOT: Final = ("next_group", "topics", "groups", "consumers_reserved")

TOPIC_ID: Final = re.compile("[0-9a-f]{2,32}")
"""Ids become directory names, so what a damaged journal says is not taken on trust."""

Event = Sequence[Any]


class CatalogState:
    """Topics and groups. `apply` is the only way in which anything changes; the records themselves never do."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicRecord] = {}
        self.groups: dict[int, GroupRecord] = {}
        self.next_group_id = 1
        self.consumers_reserved = 1
        """No consumer whose id is not below this was ever known."""
        self.lost_records: list[tuple[int, int]] = []
        """First and last of each run of records that the journal lost."""
        self.missing: dict[tuple[str, object], None] = {}
        """What events after lost records are about, and was not known to them: ("group", 1), ("topic", "0a")."""
        self._version = RECORDS_VERSION
        self._is_salvaging = False
        self._unknown_fields: dict[str, Any] = {}

    def copy(self) -> CatalogState:
        """Another state that is equal, and changes by itself."""
        twin = copy(self)
        twin.topics, twin.groups = {**self.topics}, {**self.groups}
        return twin

    def versioned(self, version: int) -> None:
        """What is replayed next is in the form of `version`."""
        self._version = version

    def lost(self, first: int, last: int) -> None:
        """The journal lost the records `first` to `last`: what makes no sense without them is passed over.

        Each may have opened a group, which partitions still know by its id, or reserved ids of consumers, which stand
        in dead letters: no other gets one of these ids.
        """
        self._is_salvaging = True
        self.next_group_id += last - first + 1
        self.consumers_reserved += (last - first + 1) * CONSUMER_IDS_PER_BLOCK
        self.lost_records.append((first, last))

    def topic(self, name: str) -> TopicRecord | None:
        """The topic of that name, unless it is being deleted."""
        return next(
            (record for record in self.topics.values() if record.name == name and not record.deleting), None
        )

    def colliding(self, name: str) -> TopicRecord | None:
        """A topic whose name is another spelling of `name` (case, Unicode form)."""
        wanted = folded(name)
        for record in self.topics.values():
            if record.name != name and not record.deleting and folded(record.name) == wanted:
                return record
        return None

    def group(self, name: str) -> GroupRecord | None:
        return next((record for record in self.groups.values() if record.name == name), None)

    def replay(self, record: bytes) -> None:
        """Change the state by one stored event. Raises `JournalInvalid`, `FormatTooNew`."""
        decoded = None
        try:
            decoded = decode(record, self._version)
            if decoded is not None:
                self.apply(*decoded)
        except JournalInvalid:
            if not self._is_salvaging:
                raise
            if decoded is not None:
                self._pass_over(decoded[0])

    def _pass_over(self, event: Event) -> None:
        """What a later event is about is missing, unless it has ended."""
        kind, *items = event
        for name, item in zip(EVENTS[kind][1], items, strict=False):
            if name not in ("group", "topic") or type(item) not in (int, str):
                continue
            subject = name, item
            if kind in (GROUP_DELETED, TOPIC_DELETED):
                self.missing.pop(subject, None)
            elif not self._knows(name, item) and len(self.missing) < LOSSES_NAMED:
                self.missing[subject] = None

    def _knows(self, name: str, item: Any) -> bool:
        return item in (self.groups if name == "group" else self.topics)

    def still_missing(self) -> list[str]:
        """What is missing, and has not come back under the same id: `group 1`, `topic 0a`."""
        return [f"{name} {item!s:.32}" for name, item in self.missing if not self._knows(name, item)]

    def apply(self, event: Event, unknown: dict[str, Any] | None = None) -> None:
        """Change the state by one event, which had the `unknown` fields. Raises `JournalInvalid`, `FormatTooNew`."""
        try:
            about = EVENTS[event[0]][0](self, *event[1:])
        except NotInThisVersion as error:
            raise too_new(f"the catalog's event {event!r:.200}", found=str(error), path="catalog") from error
        except (AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
            raise _invalid(
                f"the event {event!r:.200} makes no sense here ({type(error).__name__}: {error})"
            ) from error
        if about is None:
            return
        if unknown:
            about = attrs.evolve(about, unknown_fields={**about.unknown_fields, **unknown})
        if isinstance(about, TopicRecord):
            self.topics[about.topic_id] = about
        else:
            self.groups[about.group_id] = about

    def _topic_created(self, name: str, topic_id: str, stored: dict[str, Any]) -> TopicRecord:
        if name_problem(name) is not None or TOPIC_ID.fullmatch(topic_id) is None:
            raise ValueError("a name or id that no catalog writes")
        named = any(group.settings.dead_letter_topic == name for group in self.groups.values())
        return TopicRecord(name, topic_id, *topic_settings_of(stored), takes_dead_letters=named)

    def _name_dead_letter_topic(self, settings: GroupSettings) -> None:
        """A group has these settings: what it names is for dead letters from now on, and patterns let go of it."""
        topic = None if settings.dead_letter_topic is None else self.topic(settings.dead_letter_topic)
        if topic is None or topic.takes_dead_letters:
            return
        self.topics[topic.topic_id] = attrs.evolve(topic, takes_dead_letters=True)
        for group_id, group in self.groups.items():
            if group.lets_go_of_dead_letters and topic.topic_id in group.topic_ids:
                self.groups[group_id] = group.without(topic.topic_id)

    def _topic_altered(self, topic_id: str, stored: dict[str, Any]) -> TopicRecord:
        settings, unknown = topic_settings_of(stored)
        return attrs.evolve(self.topics[topic_id], settings=settings, unknown_settings=unknown)

    def _topic_deleting(self, topic_id: str) -> TopicRecord:
        return attrs.evolve(self.topics[topic_id], deleting=True)

    def _topic_delays(self, topic_id: str) -> TopicRecord:
        return attrs.evolve(self.topics[topic_id], delays=True)

    def _topic_outbox(self, topic_id: str) -> TopicRecord:
        return attrs.evolve(self.topics[topic_id], outbox=True)

    def _topic_outbox_delays(self, topic_id: str) -> TopicRecord:
        return attrs.evolve(self.topics[topic_id], outbox_delays=True)

    def _topic_made(self, topic_id: str, made: list[str]) -> TopicRecord:
        if type(made) is not list or not all(type(each) is str for each in made):
            raise ValueError("folders that no catalog writes")
        topic = self.topics[topic_id]
        return attrs.evolve(topic, made=topic.made.union(made))

    def _schedule_added(
        self, topic_id: str, schedule_id: int, stored: dict[str, Any], since_us: int
    ) -> TopicRecord:
        topic, spec, since = self.topics[topic_id], spec_of(stored), _instant(since_us)
        is_new = all(each.schedule_id != schedule_id for each in topic.schedules)
        if type(schedule_id) is not int or not 0 < schedule_id < 2**64 or since is None or not is_new:
            raise ValueError("an id or instant that no catalog writes")
        if spec.partition >= topic.settings.partitions:
            raise ValueError("a partition that the topic does not have")
        made = ScheduleRecord(schedule_id, spec, since, since)
        return attrs.evolve(topic, schedules=(*topic.schedules, made))

    def _schedule_removed(self, topic_id: str, schedule_id: int) -> TopicRecord:
        topic, gone = self.topics[topic_id], self._schedule(topic_id, schedule_id)
        return attrs.evolve(topic, schedules=tuple(each for each in topic.schedules if each is not gone))

    def _schedule_paused(self, topic_id: str, schedule_id: int) -> TopicRecord:
        return self._with_schedule(topic_id, schedule_id, is_paused=True)

    def _schedule_resumed(self, topic_id: str, schedule_id: int, since_us: int) -> TopicRecord:
        if _instant(since_us) is None:
            raise ValueError("a time that is none")
        return self._with_schedule(topic_id, schedule_id, is_paused=False, since_us=since_us)

    def _schedule(self, topic_id: str, schedule_id: int) -> ScheduleRecord:
        return {each.schedule_id: each for each in self.topics[topic_id].schedules}[schedule_id]

    def _with_schedule(self, topic_id: str, schedule_id: int, **changes: Any) -> TopicRecord:
        before = self._schedule(topic_id, schedule_id)
        after, topic = attrs.evolve(before, **changes), self.topics[topic_id]
        schedules = tuple(after if each is before else each for each in topic.schedules)
        return attrs.evolve(topic, schedules=schedules)

    def _topic_deleted(self, topic_id: str) -> None:
        del self.topics[topic_id]
        for group_id, group in self.groups.items():
            if topic_id in group.topic_ids:
                self.groups[group_id] = group.without(topic_id)

    def _group_opened(
        self, name: str, group_id: int, stored: dict[str, Any], since_us: int | None
    ) -> GroupRecord:
        if name_problem(name) is not None or type(group_id) is not int or group_id in self.groups:
            raise ValueError("a name or id that no catalog writes")
        self.next_group_id = max(self.next_group_id, group_id + 1)
        group = GroupRecord(name, group_id, *group_settings_of(stored), idle_since_us=_instant(since_us))
        self._name_dead_letter_topic(group.settings)
        return group

    def _group_born(self, group_id: int, birth: int) -> GroupRecord:
        if type(birth) is not int or not 0 <= birth < 2**62:
            raise ValueError("a birth that no catalog writes")
        return attrs.evolve(self.groups[group_id], birth=birth)

    def _group_joined(self, group_id: int, topic_id: str) -> GroupRecord:
        group = self.groups[group_id]
        known = topic_id in group.topic_ids
        return group if known else attrs.evolve(group, topic_ids=(*group.topic_ids, topic_id))

    def _group_altered(self, group_id: int, stored: dict[str, Any]) -> GroupRecord:
        settings, unknown = group_settings_of(stored)
        self._name_dead_letter_topic(settings)
        return attrs.evolve(self.groups[group_id], settings=settings, unknown_settings=unknown)

    def _group_pattern(self, group_id: int, words: str, dead_letters: bool) -> GroupRecord:
        if pattern_problem(words) is not None or type(dead_letters) is not bool:
            raise ValueError("a pattern that no catalog writes")
        return attrs.evolve(self.groups[group_id], pattern=TopicPattern(words, dead_letters))

    def _group_found(self, group_id: int, topic_id: str) -> GroupRecord:
        group = self._group_joined(group_id, topic_id)
        return attrs.evolve(group, found=group.found | {topic_id})

    def _group_idle(self, group_id: int, since_us: int | None) -> GroupRecord:
        group = self.groups[group_id]
        since_us = _instant(since_us)
        noticed = group.idle_noticed
        is_noticed = noticed is not None and noticed[0] == since_us
        return attrs.evolve(group, idle_since_us=since_us, idle_noticed=noticed if is_noticed else None)

    def _group_noticed(self, group_id: int, since_us: int, noticed_us: int) -> GroupRecord:
        if type(since_us) is not int or type(noticed_us) is not int:
            raise ValueError("an instant that no catalog writes")
        return attrs.evolve(self.groups[group_id], idle_noticed=(since_us, noticed_us))

    def _group_deleted(self, group_id: int) -> None:
        del self.groups[group_id]

    def _consumers_reserved(self, below: int) -> None:
        if type(below) is not int:
            raise ValueError("an id that is no number")
        self.consumers_reserved = max(self.consumers_reserved, below)

    def snapshot(self) -> bytes:
        """The state as one map."""
        topics = []
        for topic in self.topics.values():
            facts = (topic.name, topic.topic_id, stored_settings(topic, topic.settings), topic.deleting)
            names = [name for name in TOPIC_BESIDES if getattr(topic, name)]
            besides: dict[str, Any] = dict.fromkeys(names, True)
            if topic.schedules:
                besides[SCHEDULES] = [_stored_schedule(each) for each in topic.schedules]
            if besides:
                besides[MUST] = list(besides)
            if topic.takes_dead_letters:
                besides[TAKES_DEAD_LETTERS] = True
            if topic.made:
                besides[MADE] = sorted(topic.made)
            topics.append(_map(TOPIC_STATE, facts, {**topic.unknown_fields, **besides}))
        groups = []
        for group in self.groups.values():
            settings = stored_settings(group, group.settings)
            items = (group.name, group.group_id, settings, group.idle_since_us, group.topic_ids)
            birth = {BIRTH: group.birth} if group.birth else {}
            noticed = {IDLE_NOTICED: [*group.idle_noticed]} if group.idle_noticed else {}
            besides = {**group.unknown_fields, **birth, **noticed, **_pattern_fields(group)}
            groups.append(_map(GROUP_STATE, items, besides))
        all_items = (self.next_group_id, topics, groups, self.consumers_reserved)
        return cbor2.dumps(_map(SNAPSHOT, all_items, self._unknown_fields))

    def restore(self, data: bytes) -> None:
        """Replace the state by a snapshot. Raises `JournalInvalid`, `FormatTooNew`."""
        self.topics, self.groups, self.next_group_id, self._unknown_fields = {}, {}, 1, {}
        self.consumers_reserved = 1
        found = _loads(data)
        try:
            if self._version:
                self._restore(found)
            else:
                next_group_id, events = found
                for event in events:
                    self.apply(event)
                self.next_group_id = max(self.next_group_id, int(next_group_id))
        except (KeyError, TypeError, ValueError) as error:
            raise _invalid(f"a snapshot does not parse ({error})") from error

    def _restore(self, found: Any) -> None:
        self._unknown_fields = unknown_fields(found, SNAPSHOT, "the catalog's snapshot")
        for topic in found["topics"]:
            known = (*TOPIC_STATE, *TOPIC_BESIDES, SCHEDULES, TAKES_DEAD_LETTERS, MADE)
            unknown = unknown_fields(topic, known, "a topic in the catalog")
            self.apply((TOPIC_CREATED, topic["name"], topic["topic"], topic["settings"]), unknown)
            if topic.get("delays"):
                self.apply((TOPIC_DELAYS, topic["topic"]))
            if topic.get("outbox"):
                self.apply((TOPIC_OUTBOX, topic["topic"]))
            if topic.get("outbox_delays"):
                self.apply((TOPIC_OUTBOX_DELAYS, topic["topic"]))
            if made := topic.get(MADE):
                self.apply((TOPIC_MADE, topic["topic"], made))
            for schedule in topic.get(SCHEDULES, ()):
                self._restore_schedule(topic["topic"], schedule)
            if topic["deleting"]:
                self.apply((TOPIC_DELETING, topic["topic"]))
            if topic.get(TAKES_DEAD_LETTERS):
                record = self.topics[topic["topic"]]
                self.topics[record.topic_id] = attrs.evolve(record, takes_dead_letters=True)
        for group in found["groups"]:
            group_known = (*GROUP_STATE, BIRTH, IDLE_NOTICED, "pattern")
            unknown = unknown_fields(group, group_known, "a group in the catalog")
            opened = (GROUP_OPENED, group["name"], group["group"], group["settings"], group["idle_since_us"])
            self.apply(opened, unknown)
            self.apply((GROUP_BORN, group["group"], group.get(BIRTH, 0)))
            if noticed := group.get(IDLE_NOTICED):
                self.apply((GROUP_NOTICED, group["group"], *noticed))
            found_later: set[str] = set()
            if (pattern := group.get("pattern")) is not None:
                unknown_fields(pattern, PATTERN_STATE, "the pattern of a group")
                self.apply((GROUP_PATTERN, group["group"], pattern["words"], pattern["dead_letters"]))
                found_later.update(pattern["found"])
            for topic_id in group["topics"]:
                kind = GROUP_FOUND if topic_id in found_later else GROUP_JOINED
                self.apply((kind, group["group"], topic_id))
        self.next_group_id = max(self.next_group_id, int(found["next_group"]))
        self._consumers_reserved(found.get("consumers_reserved", 1))

    def _restore_schedule(self, topic_id: str, found: Any) -> None:
        unknown = unknown_fields(found, SCHEDULE_STATE, "a schedule in the catalog")
        schedule_id = found["schedule"]
        self.apply((SCHEDULE_ADDED, topic_id, schedule_id, found["settings"], found["created_us"]))
        self.apply((SCHEDULE_RESUMED, topic_id, schedule_id, found["since_us"]))
        topic = self._with_schedule(topic_id, schedule_id, is_paused=found["paused"], unknown=unknown)
        self.topics[topic_id] = topic


EVENTS: Final[dict[int, tuple[Callable[..., TopicRecord | GroupRecord | None], tuple[str, ...]]]] = {
    TOPIC_CREATED: (CatalogState._topic_created, ("name", "topic", "settings")),
    TOPIC_ALTERED: (CatalogState._topic_altered, ("topic", "settings")),
    TOPIC_DELETING: (CatalogState._topic_deleting, ("topic",)),
    TOPIC_DELETED: (CatalogState._topic_deleted, ("topic",)),
    TOPIC_DELAYS: (CatalogState._topic_delays, ("topic",)),
    TOPIC_OUTBOX: (CatalogState._topic_outbox, ("topic",)),
    TOPIC_OUTBOX_DELAYS: (CatalogState._topic_outbox_delays, ("topic",)),
    TOPIC_MADE: (CatalogState._topic_made, ("topic", "made")),
    SCHEDULE_ADDED: (CatalogState._schedule_added, ("topic", "schedule", "settings", "since_us")),
    SCHEDULE_REMOVED: (CatalogState._schedule_removed, ("topic", "schedule")),
    SCHEDULE_PAUSED: (CatalogState._schedule_paused, ("topic", "schedule")),
    SCHEDULE_RESUMED: (CatalogState._schedule_resumed, ("topic", "schedule", "since_us")),
    GROUP_OPENED: (CatalogState._group_opened, ("name", "group", "settings", "idle_since_us")),
    GROUP_JOINED: (CatalogState._group_joined, ("group", "topic")),
    GROUP_IDLE: (CatalogState._group_idle, ("group", "idle_since_us")),
    GROUP_DELETED: (CatalogState._group_deleted, ("group",)),
    CONSUMERS_RESERVED: (CatalogState._consumers_reserved, ("below",)),
    GROUP_ALTERED: (CatalogState._group_altered, ("group", "settings")),
    GROUP_PATTERN: (CatalogState._group_pattern, ("group", "pattern", "dead_letters")),
    GROUP_FOUND: (CatalogState._group_found, ("group", "topic")),
    GROUP_BORN: (CatalogState._group_born, ("group", BIRTH)),
    GROUP_NOTICED: (CatalogState._group_noticed, ("group", "idle_since_us", "noticed_us")),
}
"""By kind: what applies it, and its items. Settings are those that differ from the defaults, instants wall time in
microseconds, or None. Ids of consumers `below` may have been given away."""


def _pattern_fields(group: GroupRecord) -> dict[str, Any]:
    """What a group of a pattern has besides; without it, new topics would not be found for the group."""
    if group.pattern is None:
        return {}
    facts = (group.pattern.words, group.pattern.dead_letters, sorted(group.found))
    return {"pattern": _map(PATTERN_STATE, facts, {}), MUST: ["pattern"]}


def _stored_schedule(schedule: ScheduleRecord) -> dict[str, Any]:
    items = (
        schedule.schedule_id,
        schedule.spec.stored(),
        schedule.created_us,
        schedule.since_us,
        schedule.is_paused,
    )
    return _map(SCHEDULE_STATE, items, schedule.unknown)


def changed(settings: TopicSettings | GroupSettings) -> dict[str, Any]:
    """The settings that differ from their defaults, in a form that CBOR holds."""
    found = {}
    for field in attrs.fields(type(settings)):
        value = getattr(settings, field.name)
        if value != field.default:
            found[field.name] = value.isoformat() if isinstance(value, datetime) else value
    return found


def stored_settings(
    record: TopicRecord | GroupRecord, settings: TopicSettings | GroupSettings
) -> dict[str, Any]:
    """What to store when the settings become `settings`: those of a later version stay."""
    return {**record.unknown_settings, **changed(settings)}


def topic_settings_of(stored: Any) -> tuple[TopicSettings, dict[str, Any]]:
    """Topic settings from their stored form, and those of a later version. Raises ValueError, `FormatTooNew`."""
    known, unknown = _split(stored, TOPIC_FIELDS)
    return topic_settings(known, "a stored topic"), unknown


def group_settings_of(stored: Any) -> tuple[GroupSettings, dict[str, Any]]:
    """The same for a group."""
    known, unknown = _split(stored, GROUP_FIELDS)
    start = known.get("start")
    if isinstance(start, str) and start not in ("beginning", "end"):
        known["start"] = datetime.fromisoformat(start).astimezone(UTC)
    return group_settings(known, "a stored group"), unknown


def _split(stored: Any, fields: Collection[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    unknown = unknown_fields(stored, fields, "settings")
    return {name: value for name, value in stored.items() if name in fields}, unknown


def encode(event: Event) -> bytes:
    """One event as a journal record."""
    return cbor2.dumps({"kind": event[0], **dict(zip(EVENTS[event[0]][1], event[1:], strict=True))})


def decode(record: bytes, version: int = RECORDS_VERSION) -> tuple[Event, dict[str, Any]] | None:
    """One event and its unknown fields from a journal record; None when it may be ignored.

    Raises `JournalInvalid`, `FormatTooNew`.
    """
    found = _loads(record)
    try:
        if not version:
            if type(found) is not list or not found:
                raise ValueError("it is no array")
            return (found, {}) if check_kind(found[0], EVENTS, "a record of the catalog") else None
        if type(found) is not dict:
            raise ValueError("it is no map")
        kind = found.get("kind")
        if not check_kind(kind, EVENTS, "a record of the catalog"):
            return None
        names = EVENTS[found["kind"]][1]
        unknown = unknown_fields(found, ("kind", *names), "a record of the catalog")
        return (kind, *(found[name] for name in names)), unknown
    except (KeyError, ValueError) as error:
        raise _invalid(f"a record does not parse ({error}): {found!r:.80}") from error


def _map(names: Sequence[str], items: Sequence[Any], unknown: Mapping[str, Any]) -> dict[str, Any]:
    """The items by name, and what a later version wrote beside them."""
    return {**dict(zip(names, items, strict=True)), **unknown}


def _instant(found: Any) -> int | None:
    if found is not None and type(found) is not int:
        raise ValueError("a time that is no number")
    return found


def _loads(data: bytes) -> Any:
    try:
        return cbor2.loads(data)
    except CBOR_ERRORS as error:
        raise _invalid(f"a record does not parse ({error})") from error


def _invalid(what: str) -> JournalInvalid:
    return JournalInvalid(
        f"catalog: {what}. Nothing was changed. This is the symptom of a bug: please report it. Restore the directory"
        " `catalog` from a copy.",
        path="catalog",
        group=None,
    )
