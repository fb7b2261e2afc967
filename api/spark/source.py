"""The Spark data source "callboard": reads recordings and topics, and writes recordings."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import trio
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from callboard.spark.arrow import arrow_schema
from callboard.spark.batches import read_batches
from callboard.spark.options import Options, ReadOptions, StreamOptions
from callboard.spark.slices import plan
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
        return SliceReader(ReadOptions.parse(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A stream of what is published to a topic."""
        from callboard.spark.streaming import StreamReader

        del schema
        return StreamReader(StreamOptions.parse(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """A new recording."""
        from callboard.spark.writing import RecordingTasks, WriteOptions

        return RecordingTasks(WriteOptions.parse(self.options, schema.names, overwrite))
