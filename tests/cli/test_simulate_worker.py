"""The process that runs simulations, by its requests."""

from __future__ import annotations

import json

import pytest

from callboard.cli.simulate import worker
from callboard.simulations.scenarios.registry import load_weights


def test_how_long_a_run_may_compute_is_a_matter_of_what_its_scenario_costs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A machine may be many times slower than the one on which scenarios were measured."""
    allowed: list[float] = []
    requests = [{"do": "run", "scenario": name} for name in ("crash-storms", "recorded-day", "shop:Shop")]
    monkeypatch.setattr(worker, "end_after_computing", allowed.append)
    monkeypatch.setattr(worker, "live_as_long_as_parent", lambda: None)
    monkeypatch.setattr(worker, "input_lines", lambda: [json.dumps(each).encode() for each in requests])
    monkeypatch.setitem(worker.WORK, "run", lambda _, **__: {})
    worker.simulate_worker.callback(perturb=False)
    crashes, day, program = allowed[0::3]
    assert crashes == program == worker.SILENT_S
    assert day == worker.SILENT_COSTS * load_weights().scenarios["recorded-day"].cost_s > worker.SILENT_S
    assert allowed[2::3] == [0.0] * 3
