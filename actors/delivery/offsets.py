"""Where every offset of one group in one partition stands, and the moves between these states. Pure.

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

Invariants, all checked by `invariants.check_all`, the cheap ones (marked *) each time the events of the delivery are
taken:

- DS1* `0 <= floor <= next`, and both are as high as they can be: neither names a settled offset.
- DS2* Conservation: leased + passed + ready + delayed + settled offsets between floor and next number `next - floor`.
- DS3  The states are disjoint; leased, passed, ready and delayed offsets lie between floor and next.
- DS4  Every lease holds at least one offset, and its id is below `next_lease_id`; ids only grow, so none is used twice.
- DS5  Every lease has an entry in the heap of deadlines that is due no later than the lease; every delayed offset has
       one in the due heap.
- DS6  `leased` is the number of offsets in all leases.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from heapq import heapify, heappop, heappush, heapreplace
from itertools import islice
from typing import Any, Final

from callboard.actors.delivery.failures import FailureNotes
from callboard.actors.delivery.intervals import NOTHING, NUMBER_BYTES, IntervalMap, IntervalSet, length_of
from callboard.actors.delivery.receipts import (
    HistoryRow,
    Holding,
    Lease,
    LeaseState,
    OffsetRange,
    between,
    common,
    joined,
    merged,
    normal_ranges,
)
from callboard.log.errors import InternalError
from callboard.log.limits import STEP_ITEMS

UNANCHORED: Final = float("-inf")
"""The deadline of a lease that came out of a journal or snapshot: due at once, unless renewed or voided first."""

HEAP_SLACK: Final = 64
"""Entries that a heap may hold beyond twice what it stands for, before what is stale is thrown out."""


class OffsetStates:
    """The states of the offsets of one group in one partition. Only `Delivery` and its parts move them."""

    # A runtime has one for each group and partition: a dictionary for each would take most of their memory.
    __slots__ = (
        "_failures",
        "_readied",
        "deadlines",
        "delayed",
        "due",
        "floor",
        "lease_states",
        "leased",
        "next",
        "next_lease_id",
        "passed",
        "ready",
        "settled",
    )

    def __init__(self, start: int) -> None:
        self.floor = start
        """Everything below is settled."""
        self.next = start
        """The first offset that was never leased, passed over nor settled."""
        self.next_lease_id = 1
        self.leased = 0
        """Offsets leased now."""
        self.settled = IntervalSet()
        """Those settled out of order, above the floor."""
        self.passed = IntervalSet()
        self.ready = IntervalMap("qq")  # start, stop, tag, history
        self.delayed = IntervalMap("qd")  # start, stop, history, not_before
        self.lease_states: dict[int, LeaseState] = {}
        """By lease id, the oldest first."""
        self._failures: FailureNotes | None = None
        self.deadlines: list[tuple[float, int]] = NOTHING
        """Deadlines or earlier, with lease ids; may name leases that are gone."""
        self.due: list[tuple[float, int, int]] = NOTHING
        """`not_before`, start, stop; may name offsets that moved on."""
        self._readied: dict[OffsetRange, None] | None = None
        """What became ready since a choice last asked; None when none ever has."""

    @property
    def failures(self) -> FailureNotes:
        """When and in which consumers unsettled offsets have failed; made when that is first asked for."""
        if self._failures is None:
            self._failures = FailureNotes()
        return self._failures

    @property
    def has_failures(self) -> bool:
        """Whether any failure is noted."""
        return self._failures is not None and self._failures.ranges.rows > 0

    def stored_failures(self, wall_offset_s: float) -> dict[str, Any] | None:
        """The failures in CBOR's types; None when there are none."""
        return None if self._failures is None else self._failures.stored(wall_offset_s)

    # -- questions ------------------------------------------------------------------------------------------

    def pending_count(self, visible_end: int) -> int:
        """Offsets below `visible_end` that are not settled."""
        if visible_end <= self.floor:
            return 0
        settled = self.settled
        above = settled.count_in(visible_end, settled.last_stop) if settled.last_stop > visible_end else 0
        return visible_end - self.floor - settled.count + above

    def ready_count(self, visible_end: int) -> int:
        """Offsets that could be leased; delayed ones count from the first call with a `now` past their time."""
        fresh = visible_end - self.next
        if fresh <= 0:
            ready = self.ready
            return ready.count if ready.last_stop <= visible_end else ready.count_in(0, visible_end)
        return self.ready.count + fresh - self.settled.count_in(self.next, visible_end)

    def never_leased(self, end: int) -> int:
        """Offsets below `end` that are unsettled and were never leased."""
        fresh = max(0, end - self.next)
        if fresh:
            fresh -= self.settled.count_in(self.next, end)
        return fresh + self.passed.count_in(0, end)

    def is_passed(self, offset: int) -> bool:
        """Was it passed over, and not leased since?"""
        return self.passed.contains(offset)

    def ready_ranges(self, now: float, end: int, start: int = 0) -> Iterator[OffsetRange]:
        """What was leased before and may be leased again, in `[start, end)`. Do not change the delivery meanwhile."""
        self.promote(now)
        for row in self.ready.overlapping(start, end):
            yield row[0], row[1]

    def ready_in(self, start: int, stop: int) -> list[OffsetRange]:
        """What of `[start, stop)` was leased before, and may be leased again."""
        return [row[:2] for row in self.ready.overlapping(start, stop)]

    def holder_of(self, lease_id: int, offset: int) -> int | None:
        """The consumer that has the offset under this lease; None when no consumer has."""
        lease = self.lease_states.get(lease_id)
        return None if lease is None or not lease.overlapping(offset, offset + 1) else lease.consumer

    def is_ready(self, offset: int) -> bool:
        """Was it leased before, and may it be leased again?"""
        return self.ready.contains(offset)

    @contextmanager
    def without(self, ranges: Sequence[OffsetRange]) -> Iterator[None]:
        """Within it, what of these is ready is not there to be leased, or counted."""
        ready = self.ready
        rows = [row for start, stop in ranges for row in ready.carve(start, stop)]
        try:
            yield
        finally:
            for row in rows:
                ready.put(*row)
            # A choice may have met them meanwhile, and not have seen that they are ready.
            if self._readied is not None:
                self._readied.update({row[:2]: None for row in rows})

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
        return self.settled.missing(max(start, self.floor), stop)

    def unsettled_span(self, start: int, end: int, size: int, *, join: int) -> OffsetRange | None:
        """The first unsettled offsets from `start` to `end`, at most `size`, and what follows as long as no more than
        `join` settled ones lie between. None when all is settled.
        """
        first, row = max(start, self.floor), None
        while first < end:
            row = self.settled.first_from(first)
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
            row = self.settled.first_from(row[1])
        return first, limit

    def next_deadline(self) -> float | None:
        """When something next happens by itself: a lease runs out or a delayed offset falls due."""
        expiry, due = self.first_deadline(), self.due[0][0] if self.due else None
        if expiry is None or due is None:
            return due if expiry is None else expiry
        return min(expiry, due)

    def lease_of(self, lease_id: int) -> Lease | None:
        """What the lease holds now; None when it is gone."""
        lease = self.lease_states.get(lease_id)
        return None if lease is None else lease.to_lease(lease_id)

    def leases(self) -> list[Lease]:
        """All leases, the oldest first."""
        return [lease.to_lease(lease_id) for lease_id, lease in self.lease_states.items()]

    def lease_ids(self, consumer: int | None = None) -> list[int]:
        """The ids of all leases, or of those of `consumer`, the latest first: for `release_some`."""
        leases = reversed(self.lease_states.items())
        return [lease_id for lease_id, lease in leases if consumer is None or lease.consumer == consumer]

    def holders(self) -> set[int]:
        """The consumers that have leases."""
        return {lease.consumer for lease in self.lease_states.values()}

    def has_others(self, consumer: int | None) -> bool:
        """Whether anybody besides `consumer` has a lease; those of others are the oldest, if there are any."""
        return any(lease.consumer != consumer for lease in self.lease_states.values())

    def holdings(self, now: float, most: int) -> dict[int, Holding]:
        """What each consumer has leased, of `most` consumers: those with the oldest leases. Costs as many steps as
        leases.
        """
        found: dict[int, Holding] = {}
        for lease in self.lease_states.values():
            held = found.get(lease.consumer)
            since = now if lease.since is None else lease.since
            if held is not None:
                found[lease.consumer] = Holding(held.leased + length_of(lease.rows), min(held.since, since))
            elif len(found) < most:
                found[lease.consumer] = Holding(length_of(lease.rows), since)
        return found

    def leased_in(self, start: int, stop: int, *, besides: Container[int] = ()) -> list[OffsetRange]:
        """What of `[start, stop)` is leased, `besides` these leases, sorted. Costs as many steps as leases."""
        found: list[OffsetRange] = []
        for lease_id, lease in self.lease_states.items():
            if lease.rows[0][0] < stop and lease.rows[-1][1] > start and lease_id not in besides:
                found += [row[:2] for row in lease.overlapping(start, stop)]
        return sorted(found)

    def by_attempt(self, lease_id: int, ranges: Sequence[OffsetRange]) -> list[tuple[int, list[OffsetRange]]]:
        """`ranges` cut by the attempt that their lease is, or was; what the receipt lacks counts as the first."""
        lease = self.lease_states.get(lease_id)
        found: dict[int, list[OffsetRange]] = {}
        for start, stop in normal_ranges(ranges):
            if lease is not None:
                rows = [(row[0], row[1], (row[2] >> 1) + 1) for row in lease.overlapping(start, stop)]
            else:
                late = self.ready.overlapping(start, stop)
                rows = [(row[0], row[1], row[3] >> 1) for row in late if row[2] == lease_id]
            for first, last, attempt in rows:
                found.setdefault(attempt, []).append((first, last))
            if lacking := between(start, stop, rows):
                found.setdefault(1, []).extend(lacking)
        return list(found.items())

    def holds(self, lease_id: int, ranges: Sequence[OffsetRange]) -> bool:
        """Whether an ack of all of `ranges` would count now, also a late one."""
        lease = self.lease_states.get(lease_id)
        for start, stop in normal_ranges(ranges):
            if lease is not None:
                held = length_of(lease.overlapping(start, stop))
            else:
                held = length_of([row for row in self.ready.overlapping(start, stop) if row[2] == lease_id])
            if held < stop - start or lease_id <= 0:
                return False
        return True

    def unsettled(self, ranges: Iterable[OffsetRange]) -> tuple[OffsetRange, ...]:
        """The parts of `ranges` that are not settled."""
        return tuple([part for start, stop in ranges for part in self.unsettled_ranges(start, stop)])

    def claimed(self, lease: Lease, nacked: Iterable[OffsetRange] = ()) -> tuple[tuple[int, int, int], ...]:
        """What of a lease, as it was given, is held, `nacked` or settled: all but what was given back or ran out."""
        left = self.lease_states.get(lease.lease_id)
        held = merged(sorted([*nacked, *(() if left is None else [row[:2] for row in left.rows])]))
        claimed = []
        for start, stop, attempt in lease.ranges:
            gone = [
                part
                for first, last in self.unsettled_ranges(start, stop)
                for part in between(first, last, common(held, first, last))
            ]
            claimed += [(first, last, attempt) for first, last in between(start, stop, gone)]
        return tuple(claimed)

    # -- moves ----------------------------------------------------------------------------------------------

    def seek(self, offset: int) -> None:
        """Everything before `offset` is settled, and nothing else; nothing is leased."""
        self.floor = self.next = offset
        self.leased = 0
        self.settled, self.passed = IntervalSet(), IntervalSet()
        self.ready, self.delayed = IntervalMap("qq"), IntervalMap("qd")
        self.lease_states.clear()
        if self._failures is not None:
            self._failures.clear()
        self.deadlines, self.due = NOTHING, NOTHING

    def hold(
        self,
        lease_id: int,
        consumer: int,
        deadline: float,
        rows: list[HistoryRow],
        since: float | None = None,
    ) -> LeaseState:
        """Offsets just taken out of ready, delayed or untouched become leased."""
        count = length_of(rows)
        lease = self.lease_states[lease_id] = LeaseState(consumer, deadline, count == 1, rows, since)
        self.next_lease_id = lease_id + 1
        self.leased += count
        self.watch(deadline, lease_id)
        return lease

    def claim(
        self, lease_id: int, ranges: Iterable[OffsetRange], *, late: bool
    ) -> tuple[list[HistoryRow], bool]:
        """Take out what the receipt still holds; the rows' histories count its attempt iff the lease ran out.

        The second value tells whether the lease is held (its attempt not in the histories yet).
        """
        lease = self.lease_states.get(lease_id)
        if lease is None:
            return (self._carve_late(lease_id, ranges) if late else []), False
        rows = lease.carve_all(ranges)
        self.leased -= length_of(rows)
        return rows, True

    def _carve_late(self, lease_id: int, ranges: Iterable[OffsetRange]) -> list[HistoryRow]:
        """Take ready offsets that were not leased again since `lease_id` ran out."""
        if not 0 < lease_id < self.next_lease_id or not self.ready.rows:
            return []
        rows: list[HistoryRow] = []
        for start, stop in ranges:
            tagged = [row for row in self.ready.overlapping(start, stop) if row[2] == lease_id]
            for row in tagged:
                self.ready.carve(row[0], row[1])
                rows.append((row[0], row[1], row[3]))
        return rows

    def drop_if_empty(self, lease_id: int) -> None:
        """Forget the lease when it holds nothing any more."""
        lease = self.lease_states.get(lease_id)
        if lease is not None and not lease.rows:
            del self.lease_states[lease_id]

    def pass_over(self, stop: int) -> None:
        """What is untouched below `stop` becomes passed; next moves there, or past the settled offsets there (DS1)."""
        for start, end in self.settled.missing(self.next, stop):
            self.passed.add(start, end)
        settled_range = self.settled.first_from(stop)
        self.next = settled_range[1] if settled_range is not None and settled_range[0] <= stop else stop

    def take(self, start: int, stop: int) -> list[HistoryRow]:
        """Take out what is ready or passed."""
        rows = [(row[0], row[1], row[3]) for row in self.ready.carve(start, stop)]
        rows += [(row[0], row[1], 0) for row in self.passed.carve(start, stop)]
        return joined(sorted(rows))

    def take_any(self, start: int, stop: int) -> list[HistoryRow]:
        """Take out what is ready, passed or delayed."""
        if start >= stop:
            return []
        return joined(
            sorted([*self.take(start, stop), *(row[:3] for row in self.delayed.carve(start, stop))])
        )

    def step_over(self, stop: int) -> int:
        """Move next to `stop`, or past the settled range before it; returns where the fresh range ends."""
        settled_range = self.settled.first_from(self.next)
        if settled_range is None or settled_range[0] > stop:
            self.next = stop
            return stop
        self.next = settled_range[1]
        return int(settled_range[0])

    def take_out(self, start: int, stop: int) -> list[HistoryRow]:
        """Take offsets, of which none is settled, out of whatever states they are in."""
        rows: list[HistoryRow] = []
        wanted = max(0, min(stop, self.next) - start)
        if wanted and self.passed.rows:
            rows += [(row[0], row[1], 0) for row in self.passed.carve(start, stop)]
            wanted -= length_of(rows)
        if wanted and self.ready.rows:
            ready = self.ready.carve(start, stop)
            rows += [(row[0], row[1], row[3]) for row in ready]
            wanted -= length_of(ready)
        if wanted and self.delayed.rows:
            delayed = self.delayed.carve(start, stop)
            rows += [row[:3] for row in delayed]
            wanted -= length_of(delayed)
        emptied = []
        if wanted:
            # The newest lease first: what is taken out has mostly been leased just now.
            for lease_id, lease in reversed(self.lease_states.items()):
                taken = lease.carve(start, stop)
                rows += taken
                wanted -= (count := length_of(taken))
                self.leased -= count
                if not lease.rows:
                    emptied.append(lease_id)
                if not wanted:
                    break
        for lease_id in emptied:
            del self.lease_states[lease_id]
        if wanted:
            raise InternalError(f"{wanted} offsets of [{start}, {stop}) are in no state", invariant="DS3")
        if stop > self.next:
            rows.append((max(start, self.next), stop, 0))
        return sorted(rows)

    def settle(self, start: int, stop: int) -> None:
        """Offsets that are in no other state any more become settled; floor and next move as far as they can (DS1)."""
        settled = self.settled
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

    def settle_all(self, ranges: Sequence[OffsetRange]) -> None:
        """`_settle` for sorted ranges that do not touch: quickly, when they lie behind all that is settled."""
        behind = ranges and self.floor < ranges[0][0] and ranges[-1][1] <= self.next
        if behind and not self.has_failures:
            self.settled.put_all(*zip(*ranges, strict=True))
            return
        for start, stop in ranges:
            self.settle(start, stop)

    def make_ready(self, rows: Sequence[HistoryRow], tag: int) -> None:
        """Offsets that are in no state become ready."""
        if rows:
            starts, stops, histories = zip(*rows, strict=True)
            self.ready.put_all(starts, stops, [tag] * len(rows), histories)
        if self._readied is not None:
            self._readied.update({row[:2]: None for row in rows})

    def has_tags(self) -> bool:
        """Whether a late settlement may name something that is ready."""
        return any(chunk[2].tobytes() != bytes(NUMBER_BYTES * len(chunk[2])) for chunk in self.ready.chunks())

    def forget_tags(self) -> Iterator[None]:
        """All receipts end; ranges that differed only by tag become one. Yields after every few thousand ranges."""
        tagged, self.ready = self.ready, IntervalMap("qq")
        rows = iter(tagged)
        while untagged := [(row[0], row[1], row[3]) for row in islice(rows, STEP_ITEMS)]:
            self.make_ready(untagged, 0)
            yield

    def make_delayed(self, rows: Iterable[HistoryRow], not_before: float) -> None:
        """Offsets that are in no state wait for `not_before`."""
        for start, stop, history in rows:
            self.delayed.put(start, stop, history, not_before)
            if self.due is NOTHING:
                self.due = []
            heappush(self.due, (not_before, start, stop))
        if len(self.due) > HEAP_SLACK + 2 * self.delayed.rows:
            self._rebuild_due()

    def promote(self, now: float, most: int = STEP_ITEMS) -> None:
        """Delayed offsets whose time has come become ready; no more of them than one step takes."""
        due, delayed = self.due, self.delayed
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
        self.make_ready(rows, 0)

    def end_lease(self, lease_id: int, tag: int) -> int:
        """A lease ends with its attempt counted; returns how many offsets it held."""
        lease = self.lease_states.pop(lease_id)
        count = length_of(lease.rows)
        self.leased -= count
        self.make_ready(lease.counted(lease.rows), tag)
        return count

    # -- deadlines ------------------------------------------------------------------------------------------

    def first_deadline(self) -> float | None:
        """The earliest deadline of a lease; brings the top of the heap up to date."""
        deadlines, leases = self.deadlines, self.lease_states
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

    def watch(self, deadline: float, lease_id: int) -> None:
        """Put a deadline of the lease on the heap."""
        if self.deadlines is NOTHING:
            self.deadlines = []
        heappush(self.deadlines, (deadline, lease_id))
        if len(self.deadlines) > HEAP_SLACK + 2 * len(self.lease_states):
            self.rebuild_deadlines()

    def _rebuild_due(self) -> None:
        due = [(row[3], row[0], row[1]) for row in self.delayed]
        heapify(due)
        self.due = due or NOTHING

    def fill_due(self) -> Iterator[None]:
        """The same for an empty heap, yielding after every few hundred ranges."""
        due: list[tuple[float, int, int]] = []
        for place, (starts, stops, _, instants) in enumerate(self.delayed.chunks()):
            if place:
                yield
            for row in zip(instants, starts, stops, strict=True):
                heappush(due, row)
        self.due = due or NOTHING

    def rebuild_deadlines(self) -> None:
        """Make the heap of deadlines anew, without what is stale."""
        deadlines = [(lease.deadline, lease_id) for lease_id, lease in self.lease_states.items()]
        heapify(deadlines)
        self.deadlines = deadlines or NOTHING
