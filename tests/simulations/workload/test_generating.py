"""Recordings from profiles, with Spark: exact, of the same character, and the same bytes wherever they are made."""

from __future__ import annotations

import pathlib
from fractions import Fraction
from typing import Any
from zlib import crc32

import attrs
import pytest

from callboard.log.errors import InvalidArgument
from callboard.simulations.workload.generating import generate
from callboard.simulations.workload.measuring import measure_recording, measure_rows
from callboard.simulations.workload.profile_format import WorkloadProfile, profile_from_json
from callboard.simulations.workload.scaling import Scaling
from callboard.simulations.workload.storage import recording_rows
from tests.simulations.workload.values import long_words, ratio

ALIKE = {
    *("events", "start_us", "span_us", "time_step_us", "bucket_us", "bucket_counts", "sub_buckets", "burst"),
    *("key_top", "key_tail", "keyless", "key_bytes", "value_bytes", "value_total_bytes", "partitions"),
}
"""What a profile of a recording at scale 1 has in common with that which it was made from."""


@pytest.fixture
def profile(small_profile_text: str) -> WorkloadProfile:
    """Eight events."""
    return profile_from_json(small_profile_text)


def profile_of(spark: Any, path: pathlib.Path) -> WorkloadProfile:
    """Measured."""
    rows, manifest = recording_rows(spark, str(path))
    return measure_rows(rows, partitions=len(manifest.partitions), bucket_us=None)


@pytest.fixture(scope="module")
def by_field(spark: Any, web_day: pathlib.Path) -> WorkloadProfile:
    """The profile of a web server's day, and what its values look like."""
    return measure_recording(spark, str(web_day), values=True)


@pytest.fixture(scope="module")
def without(by_field: WorkloadProfile) -> WorkloadProfile:
    """The same profile without that."""
    return attrs.evolve(by_field, values=None)


@pytest.fixture(scope="module")
def again(spark: Any, without: WorkloadProfile, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """What that day is made into."""
    out = tmp_path_factory.mktemp("web") / "again"
    generate(spark, [without], str(out))
    return out


def test_a_web_servers_day_is_made_again(spark: Any, without: WorkloadProfile, again: pathlib.Path) -> None:
    """30,969 requests of 2,365 clients, as the log has them; at scale 1 all counts are equal."""
    made = profile_of(spark, again)
    assert (made.events, made.distinct_keys, made.burst[-1][0]) == (30_969, 2_365, 17)
    assert {name: getattr(made, name) for name in ALIKE} == {name: getattr(without, name) for name in ALIKE}


def values_of(spark: Any, path: pathlib.Path) -> list[bytes]:
    """All of a recording, in its order."""
    rows, _ = recording_rows(spark, str(path))
    return [bytes(row["value"]) for row in rows.orderBy("partition", "offset").collect()]


def test_values_by_field_compress_as_the_recorded_ones(
    spark: Any, web_day: pathlib.Path, by_field: WorkloadProfile, again: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """Within a quarter; they have the sizes that they have without, and no word of the recording."""
    assert profile_from_json(by_field.to_json()) == by_field
    assert len(by_field.to_json()) < 1_000_000
    recorded = values_of(spark, web_day)
    generate(spark, [by_field], str(tmp_path / "by field"))
    values = values_of(spark, tmp_path / "by field")
    assert 0.75 < ratio(values) / ratio(recorded) < 1.25
    assert not long_words(values) & long_words(recorded)
    assert list(map(len, values)) == list(map(len, values_of(spark, again)))


def test_a_mixture_holds_both(spark: Any, without: WorkloadProfile, tmp_path: pathlib.Path) -> None:
    """Each with its share of the events, in whole keys; keys of one are none of the other."""
    scaling = Scaling(volume=Fraction(1, 10))
    weights = [Fraction(3), Fraction(1, 2)]
    generate(
        spark, [without, without], str(tmp_path / "both"), scaling=scaling, weights=weights, partitions=2
    )
    both = profile_of(spark, tmp_path / "both")
    assert both.events == 30_969 * 3 // 10 + 30_969 // 20
    assert 2_365 * 3 // 10 < both.distinct_keys < 2_365 * 45 // 100


def test_keys_lie_where_publish_puts_them(
    spark: Any, profile: WorkloadProfile, tmp_path: pathlib.Path
) -> None:
    """By the CRC-32 of the key; records lie in the order of time."""
    generate(spark, [profile], str(tmp_path / "r"), scaling=Scaling(volume=Fraction(50)), partitions=4)
    rows, manifest = recording_rows(spark, str(tmp_path / "r"))
    found = rows.orderBy("partition", "offset").collect()
    assert len(found) == manifest.records == 400
    assert all(row.partition == crc32(row.key) % 4 for row in found if row.key is not None)
    assert {row.partition for row in found if row.key is None} == set(range(4))
    assert all(row.is_ordered for row in manifest.partitions)


def test_what_cannot_be_generated_leaves_nothing(
    spark: Any, profile: WorkloadProfile, tmp_path: pathlib.Path
) -> None:
    """Each with what to do."""

    def refused(**options: Any) -> str:
        with pytest.raises(InvalidArgument) as caught:
            generate(
                spark, options.pop("profiles", [profile]), str(options.pop("out", tmp_path / "r")), **options
            )
        assert not list(tmp_path.iterdir())
        return str(caught.value)

    assert "1 weights for 2 profiles" in refused(profiles=[profile, profile], weights=[Fraction(1)])
    assert "leaves nothing" in refused(scaling=Scaling(volume=Fraction(1, 10)))
    assert "too many events" in refused(scaling=Scaling(volume=Fraction(10**9), duration=Fraction(10**9)))
    assert "a recording has 1 to" in refused(partitions=0)
    assert "says nothing" in refused(profiles=[])
    assert "copied too often" in refused(events=["flash-crowd@00:17,for=9,times=999"] * 5)
    assert "outside of the workload" in refused(events=["silence@2001-01-01,for=1"])
    assert "There is no folder" in refused(out=tmp_path / "no" / "r")
