"""Rows in Arrow become batches of columns, without a look at a single record. Needs no Spark.

Rows are cut into batches by their number and size alone, wherever Arrow's batches end: the same rows in the same order
are the same batches, and so the same bytes in a recording.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from callboard.log.errors import InvalidArgument, MessageTooLarge
from callboard.log.format.columns import NO_TIME, Columns, Ends, ProducerRun
from callboard.log.limits import HEADERS_BYTES_MAX, KEY_BYTES_MAX, MESSAGE_BYTES_MAX, MIB
from callboard.log.seams.disk import Buffer
from callboard.message import PRIORITY_MAX, TIME_US_MAX
from callboard.recordings.manifest import TIME_US_MIN
from callboard.spark.arrow import FIELDS, joined

BATCH_RECORDS: Final = 4_096
BATCH_BYTES: Final = 1 * MIB
IGNORED: Final = frozenset({"topic", "offset"})
"""Columns of what was read that a recording gives anew."""


def check_names(names: Iterable[str]) -> None:
    """Raise `InvalidArgument` unless rows with these columns can be written."""
    found = list(names)
    unknown = sorted(set(found) - FIELDS.keys())
    if unknown:
        raise InvalidArgument(
            f"a recording has no column {unknown[0]!r:.80}. Name what is to be written: .select('timestamp', 'key',"
            f" 'value', ...). There are {', '.join(FIELDS)}."
        )
    if "value" not in found or not {"timestamp", "append_time"} & set(found):
        raise InvalidArgument(
            "a recording needs the columns `value` and `timestamp` (microseconds since 1970). Nothing was written."
        )


def with_types(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The columns that are written, with their types. Raises `InvalidArgument` for one that cannot have its type."""
    arrays, fields = [], []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if name in IGNORED:
            continue
        arrays.append(with_type(column, name))
        fields.append(pa.field(name, FIELDS[name]))
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def with_type(column: Any, name: str) -> Any:
    """A column with its type. Raises `InvalidArgument` when it cannot have it."""
    kind = FIELDS[name]
    try:
        return column if column.type == kind else column.cast(kind)
    except pa.ArrowException as error:
        raise InvalidArgument(
            f"column `{name}` is {column.type}, and is to be {kind}: {str(error)[:100]}. Cast it."
        ) from None


def cut(pieces: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Batches of `BATCH_RECORDS`, or of fewer as soon as they have `BATCH_BYTES`.

    Raises `MessageTooLarge` for a record that could not have been published.
    """
    held: list[pa.RecordBatch] = []
    records = size_bytes = 0
    for piece in pieces:
        sizes = _row_bytes(piece)
        start = 0
        while start < piece.num_rows:
            most = min(piece.num_rows - start, BATCH_RECORDS - records)
            totals = np.cumsum(sizes[start : start + most]) + size_bytes
            count = min(int(np.searchsorted(totals, BATCH_BYTES)) + 1, most)
            held.append(piece.slice(start, count))
            records, size_bytes = records + count, int(totals[count - 1])
            start += count
            if records >= BATCH_RECORDS or size_bytes >= BATCH_BYTES:
                yield joined(held)
                held, records, size_bytes = [], 0, 0
    if held:
        yield joined(held)


def _row_bytes(batch: pa.RecordBatch) -> Any:
    """Bytes of key, value and headers, by row."""
    sizes = np.zeros(batch.num_rows, dtype=np.int64)
    limits = {"value": MESSAGE_BYTES_MAX, "key": KEY_BYTES_MAX}
    for name, limit in limits.items():
        if name in batch.schema.names:
            lengths = _numbers(pc.binary_length(batch.column(name)))
            _check_size(name, lengths, limit)
            sizes += lengths
    if "headers" in batch.schema.names:
        lengths = _header_bytes(batch.column("headers"))
        _check_size("headers", lengths, HEADERS_BYTES_MAX)
        sizes += lengths
    return sizes


def _check_size(what: str, lengths: Any, limit: int) -> None:
    longest = int(lengths.max(initial=0))
    if longest > limit:
        raise MessageTooLarge(
            f"a record's {what} has {longest} bytes, and at most {limit} are possible. Nothing was written. Leave the"
            " record out, or make it smaller.",
            size_bytes=longest,
            limit_bytes=limit,
        )


def _header_bytes(headers: Any) -> Any:
    ends = _list_ends(headers)
    pairs = headers.flatten()
    lengths = _numbers(pc.binary_length(pairs.field(0))) + _numbers(pc.binary_length(pairs.field(1)))
    totals = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths)])
    return totals[ends[1:]] - totals[ends[:-1]]


def _numbers(column: Any) -> Any:
    return pc.fill_null(column, 0).to_numpy(zero_copy_only=False).astype(np.int64)


def _list_ends(lists: Any) -> Any:
    lengths = _numbers(pc.list_value_length(lists))
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths)])


# -- one batch ---------------------------------------------------------------------------------------------------------


def to_columns(batch: pa.RecordBatch) -> Columns:
    """The batch as columns, as `Columns.build` makes them of the same records.

    Raises `InvalidArgument` for a record without a time, and for numbers out of range.
    """
    found = {name: batch.column(name) for name in batch.schema.names}
    count = batch.num_rows
    data, ends, nulls = _items(found["value"])
    columns = Columns(count, count - 1, data, ends, nulls)
    columns.keys, columns.key_ends, columns.key_nulls = _optional(found.get("key"))
    columns.dedup_ids, columns.dedup_ends, columns.dedup_nulls = _optional(found.get("dedup_id"))
    _set_headers(columns, found.get("headers"))
    _set_times(columns, found.get("timestamp"), found.get("append_time"))
    if "expiry" in found and found["expiry"].null_count < count:
        columns.expiries = _times(found["expiry"], "expiry")
    if "priority" in found and found["priority"].null_count < count:
        given = np.asarray(found["priority"].is_valid())
        priorities = _numbers(found["priority"])
        if priorities[given].min() < 0 or priorities[given].max() > PRIORITY_MAX:
            raise InvalidArgument(f"column `priority`: a priority is 0 to {PRIORITY_MAX}. Correct the rows.")
        columns.priorities = np.where(given, priorities + 1, 0).astype(np.uint8).tobytes()
    if "producer_id" in found:
        runs = _runs(
            *(_unsigned(found.get(f"producer_{name}"), count) for name in ("id", "epoch", "sequence"))
        )
        columns.producers = runs if any(run[1] for run in runs) else None
    return columns


def _items(column: Any) -> tuple[Buffer, Ends, bytes | None]:
    """Bytes, ends and nulls. A null has no bytes, whatever Arrow keeps in its place."""
    nulls = None
    if column.null_count:
        missing = pc.is_null(column).to_numpy(zero_copy_only=False)
        nulls = np.packbits(missing, bitorder="little").tobytes()
        column = pc.fill_null(column, pa.scalar(b"", column.type) if column.type == pa.binary() else "")
    _, offsets, data = column.buffers()
    ends = np.frombuffer(offsets, dtype=np.int32)[column.offset : column.offset + len(column) + 1]
    first, last = int(ends[0]), int(ends[-1])
    whole = memoryview(b"") if data is None else memoryview(data)
    return whole[first:last], array("I", (ends - first).astype(np.uint32).tobytes()), nulls


def _optional(column: Any) -> tuple[Buffer | None, Ends | None, bytes | None]:
    if column is None or column.null_count == len(column):
        return None, None, None
    return _items(column)


def _set_headers(columns: Columns, headers: Any) -> None:
    if headers is None or not len(pairs := headers.flatten()):
        return
    names, values = pairs.field(0), pairs.field(1)
    if pairs.null_count or names.null_count or values.null_count:
        raise InvalidArgument(
            "column `headers`: each has a name and a value, and none is null. Correct the rows."
        )
    columns.header_ends = array("I", _list_ends(headers).astype(np.uint32).tobytes())
    columns.header_names, columns.header_name_ends, _ = _items(names)
    columns.header_values, columns.header_value_ends, _ = _items(values)


def _set_times(columns: Columns, events: Any, appends: Any) -> None:
    """Records keep the append times that they have; without one, the batch has its first record's time."""
    if events is not None and events.null_count < len(events):
        columns.event_times = _times(events, "timestamp")
    if appends is None:
        if columns.event_times is None or NO_TIME in columns.event_times:
            raise InvalidArgument("column `timestamp`: a record has no time. Leave it out, or give it one.")
        columns.append_time_us = columns.event_times[0]
        return
    times = _times(appends, "append_time")
    if NO_TIME in times:
        raise InvalidArgument("column `append_time`: a record has none. Leave the column out, or fill it.")
    columns.append_time_us = times[0]
    if columns.event_times == times:  # as records are read that have no event time
        columns.event_times = None
    if times.count(times[0]) < len(times):
        columns.append_times = times


def _times(column: Any, name: str) -> array[int]:
    extremes = pc.min_max(column).as_py()
    if extremes["min"] is not None and not TIME_US_MIN <= extremes["min"] <= extremes["max"] <= TIME_US_MAX:
        raise InvalidArgument(
            f"column `{name}`: {extremes['min']} to {extremes['max']} are no microseconds since 1970. Correct the rows."
        )
    filled = pc.fill_null(column, NO_TIME).to_numpy(zero_copy_only=False)
    return array("q", filled.astype(np.int64).tobytes())


def _unsigned(column: Any, count: int) -> Any:
    """As unsigned 64 bits; 0 where there is none."""
    return np.zeros(count, np.uint64) if column is None else _numbers(column).view(np.uint64)


def _runs(ids: Any, epochs: Any, sequences: Any) -> list[ProducerRun]:
    """Records that one producer published in sequence are a run. Those of no producer are, too."""
    is_follower = (ids[1:] == ids[:-1]) & (
        (ids[1:] == 0) | ((epochs[1:] == epochs[:-1]) & (sequences[1:] == sequences[:-1] + np.uint64(1)))
    )
    firsts = np.concatenate([[0], np.flatnonzero(~is_follower) + 1])
    counts: Any = np.diff(np.append(firsts, len(ids)))
    return [
        (int(many), int(ids[first]), int(epochs[first]), int(sequences[first]))
        if ids[first]
        else (int(many), 0, 0, 0)
        for first, many in zip(firsts, counts, strict=True)
    ]
