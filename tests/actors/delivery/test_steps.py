"""What takes long is done in steps: none handles more than a few thousand ranges, leases or ids."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import trio

from callboard.actors.delivery.dead_letters import PROCESS_ENDED
from callboard.actors.delivery.delivery import Delivery
from callboard.actors.delivery.events import GroupEvents
from callboard.actors.delivery.intervals import CHUNK_ROWS_MAX
from callboard.actors.delivery.invariants import check_all, check_in_steps
from callboard.actors.delivery.snapshot import restore_in_steps, snapshot_of
from callboard.actors.kernel.steps import in_steps
from callboard.actors.partition.group_states import GroupStates
from callboard.actors.partition.participants import made_in_steps
from callboard.actors.partition.publishing.admission import Admission
from callboard.actors.partition.publishing.dedup import DedupTable
from callboard.actors.partition.publishing.producers import KnownProducer
from callboard.actors.partition.publishing.publishers import decode_in_steps, encode_in_steps
from callboard.log.limits import STEP_ITEMS, USUAL

MANY = 10 * STEP_ITEMS


def leased_singly(count: int) -> Delivery:
    """A group that has leased so many records, each by itself, to two consumers in turn."""
    delivery = Delivery(0)
    for number in range(count):
        lease = delivery.lease(
            now=0.0, deadline=1.0 + number / count, consumer=1 + number % 2, max_records=1, visible_end=count
        )
        assert lease is not None
    return delivery


def nacked_singly(count: int) -> Delivery:
    """The same with all of them nacked, each with a delay of its own."""
    delivery = leased_singly(count)
    for number in range(count):
        delivery.nack(
            number + 1, [(number, number + 1)], not_before=5.0 + number / count, reason=None, now=0.0
        )
    return delivery


def largest_step(steps: Iterator[Any], measure: Callable[[], int]) -> int:
    """By how much `measure` changes in a step, at most."""
    before, most = measure(), 0
    for _ in steps:
        after = measure()
        most, before = max(most, abs(after - before)), after
    return max(most, abs(measure() - before))


def expiring(delivery: Delivery, now: float) -> Iterator[None]:
    """Call `expire` as often as it says that there is more."""
    while (deadline := delivery.offsets.next_deadline()) is not None and deadline <= now:
        delivery.run_out(now)
        yield


def test_leases_that_run_out_together_end_in_steps() -> None:
    """Of ten thousand leases that run out at once one call ends a part, and says that there is more."""
    delivery = leased_singly(MANY)
    most = largest_step(expiring(delivery, 10.0), lambda: delivery.offsets.leased)
    assert 0 < most <= STEP_ITEMS
    assert delivery.offsets.leased == 0
    assert delivery.expired == MANY
    check_all(delivery.offsets)


def test_delays_that_end_together_end_in_steps() -> None:
    """Of ten thousand delays that end at once one call makes a part ready, and says that there is more."""
    delivery = nacked_singly(MANY)
    most = largest_step(expiring(delivery, 10.0), lambda: delivery.offsets.delayed.count)
    assert 0 < most <= STEP_ITEMS
    assert delivery.offsets.delayed.count == 0
    assert delivery.offsets.ready_count(MANY) == MANY
    check_all(delivery.offsets)


def test_what_is_due_first_is_ready_first() -> None:
    """When more delays have ended than one step takes, those that ended first are leased first."""
    delivery = nacked_singly(MANY)
    lease = delivery.lease(now=10.0, deadline=20.0, consumer=1, max_records=10, visible_end=MANY)
    assert lease is not None
    assert lease.ranges == ((0, 10, 2),)


def test_leases_of_a_process_that_ended_end_in_steps() -> None:
    """The leases that a killed process held end in steps, also the last one, and their failures are noted together."""
    delivery = leased_singly(MANY)
    delivery.take_events()
    most = largest_step(delivery.void_in_steps(3.0), lambda: delivery.offsets.leased)
    assert 0 < most <= STEP_ITEMS
    events = delivery.take_events()
    assert len(events) <= 1 + 2 * (1 + MANY // STEP_ITEMS)
    twin = leased_singly(MANY)
    for event in events:
        twin.apply(event)
    assert snapshot_of(twin) == snapshot_of(delivery)


def scattered(count: int) -> Delivery:
    """A group of whose records every second one is ready again, and the others are settled."""
    delivery = Delivery(0)
    lease = delivery.lease(now=0.0, deadline=1.0, consumer=1, max_records=2 * count, visible_end=2 * count)
    assert lease is not None
    delivery.ack(lease.lease_id, [(offset, offset + 1) for offset in range(0, 2 * count, 2)], 0.0)
    delivery.run_out(2.0)
    return delivery


def test_what_a_consumer_had_is_given_back_in_steps() -> None:
    """Ten thousand leases of a consumer that leaves are given back a part at a time, and events tell the same."""
    delivery = leased_singly(MANY)
    delivery.take_events()
    lease_ids = delivery.offsets.lease_ids(1)

    def releasing() -> Iterator[None]:
        while lease_ids:
            delivery.release_some(lease_ids)
            yield

    most = largest_step(releasing(), lambda: delivery.offsets.leased)
    assert 0 < most <= STEP_ITEMS
    assert delivery.offsets.leased == MANY // 2
    assert delivery.released == MANY // 2
    check_all(delivery.offsets)
    twin = leased_singly(MANY)
    for event in delivery.take_events():
        twin.apply(event)
    assert snapshot_of(twin) == snapshot_of(delivery)


def test_a_lease_with_many_ranges_is_given_back_in_parts() -> None:
    """What is left of one lease, in ten thousand ranges, is given back a part at a time; each event names few."""
    delivery = Delivery(0)
    lease = delivery.lease(now=0.0, deadline=1.0, consumer=1, max_records=2 * MANY, visible_end=2 * MANY)
    assert lease is not None
    delivery.ack(lease.lease_id, [(offset, offset + 1) for offset in range(0, 2 * MANY, 2)], 0.0)
    delivery.take_events()
    lease_ids, steps = delivery.offsets.lease_ids(), 0
    while lease_ids:
        delivery.release_some(lease_ids)
        steps += 1
    events: list[Any] = delivery.take_events()
    assert steps == len(events) == MANY // STEP_ITEMS
    assert max(len(event[2]) // 2 for event in events) == STEP_ITEMS
    assert delivery.offsets.leases() == []
    assert delivery.offsets.ready_count(2 * MANY) == MANY
    check_all(delivery.offsets)


@pytest.mark.parametrize("max_deliveries", [None, 5])
def test_a_lease_has_no_more_ranges_than_a_step_handles(max_deliveries: int | None) -> None:
    """Of ten thousand scattered records one lease takes a part, the first ones; the others come with the next."""
    delivery = scattered(MANY)
    delivery.judge_by(max_deliveries, 100)
    took = []
    for _ in range(MANY // STEP_ITEMS):
        lease = delivery.lease(now=3.0, deadline=9.0, consumer=1, max_records=MANY, visible_end=4 * MANY)
        assert lease is not None
        assert len(lease.ranges) == STEP_ITEMS
        took += [start for start, _, _ in lease.ranges]
    assert took == list(range(1, 2 * MANY, 2))
    lease = delivery.lease(now=3.0, deadline=9.0, consumer=1, max_records=MANY, visible_end=4 * MANY)
    assert lease is not None
    assert lease.ranges == ((2 * MANY, 3 * MANY, 1),)
    check_all(delivery.offsets)


def test_a_lease_of_untouched_records_has_no_more_ranges_than_a_step_handles() -> None:
    """Where every second record was cancelled before any was leased, a lease ends after so many ranges."""
    delivery = Delivery(0)
    delivery.skip_each([(offset, offset + 1) for offset in range(1, 2 * MANY, 2)])
    lease = delivery.lease(now=0.0, deadline=9.0, consumer=1, max_records=MANY, visible_end=2 * MANY)
    assert lease is not None
    assert [start for start, _, _ in lease.ranges] == list(range(0, 2 * STEP_ITEMS, 2))
    check_all(delivery.offsets)


@pytest.mark.parametrize("verb", ["ack", "nack", "release"])
def test_an_event_with_many_ranges_is_replayed_in_steps(verb: str) -> None:
    """Ten thousand ranges of one lease that are settled together are replayed a part at a time, to the same state."""
    states = GroupStates()
    group, _ = states.open(1, durable=True, start=0)
    delivery = group.delivery
    lease = delivery.lease(now=0.0, deadline=1.0, consumer=1, max_records=2 * MANY, visible_end=2 * MANY)
    assert lease is not None
    records = [GroupEvents(1, delivery.take_events()).record(0.0)]
    odd = [(offset, offset + 1) for offset in range(1, 2 * MANY, 2)]
    if verb == "ack":
        delivery.ack(lease.lease_id, odd, 0.0)
    elif verb == "nack":
        delivery.nack(lease.lease_id, odd, not_before=9.0, reason="no", now=0.0)
    else:
        delivery.release(lease.lease_id, odd, 0.0)
    records.append(GroupEvents(1, delivery.take_events()).record(0.0))
    replayed = GroupStates()
    twin, _ = replayed.open(1, durable=True, start=0)
    assert replayed.apply_in_steps(records[0]) is None
    steps = replayed.apply_in_steps(records[1])
    assert steps is not None
    most = largest_step(steps, lambda: twin.delivery.offsets.leased)
    assert 0 < most <= STEP_ITEMS
    assert replayed.snapshot(0.0) == states.snapshot(0.0)


@pytest.mark.parametrize("verb", ["reject", "nack", "ack and publish"])
def test_many_ranges_of_a_lease_are_settled_as_fast_as_one_after_the_other(verb: str) -> None:
    """Each of forty thousand ranges is found in its lease without a look at the others, or this would not end."""
    count = 40 * STEP_ITEMS
    delivery = Delivery(0)
    delivery.judge_by(3, 2 * count)
    lease = delivery.lease(now=0.0, deadline=1.0, consumer=1, max_records=2 * count, visible_end=2 * count)
    assert lease is not None
    delivery.ack(lease.lease_id, [(offset, offset + 1) for offset in range(0, 2 * count, 2)], 0.0)
    odd = [(offset, offset + 1) for offset in range(1, 2 * count, 2)]
    if verb == "reject":
        delivery.reject(lease.lease_id, odd, 0.0, "no")
        assert delivery.dead.count == count
    elif verb == "nack":
        assert [
            (attempt, len(found)) for attempt, found in delivery.offsets.by_attempt(lease.lease_id, odd)
        ] == [(1, count)]
    else:
        assert delivery.offsets.holds(lease.lease_id, odd)


def test_what_a_snapshot_says_is_checked_in_steps() -> None:
    """Leases, delays and settled records of a snapshot are checked with a part of them in each step."""
    delivery = nacked_singly(MANY)
    snapshot = snapshot_of(delivery)
    restored = Delivery(0)
    steps = restore_in_steps(restored, snapshot, 0.0)
    restored_delays = largest_step(steps, lambda: restored.offsets.delayed.count)
    assert 0 < restored_delays <= 8 * CHUNK_ROWS_MAX
    assert sum(1 for _ in check_in_steps(restored.offsets)) >= MANY // (4 * STEP_ITEMS)
    assert snapshot_of(restored) == snapshot


async def test_a_snapshot_with_many_delays_is_made_in_steps() -> None:
    """Delays are moved to the wall clock in steps before they are written, and other tasks run between them."""
    states = GroupStates()
    group, _ = states.open(1, durable=True, start=0)
    group.delivery = nacked_singly(MANY)
    pieces = list(states.snapshot_in_pieces(0.0))
    assert sum(1 for piece in pieces if not piece) >= MANY // CHUNK_ROWS_MAX - 1
    assert b"".join(await made_in_steps(iter(pieces), USUAL)) == b"".join(pieces)


def test_only_what_may_be_proved_is_judged() -> None:
    """Opening a group with `max_deliveries` finds the records that have failed too often among many that have not."""
    delivery = leased_singly(MANY)
    delivery.void_all_leases(1.0)
    lease = delivery.lease(now=2.0, deadline=3.0, consumer=1, max_records=1, visible_end=MANY)
    assert lease is not None
    delivery.run_out(4.0)
    delivery.judge_by(2, 100)
    delivery.judge(5.0, PROCESS_ENDED)
    assert [letter.offset for letter in delivery.dead_letters()] == [0]


def with_publishers(count: int) -> Admission:
    """Tables that know so many producers and ids."""
    admission = Admission("t/0", window_us=10**9)
    for number in range(count):
        runs = ((0, 1, number),)
        admission.producers.put(number + 1, KnownProducer(1, 0, 0, runs), 0)
        admission.ids.put(b"%d" % number, (number, 0), 0)
    return admission


def test_the_tables_of_publishers_are_written_and_read_in_steps() -> None:
    """Ten thousand producers and ids are encoded and decoded with a part of them in each step."""
    admission = with_publishers(MANY - 1)
    steps = encode_in_steps(admission, 7)
    assert sum(1 for _ in steps) >= 2 * (MANY // STEP_ITEMS - 1)
    stored, read = trio.run(in_steps, encode_in_steps(admission, 7)), Admission("t/0", window_us=10**9)
    most = largest_step(decode_in_steps(stored, read), lambda: len(read.ids) + len(read.producers))
    assert 0 < most <= 2 * STEP_ITEMS
    assert trio.run(in_steps, encode_in_steps(read, 7)) == stored


@pytest.mark.parametrize("count", [1 << 16])
def test_ids_are_forgotten_as_fast_as_they_are_noted(count: int) -> None:
    """The oldest of many ids is found at once, however many were forgotten before it."""
    table = DedupTable(limit=count, window_us=1000)
    began = time.process_time()
    for number in range(count):
        table.put(b"%d" % number, (number, 0), 0)
    noted = time.process_time()
    table.forget_old(2000, count)
    assert len(table) == 0
    assert time.process_time() - noted < 4 * (noted - began)
