"""Delivery: which message of a partition goes to which consumer of a group, how often, and when it is done with.

A pure state machine: no clock, no I/O. Times are monotonic seconds that come in as arguments; what must be durable
comes out as events, which the partition journals before it delivers a lease's records. `state` tells what states
an offset has and which invariants hold; `docs/principles/delivery.md` lists every transition.

Vocabulary: a *lease* gives one consumer some ranges until a deadline. Its `lease_id` is the *receipt* that every
settlement names. *Ack* settles; *nack* asks for another attempt, now or later;
*release* gives back as if the lease had never been. A lease *runs out* at its deadline (`run_out`).

Rules that callers rely on:

- A receipt touches only what it still holds. A late ack or nack, after the lease ran out, counts until the
  message is leased again; after that it is lost and has no effect.
- Attempts count when a lease runs out, is nacked or is voided; a release does not count.
- Nack and release end the receipt for the ranges they name.
- Replaying the events gives the same floor, next, settled, ready and delayed offsets, histories, leases and
  counters. Deadlines are not in the events: after `restore` or `apply`, call `renew_all` (an actor restarted) or
  `void_all_leases` (the directory was opened again). A lease that gets neither runs out at the next `run_out`.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import chain, islice
from typing import Any, Self, assert_never

from callboard.actors.delivery.events import (
    AckEvent,
    DeathEvent,
    DeliveryEventInvalid,
    Event,
    ExpiryEvent,
    FailureEvent,
    ForgetEvent,
    LeaseEvent,
    NackEvent,
    NameEvent,
    PassEvent,
    PublishEvent,
    ReleaseEvent,
    RunOutEvent,
    SeekEvent,
    SkipEvent,
    VoidEvent,
    cut_reason,
    load,
)
from callboard.actors.delivery.failing import FailingState
from callboard.actors.delivery.intervals import NOTHING, NUMBER_BYTES, IntervalMap, length_of
from callboard.actors.delivery.pieces import encode_in_pieces
from callboard.actors.delivery.receipts import (
    OFFSET_END,
    HistoryRow,
    Holding,
    Lease,
    LeaseState,
    OffsetRange,
    Settlement,
    between,
    merged,
    normal_ranges,
)
from callboard.actors.delivery.snapshot import restore_snapshot, take_snapshot
from callboard.actors.delivery.state import HEAP_SLACK, UNANCHORED
from callboard.log.errors import InternalError, InvalidArgument
from callboard.log.limits import STEP_ITEMS

_made = tuple.__new__
"""Makes the events of the common cases, in half the time that their constructors take."""


class Delivery(FailingState):
    """The delivery of one partition to one group, in shared mode."""

    __slots__ = ()

    # -- leasing --------------------------------------------------------------------------------------------

    def lease(
        self, *, now: float, deadline: float, consumer: int, max_records: int, visible_end: int
    ) -> Lease | None:
        """Lease up to `max_records` offsets below `visible_end`, in no more ranges than a step handles: what is due
        again, oldest first, then fresh ones.

        Fresh ranges may hold offsets that do not exist in the log: `skip` them, then deliver `lease_of(lease_id)`.
        """
        if self._due and self._due[0][0] <= now:
            self._promote(now)
        judges = self.max_deliveries is not None
        if not self._ready.rows and not judges:
            if self.next >= visible_end:
                return None
            if max_records > 0 and (not self._settled.rows or self._settled.last_stop <= self.next):
                # The common case: everything from `next` on, of which nothing was leased or settled before.
                start, lease_id = self.next, self.next_lease_id
                stop = min(start + max_records, visible_end)
                self.next, self.next_lease_id = stop, lease_id + 1
                count = stop - start
                self._leases[lease_id] = LeaseState(consumer, deadline, count == 1, [(start, stop, 0)], now)
                self.leased += count
                self.delivered += count
                if self._deadlines is NOTHING:
                    self._deadlines = []
                heappush(self._deadlines, (deadline, lease_id))
                if len(self._deadlines) > HEAP_SLACK + 2 * len(self._leases):
                    self._rebuild_deadlines()
                self.events.append(_made(LeaseEvent, ("L", lease_id, consumer, (start, stop, 1))))
                return Lease(lease_id, ((start, stop, 1),), consumer, deadline)
        rows: list[HistoryRow] = []
        room = max_records
        if judges:
            rows, room = self.choose_judged(room, self._ready_rows(visible_end), consumer)
            for start, stop, _ in rows:
                self._ready.carve(start, stop)
            rows = _joined(rows)
        elif self._ready.rows and room > 0:
            front = self._ready.take_front(room, visible_end, STEP_ITEMS)
            rows = _joined((row[0], row[1], row[3]) for row in front)
            room = room - length_of(rows) if len(front) < STEP_ITEMS else 0  # what is ready again goes first
        while room > 0 and self.next < visible_end and len(rows) < STEP_ITEMS:
            start = self.next
            stop = min(start + room, visible_end)
            if self._settled.last_stop > start:
                stop = self._step_over(stop)
            else:
                self.next = stop
            rows.append((start, stop, 0))
            room -= stop - start
        if not rows:
            return None
        lease_id = self.next_lease_id
        lease = self._hold(lease_id, consumer, deadline, rows, now).to_lease(lease_id)
        if self.max_deliveries is not None:
            self._isolate(lease_id)
        self.events.append(LeaseEvent("L", lease_id, consumer, tuple(chain.from_iterable(lease.ranges))))
        return lease

    def lease_chosen(
        self, *, now: float, deadline: float, consumer: int, ranges: Sequence[OffsetRange]
    ) -> Lease:
        """Lease exactly `ranges`, at least one, of which all is ready, passed or untouched; sorted and not touching.

        What is untouched before their end and not among them is passed over. Raises InternalError for anything else.
        """
        self._promote(now)
        if ranges[-1][1] > self.next and not (
            ranges[-1][0] <= self.next and self._settled.last_stop <= self.next
        ):
            self._pass_over(ranges[-1][1])
            self.events.append(PassEvent("P", ranges[-1][1]))
        rows: list[HistoryRow] = []
        for start, stop in ranges:
            if stop > self.next:
                rows += self._take(start, self.next)
                rows.append((self.next, stop, 0))
                self.next = stop
            else:
                rows += self._take(start, stop)
        if merged(rows) != tuple(ranges):
            raise InternalError(f"{ranges} were chosen, and only {rows} may be leased", invariant="DS3")
        lease_id = self.next_lease_id
        lease = self._hold(lease_id, consumer, deadline, rows, now).to_lease(lease_id)
        if self.max_deliveries is not None:
            self._isolate(lease_id)
        self.events.append(LeaseEvent("L", lease_id, consumer, tuple(chain.from_iterable(lease.ranges))))
        return lease

    def claimed(self, lease: Lease, nacked: Iterable[OffsetRange] = ()) -> tuple[tuple[int, int, int], ...]:
        """What of a lease, as it was given, is held, `nacked` or settled: all but what was given back or ran out."""
        left = self._leases.get(lease.lease_id)
        held = merged(sorted([*nacked, *(() if left is None else [row[:2] for row in left.rows])]))
        claimed = []
        for start, stop, attempt in lease.ranges:
            gone = [
                part
                for first, last in self.unsettled_ranges(start, stop)
                for part in between(first, last, _common(held, first, last))
            ]
            claimed += [(first, last, attempt) for first, last in between(start, stop, gone)]
        return tuple(claimed)

    def resume(self, lost: Lease, *, deadline: float, now: float) -> None:
        """A consumer has this lease and the journal lost it: hold what of it is unsettled once more, under its id.

        Who gave any of it back, or lost it, since the journal ended has no claim to it. What is untouched before it
        was leased too, by receipts that are settled or over: it becomes ready. Raises InternalError for a used id.
        """
        if lost.lease_id < self.next_lease_id:
            raise InternalError(f"lease {lost.lease_id} is in the journal", invariant="DS4")
        wanted = self.unsettled(row[:2] for row in lost.ranges)
        for held in self.leases():
            if over := [part for start, stop in wanted for part in _common(held.ranges, start, stop)]:
                self.release(held.lease_id, over, now)
        rows = [row for start, stop in wanted for row in self._take_any(start, min(stop, self.next))]
        stop = wanted[-1][1] if wanted else 0
        fresh: list[OffsetRange] = []
        while self.next < stop:
            start = self.next
            fresh.append((start, self._step_over(stop)))
        rows += [(start, end, 0) for start, end in fresh]
        if not rows:
            self.next_lease_id = lost.lease_id + 1
            return
        lease = self._hold(lost.lease_id, lost.consumer, deadline, rows, now).to_lease(lost.lease_id)
        if self.max_deliveries is not None:
            self._isolate(lost.lease_id)
        self.events.append(
            LeaseEvent("L", lost.lease_id, lost.consumer, tuple(chain.from_iterable(lease.ranges)))
        )
        over = [part for start, end in fresh for part in between(start, end, _common(wanted, start, end))]
        self.release(lost.lease_id, over, now)

    def _take(self, start: int, stop: int) -> list[HistoryRow]:
        """Take out what is ready or passed."""
        rows = [(row[0], row[1], row[3]) for row in self._ready.carve(start, stop)]
        rows += [(row[0], row[1], 0) for row in self._passed.carve(start, stop)]
        return _joined(sorted(rows))

    def _take_any(self, start: int, stop: int) -> list[HistoryRow]:
        """Take out what is ready, passed or delayed."""
        if start >= stop:
            return []
        return _joined(
            sorted([*self._take(start, stop), *(row[:3] for row in self._delayed.carve(start, stop))])
        )

    def lease_of(self, lease_id: int) -> Lease | None:
        """What the lease holds now; None when it is gone."""
        lease = self._leases.get(lease_id)
        return None if lease is None else lease.to_lease(lease_id)

    def leases(self) -> list[Lease]:
        """All leases, the oldest first."""
        return [lease.to_lease(lease_id) for lease_id, lease in self._leases.items()]

    def holders(self) -> set[int]:
        """The consumers that have leases."""
        return {lease.consumer for lease in self._leases.values()}

    def has_others(self, consumer: int | None) -> bool:
        """Whether anybody besides `consumer` has a lease; those of others are the oldest, if there are any."""
        return any(lease.consumer != consumer for lease in self._leases.values())

    def holdings(self, now: float, most: int) -> dict[int, Holding]:
        """What each consumer has leased, of `most` consumers: those with the oldest leases. Costs as many steps as
        leases.
        """
        found: dict[int, Holding] = {}
        for lease in self._leases.values():
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
        for lease_id, lease in self._leases.items():
            if lease.rows[0][0] < stop and lease.rows[-1][1] > start and lease_id not in besides:
                found += [row[:2] for row in lease.overlapping(start, stop)]
        return sorted(found)

    def by_attempt(self, lease_id: int, ranges: Sequence[OffsetRange]) -> list[tuple[int, list[OffsetRange]]]:
        """`ranges` cut by the attempt that their lease is, or was; what the receipt lacks counts as the first."""
        lease = self._leases.get(lease_id)
        found: dict[int, list[OffsetRange]] = {}
        for start, stop in normal_ranges(ranges):
            if lease is not None:
                rows = [(row[0], row[1], (row[2] >> 1) + 1) for row in lease.overlapping(start, stop)]
            else:
                late = self._ready.overlapping(start, stop)
                rows = [(row[0], row[1], row[3] >> 1) for row in late if row[2] == lease_id]
            for first, last, attempt in rows:
                found.setdefault(attempt, []).append((first, last))
            if lacking := between(start, stop, rows):
                found.setdefault(1, []).extend(lacking)
        return list(found.items())

    def _step_over(self, stop: int) -> int:
        """Move next to `stop`, or past the settled range before it; returns where the fresh range ends."""
        settled_range = self._settled.first_from(self.next)
        if settled_range is None or settled_range[0] > stop:
            self.next = stop
            return stop
        self.next = settled_range[1]
        return int(settled_range[0])

    # -- settling -------------------------------------------------------------------------------------------

    def ack(self, lease_id: int, ranges: Sequence[OffsetRange], now: float) -> Settlement:
        """The consumer is done with `ranges`. Late acks count until the message is leased again."""
        lease = self._leases.get(lease_id)
        if lease is not None and len(lease.rows) == 1 == len(ranges):
            start, end, history = lease.rows[0]
            stop = ranges[0][1]
            if ranges[0][0] == start and type(stop) is int and start < stop <= end:
                # The common case: the range named is all that the lease has, or its beginning.
                if stop == end:
                    del self._leases[lease_id]
                else:
                    lease.rows[0] = (stop, end, history)
                self.leased -= stop - start
                self._settle(start, stop)
                self.acked += stop - start
                self.events.append(_made(AckEvent, ("A", lease_id, (start, stop))))
                return Settlement(((start, stop),), ())
        named = normal_ranges(ranges)
        accepted = self._ack(lease_id, named)
        if accepted:
            self.events.append(AckEvent("A", lease_id, tuple(chain.from_iterable(accepted))))
        return self._settlement(named, accepted)

    def unsettled(self, ranges: Iterable[OffsetRange]) -> tuple[OffsetRange, ...]:
        """The parts of `ranges` that are not settled."""
        return tuple([part for start, stop in ranges for part in self.unsettled_ranges(start, stop)])

    def holds(self, lease_id: int, ranges: Sequence[OffsetRange]) -> bool:
        """Whether an ack of all of `ranges` would count now, also a late one."""
        lease = self._leases.get(lease_id)
        for start, stop in normal_ranges(ranges):
            if lease is not None:
                held = length_of(lease.overlapping(start, stop))
            else:
                held = length_of([row for row in self._ready.overlapping(start, stop) if row[2] == lease_id])
            if held < stop - start or lease_id <= 0:
                return False
        return True

    def nack(
        self,
        lease_id: int,
        ranges: Sequence[OffsetRange],
        *,
        not_before: float,
        reason: str | None,
        now: float,
    ) -> Settlement:
        """The consumer failed: another attempt, not before `not_before`. The attempt counts; late nacks do too."""
        named = normal_ranges(ranges)
        later, lease = not_before if not_before > now else None, self._leases.get(lease_id)
        accepted = self._nack(lease_id, named, later)
        if accepted:
            self.events.append(
                NackEvent("N", lease_id, later, cut_reason(reason), tuple(chain.from_iterable(accepted)))
            )
            if lease is not None:  # else that it ran out was noted
                self.note_failure(accepted, now, lease.consumer)
        return self._settlement(named, accepted)

    def release(self, lease_id: int, ranges: Sequence[OffsetRange], now: float) -> Settlement:
        """Give back unhandled: ready at once, and the attempt does not count. Too late once the lease ran out."""
        named = normal_ranges(ranges)
        return self._settlement(named, self._release(lease_id, named))

    def lease_ids(self, consumer: int | None = None) -> list[int]:
        """The ids of all leases, or of those of `consumer`, the latest first: for `release_some`."""
        leases = reversed(self._leases.items())
        return [lease_id for lease_id, lease in leases if consumer is None or lease.consumer == consumer]

    def release_some(self, lease_ids: list[int], most: int = STEP_ITEMS) -> int:
        """Release what is held of the last of these leases, `most` ranges. Returns how many ranges those were, having
        taken the leases off the list of which nothing is left: call it again unless the list is empty.
        """
        ranges = 0
        while lease_ids and ranges < most:
            lease = self._leases.get(lease_ids[-1])
            if lease is not None:
                rows = lease.take_front(most - ranges)
                ranges += len(rows)
                self.leased -= length_of(rows)
                self._give_back(lease_ids[-1], rows)
            if lease is None or not lease.rows:
                lease_ids.pop()
        return ranges

    def set_aside(self, offsets: Sequence[int], now: float) -> None:
        """Settle these offsets, none of which is leased or settled, and keep them as dead letters in this order.

        There must be room for them.
        """
        ranges = merged([(offset, offset + 1) for offset in sorted(offsets)])
        lease = self.lease_chosen(now=now, deadline=now + 1.0, consumer=0, ranges=ranges)
        self.just_set_aside(lease.lease_id, offsets, now)

    def skip(self, start: int, stop: int, *, reason: str | None = None) -> int:
        """Settle without delivery (no such record, filtered, dropped by retention); returns how many were not yet."""
        if not 0 <= start <= stop <= OFFSET_END:
            raise InvalidArgument(f"[{start}, {stop}) is no range of offsets. Nothing was skipped.")
        count = self._skip(start, stop)
        if count:
            self.events.append(SkipEvent("S", start, stop, cut_reason(reason)))
        return count

    def skip_each(self, ranges: Iterable[OffsetRange]) -> int:
        """`skip` for each of these: a caller has many, of one offset each."""
        count, skip, note = 0, self._skip, self.events.append
        for start, stop in ranges:
            if not 0 <= start <= stop <= OFFSET_END:
                raise InvalidArgument(f"[{start}, {stop}) is no range of offsets. Nothing more was skipped.")
            if skipped := skip(start, stop):
                note(SkipEvent("S", start, stop, None))
                count += skipped
        return count

    def seek(self, offset: int) -> None:
        """Go on from `offset`: what lies before is settled, nothing else is. All leases end, and with them all
        receipts; dead letters stay, and no lease and no dead letter gets a number that another one had.
        """
        self._seek(offset)
        self.events.append(SeekEvent("K", offset))

    # -- time -----------------------------------------------------------------------------------------------

    def extend(self, lease_id: int, deadline: float, now: float) -> bool:
        """Move a lease's deadline; False when the lease is gone: it ran out, or all of it was settled."""
        lease = self._leases.get(lease_id)
        if lease is None:
            return False
        is_earlier, lease.deadline = deadline < lease.deadline, deadline
        if is_earlier:
            self._watch(deadline, lease_id)
        return True

    def run_out(self, now: float, most: int = STEP_ITEMS) -> list[Lease]:
        """End leases whose deadline is `now` or earlier; their offsets are ready. Returns what they held.

        Delayed offsets that are due become ready too. Afterwards `next_deadline` lies beyond `now`, unless there is
        more of this than one step takes, `most` ranges of each: then call this again.
        """
        self._promote(now, most)
        ended: dict[int, LeaseState] = {}
        ranges = 0
        while ranges < most and (first := self._first_deadline()) is not None and first <= now:
            lease_id = heappop(self._deadlines)[1]
            lease = ended[lease_id] = self._leases[lease_id]
            ranges += len(lease.rows)
            self.expired += self._run_out(lease_id, lease_id)
        return self._have_run_out(ended, now)

    def run_out_again(self, lease_id: int, ranges: Sequence[OffsetRange], now: float) -> None:
        """The lease ran out before, with these ranges, and the journal lost that.

        If it holds more, which was settled since and will be again, then the attempt counts and the receipt ends.
        """
        lease = self._leases.get(lease_id)
        if lease is not None and merged(lease.rows) == tuple(ranges):
            self.expired += self._run_out(lease_id, lease_id)
            self._have_run_out({lease_id: lease}, now)
        elif lease is not None:
            self.nack(lease_id, ranges, not_before=now, reason=None, now=now)

    def renew_all(self, now: float, timeout: float) -> int:
        """Give every lease until `now + timeout`: its actor restarted, its consumer lives. Returns their number."""
        for lease in self._leases.values():
            lease.deadline = now + timeout
            if lease.since is None:
                lease.since = now
        self._rebuild_deadlines()
        return len(self._leases)

    def void_all_leases(self, now: float | None = None) -> int:
        """End every lease, attempts counted, and every receipt: the consumers' process is gone. Returns how many.

        Without a time it is not known later when these attempts failed.
        """
        count = len(self._leases)
        for _ in self.void_in_steps(now):
            pass
        return count

    def void_in_steps(self, now: float | None = None) -> Iterator[None]:
        """The same, yielding after every few thousand ranges; until its end ask the delivery nothing else."""
        if self._leases or self._has_tags():
            self.events.append(VoidEvent("V"))
            yield from self._void(now)

    # -- events ---------------------------------------------------------------------------------------------

    def take_events(self) -> list[Event]:
        """The events since the last call, to be journalled. Raises InternalError when DS1 or DS2 does not hold."""
        held = self.leased + self._passed.count + self._ready.count + self._delayed.count
        if self._settled.rows or not 0 <= self.floor <= self.next or held != self.next - self.floor:
            self._check_cheaply()
        events, self.events = self.events, []
        return events

    def apply(self, event: Event) -> None:
        """Do again what `event` tells. Raises DeliveryEventInvalid when it cannot have happened here."""
        match event:
            case LeaseEvent():
                self._apply_lease(event)
            case AckEvent():
                self._expect(event, self.ack(event.lease_id, _pairs(event.ranges), 0.0).accepted)
                self.events.pop()
            case NackEvent():
                accepted = self._nack(event.lease_id, _pairs(event.ranges), event.not_before)
                self._expect(event, accepted)
            case PassEvent():
                if event.stop <= self.next:
                    raise DeliveryEventInvalid(f"Nothing untouched is passed over below {event.stop}.")
                self._pass_over(event.stop)
            case ReleaseEvent():
                self._expect(event, self._release(event.lease_id, _pairs(event.ranges)))
                self.events.pop()
            case RunOutEvent():
                for lease_id in event.lease_ids:
                    if lease_id not in self._leases:
                        raise DeliveryEventInvalid(f"Lease {lease_id} runs out but is not held.")
                    self.expired += self._run_out(lease_id, lease_id)
            case VoidEvent():
                for _ in self.void_replayed():
                    pass
            case SkipEvent():
                self._skip(event.start, event.stop)
            case DeathEvent():
                self._apply_dead(event)
            case ForgetEvent():
                self._forget_dead(event.below)
            case SeekEvent():
                self._seek(event.offset)
            case ExpiryEvent():
                self._apply_expired(event)
            case FailureEvent():
                self._apply_failure(event)
            case NameEvent():
                self.failures.name(event.consumer, event.who)
            case PublishEvent():
                raise DeliveryEventInvalid("What an ack publishes is no event of a delivery.")
            case _:
                assert_never(event)

    def void_replayed(self) -> Iterator[None]:
        """`apply` of a V, yielding after every few thousand ranges; until its end ask the delivery nothing else."""
        return self._void()

    def _apply_lease(self, event: LeaseEvent) -> None:
        _, lease_id, consumer, ranges = event
        if lease_id < self.next_lease_id:
            raise DeliveryEventInvalid(f"Lease {lease_id} is granted twice.")
        rows: list[HistoryRow] = []
        if len(ranges) == 3 and ranges[0] == self.next >= self._settled.last_stop and ranges[2] == 1:
            self.next = ranges[1]
            self._hold(lease_id, consumer, UNANCHORED, [(ranges[0], ranges[1], 0)])
            return
        self._check_leasable(lease_id, ranges)
        for start, stop in zip(ranges[::3], ranges[1::3], strict=True):
            if start == self.next and self._settled.count_in(start, stop) == 0:
                self._step_over(stop)
                rows.append((start, stop, 0))
            else:
                rows += self._take_any(start, stop)
        self._hold(lease_id, consumer, UNANCHORED, rows)

    def _check_leasable(self, lease_id: int, ranges: Sequence[int]) -> None:
        """Nothing is taken of a lease that cannot have been given whole: the state stays as it was."""
        settled, at = self._settled, self.next
        for start, stop, attempt in zip(ranges[::3], ranges[1::3], ranges[2::3], strict=True):
            if start == at and settled.count_in(start, stop) == 0:
                settled_range = settled.first_from(stop)
                at = settled_range[1] if settled_range is not None and settled_range[0] == stop else stop
                rows: list[HistoryRow] = [(start, stop, 0)]
            else:
                rows = [(row[0], row[1], row[3]) for row in self._ready.overlapping(start, stop)]
                rows += [(row[0], row[1], 0) for row in self._passed.overlapping(start, stop)]
                rows += [row[:3] for row in self._delayed.overlapping(start, stop)]
            fits = merged(sorted(row[:2] for row in rows)) == ((start, stop),)
            if not fits or any((row[2] >> 1) + 1 != attempt for row in rows):
                raise DeliveryEventInvalid(f"Lease {lease_id} takes [{start}, {stop}), which is not ready.")

    def _expect(self, event: AckEvent | NackEvent | ReleaseEvent, accepted: tuple[OffsetRange, ...]) -> None:
        if tuple(chain.from_iterable(accepted)) != event.ranges:
            raise DeliveryEventInvalid(
                f"Event {event.kind} settles what lease {event.lease_id} does not hold."
            )

    # -- snapshots ------------------------------------------------------------------------------------------

    def snapshot(self, *, wall_offset_s: float = 0.0) -> dict[str, Any]:
        """The durable state in CBOR's types, columns as bytes; `wall_offset_s` is wall minus monotonic time."""
        found: dict[str, Any] = load(b"".join(encode_in_pieces(self.taken(wall_offset_s))))
        return found

    def taken(self, wall_offset_s: float) -> dict[str, Any]:
        """The same, to be encoded in pieces: quick, however much it is. Later changes do not touch it."""
        return take_snapshot(self, wall_offset_s)

    @classmethod
    def restore(cls, snapshot: Any, *, wall_offset_s: float = 0.0) -> Self:
        """The delivery that `snapshot` was taken of. Raises DeliveryEventInvalid for anything else."""
        delivery = cls(0)
        for _ in delivery.restore_in_steps(snapshot, wall_offset_s=wall_offset_s):
            pass
        return delivery

    def restore_in_steps(self, snapshot: Any, *, wall_offset_s: float = 0.0) -> Iterator[None]:
        """The same for one that is new, yielding now and then; until its end ask the delivery nothing else."""
        try:
            yield from restore_snapshot(self, snapshot, wall_offset_s)
            yield from self.check_in_steps()
        except (ValueError, TypeError, OverflowError, InternalError) as error:
            raise DeliveryEventInvalid(
                f"A delivery snapshot is not valid: {error}. Replay the journal."
            ) from error

    # -- the moves behind calls and events ------------------------------------------------------------------

    def _ack(self, lease_id: int, ranges: Iterable[OffsetRange]) -> tuple[OffsetRange, ...]:
        rows, _ = self._claim(lease_id, ranges, late=True)
        accepted = merged(rows)
        self._settle_all(accepted)
        self.acked += length_of(accepted)
        self._drop_if_empty(lease_id)
        return accepted

    def _nack(
        self, lease_id: int, ranges: Iterable[OffsetRange], not_before: float | None
    ) -> tuple[OffsetRange, ...]:
        rows, held = self._claim(lease_id, ranges, late=True)
        if held:
            rows = self._leases[lease_id].counted(rows)
            self._drop_if_empty(lease_id)
        if not_before is None:
            self._make_ready(rows, 0)
        else:
            self._make_delayed(rows, not_before)
        accepted = merged(rows)
        self.nacked += length_of(rows)
        return accepted

    def _release(self, lease_id: int, ranges: Iterable[OffsetRange]) -> tuple[OffsetRange, ...]:
        rows, _ = self._claim(lease_id, ranges, late=False)
        return self._give_back(lease_id, rows)

    def _give_back(self, lease_id: int, rows: list[HistoryRow]) -> tuple[OffsetRange, ...]:
        """What was just taken out of a lease is ready, as if it had not been leased."""
        self._make_ready(rows, 0)
        self._drop_if_empty(lease_id)
        accepted = merged(rows)
        self.released += length_of(rows)
        if accepted:
            self.events.append(ReleaseEvent("R", lease_id, tuple(chain.from_iterable(accepted))))
        return accepted

    def _skip(self, start: int, stop: int) -> int:
        if start > self.next and start < stop and self._settled.add_new(start, stop):
            # The common case, of a million records that are cancelled one by one before any was leased.
            self.skipped += stop - start
            return stop - start
        parts = self.unsettled_ranges(start, stop)
        for part_start, part_stop in parts:
            self._skip_part(part_start, part_stop)
        self.skipped += (count := length_of(parts))
        return count

    def _skip_part(self, start: int, stop: int) -> None:
        """Settle offsets of which none is settled yet, whatever state they are in."""
        if start < self.next:
            self._take_out(start, stop)
        self._settle(start, stop)

    def _void(self, now: float | None = None) -> Iterator[None]:
        """End all leases and receipts, step by step; with a time note that these attempts have failed."""
        if len(self._leases) > 1:  # which of them ended the process is not proved
            for lease in self._leases.values():
                lease.alone = False
        ranges, failed = 0, dict[int, list[HistoryRow]]()
        for lease_id in list(self._leases):
            lease = self._leases[lease_id]
            self.voided += self._run_out(lease_id, 0)
            failed.setdefault(lease.consumer, []).extend(lease.rows)
            ranges += len(lease.rows)
            if ranges >= STEP_ITEMS:
                self._note_voided(failed, now)
                ranges = 0
                yield
        self._note_voided(failed, now)
        self._deadlines = NOTHING
        # Receipts are dead, so tags go; ranges that differed only by tag become one.
        if self._has_tags():
            yield
            tagged, self._ready = self._ready, IntervalMap("qq")
            rows = iter(tagged)
            while untagged := [(row[0], row[1], row[3]) for row in islice(rows, STEP_ITEMS)]:
                self._make_ready(untagged, 0)
                yield

    def _note_voided(self, failed: dict[int, list[HistoryRow]], now: float | None) -> None:
        """With a time note that what these consumers had leased has failed, and empty the map."""
        if now is not None:
            for consumer, rows in failed.items():
                self.note_failure(merged(sorted(rows)), now, consumer)
        failed.clear()

    def _has_tags(self) -> bool:
        """Whether a late settlement may name something that is ready."""
        return any(
            chunk[2].tobytes() != bytes(NUMBER_BYTES * len(chunk[2])) for chunk in self._ready.chunks()
        )


def _joined(rows: Iterable[HistoryRow]) -> list[HistoryRow]:
    """Sorted rows; those that touch and have the same history made one."""
    joined: list[HistoryRow] = []
    for row in rows:
        if joined and joined[-1][1] == row[0] and joined[-1][2] == row[2]:
            joined[-1] = (joined[-1][0], row[1], row[2])
        else:
            joined.append(row)
    return joined


def _common(ranges: Iterable[Sequence[int]], start: int, stop: int) -> list[OffsetRange]:
    """The parts of `[start, stop)` that are in the ranges."""
    return [(max(row[0], start), min(row[1], stop)) for row in ranges if row[0] < stop and row[1] > start]


def _pairs(flat: Sequence[int]) -> list[OffsetRange]:
    return list(zip(flat[::2], flat[1::2], strict=True))
