"""Records that fail: isolated until the culprit is proved, then settled as dead letters; nobody else dies."""

from __future__ import annotations

from random import Random
from typing import Any

import cbor2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callboard.actors.delivery.dead_letters import LIMIT_REACHED, PROCESS_ENDED, RAN_OUT
from callboard.actors.delivery.delivery import Delivery
from callboard.actors.delivery.events import GroupEvents, decode_events
from callboard.actors.delivery.invariants import check_all
from callboard.actors.delivery.receipts import Lease
from callboard.actors.delivery.snapshot import delivery_of, snapshot_of
from callboard.log.errors import DeadLettersFull

RECORDS = 30
HEALTHY, NACKED, REJECTED, HANGS, KILLS = range(5)


class Life:
    """A delivery whose consumers meet healthy and failing records; a shadow follows its events."""

    def __init__(self, fates: dict[int, int], max_deliveries: int, dead_max: int) -> None:
        self.fates, self.limits = fates, (max_deliveries, dead_max)
        self.delivery, self.shadow = Delivery(0), Delivery(0)
        self.delivery.judge_by(*self.limits)
        self.held: list[Lease] = []
        self.now = 0.0
        self.deaths: list[tuple[int, int, str | None]] = []
        self.attempts: dict[int, int] = {}

    def journal(self) -> None:
        """The events reach the shadow through bytes; both are the same, and what is full is not overfull."""
        delivery = self.delivery
        for event in decode_events(cbor2.loads(GroupEvents(1, delivery.take_events()).record(0.0))[2]):
            self.shadow.apply(event)
        check_all(delivery.offsets)
        assert snapshot_of(self.shadow) == snapshot_of(delivery)
        assert delivery.dead.count <= self.limits[1]
        limit, dead_max = self.limits
        reserved = sum(
            stop - start
            for lease in delivery.offsets.leases()
            for start, stop, attempt in lease.ranges
            if attempt >= limit
        )
        room = dead_max - delivery.dead.failed - reserved
        assert delivery.has_room_for(0, [(0, max(0, room))]) is (room >= 0)
        assert not delivery.has_room_for(0, [(0, room + 1)]) or room < 0

    def lease(self, count: int, draw: Random) -> bool:
        """Lease up to so many; the count that is told beforehand is right."""
        consumer = draw.randint(1, 3)
        told = self.delivery.leasable_count(self.now, RECORDS, count, consumer)
        lease = self.delivery.lease(
            now=self.now, deadline=self.now + 10.0, consumer=consumer, max_records=count, visible_end=RECORDS
        )
        assert told == (0 if lease is None else sum(stop - start for start, stop, _ in lease.ranges))
        if lease is None:
            return False
        self.held.append(lease)
        for start, stop, attempt in lease.ranges:
            self.attempts.update(dict.fromkeys(range(start, stop), attempt))
        self.journal()
        return True

    def handle(self, lease: Lease) -> None:
        """The consumer handles the records of a lease one by one, until one hangs or ends the process."""
        delivery, self.held = self.delivery, [other for other in self.held if other is not lease]
        for start, stop, attempt in lease.ranges:
            for offset in range(start, stop):
                fate, named = self.fates.get(offset, HEALTHY), [(offset, offset + 1)]
                if fate == HEALTHY:
                    delivery.ack(lease.lease_id, named, self.now)
                elif fate == REJECTED or (fate == NACKED and attempt >= self.limits[0]):
                    if delivery.has_room_for(lease.lease_id, named):
                        delivery.reject(lease.lease_id, named, self.now, f"reason of {offset}")
                    else:
                        delivery.release(lease.lease_id, named, self.now)
                        self.forget()
                elif fate == NACKED:
                    delivery.nack(lease.lease_id, named, not_before=self.now, reason="no", now=self.now)
                elif fate == HANGS:
                    self.now += 11.0
                    for other in self.held:
                        if other.consumer != lease.consumer:  # it is alive, and renews
                            delivery.extend(other.lease_id, self.now + 10.0, self.now)
                    self.held = [other for other in self.held if other.consumer != lease.consumer]
                    delivery.run_out(self.now)
                    return self.journal()
                else:
                    return self.reopen()
        return self.journal()

    def reopen(self) -> None:
        """The process ends; another one opens the directory."""
        self.journal()
        self.held.clear()
        stored = cbor2.loads(cbor2.dumps(snapshot_of(self.delivery)))
        self.delivery, self.shadow = delivery_of(stored), delivery_of(stored)
        self.delivery.judge_by(*self.limits)
        self.delivery.void_all_leases()
        self.delivery.judge(self.now, PROCESS_ENDED)
        self.journal()

    def forget(self) -> None:
        """All dead letters are stored elsewhere."""
        found = self.delivery.dead_letters()
        self.deaths += [(letter.number, letter.offset, letter.reason) for letter in found]
        self.delivery.forget_dead(self.delivery.dead.next)
        self.delivery.judge(self.now, LIMIT_REACHED)
        self.journal()


FATES = st.dictionaries(
    st.integers(0, RECORDS - 1), st.sampled_from([NACKED, REJECTED, HANGS, KILLS]), max_size=6
)


@settings(max_examples=200, deadline=None)
@given(FATES, st.integers(1, 4), st.integers(1, 8), st.randoms(use_true_random=False))
def test_every_culprit_dies_and_nobody_else(
    fates: dict[int, int], limit: int, dead_max: int, draw: Random
) -> None:
    """However leases are mixed, run out or end with the process: the failing die, once, and the healthy are acked."""
    life = Life(fates, limit, dead_max)
    for _ in range(500):
        if life.delivery.offsets.floor == RECORDS:
            break
        can_lease = life.lease(draw.randint(1, 12), draw) if len(life.held) < 3 else False
        if not can_lease:
            if life.held:
                life.handle(life.held[0])
            else:
                assert life.delivery.dead.count, "nothing is leased, nothing may be, and nothing is dead"
                life.forget()
    life.forget()
    assert life.delivery.offsets.floor == RECORDS, "the group does not come to an end"
    died = {offset for _, offset, _ in life.deaths}
    assert set(fates) <= died
    if limit > 1 or HANGS not in fates.values():  # with 1, who hangs may have had others alone as well
        assert died == set(fates)
    assert [number for number, _, _ in life.deaths] == list(range(len(life.deaths)))
    for _, offset, reason in life.deaths:
        told = {RAN_OUT, PROCESS_ENDED, LIMIT_REACHED, f"reason of {offset}"}
        assert reason in told
        assert life.attempts[offset] <= limit + 1


@given(st.dictionaries(st.integers(0, RECORDS - 1), st.just(HANGS), max_size=4), st.integers(2, 4))
def test_a_hanging_record_does_not_take_its_neighbours_along(fates: dict[int, int], limit: int) -> None:
    """One consumer that takes one lease after the other: only what hangs dies, after `max_deliveries` attempts."""
    life = Life(fates, limit, 100)
    while life.lease(8, Random(0)):
        life.handle(life.held[0])
    assert {letter.offset: letter.attempts for letter in life.delivery.dead_letters()} == dict.fromkeys(
        fates, limit
    )
    assert life.delivery.offsets.floor == RECORDS


def leased(delivery: Delivery, count: int, now: float = 0.0, consumer: int = 3) -> Any:
    return delivery.lease(
        now=now, deadline=now + 10.0, consumer=consumer, max_records=count, visible_end=RECORDS
    )


def test_a_record_is_alone_for_its_last_attempt() -> None:
    """Its neighbours are leased with it until then, and go on without it."""
    delivery = Delivery(0)
    delivery.judge_by(3, 100)
    for attempt in (1, 2):
        lease = leased(delivery, 2)
        assert lease.ranges == ((0, 2, attempt),)
        delivery.nack(lease.lease_id, [(0, 2)], not_before=0.0, reason=None, now=0.0)
    assert leased(delivery, 2).ranges == ((0, 1, 3),)
    assert leased(delivery, 2) is None, "whoever has it has nothing else"
    assert delivery.leasable_count(0.0, RECORDS, 2, 3) == 0
    assert leased(delivery, 2, consumer=4).ranges == ((1, 2, 3),)
    assert leased(delivery, 2, consumer=5).ranges == ((2, 4, 1),)


def test_whom_a_crash_accuses_has_the_partition_to_itself() -> None:
    """After a crash in which others were leased too, nothing else is leased until it is settled."""
    delivery = Delivery(0)
    delivery.judge_by(2, 100)
    for _ in range(2):
        leased(delivery, 1)
        leased(delivery, 1, consumer=4)
        delivery.void_all_leases()
        delivery.judge(0.0, PROCESS_ENDED)
    assert delivery.dead.count == 0
    lease = leased(delivery, 5)
    assert lease.ranges == ((0, 1, 3),)
    assert leased(delivery, 5) is None
    assert delivery.leasable_count(0.0, RECORDS, 5) == 0
    delivery.ack(lease.lease_id, [(0, 1)], 0.0)
    lease = leased(delivery, 5)
    assert lease.ranges == ((1, 2, 3),)
    delivery.void_all_leases()
    delivery.judge(7.0, PROCESS_ENDED)
    assert [letter[1:6] for letter in delivery.dead_letters()] == [(1, 3, 7.0, None, PROCESS_ENDED)]
    assert leased(delivery, 5).ranges == ((2, 7, 1),)


def test_a_release_is_no_failure() -> None:
    """However often a record is given back, it is not isolated and does not die."""
    delivery = Delivery(0)
    delivery.judge_by(1, 100)
    for _ in range(5):
        lease = leased(delivery, 2)
        assert lease.ranges == ((0, 2, 1),)
        delivery.release(lease.lease_id, [(0, 2)], 0.0)
        delivery.judge(0.0, PROCESS_ENDED)
    assert delivery.dead.count == 0


def test_what_may_die_has_a_place_reserved() -> None:
    """With one place left, one record that may die is leased, and healthy ones go on; a reject needs a place too."""
    delivery = Delivery(0)
    delivery.judge_by(2, 1)
    lease = leased(delivery, 2)
    delivery.nack(lease.lease_id, [(0, 2)], not_before=0.0, reason=None, now=0.0)
    last = leased(delivery, 2)
    assert last.ranges == ((0, 1, 2),)
    assert delivery.is_full
    fresh = leased(delivery, 2, consumer=4)
    assert fresh.ranges == ((2, 4, 1),)
    with pytest.raises(DeadLettersFull, match="0 dead letters are kept"):
        delivery.reject(fresh.lease_id, [(2, 3)], 0.0, "never")
    assert delivery.offsets.lease_of(fresh.lease_id) == fresh
    assert delivery.reject(last.lease_id, [(0, 1)], 5.0, "bad").accepted == ((0, 1),)
    assert leased(delivery, 1, consumer=4).ranges == ((4, 5, 1),)
    assert delivery.oldest_needed() == 0
    assert delivery.forget_dead(1) == 1
    assert delivery.oldest_needed() == 1
    assert leased(delivery, 1, consumer=5).ranges == ((1, 2, 2),)


def test_a_reject_by_a_lost_receipt_kills_nothing() -> None:
    """Who lost the lease hears so; a late one, before another lease, counts."""
    delivery = Delivery(0)
    first = leased(delivery, 1)
    delivery.run_out(11.0)
    second = leased(delivery, 1, 11.0)
    settlement = delivery.reject(first.lease_id, [(0, 1)], 11.0, "late")
    assert (settlement.accepted, settlement.lost) == ((), ((0, 1),))
    delivery.run_out(30.0)
    assert delivery.reject(second.lease_id, [(0, 1)], 30.0, "late").accepted == ((0, 1),)
    (letter,) = delivery.dead_letters()
    assert (letter.attempts, letter.reason) == (2, "late")


def test_leases_with_many_ranges_are_voided_step_by_step() -> None:
    """No step takes more than some thousand ranges and those of a lease; what comes of it is one event, then notes."""
    delivery, other = Delivery(0), Delivery(0)
    for each in (delivery, other):
        for lease_id in range(1, 41):
            each.lease(now=0.0, deadline=9.0, consumer=lease_id, max_records=1000, visible_end=40_000)
            first = (lease_id - 1) * 1000
            each.ack(lease_id, [(offset, offset + 1) for offset in range(first, first + 1000, 2)], 0.0)
        each.take_events()
    steps = len(list(delivery.void_in_steps(5.0)))
    assert steps >= 40 * 500 // 4096
    assert other.void_all_leases(5.0) == 40
    for each in (delivery, other):
        check_all(each.offsets)
        events = each.take_events()
        assert [event[0] for event in events] == ["V", *["t"] * 40]
        assert (each.offsets.leased, each.voided, each.offsets.ready_count(40_000)) == (0, 20_000, 20_000)
    assert snapshot_of(delivery) == snapshot_of(other)


def test_leases_of_suspect_records_are_forgotten_when_they_have_ended() -> None:
    """However many records were leased in their last attempt and acked, a delivery remembers none of these leases."""
    delivery = Delivery(0)
    delivery.judge_by(2, 10)
    for offset in range(100):
        first = delivery.lease(now=0.0, deadline=9.0, consumer=1, max_records=1, visible_end=100)
        assert first is not None
        delivery.nack(first.lease_id, [(offset, offset + 1)], not_before=0.0, reason=None, now=0.0)
        last = delivery.lease(now=0.0, deadline=9.0, consumer=1, max_records=1, visible_end=100)
        assert last is not None
        assert last.ranges == ((offset, offset + 1, 2),)
        delivery.ack(last.lease_id, [(offset, offset + 1)], 0.0)
    assert delivery.attempt_limit is not None
    assert len(delivery.attempt_limit._suspect) == 1
