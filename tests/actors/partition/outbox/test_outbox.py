"""Acks that publish, as the core of a partition decides on them, and the entries that they leave."""

from __future__ import annotations

from typing import Any

import cbor2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callboard.actors.delivery.events import DeliveryEventInvalid, decode_events
from callboard.actors.partition import commands as c
from callboard.actors.partition import effects as e
from callboard.actors.partition.carried import Carried
from callboard.actors.partition.commands import OutboxEntry
from callboard.actors.partition.core import PartitionCore
from callboard.actors.partition.deliveries import CoreOptions
from callboard.actors.partition.group_records import SENT
from callboard.actors.partition.group_states import GIVEN_PER_RECORD, GroupStates, above_lost
from callboard.actors.partition.outbox.entries import (
    OutboxEntries,
    as_ranges,
    from_ranges,
)
from callboard.log.errors import JournalInvalid, OutboxFull
from callboard.log.limits import Limits

VISIBLE = 20


def core_of(states: GroupStates | None = None, *, outbox: int = 10) -> PartitionCore:
    """A core with group 1 and twenty records."""
    states = GroupStates() if states is None else states
    core = PartitionCore(
        states, Carried(), CoreOptions(label="orders/0", limits=Limits(outbox=outbox)), visible_end=VISIBLE
    )
    core.begin(0.0, restarted=False)
    core.group_openings.open_group(c.OpenGroup(1, durable=True, start="beginning"), "open", 0.0)
    return core


def leased(core: PartitionCore, count: int = 1) -> int:
    """The receipt of a lease of so many records."""
    lease = core.fetch(c.Fetch(1, 5, count, 1000), object(), 0.0)
    assert lease is not None
    return lease.lease_id


def answers(core: PartitionCore) -> dict[Any, Any]:
    """What was answered when the next commit is written, and its records, under "records"."""
    found: dict[Any, Any] = {}
    work = core.journal.take()
    if work is not None:
        found["records"] = [
            entry if isinstance(entry, bytes) else entry.record(0.0) for entry in work.entries
        ]
        core.journalled(work)
    effects = core.deliveries.take_effects()
    for effect in effects:
        if isinstance(effect, e.Journalled):
            found |= dict(effect.answers)
            for pending in effect.leases:
                core.delivered(pending)
        elif isinstance(effect, e.OutboxMoved):
            found["moved"] = effect
    return found


def test_an_ack_and_what_it_publishes_are_one_record() -> None:
    """The record acks first, then names the payloads."""
    core = core_of()
    lease_id = leased(core, 3)
    answers(core)
    core.outbox.ack_and_publish(c.AckAndPublish(1, [(lease_id, [(0, 2)])], 7, 9), "ack", 1.0)
    found = answers(core)
    assert found["ack"].lost == ()
    assert found["moved"] == (2, True)
    (record,) = found["records"]
    assert cbor2.loads(record) == [0, 1, [["A", lease_id, [0, 2]], ["O", 0, lease_id, 7, 9]]]
    core.outbox.list_outbox(c.ListOutbox(-1, 0), "list", 1.0)
    assert answers(core)["list"] == (OutboxEntry(0, 7, 1, lease_id), OutboxEntry(1, 8, 1, lease_id))
    core.outbox.list_outbox(c.ListOutbox(0, 0), "list", 1.0)
    assert [entry.number for entry in answers(core)["list"]] == [1]
    core.outbox.list_outbox(c.ListOutbox(0, 8), "list", 1.0)
    assert [entry.number for entry in answers(core)["list"]] == [0, 1]


def test_a_stale_receipt_does_nothing_at_all() -> None:
    """Also when most of what it names is still held: all or nothing."""
    core = core_of()
    first, second = leased(core, 2), leased(core, 2)
    core.release(c.Release(1, second, [(3, 4)]), "release", 0.0)
    answers(core)
    parts = [(first, [(0, 2)]), (second, [(2, 4)])]
    core.outbox.ack_and_publish(c.AckAndPublish(1, parts, 0, 1), "ack", 1.0)
    found = answers(core)
    assert found["ack"].lost == ((2, 4),)
    assert found["records"] == []
    assert (len(core.states.outbox), core.states.groups[1].delivery.acked) == (0, 0)


def test_a_late_ack_counts_until_the_message_is_leased_again() -> None:
    """As any ack does."""
    core = core_of()
    late, lost = leased(core), leased(core)
    answers(core)
    core.time_has_come(100.0)
    again = core.fetch(c.Fetch(1, 6, 1, 1000), object(), 100.0)
    assert again is not None
    assert again.ranges == ((0, 1, 2),)
    core.outbox.ack_and_publish(c.AckAndPublish(1, [(lost, [(1, 2)])], 0, 1), "counts", 100.0)
    core.outbox.ack_and_publish(c.AckAndPublish(1, [(late, [(0, 1)])], 1, 2), "lost", 100.0)
    found = answers(core)
    assert (found["counts"].lost, found["lost"].lost) == ((), ((0, 1),))
    assert [entry.offset for entry in core.states.outbox.after(-1)] == [0]


def test_an_ack_that_is_asked_again_is_done_once() -> None:
    """When the first try has named the payloads, nothing is lost; when it has not, all is."""
    core = core_of()
    lease_id = leased(core)
    message = c.AckAndPublish(1, [(lease_id, [(0, 1)])], 4, 5)
    core.outbox.ack_and_publish(message, "first", 1.0)
    core.outbox.ack_and_publish(message._replace(again=True), "again", 1.0)
    core.outbox.ack_and_publish(message._replace(start=5, stop=6, again=True), "other", 1.0)
    found = answers(core)
    assert (found["again"].lost, found["other"].lost) == ((), ((0, 1),))
    assert len(core.states.outbox) == 1


def test_a_full_outbox_refuses_before_anything_has_changed() -> None:
    """And no other ack."""
    core = core_of(outbox=2)
    lease_id = leased(core, 3)
    core.outbox.ack_and_publish(c.AckAndPublish(1, [(lease_id, [(0, 1)])], 0, 2), "first", 1.0)
    answers(core)
    with pytest.raises(OutboxFull, match="2 are allowed"):
        core.outbox.ack_and_publish(c.AckAndPublish(1, [(lease_id, [(1, 2)])], 2, 3), "second", 1.0)
    core.ack(c.Ack(1, lease_id, [(2, 3)]), "plain", 1.0)
    assert answers(core)["plain"].lost == ()
    core.outbox.forget_outbox(c.ForgetOutbox([1], 8), "forget", 1.0)
    assert "moved" not in answers(core)
    core.outbox.forget_outbox(c.ForgetOutbox([1], 0), "forget", 1.0)
    found = answers(core)
    assert found["moved"] == (1, False)
    assert [cbor2.loads(record) for record in found["records"]] == [{"kind": SENT, "numbers": [1, 2]}]
    core.outbox.ack_and_publish(c.AckAndPublish(1, [(lease_id, [(1, 2)])], 2, 3), "second", 1.0)
    assert [entry.number for entry in core.states.outbox.after(-1)] == [0, 2]


def test_entries_outlive_their_group_and_a_restart() -> None:
    """They are told of as soon as the partition runs again."""
    core = core_of()
    records = answers(core)["records"]
    lease_id = leased(core)
    records += answers(core)["records"]
    core.outbox.ack_and_publish(c.AckAndPublish(1, [(lease_id, [(0, 1)])], 0, 2), "ack", 1.0)
    core.seeks.seek_group(c.SeekOffset(1, 0), "seek", 1.0)
    core.group_openings.close_group(c.CloseGroup(1), "close", 1.0)
    records += answers(core)["records"]
    for source in (records, None):
        states = GroupStates()
        if source is None:
            states.restore(core.states.snapshot(0.0))
        for record in source or ():
            states.apply(record)
        assert [entry.offset for entry in states.outbox.after(-1)] == [0, 1]
        assert answers(core_of(states))["moved"] == (2, True)


def test_numbers_are_not_used_again_after_a_loss() -> None:
    """The lost records may have used some."""
    core = core_of()
    lease_id = leased(core, 2)
    core.outbox.ack_and_publish(c.AckAndPublish(1, [(lease_id, [(0, 1)])], 0, 2), "ack", 1.0)
    states = core.states
    states.lost(3, 4)
    states.replayed(7, 9)
    assert states.outbox.next == above_lost(9) > above_lost(8) + GIVEN_PER_RECORD - 1 > 2
    assert (states.outbox.numbering, len(states.outbox)) == (0, 2)


def test_where_nothing_is_known_of_the_numbers_others_begin() -> None:
    """And what the first entry says of its group changes that no more."""
    states = GroupStates()
    states.lost(0, 4)
    states.apply(cbor2.dumps([0, 1, [["D", 3, 1.0, None, None, [0, 1, 1]]]]))
    states.replayed(7, 9)
    assert (states.outbox.next, states.outbox.numbering) == (above_lost(9), 7)
    assert (states.groups[1].delivery.dead.numbering, states.groups[1].delivery.dead.next) == (
        7,
        above_lost(9),
    )
    states.outbox.add(states.outbox.next, 1, 1, 0, 1, 99)
    restored = GroupStates()
    restored.restore(states.snapshot(0.0))
    assert [entry.numbering for entry in restored.outbox.after(-1)] == [7]
    assert restored.groups[1].delivery.dead.numbering == 7


def test_the_first_group_that_publishes_begins_the_numbering_of_the_outbox() -> None:
    """It has that for good: the journal says the same when it is read again."""
    states = GroupStates()
    records = [states.open(group_id, True, 0, numbering)[1] for group_id, numbering in ((1, 11), (2, 22))]
    records += [cbor2.dumps([0, 2, [["O", 0, 1, 0, 1]]]), cbor2.dumps([0, 1, [["O", 1, 1, 1, 2]]])]
    replayed = GroupStates()
    for record in records:
        replayed.apply(record)
    assert replayed.outbox.numbering == 22
    assert [group.delivery.dead.numbering for group in replayed] == [11, 22]
    restored = GroupStates()
    restored.restore(replayed.snapshot(0.0))
    assert [entry.numbering for entry in restored.outbox.after(-1)] == [22, 22]
    assert [group.delivery.dead.numbering for group in restored] == [11, 22]


def test_a_number_that_is_there_twice_makes_no_sense() -> None:
    """It is said which group the record is about."""
    states = GroupStates()
    states.open(1, True, 0)
    record = cbor2.dumps([0, 1, [["O", 0, 1, 0, 1]]])
    states.apply(record)
    with pytest.raises(JournalInvalid, match="group 1"):
        states.apply(record)


@pytest.mark.parametrize(
    "event", [["O", 0, 1, 5, 5], ["O", 0, 1, 0, 2**40], ["O", 0, 0, 0, 1], ["O", -1, 1, 0, 1]]
)
def test_events_that_name_nothing_are_refused(event: list[Any]) -> None:
    """What a journal holds is not trusted."""
    with pytest.raises(DeliveryEventInvalid):
        decode_events([event])


@pytest.mark.parametrize("found", [None, [1], [2, 2], [3, 2], [0, 2**40], [-1, 2], ["a", "b"]])
def test_ranges_that_are_none_are_refused(found: Any) -> None:
    """The same of what was sent."""
    with pytest.raises(ValueError, match=r"."):
        from_ranges(found)


@pytest.mark.parametrize(
    "found", [None, {}, {"next": 0}, {"entries": [], "next": -1}, {"entries": [[0, 0, 0, 1, 1]], "next": 1},
              {"entries": [[0, 0, 2**50, 1, 1]], "next": 1}, {"entries": [[3, 0, 1, 1, 1], [2, 1, 1, 1, 1]], "next": 9}]
)  # fmt: skip
def test_snapshots_that_are_none_are_refused(found: Any) -> None:
    """The same of a snapshot."""
    with pytest.raises(ValueError, match=r"."):
        OutboxEntries.restore(found)


@given(st.lists(st.integers(0, 300), unique=True))
def test_ranges_are_read_as_they_were_written(numbers: list[int]) -> None:
    """In order."""
    assert list(from_ranges(as_ranges(numbers))) == sorted(numbers)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 3), st.integers(1, 4), st.integers(0, 3)),
        st.tuples(st.just("forget"), st.lists(st.integers(0, 30), max_size=5)),
        st.tuples(st.just("skip")),
    ),
    max_size=30,
)


@settings(deadline=None)
@given(STEPS)
def test_entries_are_there_until_they_are_forgotten(steps: list[Any]) -> None:
    """Numbers rise and are used once; a snapshot says the same."""
    entries, model, used, offset = OutboxEntries(), {}, set(), 0
    for kind, *rest in steps:
        if kind == "add":
            group_id, count, gap = rest
            first, start = entries.next, offset + gap
            offset = start + count
            entries.add(first, group_id, 9, start, offset)
            for at in range(count):
                assert first + at not in used
                assert first + at > max(used, default=-1)
                used.add(first + at)
                model[first + at] = OutboxEntry(first + at, start + at, group_id, 9)
        elif kind == "forget":
            assert sorted(entries.forget(rest[0])) == sorted(set(rest[0]) & set(model))
            for number in rest[0]:
                model.pop(number, None)
        else:
            entries.go_on_above(entries.next + 9)
        assert entries.after(-1) == tuple(model.values())
        assert all(entries.names(entry.offset) for entry in model.values())
        found = OutboxEntries.restore(cbor2.loads(cbor2.dumps(entries.snapshot())))
        assert (found.after(-1), found.next) == (entries.after(-1), entries.next)
