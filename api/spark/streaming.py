"""A stream of what is published to a topic: `spark.readStream.format("callboard")`.

Spark keeps the stream's positions in its checkpoint, as JSON: the topic's id, and for each partition the offset below
which everything was read. A stream that is started again goes on there. A topic of the same name with another id is
another topic, and is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import attrs
import pyarrow as pa
import trio
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from callboard.log.errors import InvalidArgument, OffsetOutOfRange, TopicNotFound
from callboard.log.limits import OFFSET_MAX
from callboard.spark.batches import read_batches
from callboard.spark.loss_report import LossReport
from callboard.spark.options import END, StreamOptions
from callboard.spark.partition_logs import partition_logs
from callboard.spark.slices import Slice, plan
from callboard.spark.tasks import SliceTask

ID: Final = "id"
OFFSETS: Final = "offsets"
Positions = dict[int, int]
"""By partition: the next offset to read."""


@attrs.frozen
class Extent:
    """What a topic, or a recording, holds: by partition the first offset, and the end."""

    identity: str
    partitions: dict[int, tuple[int, int]]


def advance(start: Mapping[int, int], extent: Extent, records_max: int | None) -> Positions:
    """How far the next micro-batch reads: to the end, or this many records on.

    Partitions get equal shares, and what one does not need goes to the others; so the sum is as large as can be.
    """
    ahead = {
        partition: max(0, end - max(first, start.get(partition, 0)))
        for partition, (first, end) in extent.partitions.items()
    }
    shares = ahead if records_max is None else _shares(ahead, records_max)
    return {
        partition: max(first, start.get(partition, 0)) + shares[partition]
        if shares[partition]
        else start.get(partition, 0)
        for partition, (first, _) in extent.partitions.items()
    }


def _shares(wanted: Mapping[int, int], total: int) -> dict[int, int]:
    shares: dict[int, int] = {}
    left = total
    for place, partition in enumerate(sorted(wanted, key=lambda each: (wanted[each], each))):
        shares[partition] = min(wanted[partition], -(-left // (len(wanted) - place)))
        left -= shares[partition]
    return shares


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The stream. Positions go to Spark and back as `{"id": ..., "offsets": {"0": ..., ...}}`."""

    def __init__(self, options: StreamOptions) -> None:
        self._options = options
        self._bound: Extent | None = None
        """Where a query ends that is to read what is there now, and no more."""

    def prepareForTriggerAvailableNow(self) -> None:
        """What is published from now on is for another query."""
        self._bound = trio.run(self._extent)

    def initialOffset(self) -> dict[str, Any]:
        """Where a new query begins."""
        extent = trio.run(self._extent)
        if self._options.appended_from_us is not None:
            return _encoded(extent.identity, trio.run(self._offsets_at, self._options.appended_from_us))
        unknown = sorted(self._options.starts.keys() - extent.partitions.keys())
        if unknown:
            raise InvalidArgument(
                f"startOffset names partition {unknown[0]}, which is not read. Read are"
                f" {', '.join(map(str, extent.partitions))}."
            )
        begin = {
            each: self._options.starts.get(each, self._options.start_offset) for each in extent.partitions
        }
        return _encoded(
            extent.identity,
            {
                partition: end if begin[partition] == END else min(max(begin[partition], first), end)
                for partition, (first, end) in extent.partitions.items()
            },
        )

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """How far the next micro-batch reads."""
        extent = self._bound or trio.run(self._extent)
        records_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        begin = self._positions(start, extent.identity)
        return _encoded(extent.identity, advance(begin, extent, records_max))

    def reportLatestOffset(self) -> dict[str, Any]:
        """How far there is something to read, which Spark shows as `latestOffset` in a query's progress."""
        extent = trio.run(self._extent)
        return _encoded(extent.identity, {each: end for each, (_, end) in extent.partitions.items()})

    def getDefaultReadLimit(self) -> ReadLimit:
        """Of `maxRecordsPerTrigger`; without it, all there is."""
        records_max = self._options.records_max
        return ReadAllAvailable() if records_max is None else ReadMaxRows(records_max)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The slices between two positions. Raises `OffsetOutOfRange` when retention has removed some of it."""
        pieces = self._options.reads.division.divide(trio.run(self._plan, start, end))
        return [SliceTask(piece) for piece in pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one slice."""
        if isinstance(partition, SliceTask):
            yield from read_batches(self._options.reads, partition.piece)

    async def _extent(self) -> Extent:
        wanted = self._options.reads.wanted
        async with partition_logs(wanted) as logs:
            found: dict[int, tuple[int, int]] = {}
            for partition in logs.wanted(wanted):
                async with logs.reader(partition) as reader:
                    found[partition] = reader.start_offset, reader.visible_end
            return Extent(logs.identity, found)

    async def _offsets_at(self, time_us: int) -> Positions:
        """In each partition the first offset that the log took at a time, or later."""
        wanted = self._options.reads.wanted
        async with partition_logs(wanted) as logs:
            found: Positions = {}
            for partition in logs.wanted(wanted):
                async with logs.reader(partition) as reader:
                    found[partition] = await reader.offset_at(time_us)
            return found

    async def _plan(self, start: dict[str, Any], end: dict[str, Any]) -> list[Slice]:
        extent = await self._extent()
        begin, stop = (self._positions(each, extent.identity) for each in (start, end))
        slices: list[Slice] = []
        for partition, (first, _) in extent.partitions.items():
            low, high = begin.get(partition, 0), stop.get(partition, 0)
            if low >= high:
                continue
            if low < first:
                self._pass_over(partition, low, min(first, high) - 1, extent)
            wanted = attrs.evolve(
                self._options.reads.wanted,
                partitions=frozenset({partition}),
                start_offset=low,
                stop_offset=high,
            )
            slices += await plan(wanted)
        return slices

    def _pass_over(self, partition: int, first: int, last: int, extent: Extent) -> None:
        """Name the offsets that retention removed. Raises `OffsetOutOfRange` if the read may not pass over them."""
        losses = self._options.reads.losses
        if not losses.passes_removed:
            start, end = extent.partitions[partition]
            raise OffsetOutOfRange(
                f"{self._name}/{partition}: retention removed offsets {first} to {last} before the stream read them."
                " Begin a new query with another checkpoint, or go on behind them with"
                " .option('failOnDataLoss', 'false'). Let the topic keep more (retention_age, retention_bytes).",
                offset=first,
                start=start,
                end=end,
            )
        if losses.report is not None:
            LossReport(
                topic=self._name,
                partition=partition,
                start=first,
                path=self._options.reads.wanted.path,
                removed=[(first, last)],
            ).write(losses.report)

    @property
    def _name(self) -> str:
        wanted = self._options.reads.wanted
        return wanted.topic or wanted.path

    def _positions(self, stored: Mapping[str, Any], identity: str) -> Positions:
        """What Spark kept. Raises `TopicNotFound` when it is of another topic, `InvalidArgument` when it is none."""
        offsets = stored.get(OFFSETS)
        try:
            if not isinstance(offsets, dict) or not all(0 <= each <= OFFSET_MAX for each in offsets.values()):
                raise ValueError
            positions = {int(partition): offset for partition, offset in offsets.items()}
        except (TypeError, ValueError):
            raise InvalidArgument(
                f"the stream's checkpoint holds no positions of Callboard: {str(stored)[:100]}. Begin with a new one."
            ) from None
        if stored.get(ID) != identity:
            raise TopicNotFound(
                f"{self._name} is not what the stream's checkpoint is about: it was deleted and made anew since."
                " Begin a new query with another checkpoint.",
                topic=self._name,
            )
        return positions


def _encoded(identity: str, positions: Positions) -> dict[str, Any]:
    return {ID: identity, OFFSETS: {str(partition): offset for partition, offset in positions.items()}}
