"""Sets and maps of half-open offset ranges, kept in arrays so that a million gaps cost megabytes, not hundreds.

Vocabulary. A *range* is `[start, stop)` with `start < stop`. A *row* is a range followed by its *values*, the
plain numbers that an `IntervalMap` keeps beside each range. A *chunk* is a few hundred rows, stored as one array
per column (`starts`, `stops`, then the values); chunks keep an insertion in the middle of a million rows cheap.

Invariants, checked by `check()`:

- IM1  Rows are sorted and disjoint: every start < its stop <= the next start.
- IM2  Neighbours are merged: two rows that touch differ in their values (so a set has no two rows that touch).
- IM3  No chunk is empty or longer than `CHUNK_ROWS_MAX`, and `heads` holds the first start of each.
- IM4  `count` is the sum of all lengths, `counts` holds that of each chunk, and `rows` is the number of rows.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import compress, islice
from operator import eq, le, lt
from typing import Any, Final

from callboard.log.errors import InternalError

Row = tuple[Any, ...]
"""(start, stop, *values)"""

COLUMNS: Final = {values: "qq" + values for values in ("", "q", "d", "qq", "qd", "dq")}
"""The columns of a map by those of its values: one text for all maps of a kind."""
CHUNK_ROWS_MAX: Final = 1024
NOTHING: Final[Any] = ()
"""In place of the lists of a map that is empty, as most are: it has none of its own."""
NUMBER_BYTES: Final = 8
"""Of a number in a column."""
CHUNKS_PER_STEP: Final = 8
"""Chunks that are loaded in one step."""
MANY_ROWS: Final = 8
"""Rows from which on putting them as columns pays."""


def length_of(rows: Iterable[Sequence[int]]) -> int:
    """How many offsets are in disjoint ranges."""
    return sum([row[1] - row[0] for row in rows])


class IntervalMap:
    """Disjoint ranges, each with the same number of values: one per letter of `typecodes` ("q" int, "d" float)."""

    __slots__ = ("_chunks", "_counts", "_heads", "_typecodes", "count", "rows")

    def __init__(self, typecodes: str = "") -> None:
        self._typecodes = COLUMNS[typecodes]
        self._chunks: list[tuple[array[Any], ...]] = NOTHING
        self._heads: list[int] = NOTHING
        self._counts: list[int] = NOTHING
        self.count = 0
        """Offsets in all ranges."""
        self.rows = 0
        """Ranges."""

    # -- reading --------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Row]:
        for chunk in self._chunks:
            yield from zip(*chunk, strict=True)

    def __len__(self) -> int:
        """The number of ranges."""
        return self.rows

    def __repr__(self) -> str:
        shown = ", ".join(map(str, islice(self, 8)))
        return f"<{type(self).__name__} {shown}{', ...' if self.rows > 8 else ''}>"

    @property
    def last_stop(self) -> int:
        """The end of the last range; 0 when there is none."""
        return int(self._chunks[-1][1][-1]) if self._chunks else 0

    def first(self) -> Row | None:
        """The first row, or None."""
        return tuple(column[0] for column in self._chunks[0]) if self._chunks else None

    def first_from(self, offset: int) -> Row | None:
        """The first row that ends after `offset`, whole; or None."""
        at, index = self._locate(offset)
        return tuple(column[index] for column in self._chunks[at]) if at < len(self._chunks) else None

    def contains(self, offset: int) -> bool:
        """Is `offset` in some range?"""
        row = self.first_from(offset)
        return row is not None and row[0] <= offset

    def overlapping(self, start: int, stop: int) -> Iterator[Row]:
        """The rows that share an offset with `[start, stop)`, cut to it. Do not change the map meanwhile."""
        at, index = self._locate(start)
        for chunk in islice(self._chunks, at, None):
            end = bisect_left(chunk[0], stop, index)
            for row in zip(*(column[index:end] for column in chunk), strict=True):
                yield (max(row[0], start), min(row[1], stop), *row[2:])
            if end < len(chunk[0]):
                return
            index = 0

    def count_in(self, start: int, stop: int) -> int:
        """How many offsets of `[start, stop)` are in some range. The cost grows with the chunks in between."""
        if not self._chunks or start >= self.last_stop or stop <= start:
            return 0
        at, index = self._locate(start)
        last = bisect_left(self._heads, stop) - 1
        if last < at:
            return 0
        (first_starts, first_stops), (starts, stops) = self._chunks[at][:2], self._chunks[last][:2]
        end = bisect_left(starts, stop)
        if last == at and end <= index:
            return 0
        count: int = sum(self._counts[at : last + 1])
        before: int = (
            sum(first_stops[:index]) - sum(first_starts[:index]) + max(0, start - first_starts[index])
        )
        behind: int = sum(stops[end:]) - sum(starts[end:]) + max(0, stops[end - 1] - stop)
        return count - before - behind

    def _locate(self, offset: int) -> tuple[int, int]:
        """Chunk and index of the first row that ends after `offset`; (number of chunks, 0) past the end."""
        at = bisect_right(self._heads, offset) - 1
        if at < 0:
            return 0, 0
        stops = self._chunks[at][1]
        index = bisect_right(stops, offset)
        return (at, index) if index < len(stops) else (at + 1, 0)

    # -- changing -------------------------------------------------------------------------------------------

    def put(self, start: int, stop: int, *values: Any) -> None:
        """Put a range where there is none, merging it with neighbours of the same values (IM2)."""
        row = (start, stop, *values)
        self.count += stop - start
        chunks = self._chunks
        if not chunks or chunks[-1][1][-1] < start:
            self._append(row)
            return
        at, index = self._locate(start)
        if at < len(chunks) and chunks[at][0][index] < stop:
            raise InternalError(f"range [{start}, {stop}) is put over another one", invariant="IM1")
        left, left_index = (at, index - 1) if index else (at - 1, -1)
        joins_left = left >= 0 and self._touches(left, left_index, 1, start, values)
        joins_right = at < len(chunks) and self._touches(at, index, 0, stop, values)
        if joins_left and joins_right:
            chunks[left][1][left_index] = end = chunks[at][1][index]
            self._counts[left] += end - start
            self._splice(at, index, index + 1, [])
        elif joins_left:
            chunks[left][1][left_index] = stop
            self._counts[left] += stop - start
        elif joins_right:
            chunks[at][0][index] = start
            self._counts[at] += stop - start
            if index == 0:
                self._heads[at] = start
        elif index == 0 and at:
            self._insert(at - 1, len(chunks[at - 1][0]), row)
        else:
            self._insert(at, index, row)

    def put_all(self, *columns: Sequence[Any]) -> None:
        """`put` for sorted rows, given column by column: quickly, when they lie behind everything and do not touch."""
        starts, stops = columns[:2]
        is_behind = len(starts) >= MANY_ROWS and starts[0] > self.last_stop
        if not is_behind or not all(map(lt, stops, islice(starts, 1, None))):
            for row in zip(*columns, strict=True):
                self.put(*row)
            return
        whole = [array(code, column) for code, column in zip(self._typecodes, columns, strict=True)]
        at = 0
        while at < len(starts):
            last = self._chunks[-1] if self._chunks else ()
            room = CHUNK_ROWS_MAX - len(last[0]) if last else 0
            end = at + (room or CHUNK_ROWS_MAX)
            count = sum(whole[1][at:end]) - sum(whole[0][at:end])
            if room:
                for column, more in zip(last, whole, strict=True):
                    column.extend(more[at:end])
                self._counts[-1] += count
            else:
                self._add_chunk(tuple(column[at:end] for column in whole), count)
            self.count += count
            at = end
        self.rows += len(starts)

    def carve(self, start: int, stop: int) -> list[Row]:
        """Take `[start, stop)` out; returns the rows that were in it, cut to it."""
        taken: list[Row] = []
        if start >= stop:
            return taken
        at, index = self._locate(start)
        while at < len(self._chunks):
            chunk = self._chunks[at]
            length = len(chunk[0])
            end = bisect_left(chunk[0], stop, index)
            if end == index:
                break
            rows: list[Row] = list(zip(*(column[index:end] for column in chunk), strict=True))
            kept: list[Row] = []
            first, last = rows[0], rows[-1]
            if first[0] < start:
                kept.append((first[0], start, *first[2:]))
                rows[0] = (start, *first[1:])
            if last[1] > stop:
                kept.append((stop, *last[1:]))
                rows[-1] = (rows[-1][0], stop, *last[2:])
            self.count -= length_of(rows)
            taken += rows
            self._splice(at, index, end, kept)
            if end < length or last[1] > stop:
                break
            at, index = self._locate(start)
        return taken

    def take_front(self, count_max: int, end: int, rows_max: int | None = None) -> list[Row]:
        """Take the first `count_max` offsets below `end` out, of no more rows than `rows_max`; returns their rows in
        order.
        """
        stop, room = 0, count_max
        for row in islice(self, rows_max):
            if room <= 0 or row[0] >= end:
                break
            stop = min(row[1], row[0] + room, end)
            room -= stop - row[0]
        return self.carve(self._heads[0], stop) if stop else []

    def clear(self) -> None:
        """Forget every range."""
        self._chunks = self._heads = self._counts = NOTHING
        self.count = self.rows = 0

    def _touches(self, at: int, index: int, column: int, offset: int, values: tuple[Any, ...]) -> bool:
        chunk = self._chunks[at]
        if chunk[column][index] != offset:
            return False
        return all(kept[index] == value for kept, value in zip(chunk[2:], values, strict=True))

    def _append(self, row: Row) -> None:
        """The common case: behind everything, touching nothing."""
        self.rows += 1
        if self._chunks and len(self._chunks[-1][0]) < CHUNK_ROWS_MAX:
            self._counts[-1] += row[1] - row[0]
            for column, value in zip(self._chunks[-1], row, strict=True):
                column.append(value)
            return
        columns = zip(self._typecodes, row, strict=True)
        self._add_chunk(tuple(array(code, (value,)) for code, value in columns), row[1] - row[0])

    def _add_chunk(self, chunk: tuple[array[Any], ...], count: int) -> None:
        """Put a chunk behind all others; `count` offsets are in it."""
        if self._chunks is NOTHING:
            self._chunks, self._heads, self._counts = [], [], []
        self._chunks.append(chunk)
        self._heads.append(chunk[0][0])
        self._counts.append(count)

    def _splice(self, at: int, start: int, stop: int, rows: Sequence[Row]) -> None:
        """Replace rows `start` to `stop` of chunk `at` by `rows` (at most two), keeping IM3."""
        chunk = self._chunks[at]
        self.rows += len(rows) - (stop - start)
        self._counts[at] += length_of(rows)
        if start < stop:
            self._counts[at] -= sum(chunk[1][start:stop]) - sum(chunk[0][start:stop])
        for index, column in enumerate(chunk):
            if rows:
                column[start:stop] = array(column.typecode, [row[index] for row in rows])
            else:
                del column[start:stop]
        length = len(chunk[0])
        if length == 0:
            del self._chunks[at], self._heads[at], self._counts[at]
            return
        self._heads[at] = chunk[0][0]
        if length > CHUNK_ROWS_MAX:
            self._split(at)

    def _insert(self, at: int, index: int, row: Row) -> None:
        """`_splice` for one more row."""
        chunk = self._chunks[at]
        for column, value in zip(chunk, row, strict=True):
            column.insert(index, value)
        self.rows += 1
        self._counts[at] += row[1] - row[0]
        if index == 0:
            self._heads[at] = row[0]
        if len(chunk[0]) > CHUNK_ROWS_MAX:
            self._split(at)

    def _split(self, at: int) -> None:
        """Make two chunks of one (IM3)."""
        chunk = self._chunks[at]
        half = len(chunk[0]) // 2
        self._chunks.insert(at + 1, tuple(column[half:] for column in chunk))
        self._heads.insert(at + 1, chunk[0][half])
        for column in chunk:
            del column[half:]
        count = sum(chunk[1]) - sum(chunk[0])
        self._counts.insert(at + 1, self._counts[at] - count)
        self._counts[at] = count

    # -- columns, for snapshots -----------------------------------------------------------------------------

    def columns(self) -> list[bytes]:
        """Every column as the little-endian bytes of its numbers, eight each."""
        return [b"".join(parts) for parts in self.column_parts()]

    def column_parts(self) -> list[Iterator[bytes]]:
        """The same in parts. Do not change the map meanwhile."""
        return [_stored([chunk[index] for chunk in self._chunks]) for index in range(len(self._typecodes))]

    def copied(self) -> IntervalMap:
        """A map of its own."""
        copy = IntervalMap(self._typecodes[2:])
        if self._chunks:
            copy._chunks = [tuple([column[:] for column in chunk]) for chunk in self._chunks]
            copy._heads, copy._counts = self._heads[:], self._counts[:]
            copy.count, copy.rows = self.count, self.rows
        return copy

    def load(self, columns: Sequence[bytes]) -> None:
        """Replace everything by what `columns()` once gave. Raises ValueError when IM1 or IM2 would not hold."""
        for _ in self.load_in_steps(columns):
            pass

    def load_in_steps(self, columns: Sequence[bytes]) -> Iterator[None]:
        """The same, yielding after every few thousand rows; ask for nothing else until its end."""
        if len(columns) != len(self._typecodes):
            raise ValueError(f"{len(columns)} columns where {len(self._typecodes)} are needed")
        views = [memoryview(column) for column in columns]
        if any(len(view) != len(views[0]) or len(view) % NUMBER_BYTES for view in views):
            raise ValueError("columns of different lengths, or not of whole numbers")
        self.clear()
        last: tuple[array[Any], ...] = ()
        step = CHUNK_ROWS_MAX // 2
        for index in range(0, len(views[0]), step * NUMBER_BYTES):
            chunk = tuple(
                _loaded(code, view[index : index + step * NUMBER_BYTES])
                for code, view in zip(self._typecodes, views, strict=True)
            )
            starts, stops = chunk[:2]
            if starts[0] < 0 or not all(map(lt, starts, stops)):
                raise ValueError("an empty or negative range")
            if not all(map(le, stops, islice(starts, 1, None))) or (last and last[1][-1] > starts[0]):
                raise ValueError("ranges overlap or are not sorted")
            if _touches_its_equal(chunk) or (last and _touches_its_equal(_seam(last, chunk))):
                raise ValueError("two touching ranges are not merged")
            self._add_chunk(chunk, sum(stops) - sum(starts))
            self.rows += len(starts)
            self.count += self._counts[-1]
            last = chunk
            if not len(self._chunks) % CHUNKS_PER_STEP:
                yield

    def chunks(self) -> Sequence[tuple[array[Any], ...]]:
        """A few hundred rows at a time, as columns. Change neither them nor the map meanwhile."""
        return self._chunks

    def check(self) -> None:
        """Raise InternalError when an invariant does not hold. The cost grows with the number of ranges."""
        for _ in self.check_in_steps():
            pass

    def check_in_steps(self) -> Iterator[None]:
        """The same, yielding after every few thousand rows."""
        last: tuple[array[Any], ...] = ()
        rows = count = 0
        for place, chunk in enumerate(self._chunks):
            starts, stops = chunk[:2]
            if not 0 < len(starts) <= CHUNK_ROWS_MAX or any(len(column) != len(starts) for column in chunk):
                raise InternalError("a chunk is empty or too long", invariant="IM3")
            if not all(map(lt, starts, stops)) or not all(map(le, stops, islice(starts, 1, None))):
                raise InternalError("ranges are empty, unsorted or overlap", invariant="IM1")
            if last and last[1][-1] > starts[0]:
                raise InternalError("ranges are empty, unsorted or overlap", invariant="IM1")
            if _touches_its_equal(chunk) or (last and _touches_its_equal(_seam(last, chunk))):
                raise InternalError("touching ranges of equal values", invariant="IM2")
            if len(self._heads) <= place or self._heads[place] != starts[0]:
                raise InternalError("chunk heads differ from the chunks", invariant="IM3")
            length = sum(stops) - sum(starts)
            if len(self._counts) <= place or self._counts[place] != length:
                raise InternalError("the counts of chunks differ from the chunks", invariant="IM4")
            rows += len(starts)
            count += length
            last = chunk
            if not (place + 1) % CHUNKS_PER_STEP:
                yield
        if not len(self._chunks) == len(self._heads) == len(self._counts):
            raise InternalError("there are heads or counts of no chunk", invariant="IM3")
        if self.rows != rows or self.count != count:
            raise InternalError("counters differ from the ranges", invariant="IM4")


def _seam(before: tuple[array[Any], ...], behind: tuple[array[Any], ...]) -> tuple[array[Any], ...]:
    """The last row of a chunk and the first of the next, as columns."""
    return tuple([column[-1:] + more[:1] for column, more in zip(before, behind, strict=True)])


def _touches_its_equal(columns: Sequence[array[Any]]) -> bool:
    """Whether two neighbours of these sorted rows touch and have the same values."""
    starts, stops, *values = columns
    touching = compress(range(1, len(starts)), map(eq, stops, islice(starts, 1, None)))
    return any(all(column[index - 1] == column[index] for column in values) for index in touching)


def _stored(arrays: Iterable[array[Any]]) -> Iterator[bytes]:
    for column in arrays:
        if sys.byteorder == "big":
            column = column[:]
            column.byteswap()
        yield column.tobytes()


def _loaded(code: str, stored: memoryview) -> array[Any]:
    numbers = array(code, stored.tobytes())
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


class IntervalSet(IntervalMap):
    """A set of offsets as disjoint ranges that do not touch; iterating yields `(start, stop)`."""

    __slots__ = ()

    def add(self, start: int, stop: int) -> int:
        """Add `[start, stop)`, of which any part may be present; returns how many offsets are new."""
        if start >= stop:
            return 0
        if self._chunks and (stops := self._chunks[-1][1])[-1] == start:
            # The common case beside a hole: the last range grows.
            stops[-1] = stop
            self._counts[-1] += stop - start
            self.count += stop - start
            return stop - start
        before = self.count
        if self._chunks and start < self.last_stop:
            self.carve(start, stop)
        self.put(start, stop)
        return self.count - before

    def add_new(self, start: int, stop: int) -> bool:
        """Add `[start, stop)`, which is not empty, if no part of it is present, and tell whether that is so."""
        heads = self._heads
        at = bisect_right(heads, start) - 1
        if at >= 0:
            starts, stops = chunk = self._chunks[at]
            index = bisect_right(stops, start)
            if 0 < index < len(stops) and stops[index - 1] < start and stop < starts[index]:
                # The common case: between two rows of a chunk, touching neither.
                starts.insert(index, start)
                stops.insert(index, stop)
                self.rows += 1
                self.count += stop - start
                self._counts[at] += stop - start
                if len(starts) > CHUNK_ROWS_MAX:
                    self._split(at)
                return True
            if chunk is self._chunks[-1] and stops[-1] <= start:
                self.add(start, stop)
                return True
        at, index = self._locate(start)
        if at < len(self._chunks) and self._chunks[at][0][index] < stop:
            return False
        self.put(start, stop)
        return True

    def missing(self, start: int, stop: int) -> list[tuple[int, int]]:
        """The parts of `[start, stop)` that are not in the set."""
        at, index = self._locate(start)
        begins, ends = [start], list[int]()
        for starts, stops in islice(self._chunks, at, None):
            end = bisect_left(starts, stop, index)
            ends += starts[index:end]
            begins += stops[index:end]
            if end < len(starts):
                break
            index = 0
        ends.append(stop)
        return [(first, last) for first, last in zip(begins, ends, strict=True) if first < last]
