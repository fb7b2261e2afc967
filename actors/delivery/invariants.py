"""The invariants of `offsets`, checked. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import islice
from operator import le, lt

from callboard.actors.delivery.intervals import IntervalMap, IntervalSet
from callboard.actors.delivery.offsets import OffsetStates
from callboard.actors.delivery.receipts import OFFSET_END
from callboard.log.errors import InternalError
from callboard.log.limits import STEP_ITEMS


def check_cheaply(offsets: OffsetStates) -> None:
    """Check DS1 and DS2, as far as that takes no more time for more ranges. Raises InternalError."""
    settled = offsets.settled
    islands = settled.count_in(offsets.next, settled.last_stop) if settled.last_stop > offsets.next else 0
    held = offsets.leased + offsets.passed.count + offsets.ready.count + offsets.delayed.count
    held += settled.count - islands
    if not 0 <= offsets.floor <= offsets.next:
        raise InternalError(f"floor {offsets.floor}, next {offsets.next}", invariant="DS1")
    if held != offsets.next - offsets.floor:
        raise InternalError(
            f"{held} offsets are accounted for between floor {offsets.floor} and next {offsets.next}",
            invariant="DS2",
        )


def check_all(offsets: OffsetStates) -> None:
    """Raise InternalError when an invariant does not hold. The cost grows with the number of ranges."""
    for _ in check_in_steps(offsets):
        pass
    _check_heaps(offsets)


def check_in_steps(offsets: OffsetStates) -> Iterator[None]:
    """The same for all but the heaps, yielding now and then."""
    check_cheaply(offsets)
    settled_in = offsets.settled.count_in
    failed = offsets.failures.ranges if offsets.has_failures else IntervalMap("dq")
    for intervals in (offsets.settled, offsets.passed, offsets.ready, offsets.delayed, failed):
        yield from intervals.check_in_steps()
    if offsets.settled.contains(offsets.floor) or offsets.settled.contains(offsets.next):
        raise InternalError("floor or next is settled", invariant="DS1")
    leased, ranges = IntervalSet(), 0
    for key, lease in offsets.lease_states.items():
        if not lease.rows or not 0 < key < offsets.next_lease_id:
            raise InternalError("a lease is empty or has an id to come", invariant="DS4")
        for row in lease.rows:
            leased.put(row[0], row[1])
        ranges += len(lease.rows)
        if ranges >= STEP_ITEMS:
            ranges = 0
            yield
    if offsets.leased != leased.count:
        raise InternalError("leased differs from the leases", invariant="DS6")
    held = (offsets.passed, offsets.ready, offsets.delayed, leased)
    for each in held:
        first = each.first()
        if first is not None and (first[0] < offsets.floor or each.last_stop > offsets.next):
            raise InternalError("an offset outside floor and next is in hand", invariant="DS3")
    first = offsets.settled.first()
    if first is not None and first[0] < offsets.floor:
        raise InternalError("an offset below floor is kept", invariant="DS3")
    yield from _check_disjoint((*held, offsets.settled))
    for starts, stops, *_ in failed.chunks():
        if starts[0] < offsets.floor or stops[-1] > offsets.next or any(map(settled_in, starts, stops)):
            raise InternalError("a failure of a settled or untouched offset is noted", invariant="DS3")
        yield


def _check_heaps(offsets: OffsetStates) -> None:
    timely: dict[int, float] = {}
    for deadline, lease_id in offsets.deadlines:
        timely[lease_id] = min(deadline, timely.get(lease_id, deadline))
    if any(timely.get(key, float("inf")) > lease.deadline for key, lease in offsets.lease_states.items()):
        raise InternalError("a lease may run out unnoticed", invariant="DS5")
    due = IntervalSet()
    for not_before, start, stop in offsets.due:
        for row in offsets.delayed.overlapping(start, stop):
            if row[3] >= not_before:
                due.add(row[0], row[1])
    if due.count != offsets.delayed.count:
        raise InternalError("a delayed offset may never fall due", invariant="DS5")


def _check_disjoint(maps: Sequence[IntervalMap]) -> Iterator[None]:
    """Raise InternalError when two of these share an offset, yielding after every few thousand ranges."""
    chunks = [each.chunks() for each in maps]
    marks = sorted([chunk[0][0] for found in chunks for chunk in found])
    places, latest, ranges = [(0, 0)] * len(maps), 0, 0
    for mark in (*marks, OFFSET_END + 1):
        begins: list[int] = []
        ends: list[int] = []
        for which, found in enumerate(chunks):
            at, index = places[which]
            while at < len(found):
                starts, stops = found[at][:2]
                end = bisect_left(starts, mark, index)
                begins += starts[index:end]
                ends += stops[index:end]
                if end < len(starts):
                    index = end
                    break
                at, index = at + 1, 0
            places[which] = at, index
        # They are disjoint if, and only if, the first that ends does so before the second begins, and so on.
        begins.sort()
        ends.sort()
        if begins and (
            begins[0] < latest
            or not all(map(lt, begins, ends))
            or not all(map(le, ends, islice(begins, 1, None)))
        ):
            raise InternalError("an offset is in two states", invariant="DS3")
        latest = ends[-1] if ends else latest
        ranges += len(begins)
        if ranges >= STEP_ITEMS:
            ranges = 0
            yield
