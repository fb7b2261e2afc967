"""Hypothesis strategies for what a simulated test takes: `plans` of faults. Needs Hypothesis to be installed."""

from __future__ import annotations

from hypothesis import strategies as st

from callboard.simulations.entropy import SeededEntropy
from callboard.simulations.faults import FaultSpace, Plan, draw_plan

__all__ = ["plans"]

SEED_MAX = 2**32 - 1


def plans(space: FaultSpace) -> st.SearchStrategy[Plan]:
    """Fault plans out of `space`. Shrinks to fewer faults, and to none.

    A test that takes an argument `plan` runs under it; `@given` stands above `@simulate`:

        @given(plan=plans(FaultSpace(...)), amounts=st.lists(st.integers(1, 50)))
        @simulate(seeds=5)
        async def test_transfers(world, plan, amounts): ...
    """
    return _plans(space)


@st.composite
def _plans(draw: st.DrawFn, space: FaultSpace) -> Plan:
    drawn = draw_plan(SeededEntropy(draw(st.integers(0, SEED_MAX))), space)
    return Plan(tuple(fault for fault in drawn.faults if draw(st.booleans())))
