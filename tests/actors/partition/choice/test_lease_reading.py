"""What is read of a lease, and what of it is delivered."""

from __future__ import annotations

from callboard.actors.delivery.receipts import Lease
from callboard.actors.partition.choice.lease_reading import JOIN_MAX, LeaseReading
from callboard.log.format.columns import Columns


def batch(start: int, stop: int) -> Columns:
    """Records of one byte each."""
    columns = Columns.build([b"x"] * (stop - start))
    columns.base_offset = start
    return columns


def lease(*ranges: tuple[int, int]) -> Lease:
    """A lease of these ranges."""
    return Lease(1, tuple([(start, stop, 1) for start, stop in ranges]), 7, 1.0)


def found(reading: LeaseReading) -> list[tuple[int, int]]:
    """First and last offset of each batch that was found."""
    return [(columns.base_offset, columns.last_offset) for columns in reading.batches]


def test_ranges_that_are_near_each_other_are_read_at_once_and_only_they_delivered() -> None:
    """What lies between is read with them, and left out."""
    far = 9 + JOIN_MAX
    reading = LeaseReading(lease((2, 4), (6, 7), (8, 8 + 1), (far + 1, far + 2)), 1000)
    assert reading.wanted(0) == (2, 9, 1000)
    reading.take([batch(2, 7), batch(7, 9)], 9)
    assert found(reading) == [(2, 3), (6, 6), (8, 8)]
    assert reading.wanted(0) == (far + 1, far + 2, 996)
    assert reading.rest() == [(far + 1, far + 2)]


def test_what_is_not_read_for_want_of_room_is_given_back() -> None:
    """Bytes count for what is delivered only; the rest of the lease is what follows."""
    reading = LeaseReading(lease((0, 1), (3, 4), (6, 8)), 2)
    assert reading.wanted(0) == (0, 8, 2)
    reading.take([batch(0, 2)], 2)
    assert reading.wanted(0) == (2, 8, 1)
    reading.take([batch(2, 7)], 7)
    assert found(reading) == [(0, 0), (3, 3), (6, 6)]
    assert reading.wanted(0) is None
    assert reading.rest() == [(7, 8)]


def test_what_is_lost_between_leased_ranges_is_told() -> None:
    """A read that meets nothing tells so, also of what was not leased."""
    reading = LeaseReading(lease((0, 2), (5, 8)), 1000)
    reading.take([batch(0, 1), batch(6, 8)], 8)
    assert reading.lost == [(1, 6)]
    assert found(reading) == [(0, 0), (6, 7)]
    assert (reading.wanted(0), reading.rest()) == (None, [])


def test_a_read_that_does_not_get_on_is_not_repeated() -> None:
    """A read that goes on where it began counts as one that found nothing, and the next range is read."""
    reading = LeaseReading(lease((2, 5), (500, 501)), 1000)
    assert reading.wanted(0) == (2, 5, 1000)
    reading.take([], 2)
    assert reading.lost == [(2, 5)]
    assert reading.wanted(0) == (500, 501, 1000)
