"""Two recordings are compared. Distances of real traffic were worked out from its lines by a program of its own."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest

from callboard.log.errors import RecordingInvalid
from callboard.recordings.reading import read_events
from callboard.simulations.workload.comparing import (
    GENERATED,
    Side,
    compare_sides,
    measure_side,
    side_of_profile,
)
from callboard.simulations.workload.storage import write_recording

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
    assert found.words == (
        "Different in rate: a distance is above 0.1. Alike in burst, value bytes, key skew, key gaps, session events,"
        " session length. Not judged: arrivals."
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


def test_it_is_known_which_recording_was_generated(
    halves: list[str], spark: Any, tmp_path: pathlib.Path
) -> None:
    """The manifest says what made a recording."""
    rows = spark.createDataFrame([(0, 1, b"a", b"b"), (0, 2, b"a", b"b")], SCHEMA)
    write_recording(rows, str(tmp_path / "made"), partitions=1, source={"made_by": GENERATED})
    assert measure_side(spark, str(tmp_path / "made")).is_generated
    assert json.loads(pathlib.Path(halves[0], "recording.json").read_bytes())["source"] == {}


def test_a_folder_without_a_recording_is_named(spark: Any, tmp_path: pathlib.Path) -> None:
    """What is no recording is refused."""
    with pytest.raises(RecordingInvalid, match="is no recording"):
        measure_side(spark, str(tmp_path))
