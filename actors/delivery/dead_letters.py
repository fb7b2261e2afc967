"""The dead letters of one group in one partition: the records that were settled because they failed or expired. Pure.

Each keeps the offset and what is known of the failure. Their numbers tell them apart: the actor that takes them
elsewhere publishes them under these. Thousands may expire at once: neighbours that did so together, and have the same
past, are kept as one *row*.

Dead letters are bounded by `limit`, rows of expired ones apart from the others by the same number.

- DN1  The numbers of dead letters rise with the order of failure, and none is used twice in one numbering. Should all
       that was known of the numbers be lost, another numbering begins.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter
from typing import Final, NamedTuple

from callboard.actors.delivery.events import DeathEvent, ExpiryEvent
from callboard.actors.delivery.intervals import NOTHING
from callboard.actors.delivery.offsets import OffsetStates
from callboard.actors.delivery.receipts import between
from callboard.log.limits import DEAD_LETTERS_MAX, FAILED_IN_MAX

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

    @property
    def size(self) -> int:
        """How many records it stands for."""
        return max(self.expired, 1)


def since_unnoted(attempts: int, failed_at: float, who: object) -> float | None:
    """When a record first failed whose failures were not noted: at the only one, or that is not known."""
    return failed_at if attempts <= (0 if who is None else 1) else None


class StoredLetters:
    """Those that are kept, and their numbers."""

    __slots__ = ("count", "expired_rows", "first", "limit", "next", "numbering", "rows", "total")

    def __init__(self) -> None:
        self.limit = DEAD_LETTERS_MAX
        self.rows: list[StoredLetter] = NOTHING
        """All that are kept, in the order of failure, expired neighbours as one."""
        self.expired_rows = 0
        self.count = 0
        """Records that the rows stand for."""
        self.total = 0
        """Records that died, since the group began."""
        self.next = 0
        """The number of the next one, or `first` if that is above."""
        self.first = 0
        """The numbers that this life of the partition gives begin here (DN1)."""
        self.numbering = 0
        """The id of this count: another one counts from 0 again (DN1). 0 for one that an older version began."""

    @property
    def failed(self) -> int:
        """Those of records that failed, of those that are kept."""
        return len(self.rows) - self.expired_rows

    @property
    def room(self) -> int:
        """How many more records may fail."""
        return self.limit - self.failed

    @property
    def has_room_for_expired(self) -> bool:
        """Whether further records that expire may be kept."""
        return self.expired_rows < self.limit

    @property
    def next_number(self) -> int:
        """The number of the next one."""
        return max(self.next, self.first)

    def listed(self, limit: int | None = None, above: int = -1) -> list[StoredLetter]:
        """Those with numbers above `above`, each by itself; the first `limit` of them, or all."""
        letters: list[StoredLetter] = []
        for row in self.rows:
            for index in range(max(0, above + 1 - row.number), row.size):
                if limit is not None and len(letters) >= limit:
                    return letters
                number, offset, expired = row.number + index, row.offset + index, min(row.expired, 1)
                letters.append(
                    row._replace(number=number, offset=offset, expired=expired, numbering=self.numbering)
                )
        return letters

    def oldest_offset(self, otherwise: int) -> int:
        """The lowest offset of a record that is kept."""
        return min([row.offset for row in self.rows], default=otherwise)

    def keep(self, letter: StoredLetter) -> None:
        """A record has died, or neighbours have expired; their numbers follow all others."""
        if self.rows is NOTHING:
            self.rows = []
        self.rows.append(letter)
        self.expired_rows += letter.expired > 0
        self.count += letter.size
        self.total += letter.size
        self.next = letter.number + letter.size

    def keep_failed(self, event: DeathEvent, offsets: OffsetStates) -> None:
        """Settle what failed too often, or was rejected, and was just taken out of its state."""
        _, number, now, consumer, reason, flat = event
        who = offsets.failures.name_of(consumer)
        for start, stop, attempts in zip(flat[::3], flat[1::3], flat[2::3], strict=True):
            failures = _failures_in(offsets, start, stop, attempts, now, who)
            offsets.settle(start, stop)
            for first, last, since, names in failures:
                for offset in range(first, last):
                    letter = StoredLetter(number, offset, attempts, now, consumer, reason, since, names)
                    self.keep(letter)
                    number += 1

    def keep_expired(self, event: ExpiryEvent, offsets: OffsetStates) -> None:
        """Settle what has expired, whatever state it is in."""
        _, number, now, flat = event
        for start, stop in zip(flat[::2], flat[1::2], strict=True):
            failures = [
                (first, last, history >> 1, since, names)
                for row_start, row_stop, history in offsets.take_out(start, stop)
                for first, last, since, names in _failures_in(offsets, row_start, row_stop, history >> 1, now)
            ]
            offsets.settle(start, stop)
            for first, last, attempts, since, names in failures:
                self.keep(
                    StoredLetter(number, first, attempts, now, None, EXPIRED, since, names, last - first)
                )
                number += last - first

    def forget(self, below: int) -> int:
        """Those with lower numbers are stored elsewhere; returns how many those were."""
        before, rows, gone = self.count, self.rows, 0
        while gone < len(rows) and (first := rows[gone]).number < below:
            count = below - first.number
            if count < first.size:
                offset, left = first.offset + count, first.size - count
                rows[gone] = first._replace(number=below, offset=offset, expired=left)
                self.count -= count
                break
            gone += 1
            self.count -= first.size
            self.expired_rows -= first.expired > 0
        if gone:
            del rows[:gone]
        return before - self.count

    def restore(self, rows: Iterable[StoredLetter]) -> None:
        """These are kept; for an object that keeps none."""
        self.rows = list(rows) or NOTHING
        self.expired_rows = sum([row.expired > 0 for row in self.rows])
        self.count = sum([row.size for row in self.rows])

    def believe(self, event: DeathEvent | ExpiryEvent) -> None:
        """Believe an event that may not fit: what it names is settled already."""
        number = event.number
        if number < self.next:
            return
        if isinstance(event, ExpiryEvent):
            for start, stop in zip(event.ranges[::2], event.ranges[1::2], strict=True):
                # How often the records were delivered is not known.
                self.keep(
                    StoredLetter(number, start, 0, event.failed_at, None, EXPIRED, None, (), stop - start)
                )
                number += stop - start
            return
        flat = event.attempts
        for start, stop, attempts in zip(flat[::3], flat[1::3], flat[2::3], strict=True):
            for offset in range(start, stop):
                self.keep(
                    StoredLetter(number, offset, attempts, event.failed_at, event.consumer, event.reason)
                )
                number += 1


def _failures_in(
    offsets: OffsetStates, start: int, stop: int, attempts: int, now: float, who: str | None = None
) -> list[tuple[int, int, float | None, tuple[str, ...]]]:
    """Of records that die now: when they failed first, and in whom, the last failure included."""
    noted = offsets.failures.of(start, stop)
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
