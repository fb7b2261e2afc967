"""Where every offset of one group in one partition stands: the data under `Delivery`, and the moves that keep it whole.

Each offset is in exactly one state:

- *untouched*: from `next` on; never leased. Costs nothing, however many there are.
- *leased*: in the hands of one consumer, under one lease.
- *passed*: below `next`, never leased: a choice passed over it. It is leased when a choice names it.
- *ready*: was leased before, and may be leased again now.
- *delayed*: was leased before, and may be leased again at its `not_before`.
- *settled*: done with. Below `floor` everything is; above it, the `settled` set tells.

The *history* of an offset is the number of its attempts, and whether the last one held it alone; one number carries
both (twice the attempts, plus one if alone). It is 0 for what is untouched or passed, and kept in ranges for the rest.
A ready offset also remembers the lease that ran out, its *tag*: until the offset is leased again, a late
settlement with that receipt still counts. Tag 0 is no lease.

Invariants, all checked by `check_invariants()`, the cheap ones (marked *) each time the events are taken:

- DS1* `0 <= floor <= next`, and both are as high as they can be: neither names a settled offset.
- DS2* Conservation: leased + passed + ready + delayed + settled offsets between floor and next number `next - floor`.
- DS3  The states are disjoint; leased, passed, ready and delayed offsets lie between floor and next.
- DS4  Every lease holds at least one offset, and its id is below `next_lease_id`; ids only grow, so none is used twice.
- DS5  Every lease has an entry in the heap of deadlines that is due no later than the lease; every delayed offset has
       one in the due heap.
- DS6  `leased` is the number of offsets in all leases.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from heapq import heapify, heappop, heappush, heapreplace
from itertools import islice
from operator import le, lt
from types import MappingProxyType
from typing import Final

from callboard.actors.delivery.events import Event
from callboard.actors.delivery.failures import FailureNotes
from callboard.actors.delivery.intervals import NOTHING, IntervalMap, IntervalSet, length_of
from callboard.actors.delivery.receipts import (
    OFFSET_END,
    HistoryRow,
    LeaseState,
    OffsetRange,
    Settlement,
    between,
)
from callboard.log.errors import InternalError
from callboard.log.limits import STEP_ITEMS

COUNTERS: Final = ("delivered", "redelivered", "acked", "nacked", "released", "expired", "voided", "skipped")
"""Offsets that met each fate, since the group began; restored with the state. Those that are `expired` had a lease that
ran out."""

NO_FIELDS: Final[Mapping[str, object]] = MappingProxyType({})
"""For all states of which no later version knows more."""
UNANCHORED: Final = float("-inf")
"""The deadline of a lease that came out of a journal or snapshot: due at once, unless renewed or voided first."""

HEAP_SLACK: Final = 64
"""Entries that a heap may hold beyond twice what it stands for, before what is stale is thrown out."""


class DeliveryState:
    """The data of a delivery. All methods are moves between states; none writes an event."""

    # A runtime has one for each group and partition: a dictionary for each would take most of their memory.
    __slots__ = (
        "_delayed",
        "_due",
        "_deadlines",
        "_failures",
        "_leases",
        "_passed",
        "_readied",
        "_ready",
        "_settled",
        "acked",
        "delivered",
        "events",
        "expired",
        "floor",
        "leased",
        "lost",
        "nacked",
        "next",
        "next_lease_id",
        "redelivered",
        "released",
        "skipped",
        "unknown_fields",
        "voided",
    )

    def __init__(self, start: int) -> None:
        self.floor = start
        """Everything below is settled."""
        self.next = start
        """The first offset that was never leased, passed over nor settled."""
        self.next_lease_id = 1
        self.leased = 0
        """Offsets leased now."""
        self.lost = 0
        """Offsets that a settlement named and no longer held; since this object was made."""
        self.events: list[Event] = []
        self.unknown_fields: Mapping[str, object] = NO_FIELDS
        """What a later version has in its snapshots."""
        self._settled = IntervalSet()
        self._passed = IntervalSet()
        self._ready = IntervalMap("qq")  # start, stop, tag, history
        self._delayed = IntervalMap("qd")  # start, stop, history, not_before
        self._leases: dict[int, LeaseState] = {}
        self._failures: FailureNotes | None = None
        self._deadlines: list[tuple[float, int]] = NOTHING
        """Deadlines or earlier, with lease ids; may name leases that are gone."""
        self._due: list[tuple[float, int, int]] = NOTHING
        """`not_before`, start, stop; may name offsets that moved on."""
        self._readied: dict[OffsetRange, None] | None = None
        """What became ready since a choice last asked; None when none ever has."""
        self.delivered = self.redelivered = self.acked = self.nacked = 0
        self.released = self.expired = self.voided = self.skipped = 0

    # -- questions ------------------------------------------------------------------------------------------

    @property
    def failures(self) -> FailureNotes:
        """When and in which consumers unsettled offsets have failed; made when that is first asked for."""
        if self._failures is None:
            self._failures = FailureNotes()
        return self._failures

    @property
    def settled_above_floor(self) -> int:
        """Offsets settled out of order."""
        return self._settled.count

    def settled_ranges(self) -> list[OffsetRange]:
        """The offsets settled out of order, in ranges."""
        return list(self._settled)

    @property
    def passed(self) -> int:
        """Offsets that were passed over, and not leased since."""
        return self._passed.count

    @property
    def delayed(self) -> int:
        """Offsets that wait for their `not_before`."""
        return self._delayed.count

    def pending_count(self, visible_end: int) -> int:
        """Offsets below `visible_end` that are not settled."""
        if visible_end <= self.floor:
            return 0
        settled = self._settled
        above = settled.count_in(visible_end, settled.last_stop) if settled.last_stop > visible_end else 0
        return visible_end - self.floor - settled.count + above

    def ready_count(self, visible_end: int) -> int:
        """Offsets that could be leased; delayed ones count from the first call with a `now` past their time."""
        fresh = visible_end - self.next
        if fresh <= 0:
            ready = self._ready
            return ready.count if ready.last_stop <= visible_end else ready.count_in(0, visible_end)
        return self._ready.count + fresh - self._settled.count_in(self.next, visible_end)

    def never_leased(self, end: int) -> int:
        """Offsets below `end` that are unsettled and were never leased."""
        fresh = max(0, end - self.next)
        if fresh:
            fresh -= self._settled.count_in(self.next, end)
        return fresh + self._passed.count_in(0, end)

    def is_passed(self, offset: int) -> bool:
        """Was it passed over, and not leased since?"""
        return self._passed.contains(offset)

    def ready_ranges(self, now: float, end: int, start: int = 0) -> Iterator[OffsetRange]:
        """What was leased before and may be leased again, in `[start, end)`. Do not change the delivery meanwhile."""
        self._promote(now)
        for row in self._ready.overlapping(start, end):
            yield row[0], row[1]

    def ready_in(self, start: int, stop: int) -> list[OffsetRange]:
        """What of `[start, stop)` was leased before, and may be leased again."""
        return [row[:2] for row in self._ready.overlapping(start, stop)]

    def holder_of(self, lease_id: int, offset: int) -> int | None:
        """The consumer that has the offset under this lease; None when no consumer has."""
        lease = self._leases.get(lease_id)
        return None if lease is None or not lease.overlapping(offset, offset + 1) else lease.consumer

    def is_ready(self, offset: int) -> bool:
        """Was it leased before, and may it be leased again?"""
        return self._ready.contains(offset)

    @contextmanager
    def without(self, ranges: Sequence[OffsetRange]) -> Iterator[None]:
        """Within it, what of these is ready is not there to be leased, or counted."""
        ready = self._ready
        rows = [row for start, stop in ranges for row in ready.carve(start, stop)]
        try:
            yield
        finally:
            for row in rows:
                ready.put(*row)
            if (
                self._readied is not None
            ):  # a choice may have met them meanwhile, and not have seen that they are ready
                self._readied.update({row[:2]: None for row in rows})

    def promote(self, now: float) -> None:
        """Have a part of what was delayed, and is due, be ready: no more than one step takes."""
        self._promote(now)

    def hear_readied(self) -> None:
        """From now on, until `forget_readied`, keep what becomes ready for `take_readied`."""
        if self._readied is None:
            self._readied = {}

    def take_readied(self) -> list[OffsetRange]:
        """What became ready since the last call, some of which may have moved on; nothing unless it is kept."""
        found, self._readied = self._readied or {}, {} if self._readied is not None else None
        return list(found)

    def forget_readied(self) -> None:
        """Keep nothing for `take_readied` any more."""
        self._readied = None

    def unsettled_ranges(self, start: int, stop: int) -> list[OffsetRange]:
        """What of `[start, stop)` is not settled."""
        return self._settled.missing(max(start, self.floor), stop)

    def unsettled_span(self, start: int, end: int, size: int, *, join: int) -> OffsetRange | None:
        """The first unsettled offsets from `start` to `end`, at most `size`, and what follows as long as no more than
        `join` settled ones lie between. None when all is settled.
        """
        first, row = max(start, self.floor), None
        while first < end:
            row = self._settled.first_from(first)
            if row is None or row[0] > first:
                break
            first = row[1]
        if first >= end:
            return None
        stop, limit = first, min(end, first + size)
        while row is not None and stop < limit:
            stop = row[0]
            if row[1] - row[0] > join:
                return first, min(stop, limit)
            row = self._settled.first_from(row[1])
        return first, limit

    def next_deadline(self) -> float | None:
        """When something next happens by itself: a lease runs out or a delayed offset falls due."""
        expiry, due = self._first_deadline(), self._due[0][0] if self._due else None
        if expiry is None or due is None:
            return due if expiry is None else expiry
        return min(expiry, due)

    # -- moves ----------------------------------------------------------------------------------------------

    def _seek(self, offset: int) -> None:
        """Everything before `offset` is settled, and nothing else; nothing is leased."""
        self.floor = self.next = offset
        self.leased = 0
        self._settled, self._passed = IntervalSet(), IntervalSet()
        self._ready, self._delayed = IntervalMap("qq"), IntervalMap("qd")
        self._leases.clear()
        if self._failures is not None:
            self._failures.clear()
        self._deadlines, self._due = NOTHING, NOTHING

    def _hold(
        self,
        lease_id: int,
        consumer: int,
        deadline: float,
        rows: list[HistoryRow],
        since: float | None = None,
    ) -> LeaseState:
        """Offsets just taken out of ready, delayed or untouched become leased."""
        count = length_of(rows)
        lease = self._leases[lease_id] = LeaseState(consumer, deadline, count == 1, rows, since)
        self.next_lease_id = lease_id + 1
        self.leased += count
        self.delivered += count
        self.redelivered += length_of([row for row in rows if row[2] > 1])
        self._watch(deadline, lease_id)
        return lease

    def _claim(
        self, lease_id: int, ranges: Iterable[OffsetRange], *, late: bool
    ) -> tuple[list[HistoryRow], bool]:
        """Take out what the receipt still holds; the rows' histories count its attempt iff the lease ran out.

        The second value tells whether the lease is held (its attempt not in the histories yet).
        """
        lease = self._leases.get(lease_id)
        if lease is None:
            return (self._carve_late(lease_id, ranges) if late else []), False
        rows = lease.carve_all(ranges)
        self.leased -= length_of(rows)
        return rows, True

    def _carve_late(self, lease_id: int, ranges: Iterable[OffsetRange]) -> list[HistoryRow]:
        """Take ready offsets that were not leased again since `lease_id` ran out."""
        if not 0 < lease_id < self.next_lease_id or not self._ready.rows:
            return []
        rows: list[HistoryRow] = []
        for start, stop in ranges:
            tagged = [row for row in self._ready.overlapping(start, stop) if row[2] == lease_id]
            for row in tagged:
                self._ready.carve(row[0], row[1])
                rows.append((row[0], row[1], row[3]))
        return rows

    def _drop_if_empty(self, lease_id: int) -> None:
        lease = self._leases.get(lease_id)
        if lease is not None and not lease.rows:
            del self._leases[lease_id]

    def _pass_over(self, stop: int) -> None:
        """What is untouched below `stop` becomes passed; next moves there, or past the settled offsets there (DS1)."""
        for start, end in self._settled.missing(self.next, stop):
            self._passed.add(start, end)
        settled_range = self._settled.first_from(stop)
        self.next = settled_range[1] if settled_range is not None and settled_range[0] <= stop else stop

    def _take_out(self, start: int, stop: int) -> list[HistoryRow]:
        """Take offsets, of which none is settled, out of whatever states they are in."""
        rows: list[HistoryRow] = []
        wanted = max(0, min(stop, self.next) - start)
        if wanted and self._passed.rows:
            rows += [(row[0], row[1], 0) for row in self._passed.carve(start, stop)]
            wanted -= length_of(rows)
        if wanted and self._ready.rows:
            ready = self._ready.carve(start, stop)
            rows += [(row[0], row[1], row[3]) for row in ready]
            wanted -= length_of(ready)
        if wanted and self._delayed.rows:
            delayed = self._delayed.carve(start, stop)
            rows += [row[:3] for row in delayed]
            wanted -= length_of(delayed)
        emptied = []
        if wanted:
            # The newest lease first: what is taken out has mostly been leased just now.
            for lease_id, lease in reversed(self._leases.items()):
                taken = lease.carve(start, stop)
                rows += taken
                wanted -= (count := length_of(taken))
                self.leased -= count
                if not lease.rows:
                    emptied.append(lease_id)
                if not wanted:
                    break
        for lease_id in emptied:
            del self._leases[lease_id]
        if wanted:
            raise InternalError(f"{wanted} offsets of [{start}, {stop}) are in no state", invariant="DS3")
        if stop > self.next:
            rows.append((max(start, self.next), stop, 0))
        return sorted(rows)

    def _settle(self, start: int, stop: int) -> None:
        """Offsets that are in no other state any more become settled; floor and next move as far as they can (DS1)."""
        settled = self._settled
        if self._failures is not None and self._failures.ranges.rows:
            self._failures.forget(start, stop)
        if start != self.floor:
            if settled.last_stop > start:
                settled.put(start, stop)
            else:
                settled.add(start, stop)
            if start <= self.next < stop:
                row = settled.first_from(self.next)
                self.next = row[1] if row else stop
            return
        if settled.rows:
            first = settled.first()
            if first is not None and first[0] == stop:
                stop = first[1]
                settled.carve(first[0], stop)
        self.floor = stop
        if self.next < stop:
            self.next = stop

    def _settle_all(self, ranges: Sequence[OffsetRange]) -> None:
        """`_settle` for sorted ranges that do not touch: quickly, when they lie behind all that is settled."""
        settled, failures = self._settled, self._failures
        has_failed = failures is not None and failures.ranges.rows > 0
        if ranges and self.floor < ranges[0][0] and ranges[-1][1] <= self.next and not has_failed:
            settled.put_all(*zip(*ranges, strict=True))
            return
        for start, stop in ranges:
            self._settle(start, stop)

    def _settlement(self, named: tuple[OffsetRange, ...], accepted: tuple[OffsetRange, ...]) -> Settlement:
        if named == accepted:
            return Settlement(accepted, ())
        lost: list[OffsetRange] = []
        for start, stop in named:
            inside = slice(bisect_left(accepted, (start,)), bisect_left(accepted, (stop,)))
            lost += between(start, stop, accepted[inside])
        self.lost += length_of(lost)
        return Settlement(accepted, tuple(lost))

    def _make_ready(self, rows: Sequence[HistoryRow], tag: int) -> None:
        if rows:
            starts, stops, histories = zip(*rows, strict=True)
            self._ready.put_all(starts, stops, [tag] * len(rows), histories)
        if self._readied is not None:
            self._readied.update({row[:2]: None for row in rows})

    def _make_delayed(self, rows: Iterable[HistoryRow], not_before: float) -> None:
        for start, stop, history in rows:
            self._delayed.put(start, stop, history, not_before)
            if self._due is NOTHING:
                self._due = []
            heappush(self._due, (not_before, start, stop))
        if len(self._due) > HEAP_SLACK + 2 * self._delayed.rows:
            self._rebuild_due()

    def _promote(self, now: float, most: int = STEP_ITEMS) -> None:
        """Delayed offsets whose time has come become ready; no more of them than one step takes."""
        due, delayed = self._due, self._delayed
        if not due or due[0][0] > now:
            return
        ripe: list[OffsetRange] = []
        while due and due[0][0] <= now and len(ripe) < most:
            ripe.append(heappop(due)[1:])
        ripe.sort()
        rows: list[HistoryRow] = []
        for start, stop in ripe:
            for first, last, history, not_before in list(delayed.overlapping(start, stop)):
                if not_before <= now:
                    delayed.carve(first, last)
                    rows.append((first, last, history))
        self._make_ready(rows, 0)

    def _run_out(self, lease_id: int, tag: int) -> int:
        """A lease ends with its attempt counted; returns how many offsets it held."""
        lease = self._leases.pop(lease_id)
        count = length_of(lease.rows)
        self.leased -= count
        self._make_ready(lease.counted(lease.rows), tag)
        return count

    # -- deadlines ------------------------------------------------------------------------------------------

    def _first_deadline(self) -> float | None:
        """The earliest deadline of a lease; brings the top of the heap up to date."""
        deadlines, leases = self._deadlines, self._leases
        while deadlines:
            deadline, lease_id = deadlines[0]
            lease = leases.get(lease_id)
            if lease is None:
                heappop(deadlines)
            elif lease.deadline > deadline:
                heapreplace(deadlines, (lease.deadline, lease_id))
            else:
                return deadline
        return None

    def _watch(self, deadline: float, lease_id: int) -> None:
        if self._deadlines is NOTHING:
            self._deadlines = []
        heappush(self._deadlines, (deadline, lease_id))
        if len(self._deadlines) > HEAP_SLACK + 2 * len(self._leases):
            self._rebuild_deadlines()

    def _rebuild_due(self) -> None:
        due = [(row[3], row[0], row[1]) for row in self._delayed]
        heapify(due)
        self._due = due or NOTHING

    def _fill_due(self) -> Iterator[None]:
        """The same for an empty heap, yielding after every few hundred ranges."""
        due: list[tuple[float, int, int]] = []
        for place, (starts, stops, _, instants) in enumerate(self._delayed.chunks()):
            if place:
                yield
            for row in zip(instants, starts, stops, strict=True):
                heappush(due, row)
        self._due = due or NOTHING

    def _rebuild_deadlines(self) -> None:
        deadlines = [(lease.deadline, lease_id) for lease_id, lease in self._leases.items()]
        heapify(deadlines)
        self._deadlines = deadlines or NOTHING

    # -- invariants -----------------------------------------------------------------------------------------

    def _check_cheaply(self) -> None:
        settled = self._settled
        islands = settled.count_in(self.next, settled.last_stop) if settled.last_stop > self.next else 0
        held = self.leased + self._passed.count + self._ready.count + self._delayed.count
        held += settled.count - islands
        if not 0 <= self.floor <= self.next:
            raise InternalError(f"floor {self.floor}, next {self.next}", invariant="DS1")
        if held != self.next - self.floor:
            raise InternalError(
                f"{held} offsets are accounted for between floor {self.floor} and next {self.next}",
                invariant="DS2",
            )

    def check_invariants(self) -> None:
        """Raise InternalError when an invariant does not hold. The cost grows with the number of ranges."""
        for _ in self.check_in_steps():
            pass
        self._check_heaps()

    def check_in_steps(self) -> Iterator[None]:
        """The same for all but the heaps, yielding now and then."""
        self._check_cheaply()
        settled_in = self._settled.count_in
        failed = IntervalMap("dq") if self._failures is None else self._failures.ranges
        for intervals in (self._settled, self._passed, self._ready, self._delayed, failed):
            yield from intervals.check_in_steps()
        if self._settled.contains(self.floor) or self._settled.contains(self.next):
            raise InternalError("floor or next is settled", invariant="DS1")
        leased, ranges = IntervalSet(), 0
        for key, lease in self._leases.items():
            if not lease.rows or not 0 < key < self.next_lease_id:
                raise InternalError("a lease is empty or has an id to come", invariant="DS4")
            for row in lease.rows:
                leased.put(row[0], row[1])
            ranges += len(lease.rows)
            if ranges >= STEP_ITEMS:
                ranges = 0
                yield
        if self.leased != leased.count:
            raise InternalError("leased differs from the leases", invariant="DS6")
        held = (self._passed, self._ready, self._delayed, leased)
        for each in held:
            first = each.first()
            if first is not None and (first[0] < self.floor or each.last_stop > self.next):
                raise InternalError("an offset outside floor and next is in hand", invariant="DS3")
        first = self._settled.first()
        if first is not None and first[0] < self.floor:
            raise InternalError("an offset below floor is kept", invariant="DS3")
        yield from _check_disjoint((*held, self._settled))
        for starts, stops, *_ in failed.chunks():
            if starts[0] < self.floor or stops[-1] > self.next or any(map(settled_in, starts, stops)):
                raise InternalError("a failure of a settled or untouched offset is noted", invariant="DS3")
            yield

    def _check_heaps(self) -> None:
        timely: dict[int, float] = {}
        for deadline, lease_id in self._deadlines:
            timely[lease_id] = min(deadline, timely.get(lease_id, deadline))
        if any(timely.get(key, float("inf")) > lease.deadline for key, lease in self._leases.items()):
            raise InternalError("a lease may run out unnoticed", invariant="DS5")
        due = IntervalSet()
        for not_before, start, stop in self._due:
            for row in self._delayed.overlapping(start, stop):
                if row[3] >= not_before:
                    due.add(row[0], row[1])
        if due.count != self._delayed.count:
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
