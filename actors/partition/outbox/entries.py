"""What acks have published: the entries of one partition's outbox that are not forwarded yet. Pure.

An ack with publishes is one record of the delivery journal: the group's ack, and behind it the event `O`, which names
the payloads in the outbox partition. That record is the commit. Each payload becomes an *entry* and gets a number; the
forwarder publishes it under that number, and then the entry is forgotten, by a record of its own, since an entry
outlives its group.

Invariants
----------
OE1  Numbers rise in the order of the commits, and none is used twice in one numbering. Should all that was known of the
     numbers be lost, another numbering begins (`group_states`).
OE2  An entry is there from the record that names it to the record that forgets it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from callboard.actors.delivery.events import ENTRIES_MAX
from callboard.actors.delivery.receipts import OFFSET_END, merged
from callboard.actors.delivery.snapshot import number
from callboard.actors.partition.commands import OutboxEntry


class OutboxEntries:
    """The entries of one outbox that are not forwarded yet, by number."""

    def __init__(self) -> None:
        self.next = 0
        """The number of the next entry, or `first_of_life` if that is above."""
        self.first_of_life = 0
        """The numbers that this life of the partition gives begin here (OE1)."""
        self.numbering = 0
        """The id of this count of entries: that of the group which was the first to publish. 0 for one that an older
        version began."""
        self._entries: dict[int, OutboxEntry] = {}
        """By number; the numbers rise."""
        self._offsets: set[int] = set()

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def free(self) -> int:
        """The number that the next entry gets."""
        return max(self.next, self.first_of_life)

    def names(self, offset: int) -> bool:
        """Whether the payload at an offset is that of an entry."""
        return offset in self._offsets

    def after(self, last: int) -> tuple[OutboxEntry, ...]:
        """The entries with numbers above `last`, the lowest first."""
        return tuple([entry for entry in self._entries.values() if entry.number > last])

    def add(
        self, first: int, group_id: int, lease_id: int, start: int, stop: int, numbering: int = 0
    ) -> None:
        """An ack names the payloads `[start, stop)`; the first entry gets the number `first`. The first of all begins
        the `numbering`. Raises ValueError.
        """
        if first < self.next:
            raise ValueError(f"entry {first} of the outbox is there twice")
        if not self.next:
            self.numbering = numbering
        for offset in range(start, stop):
            entry = OutboxEntry(first + offset - start, offset, group_id, lease_id, self.numbering)
            self._entries[entry.number] = entry
            self._offsets.add(offset)
        self.next = first + stop - start

    def forget(self, numbers: Iterable[int]) -> list[int]:
        """These are forwarded; returns those that were there."""
        forgotten = []
        for each in numbers:
            entry = self._entries.pop(each, None)
            if entry is not None:
                self._offsets.discard(entry.offset)
                forgotten.append(each)
        return forgotten

    def pass_over(self, first: int, count: int) -> None:
        """An ack that is not believed used these numbers (OE1)."""
        self.next = max(self.next, first + count)

    def go_on_above(self, floor: int) -> None:
        """The journal lost records: no number below `floor`, which they may have used, is used again (OE1)."""
        self.next = max(self.next, floor)

    def begin_again(self, numbering: int) -> None:
        """Of the numbers that were used nothing is known any more (OE1)."""
        self.numbering = numbering

    # -- in a snapshot

    def snapshot(self) -> dict[str, Any]:
        """The state in CBOR's types: neighbouring entries of one receipt are one row."""
        rows: list[list[int]] = []
        for each in self._entries.values():
            last = rows[-1] if rows else None
            if last is not None and (
                last[0] + last[2] == each.number
                and last[1] + last[2] == each.offset
                and (last[3], last[4]) == each[2:4]
            ):
                last[2] += 1
            else:
                rows.append([each.number, each.offset, 1, each.group_id, each.lease_id])
        numbering = {"numbering": self.numbering} if self.numbering else {}
        return {"next": self.next, "entries": rows, **numbering}

    @classmethod
    def restore(cls, found: Any) -> OutboxEntries:
        """The entries that `snapshot` was made of. Raises ValueError."""
        entries = cls()
        if type(found) is not dict or type(found.get("entries")) is not list:
            raise ValueError("an outbox is not a map with entries")
        numbering = number(found.get("numbering", 0))
        for row in found["entries"]:
            if type(row) is not list or len(row) < 5:
                raise ValueError("an entry of an outbox has not five numbers")
            first, start, count, group_id, lease_id = map(number, row[:5])
            if not 0 < count <= min(OFFSET_END - start, ENTRIES_MAX):
                raise ValueError("an entry of an outbox has no offsets")
            entries.add(first, group_id, lease_id, start, start + count, numbering)
        entries.pass_over(number(found.get("next")), 0)
        entries.numbering = numbering
        return entries


def as_ranges(numbers: Iterable[int]) -> list[int]:
    """Numbers as flattened ranges."""
    return [bound for span in merged([(each, each + 1) for each in sorted(numbers)]) for bound in span]


def from_ranges(found: Any) -> Sequence[int]:
    """The numbers in flattened ranges. Raises ValueError."""
    if type(found) is not list or len(found) % 2:
        raise ValueError("the numbers of an outbox are no ranges")
    bounds = list(map(number, found))
    numbers: list[int] = []
    for start, stop in zip(bounds[::2], bounds[1::2], strict=True):
        if not start < stop <= start + ENTRIES_MAX:
            raise ValueError("a range of an outbox is empty, or too large")
        numbers += range(start, stop)
    return numbers
