"""Partitions by key, and in turn without one."""

from __future__ import annotations

from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.log.errors import InvalidArgument
from callboard.publishing.partitioning import (
    STICKY_BYTES,
    STICKY_RECORDS,
    StickyRoundRobin,
    checked,
    consistent,
    split,
)


@pytest.mark.parametrize("key", [b"", b"23456", b"alice"])
def test_keys_go_by_crc32(key: bytes) -> None:
    """A key's partition is its CRC-32 modulo the number of partitions."""
    assert crc32(key) % 7 == consistent(key, 7)


def test_crc32_is_the_published_one() -> None:
    """The check value of CRC-32 holds, so other programs can compute the same partitions."""
    assert 0xCBF43926 % 1000 == consistent(b"123456789", 1000)


def test_round_robin_sticks_for_a_batch() -> None:
    """A partition gets a batch's worth of messages before the next one has its turn."""
    sticky, half = StickyRoundRobin(3), STICKY_RECORDS // 2
    assert [0, 0, 1, 1, 2, 2, 0] == [sticky.choose(half, 10) for _ in range(7)]


def test_round_robin_counts_bytes_too() -> None:
    """Few large messages move the turn on as many small ones do."""
    sticky, most = StickyRoundRobin(2), STICKY_BYTES
    assert [0, 1, 1, 0] == [sticky.choose(1, size) for size in (most, most - 1, 1, 5)]


@pytest.mark.parametrize("chosen", [-1, 3, 1.0, "1", None, True])
def test_a_partitioner_that_chooses_no_partition_is_refused(chosen: object) -> None:
    """A user's partitioner must return a whole number in range."""
    with pytest.raises(InvalidArgument, match="from 0 to 2"):
        checked(lambda key, partitions: chosen, b"k", 3)  # type: ignore[arg-type,return-value]


def test_a_refused_batch_moves_nothing() -> None:
    """When the partitioner fails, the turn of messages without a key has not moved."""
    sticky = StickyRoundRobin(3)
    sticky.choose(STICKY_RECORDS - 1, 0)
    with pytest.raises(InvalidArgument):
        split([None, b"k"], 3, sticky=sticky, partitioner=lambda key, partitions: 9)
    assert 0 == sticky.partition


@given(st.lists(st.none() | st.binary(max_size=3)), st.integers(1, 5), st.booleans())
def test_split_is_a_partition_of_the_batch(keys: list[bytes | None], partitions: int, own: bool) -> None:
    """Every index appears once, in order, where its key belongs; messages without a key stay together."""
    sticky = StickyRoundRobin(partitions)
    sticky.move_on()
    turn = sticky.partition

    def last_byte(key: bytes, count: int) -> int:
        return sum(key) % count

    partitioner = last_byte if own else consistent
    found = split(keys, partitions, sticky=sticky, partitioner=partitioner)
    assert list(range(len(keys))) == sorted(index for indexes in found.values() for index in indexes)
    for partition, indexes in found.items():
        assert sorted(indexes) == indexes
        for index in indexes:
            key = keys[index]
            assert partition == (turn if key is None else partitioner(key, partitions))
