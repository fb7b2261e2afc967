"""The catalog's state machine: what its events do, and that a snapshot rebuilds it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from callboard.actors.catalog import state
from callboard.actors.catalog.state import CatalogState
from callboard.actors.settings import GroupSettings, TopicSettings
from callboard.log.errors import FormatTooNew, JournalInvalid
from callboard.log.limits import CONSUMER_IDS_PER_BLOCK


def view(catalog: CatalogState) -> tuple[Any, ...]:
    """Everything comparable about a state."""
    return (dict(catalog.topics), dict(catalog.groups), catalog.next_group_id)


class Machine(RuleBasedStateMachine):
    """Random histories; after each step a snapshot and a replay of the events rebuild the same state."""

    def __init__(self) -> None:
        super().__init__()
        self.catalog = CatalogState()
        self.events: list[bytes] = []
        self.count = 0

    def do(self, *event: Any) -> None:
        stored = state.encode(event)
        self.events.append(stored)
        self.catalog.replay(stored)

    @rule(partitions=st.integers(1, 8), drop=st.booleans())
    def create_topic(self, partitions: int, drop: bool) -> None:
        self.count += 1
        settings = state.changed(TopicSettings(partitions=partitions, drop_unread=drop))
        self.do(state.TOPIC_CREATED, f"topic-{self.count}", f"{self.count:016x}", settings)

    @rule(start=st.sampled_from(["beginning", "end", 7, datetime(2026, 1, 2, 3, tzinfo=UTC)]))
    def open_group(self, start: Any) -> None:
        self.count += 1
        settings = state.changed(GroupSettings(start=start, visibility_timeout=3.5))
        self.do(state.GROUP_OPENED, f"group-{self.count}", self.catalog.next_group_id, settings, self.count)

    @precondition(lambda self: self.catalog.topics)
    @rule(data=st.data())
    def delete_topic(self, data: st.DataObject) -> None:
        topic_id = data.draw(st.sampled_from(sorted(self.catalog.topics)))
        if self.catalog.topics[topic_id].deleting:
            self.do(state.TOPIC_DELETED, topic_id)
            assert all(topic_id not in group.topic_ids for group in self.catalog.groups.values())
        else:
            self.do(state.TOPIC_DELETING, topic_id)
            assert self.catalog.topic(self.catalog.topics[topic_id].name) is None

    @precondition(lambda self: self.catalog.topics and self.catalog.groups)
    @rule(data=st.data())
    def join(self, data: st.DataObject) -> None:
        group_id = data.draw(st.sampled_from(sorted(self.catalog.groups)))
        self.do(state.GROUP_JOINED, group_id, data.draw(st.sampled_from(sorted(self.catalog.topics))))
        self.do(state.GROUP_IDLE, group_id, data.draw(st.none() | st.integers(0, 10)))

    @precondition(lambda self: self.catalog.groups)
    @rule(data=st.data())
    def delete_group(self, data: st.DataObject) -> None:
        self.do(state.GROUP_DELETED, data.draw(st.sampled_from(sorted(self.catalog.groups))))

    @invariant()
    def a_snapshot_rebuilds_the_state(self) -> None:
        restored = CatalogState()
        restored.restore(self.catalog.snapshot())
        assert view(restored) == view(self.catalog)

    @invariant()
    def replay_rebuilds_the_state(self) -> None:
        replayed = CatalogState()
        for event in self.events:
            replayed.replay(event)
        assert view(replayed) == view(self.catalog)


TestCatalogState = Machine.TestCase


@given(
    st.binary(max_size=60)
    | st.lists(st.integers(0, 9) | st.text(max_size=3) | st.none(), max_size=5).map(cbor2.dumps)
)
def test_untrusted_records_raise_journal_invalid_and_nothing_else(stored: bytes) -> None:
    """Whatever a journal holds, reading it back changes the state or raises JournalInvalid."""
    catalog = CatalogState()
    try:
        catalog.replay(stored)
    except (JournalInvalid, FormatTooNew):
        return


def test_a_snapshot_that_is_no_snapshot_is_refused() -> None:
    """A snapshot that does not parse raises JournalInvalid."""
    with pytest.raises(JournalInvalid):
        CatalogState().restore(b"\xff")


def test_what_a_later_version_adds_is_kept_or_passed_over() -> None:
    """Unknown records are passed over; unknown fields and settings are in the next snapshot, and survive altering."""
    catalog = CatalogState()
    created = {
        "kind": state.TOPIC_CREATED,
        "name": "orders",
        "topic": "01",
        "settings": {"lanes": 3},
        "owner": "eve",
    }
    opened = {
        "kind": state.GROUP_OPENED,
        "name": "billing",
        "group": 1,
        "settings": {"fence": "x"},
        "idle_since_us": 5,
    }
    joined = {"kind": state.GROUP_JOINED, "group": 1, "topic": "01", "since": 7}
    for event in ({"kind": 128, "name": 1}, created, opened, joined):
        catalog.replay(cbor2.dumps(event))
    record = catalog.topics["01"]
    altered = state.stored_settings(record, TopicSettings(drop_unread=True))
    catalog.replay(state.encode((state.TOPIC_ALTERED, "01", altered)))
    again = CatalogState()
    again.restore(cbor2.dumps({**cbor2.loads(catalog.snapshot()), "realm": "test"}))
    found = cbor2.loads(again.snapshot())
    assert "test" == found["realm"]
    assert ({"lanes": 3, "drop_unread": True}, "eve") == (
        found["topics"][0]["settings"],
        found["topics"][0]["owner"],
    )
    assert ({"fence": "x"}, 7) == (found["groups"][0]["settings"], found["groups"][0]["since"])
    assert TopicSettings(drop_unread=True) == again.topics["01"].settings


@pytest.mark.parametrize(
    "event",
    [
        {"kind": 99},
        {"kind": 1, "name": "a", "topic": "01", "settings": {}, "must": ["lanes"]},
        {"kind": 1, "name": "a", "topic": "01", "settings": {"lanes": 1, "must": ["lanes"]}},
        {"kind": 1, "name": "a", "topic": "01", "settings": {"lanes": 1, "must": ["partitions", "lanes"]}},
    ],
)
def test_an_unknown_mandatory_record_is_too_new(event: object) -> None:
    """What only a later version understands is neither damage nor a bug."""
    with pytest.raises(FormatTooNew, match="Upgrade Callboard"):
        CatalogState().replay(cbor2.dumps(event))


def test_events_and_snapshots_of_version_0_are_read() -> None:
    """What journals held before their segments had a version for it is read for ever."""
    catalog = CatalogState()
    catalog.versioned(0)
    for event in (
        (1, "orders", "01", {"partitions": 3}),
        (5, "billing", 4, {"durable": False}, 17),
        (6, 4, "01"),
        (7, 4, None),
        (1, "gone", "02", {}),
        (3, "02"),
    ):
        catalog.replay(cbor2.dumps(event))
    restored = CatalogState()
    restored.versioned(0)
    events = [
        (1, "orders", "01", {"partitions": 3}),
        (1, "gone", "02", {}),
        (3, "02"),
        (5, "billing", 4, {"durable": False}, 0),
        (6, 4, "01"),
        (7, 4, None),
    ]
    restored.restore(cbor2.dumps([5, events]))
    assert view(catalog) == view(restored)
    assert (3, 5) == (catalog.topics["01"].settings.partitions, catalog.next_group_id)


def test_after_lost_records_what_makes_no_sense_is_passed_over() -> None:
    """An event about a topic whose creation is lost is passed over, and names it; without a loss it is refused."""
    altered = state.encode((state.TOPIC_ALTERED, "01", {}))
    catalog = CatalogState()
    with pytest.raises(JournalInvalid, match="symptom of a bug"):
        catalog.replay(altered)
    catalog.lost(2, 3)
    catalog.replay(altered)
    catalog.replay(state.encode((state.TOPIC_CREATED, "orders", "02", {})))
    assert ["02"] == list(catalog.topics)
    assert ([(2, 3)], ["topic 01"]) == (catalog.lost_records, catalog.still_missing())


def test_ids_of_groups_that_are_lost_are_not_given_again() -> None:
    """Each lost record may have opened a group; the ids of those that are known stay as they are."""
    catalog = CatalogState()
    catalog.replay(state.encode((state.GROUP_OPENED, "a", 1, {}, None)))
    catalog.lost(2, 4)
    assert 5 == catalog.next_group_id
    catalog.replay(state.encode((state.GROUP_OPENED, "b", 3, {}, None)))
    assert 5 == catalog.next_group_id
    twin = CatalogState()
    twin.restore(catalog.snapshot())
    assert 5 == twin.next_group_id


def test_ids_of_consumers_that_are_lost_are_not_given_again() -> None:
    """Each lost record may have reserved a block of them."""
    catalog = CatalogState()
    catalog.replay(state.encode((state.CONSUMERS_RESERVED, 1001)))
    catalog.lost(2, 4)
    assert catalog.consumers_reserved == 1001 + 3 * CONSUMER_IDS_PER_BLOCK
    twin = CatalogState()
    twin.restore(catalog.snapshot())
    assert twin.consumers_reserved == catalog.consumers_reserved


def test_what_has_ended_is_not_missing() -> None:
    """Of groups and topics whose beginning is lost, those that a later event deletes are not missed."""
    catalog = CatalogState()
    catalog.lost(2, 3)
    events: list[state.Event] = [
        (state.GROUP_IDLE, 1, None),
        (state.GROUP_IDLE, 2, None),
        (state.GROUP_JOINED, 3, "01"),
        (state.GROUP_DELETED, 1),
        (state.TOPIC_DELETED, "01"),
        (state.GROUP_OPENED, "billing", 2, {}, None),
    ]
    for event in events:
        catalog.replay(state.encode(event))
    assert ["group 3"] == catalog.still_missing()
