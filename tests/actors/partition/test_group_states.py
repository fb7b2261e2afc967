"""Group states of a partition: journal records and snapshots rebuild them, and bad records are refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.partition.group_states import CLOSE, EVENTS, OPEN, PREFIX, GroupEvents, GroupStates
from callboard.log.errors import LogCorrupt


def test_records_and_snapshots_rebuild_every_group() -> None:
    """Replaying the records of several groups, or restoring a snapshot, gives the same floors and leases."""
    states, records = GroupStates(), []
    for group_id, start in ((1, 0), (2, 5)):
        group, record = states.open(group_id, durable=True, start=start)
        records.append(record)
        grant = group.delivery.lease(now=0.0, deadline=30.0, consumer=7, max_records=4, visible_end=20)
        assert grant is not None
        group.delivery.ack(grant.lease_id, [(start, start + 2)], 1.0)
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
        assert [group.delivery.floor for group in rebuilt] == [2, 7]
        assert [group.delivery.leased for group in rebuilt] == [2, 2]
        assert rebuilt.named_end() == 9
        assert rebuilt.unsettled_from(99) == 2


def test_only_durable_groups_hold_retention_back() -> None:
    """An ephemeral group's floor does not count; without durable groups nothing does."""
    states = GroupStates()
    states.open(1, durable=False, start=3)
    assert states.unsettled_from(50) == 50
    states.open(2, durable=True, start=10)
    assert states.unsettled_from(50) == 10


PREFIXED = st.builds(
    lambda kind, body: PREFIX.pack(1, kind) + body,
    st.sampled_from([EVENTS, OPEN, CLOSE, 9]),
    st.binary(max_size=40),
)


@given(st.binary(max_size=80) | PREFIXED)
def test_untrusted_records_raise_log_corrupt_and_nothing_else(record: bytes) -> None:
    """Arbitrary bytes in the delivery journal are applied or refused, never anything worse."""
    states = GroupStates()
    states.open(1, durable=True, start=0)
    for read in (states.apply, states.restore):
        try:
            read(record)
        except LogCorrupt:
            continue


def test_events_of_a_group_that_was_never_opened_are_corrupt() -> None:
    """The journal opens a group before it names it."""
    with pytest.raises(LogCorrupt, match="never opened"):
        GroupStates().apply(PREFIX.pack(4, EVENTS) + b"\x80")
