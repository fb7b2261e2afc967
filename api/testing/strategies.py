"""Hypothesis strategies for simulated tests: `plans` of faults. Needs Hypothesis."""

from __future__ import annotations

try:
    from hypothesis import strategies as st
except ModuleNotFoundError as error:
    if error.name != "hypothesis":
        raise
    raise ModuleNotFoundError(
        "callboard.testing.strategies draws fault plans by Hypothesis, which is not installed here. Install it "
        "(pip install hypothesis); everything else in callboard.testing does without.",
        name="hypothesis",
    ) from None

from callboard.simulations.entropy import SeededEntropy
from callboard.simulations.faults import FaultSpace, Plan, draw_plan

SEED_MAX = 2**32 - 1
MASK_BITS = 16


def plans(space: FaultSpace) -> st.SearchStrategy[Plan]:
    """Fault plans from `space`. Shrinks to fewer faults, and to none.

    A test with an argument `plan` runs with that plan; `@given` is above `@simulate`:

        @given(plan=plans(FaultSpace(...)), amounts=st.lists(st.integers(1, 50)))
        @simulate(seeds=5)
        async def test_transfers(world, plan, amounts): ...
    """
    return _plans(space)


@st.composite
def _plans(draw: st.DrawFn, space: FaultSpace) -> Plan:
    # Always two choices, and the fewer bits the simpler: so Hypothesis leaves out faults, rather than look for seeds
    # that draw short plans.
    seed, kept = draw(st.integers(0, SEED_MAX)), draw(st.integers(0, 2**MASK_BITS - 1))
    faults = draw_plan(SeededEntropy(seed), space).faults
    return Plan(tuple(fault for at, fault in enumerate(faults) if kept >> at % MASK_BITS & 1))
