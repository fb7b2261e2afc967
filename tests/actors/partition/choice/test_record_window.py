"""The record window: what a range holds, what it drops, and the budget of all ranges."""

from __future__ import annotations

from array import array
from typing import Any

import pytest

from callboard.actors.partition.choice.record_window import (
    GRANT_BYTES,
    NO_KEY,
    RecordRange,
    WindowAllowance,
    key_hash,
    window_records,
)
from callboard.log.errors import InternalError
from callboard.log.format.columns import Columns

NAMES = ("key_hash",)


def batch(base: int, *keys: bytes | None, **columns: Any) -> Columns:
    """A batch at an offset."""
    built = Columns.build([b"value"] * len(keys), keys, **columns)
    built.base_offset = base
    return built


def filled(budget: WindowAllowance, count: int, records_max: int = 1000) -> RecordRange:
    """A range with so many records."""
    records = RecordRange(budget, records_max, NAMES)
    records.add(window_records(0, count, [batch(0, *[b"k"] * count)], NAMES), [(0, count)])
    records.charge(0)
    return records


def test_a_key_has_the_same_hash_in_every_process_and_no_key_has_one_of_its_own() -> None:
    """Hashes are fixed 64-bit numbers, so a range that is read again knows the same keys."""
    assert key_hash(b"alice") == 0x89DA54CE0CECEA4D
    assert key_hash(None) == NO_KEY
    assert key_hash(b"") != NO_KEY


def test_columns_are_read_from_batches_by_name() -> None:
    """Key hash, priority and expiry of each record, and what stands for none of them."""
    batches = [
        batch(3, b"a", None, priorities=[7, 0], expiries=[5_000, None]),
        batch(5, None),
    ]
    found = window_records(3, 6, batches, ("key_hash", "priority", "expiry_us"))
    assert list(found.offsets) == [3, 4, 5]
    assert list(found.columns["key_hash"]) == [key_hash(b"a"), NO_KEY, NO_KEY]
    assert list(found.columns["priority"]) == [7, 0, 0]
    assert list(found.columns["expiry_us"]) == [5_000, 2**63 - 1, 2**63 - 1]
    assert (found.absent, found.lost) == ([], [])


def test_a_read_tells_where_there_are_no_records() -> None:
    """What no batch covers is lost; what compaction took out of a batch is absent."""
    sparse = batch(4, b"b")
    sparse.span, sparse.offset_deltas = 2, array("I", [1])
    found = window_records(2, 12, [sparse, batch(9, b"d")], NAMES)
    assert list(found.offsets) == [5, 9]
    assert found.absent == [(4, 5), (6, 7)]
    assert found.lost == [(2, 4), (7, 9), (10, 12)]
    assert found.next_offset == 12


def test_a_range_holds_what_is_unsettled_and_drops_the_rest_in_time() -> None:
    """Settled records are not found any more, and give back their memory when they are the larger part."""
    records = filled(WindowAllowance(10**6), 600)
    assert records.settle(0, 250) == list(range(250))
    assert records.settle(200, 260) == list(range(250, 260))
    assert (records.count, records.index_of(259), records.index_of(260)) == (340, -1, 260)
    records.compact()
    assert records.size_bytes == 600 * 17
    records.seen = 400
    records.settle(500, 600)
    records.compact()
    assert (records.count, records.dead, records.size_bytes, records.seen) == (240, 0, 240 * 17, 140)
    assert records.index_of(260) == 0
    records.check()


def test_what_was_settled_meanwhile_is_not_added() -> None:
    """Of a read only what is still unsettled goes into the range."""
    records = RecordRange(WindowAllowance(10**6), 100, NAMES)
    records.add(window_records(0, 6, [batch(0, *[b"k"] * 6)], NAMES), [(1, 3), (5, 6)])
    assert (list(records.offsets), records.end, records.count) == ([1, 2, 5], 6, 3)
    with pytest.raises(InternalError, match="read again"):
        records.add(window_records(5, 6, [batch(5, b"k")], NAMES), [(5, 6)])


def test_the_range_used_longest_ago_is_evicted_first() -> None:
    """When the allowance is exhausted, idle ranges are emptied, oldest use first; those in use stay."""
    allowance = WindowAllowance(50 * 17)
    first, second, third = filled(allowance, 20), filled(allowance, 20), filled(allowance, 10)
    assert (allowance.size_bytes, first.lives) == (50 * 17, 0)
    first.charge(0)
    third.in_use = True
    fourth = filled(allowance, 20)
    assert [each.count for each in (first, second, third, fourth)] == [20, 0, 10, 20]
    assert (second.lives, second.end, allowance.size_bytes) == (1, 0, 50 * 17)
    fifth = filled(allowance, 30)
    assert [each.count for each in (first, third, fourth, fifth)] == [0, 10, 0, 30]


def test_a_range_is_full_at_its_limit_and_holds_a_few_records_whatever_others_take() -> None:
    """Room is what is left of the range's own limit; with the allowance exhausted by ranges in use it is small."""
    allowance = WindowAllowance(100 * 17)
    records = filled(allowance, 30, records_max=40)
    assert (records.room(1000), records.room(3)) == (10, 3)
    records.settle(0, 5)
    assert records.room(1000) == 15
    other = filled(allowance, 90)
    assert (records.count, other.count) == (0, 90)
    other.in_use = True
    other.charge(200)
    assert (records.room(1000), records.room(3)) == (16, 3)
    other.in_use = False
    assert records.room(1000) == 40
    assert other.count == 0


def test_what_is_read_fits_into_the_allowance_with_what_the_choice_takes() -> None:
    """Room is for records at the most that they may take, not for what their columns take (RW4)."""
    records = RecordRange(WindowAllowance(100 * 50), 1000, NAMES, beside_bytes=33)
    assert records.room(1000) == 100
    assert not records.lacks_room(1000)  # it cannot ask for more


def test_an_allowance_asks_for_more_and_makes_do_with_what_it_gets() -> None:
    """It asks when something is too large for it; when it gets less, or gives back, idle ranges are evicted."""
    asked = list[int]()
    allowance = WindowAllowance(0, lambda: asked.append(allowance.wanted_bytes))
    first = RecordRange(allowance, 10_000, NAMES)
    assert (first.lacks_room(10), asked) == (True, [])
    first.want_room(10)
    assert asked == [GRANT_BYTES]
    allowance.allow(40 * 17)
    assert (first.lacks_room(40), first.lacks_room(41), allowance.wanted_bytes) == (False, True, 0)
    first, second = filled(allowance, 20), filled(allowance, 30)
    assert (first.count, second.count) == (20, 30)  # until it is answered
    assert asked[1:] == [50 * 17 + GRANT_BYTES]
    allowance.allow(45 * 17)
    assert (first.count, second.count, allowance.size_bytes) == (0, 30, 30 * 17)
    allowance.give_back(10 * 17)
    assert (second.count, allowance.bytes_max) == (30, 35 * 17)
    second.in_use = True
    allowance.give_back(10 * 17)
    assert (second.count, allowance.bytes_max) == (30, 30 * 17)
    second.in_use = False
    allowance.give_back(10 * 17)
    assert (second.count, allowance.bytes_max) == (0, 20 * 17)


def test_uniform_records_need_no_columns() -> None:
    """Neither a key nor another priority: what all of them have is told, and where there are none, and nothing else."""
    names = ("key_hash", "priority", "append_us")
    plain, usual = batch(0, None, None), batch(2, None, priorities=[5])
    sparse = batch(3, None, None)
    sparse.offset_deltas, sparse.span = array("I", (0, 2)), 2
    found = window_records(0, 8, [plain, usual, sparse], names, unless_uniform=True)
    assert found.uniform == (NO_KEY, 5, 0)
    assert (list(found.offsets), found.absent, found.lost) == ([], [(4, 5)], [(6, 8)])
    assert window_records(0, 8, [plain, usual, sparse], names).uniform is None
    for other in (batch(2, b"a"), batch(2, None, priorities=[6]), batch(2, None, None, priorities=[5, 6])):
        mixed = window_records(0, 4, [plain, other], names, unless_uniform=True)
        assert (mixed.uniform, mixed.offsets[0]) == (None, 0)
