"""A profile's file: what is read is what was written, and what is no profile is refused with every reason."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.log.errors import ConfigurationError, FormatTooNew, InvalidArgument
from callboard.simulations.workload.profile_format import (
    PROFILE_BYTES_MAX,
    KeyTail,
    log2_class,
    merged,
    profile_from_json,
    total,
    weighted_sum,
)

NOTHING: dict[str, Any] = {
    "week_hours": [],
    "format": "callboard-profile",
    "version": 1,
    "events": 0,
    "start_us": 0,
    "span_us": 0,
    "time_step_us": 1,
    "bucket_us": 60_000_000,
    "bucket_counts": [],
    "sub_buckets": [],
    "burst": [],
    "arrival_log2_us": [],
    "key_top": [],
    "key_tail": {"keys": 0, "events": 0},
    "keyless": 0,
    "key_bytes": [],
    "gap_log2_us": [],
    "session_idle_us": 1,
    "session_events": [],
    "session_log2_us": [],
    "value_bin_bytes": 16,
    "value_bytes": [],
    "value_total_bytes": 0,
    "partitions": 1,
    "recording": None,
}


def test_what_is_written_is_read_again(small_profile_text: str) -> None:
    """A profile survives its file, and the file of a profile is always the same."""
    profile = profile_from_json(small_profile_text)
    text = profile.to_json()
    assert profile_from_json(text) == profile
    assert profile_from_json(text.encode()).to_json() == text
    assert text.endswith("}\n")
    assert profile.key_tail == KeyTail(keys=1, events=1)
    assert profile.distinct_keys == 3


def test_the_file_has_one_sorted_line_per_field(small_profile_text: str) -> None:
    """A profile can be compared line by line."""
    lines = profile_from_json(small_profile_text).to_json().splitlines()[1:-1]
    assert lines == sorted(lines)
    assert '"bucket_counts": [7,1],' in lines


def test_unknown_fields_are_kept(small_profile: dict[str, Any]) -> None:
    """A field that a later version adds is still there after reading and writing."""
    text = json.dumps({**small_profile, "weather": {"rain": [1]}})
    assert json.loads(profile_from_json(text).to_json())["weather"] == {"rain": [1]}


def test_an_empty_recording_has_a_profile(small_profile: dict[str, Any]) -> None:
    """Nothing at all is a valid profile."""
    assert sorted(NOTHING) == sorted(small_profile)
    assert profile_from_json(json.dumps(NOTHING)).bucket_counts == ()


def test_a_profile_without_hours_is_read(small_profile: dict[str, Any]) -> None:
    """Earlier versions did not count them."""
    del small_profile["week_hours"]
    assert profile_from_json(json.dumps(small_profile)).week_hours == ()


def test_a_profile_without_lengths_is_read(small_profile: dict[str, Any]) -> None:
    """Earlier versions did not count them."""
    assert profile_from_json(json.dumps(small_profile)).value_sizes == ()


@pytest.mark.parametrize(
    ("sizes", "problem"),
    [
        ([[3, 8]], "value_sizes has more events of a size"),
        ([[40, 1]], "value_sizes has more events of a size"),
        ([[0, 7]], "others cannot have the bytes left"),
        ([[15, 7]], "others cannot have the bytes left"),
        ([[size, 1] for size in range(4_097)], "value_sizes is not a list of at most 4096 pairs"),
        ([[5, 1], [3, 1]], "value_sizes is not in ascending order"),
    ],
)
def test_lengths_that_contradict_their_classes_are_refused(
    small_profile: dict[str, Any], sizes: list[list[int]], problem: str
) -> None:
    """Seven values have up to 15 bytes, one 64 to 79, and all together 100."""
    with pytest.raises(ConfigurationError, match=problem):
        profile_from_json(json.dumps({**small_profile, "value_sizes": sizes}))


def test_a_newer_version_is_refused(small_profile: dict[str, Any]) -> None:
    """A profile of a later version names both versions."""
    with pytest.raises(FormatTooNew) as caught:
        profile_from_json(json.dumps({**small_profile, "version": 2}))
    assert (caught.value.found, caught.value.supported) == (2, 1)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "{}",
        '{"format": "callboard-recording", "version": 1}',
        "[" * 100_000,
        b"\xff\xfe{",
    ],
)
def test_what_is_no_profile_is_refused(text: str | bytes) -> None:
    """Anything else than a profile is an `InvalidArgument`."""
    with pytest.raises(InvalidArgument):
        profile_from_json(text)


def test_a_file_that_is_too_large_is_refused() -> None:
    """Size is checked before anything is parsed."""
    with pytest.raises(InvalidArgument, match="larger"):
        profile_from_json(" " * (PROFILE_BYTES_MAX + 1))


@pytest.mark.parametrize("version", [0, -1, None, "1", 1.0, True])
def test_a_version_that_does_not_exist_is_refused(small_profile: dict[str, Any], version: Any) -> None:
    """Only whole numbers from 1 are versions."""
    with pytest.raises(InvalidArgument):
        profile_from_json(json.dumps({**small_profile, "version": version}))


def test_all_problems_are_in_one_error(small_profile: dict[str, Any]) -> None:
    """Who repairs a profile by hand learns everything at once."""
    del small_profile["burst"]
    with pytest.raises(ConfigurationError) as caught:
        profile_from_json(json.dumps({**small_profile, "events": 1.5, "key_top": [True]}))
    assert [problem.split()[0] for problem in caught.value.problems] == ["events", "burst", "key_top"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("events", -1),
        ("events", 2**53),
        ("events", "8"),
        ("start_us", 2**62),
        ("time_step_us", 10),
        ("bucket_us", 0),
        ("bucket_us", 60_000_001),
        ("bucket_counts", {"0": 8}),
        ("bucket_counts", [8]),
        ("bucket_counts", [6, 1]),
        ("bucket_counts", [8, 0]),
        ("sub_buckets", [[[2, 2], [3, 1]]]),
        ("sub_buckets", [[[7, 1]], [[1, 1]]]),
        ("sub_buckets", [[[1, 61]], [[1, 1]]]),
        ("sub_buckets", [[[2, 1], [2, 1], [3, 1]], [[1, 1]]]),
        ("burst", [[3, 1], [2, 2], [1, 1]]),
        ("burst", [[1, 0]]),
        ("burst", [1, 1]),
        ("burst", [[1, 1, 1]]),
        ("arrival_log2_us", [[0, 8]]),
        ("arrival_log2_us", [[0, 5], [20, 1], [60, 1]]),
        ("arrival_log2_us", [[65, 7]]),
        ("key_top", [2, 4]),
        ("key_top", [4, 2, 0]),
        ("key_top", [1] * 2_001),
        ("key_tail", {"keys": 2, "events": 1}),
        ("key_tail", {"keys": 1, "events": 3}),
        ("key_tail", [1, 1]),
        ("keyless", 0),
        ("key_bytes", [[3, 1]]),
        ("gap_log2_us", [[0, 3]]),
        ("session_events", [[1, 4], [2, 2]]),
        ("session_events", [[1, 1], [2, 1]]),
        ("week_hours", [[72, 7]]),
        ("week_hours", [[168, 8]]),
        ("value_bytes", [[0, 7]]),
        ("value_total_bytes", 63),
        ("value_total_bytes", 185),
        ("partitions", 0),
        ("recording", "../../etc/passwd"),
    ],
)
def test_numbers_that_contradict_are_refused(small_profile: dict[str, Any], field: str, value: Any) -> None:
    """One wrong field is enough."""
    with pytest.raises(ConfigurationError):
        profile_from_json(json.dumps({**small_profile, field: value}))


def test_a_profile_made_by_hand_is_checked_too(small_profile_text: str) -> None:
    """The invariants hold for every profile, however it was made."""
    with pytest.raises(ConfigurationError):
        attrs.evolve(profile_from_json(small_profile_text), keyless=7)


@given(number=st.integers(0, 2**63))
def test_a_class_is_an_octave(number: int) -> None:
    """The class of a number is the power of two above it."""
    found = log2_class(number)
    assert number < 2**found
    assert found == 0 or number >= 2 ** (found - 1)


def test_histograms_add_up() -> None:
    """The sum of histograms has the counts of all of them."""
    found = merged([((1, 2), (3, 1)), ((3, 4),), ()])
    assert found == ((1, 2), (3, 5))
    assert total(found) == 7
    assert weighted_sum(found) == 17


@given(
    document=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    ),
    data=st.data(),
)
def test_no_field_makes_the_reader_fail_otherwise(document: Any, data: st.DataObject) -> None:
    """Whatever a field holds, the answer is a profile or a `ConfigurationError`."""
    broken = NOTHING | {data.draw(st.sampled_from(sorted(NOTHING))): document}
    try:
        profile_from_json(json.dumps(broken))
    except InvalidArgument:
        return
