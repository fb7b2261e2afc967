"""Wire mode: a third of all seeds, which take the same steps in it as they would without."""

from __future__ import annotations

import pytest

from callboard.simulations.scenarios import SCENARIOS, run_scenario
from callboard.simulations.search.story import WIRE_MODE, tell
from callboard.simulations.world import Run, Settings, in_wire_mode

BROAD = (
    "deliveries",
    "acked-and-published",
    "delayed-messages",
    "exclusive",
    "topics-and-groups",
    "handlers",
)


def run(name: str, seed: int, **settings: object) -> Run:
    return run_scenario(SCENARIOS[name], seed, settings=Settings(**settings))


@pytest.mark.parametrize("name", BROAD)
def test_copies_change_nothing(name):
    """The whole trace of a seed is the same whether its actors send copies or the objects themselves."""
    seed = 5
    plain, wire = (run(name, seed, delivers_copies=copies) for copies in (False, True))
    assert (plain.failure, plain.delivers_copies) == (None, False)
    assert (wire.failure, wire.delivers_copies) == (None, True)
    assert plain.trace.digest == wire.trace.digest


def test_a_third_of_all_seeds_is_in_wire_mode():
    """Which seeds are in wire mode follows from the seed alone."""
    assert [in_wire_mode(seed) for seed in range(7)] == [False, False, True, False, False, True, False]
    assert [run("publish-only", seed).delivers_copies for seed in (1, 2)] == [False, True]


def test_a_story_says_that_the_run_was_in_wire_mode():
    """The story of a run in wire mode says so, that of another one does not."""
    wire, plain = (tell(run("publish-only", seed), "", "publish-only").text() for seed in (2, 3))
    assert WIRE_MODE in wire
    assert WIRE_MODE not in plain
