"""Priorities: what has the highest one is leased first, of all unsettled records within the group's window. Pure.

A topic with priorities gives every group a choice that looks at them. Before it chooses it has read on as far as its
range may grow, so the order is strict within the range: nothing in it of a lower priority goes before something of a
higher one that may be leased. Within a priority the lowest offset is first. What has waited for `starvation_after`
goes before everything else.

With order per key as well, of each key only the first unsettled record takes part (`keys`): a high priority does
not lift a record over an earlier one of its key.

Invariants
----------
PO1  When something is leased, all unsettled records below the range's end were seen, and the range ends at the visible
     end or is full.
PO2  Every record of the range that may be leased is in the heap, or in both; what else they name is dropped when it
     comes first.
PO3  No step ranks more than a span of records, or a step's items that are ready again: records are ranked when they are
     read, and nothing is leased while the choice is behind.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import ClassVar, Final

from callboard.actors.delivery.delivery import Delivery
from callboard.actors.delivery.receipts import Lease, OffsetRange, merged
from callboard.actors.partition.choice.keys import KEY_BYTES, KeyOrder
from callboard.actors.partition.choice.record_window import (
    USUAL_PRIORITY,
    RecordRange,
    WindowAllowance,
    WindowRecords,
)
from callboard.actors.partition.commands import DeliverySettings
from callboard.log.limits import STEP_ITEMS, WINDOW_SPAN_RECORDS, Limits

HIGHEST: Final = 9
RANKED_BYTES: Final = 88
"""What a record takes in both heaps, about."""
HEAP_SLACK: Final = 64
EVERYTHING: Final = 2**63
STARVED: Final = -1
RANK_SHIFT: Final = 64
OFFSET_MASK: Final = (1 << RANK_SHIFT) - 1


class PartitionOrder(KeyOrder):
    """The choice of `ordering="partition"`: all records count as those of one key."""

    columns: ClassVar[tuple[str, ...]] = ("one_key",)


class PriorityOrder(KeyOrder):
    """The choice of a topic with priorities, in a group without order."""

    columns: ClassVar[tuple[str, ...]] = ("no_key", "priority", "append_us")
    beside_bytes: ClassVar[int] = RANKED_BYTES

    def __init__(
        self,
        delivery: Delivery,
        records: RecordRange,
        span_records: int = WINDOW_SPAN_RECORDS,
        starvation_s: float | None = None,
    ) -> None:
        self.starvation_s = starvation_s
        """None: nothing starves."""
        super().__init__(delivery, records, span_records)

    def _forget(self) -> None:
        super()._forget()
        self._delivery.offsets.forget_readied()
        self._ranked: list[int] = []
        """A heap of rank and offset; `_free`, which the lowest offset leads, tells what starves, if anything may."""
        self._unheard: list[OffsetRange] = []
        """What is ready again, and not in the heaps yet."""

    def _charge(self, more_bytes: int = 0) -> None:
        super()._charge(more_bytes + RANKED_BYTES * len(self._ranked))

    def _rank(self, index: int) -> int:
        """The lower, the sooner: of the record at an index of the range."""
        stored = self.records.columns["priority"][index]
        return HIGHEST - (stored - 1 if stored else USUAL_PRIORITY)

    def _offer(self, offset: int) -> None:
        if self._is_free(offset) or self._delivery.offsets.is_ready(offset):
            self._push(offset)

    def _push(self, offset: int) -> None:
        most = HEAP_SLACK + 2 * self.records.count
        heappush(self._ranked, self._place(offset))
        if len(self._ranked) > most:
            # Each record once, and none that is settled: one that failed often was put there often.
            unsettled = self.records.unsettled()
            self._ranked = sorted({each for each in self._ranked if self._is_kept(each, unsettled)})
        if self.starvation_s is not None:
            heappush(self._free, offset)
            if len(self._free) > most:
                self._free = sorted({each & OFFSET_MASK for each in self._ranked})

    @staticmethod
    def _is_kept(place: int, unsettled: set[int]) -> bool:
        """Whether an entry of the heap may stand for something; what the log lacks is known by its rank."""
        return place <= OFFSET_MASK or place & OFFSET_MASK in unsettled

    def add(self, records: WindowRecords) -> None:
        """Records were read: rank them."""
        super().add(records)
        if not self.is_uniform:
            self._see_all()
            self._hear()

    def _hear(self) -> None:
        """Put what has become ready again into the heaps, as much of it as a step handles. What is not seen yet is
        ranked when it is.
        """
        unheard, end = self._unheard, self.records.end
        unheard += self._delivery.offsets.take_readied()
        left = STEP_ITEMS
        while unheard and left > 0:
            start, stop = unheard.pop()
            if stop - start > left:
                unheard.append((start + left, stop))
                stop = start + left
            left -= stop - start
            for offset in range(start, min(stop, end)):
                if self._is_live(offset):
                    self._push(offset)

    @property
    def is_behind(self) -> bool:
        """Whether more is ready again than one step has ranked."""
        return not self.is_uniform and len(self._unheard) > 0

    def _place(self, offset: int) -> int:
        """Where the heap has it; what the log lacks comes first: it is settled when it is read."""
        index = self.records.index_of(offset)
        return ((STARVED if index < 0 else self._rank(index)) - STARVED) << RANK_SHIFT | offset

    def _is_starved(self, index: int, now: float) -> bool:
        if index < 0:
            return True
        if self.starvation_s is None:
            return False
        wall_s = now + self.wall_offset_s
        appended_us = self.stamps.believed(self.records.columns["append_us"][index], round(wall_s * 1e6))
        return appended_us / 1e6 + self.starvation_s <= wall_s

    def _free_count(self) -> int:
        """How many of those seen are free (KO2)."""
        end = self.records.end
        return self._delivery.offsets.never_leased(end) - self.fenced

    def _count(self, now: float, wanted: int, consumer: int | None) -> int:
        self._see_all()
        again, others = self._delivery.together(self._may_go_again(now, wanted), wanted, consumer)
        return len(again) + min(others, self._free_count())

    def lease(
        self, now: float, deadline: float, consumer: int, max_records: int, visible_end: int
    ) -> Lease | None:
        """Lease what comes first; None when that is nothing, or records have to be read or ranked before it is known
        (PO1, PO3).
        """
        if self.has_more_to_read(visible_end):
            return None
        if not self.is_uniform:
            self._delivery.offsets.promote(now)
            self._hear()
            if self.is_behind:
                return None
        return super().lease(now, deadline, consumer, max_records, visible_end)

    def choose(self, now: float, max_records: int, consumer: int | None = None) -> list[OffsetRange]:
        """The offsets to lease now, sorted, as ranges that do not touch."""
        records = self._catch_up()
        from_free, from_ranked, found = self._take_first(now, max_records)

        def order(offset: int) -> tuple[int, int]:
            index = records.index_of(offset)
            return STARVED if self._is_starved(index, now) else self._rank(index), offset

        first = sorted(found, key=order)
        again = [offset for offset in first if not self._is_free(offset)]
        chosen, others = self._delivery.together(again, len(first), consumer)
        chosen += [offset for offset in first if self._is_free(offset)][:others]
        for offset in from_free.difference(chosen):
            heappush(self._free, offset)
        for offset in from_ranked.difference(chosen):
            heappush(self._ranked, self._place(offset))
        if self.starvation_s is not None:
            self.promoted += self._count_promoted(chosen, now)
        chosen.sort()
        return list(merged([(offset, offset + 1) for offset in chosen]))

    def _count_promoted(self, chosen: list[int], now: float) -> int:
        """How many of those that are about to be leased starve, and go before what has a higher priority and waits."""
        index_of, ranked, taken = self.records.index_of, self._ranked, set(chosen)
        starved = [index for index in map(index_of, chosen) if index >= 0 and self._is_starved(index, now)]
        if not starved:
            return 0
        while ranked and ((first := ranked[0] & OFFSET_MASK) in taken or not self._is_live(first)):
            heappop(ranked)
        best = (ranked[0] >> RANK_SHIFT) + STARVED if ranked else HIGHEST
        return sum(self._rank(index) > best for index in starved)

    def _see_all(self) -> None:
        """Look at all that was read. What becomes ready again from then on is heard."""
        self._delivery.offsets.hear_readied()
        self._see(EVERYTHING)

    def _take_first(self, now: float, most: int) -> tuple[set[int], set[int], set[int]]:
        """Take out what comes first, at most so many: what was taken out of `_free`, and out of `_ranked`, and what of
        that may be leased. The rest waits for room among the dead letters.
        """
        records, free, ranked, found = self.records, self._free, self._ranked, set[int]()
        from_free, from_ranked, is_full = set[int](), set[int](), self._delivery.is_full
        while len(found) < most:
            while free and not self._is_live(free[0]):
                heappop(free)
            if free and self._is_starved(records.index_of(free[0]), now):
                offset = heappop(free)
                from_free.add(offset)
            elif ranked:
                offset = heappop(ranked) & OFFSET_MASK
                if not self._is_live(offset):
                    continue
                from_ranked.add(offset)
            else:
                break
            if self._is_free(offset) or not self._delivery.is_held(offset, is_full=is_full):
                found.add(offset)
        return from_free, from_ranked, found

    def _is_live(self, offset: int) -> bool:
        """Whether an entry of a heap stands for a record that may be leased."""
        records, index = self.records, self.records.index_of(offset)
        if index < 0:
            return offset < records.end and self._delivery.offsets.is_ready(offset)
        if self._is_free(offset):
            return True
        head = self._heads.get(records.columns[self.columns[0]][index], offset)
        return head == offset and self._delivery.offsets.is_ready(offset)


class PriorityKeyOrder(PriorityOrder):
    """The same with order per key."""

    columns: ClassVar[tuple[str, ...]] = ("key_hash", "priority", "append_us")
    beside_bytes: ClassVar[int] = KEY_BYTES + RANKED_BYTES


def choice_of(
    settings: DeliverySettings,
    delivery: Delivery,
    allowance: WindowAllowance,
    limits: Limits,
    *,
    has_priorities: bool,
) -> KeyOrder | None:
    """The choice of a group with these settings; None for a group that leases by offset."""

    def records(kind: type[KeyOrder], most: int) -> RecordRange:
        return RecordRange(allowance, most, kind.columns, limits.window_compact_records, kind.beside_bytes)

    if has_priorities and settings.ordering != "partition":
        ranked = PriorityKeyOrder if settings.ordering == "key" else PriorityOrder
        most = min(limits.range_records, settings.priority_window)
        return ranked(
            delivery,
            records(ranked, most),
            limits.window_span_records,
            settings.starvation_after,
        )
    if settings.ordering == "none":
        return None
    kind = KeyOrder if settings.ordering == "key" else PartitionOrder
    return kind(delivery, records(kind, limits.range_records), limits.window_span_records)
