"""Columns as Arrow: every column, every kind of absence."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.log.errors import InvalidArgument
from callboard.log.format.columns import Columns

ITEMS = st.none() | st.binary(max_size=5)
TIMES = st.none() | st.integers(-(2**40), 2**50)


@given(data=st.data(), count=st.integers(1, 20))
def test_arrow_says_what_the_records_say(arrow: Any, data: Any, count: int) -> None:
    """For whole batches and for parts of them."""

    def some(items: Any) -> list[Any]:
        found: list[Any] = data.draw(st.lists(items, min_size=count, max_size=count))
        return found

    columns = Columns.build(
        some(ITEMS),
        some(ITEMS),
        some(st.dictionaries(st.text(max_size=3), st.binary(max_size=3), max_size=2)),
        some(TIMES),
        priorities=some(st.none() | st.integers(1, 10)),
        expiries=some(TIMES),
        dedup_ids=some(ITEMS),
        producers=[(count, data.draw(st.sampled_from([0, 7])), 1, 100)],
    )
    columns.base_offset, columns.append_time_us = 1000, 5
    start = data.draw(st.integers(0, count - 1))
    part = columns.select(start, data.draw(st.integers(start + 1, count)))
    batch = arrow.to_arrow(part, ("web", 3), arrow.arrow_schema(list(arrow.FIELDS)))
    batch.validate(full=True)
    rows = batch.to_pylist()
    assert len(rows) == part.count
    for index, row in enumerate(rows):
        producer = part.producer(index) or (None, None, None)
        event = part.event_time(index)
        assert row == {
            "topic": "web",
            "partition": 3,
            "offset": part.offset(index),
            "timestamp": 5 if event is None else event,
            "append_time": 5,
            "key": part.key(index),
            "value": part.value(index),
            "headers": [{"name": name, "value": value} for name, value in part.headers(index).items()],
            "priority": part.priority(index) - 1 if part.priority(index) else None,
            "expiry": part.expiry(index),
            "dedup_id": part.dedup_id(index),
            "producer_id": producer[0],
            "producer_epoch": producer[1],
            "producer_sequence": producer[2],
        }


def test_columns_are_shared_not_copied(arrow: Any) -> None:
    """The values of a batch are the bytes that were read."""
    data = bytes(1_000_000)
    columns = Columns.build([data])
    columns.values = memoryview(data)
    batch = arrow.to_arrow(columns, ("web", 0), arrow.arrow_schema(["value"]))
    assert batch.column("value").buffers()[2].address == arrow.pa.py_buffer(data).address


def test_a_column_that_is_none_is_refused(arrow: Any) -> None:
    """The error names those that there are."""
    with pytest.raises(InvalidArgument, match=r"no column 'colour'. There are topic, partition"):
        arrow.arrow_schema(["value", "colour"])


def test_numbers_from_2_to_the_63_on_keep_their_bits(arrow: Any) -> None:
    """Spark has no unsigned numbers."""
    columns = Columns.build([b"a", b"b"], producers=[(2, 2**64 - 2, 3, 2**63 - 1)])
    names = ["producer_id", "producer_epoch", "producer_sequence"]
    batch = arrow.to_arrow(columns, ("web", 0), arrow.arrow_schema(names))
    assert [tuple(row.values()) for row in batch.to_pylist()] == [(-2, 3, 2**63 - 1), (-2, 3, -(2**63))]
