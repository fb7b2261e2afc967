"""Every scenario runs, repeats, and would notice."""

from __future__ import annotations

import attrs
import pytest
import trio

from callboard.simulations.checkers import CHECKERS, liveness, nothing_altered, nothing_lost
from callboard.simulations.entropy import SeededEntropy
from callboard.simulations.faults import NO_FAULTS, At, Plan
from callboard.simulations.faults.kinds import FailVerb, FullDisk
from callboard.simulations.history.entry import ALTERED
from callboard.simulations.history.recorder import History
from callboard.simulations.scenarios import SCENARIOS, draw, run_scenario
from callboard.simulations.scenarios.broker_workload import BrokerWorkload
from callboard.simulations.scenarios.recorded_runs import RecordedRuns
from callboard.simulations.scenarios.registry import load_weights
from callboard.simulations.scenarios.traffic import Traffic
from callboard.simulations.search.sweep import shares
from callboard.simulations.search.values import from_plain, to_plain
from callboard.simulations.violations import Violation
from callboard.simulations.world import Settings

QUICK = [name for name in SCENARIOS if name != "recorded-day"]


@pytest.mark.parametrize("name", QUICK)
def test_a_seed_of_each_ends_well_and_repeats(name: str) -> None:
    """A seed runs to its end, does something, breaks no promise, and gives the same trace when it runs again."""
    first, second = (run_scenario(SCENARIOS[name], 3) for _ in range(2))
    assert first.failure is None
    assert len(first.history) > 10
    assert first.trace.digest == second.trace.digest


@pytest.mark.parametrize("name", list(SCENARIOS))
def test_workloads_are_plain_data(name: str) -> None:
    """A workload is frozen attrs of numbers, texts and tuples of such, the same for the same seed."""
    scenario = SCENARIOS[name]
    workload = scenario.workload(SeededEntropy(7))
    assert workload == scenario.workload(SeededEntropy(7))
    assert from_plain(type(workload), to_plain(workload)) == workload
    assert draw(scenario, 7) == draw(scenario, 7)


@pytest.mark.parametrize("name", ["publish-and-recover", "supervisor-trees", "recorded-traffic"])
def test_a_workload_of_zeros_makes_sense(name: str) -> None:
    """A shrunk workload, down to nothing at all, still runs."""
    scenario = SCENARIOS[name]
    workload = scenario.workload(SeededEntropy(1))
    zeros = {
        field.name: type(getattr(workload, field.name))(0)
        for field in attrs.fields(type(workload))
        if type(getattr(workload, field.name)) in (int, float) and field.name != "segment_bytes"
    }
    run = run_scenario(scenario, 1, plan=NO_FAULTS, workload=attrs.evolve(workload, **zeros))
    assert run.failure is None


def test_damage_hits_in_nearly_all_seeds() -> None:
    """A run of `damaged-middle` in which nothing is damaged says nothing: of thirty seeds at most two are such."""
    runs = [run_scenario(SCENARIOS["damaged-middle"], seed) for seed in range(30)]
    assert [run.failure for run in runs] == [None] * 30
    assert sum(not run.disk.damage_budget.damages for run in runs) <= 2


def test_a_lost_message_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A history that tells of one more acknowledged message than there is ends the run with a violation."""
    told = History.healed

    def healed(self: History) -> None:
        number = self.message(b"never published")
        self.record(0, "publish", "nobody", 10**6, "orders", ids=(number,), detail="all")
        self.record(
            0, "published", "nobody", 10**6, "orders", 0, ids=(number,), offsets=(10**6,), detail="all"
        )
        told(self)

    monkeypatch.setattr(History, "healed", healed)
    run = run_scenario(SCENARIOS["publish-and-recover"], 3, plan=NO_FAULTS)
    assert isinstance(run.failure, Violation)
    assert run.failure.promise == nothing_lost.PROMISE
    assert run.failure.promise in CHECKERS


@pytest.mark.parametrize(("number", "promise"), [(ALTERED, nothing_altered.PROMISE), (0, liveness.PROMISE)])
def test_a_run_that_does_not_end_tells_what_it_broke_before(
    number: int, promise: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When not everything is settled in time, but the history tells of foreign bytes, these are what is broken."""
    told = History.healed

    def healed(self: History) -> None:
        self.record(0, "delivered", "w", 10**6, "orders", 9, "g", ids=(number,), offsets=(0,), attempts=(1,))
        told(self)

    async def never(self: BrokerWorkload, runtime: object) -> None:
        await trio.sleep_forever()

    monkeypatch.setattr(History, "healed", healed)
    monkeypatch.setattr(BrokerWorkload, "_until_settled", never)
    run = run_scenario(SCENARIOS["publish-and-recover"], 3, plan=NO_FAULTS)
    assert isinstance(run.failure, Violation)
    assert run.failure.promise == promise


def test_a_full_disk_does_not_stop_time() -> None:
    """A consumer whose fetch is refused waits before it asks again: in virtual time it would ask for ever."""
    plan = Plan((FullDisk(At(0.2), for_s=5.0), FailVerb(At(0.21), "sync", path="delivery/")))
    workload = Traffic(
        messages=60, partitions=1, pause_s=0.02, styles=("receive",), consumers=1, visibility_s=0.5
    )
    settings = Settings(scheduler="fifo", tick_limit=20_000)
    run = run_scenario(SCENARIOS["publish-and-recover"], 1, plan=plan, workload=workload, settings=settings)
    assert run.failure is None
    assert run.fault_counts["FullDisk"]


def test_weights_name_every_scenario() -> None:
    """`weights.toml` names each scenario, and a standard sweep reaches what each needs at least."""
    weights = load_weights()
    assert set(weights.scenarios) == set(SCENARIOS)
    known = weights.scenarios
    dealt = shares(
        20_000,
        {name: weight.share for name, weight in known.items()},
        {name: weight.least for name, weight in known.items()},
    )
    for name, weight in known.items():
        assert dealt[name] >= weight.least
        assert weight.cost_s > 0
    assert all(rare.point and rare.reason for rare in weights.rare)


def test_the_whole_day_is_recorded_or_made() -> None:
    """The full replay has 30,969 events over a day."""
    workload = SCENARIOS["recorded-day"].workload(SeededEntropy(1))
    assert isinstance(workload, RecordedRuns)
    assert workload.messages == 30_969


def test_seeds_draw_every_scheduler_and_starve_who_may_crash() -> None:
    """The actors of the fault space are those that a seed may starve."""
    scenario = SCENARIOS["plain-actors"]
    drawn = {
        run_scenario(scenario, seed, plan=Plan(()), settings=Settings(trace="off")).scheduler
        for seed in range(60)
    }
    kinds = {name.partition(":")[0] for name in drawn}
    assert kinds == {"fifo", "shuffle", "walk", "pct", "starve"}
    assert {name.partition(":")[2] for name in drawn if name.startswith("starve")} <= set(
        scenario.space.actors
    )
