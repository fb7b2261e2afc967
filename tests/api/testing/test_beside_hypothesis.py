"""Hypothesis draws the workload and the plan, before the run and never in it."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from callboard import ConfigurationError
from callboard.testing import Simulation, simulate

pytest_plugins = ["pytester"]

HYPOTHESIS = """
    from hypothesis import assume, given, settings, HealthCheck, strategies as st
    settings.register_profile("ours", database=None, deadline=None, max_examples=30)
    settings.load_profile("ours")
"""


def test_hypothesis_draws_and_shrinks_the_workload(run_file: Any) -> None:
    """What is drawn is an ordinary argument; a failure is shrunk by Hypothesis and still names the seed."""
    result = run_file(
        HYPOTHESIS
        + """
    @given(amounts=st.lists(st.integers(0, 100), max_size=8))
    @simulate(seeds=2)
    async def test_fails(world, amounts):
        await trio.sleep(60)
        assert sum(amounts) < 100

    @given(st.integers(0, 10))
    @simulate(seeds=2)
    async def test_passes(world, amount):
        assume(amount != 3)
        await trio.sleep(60)
        assert amount != 3
    """
    )
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*It failed under seed 0*", "*amounts=[[]100]*"])


def test_a_draw_inside_the_run_is_refused(run_file: Any) -> None:
    """Interactive draws inside the world fail, and say what to do instead."""
    result = run_file(
        HYPOTHESIS
        + """
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
