"""Where a replayed record comes from is stored beside it, and belongs to one replay."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.log.errors import InvalidArgument
from callboard.log.format.columns import Columns
from callboard.recordings.reader import Span
from callboard.replay.positions import ReplayId, ReplayPosition, Selection, check_passes, last_position

IDS = (
    ReplayId("a" * 64, "topic-1"),
    ReplayId("b" * 64, "topic-1"),
    ReplayId("a" * 64, "topic-2"),
    ReplayId("a" * 64, "topic-1", Selection(span=Span(5, None))),
    ReplayId("a" * 64, "topic-1", Selection(span=Span(None, 5))),
    ReplayId("a" * 64, "topic-1", Selection(keys=("x",))),
    ReplayId("a" * 64, "topic-1", Selection(keys=("x", "y"))),
    ReplayId("a" * 64, "topic-1", Selection(fraction=Fraction(1, 2))),
    ReplayId("a" * 64, "topic-1", Selection(fraction=Fraction(1, 3))),
)


def test_replays_differ_in_their_producers() -> None:
    """By recording, topic, selection and source partition; the order of patterns does not matter."""
    for one, other in combinations(IDS, 2):
        assert not set(one.producer_ids(5)) & set(other.producer_ids(5))
    assert len(set(IDS[0].producer_ids(1_000))) == 1_000
    assert 0 not in IDS[0].producer_ids(1_000)
    turned = ReplayId("a" * 64, "topic-1", Selection(keys=("y", "x", "x")))
    assert turned.producer_ids(3) == IDS[6].producer_ids(3)


def test_producers_stay_what_they_are() -> None:
    """A later version must find what an earlier one wrote."""
    assert f"{IDS[0].producer_id(2):016x}" == PINNED


PINNED = "3f87d162c87e0f69"


@given(st.lists(st.tuples(st.integers(1, 5), st.sampled_from([0, 7, 8, 9]), st.integers(0, 3)), min_size=1))
def test_the_last_record_of_a_replay_is_found(runs: list[tuple[int, int, int]]) -> None:
    """Whatever others published before, between and behind."""
    count, sequence, made = 0, 0, []
    for records, producer, number in runs:
        made.append((records, producer, number, sequence))
        count += records
        sequence += records
    columns = Columns.build([b""] * count, producers=made)
    wanted = [
        ReplayPosition({7: 0, 9: 4}[run[1]], run[2], run[3] + run[0] - 1) for run in made if run[1] in (7, 9)
    ]
    assert last_position(columns, {7: 0, 9: 4}) == (wanted[-1] if wanted else None)


@pytest.mark.parametrize("passes", [0, -1, 2**32, 1.5, "2", True])
def test_passes_are_a_number_that_an_epoch_can_hold(passes: Any) -> None:
    """Or None."""
    with pytest.raises(InvalidArgument):
        check_passes(passes)
