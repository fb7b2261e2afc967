"""All source partitions of a recording brought into one order, and dealt to target partitions: by key, or one to one.

The order depends on the recording alone: by time (or that of an earlier record of its partition, if that was later),
then by source partition, then by offset. It is made window by window: what is in hand of all source partitions, up to
the first record that ends what is in hand of one of them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, chain, repeat
from typing import Any, Final, cast
from zlib import crc32

import attrs

from callboard.log.errors import RecordingInvalid
from callboard.log.format.columns import Columns
from callboard.publishing.columns import taker
from callboard.publishing.partitioning import STICKY_RECORDS, Partitioner, checked, consistent
from callboard.recordings.copying import RecordFilter
from callboard.replay.joining import joined, published_again
from callboard.replay.pacing import NUMBER_US
from callboard.replay.positions import ReplayPosition
from callboard.replay.sources import Parts, ReplaySource, Timed, times_in


def _each(one: Callable[[Columns, int], Any]) -> Callable[[Columns, int, int], list[Any]]:
    return lambda columns, start, stop: [one(columns, index) for index in range(start, stop)]


COLUMNS: Final[dict[str, tuple[str, Callable[[Columns, int, int], Sequence[Any]]]]] = {
    "values": ("values", Columns.value_list),
    "keys": ("keys", Columns.key_list),
    "headers": ("header_ends", Columns.header_list),
    "priorities": ("priorities", _each(Columns.priority)),
    "ttls": ("ttls", lambda columns, start, stop: (columns.ttls or [None] * columns.count)[start:stop]),
    "dedup_ids": ("dedup_ids", _each(Columns.dedup_id)),
}
"""As `Columns.build` calls them: which attribute says that there are any, and how to list them."""


class _Head:
    """How far one source partition has been read in a pass."""

    def __init__(self, parts: Parts, chosen: RecordFilter | None) -> None:
        self._parts = parts
        self._chosen = chosen
        self.columns = Columns.build([])
        self.times: Sequence[int] = ()
        self.offsets: Sequence[int] = ()
        self.order: list[int] = []
        """Each record's time, or an earlier one's that was later."""
        self.kept = bytearray()
        """Whether each record is replayed; empty when all are."""
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
        self.kept = bytearray() if self._chosen is None else _kept(batches, self._chosen)
        self.columns = published_again(batches[0]) if len(batches) == 1 else joined(batches)
        self.order = list(accumulate(self.times, max, initial=latest))[1:]
        self.at = 0
        return True

    async def aclose(self) -> None:
        """Close the files."""
        await self._parts.aclose()


def _kept(batches: Sequence[Columns], chosen: RecordFilter) -> bytearray:
    found = bytearray()
    for batch in batches:
        part = bytearray(batch.count)
        for first, stop in chosen.parts(batch):
            part[first:stop] = b"\1" * (stop - first)
        found += part
    return found


@attrs.define(eq=False)
class _Window:
    """Records of several source partitions, one list for each column, in no order yet."""

    sources: list[int] = attrs.Factory(list)
    offsets: list[int] = attrs.Factory(list)
    order: list[int] = attrs.Factory(list)
    parts: list[tuple[Columns, int, int]] = attrs.Factory(list)
    times: list[int] = attrs.Factory(list)
    kept: bytearray = attrs.Factory(bytearray)
    """Empty when all are."""

    def add(self, source: int, head: _Head, stop: int) -> None:
        """Take the records of a head up to `stop`."""
        start, head.at = head.at, stop
        self.sources += [source] * (stop - start)
        self.offsets += head.offsets[start:stop]
        self.order += head.order[start:stop]
        self.times += head.times[start:stop]
        self.kept += head.kept[start:stop]
        self.parts.append((head.columns, start, stop))

    def rows(self) -> dict[str, list[Any]]:
        """The records' columns as lists, by the names of `Columns.build`; those that some record has."""
        found: dict[str, list[Any]] = {"event_times": self.times}
        for name, (column, take) in COLUMNS.items():
            if any(getattr(columns, column) is not None for columns, _, _ in self.parts):
                parts = [take(columns, start, stop) for columns, start, stop in self.parts]
                found[name] = list(chain.from_iterable(parts))
        return found

    def find(self, position: ReplayPosition) -> int | None:
        """The index of a record, if it is here."""
        low = bisect_left(self.sources, position.source)
        high = bisect_right(self.sources, position.source)
        index = bisect_left(self.offsets, position.offset, low, high)
        return index if index < high and self.offsets[index] == position.offset else None


class Merger:
    """All source partitions on their way into `len(lasts)` target partitions, each from behind its last record."""

    def __init__(
        self,
        source: ReplaySource,
        lasts: Sequence[ReplayPosition | None],
        partitioner: Partitioner = consistent,
        *,
        is_raw: bool = False,
    ) -> None:
        self._source = source
        self._partitioner = partitioner
        self._is_raw = is_raw
        """Whether each record goes to the partition that it comes from."""
        self._filter = source.selection.record_filter()
        self._lasts = list(lasts)
        """The record up to which everything is passed over; None when that is behind."""
        self._number = min(0 if last is None else last.number for last in lasts)
        self._count = self._number * (source.numbered or 0)
        """Records before the next one, where they are numbered."""
        self._heads: dict[int, _Head] | None = None
        self._has_records = False
        self.passed_over = 0

    async def next(self) -> list[tuple[int, Timed]] | None:
        """The next records, by target partition; None when there are no more."""
        while not self._source.is_over(self._number):
            if self._heads is None:
                sources = range(len(self._source.producer_ids))
                self._heads = {
                    index: _Head(await self._source.read(index, 0), self._filter) for index in sources
                }
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
        kept = window.kept if self._filter is not None else None
        positions = self._positions(window, order, kept)
        begins = self._begins(window, order)
        if min(begins) >= len(order):
            self._note_passed_over(len(order))
            return []
        rows = window.rows()
        targets = self._targets(window, rows)
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
                sent.append((target, self._timed(window, group, rows, positions)))
        return sent

    def _positions(self, window: _Window, order: Sequence[int], kept: bytearray | None) -> Sequence[int]:
        """On the replay's time line, of each record of the window."""
        if self._source.numbered is None:
            origin = self._source.line.origin(self._number)
            return [time + origin for time in window.order]
        positions = [0] * len(order)
        for index in order if kept is None else filter(kept.__getitem__, order):
            positions[index] = self._count * NUMBER_US
            self._count += 1
        return positions

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

    def _targets(self, window: _Window, rows: Mapping[str, list[Any]]) -> list[int]:
        if self._is_raw:
            return window.sources
        keys: list[bytes | None] = rows.get("keys") or [None] * len(window.sources)
        count, choose = len(self._lasts), self._partitioner
        if choose is not consistent:
            chosen = [0 if key is None else checked(choose, key, count) for key in keys]
        elif None in keys:
            chosen = [0 if key is None else consistent(key, count) for key in keys]
        else:  # the same, without a call in Python for each
            return [number % count for number in map(crc32, cast("list[bytes]", keys))]
        if None in keys:
            # Not in turn as they come, which would depend on where reading began (RS1).
            for index, key in enumerate(keys):
                if key is None:
                    turn = window.offsets[index] // STICKY_RECORDS
                    chosen[index] = (window.sources[index] + turn) % count
        return chosen

    def _timed(
        self, window: _Window, group: list[int], rows: Mapping[str, list[Any]], positions: Sequence[int]
    ) -> Timed:
        take = taker(group)
        columns = Columns.build(**{name: take(column) for name, column in rows.items()})
        ids = map(self._source.producer_ids.__getitem__, take(window.sources))
        producers = list(zip(repeat(1), ids, repeat(self._number), take(window.offsets), strict=False))
        return Timed(columns, take(positions), producers)
