"""Group states of a partition: journal records and snapshots rebuild them, and bad records are refused."""

from __future__ import annotations

from contextlib import suppress

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.delivery.events import EVENTS, GroupEvents
from callboard.actors.delivery.snapshot import snapshot_of
from callboard.actors.partition.group_records import CLOSE, OPEN, PREFIX, RECORDS_VERSION
from callboard.actors.partition.group_states import GroupStates
from callboard.log.errors import FormatTooNew, JournalInvalid


def test_records_and_snapshots_rebuild_every_group() -> None:
    """Replaying the records of several groups, or restoring a snapshot, gives the same floors and leases."""
    states, records = GroupStates(), []
    for group_id, start in ((1, 0), (2, 5)):
        group, record = states.open(group_id, durable=True, start=start)
        records.append(record)
        lease = group.delivery.lease(now=0.0, deadline=30.0, consumer=7, max_records=4, visible_end=20)
        assert lease is not None
        group.delivery.ack(lease.lease_id, [(start, start + 2)], 1.0)
        record = GroupEvents(group.group_id, group.delivery.take_events()).record(0.0)
        records.append(record)
    _, record = states.open(3, durable=False, start=0)
    records.append(record)
    closed = states.close(3)
    assert closed is not None
    records.append(closed)

    replayed, restored = GroupStates(), GroupStates()
    for record in records:
        replayed.apply(record)
    restored.restore(states.snapshot(0.0))
    for rebuilt in (replayed, restored):
        assert sorted(rebuilt.groups) == [1, 2]
        assert [group.delivery.offsets.floor for group in rebuilt] == [2, 7]
        assert [group.delivery.offsets.leased for group in rebuilt] == [2, 2]
        assert rebuilt.named_end() == 9
        assert rebuilt.unsettled_from(99) == 2


PREFIXED = st.builds(
    lambda kind, body: PREFIX.pack(1, kind) + body,
    st.sampled_from([EVENTS, OPEN, CLOSE, 9]),
    st.binary(max_size=40),
)
ITEMS = st.sampled_from(
    [EVENTS, OPEN, CLOSE, 9, 200, 1, True, None, "x", [], [["V"]], [["A", 1, [0, 5]]], {}]
)
STORED = st.lists(ITEMS, max_size=4) | st.dictionaries(
    st.sampled_from(["kind", "group", "durable", "start", "must", "groups", "delivery", "more"]), ITEMS
)


@given(st.binary(max_size=80) | PREFIXED | STORED.map(cbor2.dumps), st.booleans())
def test_untrusted_records_are_applied_or_refused(record: bytes, is_old: bool) -> None:
    """Arbitrary bytes in the delivery journal are applied or refused, never anything worse."""
    states = GroupStates()
    states.open(1, durable=True, start=0)
    states.versioned(0 if is_old else RECORDS_VERSION)
    for read in (states.apply, states.restore):
        with suppress(JournalInvalid, FormatTooNew):
            read(record)


def test_events_of_a_group_that_was_never_opened_make_no_sense() -> None:
    """The journal opens a group before it names it."""
    with pytest.raises(JournalInvalid, match="group 4, which was never opened") as raised:
        GroupStates().apply(cbor2.dumps([EVENTS, 4, []]))
    assert raised.value.group == 4


def test_events_that_do_not_fit_name_the_group_and_the_event() -> None:
    """An ack of what was never leased is the symptom of a bug, told with group and event."""
    states = GroupStates()
    states.open(3, durable=True, start=0)
    with pytest.raises(JournalInvalid, match=r"event \('A', 1, \(0, 5\)\) of group 3 does not fit"):
        states.apply(cbor2.dumps([EVENTS, 3, [["A", 1, [0, 5]]]]))


@pytest.mark.parametrize(
    "record",
    [
        [9, 1, []],
        {"kind": 9, "group": 1},
        {"kind": OPEN, "group": 1, "durable": True, "start": 0, "must": ["later"], "later": 1},
        [EVENTS, 1, [["Q"]]],
    ],
)
def test_an_unknown_mandatory_record_is_too_new(record: object) -> None:
    """What only a later version understands is neither damage nor a bug."""
    states = GroupStates()
    states.open(1, durable=True, start=0)
    with pytest.raises(FormatTooNew, match="Upgrade Callboard"):
        states.apply(cbor2.dumps(record))


def test_what_a_later_version_adds_is_kept_or_passed_over() -> None:
    """Unknown optional records are passed over; unknown fields are in the next snapshot, and in the one after."""
    states = GroupStates()
    opened = {"kind": OPEN, "group": 1, "durable": True, "start": 7, "retry": [1, 2]}
    for record in ([200, 1, "?"], {"kind": 128}, opened, [EVENTS, 1, [["S", 7, 9, None, "more"]], "more"]):
        states.apply(cbor2.dumps(record))
    again = GroupStates()
    again.restore(cbor2.dumps({**cbor2.loads(states.snapshot(0.0)), "lanes": {"a": 1}}))
    found = cbor2.loads(again.snapshot(0.0))
    assert ({"a": 1}, [1, 2]) == (found["lanes"], found["groups"][1]["retry"])
    assert again.groups[1].delivery.offsets.floor == 9


def test_records_and_snapshots_of_version_0_are_read() -> None:
    """What journals held before their segments had a version for it is read for ever."""
    states = GroupStates()
    states.versioned(0)
    states.apply(PREFIX.pack(5, OPEN) + cbor2.dumps([True, 3]))
    states.apply(PREFIX.pack(5, EVENTS) + cbor2.dumps([["L", 1, 2, [3, 8, 1]], ["A", 1, [3, 8]]]))
    states.apply(PREFIX.pack(6, OPEN) + cbor2.dumps([False, 0]))
    states.apply(PREFIX.pack(6, CLOSE))
    assert [(5, 8)] == [(group.group_id, group.delivery.offsets.floor) for group in states]
    delivery = {"version": 1, **snapshot_of(states.groups[5].delivery)}
    states.restore(cbor2.dumps({5: [True, delivery]}))
    assert [(5, True, 8)] == [
        (group.group_id, group.durable, group.delivery.offsets.floor) for group in states
    ]
    assert 8 == states.named_end()


def test_after_lost_records_only_settlements_count() -> None:
    """What was settled before and after the lost part stays settled; leases of which nothing is known do not."""
    states = GroupStates()
    states.open(1, durable=True, start=0)
    states.apply(cbor2.dumps([EVENTS, 1, [["L", 1, 2, [0, 5, 1]], ["A", 1, [0, 5]]]]))
    states.lost(10, 12)
    states.apply(cbor2.dumps([EVENTS, 1, [["L", 9, 2, [20, 30, 3]], ["A", 7, [6, 8]]]]))
    delivery = states.groups[1].delivery
    states.replayed(7, 13)
    assert delivery.offsets.next_lease_id > 2**32
    assert (5, [(6, 8)], 0, 30) == (
        delivery.offsets.floor,
        list(delivery.offsets.settled),
        delivery.offsets.leased,
        states.named_end(),
    )
    restored = GroupStates()
    restored.restore(states.snapshot(0.0))
    assert 30 == restored.named_end()
