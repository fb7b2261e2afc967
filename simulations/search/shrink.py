"""Shrinking: the smallest workload, plan and schedule that still break the same promise.

First the plan: faults are dropped, then tried sooner, then their parameters made simpler. Then the workload. With fewer
faults and less to do a count means another moment, or none: so faults are counted by what their moments are about, and
moved where those do not come (see `sooner`). Meanwhile the schedule is the one in order of creation if the promise
breaks under it too, else the seed's own. At the end the schedule: what it decided is recorded, and decisions are
replaced by "all, in order" in ever smaller chunks. Fewer faults may allow a smaller workload and the other way round,
so rounds are repeated until nothing gets smaller or the budget is used up.

Invariants
----------
K1  The case that is kept has always been run, and broke the same promise.
K2  Not more runs than the budget allows, and none is begun, and no workload drawn, after its time.
K3  No case is run twice, but to record its schedule.
K4  The workload is one that its drawing function can make; one that the function did not draw is left as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Protocol

import attrs

from callboard.simulations.faults import After, Plan
from callboard.simulations.faults.passings import Passings
from callboard.simulations.faults.when import AWAIT
from callboard.simulations.search.redrawing import Drawing, DrawnWorkload
from callboard.simulations.search.simpler import chunks, greedy, variants
from callboard.simulations.search.sooner import moved, nearer, sooner
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


@attrs.frozen
class Attempt:
    """What a run of a case showed."""

    tape: Tape | None
    """Its schedule when the same promise was broken; None when it was not."""
    passings: Mapping[int, Passings] = attrs.field(factory=dict)
    """What those faults counted that wait for the n-th passing of a point."""


class CaseTrial(Protocol):
    """Runs a case."""

    def __call__(self, case: Case, /, *, record: bool) -> Attempt:
        """How it went. The schedule may be empty unless `record`."""
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

    `case` is taken to break it, and `drawing` to have drawn its workload (K4). `tell(what, runs)` hears of progress.
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
    _attempts: dict[str, Attempt] = attrs.field(factory=dict)
    """Of the cases that were run, by their words."""

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
        self._nearer()
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
        """Keep the case when it breaks the promise (K1)."""
        if self._attempt(case).tape is None:
            return False
        self.case = case
        return True

    def _holds_moved(self, case: Case) -> bool:
        """The same, or with faults moved whose moment did not come in it."""
        if self._holds(case):
            return True
        plans = moved(case.plan, self._attempt(case).passings)
        return any(self._holds(attrs.evolve(case, plan=plan)) for plan in plans)

    def _attempt(self, case: Case) -> Attempt:
        """Run the case, unless it was run (K3)."""
        words = repr(case)
        if words not in self._attempts:
            self._budget.take()
            self._tell(self._what, self._budget.spent)
            self._attempts[words] = self._trial(case, record=False)
        return self._attempts[words]

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
            case = attrs.evolve(self.case, plan=Plan(faults))
            if self._holds_moved(case):
                return True
            if self.case.tape is not None:
                return False
            return any(self._holds(attrs.evolve(case, scheduler=name)) for name in SCHEDULERS)

        greedy(self.case.plan.faults, fewer, holds_somehow)
        self._sooner()
        self._each_sooner()
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

    def _nearer(self) -> None:
        """Count about what the moments of the faults are about: that stays the same when other things go."""
        self._what = "plan"
        if any(isinstance(fault.when, After) and fault.when.count > 1 for fault in self.case.plan.faults):
            plan = nearer(self.case.plan, self._attempt(self.case).passings)
            self._holds(attrs.evolve(self.case, plan=plan))

    def _each_sooner(self) -> None:
        """Each fault as soon as it may come; the last one first, which the others come before."""
        for index in reversed(range(len(self.case.plan.faults))):
            before = None
            while self.case != before:
                before = self.case
                faults = before.plan.faults
                for fault in sooner(faults[index]):
                    plan = Plan((*faults[:index], fault, *faults[index + 1 :]))
                    if self._holds(attrs.evolve(before, plan=plan)):
                        break

    def _workload(self) -> None:
        self._what = "workload"
        if self._drawing is None or self._drawn is None:
            return

        def holds(drawn: DrawnWorkload) -> bool:
            case = attrs.evolve(self.case, workload=drawn.workload)
            if case == self.case or self._holds_moved(case):
                self._drawn = drawn
                return True
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
        tape = self._trial(case, record=True).tape
        return None if tape is None else tape.trimmed()
