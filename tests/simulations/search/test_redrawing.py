"""Simpler workloads: always those that the drawing function makes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callboard.log.limits import KIB, SEGMENT_BYTES_MIN
from callboard.simulations.entropy import SeededEntropy
from callboard.simulations.faults import Plan
from callboard.simulations.scenarios import SCENARIOS, Scenario, draw
from callboard.simulations.search.redrawing import Drawing
from callboard.simulations.search.shrink import Case, RunBudget, shrink
from callboard.simulations.search.simpler import greedy
from callboard.simulations.world import Tape


def smallest(function: Callable[[Any], Any], seed: int, holds: Callable[[Any], bool]) -> Any:
    """The workload that is left when nothing simpler holds."""
    drawing = Drawing(function, SeededEntropy(seed))
    return greedy(drawing.draw(), drawing.simpler, lambda drawn: holds(drawn.workload)).workload


def small_traffic(name: str, seed: int) -> tuple[Any, list[Any]]:
    """What is left of a scenario's workload that fails whatever it is, and all that were tried."""
    scenario: Scenario = SCENARIOS[name]
    workload, _ = draw(scenario, seed)
    tried = []

    def fails(case: Case, /, *, record: bool) -> Tape:
        tried.append(case.workload)
        return Tape()

    drawing = Drawing(scenario.workload, SeededEntropy(seed).fork("workload"))
    return shrink(Case(workload, Plan()), fails, RunBudget(2_000), drawing=drawing).case.workload, tried


@pytest.mark.parametrize("name", ["publish-and-recover", "many-groups", "disk-full-and-healed"])
def test_a_scenario_is_given_what_it_can_draw(name: str) -> None:
    """Segments have one of the two sizes, timeouts are those of a list; limits go, and the least of each is reached."""
    for seed in range(5):
        small, tried = small_traffic(name, seed)
        assert {load.segment_bytes for load in tried} <= {SEGMENT_BYTES_MIN, 1024 * KIB}
        assert min(load.visibility_s for load in tried) >= 0.2
        assert all(load.acks and load.poll_s >= 0.05 for load in tried)
        assert small.limits == ()
        assert small.partitions == small.consumers == 1


def test_a_workload_that_was_not_drawn_is_left_alone() -> None:
    """A stored one may have been made by hand, or by another version."""
    drawing = Drawing(lambda entropy: (entropy.integer(8), 7), SeededEntropy(1))

    def fails(case: Case, /, *, record: bool) -> Tape:
        return Tape()

    assert shrink(Case((1_000, 8), Plan()), fails, RunBudget(), drawing=drawing).case.workload == (1_000, 8)


@given(st.integers(0, 10_000))
@settings(max_examples=50, deadline=None)
def test_stepping_ends_at_the_least_that_fails(seed: int) -> None:
    """Of several items the one that matters is found, wherever it is, and made as small as it may be."""

    def draws(entropy: Any) -> tuple[tuple[int, bytes], ...]:
        return tuple((entropy.integer(10), entropy.bytes(2)) for _ in range(1 + entropy.integer(3)))

    def holds(items: tuple[tuple[int, bytes], ...]) -> bool:
        return any(number >= 3 for number, _ in items)

    drawn = draws(SeededEntropy(seed))
    if holds(drawn):
        assert smallest(draws, seed, holds) == ((3, bytes(2)),)


def test_forks_of_one_name_give_the_same() -> None:
    """As they do in a seed: a workload that needs them to differ is never tried."""

    def draws(entropy: Any) -> tuple[int, int]:
        return entropy.fork("x").integer(8), entropy.fork("x").integer(8)

    tried = []
    smallest(draws, 5, lambda pair: tried.append(pair) or pair[0] >= 9)  # type: ignore[func-returns-value]
    assert len(tried) > 5
    assert all(one == other for one, other in tried)


def test_a_drawing_function_may_refuse() -> None:
    """What it raises for some numbers keeps nobody from trying others."""

    @attrs.frozen
    class Even:
        number: int = attrs.field()

        @number.validator
        def _is_even(self, _: object, value: int) -> None:
            if value % 2:
                raise ValueError(value)

    def draws(entropy: Any) -> Even:
        return Even(entropy.fork("even").integer(7) * 2 + entropy.integer(1))

    seed = next(seed for seed in range(99) if SeededEntropy(seed).integer(1) == 0)
    assert smallest(draws, seed, lambda even: True) == Even(0)
