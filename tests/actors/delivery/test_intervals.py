"""Sets and maps of ranges against plain Python sets and dictionaries."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.delivery.intervals import CHUNK_ROWS_MAX, IntervalMap, IntervalSet
from callboard.actors.delivery.receipts import LeaseState, merged
from callboard.log.errors import InternalError

RANGES = st.tuples(st.integers(0, 60), st.integers(0, 12)).map(lambda pair: (pair[0], pair[0] + pair[1]))


def test_adjacent_ranges_merge() -> None:
    """Two ranges that touch become one."""
    kept = IntervalSet()
    kept.add(0, 5)
    kept.add(10, 15)
    kept.add(5, 10)
    assert list(kept) == [(0, 15)]
    assert kept.count == 15


def test_carving_splits() -> None:
    """Carving the middle of a range leaves its two ends."""
    kept = IntervalSet()
    kept.add(0, 10)
    assert kept.carve(4, 6) == [(4, 6)]
    assert list(kept) == [(0, 4), (6, 10)]


def test_values_keep_touching_ranges_apart() -> None:
    """Ranges of a map merge only when their values agree."""
    kept = IntervalMap("q")
    kept.put(0, 2, 1)
    kept.put(2, 4, 2)
    kept.put(4, 6, 2)
    assert list(kept) == [(0, 2, 1), (2, 6, 2)]


def test_putting_over_a_range_is_a_bug() -> None:
    """A map never lets one range hide another."""
    kept = IntervalMap("q")
    kept.put(0, 10, 1)
    with pytest.raises(InternalError, match="IM1"):
        kept.put(3, 4, 2)


@given(st.lists(st.tuples(st.sampled_from(["add", "add new", "carve"]), RANGES), max_size=40), RANGES)
def test_set_agrees_with_a_python_set(
    steps: list[tuple[str, tuple[int, int]]], probe: tuple[int, int]
) -> None:
    """Any sequence of additions and removals leaves what a set of integers would hold."""
    kept, model = IntervalSet(), set[int]()
    for verb, (start, stop) in steps:
        if verb == "add":
            assert len(set(range(start, stop)) - model) == kept.add(start, stop)
            model |= set(range(start, stop))
        elif verb == "add new":
            if start < stop:
                is_new = model.isdisjoint(range(start, stop))
                assert kept.add_new(start, stop) == is_new
                model |= set(range(start, stop)) if is_new else set()
        else:
            carved = kept.carve(start, stop)
            assert set(range(start, stop)) & model == {o for first, end in carved for o in range(first, end)}
            model -= set(range(start, stop))
        kept.check()
    assert model == {offset for start, stop in kept for offset in range(start, stop)}
    probed = set(range(*probe))
    assert len(probed & model) == kept.count_in(*probe)
    assert probed - model == {offset for start, stop in kept.missing(*probe) for offset in range(start, stop)}
    assert (probe[0] in model) == kept.contains(probe[0])
    copy = IntervalSet()
    copy.load(kept.columns())
    copy.check()
    assert list(kept) == list(copy)


@given(st.lists(st.tuples(RANGES, st.integers(0, 2)), max_size=30), st.integers(0, 80))
def test_map_agrees_with_a_dictionary(steps: list[tuple[tuple[int, int], int]], limit: int) -> None:
    """Carving and putting keep the value of every offset; the front comes out in order."""
    kept, model = IntervalMap("qd"), dict[int, int]()
    for (start, stop), value in steps:
        carved = kept.carve(start, stop)
        assert {o: v for o, v in model.items() if start <= o < stop} == {
            o: row[2] for row in carved for o in range(row[0], row[1])
        }
        if start < stop:
            kept.put(start, stop, value, value / 2)
        model.update(dict.fromkeys(range(start, stop), value))
        kept.check()
    front = [offset for row in kept.take_front(limit, 1 << 62) for offset in range(row[0], row[1])]
    assert sorted(model)[:limit] == front
    kept.check()
    assert len(model) - len(front) == kept.count


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3), st.integers(0, 1)), max_size=40),
    st.integers(0, 3),
    st.booleans(),
)
def test_rows_that_are_put_together_are_there_as_if_each_was_put(
    parts: list[tuple[int, int, int]], apart: int, is_before: bool
) -> None:
    """Whether they lie behind everything or before, and whether they touch each other, or what is there."""
    rows, at = [], 10 + apart
    for gap, length, value in parts:
        rows.append((at + gap, at + gap + length, value))
        at += gap + length
    one, many = IntervalMap("q"), IntervalMap("q")
    for kept in (one, many):
        kept.put(5, 10, 1)
        if is_before:
            kept.put(at + apart, at + apart + 1, 1)
    for row in rows:
        one.put(*row)
    if rows:
        many.put_all(*zip(*rows, strict=True))
    many.check()
    assert list(one) == list(many)


def test_a_hundred_thousand_rows_put_together_are_whole() -> None:
    """They pass through many chunks, beside what is there, and may be carved like any others."""
    kept = IntervalMap("q")
    kept.put(0, 1, 7)
    kept.put_all(range(10, 300_010, 3), range(11, 300_011, 3), [5] * 100_000)
    kept.check()
    assert (kept.rows, kept.count) == (100_001, 100_001)
    assert kept.carve(150_000, 150_006) == [(150_001, 150_002, 5), (150_004, 150_005, 5)]
    kept.check()


@given(st.sets(st.integers(0, 60)), st.sets(st.integers(0, 60)))
def test_ranges_carved_out_of_a_lease_together_are_as_if_each_was(held: set[int], named: set[int]) -> None:
    """What is taken and what stays is the same, however many ranges are named."""
    rows = [(start, stop, 2 * (start % 3)) for start, stop in merged([(o, o + 1) for o in sorted(held)])]
    ranges = merged([(offset, offset + 1) for offset in sorted(named)])
    one, many = LeaseState(1, 0.0, False, list(rows)), LeaseState(1, 0.0, False, list(rows))
    taken = [row for start, stop in ranges for row in one.carve(start, stop)]
    assert many.carve_all(ranges) == taken
    assert many.rows == one.rows


@pytest.mark.parametrize("seed", range(3))
def test_many_chunks(seed: int) -> None:
    """Ten thousand gaps filled in random order pass through splits and merges of chunks to one range."""
    rng = random.Random(seed)
    offsets = list(range(CHUNK_ROWS_MAX * 10))
    rng.shuffle(offsets)
    kept = IntervalSet()
    for offset in offsets[: len(offsets) // 4]:
        kept.add(offset, offset + 1)
    kept.check()
    for offset in offsets[len(offsets) // 4 : len(offsets) // 2]:
        assert kept.add_new(offset, offset + 1)
        assert not kept.add_new(offset, offset + 1)
    kept.check()
    held = set(offsets[: len(offsets) // 2])
    for _ in range(50):
        start, stop = sorted(rng.sample(range(-5, len(offsets) + 5), 2))
        assert kept.count_in(start, stop) == len(held.intersection(range(start, stop)))
    kept.add(100, 9_000)
    kept.carve(200, 8_000)
    kept.check()
    for offset in offsets:
        kept.add(offset, offset + 1)
    kept.check()
    assert [(0, len(offsets))] == list(kept)


@pytest.mark.parametrize(
    "ranges", [[(3, 3)], [(5, 4)], [(-1, 4)], [(0, 4), (3, 6)], [(4, 6), (0, 2)], [(0, 4), (4, 6)]]
)
def test_load_refuses_what_is_no_set(ranges: list[tuple[int, int]]) -> None:
    """Stored columns that break the invariants are refused."""
    columns = [b"".join(pair[i].to_bytes(8, "little", signed=True) for pair in ranges) for i in (0, 1)]
    with pytest.raises(ValueError, match="range"):
        IntervalSet().load(columns)


def test_a_million_gaps_are_compact() -> None:
    """A million one-offset gaps take some 16 bytes each, not 150."""
    kept = IntervalSet()
    for offset in range(0, 200_000, 2):
        kept.put(offset, offset + 1)
    stored = sum(column.buffer_info()[1] * column.itemsize for chunk in kept._chunks for column in chunk)
    assert kept.rows == 100_000
    assert stored <= 16 * kept.rows
