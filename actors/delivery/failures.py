"""When unsettled records failed first, and in which consumers: what their dead letters will tell. Pure.

Kept in ranges, like everything about records in a delivery, and only where a group may have dead letters. A record that
is settled is forgotten here. Names are those that consumers had when they failed; one without a name is known by its
id.

Invariants
----------
FN1  At most `FAILURE_RANGES_MAX` ranges are kept, `FAILED_IN_MAX` consumers of each record, and `NAMED_CONSUMERS_MAX`
     names.
FN2  What is kept of a record is never later than its first failure that was noted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from callboard.actors.delivery.intervals import IntervalMap, Row
from callboard.actors.delivery.pieces import ArrayInParts
from callboard.actors.delivery.receipts import OFFSET_END, OffsetRange, between
from callboard.log.limits import FAILED_IN_MAX, FAILURE_RANGES_MAX, NAMED_CONSUMERS_MAX, STEP_ITEMS

NAME_CHARACTERS_MAX: Final = 255
TABLE_SLACK: Final = 64
"""Entries that the table of names may hold beyond twice the ranges, before what no range needs is thrown out."""
FailureRow = tuple[int, int, float, tuple[str, ...]]
"""Start, stop, first failure, and the consumers in which the records failed."""


class FailureNotes:
    """The first failure of each unsettled record of one group, and the consumers in which it failed."""

    __slots__ = ("_ids", "_names", "_next_id", "consumers", "ranges")

    def __init__(self) -> None:
        self.ranges = IntervalMap("dq")  # start, stop, first failure in monotonic seconds, consumers as an id
        self.consumers: dict[int, str] = {}
        """By id: the names of consumers, the latest last."""
        self._names: dict[int, tuple[str, ...]] = {}
        self._ids: dict[tuple[str, ...], int] = {}
        self._next_id = 0

    def name(self, consumer: int, name: str) -> None:
        """The consumer has this name."""
        self.consumers.pop(consumer, None)
        self.consumers[consumer] = name
        if len(self.consumers) > NAMED_CONSUMERS_MAX:
            del self.consumers[next(iter(self.consumers))]

    def name_of(self, consumer: int | None) -> str | None:
        """The consumer's name, or else its id as text; None without a consumer."""
        return None if consumer is None else self.consumers.get(consumer, str(consumer))

    def note(self, ranges: Iterable[OffsetRange], failed_at: float, who: str | None) -> Sequence[OffsetRange]:
        """Unsettled records have failed in `who`; the ranges are sorted and do not touch. To note what is returned does
        the same as to note them all.
        """
        ranges = list(ranges)
        if ranges and ranges[0][0] > self.ranges.last_stop:
            if kept := ranges[: max(0, FAILURE_RANGES_MAX - self.ranges.rows)]:
                count, alone = len(kept), self._id_of((), who)
                self.ranges.put_all(*zip(*kept, strict=True), [failed_at] * count, [alone] * count)
            return kept
        for start, stop in ranges:
            carved = self.ranges.carve(start, stop)
            known = [(first, last, since, self._names[names]) for first, last, since, names in carved]
            for first, last, since, names in known:  # a sweep on the way forgets what only carved rows name
                self.ranges.put(first, last, since, self._id_of(names, who))
            if self.ranges.rows < FAILURE_RANGES_MAX:
                for first, last in between(start, stop, carved):
                    self.ranges.put(first, last, failed_at, self._id_of((), who))
        return ranges

    def forget(self, start: int, stop: int) -> None:
        """These records are settled."""
        self.ranges.carve(start, stop)

    def clear(self) -> None:
        """Nothing has failed yet."""
        self.ranges.clear()

    def of(self, start: int, stop: int) -> list[FailureRow]:
        """What is known of records, cut to `[start, stop)`; what has no note is left out."""
        return [
            (first, last, since, self._names[names])
            for first, last, since, names in self.ranges.overlapping(start, stop)
        ]

    def _id_of(self, names: tuple[str, ...], who: str | None) -> int:
        if who is not None and who not in names and len(names) < FAILED_IN_MAX:
            names = (*names, who)
        found = self._ids.get(names)
        if found is None:
            if len(self._names) > TABLE_SLACK + 2 * self.ranges.rows:
                self._sweep()
            found = self._ids[names] = self._next_id
            self._names[found] = names
            self._next_id += 1
        return found

    def _sweep(self) -> None:
        used = {row[3] for row in self.ranges}
        self._names = {key: names for key, names in self._names.items() if key in used}
        self._ids = {names: key for key, names in self._names.items()}

    # -- snapshots ------------------------------------------------------------------------------------------

    def stored(self, wall_offset_s: float) -> dict[str, Any] | None:
        """All of it in CBOR's types (see `pieces`), instants as wall time; None when there is nothing. Later changes do
        not touch it.
        """
        if not self.ranges.rows and not self.consumers:
            return None
        ranges, names_of = self.ranges.copied(), dict(self._names)
        some = (
            [
                [start, stop, since + wall_offset_s, list(names_of[names])]
                for start, stop, since, names in zip(*chunk, strict=True)
            ]
            for chunk in ranges.chunks()
        )
        return {
            "ranges": ArrayInParts(ranges.rows, some),
            "consumers": [[consumer, name] for consumer, name in self.consumers.items()],
        }

    def restore_in_steps(self, found: Any, wall_offset_s: float) -> Iterator[None]:
        """Take what `stored` gave once, yielding now and then. Raises ValueError for anything else."""
        if type(found) is not dict or type(found.get("ranges")) is not list:
            raise ValueError("failures are not a map with ranges")
        if type(found.get("consumers")) is not list:
            raise ValueError("the names of consumers are not a list")
        before = 0
        kept: list[Row] = []
        for place, row in enumerate(found["ranges"][:FAILURE_RANGES_MAX]):
            if type(row) is not list or len(row) < 4 or not all(type(bound) is int for bound in row[:2]):
                raise ValueError("a failure has no range")
            start, stop, since, names = row[:4]
            if not before <= start < stop <= OFFSET_END:
                raise ValueError("failures are not in order")
            if type(since) is not float or not math.isfinite(since) or type(names) is not list:
                raise ValueError("a failure has no instant, or names that are none")
            who = self._ids.get(key := tuple(names))
            if who is None:
                if not are_names(names):
                    raise ValueError("a failure has no instant, or names that are none")
                self._put_all(kept)  # whose names would be forgotten otherwise
                who = self._id_of(key, None)
            kept.append((start, stop, since - wall_offset_s, who))
            before = stop
            if not place % STEP_ITEMS:
                self._put_all(kept)
                yield
        self._put_all(kept)
        for row in found["consumers"][-NAMED_CONSUMERS_MAX:]:
            if type(row) is not list or len(row) < 2 or type(row[0]) is not int or not are_names(row[1:2]):
                raise ValueError("a consumer has no name")
            self.name(row[0], row[1])

    def _put_all(self, rows: list[Row]) -> None:
        """Put them behind all others, and empty the list."""
        if rows:
            self.ranges.put_all(*zip(*rows, strict=True))
            rows.clear()

    def keep_unsettled(self, settled: IntervalMap, start: int, end: int) -> Iterator[None]:
        """Forget all that is settled or outside `[start, end)`, yielding now and then."""
        self.ranges.carve(0, start)
        self.ranges.carve(end, OFFSET_END)
        at = start
        while (row := self.ranges.first_from(at)) is not None:
            for _ in range(STEP_ITEMS):
                for first, last in list(settled.overlapping(row[0], row[1])):
                    self.ranges.carve(first, last)
                at = row[1]
                if (row := self.ranges.first_from(at)) is None:
                    return
            yield


def are_names(found: Any) -> bool:
    """Whether this is a list of names that fits."""
    return (
        type(found) in (list, tuple)
        and len(found) <= FAILED_IN_MAX
        and all(type(name) is str and 0 < len(name) <= NAME_CHARACTERS_MAX for name in found)
    )
