"""A recording becomes a profile. Every count of real traffic was taken with cut, sort, uniq and awk."""

from __future__ import annotations

import datetime as dt
import itertools
import pathlib
import random
from collections import Counter
from typing import Any

import pytest

from callboard.log.errors import InvalidArgument
from callboard.simulations.workload.dependence import HotKey
from callboard.simulations.workload.measuring import measure_rows
from callboard.simulations.workload.profile_format import (
    WorkloadProfile,
    log2_class,
    profile_from_json,
    total,
)
from callboard.traffic.reading import read_events

SCHEMA = "timestamp bigint, key binary, value binary"
Rows = list[tuple[int, bytes | None, bytes]]


def read_rows(path: pathlib.Path) -> Rows:
    """The events of a file."""
    with path.open("rb") as file:
        return [(event.time_us, event.key, event.value) for event in read_events(file)]


def measure(spark: Any, rows: Rows, tasks: int = 1, **options: Any) -> WorkloadProfile:
    """The profile of rows that lie in `tasks` parts."""
    frame = spark.createDataFrame(rows, SCHEMA).repartition(tasks)
    return measure_rows(frame, partitions=1, **options)


@pytest.mark.parametrize("step_s", [5, 20, 900])
def test_the_steps_of_a_clock_are_found(spark: Any, step_s: int) -> None:
    """Where all times since the first are whole steps."""
    rows = [(7_000_000 + number**3 % 9_973 * step_s * 1_000_000, b"a", b"") for number in range(200)]
    found = measure(spark, rows).dependence
    assert found is not None
    assert found.clock_us == step_s * 1_000_000


def test_a_web_servers_day_has_its_known_profile(spark: Any, nasa_log: pathlib.Path) -> None:
    """Each number of the profile is the one that shell tools find."""
    profile = measure(spark, read_rows(nasa_log), bucket_us=300_000_000)
    assert (profile.events, profile.keyless) == (30_969, 0)
    assert (profile.start_us, profile.span_us) == (807_256_800_000_000, 46_321_000_000)
    assert profile.time_step_us == 1_000_000
    assert (len(profile.bucket_counts), profile.bucket_counts[:2], profile.bucket_counts[-1]) == (
        155,
        (54, 76),
        1,
    )
    assert profile.key_top[:3] == (364, 338, 301)
    assert (sum(profile.key_top), len(profile.key_top)) == (30_480, 2_000)
    assert (profile.key_tail.keys, profile.key_tail.events) == (365, 489)
    assert dict(profile.burst) == {
        1: 11_009,
        2: 4_179,
        3: 1_767,
        4: 791,
        5: 337,
        6: 146,
        7: 37,
        8: 25,
        9: 5,
        10: 2,
        11: 1,
        12: 2,
        17: 1,
    }
    assert profile.arrival_log2_us[0] == (0, 12_667)
    assert dict(profile.value_bytes) == {2: 421, 3: 4_399, 4: 16_559, 5: 7_494, 6: 2_070, 7: 26}
    assert profile.value_total_bytes == 2_308_189
    assert (profile.gap_log2_us[0], total(profile.gap_log2_us)) == ((0, 5_581), 28_604)
    assert total(profile.session_events) == 2_989
    assert profile_from_json(profile.to_json()) == profile


def test_a_profile_is_the_same_however_the_rows_are_divided(spark: Any, azure_code: pathlib.Path) -> None:
    """One part or seven, one shuffle partition or five: the file is the same, byte for byte."""
    rows = [(time, value[-1:], value) for time, _, value in read_rows(azure_code)]
    one = measure(spark, rows)
    random.Random(7).shuffle(rows)
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "5")
    try:
        assert measure(spark, rows, 7).to_json() == one.to_json()
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", before)
    assert one.events == 8_819
    assert one.burst[-1] == (67, 1)
    assert one.time_step_us == 1
    assert (one.value_total_bytes, one.span_us) == (302_440, 3_435_948_056)


def test_measuring_agrees_with_a_plain_count(spark: Any) -> None:
    """What Spark counts is what a loop over all events counts, sessions and gaps over buckets' borders included."""
    draw = random.Random(11)
    rows: Rows = []
    time = -5_000_000_000
    for number in range(2_000):
        time += draw.choice([0, 0, 1, 700, 40_000, 2_000_000, 900_000_000]) if number else 0
        rows.append((time, draw.choice([None, b"", b"a", b"bb", b"cc"]), bytes(draw.randrange(100))))
    found = measure(spark, rows, 3, bucket_us=7_000_000_000)
    times = [time for time, _, _ in rows]
    assert found.start_us == times[0]
    assert Counter(dict(found.arrival_log2_us)) == Counter(
        log2_class(two - one) for one, two in itertools.pairwise(times)
    )
    gaps: Counter[int] = Counter()
    sessions: list[list[int]] = []
    for key in (b"", b"a", b"bb", b"cc"):
        of_key = [time for time, other, _ in rows if other == key]
        sessions.append([of_key[0]])
        for one, two in itertools.pairwise(of_key):
            gaps[log2_class(two - one)] += 1
            if two - one > 1_800_000_000:
                sessions.append([])
            sessions[-1].append(two)
    assert Counter(dict(found.gap_log2_us)) == gaps
    assert Counter(dict(found.session_events)) == Counter(log2_class(len(one)) for one in sessions)
    assert Counter(dict(found.session_log2_us)) == Counter(log2_class(one[-1] - one[0]) for one in sessions)
    assert Counter(dict(found.value_bytes)) == Counter(len(value) // 16 for _, _, value in rows)
    assert found.keyless == sum(key is None for _, key, _ in rows)
    assert found.key_bytes == ((0, 1), (1, 1), (2, 2))
    moments = [dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=time) for time in times]  # noqa: DTZ001
    assert Counter(dict(found.week_hours)) == Counter(
        moment.weekday() * 24 + moment.hour for moment in moments
    )
    buckets = Counter((time - times[0]) // 7_000_000_000 for time in times)
    assert found.bucket_counts == tuple(buckets[bucket] for bucket in range(max(buckets) + 1))


def test_nothing_has_a_profile_too(spark: Any) -> None:
    """The profile of no rows is that of an empty recording."""
    found = measure(spark, [])
    assert (found.events, found.bucket_counts, found.span_us) == (0, (), 0)


def test_buckets_are_of_a_sensible_length(spark: Any) -> None:
    """A recording gets 200 buckets, of a second at least; too many buckets, and parts of seconds, are refused."""
    year = [(0, None, b""), (366 * 86_400_000_000, None, b"")]
    found = measure(spark, year)
    assert found.bucket_us % 1_000_000 == 0
    assert 190 < len(found.bucket_counts) <= 200
    short = measure(spark, [(0, None, b""), (3_500_000, None, b"")])
    assert (short.bucket_us, short.bucket_counts) == (1_000_000, (1, 0, 0, 1))
    with pytest.raises(InvalidArgument, match="longer --bucket"):
        measure(spark, year, bucket_us=1_000_000)
    with pytest.raises(InvalidArgument, match="whole seconds"):
        measure(spark, year, bucket_us=1_500_000)


def test_what_joins_eight_events_is_what_a_hand_counts(spark: Any) -> None:
    """Alice comes at 0, 0, 1 and 61.5 s, bob at 1 s twice, carol at 2 s, and one without a key after her."""
    second = 1_000_000
    times = [0, 0, second, second, second, 2 * second, 2 * second, 61_500_000]
    keys = [b"alice", b"alice", b"alice", b"bob", b"bob", b"carol", None, b"alice"]
    rows = [
        (1_000_000_000 + time, key, b"x" * (64 if number == 7 else 5), 0, number)
        for number, (time, key) in enumerate(zip(times, keys, strict=True))
    ]
    schema = "timestamp bigint, key binary, value binary, partition int, offset bigint"
    found = measure_rows(spark.createDataFrame(rows, schema).repartition(3), bucket_us=60 * second).dependence
    assert found is not None
    assert found.clock_us == 100_000
    assert found.parts == (7, 0, 0, 0, 1, 0, 0, 0)
    # Of alice's three pairs of neighbours two have one class of size; by chance ten of sixteen have.
    assert found.hot == (
        HotKey(((0, 1),), ((0, 1),), 0),
        HotKey(((0, 4),), ((0, 3), (1, 1)), 65_536 * (2 * 16 - 3 * 10) // (3 * (16 - 10))),
        HotKey(((0, 2),), ((0, 2),), 0),
        HotKey(((0, 1),), ((0, 1),), 0),
    )
    assert found.others == ()
    # In the 32 parts of eight events: carol begins at the sixth event, bob at the fourth, alice at the first.
    assert found.starts == ((1, 20, 1), (1, 24, 1), (2, 12, 1), (4, 0, 1))
    assert found.runs == ((1, 1, 3), (2, 2, 1), (4, 3, 1))
    assert found.returns == ((4, 4, 1),)
    assert (found.size_first, found.size_next) == (((0, 0, 3),), ((0, 0, 3), (0, 1, 1)))
    assert found.size_stays == 65_536
    assert found.window_sizes == ((0, 0, 7), (0, 1, 1))
    # Of 60 seconds, known in quarters: those of 15, 8, 4 and 2 seconds that have events divide.
    assert [total([row[1:] for row in counts]) for counts in found.second_splits] == [2, 2, 2, 3]
    assert len(found.step_splits) == 4
    assert {total([row[1:] for row in counts]) for counts in found.step_splits} == {4}


def test_sizes_that_are_the_same_by_chance_do_not_count(spark: Any) -> None:
    """Of three lengths in no order a third come again; of three that each come twice in a row, half."""
    entropy = random.Random(7)
    drawn = [5 + entropy.randrange(3) for _ in range(3000)]
    schema = "timestamp bigint, key binary, value binary, partition int, offset bigint"

    def same(sizes: list[int]) -> int:
        rows = [(1_000_000 * number, None, b"x" * size, 0, number) for number, size in enumerate(sizes)]
        found = measure_rows(spark.createDataFrame(rows, schema)).dependence
        assert found is not None
        assert found.size_stays == 65_536
        assert found.size_same is not None
        return found.size_same

    assert same(drawn) < 3_000
    assert 30_000 < same([size for size in drawn for _ in range(2)]) < 36_000
