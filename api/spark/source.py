"""The Spark data source "callboard": reads recordings and topics, and writes recordings."""

from __future__ import annotations

from collections.abc import Iterator

import attrs
import pyarrow as pa
import trio
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from callboard.log.errors import InvalidArgument
from callboard.spark.arrow import FIELDS, TIMES, arrow_schema
from callboard.spark.batches import read_batches
from callboard.spark.options import SCHEMA_OPTIONS, Options, ReadOptions, StreamOptions
from callboard.spark.slices import plan
from callboard.spark.tasks import SliceTask


class SliceReader(DataSourceReader):
    """A batch read. It is planned once; tasks only need the files."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """One for each segment that holds something wanted, or more."""
        pieces = self._options.division.divide(trio.run(plan, self._options.wanted))
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
        """The columns asked for, or all. Raises `InvalidArgument` for a table of the catalog."""
        if "provider" in self.options:
            raise InvalidArgument(
                "Spark up to 4.3 forgets the options of a table of the catalog whose source is in Python, its path too,"
                " so it could not be read. Make a view: CREATE TEMPORARY VIEW name USING callboard OPTIONS (path '...',"
                " topic '...')."
            )
        given = {name: self.options[name] for name in SCHEMA_OPTIONS if name in self.options}
        found = Options(given, SCHEMA_OPTIONS)
        return from_arrow_schema(arrow_schema(found.names(), found.instants()))

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read."""
        return SliceReader(_with_schema(ReadOptions.parse(self.options), schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A stream of what is published to a topic."""
        from callboard.spark.streaming import StreamReader

        options = StreamOptions.parse(self.options)
        return StreamReader(attrs.evolve(options, reads=_with_schema(options.reads, schema)))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """A new recording."""
        from callboard.spark.writing import RecordingTasks, WriteOptions

        return RecordingTasks(WriteOptions.parse(self.options, schema.names, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Raises `InvalidArgument`: streams are read, and not written."""
        raise InvalidArgument(
            "a stream cannot be written to Callboard: a topic has one writer, its runtime, and a recording is written"
            " once. Write it in another format, or use .foreachBatch and write each batch as a recording of its own."
        )


def _with_schema(options: ReadOptions, schema: StructType) -> ReadOptions:
    """Read the columns of a schema, which may be a user's. Raises `InvalidArgument` for one that cannot be had."""
    types = {
        field.name: field.dataType.simpleString() for field in from_arrow_schema(arrow_schema(tuple(FIELDS)))
    }
    instants = set()
    for field in schema:
        found, wanted = field.dataType.simpleString(), types.get(field.name)
        if field.name in TIMES and found == "timestamp":
            instants.add(field.name)
        elif wanted is not None and found != wanted:
            raise InvalidArgument(
                f"the schema has {field.name} as {found:.60}, and it is {wanted}"
                f"{' or timestamp' if field.name in TIMES else ''}. Correct .schema(...), or leave it out and cast."
            )
    names = tuple(schema.names)
    arrow_schema(names)
    if len(set(names)) < len(names):
        raise InvalidArgument("the schema names a column twice. Name each column once.")
    return attrs.evolve(options, names=names, instants=frozenset(instants))
