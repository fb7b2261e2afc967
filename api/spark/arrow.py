"""Batches of columns as Arrow record batches: the columns' bytes are shared, no record is looked at by Python."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from callboard.log.errors import InvalidArgument
from callboard.log.format.columns import NO_TIME, Columns, Ends
from callboard.log.seams.disk import Buffer

HEADERS: Final = pa.list_(
    pa.field("element", pa.struct([pa.field("name", pa.string()), pa.field("value", pa.binary())]))
)
FIELDS: Final = {
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.int64(),
    "append_time": pa.int64(),
    "key": pa.binary(),
    "value": pa.binary(),
    "headers": HEADERS,
    "priority": pa.int32(),
    "expiry": pa.int64(),
    "dedup_id": pa.binary(),
    "producer_id": pa.int64(),
    "producer_epoch": pa.int32(),
    "producer_sequence": pa.int64(),
}
"""The columns of a frame by name, in order; times are microseconds since 1970."""
TIMES: Final = frozenset({"timestamp", "append_time", "expiry"})
"""The columns that may be instants instead of numbers."""
INSTANT: Final = pa.timestamp("us", tz="UTC")
COUNT, PRODUCER_ID, PRODUCER_EPOCH, FIRST_SEQUENCE = range(4)
"""The fields of a `ProducerRun`."""
Place = tuple[str, int]
"""A topic and a partition."""


def arrow_schema(names: Sequence[str], instants: Collection[str] = ()) -> pa.Schema:
    """The Arrow schema of these columns, some perhaps as instants. Raises `InvalidArgument` for an unknown name."""
    unknown = [name for name in names if name not in FIELDS]
    if unknown or not names:
        raise InvalidArgument(
            f"there is no column {unknown[0] if unknown else ''!r}. There are {', '.join(FIELDS)}."
        )
    return pa.schema([pa.field(name, INSTANT if name in instants else FIELDS[name]) for name in names])


def with_instants(batch: pa.RecordBatch, instants: Collection[str]) -> pa.RecordBatch:
    """The same rows, with these columns as instants."""
    for at, name in enumerate(batch.schema.names):
        if name in instants:
            batch = batch.set_column(at, name, batch.column(at).cast(INSTANT))
    return batch


def to_arrow(columns: Columns, place: Place, schema: pa.Schema) -> pa.RecordBatch:
    """One record batch with the columns of `schema`."""
    arrays = _Arrays(columns, place)
    return pa.RecordBatch.from_arrays([getattr(arrays, field.name)() for field in schema], schema=schema)


def joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """One batch with the rows of all; below 2 GiB of bytes in each column."""
    if len(batches) == 1:
        return batches[0]
    (whole,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return whole


class _Arrays:
    """Makes each column of one batch; the methods have the columns' names."""

    def __init__(self, columns: Columns, place: Place) -> None:
        self._columns = columns
        self._place = place
        self._count = columns.count

    def topic(self) -> Any:
        return pa.repeat(pa.scalar(self._place[0], pa.string()), self._count)

    def partition(self) -> Any:
        return pa.repeat(pa.scalar(self._place[1], pa.int32()), self._count)

    def offset(self) -> Any:
        base, deltas = self._columns.base_offset, self._columns.offset_deltas
        if deltas is None:
            return pa.array(np.arange(base, base + self._count, dtype=np.int64))
        return pa.array(np.asarray(deltas, dtype=np.int64) + base)

    def timestamp(self) -> Any:
        events = self._columns.event_times
        if events is None:
            return self.append_time()
        times = np.asarray(events, dtype=np.int64)
        missing = times == NO_TIME
        if missing.any():
            times = np.where(missing, self._append_times(), times)
        return pa.array(times)

    def append_time(self) -> Any:
        return pa.array(self._append_times())

    def _append_times(self) -> Any:
        times = self._columns.append_times
        if times is None:
            return np.full(self._count, self._columns.append_time_us, dtype=np.int64)
        return np.asarray(times, dtype=np.int64)

    def key(self) -> Any:
        columns = self._columns
        return self._optional(columns.keys, columns.key_ends, columns.key_nulls, pa.binary())

    def value(self) -> Any:
        columns = self._columns
        return _items(columns.values, columns.value_ends, columns.value_nulls, self._count, pa.binary())

    def headers(self) -> Any:
        columns = self._columns
        if columns.header_ends is None:
            offsets = pa.array(np.zeros(self._count + 1, dtype=np.int32))
        else:
            offsets = pa.array(_offsets(columns.header_ends))
        (names, name_ends), (values, value_ends) = columns.header_columns()
        count = len(name_ends) - 1
        pairs = pa.StructArray.from_arrays(
            [
                _items(names, name_ends, None, count, pa.string()),
                _items(values, value_ends, None, count, pa.binary()),
            ],
            fields=list(HEADERS.value_type),
        )
        return pa.ListArray.from_arrays(offsets, pairs, type=HEADERS)

    def priority(self) -> Any:
        priorities = self._columns.priorities
        if priorities is None:
            return pa.nulls(self._count, pa.int32())
        stored = np.frombuffer(priorities, dtype=np.uint8).astype(np.int32)
        return pa.array(stored - 1, mask=stored == 0)

    def expiry(self) -> Any:
        expiries = self._columns.expiries
        if expiries is None:
            return pa.nulls(self._count, pa.int64())
        times = np.asarray(expiries, dtype=np.int64)
        return pa.array(times, mask=times == NO_TIME)

    def dedup_id(self) -> Any:
        columns = self._columns
        return self._optional(columns.dedup_ids, columns.dedup_ends, columns.dedup_nulls, pa.binary())

    def producer_id(self) -> Any:
        return self._of_producers(PRODUCER_ID, np.int64)

    def producer_epoch(self) -> Any:
        return self._of_producers(PRODUCER_EPOCH, np.int32)

    def producer_sequence(self) -> Any:
        return self._of_producers(FIRST_SEQUENCE, np.int64)

    def _of_producers(self, field: int, kind: Any) -> Any:
        """One field of each record's producer. Within a run, the sequence rises by one from record to record."""
        runs = self._columns.producers
        if runs is None:
            return pa.nulls(self._count, pa.from_numpy_dtype(kind))
        counts = [run[COUNT] for run in runs]
        found: Any = np.repeat(np.array([run[field] for run in runs], dtype=np.uint64), counts)
        if field == FIRST_SEQUENCE:
            firsts: Any = np.repeat(np.cumsum([0, *counts[:-1]]), counts)
            found += (np.arange(self._count) - firsts).astype(np.uint64)
        missing: Any = np.repeat([not run[PRODUCER_ID] for run in runs], counts)
        # Spark has no unsigned numbers: from 2**63 on they come out negative, with the same 64 bits.
        return pa.array(found.view(np.int64).astype(kind), mask=missing)

    def _optional(self, data: Buffer | None, ends: Ends | None, nulls: Buffer | None, kind: Any) -> Any:
        if data is None or ends is None:
            return pa.nulls(self._count, kind)
        return _items(data, ends, nulls, self._count, kind)


def _offsets(ends: Ends) -> Any:
    """Ends are unsigned and Arrow's offsets are signed; below 2 GiB, which is above a frame's limit, they are alike."""
    return np.asarray(ends, dtype=np.uint32).view(np.int32)


def _items(data: Buffer, ends: Ends, nulls: Buffer | None, count: int, kind: Any) -> Any:
    validity, missing = None, 0
    if nulls is not None:
        bits = np.frombuffer(nulls, dtype=np.uint8)
        missing = int(np.unpackbits(bits, bitorder="little", count=count).sum())
        validity = pa.py_buffer(np.invert(bits))
    return pa.Array.from_buffers(
        kind, count, [validity, pa.py_buffer(_offsets(ends)), pa.py_buffer(data)], null_count=missing
    )
