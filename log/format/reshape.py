"""Cutting and joining columns: slices for readers, joining for group commit, selecting for compaction."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence

from callboard.log import limits
from callboard.log.errors import InternalError, InvalidArgument
from callboard.log.format import arrays
from callboard.log.format.arrays import NO_TIME, Ends
from callboard.log.format.columns import Columns, ProducerRun
from callboard.log.seams.disk import Buffer

__all__ = ["concat", "select", "take"]

NO_PRODUCER = (0, 0, 0)


def cut(data: Buffer, ends: Ends, start: int, stop: int) -> tuple[Buffer, Ends]:
    """Items start to stop of a byte column."""
    view = data if isinstance(data, memoryview) else memoryview(data)
    return view[ends[start] : ends[stop]], arrays.slice_ends(ends, start, stop)


def select(columns: Columns, start: int, stop: int) -> Columns:
    """Records start to stop. The whole batch is returned as it is."""
    if not 0 <= start <= stop <= columns.count:
        raise IndexError(f"records {start} to {stop} of a batch of {columns.count}")
    if start == 0 and stop == columns.count:
        return columns
    values, value_ends = cut(columns.values, columns.value_ends, start, stop)
    part = Columns(stop - start, values, value_ends, arrays.slice_bitmap(columns.value_nulls, start, stop))
    part.append_time_us = columns.append_time_us
    part.base_offset = columns.base_offset + start
    if columns.keys is not None and columns.key_ends is not None:
        part.key_nulls = arrays.slice_bitmap(columns.key_nulls, start, stop)
        part.keys, part.key_ends = cut(columns.keys, columns.key_ends, start, stop)
    if columns.dedup_ids is not None and columns.dedup_ends is not None:
        part.dedup_nulls = arrays.slice_bitmap(columns.dedup_nulls, start, stop)
        part.dedup_ids, part.dedup_ends = cut(columns.dedup_ids, columns.dedup_ends, start, stop)
    if columns.header_ends is not None:
        first, last = columns.header_ends[start], columns.header_ends[stop]
        names, values_of = columns.header_columns()
        part.header_ends = arrays.slice_ends(columns.header_ends, start, stop)
        part.header_names, part.header_name_ends = cut(*names, first, last)
        part.header_values, part.header_value_ends = cut(*values_of, first, last)
    for name in ("append_times", "event_times", "expiries", "priorities"):
        column = getattr(columns, name)
        if column is not None:
            setattr(part, name, column[start:stop])
    if columns.offset_deltas is not None and stop > start:
        place_sparse(part, columns.base_offset, columns.offset_deltas[start:stop])
    if columns.producers is not None:
        part.producers = slice_runs(columns.producers, start, stop)
    return part


def place_sparse(part: Columns, base_offset: int, deltas: Sequence[int]) -> None:
    """Give `part` the offsets base_offset + deltas; dense when they turn out to be."""
    first, last = deltas[0], deltas[-1]
    part.base_offset = base_offset + first
    part.span = last - first
    dense = part.span == part.count - 1
    part.offset_deltas = None if dense else array("I", [delta - first for delta in deltas])


def slice_runs(runs: Sequence[ProducerRun], start: int, stop: int) -> list[ProducerRun]:
    """The runs of records start to stop."""
    part = []
    first = 0
    for count, producer_id, epoch, sequence in runs:
        low, high = max(start, first), min(stop, first + count)
        if low < high:
            part.append((high - low, producer_id, epoch, sequence + low - first if producer_id else 0))
        first += count
    return part


def take(columns: Columns, indices: Sequence[int]) -> Columns:
    """The records at `indices`, joined from the longest consecutive runs."""
    parts = []
    start = 0
    for place in range(1, len(indices) + 1):
        if place == len(indices) or indices[place] != indices[place - 1] + 1:
            if start and indices[start] <= indices[start - 1]:
                raise InternalError("records taken out of order", invariant="C3")
            parts.append(select(columns, indices[start], indices[place - 1] + 1))
            start = place
    return concat(parts, keep_offsets=True) if parts else select(columns, 0, 0)


def concat(parts: Sequence[Columns], *, keep_offsets: bool = False) -> Columns:
    """One batch of all parts. A column that only some parts have is filled up with "none" for the others."""
    if len(parts) == 1 and keep_offsets:
        return parts[0]
    count = sum(part.count for part in parts)
    if count > limits.BATCH_RECORDS_MAX:
        raise InvalidArgument(
            f"{count} records in a batch: at most {limits.BATCH_RECORDS_MAX}. Split the batch."
        )
    whole = Columns(
        count,
        b"".join([part.values for part in parts]),
        arrays.concat_ends(part.value_ends for part in parts),
        arrays.concat_bitmaps((part.value_nulls, part.count) for part in parts),
    )
    whole.keys, whole.key_ends, whole.key_nulls = concat_optional(
        (part.keys, part.key_ends, part.key_nulls, part.count) for part in parts
    )
    whole.dedup_ids, whole.dedup_ends, whole.dedup_nulls = concat_optional(
        (part.dedup_ids, part.dedup_ends, part.dedup_nulls, part.count) for part in parts
    )
    if any(part.header_ends is not None for part in parts):
        concat_headers(whole, parts)
    whole.event_times = concat_numbers("q", parts, lambda part: part.event_times, lambda part: NO_TIME)
    whole.expiries = concat_numbers("q", parts, lambda part: part.expiries, lambda part: NO_TIME)
    priorities = concat_numbers("B", parts, lambda part: part.priorities, lambda part: 0)
    whole.priorities = None if priorities is None else priorities.tobytes()
    if parts:
        concat_append_times(whole, parts)
    if any(part.producers is not None for part in parts):
        whole.producers = [
            run for part in parts if part.count for run in (part.producers or [(part.count, *NO_PRODUCER)])
        ]
    if keep_offsets and count:
        base = parts[0].base_offset
        place_sparse(whole, base, [offset - base for part in parts for offset in part.offset_list()])
    return whole


OptionalBytes = tuple[Buffer | None, Ends | None, Buffer | None, int]


def concat_optional(parts: Iterable[OptionalBytes]) -> tuple[Buffer | None, Ends | None, Buffer | None]:
    """A byte column of which some parts may be absent: their items become None."""
    given = list(parts)
    if all(data is None for data, _, _, _ in given):
        return None, None, None
    filled = [
        (data, ends, nulls, count)
        if data is not None and ends is not None
        else (b"", array("I", bytes(4 * (count + 1))), all_null(count), count)
        for data, ends, nulls, count in given
    ]
    return (
        b"".join([data for data, _, _, _ in filled]),
        arrays.concat_ends(ends for _, ends, _, _ in filled),
        arrays.concat_bitmaps((nulls, count) for _, _, nulls, count in filled),
    )


def all_null(count: int) -> bytes:
    return ((1 << count) - 1).to_bytes((count + 7) // 8, "little")


def concat_headers(whole: Columns, parts: Sequence[Columns]) -> None:
    """The header columns of all parts; parts without headers have empty ones."""
    both = [part.header_columns() for part in parts]
    whole.header_ends = arrays.concat_ends(
        array("I", bytes(4 * (part.count + 1))) if part.header_ends is None else part.header_ends
        for part in parts
    )
    whole.header_names = b"".join([names for (names, _), _ in both])
    whole.header_name_ends = arrays.concat_ends(ends for (_, ends), _ in both)
    whole.header_values = b"".join([values for _, (values, _) in both])
    whole.header_value_ends = arrays.concat_ends(ends for _, (_, ends) in both)


def concat_numbers(
    code: str,
    parts: Sequence[Columns],
    column_of: Callable[[Columns], Sequence[int] | Buffer | None],
    default_of: Callable[[Columns], int],
) -> array[int] | None:
    """A column of numbers of which some parts may be absent: these get the default."""
    columns = [column_of(part) for part in parts]
    if all(column is None for column in columns):
        return None
    whole = array(code)
    for part, column in zip(parts, columns, strict=True):
        whole.extend([default_of(part)] * part.count if column is None else list(column))
    return whole


def concat_append_times(whole: Columns, parts: Sequence[Columns]) -> None:
    """One base time when all parts have the same; otherwise a column."""
    whole.append_time_us = parts[0].append_time_us
    if any(part.append_times is not None or part.append_time_us != whole.append_time_us for part in parts):
        times = [part.append_times or [part.append_time_us] * part.count for part in parts]
        whole.append_times = array("q", [time for part_times in times for time in part_times])
        whole.append_time_us = whole.append_times[0] if whole.append_times else 0
