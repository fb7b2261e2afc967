"""The rules of delivery, one by one."""

from __future__ import annotations

import tracemalloc

import pytest

from callboard.actors.delivery.delivery import Delivery, Lease, Settlement
from callboard.actors.delivery.state import HEAP_SLACK, OffsetState
from callboard.log.errors import InternalError, InvalidArgument


def leased(
    delivery: Delivery, count: int, *, now: float = 0.0, timeout: float = 30.0, consumer: int = 1
) -> Lease:
    """A grant of `count` offsets out of plenty."""
    lease = delivery.lease(
        now=now, deadline=now + timeout, consumer=consumer, max_records=count, visible_end=1_000_000_000
    )
    assert lease is not None
    return lease


def kinds(delivery: Delivery) -> str:
    """The letters of the events since the last call."""
    return "".join(event[0] for event in delivery.take_events())


# -- leasing


def test_fresh_records_come_in_order() -> None:
    """Leases hand out consecutive ranges, each offset once, each lease with a higher id."""
    delivery = Delivery(10)
    assert (1, ((10, 15, 1),)) == leased(delivery, 5)[:2]
    assert (2, ((15, 18, 1),)) == leased(delivery, 3)[:2]
    assert 18 == delivery.next
    assert 10 == delivery.floor


def test_nothing_past_the_visible_end() -> None:
    """A lease never reaches past the visible end, and finds nothing when all is leased."""
    delivery = Delivery(0)
    wanted = {"now": 0.0, "deadline": 1.0, "consumer": 1, "max_records": 10, "visible_end": 4}
    assert not delivery.has_ready(0.0, 0)
    assert delivery.has_ready(0.0, 4)
    lease = delivery.lease(**wanted)  # type: ignore[arg-type]
    assert lease is not None
    assert ((0, 4, 1),) == lease.ranges
    assert delivery.lease(**wanted) is None  # type: ignore[arg-type]
    assert not delivery.has_ready(0.0, 4)


def test_redeliveries_come_first_oldest_first() -> None:
    """What is due again precedes fresh records, in offset order, with its attempt number."""
    delivery = Delivery(0)
    for _ in range(3):
        leased(delivery, 2)
    delivery.nack(3, [(4, 6)], not_before=0.0, reason=None, now=0.0)
    delivery.nack(1, [(0, 1)], not_before=0.0, reason=None, now=0.0)
    assert ((0, 1, 2), (4, 6, 2), (6, 8, 1)) == leased(delivery, 5).ranges


def test_a_lease_steps_over_what_is_settled() -> None:
    """Fresh ranges leave out offsets that were skipped ahead of the leases."""
    delivery = Delivery(0)
    delivery.skip(2, 4)
    delivery.skip(6, 7)
    assert ((0, 2, 1), (4, 6, 1), (7, 9, 1)) == leased(delivery, 6).ranges
    assert 9 == delivery.next


# -- acknowledging


def test_ack_in_order_moves_the_floor() -> None:
    """Acknowledging everything leased leaves no trace but the floor."""
    delivery = Delivery(0)
    lease = leased(delivery, 5)
    assert Settlement(((0, 5),), ()) == delivery.ack(lease.lease_id, [(0, 5)], 0.0)
    assert (5, 5, 0, 0) == (delivery.floor, delivery.next, delivery.leased, delivery.lease_count)


def test_acks_out_of_order_wait_for_the_gap() -> None:
    """The floor waits for the oldest unsettled record, then jumps over all that was settled meanwhile."""
    delivery = Delivery(0)
    lease = leased(delivery, 6)
    delivery.ack(lease.lease_id, [(1, 3), (4, 6)], 0.0)
    assert (0, 4) == (delivery.floor, delivery.settled_above_floor)
    delivery.ack(lease.lease_id, [(0, 1)], 0.0)
    assert (3, 2) == (delivery.floor, delivery.settled_above_floor)
    delivery.ack(lease.lease_id, [(3, 4)], 0.0)
    assert (6, 0) == (delivery.floor, delivery.settled_above_floor)


def test_a_second_ack_is_lost() -> None:
    """What is settled already is reported as lost, and nothing changes."""
    delivery = Delivery(0)
    lease = leased(delivery, 3)
    delivery.ack(lease.lease_id, [(0, 2)], 0.0)
    assert Settlement(((2, 3),), ((0, 2),)) == delivery.ack(lease.lease_id, [(0, 3)], 0.0)
    assert Settlement((), ((0, 3),)) == delivery.ack(lease.lease_id, [(0, 3)], 0.0)
    assert 5 == delivery.lost


def test_ranges_may_overlap_and_come_unsorted() -> None:
    """The ranges of one call are merged before anything else."""
    delivery = Delivery(0)
    lease = leased(delivery, 6)
    assert Settlement(((0, 6),), ()) == delivery.ack(lease.lease_id, [(3, 6), (0, 2), (1, 4)], 0.0)


@pytest.mark.parametrize("ranges", [[(3, 3)], [(4, 2)], [(-1, 2)], [(0.0, 2)], [(0, 2**64)], [(False, 2)]])
def test_what_is_no_range_is_refused(ranges: list[tuple[int, int]]) -> None:
    """A bad range is an InvalidArgument, and the good ones beside it are not settled."""
    delivery = Delivery(0)
    lease = leased(delivery, 5)
    with pytest.raises(InvalidArgument, match="Nothing was settled"):
        delivery.ack(lease.lease_id, [(0, 1), *ranges], 0.0)
    assert 5 == delivery.leased


@pytest.mark.parametrize("lease_id", [0, -1, 2, 10**30])
def test_an_unknown_receipt_settles_nothing(lease_id: int) -> None:
    """A receipt that was never given out holds nothing."""
    delivery = Delivery(0)
    lease = leased(delivery, 2)
    delivery.nack(lease.lease_id, [(0, 1)], not_before=0.0, reason=None, now=0.0)
    assert Settlement((), ((0, 2),)) == delivery.ack(lease_id, [(0, 2)], 0.0)


# -- late settlements


def test_a_late_ack_counts_until_the_message_is_leased_again() -> None:
    """Finished work is not redone because its lease ran out a moment before."""
    delivery = Delivery(0)
    lease = leased(delivery, 4, timeout=10.0)
    assert [lease] == delivery.expire(10.0)
    assert Settlement(((0, 2),), ()) == delivery.ack(lease.lease_id, [(0, 2)], 11.0)
    assert 2 == delivery.floor
    again = leased(delivery, 1, now=12.0)
    assert ((2, 3, 2),) == again.ranges
    assert Settlement(((3, 4),), ((2, 3),)) == delivery.ack(lease.lease_id, [(2, 4)], 12.0)
    assert OffsetState("leased", 1, False, again.lease_id) == delivery.state_of(2)


def test_a_stale_receipt_never_touches_a_newer_delivery() -> None:
    """After two leases ran out, only the second one's receipt still counts."""
    delivery = Delivery(0)
    first = leased(delivery, 1, timeout=1.0)
    delivery.expire(1.0)
    second = leased(delivery, 1, now=1.0, timeout=1.0)
    delivery.expire(2.0)
    for settle in (delivery.ack, delivery.release):
        assert Settlement((), ((0, 1),)) == settle(first.lease_id, [(0, 1)], 2.0)
    assert Settlement(((0, 1),), ()) == delivery.ack(second.lease_id, [(0, 1)], 2.0)


def test_a_late_nack_delays_without_counting_twice() -> None:
    """The attempt counted when the lease ran out; the late nack adds only its delay."""
    delivery = Delivery(0)
    lease = leased(delivery, 1, timeout=1.0)
    delivery.expire(1.0)
    delivery.nack(lease.lease_id, [(0, 1)], not_before=9.0, reason="late", now=2.0)
    assert OffsetState("delayed", 1, True, 0, 9.0) == delivery.state_of(0)


def test_a_late_release_is_lost() -> None:
    """A release after the lease ran out cannot take back the attempt."""
    delivery = Delivery(0)
    lease = leased(delivery, 1, timeout=1.0)
    delivery.expire(1.0)
    assert Settlement((), ((0, 1),)) == delivery.release(lease.lease_id, [(0, 1)], 1.0)


def test_nack_and_release_end_the_receipt() -> None:
    """A receipt that gave a message back cannot settle it any more."""
    delivery = Delivery(0)
    lease = leased(delivery, 2)
    delivery.nack(lease.lease_id, [(0, 1)], not_before=0.0, reason=None, now=0.0)
    delivery.release(lease.lease_id, [(1, 2)], 0.0)
    assert Settlement((), ((0, 2),)) == delivery.ack(lease.lease_id, [(0, 2)], 0.0)


# -- attempts


def test_release_does_not_count() -> None:
    """A message that was given back unhandled is delivered with the same attempt number."""
    delivery = Delivery(0)
    for _ in range(3):
        lease = leased(delivery, 1)
        assert ((0, 1, 1),) == lease.ranges
        delivery.release(lease.lease_id, [(0, 1)], 0.0)
    assert 0 == delivery.redelivered


def test_release_keeps_how_the_last_counted_attempt_was() -> None:
    """A released lease leaves no trace in the history: neither the attempt nor that it was alone."""
    delivery = Delivery(0)
    lease = leased(delivery, 2)
    delivery.nack(lease.lease_id, [(0, 2)], not_before=0.0, reason=None, now=0.0)
    alone = leased(delivery, 1)
    delivery.release(alone.lease_id, [(0, 1)], 0.0)
    assert OffsetState("ready", 1, False) == delivery.state_of(0)


@pytest.mark.parametrize("how", ["nack", "expire", "void"])
def test_other_endings_count_and_tell_alone(how: str) -> None:
    """Nack, expiry and voiding count an attempt, and keep whether the lease held one record alone."""
    delivery = Delivery(0)
    single, pair = leased(delivery, 1, timeout=1.0), leased(delivery, 2, timeout=1.0)
    if how == "nack":
        delivery.nack(single.lease_id, [(0, 1)], not_before=0.0, reason=None, now=0.0)
        delivery.nack(pair.lease_id, [(1, 2)], not_before=0.0, reason=None, now=0.0)
    elif how == "expire":
        delivery.expire(1.0)
    else:
        delivery.void_all_leases()
    assert (1, True) == delivery.state_of(0)[1:3]
    assert (1, False) == delivery.state_of(1)[1:3]


# -- time


def test_a_delayed_nack_waits_for_its_time() -> None:
    """A nacked message comes back at its instant, not before, and others pass it meanwhile."""
    delivery = Delivery(0)
    lease = leased(delivery, 1)
    delivery.nack(lease.lease_id, [(0, 1)], not_before=50.0, reason=None, now=0.0)
    assert not delivery.has_ready(49.9, 1)
    assert 50.0 == delivery.next_deadline()
    assert ((1, 2, 1),) == leased(delivery, 1, now=49.9, timeout=100.0).ranges
    assert delivery.has_ready(50.0, 1)
    assert ((0, 1, 2),) == leased(delivery, 1, now=50.0).ranges


def test_a_replayed_delay_does_not_cut_a_later_one_short() -> None:
    """After replay, a delay that is long over does not bring back a message that was nacked again with another."""
    delivery, replayed = Delivery(0), Delivery(0)
    leased(delivery, 1)
    delivery.nack(1, [(0, 1)], not_before=5.0, reason=None, now=0.0)
    leased(delivery, 1, now=5.0)
    delivery.nack(2, [(0, 1)], not_before=50.0, reason=None, now=5.0)
    for event in delivery.take_events():
        replayed.apply(event)
    assert not replayed.has_ready(49.0, 1)
    assert replayed.has_ready(50.0, 1)


def test_after_expire_the_next_deadline_lies_ahead() -> None:
    """Whoever sleeps until `next_deadline` and then calls `expire` makes progress, even if nobody leases."""
    delivery = Delivery(0)
    leased(delivery, 2, timeout=3.0)
    delivery.nack(1, [(0, 1)], not_before=2.0, reason=None, now=0.0)
    assert [2.0, 3.0, None] == [
        delivery.next_deadline(),
        (delivery.expire(2.0), delivery.next_deadline())[1],
        (delivery.expire(3.0), delivery.next_deadline())[1],
    ]


def test_extend_moves_the_deadline_both_ways() -> None:
    """A lease runs out at the deadline that was set last, later or earlier."""
    delivery = Delivery(0)
    lease = leased(delivery, 1, timeout=10.0)
    assert delivery.extend(lease.lease_id, 20.0, 5.0)
    assert [] == delivery.expire(19.9)
    assert 20.0 == delivery.next_deadline()
    assert delivery.extend(lease.lease_id, 15.0, 5.0)
    assert 15.0 == delivery.next_deadline()
    assert 1 == len(delivery.expire(15.0))
    assert not delivery.extend(lease.lease_id, 30.0, 15.0)
    assert delivery.next_deadline() is None


def test_expire_is_idempotent() -> None:
    """A second call at the same instant finds nothing, and journals nothing."""
    delivery = Delivery(0)
    leased(delivery, 2, timeout=1.0)
    assert 1 == len(delivery.expire(1.0))
    assert "LX" == kinds(delivery)
    assert [] == delivery.expire(1.0)
    assert "" == kinds(delivery)


def test_expired_grants_tell_what_was_still_held() -> None:
    """The grants that `expire` returns leave out what was settled in time."""
    delivery = Delivery(0)
    lease = leased(delivery, 3, timeout=1.0)
    delivery.ack(lease.lease_id, [(1, 2)], 0.0)
    assert ((0, 1, 1), (2, 3, 1)) == delivery.expire(1.0)[0].ranges


def test_the_expiry_heap_does_not_grow_with_settled_leases() -> None:
    """A long run of short leases leaves a bounded heap behind."""
    delivery = Delivery(0)
    for _ in range(1000):
        lease = leased(delivery, 1)
        delivery.extend(lease.lease_id, 20.0, 0.0)
        delivery.ack(lease.lease_id, [lease.ranges[0][:2]], 0.0)
    assert len(delivery._expiry) <= HEAP_SLACK + 2


def test_the_due_heap_does_not_grow_with_merged_delays() -> None:
    """Delays that become one range leave a bounded heap behind."""
    delivery = Delivery(0)
    for offset in range(1000):
        lease = leased(delivery, 1)
        delivery.nack(lease.lease_id, [(offset, offset + 1)], not_before=5.0, reason=None, now=0.0)
    assert 1 == delivery._delayed.rows
    assert len(delivery._due) <= HEAP_SLACK + 2


# -- consumers, skipping, reopening


def test_a_leaving_consumer_releases_all_it_holds() -> None:
    """Only the leaver's leases end, and no attempt counts."""
    delivery = Delivery(0)
    leased(delivery, 2, consumer=1)
    leased(delivery, 2, consumer=2)
    leased(delivery, 2, consumer=1)
    assert 4 == delivery.release_consumer(1)
    assert (2, 4) == (delivery.leased, delivery.ready_again)
    assert 0 == delivery.release_consumer(1)
    assert "LLLRR" == kinds(delivery)


def test_skip_settles_whatever_the_state() -> None:
    """Untouched, leased, ready and delayed offsets are settled alike, and the floor passes them."""
    delivery = Delivery(0)
    lease = leased(delivery, 6)
    delivery.nack(lease.lease_id, [(0, 2)], not_before=0.0, reason=None, now=0.0)
    delivery.nack(lease.lease_id, [(2, 4)], not_before=9.0, reason=None, now=0.0)
    assert 9 == delivery.skip(1, 10)
    assert (0, 10) == (delivery.floor, delivery.next)
    assert 0 == delivery.leased
    assert 1 == delivery.skip(0, 10)
    assert 10 == delivery.floor
    assert 0 == delivery.skip(0, 10)
    delivery.check_invariants()


def test_skipping_a_gap_shrinks_the_grant() -> None:
    """After a gap is skipped, the grant shows what remains to be handed over."""
    delivery = Delivery(0)
    lease = leased(delivery, 5)
    delivery.skip(1, 3, reason="gap")
    shrunk = delivery.lease_of(lease.lease_id)
    assert shrunk is not None
    assert ((0, 1, 1), (3, 5, 1)) == shrunk.ranges
    delivery.skip(0, 5)
    assert delivery.lease_of(lease.lease_id) is None


def test_reopening_voids_leases_and_receipts() -> None:
    """After voiding, everything is ready with its attempt counted, and no old receipt counts."""
    delivery = Delivery(0)
    gone, held = leased(delivery, 2, timeout=1.0), leased(delivery, 2)
    delivery.expire(1.0)
    assert 1 == delivery.void_all_leases()
    for lease in (gone, held):
        assert () == delivery.ack(lease.lease_id, [(0, 4)], 2.0).accepted
    assert 3 == leased(delivery, 4).lease_id
    assert 1 == delivery.void_all_leases()
    assert 0 == delivery.void_all_leases()
    assert "LLXVLV" == kinds(delivery)


def test_a_restarted_actor_renews_leases() -> None:
    """A restored lease is due at once until it is renewed; then its receipt works as before."""
    delivery = Delivery(0)
    lease = leased(delivery, 2)
    restored = Delivery.restore(delivery.snapshot())
    assert float("-inf") == restored.next_deadline()
    assert 1 == restored.renew_all(100.0, 30.0)
    assert 130.0 == restored.next_deadline()
    assert Settlement(((0, 2),), ()) == restored.ack(lease.lease_id, [(0, 2)], 101.0)


def test_broken_state_is_noticed_before_it_is_journalled() -> None:
    """Events of a state that does not add up are not given out."""
    delivery = Delivery(0)
    leased(delivery, 5)
    delivery.leased += 1
    with pytest.raises(InternalError, match="D2"):
        delivery.take_events()


def test_counts() -> None:
    """Pending and ready counts follow every fate an offset can have."""
    delivery = Delivery(0)
    lease = leased(delivery, 6)
    delivery.ack(lease.lease_id, [(1, 2)], 0.0)
    delivery.nack(lease.lease_id, [(2, 3)], not_before=0.0, reason=None, now=0.0)
    delivery.nack(lease.lease_id, [(3, 4)], not_before=9.0, reason=None, now=0.0)
    delivery.skip(8, 9)
    assert 8 == delivery.pending_count(10)
    assert 4 == delivery.ready_count(10)
    assert 6 == delivery.pending_count(7)
    assert (1, 1, 3, 2) == (
        delivery.ready_again,
        delivery.delayed,
        delivery.leased,
        delivery.settled_above_floor,
    )
    assert {"acked": 1, "nacked": 2, "skipped": 1, "delivered": 6}.items() <= delivery.counters().items()


# -- memory


def test_untouched_messages_cost_nothing() -> None:
    """A million messages nobody touched take a few kilobytes."""
    tracemalloc.start()
    delivery = Delivery(0)
    assert 1_000_000 == delivery.ready_count(1_000_000) == delivery.pending_count(1_000_000)
    lease = leased(delivery, 1000)
    assert tracemalloc.get_traced_memory()[0] < 8_192
    tracemalloc.stop()
    assert 1000 == lease.size


def test_redelivered_messages_are_kept_as_ranges() -> None:
    """Neighbours with the same history are one range, however their leases were cut."""
    delivery = Delivery(0)
    for _ in range(500):
        lease = leased(delivery, 2)
        delivery.nack(lease.lease_id, [lease.ranges[0][:2]], not_before=9.0, reason=None, now=0.0)
    assert 1 == delivery._delayed.rows
    assert ((0, 1000, 2),) == leased(delivery, 1000, now=9.0).ranges
