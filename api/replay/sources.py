"""What a replay reads: the records of a recording in order, with their times and where they come from.

With equal numbers of partitions there is a `Lane` for each: batches are copied as they are. Else a `Merger` brings the
records of all source partitions into one order, which depends on the recording alone: by time (or that of an earlier
record of its partition, if that was later), then by source partition, then by offset. Keys decide where each goes.

Both read bounded parts: `READ_BYTES_ALL` in all source partitions together, and at least `READ_BYTES_LEAST` in each.

Invariants
----------
S1  What comes out for one target partition depends on recording and selection, not on where reading began, nor on how
    it was cut into parts: everything behind a position, once.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate, chain
from typing import Any, Final

import attrs

from callboard.log.errors import RecordingInvalid
from callboard.log.format.columns import NO_TIME, Columns, ProducerRun
from callboard.log.limits import KIB, MIB
from callboard.publishing.partitioning import STICKY_RECORDS, Partitioner, checked, consistent
from callboard.recordings.encoder import times_of
from callboard.recordings.reader import Batches, Recording
from callboard.replay.joining import joined
from callboard.replay.pacing import TimeLine
from callboard.replay.positions import Position, Selection

PART_RECORDS: Final = 8_192
PART_BYTES: Final = 1 * MIB
"""Batches are joined up to so many records, or bytes."""
READ_BYTES_ALL: Final = 64 * MIB
READ_BYTES_LEAST: Final = 64 * KIB


@attrs.frozen
class Timed:
    """Records for one target partition, and their positions in time, which do not fall."""

    columns: Columns
    positions: Sequence[int]
    producers: Sequence[ProducerRun] | None = None
    """One for each record, where the columns have none: cutting those would look at all of them."""

    def select(self, start: int, stop: int) -> Columns:
        """Records start to stop, to be published."""
        columns = self.columns.select(start, stop)
        if self.producers is not None:
            columns.producers = self.producers[start:stop]
        return columns


@attrs.frozen(kw_only=True)
class Source:
    """What is replayed: a recording, which records of it, how often, and how they are marked."""

    recording: Recording
    selection: Selection
    line: TimeLine
    passes: int | None
    """None: for ever."""
    producer_ids: Sequence[int]
    """Of the source partitions."""

    @property
    def part_bytes(self) -> int:
        """How much of one partition is read at a time."""
        return max(READ_BYTES_LEAST, min(PART_BYTES, READ_BYTES_ALL // len(self.producer_ids)))

    def is_over(self, number: int) -> bool:
        """Whether there is no pass of that number."""
        return self.passes is not None and number >= self.passes

    async def read(self, source: int, start: int) -> _Parts:
        """The records of a source partition from an offset on."""
        span = self.selection.span
        batches = await self.recording.read(source, start=start, span=span, read_bytes=self.part_bytes)
        return _Parts(batches, self.part_bytes)


class _Parts:
    """Batches in handfuls: none is cut, small ones come together."""

    def __init__(self, batches: Batches, size_bytes: int) -> None:
        self._batches = batches
        self._size_bytes = size_bytes

    async def next(self) -> list[Columns]:
        """The next ones; none at the end."""
        found: list[Columns] = []
        records = size = 0
        with suppress(StopAsyncIteration):
            while records < PART_RECORDS and size < self._size_bytes:
                columns = await anext(self._batches)
                found.append(columns)
                records += columns.count
                size += columns.size_bytes
        return found

    async def aclose(self) -> None:
        """Close the files."""
        await self._batches.aclose()


# -- equal numbers of partitions


class Lane:
    """One source partition on its way into the target partition of the same number, from behind `last` on."""

    def __init__(self, source: Source, index: int, last: Position | None) -> None:
        self._source = source
        self._index = index
        self._filter = source.selection.key_filter()
        self._number = 0 if last is None else last.number
        self._start = 0 if last is None else last.offset + 1
        self._parts: _Parts | None = None
        self._has_records = last is not None
        """Whether this pass has any; a pass without ends the lane."""
        self._latest = -(2**63)

    async def next(self) -> Timed | None:
        """The next records; None when there are no more."""
        while not self._source.is_over(self._number):
            if self._parts is None:
                self._parts = await self._source.read(self._index, self._start)
            batches = await self._parts.next()
            timed = self._timed(batches)
            if timed is not None:
                self._has_records = True
                return timed
            if not batches:
                await self.aclose()
                if not self._has_records:
                    break
                self._number, self._start, self._has_records = self._number + 1, 0, False
        return None

    async def aclose(self) -> None:
        """Close the files."""
        parts, self._parts = self._parts, None
        if parts is not None:
            await parts.aclose()

    def _timed(self, batches: list[Columns]) -> Timed | None:
        parts = batches
        if self._filter is not None:
            parts = [part for batch in batches for part in self._picked(batch)]
        if not parts:
            return None
        # What is picked is copied: a view would keep all of what was read.
        is_view = len(parts) == 1 and self._filter is None
        columns = attrs.evolve(parts[0], base_offset=0) if is_view else joined(parts)
        times = times_in(parts)
        columns.event_times = array("q", times)
        columns.producers = self._runs(parts)
        columns.span, columns.offset_deltas, columns.append_times = columns.count - 1, None, None
        origin = self._source.line.origin(self._number)
        positions = list(accumulate(map(origin.__add__, times), max, initial=self._latest))
        self._latest = positions[-1]
        return Timed(columns, positions[1:])

    def _picked(self, batch: Columns) -> list[Columns]:
        if self._filter is None:
            return [batch]
        return [batch.select(start, stop) for start, stop in self._filter.parts(batch)]

    def _runs(self, parts: Sequence[Columns]) -> list[ProducerRun]:
        """Where the records come from; offsets that follow each other are one run."""
        producer, number = self._source.producer_ids[self._index], self._number
        runs: list[ProducerRun] = []
        count, following = 0, -1
        for part in parts:
            dense = part.offset_deltas is None
            for first, records in (
                ((part.base_offset, part.count),) if dense else ((o, 1) for o in part.offset_list())
            ):
                if first != following and count:
                    runs.append((count, producer, number, following - count))
                    count = 0
                count += records
                following = first + records
        return [*runs, (count, producer, number, following - count)]


def times_in(parts: Sequence[Columns]) -> list[int]:
    """The time of every record: of most recordings a list that is there already."""
    found: list[int] = []
    for part in parts:
        events = part.event_times
        times = events.tolist() if isinstance(events, memoryview) else times_of(part)
        found += times_of(part) if NO_TIME in times else times
    return found


# -- other numbers of partitions


def _each(one: Callable[[Columns, int], Any]) -> Callable[[Columns, int, int], list[Any]]:
    return lambda columns, start, stop: [one(columns, index) for index in range(start, stop)]


COLUMNS: Final[dict[str, tuple[str, Callable[[Columns, int, int], Sequence[Any]]]]] = {
    "values": ("values", Columns.value_list),
    "keys": ("keys", Columns.key_list),
    "headers": ("header_ends", Columns.header_list),
    "priorities": ("priorities", _each(Columns.priority)),
    "expiries": ("expiries", _each(Columns.expiry)),
    "dedup_ids": ("dedup_ids", _each(Columns.dedup_id)),
}
"""As `Columns.build` calls them: which attribute says that there are any, and how to list them."""


class _Head:
    """How far one source partition has been read in a pass."""

    def __init__(self, parts: _Parts) -> None:
        self._parts = parts
        self.columns = Columns.build([])
        self.times: Sequence[int] = ()
        self.offsets: Sequence[int] = ()
        self.order: list[int] = []
        """Each record's time, or an earlier one's that was later."""
        self.at = 0

    async def advance(self) -> bool:
        """Have records in hand; False at the end."""
        if self.at < len(self.order):
            return True
        batches = await self._parts.next()
        if not batches:
            return False
        latest = self.order[-1] if self.order else -(2**63)
        self.times = times_in(batches)
        self.offsets = list(chain.from_iterable(batch.offset_list() for batch in batches))
        self.columns = batches[0] if len(batches) == 1 else joined(batches)
        self.order = list(accumulate(self.times, max, initial=latest))[1:]
        self.at = 0
        return True

    async def aclose(self) -> None:
        """Close the files."""
        await self._parts.aclose()


@attrs.define(eq=False)
class _Window:
    """Records of several source partitions, one list for each column, in no order yet."""

    sources: list[int] = attrs.Factory(list)
    offsets: list[int] = attrs.Factory(list)
    order: list[int] = attrs.Factory(list)
    parts: list[tuple[Columns, int, int]] = attrs.Factory(list)
    times: list[int] = attrs.Factory(list)

    def add(self, source: int, head: _Head, stop: int) -> None:
        """Take the records of a head up to `stop`."""
        start, head.at = head.at, stop
        self.sources += [source] * (stop - start)
        self.offsets += head.offsets[start:stop]
        self.order += head.order[start:stop]
        self.times += head.times[start:stop]
        self.parts.append((head.columns, start, stop))

    def rows(self) -> dict[str, list[Any]]:
        """The records' columns as lists, by the names of `Columns.build`; those that some record has."""
        found: dict[str, list[Any]] = {"event_times": self.times}
        for name, (column, take) in COLUMNS.items():
            if any(getattr(columns, column) is not None for columns, _, _ in self.parts):
                parts = [take(columns, start, stop) for columns, start, stop in self.parts]
                found[name] = list(chain.from_iterable(parts))
        return found

    def find(self, position: Position) -> int | None:
        """The index of a record, if it is here."""
        low = bisect_left(self.sources, position.source)
        high = bisect_right(self.sources, position.source)
        index = bisect_left(self.offsets, position.offset, low, high)
        return index if index < high and self.offsets[index] == position.offset else None


class Merger:
    """All source partitions on their way into `len(lasts)` target partitions, each from behind its last record."""

    def __init__(
        self, source: Source, lasts: Sequence[Position | None], partitioner: Partitioner = consistent
    ) -> None:
        self._source = source
        self._partitioner = partitioner
        self._filter = source.selection.key_filter()
        self._lasts = list(lasts)
        """The record up to which everything is passed over; None when that is behind."""
        self._number = min(0 if last is None else last.number for last in lasts)
        self._heads: dict[int, _Head] | None = None
        self._has_records = False
        self.passed_over = 0

    async def next(self) -> list[tuple[int, Timed]] | None:
        """The next records, by target partition; None when there are no more."""
        while not self._source.is_over(self._number):
            if self._heads is None:
                sources = range(len(self._source.producer_ids))
                self._heads = {index: _Head(await self._source.read(index, 0)) for index in sources}
            window = await self._window(self._heads)
            if window is not None:
                found = self._sent(window)
                self._has_records = self._has_records or bool(found)
                if found:
                    return found
                continue
            await self.aclose()
            self._check_found()
            if not self._has_records:
                break
            self._number, self._has_records = self._number + 1, False
        return None

    async def aclose(self) -> None:
        """Close the files."""
        heads, self._heads = self._heads, None
        for head in (heads or {}).values():
            await head.aclose()

    async def _window(self, heads: dict[int, _Head]) -> _Window | None:
        """All records up to the first that ends what is in hand of a source partition; None at the end."""
        for index, head in list(heads.items()):
            if not await head.advance():
                await heads.pop(index).aclose()
        if not heads:
            return None
        bound, last = min((head.order[-1], index) for index, head in heads.items())
        window = _Window()
        for index, head in heads.items():
            find = bisect_right if index <= last else bisect_left
            stop = find(head.order, bound, head.at)
            if stop > head.at:
                window.add(index, head, stop)
        return window

    def _sent(self, window: _Window) -> list[tuple[int, Timed]]:
        """What of the window is published, by target partition."""
        order: Sequence[int] = range(len(window.order))
        if len(window.parts) > 1:  # equal ones keep their places
            order = sorted(order, key=window.order.__getitem__)
        begins = self._begins(window, order)
        if min(begins) >= len(order):
            self._note_passed_over(len(order))
            return []
        rows = window.rows()
        targets = self._targets(window, rows.get("keys") or [None] * len(order))
        kept = self._kept(window)
        groups: list[list[int]] = [[] for _ in self._lasts]
        for index in order:
            groups[targets[index]].append(index)
        sent: list[tuple[int, Timed]] = []
        ranks = self._ranks(order) if any(begins) else None
        for target, group in enumerate(groups):
            if kept is not None:
                group = [index for index in group if kept[index]]
            if ranks is not None and begins[target]:
                whole, begin = len(group), begins[target]
                group = [index for index in group if ranks[index] >= begin]
                self._note_passed_over(whole - len(group))
            if group:
                sent.append((target, self._timed(window, group, rows)))
        return sent

    def _note_passed_over(self, records: int) -> None:
        self.passed_over += records
        self._has_records = self._has_records or records > 0

    def _begins(self, window: _Window, order: Sequence[int]) -> list[int]:
        """For each target partition, the place in `order` from which on its records are published."""
        begins = []
        for target, last in enumerate(self._lasts):
            begin = 0
            if last is not None:
                begin = len(order)
                index = window.find(last) if last.number == self._number else None
                if index is not None:
                    begin = order.index(index) + 1
                    self._lasts[target] = None
            begins.append(begin)
        return begins

    @staticmethod
    def _ranks(order: Sequence[int]) -> list[int]:
        ranks = [0] * len(order)
        for rank, index in enumerate(order):
            ranks[index] = rank
        return ranks

    def _check_found(self) -> None:
        """At the end of a pass nothing that was replayed in it may be unknown."""
        for target, last in enumerate(self._lasts):
            if last is not None and last.number == self._number:
                raise RecordingInvalid(
                    f"the last record replayed into partition {target} (offset {last.offset} of partition"
                    f" {last.source}) is not in recording {self._source.recording.directory}. Nothing more was written."
                    " Check the recording with `callboard recording verify`.",
                    path=self._source.recording.directory,
                )

    def _targets(self, window: _Window, keys: list[bytes | None]) -> list[int]:
        count, choose = len(self._lasts), self._partitioner
        if choose is not consistent:
            chosen = [0 if key is None else checked(choose, key, count) for key in keys]
        else:
            chosen = [0 if key is None else consistent(key, count) for key in keys]
        if None in keys:
            # Not in turn as they come, which would depend on where reading began (S1).
            for index, key in enumerate(keys):
                if key is None:
                    turn = window.offsets[index] // STICKY_RECORDS
                    chosen[index] = (window.sources[index] + turn) % count
        return chosen

    def _kept(self, window: _Window) -> bytearray | None:
        if self._filter is None:
            return None
        kept, at = bytearray(len(window.order)), 0
        for columns, start, stop in window.parts:
            part = columns.select(start, stop)
            for first, end in self._filter.parts(part):
                kept[at + first : at + end] = b"\1" * (end - first)
            at += stop - start
        return kept

    def _timed(self, window: _Window, group: list[int], rows: Mapping[str, list[Any]]) -> Timed:
        columns = Columns.build(**{name: [column[index] for index in group] for name, column in rows.items()})
        ids = self._source.producer_ids
        number, sources, offsets = self._number, window.sources, window.offsets
        producers = [(1, ids[sources[index]], number, offsets[index]) for index in group]
        origin = self._source.line.origin(self._number)
        return Timed(columns, [window.order[index] + origin for index in group], producers)
