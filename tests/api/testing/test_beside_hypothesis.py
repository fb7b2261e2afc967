"""Hypothesis draws the workload and the plan, before the run and never in it."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from hypothesis import find, given
from hypothesis import strategies as st

from callboard import ConfigurationError
from callboard.simulations.faults import NO_FAULTS, PowerCut
from callboard.testing import FaultSpace, Simulation, simulate
from callboard.testing.strategies import plans

pytest_plugins = ["pytester"]

HYPOTHESIS = """
    from hypothesis import assume, given, settings, strategies as st
    quick = settings(database=None, deadline=None, max_examples=30)
"""


def test_hypothesis_draws_and_shrinks_the_workload(run_file: Any) -> None:
    """What is drawn is an ordinary argument; a failure is shrunk by Hypothesis and still has its seed and story."""
    result = run_file(
        HYPOTHESIS
        + """
    @quick
    @given(amounts=st.lists(st.integers(0, 100), max_size=8))
    @simulate(seeds=2)
    async def test_fails(world, amounts):
        await trio.sleep(60)
        assert sum(amounts) < 100

    @quick
    @given(st.integers(0, 10))
    @simulate(seeds=2)
    async def test_passes(world, amount):
        assume(amount != 3)
        await trio.sleep(60)
        assert amount != 3
    """
    )
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            "*test_fails, seed 0: broken promise: raised: AssertionError*",
            "*It failed under seed 0*",
            "*pytest test_it.py::test_fails --callboard-seed=0*",
            "*amounts=[[]100]*",
        ]
    )


def test_plans_shrink_to_what_is_needed() -> None:
    """A plan is out of its space, and holds no fault that the failure does not need."""
    space = FaultSpace(weights={"PowerCut": 1, "KillProcess": 1}, faults=(4, 8))
    plan = find(plans(space), lambda plan: any(isinstance(fault, PowerCut) for fault in plan.faults))
    (fault,) = plan.faults
    assert isinstance(fault, PowerCut)
    assert find(plans(space), lambda plan: True) == NO_FAULTS


def test_a_drawn_plan_is_the_plan_of_the_run(run_file: Any) -> None:
    """The argument `plan` decides what fails, whatever the decorator says."""
    result = run_file(
        HYPOTHESIS
        + """
    from callboard.testing import FaultSpace, strategies

    @quick
    @given(plan=strategies.plans(FaultSpace(weights={"KillProcess": 1})))
    @simulate(seeds=2, faults=FaultSpace())
    async def test_it(world, plan):
        assert world.plan is plan
    """
    )
    result.assert_outcomes(passed=1)


def test_a_draw_inside_the_run_is_refused(run_file: Any) -> None:
    """Interactive draws inside the world fail, and say what to do instead."""
    result = run_file(
        HYPOTHESIS
        + """
    @quick
    @given(data=st.data())
    @simulate(seeds=2)
    async def test_it(world, data):
        await trio.sleep(1)
        data.draw(st.integers())
    """
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*DrawnInside: *above `@simulate`*"])


def test_the_wrong_order_of_decorators_is_told() -> None:
    """@given below @simulate would draw inside the run."""
    with pytest.raises(ConfigurationError) as raised:

        @simulate
        @given(st.integers())
        def test_it(number: int) -> None: ...

    assert "@given above @simulate" in str(raised.value)


def test_the_fixture_may_be_used_under_hypothesis(simulation: Simulation) -> None:
    """It is the same for all examples, so Hypothesis has nothing against it."""

    @given(seconds=st.integers(0, 50))
    def check(seconds: int) -> None:
        async def main(world: Any) -> None:
            await trio.sleep(seconds)

        assert simulation(main, seed=1).virtual_s == seconds

    check()
