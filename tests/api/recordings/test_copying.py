"""Which records are copied, what is hidden of them, and in which order recordings are merged."""

from __future__ import annotations

from contextlib import aclosing
from heapq import merge
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.log.errors import InvalidArgument, RecordingInvalid
from callboard.log.format.columns import Columns
from callboard.recordings.copying import (
    GATHERED_RECORDS,
    HeaderFilter,
    KeyFilter,
    Merged,
    Privacy,
    RecordGathering,
    check_alike,
    joined,
)
from callboard.recordings.reader import open_recording
from callboard.recordings.tally import times_of
from callboard.recordings.writer import new_recording


def batch(*times: int | None, name: str = "") -> Columns:
    """Records at these times, whose values tell them apart."""
    columns = Columns.build(
        [b"%s%d" % (name.encode(), index) for index in range(len(times))],
        [b"key" for _ in times],
        [{"h": b"x"} for _ in times],
        times,
        priorities=[index % 3 for index in range(len(times))],
        expiries=[None if index % 2 else 10**15 for index in range(len(times))],
        dedup_ids=[b"%d" % index for index in range(len(times))],
        producers=[(len(times), 7, 1, 100)] if times else None,
    )
    columns.append_time_us = 5
    return columns


def rows(columns: Columns) -> list[tuple[Any, ...]]:
    """Everything that each record says."""
    return [
        (
            columns.value(index),
            columns.key(index),
            columns.headers(index),
            times_of(columns)[index],
            columns.priority(index),
            columns.expiry(index),
            columns.dedup_id(index),
            columns.producer(index),
        )
        for index in range(columns.count)
    ]


@given(cuts=st.lists(st.lists(st.none() | st.integers(0, 100), max_size=5), min_size=1, max_size=5))
def test_records_keep_all_that_they_say_when_batches_are_joined(cuts: list[list[int | None]]) -> None:
    """Also their time, when that was the time at which the log took them."""
    parts = [batch(*times) for times in cuts if times]
    if parts:
        assert rows(joined(parts)) == [row for part in parts for row in rows(part)]


def test_what_is_gathered_comes_in_batches_of_one_size() -> None:
    """However it was cut before; the last has the rest."""
    gathering = RecordGathering()
    batches = [full for number in range(7) for full in gathering.add(batch(*range(number, number + 333)))]
    batches += gathering.rest()
    assert [part.count for part in batches] == [GATHERED_RECORDS, GATHERED_RECORDS, 331]
    assert gathering.rest() == []


async def test_recordings_are_merged_by_time(world: Any) -> None:
    """Equal times in the order given; a record that is late in its recording follows its predecessor."""
    files = await world.disk.incarnate("merges")
    lives = {"a": [(1, 2, 2), (2, 9, 4)], "b": [(2, 3), (10,)], "c": []}
    for name, batches in lives.items():
        async with new_recording(files, name, partitions=1) as writer:
            for number, times in enumerate(batches):
                await writer.append(0, batch(*times, name=f"{name}{number}."))
    opened = [await open_recording(files, name) for name in lives]
    found: list[tuple[int, bytes | None]] = []
    async with aclosing(Merged([await each.read(0) for each in opened])) as parts:
        async for columns in parts:
            found += zip(times_of(columns), columns.value_list(), strict=True)
    assert [value for _, value in found] == [
        b"a0.0", b"a0.1", b"a0.2", b"a1.0", b"b0.0", b"b0.1", b"a1.1", b"a1.2", b"b1.0"
    ]  # fmt: skip


@pytest.mark.parametrize("seed", range(5))
async def test_merging_is_what_sorting_is(world: Any, seed: int) -> None:
    """For recordings in order of time, over many batches."""
    files = await world.disk.incarnate("merges")
    every: list[list[tuple[int, bytes]]] = []
    for name in "abc":
        times = sorted((number * 7919 + seed * ord(name)) % 500 for number in range(1500))
        values = [b"%s%d" % (name.encode(), index) for index in range(1500)]
        every.append(list(zip(times, values, strict=True)))
        async with new_recording(files, name, partitions=1) as writer:
            for first in range(0, 1500, 100 + seed):
                cut = slice(first, first + 100 + seed)
                await writer.append(0, Columns.build(values[cut], event_times=times[cut]))
    opened = [await open_recording(files, name) for name in "abc"]
    found: list[tuple[int, bytes | None]] = []
    async with aclosing(Merged([await each.read(0) for each in opened])) as parts:
        async for columns in parts:
            found += zip(times_of(columns), columns.value_list(), strict=True)
    assert found == list(merge(*every, key=lambda row: row[0]))


async def test_recordings_with_different_partitions_are_not_merged(world: Any) -> None:
    """The error names how many each has."""
    files = await world.disk.incarnate("merges")
    for partitions in (1, 2):
        async with new_recording(files, f"of-{partitions}", partitions=partitions):
            pass
    opened = [await open_recording(files, f"of-{partitions}") for partitions in (1, 2)]
    with pytest.raises(RecordingInvalid, match="of-1 has 1, of-2 has 2"):
        check_alike(opened)


def test_keys_are_hashed_and_payloads_are_zeros() -> None:
    """Equal keys stay equal, no key stays none, sizes stay; another salt gives other hashes."""
    columns = Columns.build([b"secret", None], [b"ada", None], [{"name": b"ada"}, {}])
    hidden = Privacy(salt=b"salt", scrub_payloads=True).hide(columns)
    assert hidden.value_list() == [bytes(6), None]
    assert hidden.headers(0) == {"name": bytes(3)}
    key = hidden.key(0)
    assert key is not None
    assert (len(key), hidden.key(1)) == (32, None)
    assert Privacy(salt=b"salt").hide(columns).key(0) == key
    assert Privacy(salt=b"other").hide(columns).key(0) != key
    assert columns.value_list() == [b"secret", None]
    assert columns.headers(0) == {"name": b"ada"}
    with pytest.raises(InvalidArgument, match="64 bytes"):
        Privacy(salt=bytes(65))


def test_keys_are_chosen_by_pattern() -> None:
    """Runs of records whose key matches one of several; no key matches none."""
    keys = [b"user-1", b"user-2", None, b"other", b"admin", b"\xff", b"user-3"]
    columns = Columns.build([b""] * len(keys), keys)
    assert KeyFilter(["user-*", "adm?n"]).parts(columns) == [(0, 2), (4, 5), (6, 7)]


def test_headers_are_chosen_by_name_and_pattern() -> None:
    """A record is kept when one of its headers matches; a name without a value to match is refused."""
    headers = [
        {"type": b"order"},
        {},
        {"kind": b"order"},
        {"type": b"orders", "kind": b"x"},
        {"type": b"refund"},
    ]
    columns = Columns.build([b""] * 5, headers=headers)
    assert HeaderFilter(["type=order*"]).parts(columns) == [(0, 1), (3, 4)]
    assert HeaderFilter(["type=refund", "kind=?"]).parts(columns) == [(3, 5)]
    for text in ("type", "=x", ""):
        with pytest.raises(InvalidArgument, match="NAME=PATTERN"):
            HeaderFilter([text])
