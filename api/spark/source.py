"""The Spark data source "callboard": reads recordings and topics, and writes recordings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import attrs
import pyarrow as pa
import trio
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from callboard.recordings.reader import Span
from callboard.spark.arrow import arrow_schema
from callboard.spark.batches import read_batches
from callboard.spark.options import Options, ReadOptions, StreamOptions
from callboard.spark.slices import Wanted, plan
from callboard.spark.tasks import SliceTask


class SliceReader(DataSourceReader):
    """A batch read. It is planned once; tasks only need the files."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """One for each segment that holds something wanted."""
        pieces = trio.run(plan, self._options.wanted)
        return [SliceTask(piece) for piece in pieces] or [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one slice."""
        if isinstance(partition, SliceTask):
            yield from read_batches(self._options, partition.piece)


class PushingReader(SliceReader):
    """The same, for sessions with `spark.sql.python.filterPushdown.enabled`: filters choose partitions and segments.

    All filters are given back, so Spark applies them to every row as well.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Narrow what is wanted by the filters that name `partition`, `offset` or `append_time`."""
        wanted = self._options.wanted
        for each in filters:
            wanted = narrowed(wanted, each)
        self._options = attrs.evolve(self._options, wanted=wanted)
        return filters


def narrowed(wanted: Wanted, found: Filter) -> Wanted:
    """What is left of `wanted` under a filter, as far as that can be told."""
    attribute = getattr(found, "attribute", None)
    value = getattr(found, "value", None)
    if attribute == ("partition",):
        if isinstance(found, EqualTo) and type(value) is int:
            return _only(wanted, {value})
        if isinstance(found, In) and all(type(each) is int for each in value or ()):
            return _only(wanted, set(value or ()))
    if type(value) is not int:
        return wanted
    start = stop = None
    if isinstance(found, (GreaterThan, GreaterThanOrEqual, EqualTo)):
        start = value + isinstance(found, GreaterThan)
    if isinstance(found, (LessThan, LessThanOrEqual, EqualTo)):
        stop = value + (not isinstance(found, LessThan))
    if attribute == ("offset",):
        stops = [each for each in (stop, wanted.stop_offset) if each is not None]
        least = None if not stops else max(min(stops), 0)
        return attrs.evolve(wanted, start_offset=max(wanted.start_offset, start or 0), stop_offset=least)
    if attribute == ("append_time",) and start is not None:
        known = wanted.appended
        from_us = start if known.from_us is None else max(start, known.from_us)
        if known.to_us is None or from_us < known.to_us:
            return attrs.evolve(wanted, appended=Span(from_us, known.to_us))
    return wanted


def _only(wanted: Wanted, partitions: set[int]) -> Wanted:
    """Those of `partitions` that are wanted; a filter may name some that are not there."""
    left = frozenset(partitions) if wanted.partitions is None else wanted.partitions & partitions
    return attrs.evolve(wanted, partitions=left, is_filtered=True)


class CallboardSource(DataSource):
    """`spark.read.format("callboard")` and the like. See docs/how-to/read-from-spark.md for the options."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "callboard"

    def schema(self) -> StructType:
        """The columns asked for, or all."""
        return from_arrow_schema(arrow_schema(self._names()))

    def _names(self) -> tuple[str, ...]:
        names = self.options.get("columns")
        return Options({} if names is None else {"columns": names}, frozenset({"columns"})).names()

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read."""
        del schema
        options = ReadOptions.parse(self.options)
        return PushingReader(options) if options.is_pushing else SliceReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A stream of what is published to a topic."""
        from callboard.spark.streaming import StreamReader

        del schema
        return StreamReader(StreamOptions.parse(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """A new recording."""
        from callboard.spark.writing import RecordingTasks, WriteOptions

        return RecordingTasks(WriteOptions.parse(self.options, schema.names, overwrite))
