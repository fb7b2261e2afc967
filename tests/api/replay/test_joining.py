"""Batches joined into one hold what they held."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from callboard.log.format.columns import Columns
from callboard.log.format.frame import encode_frame
from callboard.replay.joining import joined, published_again

ITEM = st.none() | st.binary(max_size=5)
HEADERS = st.dictionaries(st.text("abc", min_size=1, max_size=2), st.binary(max_size=3), max_size=3)
TIME = st.none() | st.integers(-(2**40), 2**40)


@st.composite
def batches(draw: Any) -> Columns:
    """A batch with any of the columns that there are, perhaps a part of a larger one."""
    count = draw(st.integers(1, 12))

    def column(items: Any) -> Any:
        return draw(st.none() | st.lists(items, min_size=count, max_size=count))

    columns = Columns.build(
        draw(st.lists(ITEM, min_size=count, max_size=count)),
        column(ITEM),
        column(HEADERS),
        column(TIME),
        priorities=column(st.integers(0, 255)),
        expiries=column(TIME),
        dedup_ids=column(ITEM),
        producers=draw(st.none() | st.just([(count, 7, 1, draw(st.integers(0, 100)))])),
    )
    start = draw(st.integers(0, count - 1))
    return columns.select(start, draw(st.integers(start + 1, count)))


def rows(columns: Columns) -> list[tuple[Any, ...]]:
    """Everything of each record, but for its place in the log."""
    return [
        (
            columns.value(index),
            columns.key(index),
            columns.headers(index),
            columns.priority(index),
            columns.dedup_id(index),
        )
        for index in range(columns.count)
    ]


def lifetimes(columns: Columns) -> list[int | None]:
    """How long each record lived, in microseconds."""
    times = [(columns.expiry(index), columns.append_time(index)) for index in range(columns.count)]
    return [None if expiry is None else max(1, expiry - appended) for expiry, appended in times]


@given(batches())
def test_records_that_are_published_again_live_as_long_as_they_did(columns: Columns) -> None:
    """From when they are appended again: the instant of the recording counts no more."""
    again = published_again(columns)
    assert again.expiries is None
    assert list(again.ttls or [None] * again.count) == lifetimes(columns)
    assert rows(again) == rows(columns)


@given(st.lists(batches(), min_size=1, max_size=5))
def test_joined_batches_hold_the_same_records(parts: list[Columns]) -> None:
    """In the same order, and the result can be stored."""
    whole = joined(parts)
    assert rows(whole) == [row for part in parts for row in rows(part)]
    assert whole.span == whole.count - 1
    lived = [ttl for part in parts for ttl in lifetimes(part)]
    assert (whole.expiries, list(whole.ttls or [None] * whole.count)) == (None, lived)
    assert encode_frame(whole, segment_id=1, base_offset=0, append_time_us=0)
