"""A group's choice in one partition, and the fetches that wait until records are read for it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from callboard.actors.partition.choice import KeyOrder
from callboard.actors.partition.record_window import RecordRange

if TYPE_CHECKING:
    from callboard.actors.delivery.delivery import Delivery
    from callboard.actors.delivery.receipts import Lease, OffsetRange
    from callboard.actors.partition.choice import Choice
    from callboard.actors.partition.commands import Fetch
    from callboard.actors.partition.record_window import WindowBudget, WindowRecords
    from callboard.log.limits import Limits


class GroupWindow:
    """See the module."""

    __slots__ = ("_delivery", "choice", "fetches", "is_reading")

    def __init__(self, delivery: Delivery, budget: WindowBudget, limits: Limits) -> None:
        self._delivery = delivery
        self.choice: Choice = KeyOrder(delivery, RecordRange(budget, limits.range_records, KeyOrder.columns))
        self.fetches: list[tuple[Fetch, Any]] = []
        """Those that wait for records to be read, with the tokens of who asked."""
        self.is_reading = False
        """Records are being read."""

    def lease(self, now: float, deadline: float, consumer: int, max_records: int) -> Lease | None:
        """Lease what the choice names; None when that is nothing."""
        ranges = self.choice.choose(now, max_records)
        if not ranges:
            return None
        return self._delivery.lease_chosen(now=now, deadline=deadline, consumer=consumer, ranges=ranges)

    def begin_reading(self, visible_end: int) -> OffsetRange | None:
        """What is to be read now; None when that is nothing, or something is being read already."""
        span = None if self.is_reading else self.choice.span(visible_end)
        if span is not None:
            self.is_reading = self.choice.records.in_use = True
        return span

    def add(self, records: WindowRecords) -> None:
        """Records were read: settle where there are none, and look at the others."""
        for start, stop in records.absent:
            self._delivery.skip(start, stop)
        self.choice.settled(records.absent)
        self.choice.add(records)

    def take_fetches(self) -> list[tuple[Fetch, Any]]:
        """The reading has ended: what waited for it."""
        self.is_reading = self.choice.records.in_use = False
        fetches, self.fetches = self.fetches, []
        return fetches

    def take_fetches_of(self, consumer: int) -> list[Any]:
        """The tokens of a consumer that leaves."""
        tokens = [token for fetch, token in self.fetches if fetch.consumer == consumer]
        self.fetches = [waits for waits in self.fetches if waits[0].consumer != consumer]
        return tokens

    def close(self) -> list[Any]:
        """Hold nothing any more; the tokens of those who waited."""
        self.choice.records.clear()
        return [token for _, token in self.take_fetches()]
