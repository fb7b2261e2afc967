"""The tape of scheduling decisions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.log.errors import InvalidArgument
from callboard.simulations.world import Tape

decisions = st.lists(st.lists(st.integers(0, 50), unique=True, max_size=5).map(tuple), max_size=40).map(tuple)


@given(decisions)
def test_a_tape_survives_being_made_data(steps: tuple[tuple[int, ...], ...]) -> None:
    """What comes back is the tape, but for trailing decisions that say nothing."""
    tape = Tape(steps)
    assert Tape.from_data(tape.to_data()) == tape


@given(decisions, st.integers(0, 40), st.integers(0, 40))
def test_plain_only_takes_choices_away(steps: tuple[tuple[int, ...], ...], first: int, length: int) -> None:
    """A stretch made plain has no choices, and the rest is as it was."""
    plain = Tape(steps).plain(first, first + length)
    padded = plain.decisions + ((),) * (len(steps) - len(plain.decisions))
    assert all(not step for step in padded[first : first + length])
    assert [step for at, step in enumerate(padded) if not first <= at < first + length] == [
        step for at, step in enumerate(steps) if not first <= at < first + length
    ]


@pytest.mark.parametrize(
    "data",
    [
        None,
        5,
        "x",
        [0],
        [-1],
        [True],
        [10**12],
        [[]],
        [[1, 1]],
        [[-1]],
        [[10**9]],
        [["a"]],
        [[1.5]],
        [{}],
        [[True]],
    ],
)
def test_what_is_no_tape_is_refused(data: object) -> None:
    """A file may hold anything."""
    with pytest.raises(InvalidArgument):
        Tape.from_data(data)
