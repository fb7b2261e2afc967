"""Words and permutations: functions of seed and index alone."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

MASK = 2**64 - 1
STREAMS = st.integers(0, MASK)


def split_mix(state: int, steps: int) -> list[int]:
    """SplitMix64 as its authors wrote it, one step after the other."""
    found = []
    for _ in range(steps):
        state = state + 0x9E3779B97F4A7C15 & MASK
        word = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & MASK
        word = (word ^ word >> 27) * 0x94D049BB133111EB & MASK
        found.append(word ^ word >> 31)
    return found


@given(stream=STREAMS)
def test_words_are_those_of_split_mix(drawing: Any, stream: int) -> None:
    """At any index at once."""
    assert drawing.words(stream, drawing.np.arange(20)).tolist() == split_mix(stream, 20)


def test_words_are_the_published_ones(drawing: Any) -> None:
    """The first of seed 1234567, as in the tests of other implementations."""
    found = drawing.words(1_234_567, drawing.np.arange(3)).tolist()
    assert found == [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]


@given(stream=STREAMS, size=st.integers(1, 3_000))
def test_a_permutation_has_every_number_once(drawing: Any, stream: int, size: int) -> None:
    """Whatever its size; and in parts it is the same as at once."""
    indices = drawing.np.arange(size)
    whole = drawing.permuted(stream, indices, size)
    assert sorted(whole.tolist()) == list(range(size))
    assert drawing.permuted(stream, indices[size // 2 :], size).tolist() == whole[size // 2 :].tolist()


@pytest.mark.parametrize("size", [2**31 + 1, 2**53])
def test_a_permutation_may_be_large(drawing: Any, size: int) -> None:
    """Nothing of its size is in memory; numbers stay inside, and apart."""
    found = drawing.permuted(1, drawing.np.arange(10_000), size).tolist()
    assert len(set(found)) == 10_000
    assert 0 <= min(found) < size // 100
    assert size * 99 // 100 < max(found) < size


@given(stream=STREAMS, limit=st.integers(1, 2**32))
def test_numbers_stay_below_their_limit(drawing: Any, stream: int, limit: int) -> None:
    """The upper half of a word, in proportion."""
    found = drawing.words(stream, drawing.np.arange(50))
    expected = [(word >> 32) * limit >> 32 for word in found.tolist()]
    assert drawing.below(found, limit).tolist() == expected
    assert max(expected) < limit
