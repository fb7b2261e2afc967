"""The scenario of recurring publishes: its own idea of what is due, and crashes at each step of a run."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from callboard.actors.recurring import cron
from callboard.simulations.faults.kinds import CrashActor, Fault, KillProcess, PowerCut
from callboard.simulations.faults.plan import Plan
from callboard.simulations.faults.when import After
from callboard.simulations.scenarios import SCENARIOS, run_scenario
from callboard.simulations.scenarios.due_instants import CRONS, STARTS, CronInstants, SpacedInstants
from callboard.simulations.scenarios.recurring_runs import LEAP_US, RecurringTraffic, published_by
from callboard.simulations.search.replay import words_of
from callboard.simulations.world import Settings

SECOND = 1_000_000
NOON_US = 1_700_000_000 * SECOND
STEPS = (1, 3, 8, 21)


@pytest.mark.parametrize("expression", CRONS, ids=lambda found: found[0])
@pytest.mark.parametrize(("zone", "start_us"), STARTS, ids=lambda found: str(found))
def test_two_ways_of_telling_what_is_due(zone: Any, start_us: int, expression: Any) -> None:
    """Second by second, and by the rules of the product, the same is due around each change of clocks."""
    begin = (start_us or NOON_US) - 5400 * SECOND
    rule, found, at = cron.Cron(expression[0], zone), [], begin
    while (due := rule.after(at)) is not None and due <= begin + 9000 * SECOND:
        found.append(due)
        at = due
    assert CronInstants(*expression, zone).dues(0, begin, begin + 9000 * SECOND) == found


def test_a_time_in_the_gap_is_due_at_its_end() -> None:
    """And one that exists twice the first time."""
    (zone, forward), (_, back) = STARTS[1:3]
    once = CronInstants("0 30 2 * * *", range(1), (2, 3), True, zone)
    changed = forward + 8 * SECOND
    assert once.dues(0, forward, changed + 60 * SECOND) == [changed]
    assert datetime.fromtimestamp(changed / 1e6, UTC).minute == 0
    assert once.dues(0, back, back + 60 * SECOND) == []


def test_so_many_seconds_apart() -> None:
    """Also before the schedule was made, for clocks that are set back."""
    assert SpacedInstants(10).dues(100, 85, 120) == [90, 100, 110, 120]
    assert SpacedInstants(10).dues(100, 100, 109) == []


def test_what_a_clock_leapt_over_is_published_when_the_schedule_wakes() -> None:
    """When what was due next at the jump would have come, a minute later at most; a second jump wakes it no earlier."""
    every_5, one = [5, 10, 15, 20], [(4, 15)]
    assert [published_by(due, every_5, one, 0) for due in every_5] == [16, 16, 16, 20]
    assert published_by(5, every_5, [(4, 9), (9, 14)], 0) == 15
    assert published_by(10, [5, 10, 15, 20], [(9, 14), (14, 19)], 0) == 20
    assert published_by(4, every_5, one, 1) == 17
    assert published_by(2, every_5, one, 1) == 3
    far = 10 * LEAP_US
    assert [published_by(due, [far], [(4, far)], 0) for due in (far, far + LEAP_US + 1)] == [
        far + LEAP_US,
        far + LEAP_US + 1,
    ]


@pytest.mark.parametrize("probe", ["disk.write", "disk.sync", "fired", "did"])
def test_a_crash_at_any_step_neither_loses_nor_repeats(probe: str) -> None:
    """Of the actor, of its partition, of the process, and of the power, at each of these steps of a run."""
    scenario, workload = SCENARIOS["recurring-publishes"], RecurringTraffic(messages=8)
    for step in STEPS:
        when = After(probe, step)
        faults: list[Fault] = [CrashActor(when, "recurring"), CrashActor(when, "topics/orders/0")]
        faults += [KillProcess(when, 0.05), PowerCut(when, down_s=0.05)]
        for fault in faults:
            run = run_scenario(
                scenario, step, plan=Plan((fault,)), workload=workload, settings=Settings(trace="off")
            )
            assert run.failure is None, (fault, words_of(run.failure))
