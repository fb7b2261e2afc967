"""The Spark data source "callboard": reads recordings and topics."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Final

import attrs
import pyarrow as pa
import trio
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
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

from callboard.log.errors import InvalidArgument
from callboard.message import to_us
from callboard.spark.arrow import FIELDS, arrow_schema, to_arrow
from callboard.spark.files import make_folders, told, write_text
from callboard.spark.slices import Slice, Wanted, plan, read_slice

ROWS: Final = 4_096
"""Smaller frames are put together: with few rows a batch, what Spark does for each batch costs most of the time."""
OPTIONS: Final = frozenset(
    {"path", "topic", "columns", "partitions", "startoffset", "endoffset", "from", "to", "mode", "report"}
    | {"pushdown"}
)


@attrs.frozen(kw_only=True)
class ReadOptions:
    """What `.option(...)` asks for, checked."""

    wanted: Wanted
    names: tuple[str, ...]
    from_us: int | None = None
    to_us: int | None = None
    report: str | None = None
    """In permissive mode: the folder in which each task names what it could not read."""
    is_pushing: bool = False

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> ReadOptions:
        """From Spark's options, whose names are not case-sensitive. Raises `InvalidArgument`."""
        found = {name.lower(): value for name, value in options.items()}
        unknown = sorted(found.keys() - OPTIONS)
        if unknown:
            raise InvalidArgument(
                f"there is no option {unknown[0]!r}. There are {', '.join(sorted(OPTIONS))}."
            )
        if not found.get("path"):
            raise InvalidArgument("name the recording, or the runtime's directory: .load(path).")
        mode = found.get("mode", "strict")
        if mode not in ("strict", "permissive"):
            raise InvalidArgument(f"mode is {mode!r:.40}: it is strict (the default) or permissive.")
        report = found.get("report")
        if (report is not None) != (mode == "permissive"):
            raise InvalidArgument(
                "mode permissive passes over what is damaged, and names it in files: give it a folder for them,"
                " .option('report', ...); in mode strict there is no report."
            )
        partitions = found.get("partitions")
        stop = found.get("endoffset")
        return cls(
            wanted=Wanted(
                path=found["path"],
                topic=found.get("topic"),
                partitions=None
                if partitions is None
                else frozenset(_number("partitions", text) for text in partitions.split(",")),
                start_offset=_number("startOffset", found.get("startoffset", "0")),
                stop_offset=None if stop is None else _number("endOffset", stop),
            ),
            names=tuple(name.strip() for name in found.get("columns", ",".join(FIELDS)).split(",")),
            from_us=_instant("from", found.get("from")),
            to_us=_instant("to", found.get("to")),
            report=report,
            is_pushing=found.get("pushdown", "false").lower() == "true",
        )


def _number(name: str, text: str) -> int:
    if not (text.strip().isascii() and text.strip().isdecimal() and len(text) < 20):
        raise InvalidArgument(f"option {name}: {text!r:.40} is no number from 0 on.")
    return int(text)


def _instant(name: str, text: str | None) -> int | None:
    if text is None:
        return None
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidArgument(
            f"option {name}: {text!r:.40} is no instant such as 2026-11-21T12:00:00+00:00."
        ) from None
    return to_us(instant if instant.tzinfo is not None else instant.replace(tzinfo=UTC))


class SlicePartition(InputPartition):
    """One task: a slice."""

    def __init__(self, piece: Slice) -> None:
        self.piece = piece


class SliceReader(DataSourceReader):
    """A batch read. It is planned once; tasks only need the files."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """One for each segment that holds something wanted."""
        pieces = trio.run(plan, self._options.wanted)
        return [SlicePartition(piece) for piece in pieces] or [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one slice."""
        if isinstance(partition, SlicePartition):
            yield from read_batches(self._options, partition.piece)


class PushingReader(SliceReader):
    """The same, for sessions with `spark.sql.python.filterPushdown.enabled`: filters choose partitions and segments.

    All filters are given back, so Spark applies them to every row as well.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Narrow what is wanted by the filters that name `partition` or `offset`."""
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
    if attribute == ("offset",) and type(value) is int:
        if isinstance(found, (GreaterThan, GreaterThanOrEqual, EqualTo)):
            start = value + isinstance(found, GreaterThan)
            wanted = attrs.evolve(wanted, start_offset=max(wanted.start_offset, start))
        if isinstance(found, (LessThan, LessThanOrEqual, EqualTo)):
            stop = value + (not isinstance(found, LessThan))
            stop = stop if wanted.stop_offset is None else min(stop, wanted.stop_offset)
            wanted = attrs.evolve(wanted, stop_offset=max(stop, 0))
    return wanted


def _only(wanted: Wanted, partitions: set[int]) -> Wanted:
    """Those of `partitions` that are wanted; a filter may name some that are not there."""
    left = frozenset(partitions) if wanted.partitions is None else wanted.partitions & partitions
    return attrs.evolve(wanted, partitions=left, is_filtered=True)


def read_batches(options: ReadOptions, piece: Slice) -> Iterator[pa.RecordBatch]:
    """The rows of a slice as record batches of some thousand rows."""
    lost: list[tuple[int, int]] = []
    schema = arrow_schema(options.names)
    is_timed = options.from_us is not None or options.to_us is not None
    if is_timed and "timestamp" not in options.names:
        read_schema = arrow_schema((*options.names, "timestamp"))
    else:
        read_schema = schema
    note = None if options.report is None else lambda first, last: lost.append((first, last))
    gathered: list[pa.RecordBatch] = []
    rows = 0
    for columns in read_slice(piece, note):
        batch = to_arrow(columns, (piece.topic, piece.partition), read_schema)
        if is_timed:
            batch = _within(batch, options.from_us, options.to_us).select(list(options.names))
        if batch.num_rows:
            gathered.append(batch)
            rows += batch.num_rows
        if rows >= ROWS:
            yield _joined(gathered)
            gathered, rows = [], 0
    if gathered:
        yield _joined(gathered)
    if lost and options.report is not None:
        with told(f"naming what is damaged in {options.report}"):
            make_folders(options.report)
            name = f"{piece.topic}-{piece.partition}-{piece.start}.json"
            found = {"topic": piece.topic, "partition": piece.partition, "path": piece.path, "lost": lost}
            write_text(f"{options.report}/{name}", json.dumps(found) + "\n")


def _within(batch: pa.RecordBatch, from_us: int | None, to_us: int | None) -> pa.RecordBatch:
    times = batch.column("timestamp").to_numpy()
    mask = times == times
    if from_us is not None:
        mask &= times >= from_us
    if to_us is not None:
        mask &= times < to_us
    return batch if mask.all() else batch.filter(pa.array(mask))


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


class CallboardSource(DataSource):
    """`spark.read.format("callboard")`. See docs/how-to/read-from-spark.md for the options."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "callboard"

    def _parsed(self) -> ReadOptions:
        return ReadOptions.parse(self.options)

    def schema(self) -> StructType:
        """The columns asked for, or all."""
        return from_arrow_schema(arrow_schema(self._parsed().names))

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read."""
        del schema
        options = self._parsed()
        return PushingReader(options) if options.is_pushing else SliceReader(options)
