"""Shrinking: the smallest workload, plan and schedule that still break the same promise.

First the plan: faults are dropped, then their parameters made simpler. Then the workload. Meanwhile the schedule is the
one in order of creation if the promise breaks under it too, else the seed's own. At the end the schedule: what it
decided is recorded, and decisions are replaced by "all, in order" in ever smaller chunks. Fewer faults may allow a
smaller workload and the other way round, so rounds are repeated until nothing gets smaller or the budget is used up.

Invariants
----------
K1  The case that is kept has always been run, and broke the same promise.
K2  Not more runs than the budget allows, and none is begun, and no workload drawn, after its time.
K3  The workload is one that its drawing function can make; one that the function did not draw is left as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

import attrs

from callboard.simulations.faults import After, Plan
from callboard.simulations.faults.when import AWAIT
from callboard.simulations.search.redrawing import Drawing, DrawnWorkload
from callboard.simulations.search.simpler import chunks, greedy, variants
from callboard.simulations.world.tape import Tape

RUNS_MAX: Final = 400
"""Attempts; more would take long for a story that is hardly shorter."""
SOONER_MAX: Final = 60
"""Steps of the program by which a fault is tried sooner when others are left out."""
ROUNDS_MAX: Final = 4
ALL_IN_ORDER: Final = Tape()
SCHEDULERS: Final = ("walk", "shuffle", "pct:2", "pct:3")
"""Under which a case is tried that the present scheduler does not break."""


@attrs.frozen
class Case:
    """What one run is made of, apart from scenario and seed.

    Without `tape` the `scheduler` of that name decides; without either, the one that the seed draws.
    """

    workload: Any
    plan: Plan
    tape: Tape | None = None
    scheduler: str | None = None


class CaseTrial(Protocol):
    """Runs a case."""

    def __call__(self, case: Case, /, *, record: bool) -> Tape | None:
        """The schedule when the same promise was broken (empty unless `record`); None when it was not."""
        ...


class BudgetSpent(Exception):
    """No run is left."""


class RunBudget:
    """How many runs are left, and whether there is time for one. `spent` counts."""

    def __init__(self, runs_max: int = RUNS_MAX, out_of_time: Callable[[], bool] = lambda: False) -> None:
        self.spent = 0
        self._runs_max = runs_max
        self._out_of_time = out_of_time

    def take(self) -> None:
        """Take one run. Raises `BudgetSpent` when there is none left."""
        if self.spent >= self._runs_max:
            raise BudgetSpent
        self.check_time()
        self.spent += 1

    def check_time(self) -> None:
        """Raises `BudgetSpent` when there is no time left."""
        if self._out_of_time():
            raise BudgetSpent


@attrs.frozen
class Shrunk:
    """The smallest case that was found. `complete` when nothing got smaller any more within the budget."""

    case: Case
    runs: int
    complete: bool


def shrink(
    case: Case,
    trial: CaseTrial,
    budget: RunBudget,
    tell: Callable[[str, int], None] = lambda what, runs: None,
    drawing: Drawing | None = None,
) -> Shrunk:
    """The smallest case that still breaks the promise, as far as the budget goes (K1, K2).

    `case` is taken to break it, and `drawing` to have drawn its workload (K3). `tell(what, runs)` hears of progress.
    """
    return _Shrinking(case, trial, budget, tell, drawing).go()


@attrs.define
class _Shrinking:
    case: Case
    _trial: CaseTrial
    _budget: RunBudget
    _tell: Callable[[str, int], None]
    _drawing: Drawing | None
    _drawn: DrawnWorkload | None = None
    _what: str = ""

    def __attrs_post_init__(self) -> None:
        drawn = None if self._drawing is None else self._drawing.draw()
        if drawn is not None and drawn.workload == self.case.workload:
            self._drawn = drawn

    def go(self) -> Shrunk:
        complete = True
        try:
            self._all()
        except BudgetSpent:
            complete = False
        return Shrunk(self.case, self._budget.spent, complete)

    def _all(self) -> None:
        self._plainest_schedule()
        for _ in range(ROUNDS_MAX):
            before = self.case
            self._plan()
            self._workload()
            if self.case.tape != ALL_IN_ORDER:
                self._plainest_schedule()
            if self.case == before:
                break
        self._schedule()

    def _holds(self, case: Case) -> bool:
        """Run the case; keep it when it breaks the promise (K1)."""
        self._budget.take()
        self._tell(self._what, self._budget.spent)
        if self._trial(case, record=False) is None:
            return False
        self.case = case
        return True

    def _plainest_schedule(self) -> None:
        """All in order of creation, if that will do; else let the seed decide: a tape fits no other case."""
        self._what = "schedule"
        if not self._holds(attrs.evolve(self.case, tape=ALL_IN_ORDER)) and self.case.tape is not None:
            self._holds(attrs.evolve(self.case, tape=None))

    def _plan(self) -> None:
        self._what = "plan"

        def fewer(faults: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
            return (faults[:first] + faults[end:] for first, end in chunks(len(faults)))

        def plainer(faults: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
            for at, fault in enumerate(faults):
                for simpler in variants(fault):
                    yield (*faults[:at], simpler, *faults[at + 1 :])

        def holds(faults: tuple[Any, ...]) -> bool:
            return self._holds(attrs.evolve(self.case, plan=Plan(faults)))

        def holds_somehow(faults: tuple[Any, ...]) -> bool:
            # With fewer faults there are fewer tasks, and the same random numbers mean another schedule.
            if holds(faults):
                return True
            if self.case.tape is not None:
                return False
            case = attrs.evolve(self.case, plan=Plan(faults))
            return any(self._holds(attrs.evolve(case, scheduler=name)) for name in SCHEDULERS)

        greedy(self.case.plan.faults, fewer, holds_somehow)
        self._sooner()
        greedy(self.case.plan.faults, plainer, holds)

    def _sooner(self) -> None:
        """One of several faults alone, some steps of the program sooner: without the others fewer come before it."""
        faults = self.case.plan.faults
        for fault in reversed(faults if len(faults) > 1 else ()):
            if not isinstance(fault.when, After) or fault.when.probe != AWAIT:
                continue
            for count in range(fault.when.count - 1, max(0, fault.when.count - 1 - SOONER_MAX), -1):
                alone = attrs.evolve(fault, when=attrs.evolve(fault.when, count=count))
                if self._holds(attrs.evolve(self.case, plan=Plan((alone,)))):
                    return

    def _workload(self) -> None:
        self._what = "workload"
        if self._drawing is None or self._drawn is None:
            return
        failed: set[str] = set()

        def holds(drawn: DrawnWorkload) -> bool:
            words = repr(drawn.workload)
            if words in failed:
                return False
            case = attrs.evolve(self.case, workload=drawn.workload)
            if case == self.case or self._holds(case):
                self._drawn = drawn
                return True
            failed.add(words)
            return False

        drawing = self._drawing
        greedy(self._drawn, lambda drawn: drawing.simpler(drawn, self._budget.check_time), holds)

    def _schedule(self) -> None:
        self._what = "schedule"
        tape = self._recorded(self.case) if self.case.tape is None else self.case.tape
        if tape is None:
            return
        self.case = attrs.evolve(self.case, tape=tape)
        size = max(tape.choices, 1)
        while size and tape.choices:
            end = tape.choices
            while end > 0:
                choices = [at for at, decision in enumerate(tape.decisions) if decision]
                end = min(end, len(choices))
                first = max(0, end - size)
                if end > first:
                    plain = tape.plain(choices[first], choices[end - 1] + 1)
                    plainer = self._recorded(attrs.evolve(self.case, tape=plain))
                    if plainer is not None and plainer.choices < tape.choices:
                        tape = plainer
                        self.case = attrs.evolve(self.case, tape=tape)
                end = first
            size //= 2

    def _recorded(self, case: Case) -> Tape | None:
        """The schedule that the case really took, when it breaks the promise and would do so again under that."""
        self._budget.take()
        self._tell(self._what, self._budget.spent)
        tape = self._trial(case, record=True)
        return None if tape is None else tape.trimmed()
