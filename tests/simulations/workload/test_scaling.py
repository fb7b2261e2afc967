"""What a workload is to be: numbers and events as people write them."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.log.errors import InvalidArgument
from callboard.simulations.workload.profile_format import profile_from_json
from callboard.simulations.workload.scaling import Scaling, exact, parse_what_if, powered

DAY_US = 86_400_000_000
NOON_US = 1_700_049_600_000_000  # 2023-11-15T12:00:00+00:00


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("10", Fraction(10)),
        ("0.25", Fraction(1, 4)),
        ("1/3", Fraction(1, 3)),
        ("1.000001", Fraction(1_000_001, 10**6)),
    ],
)
def test_numbers_are_exact(text: str, number: Fraction) -> None:
    """No float comes between."""
    assert exact(text, "--scale") == number


@pytest.mark.parametrize(
    "text",
    [
        "0",
        "-1",
        "nan",
        "inf",
        "1e3",
        "",
        "ten",
        "1/0",
        "0/5",
        "1.0000001",
        "9" * 30,
        "1/2/3",
        " 1",
        "١",
        "1000000001",
    ],
)
def test_what_is_no_number_above_0_is_refused(text: str) -> None:
    """With the name, and examples."""
    with pytest.raises(InvalidArgument, match="--scale is"):
        exact(text, "--scale")


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ({"burst": Fraction(2, 3)}, "whole number, or 1/2"),
        ({"skew": Fraction(1, 1_000)}, "skew is"),
        ({"skew": Fraction(-1)}, "skew is not below"),
        ({"volume": Fraction(0)}, "above 0"),
    ],
)
def test_a_scaling_that_cannot_be_is_refused(numbers: dict[str, Any], words: str) -> None:
    """Also from code."""
    with pytest.raises(InvalidArgument, match=words):
        Scaling(**numbers)


def test_the_number_of_events_is_exact(small_profile_text: str) -> None:
    """Eight events in two buckets, of which the first has seven."""
    profile = profile_from_json(small_profile_text)
    found = {
        Scaling(): 8,
        Scaling(volume=Fraction(10)): 80,
        Scaling(volume=Fraction(1, 3)): 2,
        Scaling(duration=Fraction(3)): 24,
        Scaling(duration=Fraction(3, 2)): 15,
        Scaling(duration=Fraction(1, 2), volume=Fraction(10)): 70,
    }
    assert {scaling: scaling.events(profile) for scaling in found} == found
    with pytest.raises(InvalidArgument, match="too many events"):
        Scaling(volume=Fraction(10**9), duration=Fraction(10**9)).events(profile)


@given(
    weights=st.lists(st.integers(1, 10**9), min_size=1, max_size=5), p=st.integers(0, 4), q=st.integers(1, 4)
)
def test_powers_are_the_whole_parts_of_roots(weights: list[int], p: int, q: int) -> None:
    """In fixed point with 32 bits behind it; to the power of 1 nothing changes."""
    found = powered(weights, Fraction(p, q))
    if Fraction(p, q) == 1:
        assert found == weights
        return
    top, bottom = Fraction(p, q).as_integer_ratio()
    for weight, power in zip(weights, found, strict=True):
        assert power**bottom <= weight**top << 32 * bottom < (power + 1) ** bottom


@pytest.mark.parametrize(
    ("text", "start_us", "stop_us", "fields"),
    [
        ("silence@12:00,for=3600", NOON_US, NOON_US + 3_600_000_000, {}),
        (
            "flash-crowd@13:30:05,for=0.5,times=5",
            NOON_US + 5_405_000_000,
            NOON_US + 5_405_500_000,
            {"times": 5},
        ),
        ("hot-key@11:00,for=60,share=1/3", NOON_US + DAY_US - 3_600_000_000, None, {"share": Fraction(1, 3)}),
        (
            "retry-storm@2023-11-15T13:00+01:00,for=1,times=2,after=3",
            NOON_US,
            None,
            {"times": 2, "after_us": 3_000_000},
        ),
    ],
)
def test_events_are_read(text: str, start_us: int, stop_us: int | None, fields: dict[str, Any]) -> None:
    """A time of day is the first one in the workload."""
    found = parse_what_if(text, NOON_US, NOON_US + 2 * DAY_US)
    assert found.start_us == start_us
    assert stop_us is None or found.stop_us == stop_us
    assert {name: getattr(found, name) for name in fields} == fields


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("flash-mob@12:00,for=1", "one of flash-crowd, hot-key"),
        ("silence", "KIND@TIME"),
        ("silence@12:00", "has no end"),
        ("silence@12:00,for=0", "for is '0'"),
        ("silence@12:00,for=0.0000001", "for is"),
        ("silence@12:00,for=1,times=2", "'times=2' is no field of silence"),
        ("silence@12:00,for=1,for=2", "comes twice"),
        ("silence@25:00,for=1", "is no time such as 12:00"),
        ("silence@noon,for=1", "is no time such as 12:00"),
        ("silence@1999-01-01,for=1", "lies outside of the workload"),
        ("flash-crowd@12:00,for=1,times=1", "times is '1'"),
        ("flash-crowd@12:00,for=1,times=2.5", "whole number from 2"),
        ("retry-storm@12:00,for=1,times=21", "whole number from 1 to 20"),
        ("hot-key@12:00,for=1,share=2", "at most 1"),
    ],
)
def test_events_that_cannot_be_are_refused(text: str, words: str) -> None:
    """With what is wrong, and what there is."""
    with pytest.raises(InvalidArgument, match=words):
        parse_what_if(text, NOON_US, NOON_US + 2 * DAY_US)
