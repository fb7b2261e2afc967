"""What a delivery journal tells of the past, against a delivery that was watched while it happened."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.delivery.delivery import Delivery
from callboard.actors.delivery.events import AckEvent, GroupEvents, LeaseEvent
from callboard.actors.partition.group_states import GroupStates
from callboard.log.errors import JournalInvalid
from callboard.simulations.workload.analysis import BUCKETS, Latency, bin_of, bin_top, bucket_for
from callboard.simulations.workload.delivery_history import DeliveryHistory, Fact, FactKind

GROUP = 7


@attrs.define
class Watched:
    """A group in a partition of 40 records: its journal, by time, and what was seen of it."""

    states: GroupStates = attrs.Factory(GroupStates)
    journal: list[tuple[int, bytes]] = attrs.Factory(list)
    seen: list[tuple[FactKind, int, int, int]] = attrs.Factory(list)
    """Kind, offset, time and attempt."""
    time: int = 0
    snapshots: list[tuple[int, bytes]] = attrs.Factory(list)
    """How much of the journal each replaces."""

    def __attrs_post_init__(self) -> None:
        self.journal.append((0, self.states.open(GROUP, True, 3)[1]))

    @property
    def delivery(self) -> Delivery:
        """The group's state."""
        return self.states.groups[GROUP].delivery

    def see(self, kind: FactKind, ranges: Iterable[tuple[int, ...]]) -> None:
        """Note offsets, with the attempt of each range if it has one."""
        for start, stop, *attempt in ranges:
            self.seen += [(kind, offset, self.time, *(attempt or (0,))) for offset in range(start, stop)]

    def step(self, what: str, one: int, two: int) -> None:
        """Something happens; then it is journalled."""
        self.time += 1
        delivery, now = self.delivery, float(self.time)
        leases = delivery.offsets.leases()
        lease = leases[one % len(leases)] if leases else None
        if what == "lease":
            found = delivery.lease(
                now=now, deadline=now + 3 + one % 5, consumer=1, max_records=1 + two % 6, visible_end=40
            )
            self.see(FactKind.LEASED, found.ranges if found is not None else ())
        elif what == "ack" and lease is not None:
            start, stop, _ = lease.ranges[0]
            self.see(
                FactKind.ACKED,
                delivery.ack(lease.lease_id, [(start, min(stop, start + 1 + two % 3))], now).accepted,
            )
        elif what == "nack" and lease is not None:
            ranges = [lease.ranges[-1][:2]]
            delivery.nack(lease.lease_id, ranges, not_before=now + two % 2, reason="no", now=now)
        elif what == "release" and lease is not None:
            delivery.release(lease.lease_id, [lease.ranges[0][:2]], now)
        elif what == "skip":
            start, stop = one % 40, one % 40 + 1 + two % 5
            self.see(
                FactKind.SKIPPED,
                delivery.offsets.unsettled_ranges(start, stop) if stop > delivery.offsets.floor else (),
            )
            delivery.skip(start, stop)
        elif what == "expire":
            delivery.run_out(now)
        elif what == "void":
            delivery.void_all_leases()
        elif what == "snapshot":
            self.snapshots.append((len(self.journal), self.states.snapshot(0.0)))
        events = delivery.take_events()
        if events:
            self.journal.append((self.time, GroupEvents(GROUP, events).record(0.0)))


ACTIONS = ("lease", "lease", "lease", "ack", "ack", "nack", "release", "skip", "expire", "void", "snapshot")
STORIES = st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 99), st.integers(0, 99)), max_size=60)


def watched(story: list[tuple[str, int, int]]) -> Watched:
    """A delivery to which this happened."""
    found = Watched()
    for step in story:
        found.step(*step)
    return found


def by_offset(facts: Iterable[Fact]) -> list[tuple[FactKind, int, int, int]]:
    """Facts in the form in which they were seen."""
    return [
        (fact.kind, offset, fact.time_us, fact.attempt)
        for fact in facts
        for offset in range(fact.start, fact.stop)
    ]


@given(STORIES)
def test_the_history_is_what_happened(story: list[tuple[str, int, int]]) -> None:
    """Every lease with its attempt, every ack and every skip has its time; the counts are those of the group."""
    watch, history = watched(story), DeliveryHistory()
    facts = [fact for time, record in watch.journal for fact in history.record(record, time)]
    history.end()
    assert by_offset(facts) == watch.seen
    (opening,) = history.openings
    assert (opening.start, opening.since_us, opening.is_whole, opening.closed_us) == (3, 0, True, None)
    assert opening.counts["acked"] == sum(kind is FactKind.ACKED for kind, *_ in watch.seen)
    assert opening.counts["delivered"] == sum(kind is FactKind.LEASED for kind, *_ in watch.seen)
    assert opening.leased == watch.delivery.offsets.leased


@given(STORIES)
def test_snapshots_on_the_way_add_nothing(story: list[tuple[str, int, int]]) -> None:
    """Where nothing is lost, a snapshot says what the events before it said."""
    watch, history = watched(story), DeliveryHistory()
    facts: list[Fact] = []
    for number, (time, record) in enumerate(watch.journal):
        for at, data in watch.snapshots:
            if at == number:
                facts += history.snapshot(data, time)
        facts += history.record(record, time)
    assert by_offset(facts) == watch.seen
    assert len(history.openings) == 1


@given(STORIES, st.integers(0, 60))
def test_events_that_are_missing_leave_their_outcome_without_a_time(
    story: list[tuple[str, int, int]], begin: int
) -> None:
    """Before a snapshot records are lost: what they settled is told once, by the snapshot, and never twice."""
    watch = watched([*story, ("snapshot", 0, 0), *story[:10]])
    at, data = watch.snapshots[-1]
    kept = min(begin, at)
    history = DeliveryHistory()
    facts = [fact for time, record in watch.journal[:kept] for fact in history.record(record, time)]
    facts += history.snapshot(data, 10_000)
    facts += [fact for time, record in watch.journal[at:] for fact in history.record(record, time)]
    history.end()
    settled = [offset for kind, offset, *_ in by_offset(facts) if kind is not FactKind.LEASED]
    expected = [offset for kind, offset, *_ in watch.seen if kind is not FactKind.LEASED]
    start = history.openings[0].start
    assert sorted(settled) == sorted(offset for offset in expected if offset >= start)
    assert history.openings[0].is_whole == (kept > 0)
    timed = {offset: time for kind, offset, time, _ in watch.seen if kind is not FactKind.LEASED}
    for kind, offset, time, _ in by_offset(facts):
        assert kind in (FactKind.LEASED, FactKind.UNTIMED) or timed[offset] == time
    assert history.openings[-1].counts["acked"] == watch.delivery.acked


def test_a_group_that_comes_back_begins_anew() -> None:
    """Closed and opened again, a group has two openings, and one record may be settled in both."""
    states, history = GroupStates(), DeliveryHistory()
    journal: list[Any] = [states.open(GROUP, True, 0)[1]]
    for _ in range(2):
        delivery = states.groups[GROUP].delivery
        lease = delivery.lease(now=0, deadline=9, consumer=1, max_records=2, visible_end=2)
        assert lease is not None
        delivery.ack(lease.lease_id, [(0, 1)], 0)
        journal.append(GroupEvents(GROUP, delivery.take_events()).record(0.0))
        journal += [states.close(GROUP), states.open(GROUP, True, 0)[1]]
    facts = [fact for time, record in enumerate(journal) for fact in history.record(record, time)]
    history.end()
    acked = [(fact.opening, fact.start, fact.time_us) for fact in facts if fact.kind is FactKind.ACKED]
    assert acked == [(0, 0, 1), (1, 0, 4)]
    assert [(each.number, each.since_us, each.closed_us) for each in history.openings] == [
        (0, 0, 2),
        (1, 3, 5),
        (2, 6, None),
    ]


def test_a_group_that_was_set_back_begins_anew() -> None:
    """What a repair forgets is settled again, in another opening, and counted once."""
    states, history = GroupStates(), DeliveryHistory()
    record = states.open(GROUP, True, 0)[1]
    delivery = states.groups[GROUP].delivery
    earlier = states.snapshot(0.0)
    delivery.lease(now=0, deadline=9, consumer=1, max_records=2, visible_end=2)
    delivery.ack(1, [(0, 2)], 0)
    events = GroupEvents(GROUP, delivery.take_events()).record(0.0)
    facts = [*history.record(record, 0), *history.record(events, 1)]
    facts += history.snapshot(earlier, 2)
    facts += history.record(events, 3)
    history.end()
    assert [(fact.opening, fact.time_us) for fact in facts if fact.kind is FactKind.ACKED] == [(0, 1), (1, 3)]
    assert [each.counts.get("acked", 0) for each in history.openings] == [0, 2]


def test_what_makes_no_sense_is_refused() -> None:
    """Events of a group that was never opened, and bytes that are no record, raise; after a loss they are salvaged."""
    events = GroupEvents(GROUP, [LeaseEvent("L", 1, 1, (0, 2, 1)), AckEvent("A", 1, (0, 2))]).record(0.0)
    with pytest.raises(JournalInvalid, match="never opened"):
        list(DeliveryHistory().record(events, 0))
    with pytest.raises(JournalInvalid, match="does not parse"):
        list(DeliveryHistory().record(b"\xff", 0))
    history = DeliveryHistory()
    history.lost(0, 3)
    facts = list(history.record(events, 5))
    assert (FactKind.ACKED, 0, 2, 5) in [(fact.kind, fact.start, fact.stop, fact.time_us) for fact in facts]
    assert not history.openings[0].is_whole


@given(st.integers(0, 2**62))
def test_a_bin_holds_its_number_and_little_else(number: int) -> None:
    """The top of a number's bin is the number or up to 1/32 more, and bins ascend without a gap."""
    place = bin_of(number)
    assert number <= bin_top(place) <= number + number // 32
    assert bin_of(bin_top(place)) == place
    assert bin_of(bin_top(place) + 1) == place + 1


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=50), st.integers(1, 100))
def test_a_quantile_is_not_below_the_exact_one(times: list[int], percent: int) -> None:
    """It is the top of the bin of the exact one, and never above the longest."""
    bins = tuple(
        (place, [bin_of(time) for time in times].count(place)) for place in sorted({*map(bin_of, times)})
    )
    latency = Latency(count=len(times), mean_us=0, most_us=max(times), bins=bins)
    exact = sorted(times)[-(-len(times) * percent // 100) - 1]
    assert latency.quantile(percent, 100) == min(bin_top(bin_of(exact)), max(times))


@given(st.integers(0, 10**15))
def test_buckets_are_round_and_not_too_many(span_us: int) -> None:
    """A span has at most 200 buckets, of whole seconds."""
    bucket_us = bucket_for(span_us)
    assert bucket_us % 1_000_000 == 0
    assert span_us // bucket_us < BUCKETS
