"""Scenarios: what is done, what may go wrong, and what is promised nevertheless."""

from callboard.simulations.scenarios.registry import SCENARIOS
from callboard.simulations.scenarios.scenario import Scenario, draw, run_scenario

__all__ = ["SCENARIOS", "Scenario", "draw", "run_scenario"]
