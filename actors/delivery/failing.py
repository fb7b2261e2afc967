"""What becomes of records that fail too often or are rejected: they are isolated, then settled as dead letters. Pure.

A record is *rejected* by its consumer, or *fails* `max_deliveries` times. Either settles it, and keeps a *dead letter*:
its offset and what is known of the failure. A group without `max_deliveries` never looks at any of this, but for
records that are rejected.

A nack names its culprit. A lease that runs out, or whose process ends, does not: one record of many may be the cause.
So only an attempt that had nothing but the record counts as proof:

====================  ============================================  =============================================
attempts so far       the next lease                                when that ends without an ack
====================  ============================================  =============================================
0 to max - 2          with others                                   another attempt
max - 1 (suspect)     of this record alone, to a consumer that has  dead after a nack, after the lease ran out, or
                      nothing else of the partition and gets        when the process ended and nothing else of the
                      nothing else meanwhile                        group was leased in this partition
max or more (accused) of this record alone, while nothing else of   dead
                      the group is leased in this partition
====================  ============================================  =============================================

A record becomes accused when its last attempt ended with the process and others were leased too; when `max_deliveries`
was lowered; or with `max_deliveries=1`, whose first lease is one with others. Only then is it delivered more often than
`max_deliveries`. A release counts no attempt, so it never makes a record suspect.

A record whose time to live is over is settled without one, unless the group keeps those too (`die_of_age`). Thousands
may expire at once: neighbours that did so together, and have the same past, are kept as one *row*.

Dead letters are bounded by `dead_max`, rows of expired ones apart from the others by the same number. What is leased
for what may be its last attempt has a place reserved for it, so a failure never lacks one; when there is none, records
that have failed before are not leased (`is_full`).

Invariants:

- FL1  The numbers of dead letters rise with the order of failure, and none is used twice in one numbering. Should all
       that was known of the numbers be lost, another numbering begins.
- FL2  Dead letters and leased records in their last attempt number at most `dead_max`, unless settings were altered.
- FL3  No record dies without a nack or reject of its own, or an attempt that had it alone, unless it has expired.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any, Final, NamedTuple

from callboard.actors.delivery.events import (
    DeathEvent,
    DeliveryEventInvalid,
    ExpiryEvent,
    FailureEvent,
    ForgetEvent,
    NameEvent,
    RunOutEvent,
    cut_reason,
)
from callboard.actors.delivery.intervals import NOTHING, length_of
from callboard.actors.delivery.receipts import (
    HistoryRow,
    Lease,
    LeaseState,
    OffsetRange,
    Settlement,
    between,
    merged,
    normal_ranges,
)
from callboard.actors.delivery.state import DeliveryState
from callboard.log.errors import DeadLettersFull
from callboard.log.limits import DEAD_LETTERS_MAX, FAILED_IN_MAX, STEP_ITEMS

NO_LEASES: Final[frozenset[int]] = frozenset()

RAN_OUT: Final = "the lease ran out"
PROCESS_ENDED: Final = "the process ended"
LIMIT_REACHED: Final = "max_deliveries was reached"
EXPIRED: Final = "expired"
"""Reasons of dead letters that no consumer gave one for."""


class StoredLetter(NamedTuple):
    """A record that was settled because it failed."""

    number: int
    """Of the group's dead letters in this partition, in the order of failure."""
    offset: int
    attempts: int
    failed_at: float
    """Monotonic seconds; the last failure."""
    consumer: int | None
    """Who failed; None when that is not known any more."""
    reason: str | None
    first_failed_at: float | None = None
    """Monotonic seconds; the first failure. None when that is not known."""
    consumers: tuple[str, ...] = ()
    """Who failed, each once, in order, at most `FAILED_IN_MAX`: names, or ids of those without one."""
    expired: int = 0
    """Of one whose time to live was over: how many neighbours, from this one on, this stands for. 0 for a failure."""
    name: str | None = None
    """Of the consumer that failed last, in answers only; None when it had none, or that is not known any more."""
    numbering: int = 0
    """Which numbering the number is of, in answers only."""


def since_unnoted(attempts: int, failed_at: float, who: object) -> float | None:
    """When a record first failed whose failures were not noted: at the only one, or that is not known."""
    return failed_at if attempts <= (0 if who is None else 1) else None


class FailingState(DeliveryState):
    """A delivery's data with its dead letters, and the rules by which records become such."""

    __slots__ = (
        "_dead",
        "_expired_rows",
        "_isolated",
        "_reserving",
        "dead",
        "dead_lettered",
        "dead_max",
        "first_dead",
        "max_deliveries",
        "next_dead",
        "numbering",
    )

    def __init__(self, start: int) -> None:
        super().__init__(start)
        self.max_deliveries: int | None = None
        self.dead_max = DEAD_LETTERS_MAX
        self.next_dead = 0
        """The number of the next dead letter, or `first_dead` if that is above."""
        self.first_dead = 0
        """The numbers that this life of the partition gives begin here (FL1)."""
        self.numbering = 0
        """The id of this count of dead letters: another one counts from 0 again (FL1). 0 for one that an older version
        began."""
        self.dead_lettered = 0
        """Records that died, since the group began."""
        self.dead = 0
        """Dead letters that are kept."""
        self._dead: list[StoredLetter] = NOTHING
        self._expired_rows = 0
        self._isolated: frozenset[int] = NO_LEASES
        """Leases of suspect records, and some that are gone."""
        self._reserving: set[int] | None = None
        """Leases of records in their last attempt, and some that are gone."""

    # -- questions ------------------------------------------------------------------------------------------

    @property
    def failed(self) -> int:
        """Dead letters of records that failed, of those that are kept."""
        return len(self._dead) - self._expired_rows

    @property
    def has_room_for_expired(self) -> bool:
        """Whether further records that expire may be kept as dead letters."""
        return self._expired_rows < self.dead_max

    def dead_rows(self) -> list[StoredLetter]:
        """All that are kept, in the order of failure, expired neighbours as one."""
        return list(self._dead)

    def dead_letters(self, limit: int | None = None, above: int = -1) -> list[StoredLetter]:
        """Those with numbers above `above`, in the order of failure; the first `limit` of them, or all."""
        found: list[StoredLetter] = []
        for row in self._dead:
            if row.number + max(row.expired, 1) <= above + 1:
                continue
            for index in range(max(0, above + 1 - row.number), max(row.expired, 1)):
                if limit is not None and len(found) >= limit:
                    return found
                number, offset = row.number + index, row.offset + index
                expired, name, numbering = min(row.expired, 1), self._name_in(row), self.numbering
                found.append(
                    row._replace(
                        number=number, offset=offset, expired=expired, name=name, numbering=numbering
                    )
                )
        return found

    def _name_in(self, letter: StoredLetter) -> str | None:
        """The name of the consumer that failed last, which outlives its process."""
        who = letter.consumer
        if who is None:
            return None
        name = self.failures.consumers.get(who)
        if name is None and len(letter.consumers) == 1:
            name = letter.consumers[0]
        return None if name == str(who) else name

    def last_dead(self) -> StoredLetter:
        """The latest that is kept; there is one."""
        return self._dead[-1]

    @property
    def is_full(self) -> bool:
        """Whether records that have failed before are not leased, for want of room for dead letters."""
        if self.max_deliveries is None or self.dead_max - self.failed > self.leased:
            return False  # there is room even if all that is leased dies: no need to look at it
        return self._room() <= 0

    def is_held(self, offset: int, *, is_full: bool) -> bool:
        """Whether an offset that is ready again waits for room among the dead letters."""
        if self.max_deliveries is None:
            return False
        rows = self._ready.overlapping(offset, offset + 1)
        return any(self._is_proved(row[3]) or (is_full and row[3] > 1) for row in rows)

    def oldest_needed(self) -> int:
        """The lowest offset that is not settled, or whose record is a dead letter."""
        return min(self.floor, min((letter.offset for letter in self._dead), default=self.floor))

    def _room(self) -> int:
        """Dead letters that may still come, less those that leased records may become (FL2)."""
        room = self.dead_max - self.failed
        if self.max_deliveries == 1:
            return room - self.leased
        if not self._reserving:
            return room
        self._reserving = {lease_id for lease_id in self._reserving if lease_id in self._leases}
        return room - sum([self._last_attempts(self._leases[lease_id].rows) for lease_id in self._reserving])

    def has_room_for(self, lease_id: int, ranges: Sequence[OffsetRange]) -> bool:
        """Whether these may be kept as dead letters, beside those that other leased records may become (FL2)."""
        room, lease = self._room(), self._leases.get(lease_id)
        if lease is not None:  # its own place is reserved
            room += sum([self._last_attempts(lease.overlapping(start, stop)) for start, stop in ranges])
        return length_of(ranges) <= room

    def _last_attempts(self, rows: Iterable[HistoryRow]) -> int:
        """How many of these leased records may be in their last attempt."""
        if self.max_deliveries is None:
            return 0
        return length_of([row for row in rows if row[2] >> 1 >= self.max_deliveries - 1])

    # -- leasing --------------------------------------------------------------------------------------------

    def judge_by(self, max_deliveries: int | None, dead_max: int) -> None:
        """From now on records die after `max_deliveries`, and `dead_max` dead letters are kept."""
        self.max_deliveries, self.dead_max = max_deliveries, dead_max
        if not self._leases:
            self._isolated, self._reserving = NO_LEASES, None
            return
        self._isolated = frozenset(
            [key for key, lease in self._leases.items() if self._is_suspect(lease.rows[0][2])]
        )
        self._reserving = {key for key, lease in self._leases.items() if self._last_attempts(lease.rows)}

    def _is_suspect(self, history: int) -> bool:
        """Whether this may be leased alone only."""
        return history > 1 and self.max_deliveries is not None and history >> 1 >= self.max_deliveries - 1

    def _is_accused(self, history: int) -> bool:
        """Whether nothing else may be leased meanwhile."""
        return history > 1 and self.max_deliveries is not None and history >> 1 >= self.max_deliveries

    def _is_held_back(self, consumer: int | None) -> bool:
        """Whether an accused record is leased now, or a suspect one to this consumer."""
        isolated = [lease for lease_id in self._isolated if (lease := self._leases.get(lease_id)) is not None]
        return any(lease.consumer == consumer or self._is_accused(lease.rows[0][2]) for lease in isolated)

    def _isolate(self, lease_id: int) -> None:
        """Note a lease of a suspect record, or of one in its last attempt; those that are gone are forgotten."""
        rows = self._leases[lease_id].rows
        if self._last_attempts(rows):
            self._reserving = self._reserving or set()
            self._reserving.add(lease_id)
        if self._is_suspect(rows[0][2]):
            self._isolated = frozenset([each for each in self._isolated if each in self._leases] + [lease_id])

    def choose_judged(
        self, wanted: int, rows: Iterable[HistoryRow], consumer: int | None
    ) -> tuple[list[HistoryRow], int]:
        """What `consumer`, or one that has nothing, may lease of `rows`, which are ready again, and how many others
        with it.
        """
        limit = self.max_deliveries or 0
        if wanted <= 0 or (self._isolated and self._is_held_back(consumer)):
            return [], 0
        room = self.dead_max - self.failed - self.leased
        if room <= 0:  # all that is leased may die: look at it
            room = self._room()
        chosen: list[HistoryRow] = []
        for start, stop, history in rows:
            if wanted <= 0:
                break
            if self._is_proved(history) or (room <= 0 and history > 1):
                continue  # it waits for room among the dead letters
            if self._is_suspect(history):
                leases = self._leases.values()
                if chosen or (leases and self._is_accused(history)):
                    return chosen, 0
                if consumer is not None and any(lease.consumer == consumer for lease in leases):
                    return [], 0
                return [(start, start + 1, history)], 0
            if len(chosen) >= STEP_ITEMS:
                return chosen, 0  # the others come first next time
            count = min(wanted, stop - start, room if limit == 1 else wanted)
            if count > 0:
                chosen.append((start, start + count, history))
                wanted, room = wanted - count, room - count if limit == 1 else room
        return chosen, max(0, min(wanted, room)) if limit == 1 else wanted

    def _is_proved(self, history: int) -> bool:
        """Whether the record failed often enough, the last time alone."""
        return self._is_accused(history) and bool(history & 1)

    def _ready_rows(self, end: int) -> Iterable[HistoryRow]:
        for start, stop, _, history in self._ready.overlapping(0, end):
            yield start, stop, history

    def leasable_count(self, now: float, visible_end: int, wanted: int, consumer: int | None = None) -> int:
        """How many records `lease` would find, of `wanted` for `consumer`, or for one that has nothing.

        Without `max_deliveries` there may be more.
        """
        if self.max_deliveries is None:
            if self._due and self._due[0][0] <= now and self.next >= visible_end:
                self._promote(now)
            return self.ready_count(visible_end)
        self._promote(now)
        chosen, others = self.choose_judged(wanted, self._ready_rows(visible_end), consumer)
        fresh = visible_end - self.next
        if others > 0 and fresh > 0:
            fresh -= self._settled.count_in(self.next, visible_end)
        return length_of(chosen) + max(0, min(others, fresh))

    def together(self, offsets: list[int], wanted: int, consumer: int | None) -> tuple[list[int], int]:
        """Which of these sorted offsets, all ready again, may be leased now, and how many others with them."""
        if self.max_deliveries is None:
            return offsets, wanted - len(offsets)
        ready = chain.from_iterable(self._ready.overlapping(offset, offset + 1) for offset in offsets)
        chosen, others = self.choose_judged(wanted, ((row[0], row[1], row[3]) for row in ready), consumer)
        return [start for start, _, _ in chosen], others

    # -- dying ----------------------------------------------------------------------------------------------

    def reject(
        self, lease_id: int, ranges: Sequence[OffsetRange], now: float, reason: str | None
    ) -> Settlement:
        """The consumer gives up on `ranges`: they are dead letters. Late rejects count.

        Raises `DeadLettersFull`, and changes nothing, when they are more than there is room for.
        """
        named = normal_ranges(ranges)
        if not self.has_room_for(lease_id, named):
            raise DeadLettersFull(
                f"{self.failed} dead letters are kept in this partition, and {self.dead_max} may be. Nothing was"
                " settled. Nack or release the messages.",
            )
        lease = self._leases.get(lease_id)
        consumer = None if lease is None else lease.consumer
        rows, held = self._claim(lease_id, named, late=True)
        if held and lease is not None:
            rows = lease.counted(rows)
        self._drop_if_empty(lease_id)
        self._die(rows, now, consumer, reason)
        return self._settlement(named, merged(sorted(rows)))

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
        if self.max_deliveries is None or not lease.alone:
            return
        for start, stop, _ in lease.rows:
            self._bury(self._ready.overlapping(start, stop), now, lease.consumer, RAN_OUT)

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

    def judge(self, now: float, reason: str) -> None:
        """Settle as dead all that is proved, as far as there is room."""
        if self.max_deliveries is not None and self._ready.rows:
            proved = [chunk for chunk in self._ready.chunks() if any(map(self._is_proved, {*chunk[3]}))]
            self._bury([row for chunk in proved for row in zip(*chunk, strict=True)], now, None, reason)

    def _bury(self, ready: Iterable[tuple[Any, ...]], now: float, consumer: int | None, reason: str) -> None:
        room = self.dead_max - self.failed
        rows: list[HistoryRow] = []
        for start, stop, _, history in ready:
            if self._is_proved(history) and room > 0:
                rows.append((start, min(stop, start + room), history))
                room -= rows[-1][1] - start
        for start, stop, _ in rows:
            self._ready.carve(start, stop)
        self._die(rows, now, consumer, reason)

    def _die(self, rows: list[HistoryRow], now: float, consumer: int | None, reason: str | None) -> None:
        """What was just taken out of its state is settled, and kept as dead letters."""
        if not rows:
            return
        flat = tuple(chain.from_iterable((start, stop, history >> 1) for start, stop, history in rows))
        number = max(self.next_dead, self.first_dead)
        event = DeathEvent("D", number, now, consumer, cut_reason(reason), flat)
        self._keep_dead(event)
        self.events.append(event)

    def _keep_dead(self, event: DeathEvent) -> None:
        _, number, now, consumer, reason, flat = event
        who = self.failures.name_of(consumer)
        for start, stop, attempts in zip(flat[::3], flat[1::3], flat[2::3], strict=True):
            failures = self._failures_in(start, stop, attempts, now, who)
            self._settle(start, stop)
            for first, last, since, names in failures:
                for offset in range(first, last):
                    letter = StoredLetter(number, offset, attempts, now, consumer, reason, since, names)
                    self._keep(letter)
                    number += 1
            self._count_dead(stop - start)
        self.next_dead = number

    def _keep(self, letter: StoredLetter) -> None:
        if self._dead is NOTHING:
            self._dead = []
        self._dead.append(letter)

    def _failures_in(
        self, start: int, stop: int, attempts: int, now: float, who: str | None = None
    ) -> list[tuple[int, int, float | None, tuple[str, ...]]]:
        """Of records that die now: when they failed first, and in whom, the last failure included."""
        noted = self.failures.of(start, stop)
        apart = between(start, stop, [row[:2] for row in noted])
        since = since_unnoted(attempts, now, who)
        found: list[tuple[int, int, float | None, tuple[str, ...]]] = [
            *noted,
            *((first, last, since, ()) for first, last in apart),
        ]
        if who is None:
            return sorted(found, key=itemgetter(0))
        return [
            (
                first,
                last,
                at,
                names if who in names or len(names) >= FAILED_IN_MAX else (*names, who),
            )
            for first, last, at, names in sorted(found, key=itemgetter(0))
        ]

    def _count_dead(self, count: int) -> None:
        self.dead += count
        self.dead_lettered += count

    def die_of_age(self, ranges: Iterable[OffsetRange], now: float) -> list[OffsetRange]:
        """The time to live of these records is over: they are dead letters, as far as there is room.

        Returns what there is no room for, which stays as it is. What is settled already stays so.
        """
        left: list[OffsetRange] = []
        for start, stop in ranges:
            parts = self.unsettled_ranges(start, stop)
            if not self.has_room_for_expired:
                left += parts
                continue
            if parts:
                number = max(self.next_dead, self.first_dead)
                event = ExpiryEvent("E", number, now, tuple(chain.from_iterable(parts)))
                self._keep_expired(event)
                self.events.append(event)
        return left

    def _keep_expired(self, event: ExpiryEvent) -> None:
        _, number, now, flat = event
        for start, stop in zip(flat[::2], flat[1::2], strict=True):
            failures = [
                (first, last, history >> 1, since, names)
                for row_start, row_stop, history in self._take_out(start, stop)
                for first, last, since, names in self._failures_in(row_start, row_stop, history >> 1, now)
            ]
            self._settle(start, stop)
            for first, last, attempts, since, names in failures:
                self._keep(
                    StoredLetter(number, first, attempts, now, None, EXPIRED, since, names, last - first)
                )
                self._expired_rows += 1
                number += last - first
            self._count_dead(stop - start)
        self.next_dead = number

    def just_set_aside(self, lease_id: int, offsets: Sequence[int], now: float) -> None:
        """Keep what the lease holds as dead letters in the order of `offsets`: nothing failed, they leave the group."""
        first = 0
        for at in range(1, len(offsets) + 1):
            if at == len(offsets) or offsets[at] < offsets[at - 1]:
                rising = merged([(offset, offset + 1) for offset in offsets[first:at]])
                self.reject(lease_id, rising, now, None)
                first = at

    def forget_dead(self, below: int) -> int:
        """Dead letters with lower numbers are stored elsewhere; returns how many those were."""
        count = self._forget_dead(below)
        if count:
            self.events.append(ForgetEvent("F", below))
        return count

    def _forget_dead(self, below: int) -> int:
        before, dead, gone = self.dead, self._dead, 0
        while gone < len(dead) and (first := dead[gone]).number < below:
            count, whole = below - first.number, max(first.expired, 1)
            if count < whole:
                offset, left = first.offset + count, whole - count
                dead[gone] = first._replace(number=below, offset=offset, expired=left)
                self.dead -= count
                break
            gone += 1
            self.dead -= whole
            self._expired_rows -= first.expired > 0
        if gone:
            del dead[:gone]
        return before - self.dead

    # -- failures -------------------------------------------------------------------------------------------

    def note_failure(self, ranges: Sequence[OffsetRange], now: float, consumer: int | None) -> None:
        """Attempts of `consumer` have failed, and the records are unsettled: their dead letters will tell."""
        who = self.failures.name_of(consumer)
        if noted := self.failures.note(ranges, now, who):
            self.events.append(FailureEvent("t", now, who, tuple(chain.from_iterable(noted))))

    def name_consumer(self, consumer: int, name: str) -> None:
        """The consumer has this name, also when its process is gone."""
        if self.failures.consumers.get(consumer) != name:
            self.failures.name(consumer, name)
            self.events.append(NameEvent("n", consumer, name))

    def _apply_failure(self, event: FailureEvent) -> None:
        ranges = list(zip(event.ranges[::2], event.ranges[1::2], strict=True))
        if any(
            start < self.floor or stop > self.next or self._settled.count_in(start, stop)
            for start, stop in ranges
        ):
            raise DeliveryEventInvalid("Records fail that are settled, or were never leased.")
        self.failures.note(ranges, event.failed_at, event.who)

    def _apply_expired(self, event: ExpiryEvent) -> None:
        """Do again what an E tells."""
        if event.number < self.next_dead:
            raise DeliveryEventInvalid(f"The dead letter {event.number} is named twice.")
        for start, stop in zip(event.ranges[::2], event.ranges[1::2], strict=True):
            if self.unsettled_ranges(start, stop) != [(start, stop)]:
                raise DeliveryEventInvalid(f"[{start}, {stop}) expires, and some of it is settled.")
        self._keep_expired(event)

    # -- events ---------------------------------------------------------------------------------------------

    def _apply_dead(self, event: DeathEvent) -> None:
        """Replay a DeathEvent: the records were leased, or ready after their leases ran out."""
        flat = event.attempts
        if event.number < self.next_dead:
            raise DeliveryEventInvalid(f"The dead letter {event.number} is named twice.")
        for start, stop, _ in zip(flat[::3], flat[1::3], flat[2::3], strict=True):
            found = length_of(self._ready.overlapping(start, stop))
            found += sum(length_of(lease.overlapping(start, stop)) for lease in self._leases.values())
            if found != stop - start:
                raise DeliveryEventInvalid(f"[{start}, {stop}) dies, and is neither leased nor ready.")
        for start, stop in zip(flat[::3], flat[1::3], strict=True):
            self._ready.carve(start, stop)
            for lease_id, lease in list(self._leases.items()):
                self.leased -= length_of(lease.carve(start, stop))
                self._drop_if_empty(lease_id)
        self._keep_dead(event)

    def salvage_dead(self, event: DeathEvent) -> None:
        """Believe a D that may not fit: what it names is settled already."""
        _, number, failed_at, consumer, reason, flat = event
        if number >= self.next_dead:
            for start, stop, attempts in zip(flat[::3], flat[1::3], flat[2::3], strict=True):
                for offset in range(start, stop):
                    self._keep(StoredLetter(number, offset, attempts, failed_at, consumer, reason))
                    number += 1
                self._count_dead(stop - start)
            self.next_dead = number

    def salvage_expired(self, event: ExpiryEvent) -> None:
        """The same of an E; how often the records were delivered is not known."""
        _, number, failed_at, flat = event
        if number >= self.next_dead:
            for start, stop in zip(flat[::2], flat[1::2], strict=True):
                row = StoredLetter(number, start, 0, failed_at, None, EXPIRED, None, (), stop - start)
                self._keep(row)
                self._expired_rows += 1
                number += stop - start
                self._count_dead(stop - start)
            self.next_dead = number

    def restore_dead(self, rows: Iterable[StoredLetter]) -> None:
        """These are kept; for a state that keeps none."""
        self._dead = list(rows) or NOTHING
        self._expired_rows = sum([row.expired > 0 for row in self._dead])
        self.dead = sum([max(row.expired, 1) for row in self._dead])

    def _seek(self, offset: int) -> None:
        super()._seek(offset)
        self._isolated, self._reserving = NO_LEASES, None

    def go_on_above(self, floor: int) -> None:
        """Part of the journal is lost: no number or lease below `floor`, which it may have named, is given again."""
        self.next_dead, self.next_lease_id = max(self.next_dead, floor), max(self.next_lease_id, floor)
