"""Columns: building, reading and cutting batches."""

from __future__ import annotations

from array import array

import pytest

from callboard.log import limits
from callboard.log.errors import InvalidArgument
from callboard.log.format.columns import Columns
from callboard.log.format.frame import decode_frame, encode_frame


def test_values_and_keys_keep_none_and_empty_apart() -> None:
    """A tombstone, an empty value, a missing key and an empty key come back as what they were."""
    columns = Columns.build([b"a", None, b""], [None, b"", b"k"])

    assert [b"a", None, b""] == columns.value_list() == [columns.value(i) for i in range(3)]
    assert [None, b"", b"k"] == columns.key_list() == [columns.key(i) for i in range(3)]


def test_columns_that_no_record_needs_are_absent() -> None:
    """Keys, headers, times and the like cost nothing when no record has them."""
    columns = Columns.build(
        [b"a", b"b"],
        [None, None],
        [None, {}],
        [None, None],
        priorities=[0, 0],
        expiries=[None, None],
        dedup_ids=[None, None],
        producers=[(2, 0, 0, 0)],
    )

    optional = ("keys", "header_ends", "event_times", "priorities", "expiries", "dedup_ids", "producers")
    assert [None] * 7 == [getattr(columns, name) for name in optional]
    assert columns.value_nulls is None


def test_every_optional_column_is_read_back() -> None:
    """Headers, event times, priorities, expiries, deduplication ids and producers come back per record."""
    columns = Columns.build(
        [b"a", b"b", b"c"],
        headers=[{"type": "order", "raw": b"\xff"}, None, {"é": "ü"}],
        event_times=[5, None, -7],
        priorities=[0, 9, 255],
        expiries=[None, 11, None],
        dedup_ids=[b"x", None, b""],
        producers=[(2, 77, 3, 40), (1, 0, 0, 0)],
    )

    assert [{"type": b"order", "raw": b"\xff"}, {}, {"é": "ü".encode()}] == columns.header_list()
    assert [5, None, -7] == [columns.event_time(i) for i in range(3)]
    assert [0, 9, 255] == [columns.priority(i) for i in range(3)]
    assert [None, 11, None] == [columns.expiry(i) for i in range(3)]
    assert [b"x", None, b""] == [columns.dedup_id(i) for i in range(3)]
    assert [(77, 3, 40), (77, 3, 41), None] == [columns.producer(i) for i in range(3)]


def test_payload_size_counts_values_keys_and_headers() -> None:
    """`size_bytes` is what the user handed over, not what the format adds."""
    assert 3 + 2 + 4 == Columns.build([b"abc"], [b"kk"], [{"ab": "cd"}]).size_bytes


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"values": ["text"]}, "the value of record 0 is a str"),
        ({"values": [b"a", None, 3]}, "the value of record 2 is a int"),
        ({"values": [b"a"], "keys": []}, "0 keys for 1 values"),
        ({"values": [b"a"], "keys": ["k"]}, "the key of record 0"),
        ({"values": [b"a"], "headers": [{"n": 3}]}, "headers"),
        ({"values": [b"a"], "headers": [{3: b""}]}, "headers"),
        ({"values": [b"a"], "headers": [{"\ud800": b""}]}, "headers"),
        ({"values": [b"a"], "event_times": [2**63]}, "event times"),
        ({"values": [b"a"], "expiries": ["soon"]}, "expiries"),
        ({"values": [b"a"], "priorities": [256]}, "priorities"),
        ({"values": [b"a"], "dedup_ids": ["x"]}, "deduplication id"),
        ({"values": [b"a"], "producers": [(2, 1, 0, 0)]}, "runs"),
        ({"values": [b"a"], "producers": [(1, -1, 0, 0)]}, "producer runs"),
        ({"values": [array("I", [1])]}, "the value of record 0 is a array"),
    ],
)
def test_arguments_that_do_not_fit_are_named(arguments: dict[str, object], named: str) -> None:
    """A wrong type, range or length is an `InvalidArgument` that names the culprit."""
    with pytest.raises(InvalidArgument, match=named):
        Columns.build(**arguments)  # type: ignore[arg-type]


def test_a_batch_has_a_limit() -> None:
    """More records than a frame may hold are refused before anything is built."""
    with pytest.raises(InvalidArgument, match="Split the batch"):
        Columns.build([b""] * (limits.BATCH_RECORDS_MAX + 1))


def test_an_index_outside_the_batch_is_refused() -> None:
    """Neither a negative index nor one beyond the end reads a neighbour's bytes."""
    columns = Columns.build([b"a", b"b"])

    for index in (-1, 2):
        with pytest.raises(IndexError):
            columns.value(index)


def test_records_may_lie_apart() -> None:
    """A batch whose offsets have gaps finds records by offset; a part of it without gaps is dense again."""
    sparse = Columns.build([b"1", b"2", b"4"], [b"k"] * 3)
    sparse.base_offset, sparse.span, sparse.offset_deltas = 101, 3, array("I", [0, 1, 3])

    assert ([101, 102, 104], [b"1", b"2", b"4"]) == (list(sparse.offset_list()), sparse.value_list())
    assert (101, 104, 3) == (sparse.base_offset, sparse.last_offset, sparse.count)
    assert [1, 1, 2, 3] == [sparse.index_at(offset) for offset in (102, 102, 103, 105)]

    dense = sparse.select(0, 2)
    assert (None, 101, 102) == (dense.offset_deltas, dense.base_offset, dense.last_offset)
    assert 104 == sparse.select(2, 3).base_offset


@pytest.mark.parametrize("lengths", [[2] * 100, [0] * 5, [2] * 50 + [3, 1] * 25, [1, 3] + [2] * 98, [7]])
def test_any_part_of_columns_of_even_or_uneven_items_is_cut_right(lengths: list[int]) -> None:
    """Items of one length are cut in a quicker way, which finds the same."""
    values = [b"%d" % (10**length // 9) if length else b"" for length in lengths]
    columns = Columns.build(values)
    frame = encode_frame(columns, segment_id=1, base_offset=0, append_time_us=0)
    _, stored = decode_frame(b"".join(frame), 0, 1)
    for start in range(0, len(values), 7):
        for stop in range(start, len(values) + 1, 3):
            assert values[start:stop] == columns.value_list(start, stop) == stored.value_list(start, stop)
            if start < stop:
                assert values[start:stop] == stored.select(start, stop).value_list()
