"""What a replay reads: the records of a recording in order, with their times and where they come from.

With equal numbers of partitions there is a `ReplayLane` for each: batches are copied as they are. Else a `Merger`
(`merging`) brings the records of all source partitions into one order, and keys decide where each goes.

Both read bounded parts: `READ_BYTES_ALL` in all source partitions together, and at least `READ_BYTES_LEAST` in each.

Invariants
----------
RS1  What comes out for one target partition depends on recording and selection, not on where reading began, nor on how
     it was cut into parts: everything behind a position, once.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from contextlib import suppress
from itertools import accumulate
from typing import Final

import attrs

from callboard.log.format.columns import NO_TIME, Columns, ProducerRun
from callboard.log.limits import KIB, MIB
from callboard.recordings.reader import RecordedBatches, Recording
from callboard.recordings.tally import times_of
from callboard.replay.joining import joined, published_again
from callboard.replay.pacing import NUMBER_US, TimeLine
from callboard.replay.positions import ReplayId, ReplayPosition, Selection

PART_RECORDS: Final = 8_192
PART_BYTES: Final = 1 * MIB
"""Batches are joined up to this many records, or bytes."""
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
class ReplaySource:
    """What is replayed: a recording, which records of it, how often, and how they are marked."""

    recording: Recording
    selection: Selection
    line: TimeLine
    passes: int | None
    """None: for ever."""
    producer_ids: Sequence[int]
    """Of the source partitions."""
    numbered: int | None = None
    """When records are due by their number in the order of time, how many a pass has. Positions are numbers then,
    times `pacing.NUMBER_US`."""

    @property
    def part_bytes(self) -> int:
        """How much of one partition is read at a time."""
        return max(READ_BYTES_LEAST, min(PART_BYTES, READ_BYTES_ALL // len(self.producer_ids)))

    def is_over(self, number: int) -> bool:
        """Whether there is no pass of that number."""
        return self.passes is not None and number >= self.passes

    async def read(self, source: int, start: int) -> Parts:
        """The records of a source partition from an offset on."""
        span = self.selection.span
        batches = await self.recording.read(source, start=start, span=span, read_bytes=self.part_bytes)
        return Parts(batches, self.part_bytes)


def source_of(
    recording: Recording,
    selection: Selection,
    passes: int | None,
    topic_id: str,
    *,
    numbered: int | None = None,
) -> ReplaySource:
    """What is replayed into the topic of that id."""
    manifest, span = recording.manifest, selection.span
    first, last = manifest.first_time_us or 0, manifest.last_time_us or 0
    first = first if span.from_us is None else max(first, span.from_us)
    last = last if span.to_us is None else min(last, span.to_us)
    return ReplaySource(
        recording=recording,
        selection=selection,
        line=TimeLine(first, max(1, last - first)) if numbered is None else TimeLine(0, numbered * NUMBER_US),
        passes=passes,
        numbered=numbered,
        producer_ids=ReplayId(manifest.digest, topic_id, selection).producer_ids(len(manifest.partitions)),
    )


class Parts:
    """Batches in handfuls: none is cut, small ones come together."""

    def __init__(self, batches: RecordedBatches, size_bytes: int) -> None:
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


class ReplayLane:
    """One source partition on its way into the target partition of the same number, from behind `last` on."""

    def __init__(self, source: ReplaySource, index: int, last: ReplayPosition | None) -> None:
        self._source = source
        self._index = index
        self._filter = source.selection.record_filter()
        self._number = 0 if last is None else last.number
        self._start = 0 if last is None else last.offset + 1
        self._parts: Parts | None = None
        self.passed_over = 0
        """It reads nothing that was published."""
        self._has_records = last is not None
        """Whether this pass has any; a pass without ends the lane."""
        self._latest = -(2**63)

    async def next(self) -> list[tuple[int, Timed]] | None:
        """The next records, with the target partition; None when there are no more."""
        while not self._source.is_over(self._number):
            if self._parts is None:
                self._parts = await self._source.read(self._index, self._start)
            batches = await self._parts.next()
            timed = self._timed(batches)
            if timed is not None:
                self._has_records = True
                return [(self._index, timed)]
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
        columns = attrs.evolve(published_again(parts[0]), base_offset=0) if is_view else joined(parts)
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
