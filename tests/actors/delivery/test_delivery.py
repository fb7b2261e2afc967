"""What the model of a delivery does not show: refusals, counts, and what it costs."""

from __future__ import annotations

import pytest

from callboard.actors.delivery.delivery import Delivery, Lease
from callboard.actors.delivery.invariants import check_all
from callboard.actors.delivery.offsets import HEAP_SLACK
from callboard.log.errors import InternalError, InvalidArgument


def leased(
    delivery: Delivery, count: int, *, now: float = 0.0, timeout: float = 30.0, consumer: int = 1
) -> Lease:
    """A lease of `count` offsets out of plenty."""
    lease = delivery.lease(
        now=now, deadline=now + timeout, consumer=consumer, max_records=count, visible_end=1_000_000_000
    )
    assert lease is not None
    return lease


def kinds(delivery: Delivery) -> str:
    """The letters of the events since the last call."""
    return "".join(event[0] for event in delivery.take_events())


# -- acknowledging


@pytest.mark.parametrize("ranges", [[(3, 3)], [(4, 2)], [(-1, 2)], [(0.0, 2)], [(0, 2**64)], [(False, 2)]])
def test_what_is_no_range_is_refused(ranges: list[tuple[int, int]]) -> None:
    """A bad range is an InvalidArgument, and the good ones beside it are not settled."""
    delivery = Delivery(0)
    lease = leased(delivery, 5)
    with pytest.raises(InvalidArgument, match="Nothing was settled"):
        delivery.ack(lease.lease_id, [(0, 1), *ranges], 0.0)
    assert 5 == delivery.offsets.leased


# -- time


def test_a_replayed_delay_does_not_cut_a_later_one_short() -> None:
    """After replay, a delay that is long over does not bring back a message that was nacked again with another."""
    delivery, replayed = Delivery(0), Delivery(0)
    leased(delivery, 1)
    delivery.nack(1, [(0, 1)], not_before=5.0, reason=None, now=0.0)
    leased(delivery, 1, now=5.0)
    delivery.nack(2, [(0, 1)], not_before=50.0, reason=None, now=5.0)
    for event in delivery.take_events():
        replayed.apply(event)
    assert not replayed.leasable_count(49.0, 1, 1)
    assert replayed.leasable_count(50.0, 1, 1)


def test_expired_leases_tell_what_was_left() -> None:
    """The leases that `expire` returns leave out what was settled in time."""
    delivery = Delivery(0)
    lease = leased(delivery, 3, timeout=1.0)
    delivery.ack(lease.lease_id, [(1, 2)], 0.0)
    assert ((0, 1, 1), (2, 3, 1)) == delivery.run_out(1.0)[0].ranges


def test_a_lease_that_is_shortened_often_runs_out_in_time() -> None:
    """A lease runs out at the deadline it was given last, however often it was moved there and back."""
    for times in range(1, 2 * HEAP_SLACK):
        delivery = Delivery(0)
        lease = leased(delivery, 1, timeout=20.0)
        for _ in range(times):
            delivery.extend(lease.lease_id, 20.0, 0.0)
            delivery.extend(lease.lease_id, 5.0, 0.0)
        check_all(delivery.offsets)
        assert delivery.run_out(5.0)


def test_the_expiry_heap_does_not_grow_with_settled_leases() -> None:
    """A long run of short leases leaves a bounded heap behind."""
    delivery = Delivery(0)
    for _ in range(1000):
        lease = leased(delivery, 1)
        delivery.extend(lease.lease_id, 20.0, 0.0)
        delivery.ack(lease.lease_id, [lease.ranges[0][:2]], 0.0)
    assert len(delivery.offsets.deadlines) <= HEAP_SLACK + 2


def test_the_due_heap_does_not_grow_with_merged_delays() -> None:
    """Delays that become one range leave a bounded heap behind."""
    delivery = Delivery(0)
    for offset in range(1000):
        lease = leased(delivery, 1)
        delivery.nack(lease.lease_id, [(offset, offset + 1)], not_before=5.0, reason=None, now=0.0)
    assert 1 == delivery.offsets.delayed.rows
    assert len(delivery.offsets.due) <= HEAP_SLACK + 2


# -- consumers, skipping, reopening


def test_skipping_a_gap_shrinks_the_lease() -> None:
    """After a gap is skipped, the lease shows what remains to be delivered."""
    delivery = Delivery(0)
    lease = leased(delivery, 5)
    delivery.skip(1, 3, reason="gap")
    shrunk = delivery.offsets.lease_of(lease.lease_id)
    assert shrunk is not None
    assert ((0, 1, 1), (3, 5, 1)) == shrunk.ranges
    delivery.skip(0, 5)
    assert delivery.offsets.lease_of(lease.lease_id) is None


def test_broken_state_is_noticed_before_it_is_journalled() -> None:
    """Events of a state that does not add up are not given out."""
    delivery = Delivery(0)
    leased(delivery, 5)
    delivery.offsets.leased += 1
    with pytest.raises(InternalError, match="DS2"):
        delivery.take_events()


def test_counts() -> None:
    """Pending and ready counts follow every fate an offset can have."""
    delivery = Delivery(0)
    lease = leased(delivery, 6)
    delivery.ack(lease.lease_id, [(1, 2)], 0.0)
    delivery.nack(lease.lease_id, [(2, 3)], not_before=0.0, reason=None, now=0.0)
    delivery.nack(lease.lease_id, [(3, 4)], not_before=9.0, reason=None, now=0.0)
    delivery.skip(8, 9)
    assert ((1, 3),) == delivery.ack(lease.lease_id, [(1, 3)], 0.0).lost
    assert 8 == delivery.offsets.pending_count(10)
    assert 4 == delivery.offsets.ready_count(10)
    assert 6 == delivery.offsets.pending_count(7)
    assert (3, 2) == (delivery.offsets.leased, delivery.offsets.settled.count)
    assert (1, 2, 1, 6) == (delivery.acked, delivery.nacked, delivery.skipped, delivery.delivered)


# -- memory


def test_redelivered_messages_are_kept_as_ranges() -> None:
    """Neighbours with the same history are one range, however their leases were cut."""
    delivery = Delivery(0)
    for _ in range(500):
        lease = leased(delivery, 2)
        delivery.nack(lease.lease_id, [lease.ranges[0][:2]], not_before=9.0, reason=None, now=0.0)
    assert 1 == delivery.offsets.delayed.rows
    assert ((0, 1000, 2),) == leased(delivery, 1000, now=9.0).ranges


def test_skipping_each_of_many_ranges_is_skipping_one_after_the_other() -> None:
    """The same is settled, told and counted, whatever the ranges touch; a senseless one is refused."""
    ranges = [(4, 5), (9, 12), (0, 1), (4, 6), (12, 13), (20, 20), (1, 9)]
    one, each = Delivery(0), Delivery(0)
    for delivery in (one, each):
        delivery.lease(now=0.0, deadline=1.0, consumer=1, max_records=3, visible_end=30)
        delivery.take_events()
    assert each.skip_each(ranges) == sum([one.skip(*row) for row in ranges]) == 13
    assert each.take_events() == one.take_events()
    assert each.offsets.floor == one.offsets.floor
    assert list(each.offsets.unsettled_ranges(0, 30)) == list(one.offsets.unsettled_ranges(0, 30))
    with pytest.raises(InvalidArgument, match="no range of offsets"):
        each.skip_each([(20, 21), (5, 4)])
