"""Shrinking in the real world: a race that only some schedules show."""

from __future__ import annotations

import attrs
import pytest
import trio

from callboard.simulations.entropy import SeededEntropy
from callboard.simulations.faults import At, JumpClock, Plan
from callboard.simulations.search.redrawing import Drawing
from callboard.simulations.search.replay import (
    ReplayVerdict,
    case_of,
    judge,
    promise_of,
    stored_failure_of,
    trial_of,
)
from callboard.simulations.search.shrink import Case, RunBudget, shrink
from callboard.simulations.violations import Violation
from callboard.simulations.world import Run, Settings, StaleTape, Tape, World, run


@attrs.frozen
class Steps:
    """How far both go."""

    first: int
    lead: int


def draw_steps(entropy: SeededEntropy) -> Steps:
    """Some steps for both, and a lead."""
    return Steps(first=entropy.integer(4), lead=1 + entropy.integer(3))


async def race(world: World, steps: Steps) -> None:
    """The second one takes it for granted that the first one, who has fewer steps to go, is there before it."""
    there = []

    async def first() -> None:
        for _ in range(steps.first):
            await trio.lowlevel.checkpoint()
        there.append(True)

    async def second() -> None:
        for _ in range(steps.first + steps.lead):
            await trio.lowlevel.checkpoint()
        if not there:
            raise Violation("the first is first", "it was not there")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(first)
        nursery.start_soon(second)


def run_seed(seed: int, case: Case, settings: Settings) -> Run:
    """One run of the race."""
    return run(
        lambda world: race(world, case.workload), seed=seed, plan=case.plan, tape=case.tape, settings=settings
    )


@pytest.fixture
def found() -> tuple[int, Case]:
    """The first seed under which the race is lost."""
    case = Case(draw_steps(SeededEntropy(1)), Plan((JumpClock(At(0.0), 5.0), JumpClock(At(1.0), -5.0))))
    for seed in range(300):
        failure = run_seed(seed, case, Settings(trace="off")).failure
        if failure is not None:
            assert promise_of(failure) == "the first is first"
            return seed, case
    pytest.fail("no schedule of 300 lost the race")


def test_a_race_shrinks_to_the_steps_that_matter(found: tuple[int, Case]) -> None:
    """Faults and steps go; what is left of the schedule is needed, and replays."""
    seed, case = found
    trial = trial_of(
        lambda case, settings: run_seed(seed, case, settings), Violation("the first is first", "")
    )
    drawing = Drawing(draw_steps, SeededEntropy(1))
    small = shrink(case, trial, RunBudget(600), drawing=drawing)
    assert small.case.plan == Plan()
    assert small.case.workload.first <= 3
    assert small.case.tape is not None
    assert 1 <= small.case.tape.choices <= 8
    again = run_seed(seed, small.case, Settings(trace="off"))
    stored = stored_failure_of("race", small.case, again, version="0", note="")
    assert (
        judge(stored, run_seed(seed, case_of(stored, Steps), Settings())).verdict is ReplayVerdict.REPRODUCED
    )


def test_the_schedule_of_a_failure_replays_it(found: tuple[int, Case]) -> None:
    """Recorded and played, the schedule loses the same race; without it, in order, nobody does."""
    seed, case = found
    recorded = run_seed(seed, case, Settings(trace="full", record_schedule=True))
    assert recorded.tape is not None
    played = run_seed(seed, attrs.evolve(case, tape=recorded.tape), Settings(trace="full"))
    assert played.trace.lines == recorded.trace.lines
    in_order = run_seed(seed, case, Settings(scheduler="fifo"))
    assert in_order.failure is None


def test_a_schedule_of_something_else_is_stale(found: tuple[int, Case]) -> None:
    """Decisions about tasks that are not there are a failure of their own, not one of the code."""

    seed, case = found
    wrong = attrs.evolve(case, tape=Tape(((7, 8),)))
    assert isinstance(run_seed(seed, wrong, Settings()).failure, StaleTape)
