"""Golden records: what the journals of record version 1 hold, every kind of it, byte for byte.

Each file in `records` holds records one behind the other, as a CBOR sequence. A file never changes. A new case is added
to `CASES`, and its file by running this module as a program, which writes only files that are missing. The files
`*_later` are of a later release of this version: what a reader does not know in them is optional.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import cbor2
import pytest

from callboard.actors.catalog import state as catalog
from callboard.actors.catalog.state import CatalogState
from callboard.actors.delivery.events import FIELDS, KINDS, GroupEvents
from callboard.actors.partition.group_states import GroupStates
from callboard.actors.records.delayed_records import DueTime, due_of
from callboard.actors.records.outbox_records import Addressed, Target, addressed
from callboard.log.errors import FormatTooNew
from callboard.log.format.columns import FOREVER

FOLDER = Path(__file__).parent / "records"
NOON_US = 1_700_000_000_000_000

TOPIC = {"partitions": 3, "segment_bytes": 65_536, "segment_age": 60.0, "retention_age": 3600.5,
         "retention_bytes": 1_000_000, "drop_unread": True, "compression": "gzip", "max_message_bytes": 9}  # fmt: skip
GROUP = {"mode": "shared", "visibility_timeout": 12.5, "max_in_flight": 7, "group_expiry": None,
         "start": "2023-11-14T22:13:20+00:00", "durable": False, "backoff": 0.25, "max_backoff": 30.0}  # fmt: skip

CATALOG_EVENTS: tuple[tuple[Any, ...], ...] = (
    (catalog.TOPIC_CREATED, "orders", "0123456789abcdef", {}),
    (catalog.TOPIC_CREATED, "Grüße", "ab", TOPIC),
    (catalog.TOPIC_CREATED, "leaving", "cd", {}),
    (catalog.TOPIC_CREATED, "gone", "ef", {}),
    (catalog.TOPIC_ALTERED, "0123456789abcdef", {"retention_age": 60.0}),
    (catalog.GROUP_OPENED, "workers", 1, {}, None),
    (catalog.GROUP_OPENED, "audit", 2, GROUP, NOON_US),
    (catalog.GROUP_OPENED, "closed", 3, {"start": 17}, NOON_US),
    (catalog.GROUP_JOINED, 1, "0123456789abcdef"),
    (catalog.GROUP_JOINED, 1, "ab"),
    (catalog.GROUP_JOINED, 2, "ef"),
    (catalog.GROUP_IDLE, 1, NOON_US + 1),
    (catalog.GROUP_IDLE, 2, None),
    (catalog.GROUP_DELETED, 3),
    (catalog.TOPIC_DELETING, "cd"),
    (catalog.TOPIC_DELETING, "ef"),
    (catalog.TOPIC_DELETED, "ef"),
    (catalog.CONSUMERS_RESERVED, 1001),
)
CATALOG_LATER: tuple[dict[str, Any], ...] = (
    {"kind": 1, "name": "orders", "topic": "ab", "settings": {"partitions": 2, "tier": "cold"}, "colour": "red"},
    {"kind": 2, "topic": "ab", "settings": {"partitions": 2, "tier": "warm"}, "by": ["somebody", 4]},
    {"kind": 5, "name": "workers", "group": 1, "settings": {"filter": b"\x00"}, "idle_since_us": None, "team": 9},
    {"kind": 6, "group": 1, "topic": "ab", "weight": 0.5},
    {"kind": 7, "group": 1, "idle_since_us": NOON_US},
    {"kind": 200, "what": "nobody knows"},
)  # fmt: skip
CATALOG_LATER_SNAPSHOT: dict[str, Any] = {
    "next_group": 8,
    "topics": [{"name": "orders", "topic": "ab", "settings": {"tier": "cold"}, "deleting": False, "colour": 1}],
    "groups": [{"name": "workers", "group": 7, "settings": {"filter": 2}, "idle_since_us": None, "topics": ["ab"],
                "team": 3}],
    "consumers_reserved": 1,
    "shards": [4],
}  # fmt: skip

DELIVERY_EVENTS: tuple[tuple[int, list[Any]], ...] = (
    (1, [("L", 1, 5, (0, 5, 1, 5, 10, 1))]),
    (1, [("A", 1, (0, 2, 3, 4))]),
    (1, [("N", 1, None, None, (2, 3)), ("N", 1, 1_700_000_060.5, "later: Grüße", (4, 6))]),
    (1, [("R", 1, (6, 7))]),
    (1, [("L", 2, 6, (2, 3, 2)), ("X", [1])]),
    (1, [("S", 20, 30, "skipped"), ("S", 40, 41, None)]),
    (1, [("L", 3, 5, (7, 8, 2))]),
    (2, [("L", 9, 5, (17, 18, 1)), ("V",), ("L", 10, 5, (17, 18, 2))]),
)
DELIVERY_LATER: tuple[Any, ...] = (
    {"kind": 1, "group": 1, "durable": True, "start": 3, "order": "by key", "limit": {"rate": 2}},
    {"kind": 1, "group": 2, "durable": True, "start": 0, "order": "none"},
    {"kind": 2, "group": 2, "why": "left"},
    [0, 1, [["L", 1, 5, [3, 5, 1], "traced", 17], ["q", "nobody knows"], ["A", 1, [3, 4], {}]], "behind"],
    {"kind": 130, "what": "nobody knows"},
    [140, "nobody knows"],
)
DELIVERY_LATER_SNAPSHOT: dict[str, Any] = {
    "groups": {1: {"durable": True, "delivery": None, "order": "by key"}},
    "named_end": 50,
    "window": [1, 2],
}


def group_events(group_id: int, events: Sequence[tuple[Any, ...]]) -> GroupEvents:
    """The events in their stored form, as named tuples."""
    return GroupEvents(group_id, [KINDS[event[0]](*event) for event in events])


def catalog_events() -> list[bytes]:
    return [catalog.encode(event) for event in CATALOG_EVENTS]


def catalog_group_altered() -> list[bytes]:
    opened = (catalog.GROUP_OPENED, "workers", 1, {"backoff": 0.25}, None)
    events = [catalog.encode(event) for event in (opened, (catalog.GROUP_ALTERED, 1, {"max_in_flight": 7}))]
    return [*events, replayed_catalog(events).snapshot()]


def delivery_sought() -> list[bytes]:
    _, opened = GroupStates().open(1, True, 0)
    events = [("L", 1, 5, (0, 6, 1)), ("A", 1, (0, 2)), ("K", 4), ("L", 2, 5, (4, 5, 1))]
    records = [opened, group_events(1, events).record(0.0)]
    return [*records, replayed_deliveries(records).snapshot(0.0)]


def catalog_delays() -> list[bytes]:
    created = (catalog.TOPIC_CREATED, "orders", "00ff", {})
    events = [catalog.encode(event) for event in (created, (catalog.TOPIC_DELAYS, "00ff"))]
    return [*events, replayed_catalog(events).snapshot()]


def catalog_outbox() -> list[bytes]:
    created = (catalog.TOPIC_CREATED, "orders", "00ff", {})
    enabled = (catalog.TOPIC_DELAYS, "00ff"), (catalog.TOPIC_OUTBOX, "00ff")
    events = [catalog.encode(event) for event in (created, *enabled)]
    return [*events, replayed_catalog(events).snapshot()]


def catalog_made() -> list[bytes]:
    created = (catalog.TOPIC_CREATED, "orders", "00ff", {})
    made = (catalog.TOPIC_MADE, "00ff", [""]), (catalog.TOPIC_MADE, "00ff", ["", "delayed", "outbox"])
    events = [catalog.encode(event) for event in (created, *made)]
    return [*events, replayed_catalog(events).snapshot()]


def catalog_births() -> list[bytes]:
    made = (catalog.GROUP_OPENED, "workers", 1, {}, None), (catalog.GROUP_BORN, 1, NOON_US)
    events = [catalog.encode(event) for event in made]
    return [*events, replayed_catalog(events).snapshot()]


def catalog_idle_noticed() -> list[bytes]:
    made = (
        (catalog.GROUP_OPENED, "workers", 1, {}, NOON_US + 1),
        (catalog.GROUP_NOTICED, 1, NOON_US + 1, NOON_US),
    )
    events = [catalog.encode(event) for event in made]
    return [*events, replayed_catalog(events).snapshot()]


def catalog_outbox_delays() -> list[bytes]:
    created = (catalog.TOPIC_CREATED, "orders", "00ff", {})
    enabled = (catalog.TOPIC_OUTBOX, "00ff"), (catalog.TOPIC_OUTBOX_DELAYS, "00ff")
    events = [catalog.encode(event) for event in (created, *enabled)]
    return [*events, replayed_catalog(events).snapshot()]


def catalog_patterns() -> list[bytes]:
    opened = (catalog.GROUP_OPENED, "workers", 1, {}, None)
    topics = [(catalog.TOPIC_CREATED, f"orders.{topic}", topic, {}) for topic in ("00aa", "00bb")]
    reads = (catalog.GROUP_PATTERN, 1, "orders.*", False), (catalog.GROUP_JOINED, 1, "00aa")
    events = [
        catalog.encode(event)
        for event in (topics[0], opened, *reads, topics[1], (catalog.GROUP_FOUND, 1, "00bb"))
    ]
    return [*events, replayed_catalog(events).snapshot()]


def catalog_schedules() -> list[bytes]:
    report = {"name": "report", "value": b"now", "partition": 0, "cron": "0 9 * * MON-FRI", "zone": "Europe/Berlin",
              "missed": "all", "key": b"k", "headers": {"a": b"\xff"}, "ttl_us": FOREVER, "priority": 10}  # fmt: skip
    beat = {"name": "beat", "value": b"", "partition": 2, "every_us": 500_000}
    last = 2**64 - 1
    events = [
        catalog.encode(event)
        for event in (
            (catalog.TOPIC_CREATED, "orders", "00ff", {"partitions": 3}),
            (catalog.SCHEDULE_ADDED, "00ff", 7, report, NOON_US),
            (catalog.SCHEDULE_ADDED, "00ff", last, beat, NOON_US + 1),
            (catalog.SCHEDULE_ADDED, "00ff", 8, {**beat, "name": "gone"}, NOON_US + 2),
            (catalog.SCHEDULE_PAUSED, "00ff", 7),
            (catalog.SCHEDULE_RESUMED, "00ff", 7, NOON_US + 3),
            (catalog.SCHEDULE_PAUSED, "00ff", last),
            (catalog.SCHEDULE_REMOVED, "00ff", 8),
        )
    ]
    return [*events, replayed_catalog(events).snapshot()]


def outbox_headers() -> list[bytes]:
    heads = [
        Addressed(Target("00ff", 0), 1, 2),
        Addressed(Target("0123456789abcdef", 1023), 2**32 - 1, 2**63, NOON_US, FOREVER),
    ]
    return [cbor2.dumps(head.packed()) for head in heads]


def outbox_headers_delayed() -> list[bytes]:
    return [cbor2.dumps(Addressed(Target("00ff", 7, waits=True), 1, 2).packed())]


def delivery_outbox() -> list[bytes]:
    states = GroupStates()
    opened = [states.open(group, True, 0)[1] for group in (1, 2)]
    steps = [
        (1, [("L", 1, 5, (0, 6, 1)), ("A", 1, (0, 2)), ("O", 0, 1, 7, 10)]),
        (2, [("L", 1, 6, (0, 6, 1)), ("A", 1, (3, 4)), ("O", 3, 1, 10, 11)]),
        (1, [("A", 1, (2, 3)), ("O", 4, 1, 12, 13)]),
    ]
    records = [*opened, *(group_events(group, events).record(0.0) for group, events in steps)]
    states = replayed_deliveries(records)
    sent, closed = states.forget_sent([1, 2]), states.close(2)
    assert sent is not None
    assert closed is not None
    records += [sent, closed]
    return [*records, replayed_deliveries(records).snapshot(0.0)]


def delayed_headers() -> list[bytes]:
    dues = [
        DueTime(NOON_US),
        DueTime(NOON_US + 1, 2, 2**64 - 1, 7, 3, 4),
        DueTime(NOON_US, 5, 6, 8, None, FOREVER),
    ]
    return [cbor2.dumps(due.packed()) for due in dues]


def catalog_snapshot() -> list[bytes]:
    return [replayed_catalog(catalog_events()).snapshot()]


def catalog_later() -> list[bytes]:
    return [cbor2.dumps(record) for record in CATALOG_LATER]


def catalog_later_snapshot() -> list[bytes]:
    return [cbor2.dumps(CATALOG_LATER_SNAPSHOT)]


def delivery_records() -> list[bytes]:
    states = GroupStates()
    opened = [states.open(1, True, 0)[1], states.open(2, False, 17)[1], states.open(3, True, 2**40)[1]]
    closed = states.close(3)
    assert closed is not None
    return [*opened, *(group_events(group, events).record(0.0) for group, events in DELIVERY_EVENTS), closed]


def delivery_snapshot() -> list[bytes]:
    return [replayed_deliveries(delivery_records()).snapshot(0.0)]


def delivery_later() -> list[bytes]:
    return [cbor2.dumps(record) for record in DELIVERY_LATER]


def delivery_later_snapshot() -> list[bytes]:
    delivery = cbor2.loads(delivery_snapshot()[0])["groups"][1]["delivery"]
    found = cbor2.loads(cbor2.dumps(DELIVERY_LATER_SNAPSHOT))
    found["groups"][1]["delivery"] = delivery
    return [cbor2.dumps(found)]


def delivery_passed() -> list[bytes]:
    _, opened = GroupStates().open(1, True, 0)
    events = [("P", 60), ("L", 1, 5, (4, 6, 1)), ("A", 1, (4, 5)), ("S", 8, 9, None)]
    records = [opened, group_events(1, events).record(0.0)]
    return [*records, replayed_deliveries(records).snapshot(0.0)]


def delivery_dead() -> list[bytes]:
    _, opened = GroupStates().open(1, True, 0)
    events = [
        ("L", 1, 5, (0, 6, 1)),
        ("D", 0, 1_700_000_000.5, 5, "no customer: Grüße", (1, 3, 1, 4, 5, 1)),
        ("X", [1]),
        ("L", 2, 6, (0, 1, 2)),
        ("X", [2]),
        ("D", 3, 1_700_000_060.0, None, None, (0, 1, 2)),
        ("F", 2),
    ]
    records = [opened, group_events(1, events).record(0.0)]
    return [*records, replayed_deliveries(records).snapshot(0.0)]


def delivery_births() -> list[bytes]:
    records = [GroupStates().open(1, True, 0, 7, NOON_US)[1]]
    return [*records, replayed_deliveries(records).snapshot(0.0)]


def delivery_expired() -> list[bytes]:
    _, opened = GroupStates().open(1, True, 0)
    events = [
        ("n", 5, "clerk"),
        ("L", 1, 5, (0, 6, 1)),
        ("X", [1]),
        ("t", 1_700_000_000.5, "clerk", (0, 6)),
        ("L", 2, 6, (0, 2, 2)),
        ("D", 0, 1_700_000_030.0, 6, "no customer", (0, 1, 2)),
        ("E", 1, 1_700_000_060.0, (1, 3, 6, 1006)),
    ]
    records = [opened, group_events(1, events).record(0.0)]
    return [*records, replayed_deliveries(records).snapshot(0.0)]


CASES: dict[str, Callable[[], list[bytes]]] = {
    "catalog_events": catalog_events,
    "catalog_group_altered": catalog_group_altered,
    "catalog_delays": catalog_delays,
    "catalog_outbox": catalog_outbox,
    "catalog_outbox_delays": catalog_outbox_delays,
    "catalog_made": catalog_made,
    "catalog_births": catalog_births,
    "catalog_idle_noticed": catalog_idle_noticed,
    "catalog_patterns": catalog_patterns,
    "catalog_schedules": catalog_schedules,
    "outbox_headers": outbox_headers,
    "outbox_headers_delayed": outbox_headers_delayed,
    "delivery_outbox": delivery_outbox,
    "delayed_headers": delayed_headers,
    "catalog_snapshot": catalog_snapshot,
    "catalog_later": catalog_later,
    "catalog_later_snapshot": catalog_later_snapshot,
    "delivery_records": delivery_records,
    "delivery_snapshot": delivery_snapshot,
    "delivery_passed": delivery_passed,
    "delivery_dead": delivery_dead,
    "delivery_sought": delivery_sought,
    "delivery_births": delivery_births,
    "delivery_expired": delivery_expired,
    "delivery_later": delivery_later,
    "delivery_later_snapshot": delivery_later_snapshot,
}


def golden(name: str) -> list[bytes]:
    """The records of a file."""
    data = io.BytesIO((FOLDER / f"{name}.bin").read_bytes())
    decoder, records, start = cbor2.CBORDecoder(data, read_size=1), [], 0
    while start < len(data.getbuffer()):
        decoder.decode()
        records.append(bytes(data.getbuffer()[start : data.tell()]))
        start = data.tell()
    return records


def replayed_catalog(records: list[bytes]) -> CatalogState:
    state = CatalogState()
    for record in records:
        state.replay(record)
    return state


def replayed_deliveries(records: list[bytes]) -> GroupStates:
    states = GroupStates()
    for record in records:
        states.apply(record)
    return states


@pytest.mark.parametrize("name", CASES)
def test_the_golden_records_are_written(name: str) -> None:
    """The same events and states give the bytes that earlier releases wrote."""
    assert golden(name) == CASES[name]()


def test_the_golden_catalog_is_read() -> None:
    """Each event has its effect, and the snapshot says the same as all of them."""
    state = replayed_catalog(golden("catalog_events"))
    (stored,) = golden("catalog_snapshot")
    assert state.snapshot() == stored
    restored = CatalogState()
    restored.restore(stored)
    assert restored.snapshot() == stored

    found = cbor2.loads(stored)
    assert [("orders", False), ("Grüße", False), ("leaving", True)] == [
        (topic["name"], topic["deleting"]) for topic in found["topics"]
    ]
    assert [{"retention_age": 60.0}, TOPIC] == [topic["settings"] for topic in found["topics"][:2]]
    assert [
        ("workers", 1, NOON_US + 1, ["0123456789abcdef", "ab"]),
        ("audit", 2, None, []),
    ] == [
        (group["name"], group["group"], group["idle_since_us"], group["topics"]) for group in found["groups"]
    ]
    assert {name: value for name, value in GROUP.items() if name != "mode"} == found["groups"][1]["settings"]
    assert (4, 1001) == (found["next_group"], found["consumers_reserved"])


def test_an_altered_group_is_read() -> None:
    """Its settings are the last ones."""
    *events, stored = golden("catalog_group_altered")
    assert replayed_catalog(events).snapshot() == stored
    (group,) = cbor2.loads(stored)["groups"]
    assert {"max_in_flight": 7} == group["settings"]


def test_a_topic_with_delayed_messages_is_read() -> None:
    """From the event and from a snapshot; an older release must refuse it, since they would wait for ever."""
    *events, stored = golden("catalog_delays")
    assert replayed_catalog(events).snapshot() == stored
    state = CatalogState()
    state.restore(stored)
    assert state.topics["00ff"].delays
    assert cbor2.loads(stored)["topics"][0]["must"] == ["delays"]
    headers = [due_of(cbor2.loads(header)) for header in golden("delayed_headers")]
    assert headers[0] == DueTime(NOON_US)
    assert headers[1] == DueTime(NOON_US + 1, 2, 2**64 - 1, 7, 3, 4)
    assert headers[2] == DueTime(NOON_US, 5, 6, 8, None, FOREVER)


def test_what_a_later_release_adds_to_the_catalog_is_kept() -> None:
    """Unknown fields and settings are in the next snapshot; unknown optional kinds are passed over."""
    found = cbor2.loads(replayed_catalog(golden("catalog_later")).snapshot())
    (topic,), (group,) = found["topics"], found["groups"]
    assert {"tier": "warm", "partitions": 2} == topic["settings"]
    assert ("red", ["somebody", 4]) == (topic["colour"], topic["by"])
    assert ({"filter": b"\x00"}, 9, 0.5) == (group["settings"], group["team"], group["weight"])

    (stored,) = golden("catalog_later_snapshot")
    state = CatalogState()
    state.restore(stored)
    assert CATALOG_LATER_SNAPSHOT == cbor2.loads(state.snapshot())


def test_the_golden_deliveries_are_read() -> None:
    """Each record has its effect, and the snapshot says the same as all of them."""
    states = replayed_deliveries(golden("delivery_records"))
    (stored,) = golden("delivery_snapshot")
    assert states.snapshot(0.0) == stored
    restored = GroupStates()
    restored.restore(stored)
    assert restored.snapshot(0.0) == stored

    assert [(1, True), (2, False)] == [(group.group_id, group.durable) for group in restored]
    first, second = (group.delivery for group in restored)
    assert (2, 10, 17, 18) == (
        first.offsets.floor,
        first.offsets.next,
        second.offsets.floor,
        second.offsets.next,
    )


def test_what_was_passed_over_is_read() -> None:
    """Records that were passed over wait in the snapshot, too."""
    *records, stored = golden("delivery_passed")
    states = replayed_deliveries(records)
    assert states.snapshot(0.0) == stored
    restored = GroupStates()
    restored.restore(stored)
    assert restored.snapshot(0.0) == stored
    assert 60 == restored.groups[1].delivery.offsets.next


def test_the_golden_dead_letters_are_read() -> None:
    """Replayed or restored, the same dead letters are kept, with all that is known of them."""
    *records, snapshot = golden("delivery_dead")
    restored = GroupStates()
    restored.restore(snapshot)
    for states in (replayed_deliveries(records), restored):
        delivery = states.groups[1].delivery
        first, last = delivery.dead_letters()
        assert first[:6] == (2, 4, 1, 1_700_000_000.5, 5, "no customer: Grüße")
        assert last[:6] == (3, 0, 2, 1_700_000_060.0, None, None)
        assert (delivery.offsets.floor, delivery.dead.next, delivery.dead.total) == (3, 4, 4)
        assert states.unsettled_from(99) == 0


def test_golden_letters_that_expired_are_read() -> None:
    """Neighbours that expired are one array, and each of them a dead letter that tells when and in whom it failed."""
    *records, snapshot = golden("delivery_expired")
    restored = GroupStates()
    restored.restore(snapshot)
    for states in (replayed_deliveries(records), restored):
        delivery = states.groups[1].delivery
        assert (delivery.dead.count, delivery.dead.failed, delivery.dead.next) == (1003, 1, 1003)
        first, *others = delivery.dead_letters()
        assert first[1:5] == (0, 2, 1_700_000_030.0, 6)
        assert first[6:9] == (1_700_000_000.5, ("clerk", "6"), 0)
        assert [letter.offset for letter in others] == [1, 2, *range(6, 1006)]
        assert {letter[2:9] for letter in others[:2]} == {
            (1, 1_700_000_060.0, None, "expired", 1_700_000_000.5, ("clerk",), 1)
        }
        assert others[-1][2:9] == (0, 1_700_000_060.0, None, "expired", 1_700_000_060.0, (), 1)
        assert [letter.number for letter in delivery.dead_letters(2, above=700)] == [701, 702]
        assert [row[:3] for row in delivery.offsets.failures.ranges] == [(3, 6, 1_700_000_000.5)]
        assert states.snapshot(0.0) == snapshot


def test_every_kind_has_a_golden_record() -> None:
    """A new kind of record or event gets a case here."""
    events = golden("catalog_events") + golden("catalog_group_altered")[:-1] + golden("catalog_delays")[:-1]
    events += golden("catalog_outbox")[:-1] + golden("catalog_patterns")[:-1]
    events += golden("catalog_schedules")[:-1] + golden("catalog_outbox_delays")[:-1]
    events += golden("catalog_made")[:-1] + golden("catalog_births")[:-1]
    events += golden("catalog_idle_noticed")[:-1]
    assert set(catalog.EVENTS) == {cbor2.loads(event)["kind"] for event in events}
    written = golden("delivery_records") + golden("delivery_passed")[:-1] + golden("delivery_dead")[:-1]
    written += golden("delivery_sought")[:-1] + golden("delivery_outbox")[:-1]
    written += golden("delivery_expired")[:-1]
    stored = [cbor2.loads(record) for record in written]
    assert {0, 1, 2, 3} == {record[0] if isinstance(record, list) else record["kind"] for record in stored}
    assert set(FIELDS) == {event[0] for record in stored if isinstance(record, list) for event in record[2]}


def test_the_golden_outbox_is_read() -> None:
    """Entries are there until they are sent, whatever becomes of their group; older versions refuse all of it."""
    *records, stored = golden("delivery_outbox")
    states = GroupStates()
    for source in (records, [stored]):
        for record in source if len(source) > 1 else ():
            states.apply(record)
        if source == [stored]:
            states = GroupStates()
            states.restore(stored)
        assert [tuple(entry) for entry in states.outbox.after(-1)] == [
            (0, 7, 1, 1, 0),
            (3, 10, 2, 1, 0),
            (4, 12, 1, 1, 0),
        ]
        assert (states.outbox.next, list(states.groups)) == (5, [1])
        assert states.snapshot(0.0) == stored
    assert cbor2.loads(stored)["must"] == ["outbox"]
    *events, found = golden("catalog_outbox")
    state = replayed_catalog(events)
    assert state.topics["00ff"].outbox
    assert cbor2.loads(found)["topics"][0]["must"] == ["delays", "outbox"]
    heads = [addressed(cbor2.loads(header)) for header in golden("outbox_headers")]
    assert heads[0] == Addressed(Target("00ff", 0), 1, 2)


def test_the_golden_folders_are_read() -> None:
    """Replayed or restored, the same folders are known to have been made."""
    *events, found = golden("catalog_made")
    for state in (replayed_catalog(events), CatalogState()):
        if not state.topics:
            state.restore(found)
        assert state.topics["00ff"].made == {"", "delayed", "outbox"}
        assert state.snapshot() == found


def test_what_was_noticed_of_an_idle_group_is_read() -> None:
    """Replayed or restored, until the group is idle from another time on; an older release keeps it."""
    *events, found = golden("catalog_idle_noticed")
    restored = CatalogState()
    restored.restore(found)
    for state in (replayed_catalog(events), restored):
        assert state.groups[1].idle_noticed == (NOON_US + 1, NOON_US)
        assert state.snapshot() == found
        state.apply((catalog.GROUP_IDLE, 1, None))
        assert state.groups[1].idle_noticed is None
    assert "must" not in cbor2.loads(found)["groups"][0]


def test_the_golden_births_are_read() -> None:
    """Replayed or restored, catalog and delivery journal know which group of the id it is."""
    *events, found = golden("catalog_births")
    restored = CatalogState()
    restored.restore(found)
    for state in (replayed_catalog(events), restored):
        assert state.groups[1].birth == NOON_US
        assert state.snapshot() == found
    *records, stored = golden("delivery_births")
    again = GroupStates()
    again.restore(stored)
    for states in (replayed_deliveries(records), again):
        assert (states.groups[1].birth, states.groups[1].delivery.dead.numbering) == (NOON_US, 7)
        assert states.snapshot(0.0) == stored


def test_the_golden_outbox_with_delays_is_read() -> None:
    """Older versions refuse it, in the journal and in a snapshot: they would take what is delayed for lost."""
    *events, found = golden("catalog_outbox_delays")
    for state in (replayed_catalog(events), CatalogState()):
        if not state.topics:
            state.restore(found)
        assert (state.topics["00ff"].outbox, state.topics["00ff"].outbox_delays) == (True, True)
        assert state.snapshot() == found
    assert cbor2.loads(found)["topics"][0]["must"] == ["outbox", "outbox_delays"]
    (header,) = golden("outbox_headers_delayed")
    assert addressed(cbor2.loads(header)) == Addressed(Target("00ff", 7, waits=True), 1, 2)


def test_a_group_of_a_pattern_is_read() -> None:
    """It reads what it began with and what it has found since; older versions refuse it."""
    *events, stored = golden("catalog_patterns")
    for state in (replayed_catalog(events), CatalogState()):
        if not state.groups:
            state.restore(stored)
        group = state.groups[1]
        assert group.pattern is not None
        assert (group.pattern.words, group.pattern.dead_letters) == ("orders.*", False)
        assert (sorted(group.topic_ids), sorted(group.found)) == (["00aa", "00bb"], ["00bb"])
        assert state.snapshot() == stored
    assert cbor2.loads(stored)["groups"][0]["must"] == ["pattern"]


def test_a_topic_with_schedules_is_read() -> None:
    """What is published, when, and since when; older versions refuse it, since nothing would come."""
    *events, stored = golden("catalog_schedules")
    for state in (replayed_catalog(events), CatalogState()):
        if not state.topics:
            state.restore(stored)
        report, beat = state.topics["00ff"].schedules
        assert (report.schedule_id, report.created_us, report.since_us) == (7, NOON_US, NOON_US + 3)
        assert (beat.schedule_id, beat.created_us, beat.since_us) == (2**64 - 1, NOON_US + 1, NOON_US + 1)
        assert (report.is_paused, beat.is_paused) == (False, True)
        assert (report.spec.cron, report.spec.zone, report.spec.missed) == (
            "0 9 * * MON-FRI",
            "Europe/Berlin",
            "all",
        )
        assert (report.spec.value, report.spec.key, report.spec.headers) == (b"now", b"k", {"a": b"\xff"})
        assert (report.spec.ttl_us, report.spec.priority, report.spec.partition) == (FOREVER, 10, 0)
        assert (beat.spec.every_us, beat.spec.missed, beat.spec.partition) == (500_000, "latest", 2)
        assert state.snapshot() == stored
    found = cbor2.loads(stored)
    assert found["topics"][0]["must"] == ["schedules"]
    found["topics"][0]["schedules"][1] |= {"colour": "red", "settings": {**beat.spec.stored(), "by": 4}}
    later = CatalogState()
    later.restore(cbor2.dumps(found))
    assert cbor2.loads(later.snapshot()) == found


def test_a_group_that_was_sought_elsewhere_is_read() -> None:
    """It stands there, and no offset that it had named before is named anew: the log may have lost it."""
    *records, stored = golden("delivery_sought")
    states = replayed_deliveries(records)
    assert states.snapshot(0.0) == stored
    delivery = states.groups[1].delivery
    offsets = delivery.offsets
    assert (offsets.floor, offsets.next, offsets.next_lease_id, states.named_end()) == (4, 5, 3, 6)


def test_what_a_later_release_adds_to_deliveries_is_kept() -> None:
    """Unknown fields of a group are in the next snapshot; fields behind those of an event, unknown lower-case events
    and unknown optional kinds are passed over."""
    found = cbor2.loads(replayed_deliveries(golden("delivery_later")).snapshot(0.0))
    assert [1] == list(found["groups"])
    group = found["groups"][1]
    assert ("by key", {"rate": 2}) == (group["order"], group["limit"])
    assert (4, 5) == (group["delivery"]["floor"], group["delivery"]["next"])

    (stored,) = golden("delivery_later_snapshot")
    states = GroupStates()
    states.restore(stored)
    assert cbor2.loads(stored) == cbor2.loads(states.snapshot(0.0))


@pytest.mark.parametrize(
    "record",
    [
        {"kind": 100},
        {"kind": 3, "topic": "ab", "must": ["soon"], "soon": 1},
        {"kind": 1, "name": "orders", "topic": "ab", "settings": {"must": ["tier"], "tier": 1}},
    ],
    ids=["kind", "field", "setting"],
)
def test_what_is_mandatory_and_unknown_in_the_catalog_is_refused(record: dict[str, Any]) -> None:
    """A newer release says what may not be passed over."""
    with pytest.raises(FormatTooNew):
        replayed_catalog([*golden("catalog_later")[:1], cbor2.dumps(record)])


@pytest.mark.parametrize(
    "record",
    [
        {"kind": 100},
        [100],
        [0, 1, [["Z"]]],
        {"kind": 1, "group": 4, "durable": True, "start": 0, "must": ["order"], "order": 1},
    ],
    ids=["map", "array", "event", "field"],
)
def test_what_is_mandatory_and_unknown_in_deliveries_is_refused(record: Any) -> None:
    """A newer release says what may not be passed over."""
    with pytest.raises(FormatTooNew):
        replayed_deliveries([*golden("delivery_later")[:1], cbor2.dumps(record)])


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, make in CASES.items():
        path = FOLDER / f"{name}.bin"
        if not path.exists():
            path.write_bytes(b"".join(make()))
