"""A workload with settings that the runtime refuses says nothing about the broker."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from callboard.simulations.scenarios import SCENARIOS, draw, run_scenario
from callboard.simulations.search.replay import promise_of, words_of
from callboard.simulations.world import Settings


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"segment_bytes": 0}, "segment_bytes"),
        ({"visibility_s": 1e12, "lag_s": 0.0}, "visibility_timeout"),
        ({"altered_visibility_s": -1.0}, "visibility_timeout"),
    ],
)
def test_a_refused_setting_is_a_failure_of_its_own(fields: dict[str, Any], named: str) -> None:
    """It is told at once in the words of the refusal, and not that messages were settled too late."""
    scenario = SCENARIOS["many-groups"]
    workload, plan = draw(scenario, 3)
    run = run_scenario(
        scenario, 3, plan=plan, workload=attrs.evolve(workload, **fields), settings=Settings(trace="off")
    )
    assert run.failure is not None
    assert promise_of(run.failure) == "the workload cannot be configured"
    assert named in words_of(run.failure)
    assert run.virtual_s < 20
