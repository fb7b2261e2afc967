"""Random histories of which a journal lost the end: consumers that live get their leases back, under the same ids."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.delivery.delivery import Delivery
from callboard.actors.delivery.invariants import check_all
from callboard.actors.delivery.receipts import Lease

END = 30
ENDS = st.integers(0, END)
RANGES = st.tuples(ENDS, st.integers(1, 9)).map(lambda pair: [(pair[0], pair[0] + pair[1])])
RECEIPTS = st.integers(1, 12)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("lease"), st.integers(1, 9)),
        st.tuples(st.just("chosen"), st.sets(ENDS, min_size=1, max_size=5)),
        st.tuples(st.just("ack"), RECEIPTS, RANGES),
        st.tuples(st.just("nack"), RECEIPTS, RANGES),
        st.tuples(st.just("nack later"), RECEIPTS, RANGES),
        st.tuples(st.just("release"), RECEIPTS, RANGES),
        st.tuples(st.just("skip"), RANGES),
        st.tuples(st.just("wait"), st.sampled_from((0.5, 3.0, 12.0))),
    ),
    max_size=40,
)


class History:
    """What one process did, and what it journalled of it."""

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self.now = 0.0
        self.delivery = self.begun()
        self.events: list[Any] = []
        self.given: list[Lease] = []

    def begun(self) -> Delivery:
        delivery = Delivery(0)
        delivery.judge_by(self.limit, 100)
        return delivery

    def take(self, step: tuple[Any, ...]) -> None:
        """One step, unless the state refuses it."""
        delivery, kind = self.delivery, step[0]
        lease = None
        if kind == "lease":
            lease = delivery.lease(
                now=self.now, deadline=self.now + 10.0, consumer=1, max_records=step[1], visible_end=END
            )
        elif kind == "chosen":
            delivery.offsets.promote(self.now)
            free = [
                at
                for at in sorted(step[1])
                if delivery.offsets.unsettled_ranges(at, at + 1) and self.is_free(at)
            ]
            if free:
                ranges = [(at, at + 1) for at in free]
                touching = [pair for pair in ranges if (pair[0] - 1, pair[0]) not in ranges]
                lease = delivery.lease_chosen(
                    now=self.now, deadline=self.now + 10.0, consumer=1, ranges=touching
                )
        elif kind == "ack":
            delivery.ack(step[1], step[2], self.now)
        elif kind == "nack":
            delivery.nack(step[1], step[2], not_before=self.now, reason=None, now=self.now)
        elif kind == "nack later":
            delivery.nack(step[1], step[2], not_before=self.now + 5.0, reason=None, now=self.now)
        elif kind == "release":
            delivery.release(step[1], step[2], self.now)
        elif kind == "skip":
            delivery.skip(*step[1][0])
        else:
            self.now += step[1]
            delivery.run_out(self.now)
        if lease is not None:
            self.given.append(lease)
        self.events += delivery.take_events()

    def is_free(self, offset: int) -> bool:
        held = [row for lease in self.delivery.offsets.leases() for row in lease.ranges]
        waits = self.delivery.offsets.delayed.overlapping(offset, offset + 1)
        return not waits and not any(start <= offset < stop for start, stop, _ in held)


def holdings(delivery: Delivery) -> dict[int, int]:
    """Which lease has each offset that is leased."""
    return {
        offset: lease.lease_id
        for lease in delivery.offsets.leases()
        for start, stop, _ in lease.ranges
        for offset in range(start, stop)
    }


@given(steps=STEPS, kept=st.floats(0.0, 1.0), limit=st.sampled_from((None, None, 2)))
def test_who_had_a_lease_has_it_again(steps: list[Any], kept: float, limit: int | None) -> None:
    """Nothing that nobody has is held for a lost lease; what is journalled of it replays to the same state."""
    history = History(limit)
    for step in steps:
        history.take(step)
    known = history.events[: int(kept * len(history.events))]
    later, shadow = history.begun(), history.begun()
    for event in known:
        later.apply(event)
        shadow.apply(event)
    before = holdings(later)
    for lease in history.given:
        if lease.lease_id >= later.offsets.next_lease_id:
            lost = lease._replace(ranges=history.delivery.offsets.claimed(lease))
            later.resume(lost, deadline=history.now + 10.0, now=history.now)
            check_all(later.offsets)
    found, had = holdings(later), holdings(history.delivery)
    settled = [at for at in range(END) if not history.delivery.offsets.unsettled_ranges(at, at + 1)]
    for offset, lease_id in had.items():
        if later.offsets.unsettled_ranges(offset, offset + 1):
            assert found.get(offset) == lease_id
    for offset, lease_id in found.items():
        assert had.get(offset) == lease_id or before.get(offset) == lease_id or offset in settled
    for event in later.take_events():
        shadow.apply(event)
    check_all(shadow.offsets)
    assert holdings(shadow) == found
    assert (shadow.offsets.floor, shadow.offsets.next) == (later.offsets.floor, later.offsets.next)
