"""One step after the other: what each must come to is known, and anything else is found."""

from __future__ import annotations

from typing import Any

import pytest

from callboard.actors.delivery.offsets import OffsetStates
from callboard.log.partition.partition_log import PartitionLog
from callboard.simulations.checkers import reading
from callboard.simulations.scenarios import SCENARIOS, run_scenario
from callboard.simulations.scenarios.step_life import DONE, STEPS, StepTraffic
from callboard.simulations.violations import Violation

SMALL = (("segment_bytes", 2_048),)


@pytest.mark.parametrize("step", sorted(set(STEPS)))
def test_each_step_is_lived_through(step: str) -> None:
    """Between others, twice, nothing is broken."""
    steps = ("publish", "consume", step, "publish", "search", step, "publish", "read")
    run = run_scenario(SCENARIOS["step-by-step"], 1, workload=StepTraffic(steps=steps, limits=SMALL))
    assert run.failure is None


def found(steps: tuple[str, ...]) -> Violation:
    """What is broken."""
    run = run_scenario(SCENARIOS["step-by-step"], 2, workload=StepTraffic(steps=steps, limits=SMALL))
    assert isinstance(run.failure, Violation)
    return run.failure


def test_a_search_that_finds_a_later_record_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search by time has to find the first record from then on."""
    right = PartitionLog.offset_at

    async def late(self: Any, time_us: int) -> int:
        return await right(self, time_us) + 1

    monkeypatch.setattr(PartitionLog, "offset_at", late)
    assert found(("publish", "publish", "search")).promise == reading.PROMISE


def test_work_that_comes_again_after_a_closing_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a group had to do before the runtime was closed it has to do afterwards, and no more."""
    right = OffsetStates.pending_count
    calls = []

    def growing(self: Any, visible_end: int) -> int:
        calls.append(visible_end)
        return right(self, visible_end) + len(calls)

    monkeypatch.setattr(OffsetStates, "pending_count", growing)
    assert found(("publish", "reopen", "publish")).promise == DONE
