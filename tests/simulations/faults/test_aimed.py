"""Faults aimed at a moment: the same for a seed, of kinds that the scenario's space holds, and not in every seed."""

from __future__ import annotations

import pytest

from callboard.simulations.entropy import SeededEntropy
from callboard.simulations.faults import After, FailVerb, PowerCut, aimed
from callboard.simulations.scenarios import SCENARIOS, draw
from callboard.simulations.scenarios.scenario import Aimed

AIMED = [name for name, scenario in SCENARIOS.items() if isinstance(scenario, Aimed)]


@pytest.mark.parametrize("name", AIMED)
def test_added_faults_are_of_the_space(name: str) -> None:
    """Some seeds add faults and some do not, the same each time, and none that the space does not promise."""
    scenario = SCENARIOS[name]
    assert isinstance(scenario, Aimed)
    added = [tuple(scenario.aimed(SeededEntropy(seed))) for seed in range(200)]
    assert added == [tuple(scenario.aimed(SeededEntropy(seed))) for seed in range(200)]
    assert 0 < sum(not faults for faults in added) < 200
    assert {fault.label for faults in added for fault in faults} <= set(scenario.space.labels())


@pytest.mark.parametrize("name", AIMED)
def test_added_faults_come_last_in_the_plan(name: str) -> None:
    """What a seed draws out of the space is the same with what is added behind it."""
    scenario = SCENARIOS[name]
    assert isinstance(scenario, Aimed)
    for seed in range(20):
        added = tuple(scenario.aimed(SeededEntropy(seed).fork("aimed")))
        plan = draw(scenario, seed)[1]
        assert plan.faults[len(plan.faults) - len(added) :] == added


def test_a_power_cut_between_syncs_leaves_a_part() -> None:
    """It waits for an answer to a client, and what was not synced is neither all lost nor all kept."""
    for seed in range(50):
        (cut,) = aimed.between_syncs(SeededEntropy(seed), "deliver", 30)
        assert isinstance(cut, PowerCut)
        assert isinstance(cut.when, After)
        assert 1 <= cut.when.count <= 30
        assert 0.0 < cut.survival.applied < 1.0


def test_a_life_ends_amid_a_drop() -> None:
    """A life ends at a drop, and only then does the disk refuse a summary, one of those that are named."""
    space, summaries = SCENARIOS["published-once"].space, ("publishers", "/delivery/")
    for seed in range(100):
        found = aimed.at_a_drop(SeededEntropy(seed), space, ("topics/orders/0",), summaries, 6)
        refused = [fault.path for fault in found if isinstance(fault, FailVerb)]
        ends = [fault.when for fault in found if not isinstance(fault, FailVerb)]
        assert set(refused) <= set(summaries)
        assert bool(ends) == bool(found)
        assert {when.probe for when in ends if isinstance(when, After)} <= {probe for probe, _ in aimed.DROPS}
