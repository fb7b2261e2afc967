"""Shares of a recording: whole keys, the same for all that ask, and larger ones hold smaller ones."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.log.errors import InvalidArgument
from callboard.log.format.columns import Columns
from callboard.recordings.sharing import Share, ShareFilter, check_fraction

FRACTIONS = st.fractions(min_value=Fraction(1, 1000), max_value=1)


@given(FRACTIONS, FRACTIONS, st.binary(max_size=20), st.text(max_size=5))
def test_a_larger_share_holds_a_smaller_one(one: Fraction, other: Fraction, key: bytes, seed: str) -> None:
    """Key by key, and offset by offset."""
    small, large = Share(min(one, other), seed), Share(max(one, other), seed)
    assert large.holds_key(key) >= small.holds_key(key)
    assert large.holds_offset(len(key)) >= small.holds_offset(len(key))
    assert Share(Fraction(1), seed).holds_key(key)


def test_a_share_has_about_that_part_of_the_keys() -> None:
    """Of ten thousand, and other ones for another seed."""
    keys = [b"user%d" % number for number in range(10_000)]
    tenth = {key for key in keys if Share(Fraction(1, 10)).holds_key(key)}
    assert 900 < len(tenth) < 1_100
    assert len(tenth & {key for key in keys if Share(Fraction(1, 10), "7").holds_key(key)}) < 200
    assert 900 < sum(Share(Fraction(1, 10)).holds_offset(offset) for offset in range(10_000)) < 1_100


def test_a_filter_keeps_all_records_of_a_key_or_none() -> None:
    """However batches are cut; records without a key are kept by their offset."""
    keys = [None if number % 3 == 0 else b"k%d" % (number % 50) for number in range(3_000)]
    columns = Columns.build([b""] * len(keys), keys)
    share = Share(Fraction(1, 4))
    kept = [index for start, stop in ShareFilter(share).parts(columns) for index in range(start, stop)]
    assert kept == [
        index
        for index, key in enumerate(keys)
        if (share.holds_offset(index) if key is None else share.holds_key(key))
    ]
    later = columns.select(1_000, 2_000)
    again = [index + 1_000 for start, stop in ShareFilter(share).parts(later) for index in range(start, stop)]
    assert again == [index for index in kept if 1_000 <= index < 2_000]


@pytest.mark.parametrize(
    "given_", ["0", "1.5", "-1", "1/0", "nan", "0.0000001", "", 0, 2, True, float("nan"), None, b"1"]
)
def test_what_is_no_fraction_is_refused(given_: object) -> None:
    """With what to give."""
    with pytest.raises(InvalidArgument, match="above 0 and at most 1"):
        check_fraction(given_)


def test_a_fraction_is_a_number_or_a_text() -> None:
    """Exactly, for texts."""
    assert check_fraction("0.1") == check_fraction(0.1) == check_fraction("1/10") == Fraction(1, 10)
    assert check_fraction(1) == check_fraction("1") == 1
