"""A lease as its consumer counts it, and the parts of it that are handed over."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from callboard.actors.delivery.intervals import IntervalSet
from callboard.actors.kernel import Reply
from callboard.actors.partition import commands as c
from callboard.actors.partition.account import Account
from callboard.actors.partition.port import PartitionPort
from callboard.log.format.columns import first_expiry
from callboard.message import Span

UNSURE_MAX: Final = 100
"""Ranges of a lease whose acks were cut off that are remembered; another ack of more may be reported as lost."""


class Asked(NamedTuple):
    """A question for a lease, until somebody takes its answer."""

    port: PartitionPort
    reply: Reply
    at: float
    """When it was asked."""
    limit: int
    """For how many messages room is kept."""
    is_late: bool = False
    """Meanwhile other partitions were asked."""


class LeasedPart(NamedTuple):
    """Records of one lease. `ranges` are (start, stop, attempt), in the order of `spans`."""

    lease: ConsumerLease
    ranges: Sequence[tuple[int, int, int]]
    spans: list[Span]

    @property
    def size(self) -> int:
        """How many records it has."""
        return sum([stop - start for _, start, stop in self.spans])

    def attempts(self) -> Iterator[int]:
        """Which delivery this is of each record."""
        rows = iter(self.ranges)
        _, stop, attempt = next(rows, (0, 0, 0))
        for columns, first, last in self.spans:
            for offset in columns.offset_list()[first:last]:
                while offset >= stop:
                    _, stop, attempt = next(rows)
                yield attempt


class ConsumerLease:
    """A lease as its consumer counts it, with those of its records that the consumer's caller has not taken yet."""

    __slots__ = (
        "_at",
        "_batches",
        "_given_back",
        "_ranges",
        "_unsure_acks",
        "account",
        "deadline",
        "expires_us",
        "left",
        "lease_id",
        "port",
        "stale_at",
        "start",
        "untaken",
    )

    def __init__(self, account: Account, leased: c.LeasedRecords, count: int) -> None:
        self.account = account
        """With the partition."""
        self.port = account.port
        self.lease_id = leased.lease_id
        self.start = leased.ranges[0][0]
        self.deadline = self.stale_at = leased.deadline
        """When it runs out, and from when on nothing of it is handed over any more."""
        self.left = self.untaken = count
        """How many messages are in flight, and how many of those were not taken."""
        self._unsure_acks: list[tuple[int, int]] = []
        self._given_back: IntervalSet | None = None
        """What was nacked, rejected or released, or may have been; None for nothing."""
        self.expires_us = first_expiry(leased.batches)
        """When the first of its records expires, None for never."""
        self._ranges, self._batches, self._at = leased.ranges, leased.batches, 0
        """`_at`: records of the first batch that were taken."""

    def acks_cut_off(self, ranges: Sequence[tuple[int, int]]) -> None:
        """It is unknown whether the acks of these counted."""
        if len(self._unsure_acks) < UNSURE_MAX and self.keeps(ranges):
            self._unsure_acks += ranges

    def gives_back(self, ranges: Sequence[tuple[int, int]]) -> None:
        """These are nacked, rejected or released, or may be: others may be handed them, and ack them."""
        self._unsure_acks.clear()
        if self._given_back is None:
            self._given_back = IntervalSet()
        for start, stop in ranges:
            self._given_back.add(start, stop)

    def keeps(self, ranges: Sequence[tuple[int, int]]) -> bool:
        """Whether none of these were given back: only then an ack that finds them settled may be its own second try."""
        given_back = self._given_back
        return given_back is None or not any(given_back.count_in(start, stop) for start, stop in ranges)

    def is_outdated(self, group_id: int) -> bool:
        """Whether its topic is deleted, a seek has ended it, or retention has dropped some of it."""
        account = self.account
        is_over = self.port.is_deleted or account.was_sought(group_id, self.lease_id)
        return is_over or self.start < account.dropped_below(group_id)

    def is_valid(self, now: float, start: int, stop: int) -> bool:
        """Whether the lease has not run out, and these were not given back."""
        return self.left > 0 and self.deadline > now and self.keeps(((start, stop),))

    def were_cut_off(self, ranges: Sequence[tuple[int, int]]) -> bool:
        """Whether an ack of all of these was cut off, so that the next one may be the second."""
        unsure = self._unsure_acks
        return bool(unsure) and all(
            any(first <= start and stop <= last for first, last in unsure) for start, stop in ranges
        )

    def take(self, count: int) -> LeasedPart:
        """The next `count` records; all, if they are fewer."""
        batches, at, place, spans = self._batches, self._at, 0, []
        wanted = min(count, self.untaken)
        self.untaken -= wanted
        while wanted:
            columns = batches[place]
            stop = min(at + wanted, columns.count)
            spans.append((columns, at, stop))
            wanted -= stop - at
            at = stop
            while place < len(batches) and at == batches[place].count:
                place, at = place + 1, 0
        ranges = self._ranges
        if self.untaken:
            self._batches, self._at = batches[place:], at
            end = batches[place].offset(at)
            if len(ranges) == 1:
                ((start, stop, attempt),) = ranges
                self._ranges, ranges = ((end, stop, attempt),), ((start, end, attempt),)
            else:
                self._ranges = tuple([(max(row[0], end), row[1], row[2]) for row in ranges if row[1] > end])
                ranges = tuple([(row[0], min(row[1], end), row[2]) for row in ranges if row[0] < end])
        return LeasedPart(self, ranges, spans)
