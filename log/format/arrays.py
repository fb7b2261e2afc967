"""The building blocks of columns: ends, null bitmaps, typed arrays.

Vocabulary
----------
ends    u32 array with a leading 0; item i of a byte column lies between ends[i] and ends[i + 1], as in Arrow.
nulls   bitmap, least significant bit first; a set bit means that the item is None. Absent when none is.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from struct import Struct

from callboard.log.errors import InvalidArgument, UnsupportedPlatform
from callboard.log.seams.disk import Buffer

__all__ = [
    "NO_TIME",
    "bitmap_of",
    "concat_bitmaps",
    "concat_ends",
    "is_null",
    "item_list",
    "join_items",
    "optional_times",
    "slice_bitmap",
    "slice_ends",
    "typed",
]

if sys.byteorder != "little":
    raise UnsupportedPlatform("Callboard's columns are little-endian in memory: this machine is big-endian.")

NO_TIME = -(2**63)
"""Stands for None in the time columns (i64 microseconds since 1970)."""

Ends = Sequence[int]

EVEN_COUNT_MAX = 4096
EVEN_KEPT = 64
"""Columns whose items have one length are so common that their ends, and how to cut them, are kept: 64 at most."""


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
        joined = b"".join(items)  # type: ignore[arg-type]
        count = len(items)
        lengths = list(map(len, items))  # type: ignore[arg-type]
        if count and lengths.count(lengths[0]) == count and len(joined) == count * lengths[0]:
            return joined, even_ends(lengths[0], count), None
        ends = array("I", accumulate(lengths, initial=0))
        if ends[-1] == len(joined):
            return joined, ends, None
    except TypeError:
        pass
    for index, item in enumerate(items):
        if item is not None and not isinstance(item, (bytes, bytearray)):
            kind = type(item).__name__
            raise InvalidArgument(
                f"{what} of record {index} is a {kind}: payloads are bytes or None. Encode it first."
            )
    filled = [b"" if item is None else item for item in items]
    return b"".join(filled), array("I", accumulate(map(len, filled), initial=0)), bitmap_of(items)


def even_ends(length: int, count: int) -> array[int]:
    """The ends of `count` items of one length: those of short columns are kept, since fixed sizes come in again."""
    if count <= EVEN_COUNT_MAX:
        return _kept_even_ends(length, count)
    return array("I", [length * index for index in range(count + 1)])


@lru_cache(maxsize=EVEN_KEPT)
def _kept_even_ends(length: int, count: int) -> array[int]:
    return array("I", [length * index for index in range(count + 1)])


@lru_cache(maxsize=EVEN_KEPT)
def _even_items(length: int, count: int) -> Struct:
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


def concat_bitmaps(parts: Iterable[tuple[Buffer | None, int]]) -> bytes | None:
    """The bitmap of several columns one after the other, each given with its number of items."""
    bits = at = 0
    for nulls, count in parts:
        if nulls is not None:
            bits |= int.from_bytes(nulls, "little") << at
        at += count
    return bits.to_bytes((at + 7) // 8, "little") if bits else None


def slice_ends(ends: Ends, start: int, stop: int) -> Ends:
    """The ends of items start to stop, made to begin with 0 again."""
    part = ends[start : stop + 1]
    first = part[0]
    return array("I", [end - first for end in part]) if first else part


def concat_ends(parts: Iterable[Ends]) -> array[int]:
    """The ends of several columns one after the other."""
    ends = array("I", (0,))
    for part in parts:
        start = ends[-1]
        ends.extend([start + end for end in part[1:]] if start else list(part[1:]))
    return ends


def item_list(data: Buffer, ends: Ends, nulls: Buffer | None, start: int, stop: int) -> list[bytes | None]:
    """Items start to stop as bytes: one copy of the column, then one slice each."""
    if start >= stop:
        return []
    bounds = list(ends[start : stop + 1])
    first = bounds[0]
    whole = bytes(data[first : bounds[-1]])
    items: list[bytes | None]
    count = stop - start
    length, rest = divmod(bounds[-1] - first, count)
    if not rest and 1 < count <= EVEN_COUNT_MAX and bounds == list(range(first, bounds[-1] + 1, length or 1)):
        items = list(_even_items(length, count).unpack(whole))
    elif first:
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


def optional_times(times: Sequence[int | None] | None, what: str) -> array[int] | None:
    """An i64 column with `NO_TIME` for None; None when no record has a time."""
    if times is None:
        return None
    try:
        return array("q", times)  # type: ignore[arg-type]
    except (TypeError, OverflowError):
        if not any(time is not None for time in times):
            return None
        return typed("q", (NO_TIME if time is None else time for time in times), what)
