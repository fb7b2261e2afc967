"""How a group with order per key chooses what it leases next: at most one record of a key is out at a time. Pure.

A group without order has no choice: it leases the lowest ready offsets, and no record is read before it is leased. A
choice looks at the records of its group's range (`record_window`) and at the delivery state, and leases the offsets
that it chooses. It reads nothing itself: the core has the span that it lacks read, and tells it what is settled.

Vocabulary
----------
*Out*: a keyed record that may be leased, is leased, or waits for another attempt. Its key is out with it.
*Fenced*: a record whose key is out with an earlier record; it waits until that is settled. What has no key
is never fenced.
*Free*: a record that is out or has no key, was never leased, and may be leased now.

Invariants
----------
KO1  Of the records of a key that were seen, exactly one is out: the first that is not settled.
KO2  A free record is untouched or passed in the delivery state; what is leased, ready or delayed there was out before.
KO3  All unsettled records before one that is chosen were seen, also after a restart or an eviction.
KO4  While the range is uniform nothing is passed over and no key is out; what is leased is what a group without a
     choice would lease below the range's end. So the range holds none of the records, and they cost no time.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from heapq import heappop, heappush
from typing import ClassVar, Final

from callboard.actors.delivery.delivery import Delivery
from callboard.actors.delivery.intervals import length_of
from callboard.actors.delivery.receipts import Lease, OffsetRange, merged
from callboard.actors.partition.choice.record_window import NO_KEY, RecordRange, WindowRecords
from callboard.actors.partition.commands import Fetch, Token
from callboard.log.format.stamps import Stamps
from callboard.log.limits import STEP_ITEMS, WINDOW_SPAN_RECORDS

JOIN_MAX: Final = 64
"""Settled offsets that a read passes rather than ending before them."""
HEAP_SLACK: Final = 64
"""Settled offsets that the heap of free ones may name, beyond as many as are not settled."""
CHOSEN_MAX: Final = STEP_ITEMS // 2
"""Records that a choice leases at a time."""
KEY_BYTES: Final = 200
"""What a key that is out takes in memory, about."""
FENCED_BYTES: Final = 8


class KeyOrder:
    """The choice of `ordering="key"` in one partition, and the fetches that wait until records are read for it."""

    columns: ClassVar[tuple[str, ...]] = ("key_hash",)
    """What it looks at besides offsets; the first stands for the key."""
    beside_bytes: ClassVar[int] = KEY_BYTES
    """The most that a record takes besides its columns."""

    def __init__(
        self, delivery: Delivery, records: RecordRange, span_records: int = WINDOW_SPAN_RECORDS
    ) -> None:
        self._span_records = span_records
        """How many one read takes into the range."""
        self._delivery = delivery
        self.records = records
        self.fetches: list[tuple[Fetch, Token]] = []
        """Those that wait for records to be read, with the tokens of their askers."""
        self.is_reading = False
        """Records are being read, or room for them is awaited."""
        self.awaits_room = False
        """The partition was asked for room (`begin_reading`). What is read next makes do with what it has."""
        self.wall_offset_s = 0.0
        """Wall time minus monotonic time, as of the present lease: the wall clock may be set at any time."""
        self.stamps = Stamps()
        """What a clock that was ahead has left."""
        self.promoted = 0
        """Records that were leased before others of a higher priority, because they starved."""
        self._forget()

    def _forget(self) -> None:
        """Begin again, with an empty range."""
        self._lives = self.records.lives
        self.is_uniform = True
        """All unsettled records below the range's end are uniform, and it holds none of them (KO4)."""
        self._values: tuple[int, ...] | None = None
        """What they have in the columns."""
        self._heads: dict[int, int] = {}
        """By hash of a key that is out: the offset that is."""
        self._fenced: dict[int, array[int]] = {}
        """By hash: the offsets that wait, sorted, settled ones among them."""
        self._free: list[int] = []
        """A heap; it may name offsets that are settled, anywhere in it."""
        self._free_now: set[int] = set()
        """What of the heap is not settled: as many may be leased."""
        self.fenced = 0
        """Records that wait for others of their key."""

    def _catch_up(self) -> RecordRange:
        """The range; when it was evicted, what was known of it is forgotten.

        When all that it read is settled, or something was passed over in a uniform one, it is of the other kind.
        """
        records, offsets = self.records, self._delivery.offsets
        if self._lives != records.lives:
            self._forget()
        if self.is_uniform:
            if offsets.passed.count:
                self._look_closer()
        elif not (records.count or offsets.passed.count) and 0 < records.end <= offsets.floor:
            end = records.end
            self._forget()
            records.restart(end)
            self._charge()
        return records

    def _look_closer(self) -> None:
        """Read again, from the group's floor on, what is no longer uniform."""
        self.is_uniform = False
        self.records.restart(0)

    @property
    def is_behind(self) -> bool:
        """Whether what was read has to be looked at, some at a time, before anything is leased."""
        return False

    @property
    def is_full(self) -> bool:
        """Whether no more may be read until something is settled."""
        return self._catch_up().is_full_with(self.known)

    @property
    def known(self) -> int:
        """How many unsettled records were read."""
        records = self.records
        return self._delivery.offsets.pending_count(records.end) if self.is_uniform else records.count

    # -- reading

    def unread(self, visible_end: int) -> OffsetRange | None:
        """The offsets to read next; None when there are none."""
        return self._delivery.offsets.unsettled_span(
            self._catch_up().end, visible_end, self._span_records, join=JOIN_MAX
        )

    def _lacks_room(self, start: int, stop: int) -> bool:
        """Whether to ask for room for these offsets, unless that was done."""
        if self.awaits_room or not self.records.lacks_room(stop - start):
            return False
        return not (self.is_uniform and self.known)

    def has_more_to_read(self, visible_end: int) -> bool:
        """Whether there is something to read, or to ask for room for."""
        unread = self.unread(visible_end)
        return unread is not None and (self._lacks_room(*unread) or self.what_fits(*unread) is not None)

    def what_fits(self, start: int, stop: int) -> OffsetRange | None:
        """What of these offsets there is room for; None when there is none.

        What was leased or passed before is read whatever room there is.
        """
        records, offsets = self.records, self._delivery.offsets
        if stop <= offsets.next:
            return start, stop
        new = max(start, offsets.next)
        known = length_of(offsets.unsettled_ranges(start, offsets.next)) if start < offsets.next else 0
        room = records.room(stop - new + known, self.known if self.is_uniform else 0)
        stop = min(stop, new + max(0, room - known))
        return (start, stop) if start < stop else None

    def begin_reading(self, visible_end: int) -> OffsetRange | None:
        """What is to be read now; None when that is nothing, or something is being read already. A choice that is
        behind, or `awaits_room`, has nothing read, and goes on when others have run.
        """
        if self.is_reading:
            return None
        unread, span = self.unread(visible_end), None
        self.awaits_room = unread is not None and self._lacks_room(*unread)
        if unread is not None and self.awaits_room:
            self.records.want_room(unread[1] - unread[0])
        elif unread is not None:
            span = self.what_fits(*unread)
        if self.awaits_room or (span is None and self.is_behind):
            span = self.records.end, self.records.end
        if span is not None:
            self.is_reading = self.records.in_use = True
        return span

    def add(self, records: WindowRecords) -> None:
        """Records were read: settle where there are none, and keep the others, unless the range went on elsewhere."""
        delivery = self._delivery
        offsets = delivery.offsets
        for start, stop in records.absent:
            delivery.skip(start, stop)
        self.settled(records.absent)
        held = self._catch_up()
        if held.end > records.start or offsets.unsettled_ranges(held.end, records.start):
            return
        found = offsets.unsettled_ranges(records.start, records.next_offset)
        is_first = offsets.floor >= held.end
        fits = records.uniform is not None and (is_first or records.uniform == self._values)
        if self.is_uniform and (fits or not found):
            self._values = records.uniform if found else self._values
            held.end = records.next_offset
        elif self.is_uniform and not is_first:
            self._look_closer()
        elif records.uniform is None:  # else the range was uniform when it was read, and it is read again
            self.is_uniform = False
            held.add(records, found)
            self._charge()

    def take_fetches(self) -> list[tuple[Fetch, Token]]:
        """The reading has ended: what waited for it."""
        self.is_reading = self.records.in_use = False
        fetches, self.fetches = self.fetches, []
        return fetches

    def take_fetches_of(self, consumer: int) -> list[Token]:
        """The tokens of a consumer that leaves."""
        tokens = [token for fetch, token in self.fetches if fetch.consumer == consumer]
        self.fetches = [waits for waits in self.fetches if waits[0].consumer != consumer]
        return tokens

    def close(self) -> list[Token]:
        """Hold nothing any more; returns the tokens of those that waited."""
        self.records.clear()
        return [token for _, token in self.take_fetches()]

    def _charge(self, more_bytes: int = 0) -> None:
        self.records.charge(KEY_BYTES * len(self._heads) + FENCED_BYTES * self.fenced + more_bytes)

    # -- choosing

    def settled(self, ranges: Sequence[OffsetRange]) -> None:
        """These offsets are settled: what waited for them may be free."""
        records = self._catch_up()
        offsets, hashes, seen = records.offsets, records.columns[self.columns[0]], records.seen
        for start, stop in ranges:
            for index in records.settle(start, stop):
                key = hashes[index]
                self._free_now.discard(offsets[index])
                if index < seen and key != NO_KEY:
                    if self._heads.get(key) == offsets[index]:
                        self._free_next(key)
                    else:
                        self.fenced -= 1
        records.compact()

    def _free_next(self, key: int) -> None:
        """The record of `key` that was out is settled: the next one is out (KO1)."""
        waiting = self._fenced.get(key)
        while waiting:
            offset = waiting.pop(0)
            if self.records.index_of(offset) >= 0:
                self.fenced -= 1
                self._heads[key] = offset
                self._offer(offset)
                break
        else:
            del self._heads[key]
        if waiting is not None and not waiting:
            del self._fenced[key]

    def _offer(self, offset: int) -> None:
        """A record is out, or has no key: it is free if it was never leased."""
        if self._is_free(offset):
            heappush(self._free, offset)
            self._free_now.add(offset)
            if len(self._free) > HEAP_SLACK + 2 * len(self._free_now):
                self._free = sorted(self._free_now)

    def _is_free(self, offset: int) -> bool:
        """Whether a record that is out, or has no key, was never leased."""
        return offset >= self._delivery.offsets.next or self._delivery.offsets.is_passed(offset)

    def _see(self, wanted: int) -> None:
        """Look at further records until so many are free."""
        records, heads, free = self.records, self._heads, self._free_now
        offsets, hashes = records.offsets, records.columns[self.columns[0]]
        index, count, known_end = records.seen, len(offsets), self._delivery.offsets.next
        while index < count and (len(free) < wanted or offsets[index] < known_end):
            offset, key = offsets[index], hashes[index]
            if records.is_unsettled(index):
                if key != NO_KEY and key in heads:
                    self._fenced.setdefault(key, array("q")).append(offset)
                    self.fenced += 1
                else:
                    if key != NO_KEY:
                        heads[key] = offset
                    self._offer(offset)
            index += 1
        if index > records.seen:
            records.seen = index
            self._charge()

    def _may_go_again(self, now: float, most: int) -> list[int]:
        """What was leased before, is ready again and is out; at most so many, the lowest.

        What the range passed because the log holds nothing there is leased too: its reading settles it. What waits for
        room among the dead letters is not.
        """
        records, delivery, found = self.records, self._delivery, list[int]()
        hashes, is_full = records.columns[self.columns[0]], delivery.is_full
        for start, stop in delivery.offsets.ready_ranges(now, records.end):
            for offset in range(start, stop):
                if len(found) >= most:
                    return found
                index = records.index_of(offset)
                if index >= 0 and self._heads.get(hashes[index], offset) != offset:
                    continue
                if not delivery.is_held(offset, is_full=is_full):
                    found.append(offset)
        return found

    def ready_count(self, now: float, wanted: int, consumer: int | None = None) -> int:
        """How many records may be leased now, of those that were read; counting ends at `wanted`."""
        records = self._catch_up()
        if self.is_uniform:
            return min(wanted, self._delivery.leasable_count(now, records.end, wanted, consumer))
        return self._count(now, wanted, consumer)

    def _count(self, now: float, wanted: int, consumer: int | None) -> int:
        """The same for a range that holds records."""
        self._see(wanted)
        again, others = self._delivery.together(self._may_go_again(now, wanted), wanted, consumer)
        return len(again) + min(others, len(self._free_now))

    def lease(
        self, now: float, deadline: float, consumer: int, max_records: int, visible_end: int
    ) -> Lease | None:
        """Lease what is chosen; None when that is nothing."""
        records = self._catch_up()
        if self.is_uniform:
            return self._delivery.lease(
                now=now,
                deadline=deadline,
                consumer=consumer,
                max_records=max_records,
                visible_end=min(records.end, visible_end),
            )
        ranges = self.choose(now, min(max_records, CHOSEN_MAX), consumer)
        if not ranges:
            return None
        return self._delivery.lease_chosen(now=now, deadline=deadline, consumer=consumer, ranges=ranges)

    def choose(self, now: float, max_records: int, consumer: int | None = None) -> list[OffsetRange]:
        """The offsets to lease now, sorted, as ranges that do not touch.

        What was leased before comes first, then what is free, each by offset.
        """
        self._catch_up()
        self._see(0)
        chosen, others = self._delivery.together(self._may_go_again(now, max_records), max_records, consumer)
        most, free_now = len(chosen) + others, self._free_now
        while len(chosen) < most:
            self._see(1)
            if not free_now:
                break
            offset = heappop(self._free)
            if offset in free_now:
                free_now.remove(offset)
                chosen.append(offset)
        chosen.sort()
        return list(merged([(offset, offset + 1) for offset in chosen]))
