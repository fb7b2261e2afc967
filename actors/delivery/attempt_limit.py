"""How often a record may fail, and how those that are about to fail too often are leased. Pure.

A record that fails `max_deliveries` times is a dead letter. A group without `max_deliveries` has no `AttemptLimit`: its
records die only when they are rejected, or of age.

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

What is leased for what may be its last attempt has a place reserved among the dead letters, so a failure never lacks
one; when there is none, records that have failed before are not leased (`is_full`).

- AL1  Dead letters and leased records in their last attempt number at most the limit of dead letters, unless settings
       were altered.
- AL2  No record dies without a nack or reject of its own, or an attempt that had it alone, unless it has expired.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from callboard.actors.delivery.dead_letters import StoredLetters
from callboard.actors.delivery.intervals import length_of
from callboard.actors.delivery.offsets import OffsetStates
from callboard.actors.delivery.receipts import HistoryRow, OffsetRange
from callboard.log.limits import STEP_ITEMS


class AttemptLimit:
    """The `max_deliveries` of one group in one partition, and the leases that may be the last of a record."""

    __slots__ = ("_dead", "_offsets", "_suspect", "max_deliveries")

    def __init__(self, max_deliveries: int, offsets: OffsetStates, dead: StoredLetters) -> None:
        self.max_deliveries = max_deliveries
        self._offsets = offsets
        self._dead = dead
        self._suspect = {
            lease_id for lease_id, lease in offsets.lease_states.items() if self._has_suspect(lease.rows)
        }
        """Leases with suspect records, and some that are gone."""

    # -- records --------------------------------------------------------------------------------------------

    def is_suspect(self, history: int) -> bool:
        """Whether this may be leased alone only."""
        return history > 1 and history >> 1 >= self.max_deliveries - 1

    def is_accused(self, history: int) -> bool:
        """Whether nothing else may be leased meanwhile."""
        return history > 1 and history >> 1 >= self.max_deliveries

    def is_proved(self, history: int) -> bool:
        """Whether the record failed often enough, the last time alone."""
        return self.is_accused(history) and bool(history & 1)

    def _has_suspect(self, rows: Iterable[HistoryRow]) -> bool:
        return any(self.is_suspect(row[2]) for row in rows)

    def _last_attempts(self, rows: Iterable[HistoryRow]) -> int:
        """How many of these leased records may be in their last attempt."""
        return length_of([row for row in rows if row[2] >> 1 >= self.max_deliveries - 1])

    # -- leases ---------------------------------------------------------------------------------------------

    def note_lease(self, lease_id: int) -> None:
        """Remember the lease if it has suspect records; those that are gone are forgotten."""
        leases = self._offsets.lease_states
        if self._has_suspect(leases[lease_id].rows):
            self._suspect = {lease_id, *(known for known in self._suspect if known in leases)}

    def _is_held_back(self, consumer: int | None) -> bool:
        """Whether an accused record is leased now, or a suspect one to this consumer."""
        leases = self._offsets.lease_states
        for lease in [lease for known in self._suspect if (lease := leases.get(known)) is not None]:
            history = lease.rows[0][2]
            if self.is_accused(history) or (lease.consumer == consumer and self.is_suspect(history)):
                return True
        return False

    def choose(
        self, wanted: int, rows: Iterable[HistoryRow], consumer: int | None
    ) -> tuple[list[HistoryRow], int]:
        """What `consumer`, or one that has nothing, may lease of `rows`, which are ready again, and how many others
        with it.
        """
        is_first_last = self.max_deliveries == 1
        if wanted <= 0 or (self._suspect and self._is_held_back(consumer)):
            return [], 0
        room = self._dead.room - self._offsets.leased
        if room <= 0:  # all that is leased may die: look at it
            room = self.room()
        chosen: list[HistoryRow] = []
        for start, stop, history in rows:
            if wanted <= 0:
                break
            if self.is_held(history, is_full=room <= 0):
                continue
            if self.is_suspect(history):
                leases = self._offsets.lease_states.values()
                if chosen or (leases and self.is_accused(history)):
                    return chosen, 0
                if consumer is not None and any(lease.consumer == consumer for lease in leases):
                    return [], 0
                return [(start, start + 1, history)], 0
            if len(chosen) >= STEP_ITEMS:
                return chosen, 0  # the others come first next time
            count = min(wanted, stop - start, room if is_first_last else wanted)
            if count > 0:
                chosen.append((start, start + count, history))
                wanted, room = wanted - count, room - count if is_first_last else room
        return chosen, max(0, min(wanted, room)) if is_first_last else wanted

    def is_held(self, history: int, *, is_full: bool) -> bool:
        """Whether a record that is ready again waits for room among the dead letters."""
        return self.is_proved(history) or (is_full and history > 1)

    # -- room for dead letters ------------------------------------------------------------------------------

    @property
    def is_full(self) -> bool:
        """Whether records that have failed before are not leased, for want of room for dead letters."""
        if self._dead.room > self._offsets.leased:
            return False  # there is room even if all that is leased dies: no need to look at it
        return self.room() <= 0

    def room(self) -> int:
        """Dead letters that may still come, less those that leased records may become (AL1)."""
        if self.max_deliveries == 1:
            return self._dead.room - self._offsets.leased
        leases = self._offsets.lease_states
        suspect = [lease for known in self._suspect if (lease := leases.get(known)) is not None]
        return self._dead.room - sum([self._last_attempts(lease.rows) for lease in suspect])

    def room_for(self, lease_id: int, ranges: Sequence[OffsetRange]) -> int:
        """The same, when it is for these: their own places, if they are leased, are reserved."""
        lease = self._offsets.lease_states.get(lease_id)
        own = [] if lease is None else [lease.overlapping(start, stop) for start, stop in ranges]
        return self.room() + sum(map(self._last_attempts, own))
