"""Two recordings are compared. Distances of real traffic were worked out from its lines by a program of its own."""

from __future__ import annotations

import pathlib
import zlib
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest

from callboard.log.errors import RecordingInvalid
from callboard.simulations.workload.behaviour import QUEUES, ROWS
from callboard.simulations.workload.comparing import (
    Side,
    compare_sides,
    measure_side,
    measure_sides,
    side_of_profile,
)
from callboard.simulations.workload.storage import write_recording
from callboard.traffic.reading import read_events

SCHEMA = "partition int, timestamp bigint, key binary, value binary"
HALVES = {
    "rate": 0.164004449619661,
    "burst": 0.056296113736093,
    "value_bytes": 0.076875342624715,
    "key_skew": 0.013749359375508,
    "session_events": 0.038928512078572,
    "session_length": 0.041721353451287,
}


@pytest.fixture(scope="module")
def halves(spark: Any, nasa_log: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Recordings of the first and the second half of a day's requests to a web server."""
    with nasa_log.open("rb") as file:
        rows = [(0, event.time_us, event.key, event.value) for event in read_events(file)]
    middle = (rows[0][1] + rows[-1][1]) / 2
    folder = tmp_path_factory.mktemp("halves")
    found = []
    for name, half in (
        ("morning", [row for row in rows if row[1] < middle]),
        ("afternoon", [row for row in rows if row[1] >= middle]),
    ):
        found.append(str(folder / name))
        write_recording(
            spark.createDataFrame(half, SCHEMA).repartition(5),
            found[-1],
            partitions=1,
            source={},
            order=("key", "value"),
        )
    return found


@pytest.fixture(scope="module")
def sides(spark: Any, halves: list[str]) -> list[Side]:
    """The two halves, measured."""
    return [measure_side(spark, half) for half in halves]


def test_two_halves_of_a_day_have_their_known_distances(sides: list[Side]) -> None:
    """The rate differs, and all else that can be judged is alike."""
    assert [side.profile.events for side in sides] == [8_250, 22_719]
    found = compare_sides(*sides)
    values = {each.name: float(each.value) for each in found.distances if each.value is not None}
    assert {name: values[name] for name in HALVES} == pytest.approx(HALVES, abs=1e-13)
    verdicts = {each.name: each.verdict.value for each in found.distances}
    assert verdicts == dict.fromkeys(verdicts, "alike") | {"rate": "different", "arrivals": "not judged"}
    assert found.words.startswith(
        "Different in rate: a distance is above 0.1. Different in autocorrelation (0.185 and 0.26), short lives (0.828"
        " and 0.62). Different in the queues consumer 50 (4.12 times apart), "
    )


def test_a_recording_is_like_itself_and_like_its_profile(
    spark: Any, halves: list[str], sides: list[Side]
) -> None:
    """Measured twice, divided among tasks otherwise, or read from its profile: all distances are 0."""
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "5")
    try:
        again = measure_side(spark, halves[0])
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", before)
    for other in (again, side_of_profile(sides[0].profile.to_json())):
        found = compare_sides(sides[0], other)
        assert [each.value for each in found.distances] == [0] * len(found.distances)
    assert again.behaviour == sides[0].behaviour
    found = compare_sides(sides[0], again)
    assert {each.factor for each in found.queues} == {1}
    assert found.is_alike


def test_two_halves_of_a_day_hang_together_otherwise(sides: list[Side], nasa_log: pathlib.Path) -> None:
    """Of the morning the rows are those that plain sums over its lines give."""
    with nasa_log.open("rb") as file:
        events = [(event.time_us, event.key, event.value) for event in read_events(file)]
    middle = (events[0][0] + events[-1][0]) / 2
    # Of one second, the recording has them in the order of keys and values.
    morning = sorted(event for event in events if event[0] < middle)
    assert sides[0].behaviour is not None
    rows = {name: value for name, value in sides[0].behaviour.rows.items() if value is not None}
    pairs = list(pairwise(morning))
    assert rows["same_instant"] == Fraction(sum(one[0] == two[0] for one, two in pairs), len(pairs))
    assert rows["same_key"] == Fraction(sum(one[1] == two[1] for one, two in pairs), len(pairs))
    plain = packed = 0
    for start in range(0, len(morning), 1_024):
        block = b"".join(value for _, _, value in morning[start : start + 1_024])
        plain, packed = plain + len(block), packed + len(zlib.compress(block, 6))
    assert float(rows["compression"]) == pytest.approx(plain / packed, rel=0.001)
    found = compare_sides(*sides)
    assert [each.name for each in found.rows] == list(ROWS)
    assert [each.name for each in found.queues] == list(QUEUES)


def test_a_busier_recording_gets_more_servers(spark: Any, tmp_path: pathlib.Path) -> None:
    """At three times the rate there are three times as many, so an event takes as long in both."""
    paths = []
    for name, step in (("one", 3_000_000), ("three", 1_000_000)):
        rows = [(0, at * step, b"%d" % (at % 7), b"x" * (at % 9)) for at in range(1, 61)]
        paths.append(str(tmp_path / name))
        write_recording(spark.createDataFrame(rows, SCHEMA), paths[-1], partitions=1, source={})
    one, three = measure_sides(spark, paths)
    assert one.behaviour is not None
    assert three.behaviour is not None
    for name in ("consumer_50", "workers_50", "partitions_80"):
        services = [side.behaviour.queues[name].service for side in (one, three) if side.behaviour]
        assert services[0] == pytest.approx(services[1], rel=1e-6)


def test_a_folder_without_a_recording_is_named(spark: Any, tmp_path: pathlib.Path) -> None:
    """What is no recording is refused."""
    with pytest.raises(RecordingInvalid, match="is no recording"):
        measure_side(spark, str(tmp_path))
