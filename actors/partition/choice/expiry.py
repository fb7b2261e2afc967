"""Times to live: when a record expires, and how a group gets past records that have. Pure.

A lease is given before anything is read, so that messages without a time to live cost nothing. What was leased and has
expired is settled when it is read; only then, and when a group's deadline has come, the partition reads on from what
the group has not seen yet, and settles up to the first record that has not expired. Before that it reads once from the
first record on that was leased and given back, and settles what has expired of what may be leased again.

Invariants
----------
EX1  What a consumer is handed had not expired when it was read for it.
EX2  Nothing is settled as expired before its instant, by the wall clock.
EX3  In a group that keeps what expires, what is settled so is a dead letter, or there is no room; then nothing is
     leased until there is. What is for another group only is none.
EX4  A group that has not settled everything has a deadline, or is looked at, from the first record on that the
     partition knows to expire.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import attrs

from callboard.actors.delivery.intervals import IntervalSet
from callboard.actors.delivery.receipts import OffsetRange, between, merged
from callboard.actors.partition import effects as e
from callboard.actors.partition.choice.expiry_look import ExpiryLook
from callboard.log.format.columns import FOREVER, NO_TIME, Columns, first_expiry
from callboard.log.format.stamps import Stamps, is_ahead

if TYPE_CHECKING:
    from callboard.actors.delivery.receipts import Lease
    from callboard.actors.partition.choice.record_window import WindowRecords
    from callboard.actors.partition.deliveries import PartitionDeliveries
    from callboard.actors.partition.group_state import GroupState
    from callboard.log.seams.clock import Clock

LOOK_LEAST_S: Final = 1.0
"""A group is looked at no more often than this for its own sake."""
LOOK_MOST_S: Final = 60.0
"""And no less often, while something unseen may expire: instants follow the wall clock, which may jump."""


def stamp(batches: Sequence[Columns], now_us: int, default_us: int | None) -> int | None:
    """Give records that are appended now their instants; the first of these, None when there is none."""
    for columns in batches:
        if columns.ttls is not None:
            found = [default_us if ttl is None else ttl for ttl in columns.ttls]
            times = [NO_TIME if ttl is None or ttl == FOREVER else now_us + ttl for ttl in found]
            columns.expire_at(array("q", times) if any(time != NO_TIME for time in times) else None)
        elif default_us is not None:
            columns.expire_at(array("q", (now_us + default_us,)) * columns.count, now_us + default_us)
    return first_expiry(batches)


def may_expire(batches: Sequence[Columns]) -> bool:
    """Whether a record in these has a time to live."""
    return any(columns.expiries is not None for columns in batches)


def has_expired(batches: Sequence[Columns], stamps: Stamps, clock: Clock) -> bool:
    """Whether the time to live of a record in these is over; the time is asked only when one has any."""
    if not may_expire(batches):
        return False
    now_us = clock.wall_us()
    return any(columns.first_expiry <= now_us + _ahead_by(columns, stamps, now_us) for columns in batches)


def _ahead_by(columns: Columns, stamps: Stamps, now_us: int) -> int:
    """By how much the clock was ahead with which a batch was appended (`stamps`)."""
    stamp_us = columns.append_time_us
    return stamp_us - stamps.believed(stamp_us, now_us) if is_ahead(stamp_us, now_us) else 0


def believed_expiries(batches: Sequence[Columns], stamps: Stamps, now_us: int) -> list[Columns]:
    """The same; what was appended by a clock that was ahead expires so much earlier."""
    return [
        columns
        if columns.expiries is None or not is_ahead(columns.append_time_us, now_us)
        else _earlier(columns, _ahead_by(columns, stamps, now_us))
        for columns in batches
    ]


def _earlier(columns: Columns, by_us: int) -> Columns:
    times = columns.expiries or ()
    moved = array("q", [time if time == NO_TIME else time - by_us for time in times])
    return attrs.evolve(columns, expiries=moved)


def enough_expired(batches: Sequence[Columns], now_us: int, most: int) -> int | None:
    """Where to end, so that what has expired of `batches` is in no more than `most` ranges; None for their end."""
    ranges = 0
    for columns in batches:
        if columns.expiries is None or columns.first_expiry > now_us:
            continue
        was_gone = False
        for index, time in enumerate(columns.expiries):
            is_gone = NO_TIME < time <= now_us
            if is_gone and not was_gone:
                ranges += 1
                if ranges > most:
                    return columns.offset(index)
            was_gone = is_gone
    return None


def unexpired(batches: Sequence[Columns], now_us: int) -> tuple[list[Columns], list[OffsetRange]]:
    """What of `batches` has not expired, and the offsets of the rest, sorted."""

    def gone(columns: Columns) -> list[int]:
        if columns.expiries is None or columns.first_expiry > now_us:
            return []
        return [index for index, time in enumerate(columns.expiries) if NO_TIME < time <= now_us]

    return without(batches, gone)


def without(
    batches: Sequence[Columns], gone: Callable[[Columns], list[int]]
) -> tuple[list[Columns], list[OffsetRange]]:
    """`batches` without the records whose indexes `gone` tells, and the offsets of those, sorted."""
    kept: list[Columns] = []
    left_out: list[int] = []
    for columns in batches:
        indexes = gone(columns)
        if not indexes:
            kept.append(columns)
            continue
        offsets = columns.offset_list()
        left_out += [offsets[index] for index in indexes]
        stays = between(0, columns.count, [(index, index + 1) for index in indexes])
        kept += [columns.select(start, stop) for start, stop in stays]
    return kept, list(merged([(offset, offset + 1) for offset in left_out]))


class ExpiryRules:
    """How a partition's core gets past what has expired."""

    def __init__(self, deliveries: PartitionDeliveries) -> None:
        self._deliveries = deliveries

    def expires(self, first_s: float, now: float) -> None:
        """Records are appended of which the first expires in `first_s` seconds: every group has a deadline (EX4)."""
        self._deliveries.carried.has_expiries = True
        for group in self._deliveries.groups.values():
            self._look_in(group, first_s, now)

    def look_for_expired(self, group: GroupState, now: float) -> None:
        """The group may begin at expired records: it is looked at, if the partition knows that some expire."""
        if self._deliveries.carried.has_expiries:
            self._look_in(group, 0.0, now)

    def _look_in(self, group: GroupState, seconds: float, now: float) -> None:
        """Look at the group in this many seconds, unless a look is due before, or under way."""
        at = now + min(max(seconds, LOOK_LEAST_S), LOOK_MOST_S)
        look = group.look = group.look or ExpiryLook()
        if look.due is None and not look.is_under_way:
            look.due = at
            self._deliveries.arm(at)

    def skip_expired(self, group: GroupState) -> None:
        """Have what the group has not seen yet looked at."""
        look = group.look = group.look or ExpiryLook()
        look.due = None
        if (
            not look.is_under_way
            and group.delivery.offsets.floor < self._deliveries.visible_end
            and not group.is_expired_full
        ):
            look.is_under_way = True
            self._deliveries.effects.append(e.SkipExpired(group.group_id))

    def keeps_expired(self, group: GroupState) -> bool:
        """Whether what expires in the group is a dead letter."""
        if group.settings is None:
            return group.group_id in self._deliveries.carried.keep_expired
        return group.settings.keeps_expired

    def settle_expired(
        self, group: GroupState, lease: Lease, ranges: Sequence[OffsetRange], now: float
    ) -> None:
        """Records that were leased, and read for no consumer, have expired: settle them, and look at what follows."""
        self._deliveries.carried.has_expiries = True
        left = self._settle_aged(group, ranges, now)
        if left:
            self._deliveries.give_back(group, lease, left, now)
        self.skip_expired(group)

    def _settle_aged(self, group: GroupState, ranges: Sequence[OffsetRange], now: float) -> list[OffsetRange]:
        """The time to live of these records is over. Returns those that stay, for want of room for dead letters."""
        delivery, left = group.delivery, list[OffsetRange]()
        if self.keeps_expired(group):
            before = delivery.dead.total
            left = delivery.die_of_age(ranges, now)
            group.is_expired_full = bool(left)
            group.expired_records += delivery.dead.total - before
            self._deliveries.died_in(group, now)
        else:
            for start, stop in ranges:
                group.expired_records += delivery.skip(start, stop)
        stays = merged(sorted(left))
        for start, stop in ranges:
            inside = [row for row in stays if start <= row[0] < stop]
            self._deliveries.settled_in(group, between(start, stop, inside), now)
        return left

    def has_room_again(self, group: GroupState, now: float) -> None:
        """What expires may be settled again: go on with it, and deliver what follows."""
        group.is_expired_full = False
        self.skip_expired(group)
        self._deliveries.notify(group, now)

    def unseen(self, group_id: int, now: float) -> OffsetRange | None:
        """What is to be read for expired records: what was given back, then what the group has not seen yet; None when
        that is nothing.
        """
        group = self._deliveries.groups.get(group_id)
        look = None if group is None else group.look
        if group is None or look is None or not look.is_under_way:
            return None
        if look.stage == "given back":
            given_back = self._given_back(group, look, now)
            look.stage = "unseen" if given_back is None else "reading given back"
            if given_back is not None:
                return given_back
        start = max(group.delivery.offsets.next, self._deliveries.start_offset)
        return (start, self._deliveries.visible_end) if start < self._deliveries.visible_end else None

    def _given_back(self, group: GroupState, look: ExpiryLook, now: float) -> OffsetRange | None:
        """From the first record on that may be leased again; a look goes on where the last one ended."""
        delivery, begin = group.delivery, max(look.resumes_at, self._deliveries.start_offset)
        look.resumes_at = 0
        first = next(delivery.offsets.ready_ranges(now, delivery.offsets.next, begin), None)
        return None if first is None else (first[0], delivery.offsets.next)

    def _given_back_read(
        self,
        group: GroupState,
        look: ExpiryLook,
        records: WindowRecords,
        now: float,
        now_us: int,
        theirs: Sequence[OffsetRange],
    ) -> None:
        """Settle what has expired of what may be leased again, wherever it lies in what was read."""
        look.stage = "unseen"
        delivery, offsets, instants = group.delivery, records.offsets, records.columns["expiry_us"]
        end = min(records.next_offset, delivery.offsets.next)
        aged = IntervalSet()
        for start, stop in list(delivery.offsets.ready_ranges(now, end, records.start)):
            for index in range(bisect_left(offsets, start), bisect_left(offsets, min(stop, end))):
                if instants[index] <= now_us:
                    aged.add(offsets[index], offsets[index] + 1)
                else:
                    look.left_s = min(look.left_s, (instants[index] - now_us) / 1e6)
        if end < delivery.offsets.next:
            look.resumes_at, look.left_s = end, LOOK_LEAST_S
        if not aged:
            return
        if self.keeps_expired(group):
            for start, stop in theirs:
                skipped = list(aged.overlapping(start, stop))
                for first, last in skipped:
                    group.filtered_records += delivery.skip(first, last)
                if skipped:
                    self._deliveries.settled_in(group, skipped, now)
        left = self._settle_aged(group, list(aged), now)
        self._deliveries.has_changed(group, now, urgent=False)
        if left:
            self.skipped(group.group_id, now)

    def unseen_read(
        self,
        group_id: int,
        records: WindowRecords,
        now: float,
        now_us: int,
        theirs: Sequence[OffsetRange] = (),
    ) -> None:
        """Settle the expired records at the front of what was read. It is `skipped` when one has not expired.

        What is `theirs`, sorted, is for other groups only.
        """
        group = self._deliveries.groups.get(group_id)
        if group is None:
            return
        if group.look is not None and group.look.stage == "reading given back":
            self._given_back_read(group, group.look, records, now, now_us, theirs)
            return
        instants = records.columns["expiry_us"]
        index = next((index for index, time in enumerate(instants) if time > now_us), None)
        end = records.next_offset if index is None else records.offsets[index]
        for start, stop in records.lost:
            if start < end:
                self._deliveries.records_lost(start, min(stop, end), now)
        first = max(records.start, group.delivery.offsets.next)
        if first < end and self.keeps_expired(group):
            for start, stop in theirs:
                group.filtered_records += group.delivery.skip(max(start, first), min(max(stop, first), end))
            aged = records.offsets[bisect_left(records.offsets, first) : bisect_left(records.offsets, end)]
            left = self._settle_aged(group, merged([(offset, offset + 1) for offset in aged]), now)
            if left:
                end, index = left[0][0], bisect_left(records.offsets, left[0][0])
            group.delivery.skip(first, end)  # where there is no record
        elif first < end:
            group.expired_records += group.delivery.skip(first, end)
        if first < end:
            self._deliveries.settled_in(group, [(first, end)], now)
        self._deliveries.has_changed(group, now, urgent=False)
        if index is not None:
            self.skipped(group_id, now, (instants[index] - now_us) / 1e6)

    def skipped(self, group_id: int, now: float, left_s: float = LOOK_MOST_S) -> None:
        """The look has ended, at a record that expires in this many seconds, or because the disk refused."""
        group = self._deliveries.groups.get(group_id)
        if group is not None and group.look is not None and group.look.is_under_way:
            left_s = group.look.end(left_s)
            if group.delivery.offsets.floor < self._deliveries.visible_end:
                self._look_in(group, left_s, now)
            self._deliveries.notify(group, now)
