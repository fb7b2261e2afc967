"""Every failure that the simulator ever found stays fixed: stored ones (*.json) and seeds (seeds.toml).

A stored failure is kept with `callboard simulate --repro FILE --adopt tests/simulations/regressions/NAME.json` once it
is fixed; see docs/how-to/read-a-failure.md.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

import attrs
import pytest

from callboard.simulations.entropy import SeededEntropy
from callboard.simulations.scenarios import SCENARIOS, run_scenario
from callboard.simulations.search.replay import ReplayVerdict, case_of, judge, promise_of, words_of
from callboard.simulations.search.stored_failure import read_stored_failure
from callboard.simulations.world import Settings

HERE = Path(__file__).resolve().parent
STORED = sorted(HERE.glob("*.json"))
SEEDS = tomllib.loads((HERE / "seeds.toml").read_text(encoding="utf-8"))["seeds"]
QUIET = Settings(trace="off")


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.stem)
def test_a_stored_failure_stays_fixed(path: Path) -> None:
    """Its run ends well, and its faults still have an effect: otherwise it would prove nothing."""
    stored = read_stored_failure(path.read_bytes())
    scenario = SCENARIOS[stored.scenario]
    workload = scenario.workload(SeededEntropy(stored.seed).fork("workload"))
    case = case_of(stored, type(workload))
    settings = attrs.evolve(QUIET, scheduler=case.scheduler)
    run = run_scenario(
        scenario, stored.seed, plan=case.plan, workload=case.workload, tape=case.tape, settings=settings
    )
    found = judge(stored, run)
    assert found.verdict is ReplayVerdict.FIXED, f"{found.verdict.value}: {found.words}"


@pytest.mark.parametrize(
    ("name", "seed"), [(name, seed) for name, seeds in SEEDS.items() for seed in seeds], ids=str
)
def test_a_seed_that_once_failed_ends_well(name: str, seed: int) -> None:
    """Whatever it draws in this version: no promise is broken."""
    failure = run_scenario(SCENARIOS[name], seed, settings=QUIET).failure
    assert failure is None, f"{promise_of(failure)}: {words_of(failure)}"


def test_there_are_regressions() -> None:
    """The folder is found, and each stored failure names a promise that was broken."""
    assert STORED
    assert all(read_stored_failure(path.read_bytes()).promise for path in STORED)
