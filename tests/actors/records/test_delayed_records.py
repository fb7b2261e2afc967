"""A delayed record while it waits, and what becomes of it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.records.delayed_records import (
    DELAYED,
    INSTANT,
    DueTime,
    due_of,
    moments_of,
    moved,
    waiting_columns,
)
from callboard.actors.source_ids import SOURCE_EPOCH, of_delays
from callboard.log.format.columns import FOREVER, Columns
from callboard.log.format.frame import encode_frame

MOMENTS = st.integers(0, 2**52)
ATTRIBUTES = st.tuples(
    st.binary(max_size=9),
    st.none() | st.binary(max_size=9),
    st.dictionaries(
        st.text(st.characters(codec="utf-8"), min_size=1, max_size=9), st.binary(max_size=5), max_size=3
    ),
    st.none() | MOMENTS,
    st.none() | st.just(FOREVER) | st.integers(1000, 2**50),
    st.integers(0, 10),
)


@given(st.lists(st.tuples(ATTRIBUTES, MOMENTS, st.none() | MOMENTS), min_size=1, max_size=4))
def test_a_message_comes_as_it_was_published(given_records: list[Any]) -> None:
    """With its own time and its time to live, which took no effect while it waited."""
    rows = [row for row, _, _ in given_records]
    dues = [DueTime(due_us, deadline_us, delay_us=9) for _, due_us, deadline_us in given_records]
    values, keys, headers, times, ttls, priorities = (list(column) for column in zip(*rows, strict=True))
    columns = Columns.build(values, keys, headers, times, ttls=ttls, priorities=priorities)
    waiting = waiting_columns(columns, dues, 7)
    assert waiting.event_times is None
    assert waiting.ttls is None
    for (kind, due_us, deadline_us, run, delay_us), due in zip(moments_of(waiting), dues, strict=True):
        assert (kind == INSTANT) == due.is_instant
        assert (due_us, deadline_us, run, delay_us) == (due.due_us, due.deadline_us or 0, 7, 9)
    batch = moved(5, [(number, waiting, number) for number in range(len(rows))])
    assert batch.value_list() == values
    assert batch.key_list() == keys
    assert batch.header_list() == headers
    assert [batch.event_time(index) for index in range(len(rows))] == times
    assert (batch.ttls or [None] * len(rows)) == ttls
    assert [batch.priority(index) for index in range(len(rows))] == priorities
    assert batch.producers == [(1, 5, SOURCE_EPOCH, number) for number in range(len(rows))]
    assert encode_frame(batch, segment_id=1, base_offset=0, append_time_us=0)


@pytest.mark.parametrize("header", [None, b"", b"\x01", b"\x03" + bytes(48), bytes(49), bytes(50)])
def test_a_header_that_nobody_wrote_says_nothing(header: bytes | None) -> None:
    """And such a record is due at once: nothing is lost."""
    assert due_of(header) is None
    columns = Columns.build([b"v"], headers=[{} if header is None else {DELAYED: header}])
    assert list(moments_of(columns)) == [(INSTANT, 0, 0, 0, 0)]
    assert moved(1, [(0, columns, 0)]).headers(0) == {}


def test_each_waiting_partition_is_a_source_of_its_own() -> None:
    """Also when a topic is made again under its name: its id is another."""
    assert len({of_delays("a", 0, 1), of_delays("a", 1, 1), of_delays("b", 0, 1), of_delays("a", 0, 2)}) == 4
