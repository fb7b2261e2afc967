"""Delivery: which message of a partition goes to which consumer of a group, how often, and when it is done with.

A pure state machine: no clock, no I/O. Times are monotonic seconds that come in as arguments; what must be durable
comes out as events, which the partition journals before it delivers a lease's records. `offsets` tells what states
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

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from itertools import chain
from types import MappingProxyType
from typing import Any, Final, assert_never

from callboard.actors.delivery.attempt_limit import AttemptLimit
from callboard.actors.delivery.dead_letters import RAN_OUT, StoredLetter, StoredLetters
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
)
from callboard.actors.delivery.intervals import NOTHING, length_of
from callboard.actors.delivery.invariants import check_cheaply
from callboard.actors.delivery.offsets import HEAP_SLACK, UNANCHORED, OffsetStates
from callboard.actors.delivery.receipts import (
    OFFSET_END,
    HistoryRow,
    Lease,
    LeaseState,
    OffsetRange,
    Settlement,
    between,
    common,
    joined,
    merged,
    normal_ranges,
)
from callboard.log.errors import DeadLettersFull, InternalError, InvalidArgument
from callboard.log.limits import STEP_ITEMS

COUNTERS: Final = ("delivered", "redelivered", "acked", "nacked", "released", "expired", "voided", "skipped")
"""Offsets that met each fate, since the group began; restored with the state. Those that are `expired` had a lease that
ran out."""

NO_FIELDS: Final[Mapping[str, object]] = MappingProxyType({})
"""For all deliveries of which no later version knows more."""

_made = tuple.__new__
"""Makes the events of the common cases, in half the time that their constructors take."""


class Delivery:
    """The delivery of one partition to one group, in shared mode."""

    # A runtime has one for each group and partition: a dictionary for each would take most of their memory.
    __slots__ = ("attempt_limit", "dead", "events", "offsets", "unknown_fields", *COUNTERS)

    def __init__(self, start: int) -> None:
        self.offsets = OffsetStates(start)
        self.dead = StoredLetters()
        self.attempt_limit: AttemptLimit | None = None
        """None for a group without `max_deliveries`."""
        self.events: list[Event] = []
        self.unknown_fields: Mapping[str, object] = NO_FIELDS
        """What a later version has in its snapshots."""
        self.delivered = self.redelivered = self.acked = self.nacked = 0
        self.released = self.expired = self.voided = self.skipped = 0

    def judge_by(self, max_deliveries: int | None, dead_max: int) -> None:
        """From now on records die after `max_deliveries`, and `dead_max` dead letters are kept."""
        self.dead.limit = dead_max
        self.attempt_limit = (
            None if max_deliveries is None else AttemptLimit(max_deliveries, self.offsets, self.dead)
        )

    # -- questions ------------------------------------------------------------------------------------------

    @property
    def is_full(self) -> bool:
        """Whether records that have failed before are not leased, for want of room for dead letters."""
        return self.attempt_limit is not None and self.attempt_limit.is_full

    def is_held(self, offset: int, *, is_full: bool) -> bool:
        """Whether an offset that is ready again waits for room among the dead letters."""
        limit = self.attempt_limit
        if limit is None:
            return False
        rows = self.offsets.ready.overlapping(offset, offset + 1)
        return any(limit.is_held(row[3], is_full=is_full) for row in rows)

    def has_room_for(self, lease_id: int, ranges: Sequence[OffsetRange]) -> bool:
        """Whether these may be kept as dead letters, beside those that other leased records may become (AL1)."""
        limit = self.attempt_limit
        room = self.dead.room if limit is None else limit.room_for(lease_id, ranges)
        return length_of(ranges) <= room

    def dead_letters(self, limit: int | None = None, above: int = -1) -> list[StoredLetter]:
        """Those with numbers above `above`, in the order of failure; the first `limit` of them, or all."""
        return [letter._replace(name=self._name_in(letter)) for letter in self.dead.listed(limit, above)]

    def _name_in(self, letter: StoredLetter) -> str | None:
        """The name of the consumer that failed last, which outlives its process."""
        who = letter.consumer
        if who is None:
            return None
        name = self.offsets.failures.consumers.get(who)
        if name is None and len(letter.consumers) == 1:
            name = letter.consumers[0]
        return None if name == str(who) else name

    def oldest_needed(self) -> int:
        """The lowest offset that is not settled, or whose record is a dead letter."""
        return min(self.offsets.floor, self.dead.oldest_offset(self.offsets.floor))

    def leasable_count(self, now: float, visible_end: int, wanted: int, consumer: int | None = None) -> int:
        """How many records `lease` would find, of `wanted` for `consumer`, or for one that has nothing.

        Without `max_deliveries` there may be more.
        """
        offsets = self.offsets
        limit = self.attempt_limit
        if limit is None:
            if offsets.due and offsets.due[0][0] <= now and offsets.next >= visible_end:
                offsets.promote(now)
            return offsets.ready_count(visible_end)
        offsets.promote(now)
        chosen, others = limit.choose(wanted, self._ready_rows(visible_end), consumer)
        fresh = visible_end - offsets.next
        if others > 0 and fresh > 0:
            fresh -= offsets.settled.count_in(offsets.next, visible_end)
        return length_of(chosen) + max(0, min(others, fresh))

    def together(self, offsets: list[int], wanted: int, consumer: int | None) -> tuple[list[int], int]:
        """Which of these sorted offsets, all ready again, may be leased now, and how many others with them."""
        if self.attempt_limit is None:
            return offsets, wanted - len(offsets)
        ready = chain.from_iterable(self.offsets.ready.overlapping(offset, offset + 1) for offset in offsets)
        rows = ((row[0], row[1], row[3]) for row in ready)
        chosen, others = self.attempt_limit.choose(wanted, rows, consumer)
        return [start for start, _, _ in chosen], others

    def _ready_rows(self, end: int) -> Iterable[HistoryRow]:
        for start, stop, _, history in self.offsets.ready.overlapping(0, end):
            yield start, stop, history

    # -- leasing --------------------------------------------------------------------------------------------

    def lease(
        self, *, now: float, deadline: float, consumer: int, max_records: int, visible_end: int
    ) -> Lease | None:
        """Lease up to `max_records` offsets below `visible_end`, in no more ranges than a step handles: what is due
        again, oldest first, then fresh ones.

        Fresh ranges may hold offsets that do not exist in the log: `skip` them, then deliver `lease_of(lease_id)`.
        """
        offsets = self.offsets
        if offsets.due and offsets.due[0][0] <= now:
            offsets.promote(now)
        limit = self.attempt_limit
        if not offsets.ready.rows and limit is None:
            if offsets.next >= visible_end:
                return None
            if max_records > 0 and (not offsets.settled.rows or offsets.settled.last_stop <= offsets.next):
                # The common case: everything from `next` on, of which nothing was leased or settled before.
                start, lease_id = offsets.next, offsets.next_lease_id
                stop = min(start + max_records, visible_end)
                offsets.next, offsets.next_lease_id = stop, lease_id + 1
                count = stop - start
                offsets.lease_states[lease_id] = LeaseState(
                    consumer, deadline, count == 1, [(start, stop, 0)], now
                )
                offsets.leased += count
                self.delivered += count
                if offsets.deadlines is NOTHING:
                    offsets.deadlines = []
                heappush(offsets.deadlines, (deadline, lease_id))
                if len(offsets.deadlines) > HEAP_SLACK + 2 * len(offsets.lease_states):
                    offsets.rebuild_deadlines()
                self.events.append(_made(LeaseEvent, ("L", lease_id, consumer, (start, stop, 1))))
                return Lease(lease_id, ((start, stop, 1),), consumer, deadline)
        rows: list[HistoryRow] = []
        room = max_records
        if limit is not None:
            rows, room = limit.choose(room, self._ready_rows(visible_end), consumer)
            for start, stop, _ in rows:
                offsets.ready.carve(start, stop)
            rows = joined(rows)
        elif offsets.ready.rows and room > 0:
            front = offsets.ready.take_front(room, visible_end, STEP_ITEMS)
            rows = joined((row[0], row[1], row[3]) for row in front)
            room = room - length_of(rows) if len(front) < STEP_ITEMS else 0  # what is ready again goes first
        while room > 0 and offsets.next < visible_end and len(rows) < STEP_ITEMS:
            start = offsets.next
            stop = min(start + room, visible_end)
            if offsets.settled.last_stop > start:
                stop = offsets.step_over(stop)
            else:
                offsets.next = stop
            rows.append((start, stop, 0))
            room -= stop - start
        if not rows:
            return None
        return self._grant(offsets.next_lease_id, consumer, deadline, rows, now)

    def lease_chosen(
        self, *, now: float, deadline: float, consumer: int, ranges: Sequence[OffsetRange]
    ) -> Lease:
        """Lease exactly `ranges`, at least one, of which all is ready, passed or untouched; sorted and not touching.

        What is untouched before their end and not among them is passed over. Raises InternalError for anything else.
        """
        offsets = self.offsets
        offsets.promote(now)
        if ranges[-1][1] > offsets.next and not (
            ranges[-1][0] <= offsets.next and offsets.settled.last_stop <= offsets.next
        ):
            offsets.pass_over(ranges[-1][1])
            self.events.append(PassEvent("P", ranges[-1][1]))
        rows: list[HistoryRow] = []
        for start, stop in ranges:
            if stop > offsets.next:
                rows += offsets.take(start, offsets.next)
                rows.append((offsets.next, stop, 0))
                offsets.next = stop
            else:
                rows += offsets.take(start, stop)
        if merged(rows) != tuple(ranges):
            raise InternalError(f"{ranges} were chosen, and only {rows} may be leased", invariant="DS3")
        return self._grant(offsets.next_lease_id, consumer, deadline, rows, now)

    def resume(self, lost: Lease, *, deadline: float, now: float) -> None:
        """A consumer has this lease and the journal lost it: hold what of it is unsettled once more, under its id.

        Who gave any of it back, or lost it, since the journal ended has no claim to it. What is untouched before it
        was leased too, by receipts that are settled or over: it becomes ready. Raises InternalError for a used id.
        """
        offsets = self.offsets
        if lost.lease_id < offsets.next_lease_id:
            raise InternalError(f"lease {lost.lease_id} is in the journal", invariant="DS4")
        wanted = offsets.unsettled(row[:2] for row in lost.ranges)
        for held in offsets.leases():
            if over := [part for start, stop in wanted for part in common(held.ranges, start, stop)]:
                self.release(held.lease_id, over, now)
        rows = [row for start, stop in wanted for row in offsets.take_any(start, min(stop, offsets.next))]
        stop = wanted[-1][1] if wanted else 0
        fresh: list[OffsetRange] = []
        while offsets.next < stop:
            start = offsets.next
            fresh.append((start, offsets.step_over(stop)))
        rows += [(start, end, 0) for start, end in fresh]
        if not rows:
            offsets.next_lease_id = lost.lease_id + 1
            return
        self._grant(lost.lease_id, lost.consumer, deadline, rows, now)
        over = [part for start, end in fresh for part in between(start, end, common(wanted, start, end))]
        self.release(lost.lease_id, over, now)

    def _grant(
        self, lease_id: int, consumer: int, deadline: float, rows: list[HistoryRow], now: float
    ) -> Lease:
        """Lease rows that were just taken out of their states."""
        lease = self._hold(lease_id, consumer, deadline, rows, now).to_lease(lease_id)
        if self.attempt_limit is not None:
            self.attempt_limit.note_lease(lease_id)
        self.events.append(LeaseEvent("L", lease_id, consumer, tuple(chain.from_iterable(lease.ranges))))
        return lease

    def _hold(
        self,
        lease_id: int,
        consumer: int,
        deadline: float,
        rows: list[HistoryRow],
        since: float | None = None,
    ) -> LeaseState:
        self.delivered += length_of(rows)
        self.redelivered += length_of([row for row in rows if row[2] > 1])
        return self.offsets.hold(lease_id, consumer, deadline, rows, since)

    # -- settling -------------------------------------------------------------------------------------------

    def ack(self, lease_id: int, ranges: Sequence[OffsetRange], now: float) -> Settlement:
        """The consumer is done with `ranges`. Late acks count until the message is leased again."""
        offsets = self.offsets
        lease = offsets.lease_states.get(lease_id)
        if lease is not None and len(lease.rows) == 1 == len(ranges):
            start, end, history = lease.rows[0]
            stop = ranges[0][1]
            if ranges[0][0] == start and type(stop) is int and start < stop <= end:
                # The common case: the range named is all that the lease has, or its beginning.
                if stop == end:
                    del offsets.lease_states[lease_id]
                else:
                    lease.rows[0] = (stop, end, history)
                offsets.leased -= stop - start
                offsets.settle(start, stop)
                self.acked += stop - start
                self.events.append(_made(AckEvent, ("A", lease_id, (start, stop))))
                return Settlement(((start, stop),), ())
        named = normal_ranges(ranges)
        accepted = self._ack(lease_id, named)
        if accepted:
            self.events.append(AckEvent("A", lease_id, tuple(chain.from_iterable(accepted))))
        return _settlement(named, accepted)

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
        later, lease = not_before if not_before > now else None, self.offsets.lease_states.get(lease_id)
        accepted = self._nack(lease_id, named, later)
        if accepted:
            self.events.append(
                NackEvent("N", lease_id, later, cut_reason(reason), tuple(chain.from_iterable(accepted)))
            )
            if lease is not None:  # else that it ran out was noted
                self.note_failure(accepted, now, lease.consumer)
        return _settlement(named, accepted)

    def release(self, lease_id: int, ranges: Sequence[OffsetRange], now: float) -> Settlement:
        """Give back unhandled: ready at once, and the attempt does not count. Too late once the lease ran out."""
        named = normal_ranges(ranges)
        return _settlement(named, self._release(lease_id, named))

    def release_some(self, lease_ids: list[int], most: int = STEP_ITEMS) -> int:
        """Release what is held of the last of these leases, `most` ranges. Returns how many ranges those were, having
        taken the leases off the list of which nothing is left: call it again unless the list is empty.
        """
        ranges = 0
        while lease_ids and ranges < most:
            lease = self.offsets.lease_states.get(lease_ids[-1])
            if lease is not None:
                rows = lease.take_front(most - ranges)
                ranges += len(rows)
                self.offsets.leased -= length_of(rows)
                self._give_back(lease_ids[-1], rows)
            if lease is None or not lease.rows:
                lease_ids.pop()
        return ranges

    def set_aside(self, offsets: Sequence[int], now: float) -> None:
        """Settle these offsets, none of which is leased or settled, and keep them as dead letters in this order:
        nothing failed, they leave the group. There must be room for them.
        """
        ranges = merged([(offset, offset + 1) for offset in sorted(offsets)])
        lease = self.lease_chosen(now=now, deadline=now + 1.0, consumer=0, ranges=ranges)
        first = 0
        for at in range(1, len(offsets) + 1):
            if at == len(offsets) or offsets[at] < offsets[at - 1]:
                rising = merged([(offset, offset + 1) for offset in offsets[first:at]])
                self.reject(lease.lease_id, rising, now, None)
                first = at

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
        self.offsets.seek(offset)
        self.events.append(SeekEvent("K", offset))

    # -- time -----------------------------------------------------------------------------------------------

    def extend(self, lease_id: int, deadline: float, now: float) -> bool:
        """Move a lease's deadline; False when the lease is gone: it ran out, or all of it was settled."""
        lease = self.offsets.lease_states.get(lease_id)
        if lease is None:
            return False
        is_earlier, lease.deadline = deadline < lease.deadline, deadline
        if is_earlier:
            self.offsets.watch(deadline, lease_id)
        return True

    def run_out(self, now: float, most: int = STEP_ITEMS) -> list[Lease]:
        """End leases whose deadline is `now` or earlier; their offsets are ready. Returns what they held.

        Delayed offsets that are due become ready too. Afterwards `next_deadline` lies beyond `now`, unless there is
        more of this than one step takes, `most` ranges of each: then call this again.
        """
        offsets = self.offsets
        offsets.promote(now, most)
        ended: dict[int, LeaseState] = {}
        ranges = 0
        while ranges < most and (first := offsets.first_deadline()) is not None and first <= now:
            lease_id = heappop(offsets.deadlines)[1]
            lease = ended[lease_id] = offsets.lease_states[lease_id]
            ranges += len(lease.rows)
            self.expired += offsets.end_lease(lease_id, lease_id)
        return self._have_run_out(ended, now)

    def run_out_again(self, lease_id: int, ranges: Sequence[OffsetRange], now: float) -> None:
        """The lease ran out before, with these ranges, and the journal lost that.

        If it holds more, which was settled since and will be again, then the attempt counts and the receipt ends.
        """
        lease = self.offsets.lease_states.get(lease_id)
        if lease is not None and merged(lease.rows) == tuple(ranges):
            self.expired += self.offsets.end_lease(lease_id, lease_id)
            self._have_run_out({lease_id: lease}, now)
        elif lease is not None:
            self.nack(lease_id, ranges, not_before=now, reason=None, now=now)

    def renew_all(self, now: float, timeout: float) -> int:
        """Give every lease until `now + timeout`: its actor restarted, its consumer lives. Returns their number."""
        offsets = self.offsets
        for lease in offsets.lease_states.values():
            lease.deadline = now + timeout
            if lease.since is None:
                lease.since = now
        offsets.rebuild_deadlines()
        return len(offsets.lease_states)

    def void_all_leases(self, now: float | None = None) -> int:
        """End every lease, attempts counted, and every receipt: the consumers' process is gone. Returns how many.

        Without a time it is not known later when these attempts failed.
        """
        count = len(self.offsets.lease_states)
        for _ in self.void_in_steps(now):
            pass
        return count

    def void_in_steps(self, now: float | None = None) -> Iterator[None]:
        """The same, yielding after every few thousand ranges; until its end ask the delivery nothing else."""
        if self.offsets.lease_states or self.offsets.has_tags():
            self.events.append(VoidEvent("V"))
            yield from self._void(now)

    # -- dying ----------------------------------------------------------------------------------------------

    def reject(
        self, lease_id: int, ranges: Sequence[OffsetRange], now: float, reason: str | None
    ) -> Settlement:
        """The consumer gives up on `ranges`: they are dead letters. Late rejects count.

        Raises `DeadLettersFull`, and changes nothing, when they are more than there is room for.
        """
        offsets = self.offsets
        named = normal_ranges(ranges)
        if not self.has_room_for(lease_id, named):
            raise DeadLettersFull(
                f"{self.dead.failed} dead letters are kept in this partition, and {self.dead.limit} may be. Nothing"
                " was settled. Nack or release the messages.",
            )
        lease = offsets.lease_states.get(lease_id)
        consumer = None if lease is None else lease.consumer
        rows, held = offsets.claim(lease_id, named, late=True)
        if held and lease is not None:
            rows = lease.counted(rows)
        offsets.drop_if_empty(lease_id)
        self._die(rows, now, consumer, reason)
        return _settlement(named, merged(sorted(rows)))

    def _have_run_out(self, ended: dict[int, LeaseState], now: float) -> list[Lease]:
        """By id, leases that have just ended with their attempts counted. Returns what they held."""
        leases = [lease.to_lease(lease_id) for lease_id, lease in ended.items()]
        if leases:
            self.events.append(RunOutEvent("X", tuple(ended)))
        for each in leases:
            self.note_failure(merged(each.ranges), now, each.consumer)
        for lease in ended.values():
            self._has_died(lease, now)
        return leases

    def _has_died(self, lease: LeaseState, now: float) -> None:
        """A lease has run out, its attempt counted: what is proved now is dead."""
        if self.attempt_limit is not None and lease.alone:
            for start, stop, _ in lease.rows:
                ready = self.offsets.ready.overlapping(start, stop)
                self._bury(self.attempt_limit, ready, now, lease.consumer, RAN_OUT)

    def judge(self, now: float, reason: str) -> None:
        """Settle as dead all that is proved, as far as there is room."""
        limit, ready = self.attempt_limit, self.offsets.ready
        if limit is not None and ready.rows:
            proved = [chunk for chunk in ready.chunks() if any(map(limit.is_proved, {*chunk[3]}))]
            self._bury(
                limit, [row for chunk in proved for row in zip(*chunk, strict=True)], now, None, reason
            )

    def _bury(
        self,
        limit: AttemptLimit,
        ready: Iterable[tuple[Any, ...]],
        now: float,
        consumer: int | None,
        reason: str,
    ) -> None:
        room = self.dead.room
        rows: list[HistoryRow] = []
        for start, stop, _, history in ready:
            if limit.is_proved(history) and room > 0:
                rows.append((start, min(stop, start + room), history))
                room -= rows[-1][1] - start
        for start, stop, _ in rows:
            self.offsets.ready.carve(start, stop)
        self._die(rows, now, consumer, reason)

    def _die(self, rows: list[HistoryRow], now: float, consumer: int | None, reason: str | None) -> None:
        """What was just taken out of its state is settled, and kept as dead letters."""
        if rows:
            flat = tuple(chain.from_iterable((start, stop, history >> 1) for start, stop, history in rows))
            event = DeathEvent("D", self.dead.next_number, now, consumer, cut_reason(reason), flat)
            self.dead.keep_failed(event, self.offsets)
            self.events.append(event)

    def just_died(self) -> list[OffsetRange]:
        """What died since the events were taken."""
        died: list[OffsetRange] = []
        for event in self.events:
            if isinstance(event, DeathEvent):
                died += zip(event.attempts[::3], event.attempts[1::3], strict=True)
        for event in self.events:
            if isinstance(event, ExpiryEvent):
                died += zip(event.ranges[::2], event.ranges[1::2], strict=True)
        return died

    def die_of_age(self, ranges: Iterable[OffsetRange], now: float) -> list[OffsetRange]:
        """The time to live of these records is over: they are dead letters, as far as there is room.

        Returns what there is no room for, which stays as it is. What is settled already stays so.
        """
        left: list[OffsetRange] = []
        for start, stop in ranges:
            parts = self.offsets.unsettled_ranges(start, stop)
            if not self.dead.has_room_for_expired:
                left += parts
                continue
            if parts:
                event = ExpiryEvent("E", self.dead.next_number, now, tuple(chain.from_iterable(parts)))
                self.dead.keep_expired(event, self.offsets)
                self.events.append(event)
        return left

    def forget_dead(self, below: int) -> int:
        """Dead letters with lower numbers are stored elsewhere; returns how many those were."""
        count = self.dead.forget(below)
        if count:
            self.events.append(ForgetEvent("F", below))
        return count

    def note_failure(self, ranges: Sequence[OffsetRange], now: float, consumer: int | None) -> None:
        """Attempts of `consumer` have failed, and the records are unsettled: their dead letters will tell."""
        who = self.offsets.failures.name_of(consumer)
        if noted := self.offsets.failures.note(ranges, now, who):
            self.events.append(FailureEvent("t", now, who, tuple(chain.from_iterable(noted))))

    def name_consumer(self, consumer: int, name: str) -> None:
        """The consumer has this name, also when its process is gone."""
        if self.offsets.failures.consumers.get(consumer) != name:
            self.offsets.failures.name(consumer, name)
            self.events.append(NameEvent("n", consumer, name))

    def go_on_above(self, floor: int) -> None:
        """Part of the journal is lost: no number or lease below `floor`, which it may have named, is given again."""
        offsets = self.offsets
        self.dead.next = max(self.dead.next, floor)
        offsets.next_lease_id = max(offsets.next_lease_id, floor)

    # -- events ---------------------------------------------------------------------------------------------

    def take_events(self) -> list[Event]:
        """The events since the last call, to be journalled. Raises InternalError when DS1 or DS2 does not hold."""
        offsets = self.offsets
        held = offsets.leased + offsets.passed.count + offsets.ready.count + offsets.delayed.count
        if (
            offsets.settled.rows
            or not 0 <= offsets.floor <= offsets.next
            or held != offsets.next - offsets.floor
        ):
            check_cheaply(offsets)
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
                if event.stop <= self.offsets.next:
                    raise DeliveryEventInvalid(f"Nothing untouched is passed over below {event.stop}.")
                self.offsets.pass_over(event.stop)
            case ReleaseEvent():
                self._expect(event, self._release(event.lease_id, _pairs(event.ranges)))
                self.events.pop()
            case RunOutEvent():
                for lease_id in event.lease_ids:
                    if lease_id not in self.offsets.lease_states:
                        raise DeliveryEventInvalid(f"Lease {lease_id} runs out but is not held.")
                    self.expired += self.offsets.end_lease(lease_id, lease_id)
            case VoidEvent():
                for _ in self.void_replayed():
                    pass
            case SkipEvent():
                self._skip(event.start, event.stop)
            case DeathEvent():
                self._apply_dead(event)
            case ForgetEvent():
                self.dead.forget(event.below)
            case SeekEvent():
                self.offsets.seek(event.offset)
            case ExpiryEvent():
                self._apply_expired(event)
            case FailureEvent():
                self._apply_failure(event)
            case NameEvent():
                self.offsets.failures.name(event.consumer, event.who)
            case PublishEvent():
                raise DeliveryEventInvalid("What an ack publishes is no event of a delivery.")
            case _:
                assert_never(event)

    def void_replayed(self) -> Iterator[None]:
        """`apply` of a V, yielding after every few thousand ranges; until its end ask the delivery nothing else."""
        return self._void()

    def _apply_lease(self, event: LeaseEvent) -> None:
        offsets = self.offsets
        _, lease_id, consumer, ranges = event
        if lease_id < offsets.next_lease_id:
            raise DeliveryEventInvalid(f"Lease {lease_id} is granted twice.")
        rows: list[HistoryRow] = []
        if len(ranges) == 3 and ranges[0] == offsets.next >= offsets.settled.last_stop and ranges[2] == 1:
            offsets.next = ranges[1]
            self._hold(lease_id, consumer, UNANCHORED, [(ranges[0], ranges[1], 0)])
            return
        self._check_leasable(lease_id, ranges)
        for start, stop in zip(ranges[::3], ranges[1::3], strict=True):
            if start == offsets.next and offsets.settled.count_in(start, stop) == 0:
                offsets.step_over(stop)
                rows.append((start, stop, 0))
            else:
                rows += offsets.take_any(start, stop)
        self._hold(lease_id, consumer, UNANCHORED, rows)

    def _check_leasable(self, lease_id: int, ranges: Sequence[int]) -> None:
        """Nothing is taken of a lease that cannot have been given whole: the state stays as it was."""
        offsets = self.offsets
        settled, at = offsets.settled, offsets.next
        for start, stop, attempt in zip(ranges[::3], ranges[1::3], ranges[2::3], strict=True):
            if start == at and settled.count_in(start, stop) == 0:
                settled_range = settled.first_from(stop)
                at = settled_range[1] if settled_range is not None and settled_range[0] == stop else stop
                rows: list[HistoryRow] = [(start, stop, 0)]
            else:
                rows = [(row[0], row[1], row[3]) for row in offsets.ready.overlapping(start, stop)]
                rows += [(row[0], row[1], 0) for row in offsets.passed.overlapping(start, stop)]
                rows += [row[:3] for row in offsets.delayed.overlapping(start, stop)]
            fits = merged(sorted(row[:2] for row in rows)) == ((start, stop),)
            if not fits or any((row[2] >> 1) + 1 != attempt for row in rows):
                raise DeliveryEventInvalid(f"Lease {lease_id} takes [{start}, {stop}), which is not ready.")

    def _apply_dead(self, event: DeathEvent) -> None:
        """Replay a DeathEvent: the records were leased, or ready after their leases ran out."""
        offsets = self.offsets
        flat = event.attempts
        if event.number < self.dead.next:
            raise DeliveryEventInvalid(f"The dead letter {event.number} is named twice.")
        for start, stop, _ in zip(flat[::3], flat[1::3], flat[2::3], strict=True):
            found = length_of(offsets.ready.overlapping(start, stop))
            found += sum(length_of(lease.overlapping(start, stop)) for lease in offsets.lease_states.values())
            if found != stop - start:
                raise DeliveryEventInvalid(f"[{start}, {stop}) dies, and is neither leased nor ready.")
        for start, stop in zip(flat[::3], flat[1::3], strict=True):
            offsets.ready.carve(start, stop)
            for lease_id, lease in list(offsets.lease_states.items()):
                offsets.leased -= length_of(lease.carve(start, stop))
                offsets.drop_if_empty(lease_id)
        self.dead.keep_failed(event, offsets)

    def _apply_expired(self, event: ExpiryEvent) -> None:
        """Do again what an E tells."""
        if event.number < self.dead.next:
            raise DeliveryEventInvalid(f"The dead letter {event.number} is named twice.")
        for start, stop in zip(event.ranges[::2], event.ranges[1::2], strict=True):
            if self.offsets.unsettled_ranges(start, stop) != [(start, stop)]:
                raise DeliveryEventInvalid(f"[{start}, {stop}) expires, and some of it is settled.")
        self.dead.keep_expired(event, self.offsets)

    def _apply_failure(self, event: FailureEvent) -> None:
        offsets = self.offsets
        ranges = list(zip(event.ranges[::2], event.ranges[1::2], strict=True))
        if any(
            start < offsets.floor or stop > offsets.next or offsets.settled.count_in(start, stop)
            for start, stop in ranges
        ):
            raise DeliveryEventInvalid("Records fail that are settled, or were never leased.")
        offsets.failures.note(ranges, event.failed_at, event.who)

    def _expect(self, event: AckEvent | NackEvent | ReleaseEvent, accepted: tuple[OffsetRange, ...]) -> None:
        if tuple(chain.from_iterable(accepted)) != event.ranges:
            raise DeliveryEventInvalid(
                f"Event {event.kind} settles what lease {event.lease_id} does not hold."
            )

    # -- the moves behind calls and events ------------------------------------------------------------------

    def _ack(self, lease_id: int, ranges: Iterable[OffsetRange]) -> tuple[OffsetRange, ...]:
        rows, _ = self.offsets.claim(lease_id, ranges, late=True)
        accepted = merged(rows)
        self.offsets.settle_all(accepted)
        self.acked += length_of(accepted)
        self.offsets.drop_if_empty(lease_id)
        return accepted

    def _nack(
        self, lease_id: int, ranges: Iterable[OffsetRange], not_before: float | None
    ) -> tuple[OffsetRange, ...]:
        offsets = self.offsets
        rows, held = offsets.claim(lease_id, ranges, late=True)
        if held:
            rows = offsets.lease_states[lease_id].counted(rows)
            offsets.drop_if_empty(lease_id)
        if not_before is None:
            offsets.make_ready(rows, 0)
        else:
            offsets.make_delayed(rows, not_before)
        accepted = merged(rows)
        self.nacked += length_of(rows)
        return accepted

    def _release(self, lease_id: int, ranges: Iterable[OffsetRange]) -> tuple[OffsetRange, ...]:
        rows, _ = self.offsets.claim(lease_id, ranges, late=False)
        return self._give_back(lease_id, rows)

    def _give_back(self, lease_id: int, rows: list[HistoryRow]) -> tuple[OffsetRange, ...]:
        """What was just taken out of a lease is ready, as if it had not been leased."""
        self.offsets.make_ready(rows, 0)
        self.offsets.drop_if_empty(lease_id)
        accepted = merged(rows)
        self.released += length_of(rows)
        if accepted:
            self.events.append(ReleaseEvent("R", lease_id, tuple(chain.from_iterable(accepted))))
        return accepted

    def _skip(self, start: int, stop: int) -> int:
        offsets = self.offsets
        if start > offsets.next and start < stop and offsets.settled.add_new(start, stop):
            # The common case, of a million records that are cancelled one by one before any was leased.
            self.skipped += stop - start
            return stop - start
        parts = offsets.unsettled_ranges(start, stop)
        for part_start, part_stop in parts:
            if part_start < offsets.next:
                offsets.take_out(part_start, part_stop)
            offsets.settle(part_start, part_stop)
        self.skipped += (count := length_of(parts))
        return count

    def _void(self, now: float | None = None) -> Iterator[None]:
        """End all leases and receipts, step by step; with a time note that these attempts have failed."""
        offsets = self.offsets
        if len(offsets.lease_states) > 1:  # which of them ended the process is not proved
            for lease in offsets.lease_states.values():
                lease.alone = False
        ranges, failed = 0, dict[int, list[HistoryRow]]()
        for lease_id in list(offsets.lease_states):
            lease = offsets.lease_states[lease_id]
            self.voided += offsets.end_lease(lease_id, 0)
            failed.setdefault(lease.consumer, []).extend(lease.rows)
            ranges += len(lease.rows)
            if ranges >= STEP_ITEMS:
                self._note_voided(failed, now)
                ranges = 0
                yield
        self._note_voided(failed, now)
        offsets.deadlines = NOTHING
        if offsets.has_tags():
            yield
            yield from offsets.forget_tags()

    def _note_voided(self, failed: dict[int, list[HistoryRow]], now: float | None) -> None:
        """With a time note that what these consumers had leased has failed, and empty the map."""
        if now is not None:
            for consumer, rows in failed.items():
                self.note_failure(merged(sorted(rows)), now, consumer)
        failed.clear()


def _pairs(flat: Sequence[int]) -> list[OffsetRange]:
    return list(zip(flat[::2], flat[1::2], strict=True))


def _settlement(named: tuple[OffsetRange, ...], accepted: tuple[OffsetRange, ...]) -> Settlement:
    if named == accepted:
        return Settlement(accepted, ())
    lost: list[OffsetRange] = []
    for start, stop in named:
        inside = slice(bisect_left(accepted, (start,)), bisect_left(accepted, (stop,)))
        lost += between(start, stop, accepted[inside])
    return Settlement(accepted, tuple(lost))
