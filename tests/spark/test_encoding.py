"""Rows in Arrow become the batches that the log would have made of the same records. Without Spark."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.log.errors import InvalidArgument, MessageTooLarge
from callboard.log.format.columns import NO_TIME, Columns
from callboard.log.format.frame import encode_frame

ITEMS = st.none() | st.binary(max_size=5)
TIMES = st.integers(-(2**40), 2**50)
HEADERS = st.dictionaries(st.text(max_size=3), st.binary(max_size=3), max_size=2)


def frame_of(columns: Columns) -> bytes:
    """Everything that is stored of a batch."""
    return b"".join(encode_frame(columns, segment_id=1, base_offset=0, append_time_us=columns.append_time_us))


def said(batch: Any) -> list[dict[str, Any]]:
    """The rows without their offsets."""
    rows: list[dict[str, Any]] = batch.drop_columns(["offset"]).to_pylist()
    return rows


@st.composite
def batches_of_columns(draw: Any) -> Columns:
    """A batch with columns of every kind, and nulls among them."""
    count = draw(st.integers(1, 12))

    def some(items: Any) -> list[Any]:
        found: list[Any] = draw(st.lists(items, min_size=count, max_size=count))
        return found

    first = draw(st.integers(0, count))
    runs = [(first, 7, 2, 100), (count - first, draw(st.sampled_from([0, 2**63])), 0, 0)]
    columns = Columns.build(
        some(ITEMS),
        some(ITEMS),
        some(HEADERS),
        some(st.none() | TIMES),
        priorities=some(st.none() | st.integers(1, 10)),
        expiries=some(st.none() | TIMES),
        dedup_ids=some(ITEMS),
        producers=[run for run in runs if run[0]],
    )
    columns.append_time_us = draw(TIMES)
    return columns


@given(columns=batches_of_columns(), start=st.integers(0, 3))
def test_what_was_read_is_written_as_it_was(arrow: Any, encoding: Any, columns: Columns, start: int) -> None:
    """Byte for byte; and so are the rows behind some others of the same Arrow batch."""
    batch = arrow.to_arrow(columns, ("web", 0), arrow.arrow_schema(list(arrow.FIELDS)))
    again = encoding.to_columns(encoding.with_types(batch))
    times = columns.event_times
    is_plain = times is None or not (NO_TIME in times or set(times) == {columns.append_time_us})
    if is_plain:  # else records have got their append times, which say as much as event times that equal them
        assert frame_of(again) == frame_of(columns)
    rest = batch.slice(min(start, batch.num_rows - 1))
    part = encoding.to_columns(encoding.with_types(rest))
    found = arrow.to_arrow(part, ("web", 0), batch.schema)
    assert said(found) == said(rest)


@given(
    sizes=st.lists(st.sampled_from([0, 1, 300_000, 2**20 - 1, 2**20]), min_size=1, max_size=12),
    data=st.data(),
)
def test_batches_are_cut_by_size_wherever_arrow_cuts(
    arrow: Any, encoding: Any, sizes: list[int], data: Any
) -> None:
    """A batch ends with the record with which it reaches a MiB."""
    rows = arrow.to_arrow(
        Columns.build([bytes(size) for size in sizes]), ("", 0), arrow.arrow_schema(["value"])
    )
    cuts = sorted({0, len(sizes), *data.draw(st.lists(st.integers(0, len(sizes)), max_size=4))})
    pieces = [rows.slice(first, last - first) for first, last in pairwise(cuts)]
    found = [[len(value) for value in batch.column("value").to_pylist()] for batch in encoding.cut(pieces)]
    expected: list[list[int]] = [[]]
    for size in sizes:
        if sum(expected[-1]) >= 2**20:
            expected.append([])
        expected[-1].append(size)
    assert found == expected


def test_batches_are_cut_by_number(arrow: Any, encoding: Any) -> None:
    """4,096 records at most."""
    rows = arrow.to_arrow(Columns.build([b"x"] * 10_000), ("", 0), arrow.arrow_schema(["value"]))
    pieces = [rows.slice(first, 100) for first in range(0, 10_000, 100)]
    assert [batch.num_rows for batch in encoding.cut(pieces)] == [4_096, 4_096, 1_808]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ({"value": [b"x"], "timestamp": [None]}, "a record has no time"),
        ({"value": [b"x"], "timestamp": [2**62]}, "are no microseconds since 1970"),
        ({"value": [b"x"], "timestamp": [1], "append_time": [None]}, "a record has none"),
        ({"value": [b"x"], "timestamp": [1], "priority": [10]}, "a priority is 0 to 9"),
        ({"value": [1], "timestamp": [1]}, "column `value` is int64, and is to be binary"),
    ],
)
def test_rows_that_no_recording_can_hold_are_refused(encoding: Any, rows: dict[str, Any], words: str) -> None:
    """With the column, and what to do."""
    batch = encoding.pa.RecordBatch.from_pydict(rows)
    with pytest.raises(InvalidArgument, match=words):
        encoding.to_columns(encoding.with_types(batch))


def test_a_key_that_nobody_could_publish_is_refused(encoding: Any) -> None:
    """Of a million bytes, say."""
    batch = encoding.pa.RecordBatch.from_pydict({"key": [bytes(1_000_000)], "value": [b""]})
    with pytest.raises(MessageTooLarge, match="a record's key has 1000000 bytes, and at most 65536"):
        list(encoding.cut([batch]))


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["timestamp", "value", "colour"], "no column 'colour'"),
        (["timestamp", "key"], "needs the columns"),
        (["value", "key"], "needs the columns"),
    ],
)
def test_columns_that_are_none_are_refused(encoding: Any, names: list[str], words: str) -> None:
    """Before any row is written."""
    with pytest.raises(InvalidArgument, match=words):
        encoding.check_names(names)
