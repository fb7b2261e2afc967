"""What is withheld from one consumer of a group: it gave these records back, as it cannot begin them yet. Pure.

A consumer that handles the messages of a key one after the other is leased a record whose key it is busy with. It gives
the record back, and names the one that it waits for. Until that is settled, given back or no longer its own, the
consumer is leased others instead; to all other consumers the record is ready like any. Nothing of this is journalled:
after a restart of the partition the consumer is leased the record once more, and gives it back again.

Invariants
----------
WH1  A record is withheld from one consumer alone, and only as long as that holds the record which it waits for.
WH2  A consumer from which `WITHHELD_MAX` records are withheld, which no other has taken, is leased nothing until one
     that they wait for is no longer its own.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from callboard.actors.delivery.delivery import Delivery
from callboard.actors.delivery.intervals import IntervalSet
from callboard.actors.delivery.receipts import OffsetRange
from callboard.log.limits import WITHHELD_MAX


@attrs.define(eq=False)
class WithheldRecords:
    """By (lease id, offset) of the record that they wait for."""

    consumer: int
    _behind: dict[tuple[int, int], IntervalSet] = attrs.Factory(dict)

    def add(self, ranges: Sequence[OffsetRange], behind: tuple[int, int]) -> None:
        """These wait for the record `behind` which the consumer holds."""
        waiting = self._behind.setdefault(behind, IntervalSet())
        for start, stop in ranges:
            waiting.add(start, stop)

    @property
    def is_full(self) -> bool:
        """Whether no more may be withheld (WH2)."""
        return sum([waiting.count for waiting in self._behind.values()]) >= WITHHELD_MAX

    def ranges(self, delivery: Delivery) -> list[OffsetRange]:
        """What is withheld now (WH1); some of it may have been leased by others, or be settled."""
        over = [behind for behind in self._behind if delivery.offsets.holder_of(*behind) != self.consumer]
        for behind in over:
            del self._behind[behind]
        if self.is_full:
            self._forget_taken(delivery)
        return [part for waiting in self._behind.values() for part in waiting]

    def _forget_taken(self, delivery: Delivery) -> None:
        """What others have been leased makes room. It is withheld no longer, should it come back."""
        for waiting in self._behind.values():
            ready = [part for start, stop in waiting for part in delivery.offsets.ready_in(start, stop)]
            waiting.clear()
            for start, stop in ready:
                waiting.add(start, stop)
