"""Rescaled recordings: what a key's records have to do with each other is exactly that of the recorded ones."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from contextlib import aclosing
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
import trio

from callboard.log.errors import InvalidArgument
from callboard.log.format.columns import Columns
from callboard.offline import files_below, recording_at
from callboard.recordings.sharing import Share
from callboard.recordings.writer import new_recording
from callboard.simulations.workload.rescaling import Rescaling, rescale, shifts_of

BYTES = "971e7a6bca01011ef27a1d6e92b7acefbd9043d0395ae8e004a367e2a9525fc0"
"""SHA-256 of the names and contents of all files of the recording that `rescale_alone.py` makes."""
SECOND_US = 1_000_000
START_US = 1_000_000_000 * SECOND_US
PARTITIONS = 2
Row = tuple[int, int, bytes | None, bytes]
"""Partition, time, key, value."""


def write(folder: Path, name: str, parts: Sequence[Iterable[Columns]]) -> str:
    """A recording of these batches, by partition."""

    async def work() -> None:
        async with files_below(str(folder), writable=True) as files:
            async with new_recording(files, name, partitions=len(parts)) as writer:
                for index, part in enumerate(parts):
                    for columns in part:
                        await writer.append(index, columns)

    trio.run(work)
    return str(folder / name)


def batches_of(path: str) -> list[list[Columns]]:
    """What a recording holds, by partition."""

    async def work() -> list[list[Columns]]:
        found = []
        async with recording_at(path) as recording:
            assert not await recording.faults()
            for index in range(len(recording.manifest.partitions)):
                async with aclosing(await recording.read(index)) as batches:
                    found.append([columns async for columns in batches])
        return found

    return trio.run(work)


def rows_of(path: str) -> list[Row]:
    """By partition and offset."""
    return [
        (partition, time, key, value)
        for partition, batches in enumerate(batches_of(path))
        for columns in batches
        for time, key, value in zip(
            columns.event_times or [], columns.key_list(), columns.value_list(), strict=True
        )
        if value is not None
    ]


def sequences(rows: Iterable[Row]) -> dict[bytes, list[tuple[int, int]]]:
    """Of each key, in order: time since its first record, and the value's size."""
    found: dict[bytes, list[tuple[int, int]]] = defaultdict(list)
    firsts: dict[bytes, int] = {}
    for _, time, key, value in rows:
        if key is not None:
            found[key].append((time - firsts.setdefault(key, time), len(value)))
    return found


def shapes(rows: Iterable[Row]) -> Counter[tuple[tuple[int, int], ...]]:
    """How often there is each sequence."""
    return Counter(map(tuple, sequences(rows).values()))


@pytest.fixture
def recorded(tmp_path: Path) -> str:
    """Two partitions of 600 records: 40 keys, of which one comes often, ties, and each fifth record without a key."""

    def batch(partition: int, first: int) -> Columns:
        numbers = range(first, first + 200)
        keys = [
            None if number % 5 == 0 else b"hot" if number % 5 == 1 else b"k%02d" % (number * number % 37)
            for number in numbers
        ]
        keys = [key if key is None else key + b"-%d" % partition for key in keys]
        values = [
            b"%s has %d apples" % (key or b"nobody", number % 90)
            for key, number in zip(keys, numbers, strict=True)
        ]
        times = [START_US + number // 3 * SECOND_US for number in numbers]
        return Columns.build(values, keys, event_times=times)

    return write(
        tmp_path, "r", [[batch(each, first) for first in (0, 200, 400)] for each in range(PARTITIONS)]
    )


def test_copies_are_the_recording_with_other_keys(spark: Any, recorded: str, tmp_path: Path) -> None:
    """Each key's order, times and sizes are there once for each copy, in the partition of the new key."""
    rescale(spark, recorded, str(tmp_path / "out"), Rescaling(scale=Fraction(3), shift_us=9 * SECOND_US))
    before, after = rows_of(recorded), rows_of(str(tmp_path / "out"))
    assert len(after) == 3 * len(before)
    assert shapes(after) == Counter({shape: 3 * many for shape, many in shapes(before).items()})
    keys, new = sequences(before).keys(), sequences(after).keys() - sequences(before).keys()
    assert len(new) == 2 * len(keys)
    assert Counter(map(len, new)) == Counter(
        {length: 2 * many for length, many in Counter(map(len, keys)).items()}
    )
    assert all(partition == crc32(key) % PARTITIONS for partition, _, key, _ in after if key is not None)
    kept = [row[1:] for row in after if row[2] in keys]
    assert sorted(kept, key=str) == sorted([row[1:] for row in before if row[2] is not None], key=str)
    assert Counter(row[3] for row in after) == Counter(
        {value: 3 * many for value, many in Counter(row[3] for row in before).items()}
    )
    bare = Counter(partition for partition, _, key, _ in after if key is None)
    assert bare == Counter(dict.fromkeys(range(PARTITIONS), 3 * 120))
    for one, following in pairwise(after):
        assert one[0] < following[0] or one[1] <= following[1]


def test_scrubbing_leaves_sizes_and_order_and_nothing_else(spark: Any, recorded: str, tmp_path: Path) -> None:
    """Not even the key of copy 0; equal values are equal still."""
    out = str(tmp_path / "out")
    manifest = rescale(spark, recorded, out, Rescaling(scrubs=True))
    before, after = rows_of(recorded), rows_of(out)
    assert shapes(after) == shapes(before)
    assert not sequences(after).keys() & sequences(before).keys()
    assert not any(word in row[3] for row in after for word in (b"apples", b"nobody", b"hot", b"has"))
    assert sorted(Counter(row[3] for row in after).values()) == sorted(
        Counter(row[3] for row in before).values()
    )
    assert "rescaled_from" not in manifest.source
    assert [row[1] for row in after if row[2] is None] == [row[1] for row in before if row[2] is None]


def test_a_fraction_has_whole_keys(spark: Any, recorded: str, tmp_path: Path) -> None:
    """Those of the share, as everybody finds it, with all of their records; half of a copy more is that, too."""
    share = Share(Fraction(1, 4), "7")
    rescale(spark, recorded, str(tmp_path / "out"), Rescaling(scale=Fraction(1, 4), seed="7"))
    before, after = rows_of(recorded), rows_of(str(tmp_path / "out"))
    keys = {key for key in sequences(before) if share.holds_key(key)}
    assert 0 < len(keys) < 30
    assert [row for row in after if row[2] is not None] == sorted(
        [(crc32(row[2]) % PARTITIONS, *row[1:]) for row in before if row[2] in keys],
        key=lambda row: (row[0], row[1]),
    )
    bare = [
        offset
        for part in range(PARTITIONS)
        for offset, row in enumerate([r for r in before if r[0] == part])
        if row[2] is None
    ]
    assert sum(row[2] is None for row in after) == sum(map(share.holds_offset, bare))
    rescale(spark, recorded, str(tmp_path / "more"), Rescaling(scale=Fraction(5, 4), seed="7", partitions=5))
    more = rows_of(str(tmp_path / "more"))
    assert len(more) == len(before) + len(after)
    assert len(sequences(more)) == len(sequences(before)) + len(keys)
    assert {row[0] for row in more if row[2] is None} == set(range(5))


def test_what_else_a_record_has_goes_along(spark: Any, tmp_path: Path) -> None:
    """Headers, priorities and lifetimes stay, deduplication ids are new, and times that fall back stay in order."""
    count = 50
    columns = Columns.build(
        [b"%d" % number for number in range(count)],
        [b"alice"] * count,
        [{"kind": b"order %d" % number} if number % 2 else None for number in range(count)],
        [START_US + (number - number % 7 * 3) * SECOND_US for number in range(count)],
        priorities=[number % 3 for number in range(count)],
        expiries=[START_US + 90 * SECOND_US] * count,
        dedup_ids=[b"id-%d" % number for number in range(count)],
    )
    columns.append_time_us = START_US
    recorded = write(tmp_path, "r", [[columns]])
    kept, hidden = str(tmp_path / "kept"), str(tmp_path / "hidden")
    rescale(spark, recorded, kept, Rescaling(scale=Fraction(2), shift_us=0))
    rescale(spark, recorded, hidden, Rescaling(scrubs=True))
    ((both,),) = batches_of(kept)
    values = both.value_list()
    for start in (0, 1):
        mine = [number for number in range(2 * count) if (both.key_list()[number] != b"alice") == bool(start)]
        assert [values[number] for number in mine] == [b"%d" % number for number in range(count)]
        assert [both.header_list()[number] for number in mine] == columns.header_list()
        assert [both.priority(number) for number in mine] == [columns.priority(n) for n in range(count)]
        times = [both.event_time(number) or both.append_time(number) for number in mine]
        assert times == list(columns.event_times or [])
        assert [(both.expiry(number) or 0) - both.append_time(number) for number in mine] == [
            90 * SECOND_US
        ] * count
    assert len({both.dedup_id(number) for number in range(2 * count)}) == 2 * count
    ((scrubbed,),) = batches_of(hidden)
    assert [sorted(each or ()) for each in scrubbed.header_list()] == [
        sorted(each or ()) for each in columns.header_list()
    ]
    assert not any(b"order" in text for each in scrubbed.header_list() for text in (each or {}).values())
    assert b"id-" not in b"".join(scrubbed.dedup_id(number) or b"" for number in range(count))


def test_a_web_servers_day_behaves_as_recorded(spark: Any, web_day: Path, tmp_path: Path) -> None:
    """Three times 30,969 requests: each client's sequence three times, with its sizes."""
    rescale(spark, str(web_day), str(tmp_path / "three"), Rescaling(scale=Fraction(3), scrubs=True))
    before, after = rows_of(str(web_day)), rows_of(str(tmp_path / "three"))
    assert shapes(after) == Counter({shape: 3 * many for shape, many in shapes(before).items()})
    assert not {row[2] for row in after} & {row[2] for row in before}
    assert min(row[1] for row in after) == min(row[1] for row in before)
    assert max(row[1] for row in after) - max(row[1] for row in before) <= 46_321 * SECOND_US // 200


def test_copies_are_shifted_by_different_steps_of_the_clock() -> None:
    """Copy 0 is not; a scale more adds a copy and moves no other; when steps are used up, they are drawn again."""
    day_us = 86_400 * SECOND_US
    for copies in (2, 10, 433):
        found = shifts_of(Rescaling(scale=Fraction(copies)), 0, day_us, SECOND_US)
        assert (found[0], len(set(found)), max(found) <= day_us // 200) == (0, copies, True)
        assert all(shift % SECOND_US == 0 for shift in found)
        assert (
            shifts_of(Rescaling(scale=Fraction(copies + 1)), 0, day_us, SECOND_US)[:-1] == found
            or copies == 433
        )
    assert max(shifts_of(Rescaling(scale=Fraction(500)), 0, 9_000 * day_us, 1)) <= 3_600 * SECOND_US
    assert sorted(shifts_of(Rescaling(scale=Fraction(5), shift_us=2), 0, day_us, 1)) == [0, 1, 1, 2, 2]
    assert shifts_of(Rescaling(scale=Fraction(3), shift_us=0), 0, day_us, 1) == (0, 0, 0)
    assert set(shifts_of(Rescaling(scale=Fraction(3)), 0, 60 * SECOND_US, SECOND_US)) == {
        0,
        SECOND_US,
        2 * SECOND_US,
    }
    with pytest.raises(InvalidArgument, match="after the year 9999"):
        shifts_of(Rescaling(scale=Fraction(9)), 0, 253_402_300_799_999_999, 1)


def test_what_cannot_be_rescaled_leaves_nothing(spark: Any, recorded: str, tmp_path: Path) -> None:
    """Each with what to do."""
    empty = write(tmp_path, "empty", [[]])
    keyed = write(tmp_path, "keyed", [[Columns.build([b""], [b"alice"], event_times=[START_US])]])
    before = sorted(tmp_path.iterdir())

    def refused(recording: str, **options: Any) -> str:
        with pytest.raises(InvalidArgument) as caught:
            rescale(spark, recording, str(options.pop("out", tmp_path / "out")), Rescaling(**options))
        assert sorted(tmp_path.iterdir()) == before
        return str(caught.value)

    assert "holds no records" in refused(empty)
    assert "takes none of the 1 keys" in refused(keyed, scale=Fraction(1, 1000))
    assert "above 0" in refused(recorded, scale=Fraction(0))
    assert "at most 100,000 times" in refused(recorded, scale=Fraction(100_001))
    assert "from 0 on" in refused(recorded, shift_us=-1)
    assert "a recording has 1 to" in refused(recorded, partitions=0)
    assert "is there already" in refused(recorded, out=recorded)


@pytest.mark.parametrize(("master", "shuffles"), [("local[1]", 1), ("local[3]", 9)])
@pytest.mark.usefixtures("one_java")
def test_any_number_of_executors_gives_the_same_bytes(
    recorded: str, tmp_path: Path, master: str, shuffles: int
) -> None:
    """And any number of shuffle partitions. Each run is a process of its own, since a process has one session."""
    out = tmp_path / "out"
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("rescale_alone.py"), master, str(shuffles), recorded, out],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    state = hashlib.sha256()
    for path in sorted(out.rglob("*")):
        if path.is_file():
            state.update(path.relative_to(out).as_posix().encode() + path.read_bytes())
    assert state.hexdigest() == BYTES
