"""Batches joined into one, column by column, without looking at a record. Pure.

Recordings of live traffic hold many small batches: published one by one, each would cost a frame and a commit.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Final, NamedTuple

import attrs

from callboard.log.format.columns import Columns, Ends
from callboard.log.seams.disk import Buffer

NO_ENDS: Final = array("I", (0,))


class _Part(NamedTuple):
    """A byte column of one batch; without data all of its items are None."""

    records: int
    data: Buffer | None
    ends: Ends | None
    nulls: Buffer | None


def joined(parts: Sequence[Columns]) -> Columns:
    """One dense batch of all records, in order; bytes are copied.

    Event times and producers are left out: a replay writes others.
    """
    count = sum([part.count for part in parts])
    data, ends, nulls = _bytes([_Part(p.count, p.values, p.value_ends, p.value_nulls) for p in parts])
    columns = Columns(count, count - 1, data, ends, nulls)
    if any(part.keys is not None for part in parts):
        columns.keys, columns.key_ends, columns.key_nulls = _bytes(
            [_Part(p.count, p.keys, p.key_ends, p.key_nulls) for p in parts]
        )
    if any(part.dedup_ids is not None for part in parts):
        columns.dedup_ids, columns.dedup_ends, columns.dedup_nulls = _bytes(
            [_Part(p.count, p.dedup_ids, p.dedup_ends, p.dedup_nulls) for p in parts]
        )
    if any(part.header_ends is not None for part in parts):
        _join_headers(columns, parts)
    if any(part.expiries is not None for part in parts):
        columns.ttls = [ttl for part in parts for ttl in ttls_of(part)]
    if any(part.priorities is not None for part in parts):
        columns.priorities = b"".join(
            [bytes(part.count) if part.priorities is None else bytes(part.priorities) for part in parts]
        )
    return columns


def published_again(columns: Columns) -> Columns:
    """The same records, which live as long as they did, from their new append on."""
    return (
        columns if columns.expiries is None else attrs.evolve(columns, ttls=ttls_of(columns), expiries=None)
    )


def ttls_of(columns: Columns) -> list[int | None]:
    """How long each record lived, in microseconds; None for what did not expire."""
    expiries = map(columns.expiry, range(columns.count))
    return [
        None if expiry is None else max(1, expiry - columns.append_time(index))
        for index, expiry in enumerate(expiries)
    ]


def _join_headers(columns: Columns, parts: Sequence[Columns]) -> None:
    columns.header_ends = _ends([part.header_ends or array("I", bytes(4 * part.count + 4)) for part in parts])
    names, values = zip(*[part.header_columns() for part in parts], strict=True)
    columns.header_names = b"".join([data for data, _ in names])
    columns.header_name_ends = _ends([ends for _, ends in names])
    columns.header_values = b"".join([data for data, _ in values])
    columns.header_value_ends = _ends([ends for _, ends in values])


def _bytes(parts: Sequence[_Part]) -> tuple[bytes, array[int], bytes | None]:
    data = b"".join([part.data for part in parts if part.data is not None])
    ends = _ends(
        [array("I", bytes(4 * part.records + 4)) if part.ends is None else part.ends for part in parts]
    )
    bits = shift = 0
    for part in parts:
        if part.data is None:
            bits |= ((1 << part.records) - 1) << shift
        elif part.nulls is not None:
            bits |= int.from_bytes(part.nulls, "little") << shift
        shift += part.records
    return data, ends, bits.to_bytes((shift + 7) // 8, "little") if bits else None


def _ends(parts: Sequence[Ends]) -> array[int]:
    """Ends of items that follow each other."""
    if len(parts) == 1:
        return array("I", parts[0])
    found = array("I", NO_ENDS)
    for ends in parts:
        before = found[-1]
        found.extend([end + before for end in ends[1:]] if before else ends[1:])
    return found
