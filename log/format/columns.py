"""Columns: a batch of records, held column by column, never as objects.

Theory of operation
-------------------
A batch of 1,000 is a handful of C-level calls to build, to encode, to decode and to slice; a record becomes
Python objects only on request. Decoded columns are memoryviews of the bytes that were read;
they go into Arrow as they are (ends are Arrow's offsets).

A batch that was just built has no place in the log yet: `base_offset` and `append_time_us` are 0 until the
sequencer assigns them or a frame is decoded. Everything else is immutable by convention.

Vocabulary
----------
ends          u32 array with a leading 0; item i of a byte column lies between ends[i] and ends[i + 1], as in Arrow
nulls         bitmap, least significant bit first; a set bit means that the item is None. Absent when none is
dense         record i has offset base_offset + i; a *sparse* batch (left by compaction) has `offset_deltas`
span          last_offset - base_offset; exceeds the last record's delta when compaction removed what followed
run           (count, producer id, epoch, first sequence): `count` records that one producer published in
              sequence; producer id 0 stands for none

Invariants
----------
BC1  Every ends array begins with 0, never falls, and ends with the length of its bytes.
BC2  An optional column covers every record, or is None. `build` makes none that says nothing; a slice may.
BC3  Offset deltas rise strictly and do not exceed the span; without them the span is count - 1.
BC4  The counts of the producers' runs add up to the number of records, and none is 0.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from struct import Struct

import attrs

from callboard.log import limits
from callboard.log.errors import InvalidArgument, UnsupportedPlatform
from callboard.log.seams.disk import Buffer

Headers = Mapping[str, bytes | str]
ProducerRun = tuple[int, int, int, int]

Ends = Sequence[int]

NO_TIME = -(2**63)
"""Stands for None in the time columns (i64 microseconds since 1970)."""
FOREVER = 2**63 - 1
"""The time to live of what never expires."""

EVEN_COUNT_MAX = 4096
EVEN_KEPT = 64
"""Columns whose items have one length are so common that their ends, and how to cut them, are kept: 64 at most."""

if sys.byteorder != "little":
    raise UnsupportedPlatform("Callboard's columns are little-endian in memory: this machine is big-endian.")


@attrs.define(eq=False, repr=False)
class Columns:
    """A batch of records. See the module's docstring; `build` makes one, `frame.decode_body` reads one."""

    count: int
    span: int
    values: Buffer
    value_ends: Ends
    value_nulls: Buffer | None = None
    keys: Buffer | None = None
    key_ends: Ends | None = None
    key_nulls: Buffer | None = None
    header_ends: Ends | None = None
    """Record i has headers header_ends[i] to header_ends[i + 1] of the four columns below."""
    header_name_ends: Ends | None = None
    header_names: Buffer | None = None
    header_value_ends: Ends | None = None
    header_values: Buffer | None = None
    offset_deltas: Ends | None = None
    append_times: Sequence[int] | None = None
    """Each record's append time, only when they differ from `append_time_us`."""
    event_times: Sequence[int] | None = None
    priorities: Buffer | None = None
    expiries: Sequence[int] | None = None
    dedup_ids: Buffer | None = None
    dedup_ends: Ends | None = None
    dedup_nulls: Buffer | None = None
    producers: Sequence[ProducerRun] | None = None
    ttls: Sequence[int | None] | None = None
    """Microseconds from its append after which each record expires, `FOREVER` for never, None for what its topic says.
    Not stored: `expiries` are made of it when the records get their place."""
    base_offset: int = 0
    append_time_us: int = 0
    _first_expiry: int | None = attrs.field(default=None, init=False)
    """What `first_expiry` has found."""

    # -- making ----------------------------------------------------------------------------------------------

    @classmethod
    def build(
        cls,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None = None,
        headers: Sequence[Headers | None] | None = None,
        event_times: Sequence[int | None] | None = None,
        *,
        priorities: Sequence[int | None] | None = None,
        expiries: Sequence[int | None] | None = None,
        dedup_ids: Sequence[bytes | None] | None = None,
        producers: Sequence[ProducerRun] | None = None,
        ttls: Sequence[int | None] | None = None,
    ) -> Columns:
        """Columns of the records given; times are microseconds since 1970, priorities as they are stored.

        Raises `InvalidArgument` when the sequences differ in length or an item has the wrong type or range.
        """
        count = len(values)
        if count > limits.BATCH_RECORDS_MAX:
            raise InvalidArgument(
                f"{count} records in a batch: at most {limits.BATCH_RECORDS_MAX}. Split the batch."
            )
        data, ends, nulls = join_items(values, "the value")
        columns = cls(count, count - 1, data, ends, nulls)
        if keys is not None:
            check_length("keys", keys, count)
            if count and (keys[0] is not None or keys.count(None) != count):
                columns.keys, columns.key_ends, columns.key_nulls = join_items(keys, "the key")
        if headers is not None:
            check_length("headers", headers, count)
            if any(headers):
                set_headers(columns, headers)
        if event_times is not None:
            check_length("event_times", event_times, count)
            columns.event_times = optional_times(event_times, "event times")
        if priorities is not None:
            check_length("priorities", priorities, count)
            if any(priorities):
                columns.priorities = typed("B", [each or 0 for each in priorities], "priorities").tobytes()
        if expiries is not None:
            check_length("expiries", expiries, count)
            columns.expiries = optional_times(expiries, "expiries")
        if dedup_ids is not None:
            check_length("dedup_ids", dedup_ids, count)
            if dedup_ids.count(None) != count:
                columns.dedup_ids, columns.dedup_ends, columns.dedup_nulls = join_items(
                    dedup_ids, "the deduplication id"
                )
        if producers is not None:
            set_producers(columns, producers)
        if ttls is not None:
            check_length("ttls", ttls, count)
            columns.ttls = ttls
        return columns

    @classmethod
    def of_one(cls, value: bytes, key: bytes | None) -> Columns:
        """The columns of a single record that has nothing else: what `build` makes of it, in a third of the time."""
        columns = cls(1, 0, value, array("I", (0, len(value))))
        if key is not None:
            columns.keys, columns.key_ends = key, array("I", (0, len(key)))
        return columns

    # -- one record ------------------------------------------------------------------------------------------

    def value(self, index: int) -> bytes | None:
        """The payload of record `index`; None is a tombstone."""
        self._check(index)
        if is_null(self.value_nulls, index):
            return None
        ends = self.value_ends
        return bytes(self.values[ends[index] : ends[index + 1]])

    def key(self, index: int) -> bytes | None:
        """The key of record `index`; None when it has none."""
        self._check(index)
        if self.keys is None or self.key_ends is None or is_null(self.key_nulls, index):
            return None
        return bytes(self.keys[self.key_ends[index] : self.key_ends[index + 1]])

    def headers(self, index: int) -> dict[str, bytes]:
        """The headers of record `index`, in the order published; empty when it has none."""
        self._check(index)
        if self.header_ends is None:
            return {}
        start, stop = self.header_ends[index], self.header_ends[index + 1]
        names, values = self.header_columns()
        return dict(
            zip(
                [str(name, "utf-8") for name in item_list(*names, None, start, stop) if name is not None],
                [value for value in item_list(*values, None, start, stop) if value is not None],
                strict=True,
            )
        )

    def event_time(self, index: int) -> int | None:
        """Microseconds since 1970, as the publisher said; None when it did not."""
        self._check(index)
        return optional_time(self.event_times, index)

    def expiry(self, index: int) -> int | None:
        """The instant, in microseconds since 1970, from which the record is not delivered any more."""
        self._check(index)
        return optional_time(self.expiries, index)

    def expire_at(self, expiries: Sequence[int] | None, first: int | None = None) -> None:
        """Set when each record expires. `first` is the earliest of these instants, if the caller knows it."""
        self.expiries, self._first_expiry = expiries, first

    @property
    def first_expiry(self) -> int:
        """The first instant at which a record expires, `FOREVER` when none does; looked for once."""
        if self.expiries is None:
            return FOREVER
        if self._first_expiry is None:
            first = min(self.expiries, default=FOREVER)
            if first == NO_TIME:
                first = min([time for time in self.expiries if time != NO_TIME], default=FOREVER)
            self._first_expiry = first
        return self._first_expiry

    def append_time(self, index: int) -> int:
        """Microseconds since 1970 at which the log took the record."""
        self._check(index)
        return self.append_time_us if self.append_times is None else self.append_times[index]

    def priority(self, index: int) -> int:
        """As it is stored: 0 when none was given, else one more than the priority."""
        self._check(index)
        return 0 if self.priorities is None else self.priorities[index]

    def dedup_id(self, index: int) -> bytes | None:
        """The deduplication id of record `index`."""
        self._check(index)
        if self.dedup_ids is None or self.dedup_ends is None or is_null(self.dedup_nulls, index):
            return None
        return bytes(self.dedup_ids[self.dedup_ends[index] : self.dedup_ends[index + 1]])

    def producer(self, index: int) -> tuple[int, int, int] | None:
        """(producer id, epoch, sequence) of record `index`, None when no idempotent producer published it."""
        self._check(index)
        first = 0
        for count, producer_id, epoch, sequence in self.producers or ():
            if index < first + count:
                return (producer_id, epoch, sequence + index - first) if producer_id else None
            first += count
        return None

    def offset(self, index: int) -> int:
        """The offset of record `index`."""
        self._check(index)
        return self.base_offset + (index if self.offset_deltas is None else self.offset_deltas[index])

    # -- many records ----------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return self.count

    @property
    def last_offset(self) -> int:
        """The last offset that the batch covers: it follows `base_offset` when that is assigned."""
        return self.base_offset + self.span

    @property
    def size_bytes(self) -> int:
        """Payload bytes: values, keys and headers."""
        size = len(self.values)
        if self.keys is not None:
            size += len(self.keys)
        if self.header_names is not None and self.header_values is not None:
            size += len(self.header_names) + len(self.header_values)
        return size

    def value_list(self, start: int = 0, stop: int | None = None) -> list[bytes | None]:
        """The payloads of records start to stop."""
        stop = self.count if stop is None else min(stop, self.count)
        return item_list(self.values, self.value_ends, self.value_nulls, start, stop)

    def key_list(self, start: int = 0, stop: int | None = None) -> list[bytes | None]:
        """The keys of records start to stop."""
        stop = self.count if stop is None else min(stop, self.count)
        if self.keys is None or self.key_ends is None:
            return [None] * max(0, stop - start)
        return item_list(self.keys, self.key_ends, self.key_nulls, start, stop)

    def header_list(self, start: int = 0, stop: int | None = None) -> list[dict[str, bytes]]:
        """The headers of records start to stop."""
        stop = self.count if stop is None else min(stop, self.count)
        if self.header_ends is None:
            return [{} for _ in range(start, stop)]
        return [self.headers(index) for index in range(start, stop)]

    def offset_list(self) -> Sequence[int]:
        """Every record's offset: a range when dense."""
        if self.offset_deltas is None:
            return range(self.base_offset, self.base_offset + self.count)
        return [self.base_offset + delta for delta in self.offset_deltas]

    def index_at(self, offset: int) -> int:
        """The index of the first record at or above `offset` (`count` when there is none)."""
        delta = max(0, offset - self.base_offset)
        if self.offset_deltas is None:
            return min(delta, self.count)
        return bisect_left(self.offset_deltas, delta)

    def header_columns(self) -> tuple[tuple[Buffer, Ends], tuple[Buffer, Ends]]:
        """((names, name ends), (values, value ends)); empty columns when no record has headers."""
        if (
            self.header_names is None
            or self.header_name_ends is None
            or self.header_values is None
            or self.header_value_ends is None
        ):
            return (b"", array("I", (0,))), (b"", array("I", (0,)))
        return (self.header_names, self.header_name_ends), (self.header_values, self.header_value_ends)

    def select(self, start: int, stop: int) -> Columns:
        """Records start to stop as columns of their own, offsets kept. Byte columns are views, not copies.

        The whole batch is returned as it is.
        """
        if not 0 <= start <= stop <= self.count:
            raise IndexError(f"records {start} to {stop} of a batch of {self.count}")
        if start == 0 and stop == self.count:
            return self
        part = Columns(
            stop - start,
            stop - start - 1,
            *cut(self.values, self.value_ends, start, stop),
            slice_bitmap(self.value_nulls, start, stop),
        )
        part.append_time_us = self.append_time_us
        part.base_offset = self.base_offset + start
        if self.keys is not None and self.key_ends is not None:
            part.key_nulls = slice_bitmap(self.key_nulls, start, stop)
            part.keys, part.key_ends = cut(self.keys, self.key_ends, start, stop)
        if self.dedup_ids is not None and self.dedup_ends is not None:
            part.dedup_nulls = slice_bitmap(self.dedup_nulls, start, stop)
            part.dedup_ids, part.dedup_ends = cut(self.dedup_ids, self.dedup_ends, start, stop)
        if self.header_ends is not None:
            first, last = self.header_ends[start], self.header_ends[stop]
            names, values = self.header_columns()
            part.header_ends = slice_ends(self.header_ends, start, stop)
            part.header_names, part.header_name_ends = cut(*names, first, last)
            part.header_values, part.header_value_ends = cut(*values, first, last)
        for name in ("append_times", "event_times", "expiries", "priorities", "ttls"):
            column = getattr(self, name)
            if column is not None:
                setattr(part, name, column[start:stop])
        if self.offset_deltas is not None and stop > start:
            deltas = self.offset_deltas[start:stop]
            first, last = deltas[0], deltas[-1]
            part.base_offset, part.span = self.base_offset + first, last - first
            dense = part.span == part.count - 1
            part.offset_deltas = None if dense else array("I", [delta - first for delta in deltas])
        if self.producers is not None:
            part.producers = slice_runs(self.producers, start, stop)
        return part

    def _check(self, index: int) -> None:
        if not 0 <= index < self.count:
            raise IndexError(f"record {index} of a batch of {self.count}")


def first_expiry(batches: Iterable[Columns]) -> int | None:
    """The first instant at which a record of these expires, in microseconds since 1970; None when none does."""
    first = min([batch.first_expiry for batch in batches], default=FOREVER)
    return None if first == FOREVER else first


def optional_time(times: Sequence[int] | None, index: int) -> int | None:
    """An item of a time column, None where it says so."""
    if times is None:
        return None
    time = times[index]
    return None if time == NO_TIME else time


def check_length(what: str, items: Sequence[object], count: int) -> None:
    """Refuse a column that does not have an item for each of `count` records."""
    if len(items) != count:
        raise InvalidArgument(
            f"{len(items)} {what} for {count} values: give one for each record, or none at all."
        )


def set_headers(columns: Columns, headers: Sequence[Headers | None]) -> None:
    """Lay the records' headers out as flat columns. Names are text, values bytes or text (kept as UTF-8)."""
    names: list[str] = []
    values: list[bytes | str] = []
    counts: list[int] = []
    for record in headers:
        if record:
            names.extend(record)
            values.extend(record.values())
        counts.append(len(names))
    try:
        encoded = [value.encode() if isinstance(value, str) else value for value in values]
        columns.header_names, columns.header_name_ends, _ = join_items(
            [name.encode() for name in names], "a header name"
        )
    except (AttributeError, UnicodeEncodeError) as error:
        raise InvalidArgument(f"headers: {error}: names are text, values are bytes or text.") from error
    if not all(isinstance(value, bytes) for value in encoded):
        raise InvalidArgument("headers: values are bytes or text. Encode them first.")
    columns.header_values, columns.header_value_ends, _ = join_items(encoded, "a header value")
    columns.header_ends = array("I", (0, *counts))


def set_producers(columns: Columns, runs: Sequence[ProducerRun]) -> None:
    """Take over the runs, after checking BC4 and their ranges."""
    if sum(run[0] for run in runs) != columns.count or any(run[0] < 1 for run in runs):
        raise InvalidArgument(f"the producers' runs do not add up to the batch's {columns.count} records.")
    for code, place in (("I", 0), ("Q", 1), ("I", 2), ("Q", 3)):
        typed(code, (run[place] for run in runs), "producer runs")
    columns.producers = runs if any(run[1] for run in runs) else None


# -- the building blocks: ends, bitmaps, typed arrays


def typed(code: str, items: Iterable[int], what: str) -> array[int]:
    """An array of `code`; `InvalidArgument` names `what` when an item does not fit."""
    try:
        return array(code, items)
    except (OverflowError, TypeError) as error:
        raise InvalidArgument(f"{what}: {error}. Nothing was written; correct the value.") from error


def join_items(items: Sequence[bytes | None], what: str) -> tuple[Buffer, array[int], bytes | None]:
    """One byte string of all items, their ends, and the bitmap of Nones (None when there is none)."""
    try:
        # The quick way: C-level passes only. None has no length and cannot be joined: then the careful way.
        joined, count = b"".join(items), len(items)  # type: ignore[arg-type]
        size = len(joined)
        if count == 1 and len(items[0]) == size:  # type: ignore[arg-type]
            return joined, array("I", (0, size)), None
        length = len(items[0]) if items else 0  # type: ignore[arg-type]
        may_be_even = 0 < count <= EVEN_COUNT_MAX and length * count == size
        if may_be_even and list(map(len, items)).count(length) == count:  # type: ignore[arg-type]
            return joined, even_ends(length, count), None
        # By way of a list: made of one, an array takes half of the time that it takes to grow by items.
        ends = array("I", list(accumulate(map(len, items), initial=0)))  # type: ignore[arg-type]
        if ends[-1] == size:
            return joined, ends, None
    except TypeError:
        pass
    for index, item in enumerate(items):
        if item is not None and not isinstance(item, (bytes, bytearray, memoryview)):
            kind = type(item).__name__
            raise InvalidArgument(
                f"{what} of record {index} is a {kind}: payloads are bytes or None. Encode it first."
            )
    filled = [b"" if item is None else bytes(item) for item in items]
    return b"".join(filled), array("I", accumulate(map(len, filled), initial=0)), bitmap_of(items)


@lru_cache(maxsize=EVEN_KEPT)
def even_ends(length: int, count: int) -> array[int]:
    """The ends of `count` items of one length."""
    return array("I", [length * index for index in range(count + 1)])


@lru_cache(maxsize=EVEN_KEPT)
def even_items(length: int, count: int) -> Struct:
    """What cuts `count` items of one length."""
    return Struct(f"{length}s" * count)


def bitmap_of(items: Sequence[object]) -> bytes | None:
    """The bitmap whose set bits are the Nones among `items`, or None when there is none."""
    if None not in items:
        return None
    bits = "".join("1" if item is None else "0" for item in reversed(items))
    return int(bits, 2).to_bytes((len(items) + 7) // 8, "little")


def is_null(nulls: Buffer | None, index: int) -> bool:
    return nulls is not None and bool(nulls[index >> 3] >> (index & 7) & 1)


def slice_bitmap(nulls: Buffer | None, start: int, stop: int) -> bytes | None:
    """The bitmap of items start to stop, None when no bit is left set."""
    if nulls is None:
        return None
    bits = int.from_bytes(nulls, "little") >> start & ((1 << (stop - start)) - 1)
    return bits.to_bytes((stop - start + 7) // 8, "little") if bits else None


def slice_ends(ends: Ends, start: int, stop: int) -> Ends:
    """The ends of items start to stop, made to begin with 0 again."""
    part = ends[start : stop + 1]
    first = part[0]
    return array("I", [end - first for end in part]) if first else part


def item_list(data: Buffer, ends: Ends, nulls: Buffer | None, start: int, stop: int) -> list[bytes | None]:
    """Items start to stop as bytes: one copy of the column, then one slice each."""
    if start >= stop:
        return []
    bounds, first, count = ends[start : stop + 1], ends[start], stop - start
    length, rest = divmod(ends[stop] - first, count)
    items: list[bytes | None]
    if (
        1 < count <= stop <= EVEN_COUNT_MAX
        and not rest
        and first == start * length
        and ends[start + 1] == first + length
        and bounds == even_ends(length, 1 << (stop - 1).bit_length())[start : stop + 1]
    ):
        items = list(even_items(length, count).unpack_from(data, first))
    else:
        whole, bounds = bytes(data[first : ends[stop]]), list(bounds)
        if first:
            items = [whole[a - first : b - first] for a, b in pairwise(bounds)]
        else:
            items = [whole[a:b] for a, b in pairwise(bounds)]
    if nulls is not None:
        bits = int.from_bytes(nulls, "little") >> start & ((1 << (stop - start)) - 1)
        digits = f"{bits:b}"[::-1]
        index = digits.find("1")
        while index >= 0:
            items[index] = None
            index = digits.find("1", index + 1)
    return items


def optional_times(times: Sequence[int | None], what: str) -> array[int] | None:
    """An i64 column with `NO_TIME` for None; None when no record has a time."""
    try:
        return array("q", times)  # type: ignore[arg-type]
    except (TypeError, OverflowError):
        if not any(time is not None for time in times):
            return None
        return typed("q", (NO_TIME if time is None else time for time in times), what)


def cut(data: Buffer, ends: Ends, start: int, stop: int) -> tuple[Buffer, Ends]:
    """Items start to stop of a byte column."""
    view = data if isinstance(data, memoryview) else memoryview(data)
    return view[ends[start] : ends[stop]], slice_ends(ends, start, stop)


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
