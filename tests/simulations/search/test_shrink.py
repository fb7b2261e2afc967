"""Shrinking: on runs that are functions of their case."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.simulations.entropy import SeededEntropy
from callboard.simulations.faults import After, At, CrashActor, JumpClock, Plan, PowerCut
from callboard.simulations.search.redrawing import Drawing
from callboard.simulations.search.shrink import Case, RunBudget, shrink
from callboard.simulations.search.simpler import chunks, greedy, variants
from callboard.simulations.world import Tape


@attrs.frozen
class Load:
    """A workload."""

    messages: int
    rate: float
    sizes: tuple[int, ...]
    style: str = "batches"


def draw_load(entropy: SeededEntropy) -> Load:
    """At least one message and one size; rates are halves."""
    return Load(
        messages=1 + entropy.integer(8),
        sizes=tuple(entropy.integer(10) for _ in range(1 + entropy.integer(2))),
        rate=int(entropy.fork("rate").random() * 20) / 2,
    )


DRAWING = Drawing(draw_load, SeededEntropy(3))
LOAD = draw_load(SeededEntropy(3))
BIG = max(LOAD.sizes)
FAULTS = (At(0.5), At(1.25), At(2.0), At(3.0))
PLAN = Plan(
    (
        PowerCut(FAULTS[0], down_s=4.5),
        CrashActor(FAULTS[1], "topics/orders/0"),
        JumpClock(FAULTS[2], 3_600.0),
        CrashActor(FAULTS[3], "topics/orders/1"),
    )
)
TAPE = Tape(((1, 0), (), (2,), (0, 2, 1), (), (1,), (3, 0)))


class Trials:
    """Runs cases: the promise is broken when `breaks` says so; the seed's own schedule is `TAPE`."""

    def __init__(self, breaks: Callable[[Case], bool]) -> None:
        self.breaks = breaks
        self.cases: list[Case] = []

    def __call__(self, case: Case, /, *, record: bool) -> Tape | None:
        self.cases.append(case)
        taken = attrs.evolve(case, tape=TAPE if case.tape is None else case.tape)
        if not self.breaks(taken):
            return None
        return taken.tape if record else Tape()


def test_everything_that_does_not_matter_goes() -> None:
    """Of a failure that needs nothing, the smallest of all cases is left."""
    trials = Trials(lambda case: True)
    found = shrink(Case(LOAD, PLAN), trials, RunBudget(), drawing=DRAWING)
    assert found.complete
    assert found.case == Case(Load(messages=1, rate=0.0, sizes=(0,)), Plan(), Tape())


def test_what_matters_stays() -> None:
    """A fault, a number and a decision without which the promise holds stay, as small as they may be."""

    def breaks(case: Case) -> bool:
        crashes = [fault for fault in case.plan.faults if isinstance(fault, CrashActor)]
        there = any(fault.path == "topics/orders/1" for fault in crashes)
        schedule = case.tape is not None and (0, 2, 1) in case.tape.decisions
        return there and case.workload.messages >= 17 and BIG in case.workload.sizes and schedule

    found = shrink(Case(LOAD, PLAN), Trials(breaks), RunBudget(), drawing=DRAWING).case
    assert found.plan == Plan((CrashActor(At(0.0), "topics/orders/1"),))
    assert found.workload == Load(messages=17, rate=0.0, sizes=(BIG,))
    assert found.tape == Tape(((), (), (), (0, 2, 1)))


def test_strings_of_faults_are_names_and_stay() -> None:
    """A path is not made shorter: it would mean another actor."""
    trials = Trials(lambda case: bool(case.plan.faults))
    shrink(Case(LOAD, PLAN), trials, RunBudget(), drawing=DRAWING)
    paths = {
        fault.path for case in trials.cases for fault in case.plan.faults if isinstance(fault, CrashActor)
    }
    assert paths == {"topics/orders/0", "topics/orders/1"}


def test_the_budget_of_runs_is_kept() -> None:
    """K2: not one run more than allowed, and what was found by then is given."""
    trials = Trials(lambda case: True)
    found = shrink(Case(LOAD, PLAN), trials, RunBudget(runs_max=5), drawing=DRAWING)
    assert len(trials.cases) == 5 == found.runs
    assert not found.complete
    assert found.case in trials.cases


def test_no_run_begins_after_the_time() -> None:
    """K2: once time is up, nothing is run."""
    trials = Trials(lambda case: True)
    found = shrink(Case(LOAD, PLAN), trials, RunBudget(out_of_time=lambda: True), drawing=DRAWING)
    assert not trials.cases
    assert found.case == Case(LOAD, PLAN)


def test_what_is_kept_was_run() -> None:
    """K1: the case given is one that broke the promise, under exactly its schedule."""
    for needed in range(8):
        trials = Trials(
            lambda case, needed=needed: (LOAD.messages - case.workload.messages) % 8 != needed + 1
        )
        found = shrink(Case(LOAD, PLAN, TAPE), trials, RunBudget(), drawing=DRAWING).case
        assert (LOAD.messages - found.workload.messages) % 8 != needed + 1
        assert found in [attrs.evolve(case, tape=case.tape or Tape()) for case in trials.cases]


def test_a_schedule_that_does_not_fit_is_not_taken() -> None:
    """Under a tape that only the first workload fits, smaller workloads are tried with the seed's own schedule."""

    def breaks(case: Case) -> bool:
        return case.tape == TAPE

    found = shrink(Case(LOAD, PLAN, TAPE), Trials(breaks), RunBudget(), drawing=DRAWING).case
    assert found.workload == Load(messages=1, rate=0.0, sizes=(0,))
    assert found.tape == TAPE


@pytest.mark.parametrize("value", [200, -7, 3.75, -0.5, 1e9, True, (3, "x", (1.5,)), LOAD])
def test_stepping_to_simpler_values_ends(value: object) -> None:
    """Every step is strictly simpler: taking any of them, again and again, comes to an end."""
    for choose in (0, -1):
        steps = 0
        while simpler := list(variants(value)):
            value = simpler[choose]
            steps += 1
            assert steps < 5_000


@given(st.integers(1, 300), st.sets(st.integers(0, 299), max_size=5))
def test_the_needed_items_are_found(count: int, wanted: set[int]) -> None:
    """Of many items exactly those that are needed are left."""
    needed = {item for item in wanted if item < count}
    found = greedy(
        tuple(range(count)),
        lambda items: (items[:first] + items[end:] for first, end in chunks(len(items))),
        lambda items: needed <= set(items),
    )
    assert set(found) == needed


def test_one_fault_is_tried_sooner_without_the_others() -> None:
    """A machine that stops twice before passes more steps: alone, the last fault comes this many steps sooner."""
    cuts = tuple(PowerCut(After("await", count)) for count in (1, 5, 31))

    def breaks(case: Case) -> bool:
        moments = [fault.when for fault in case.plan.faults]
        if len(moments) == 1:
            return moments == [After("await", 17)]
        return len(moments) > 1 and moments[0] == cuts[0].when and moments[-1] == cuts[2].when

    small = shrink(Case(None, Plan(cuts)), Trials(breaks), RunBudget(200))
    assert [fault.when for fault in small.case.plan.faults] == [After("await", 17)]
