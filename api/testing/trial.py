"""A trial: a user's function with everything that one seed needs to run it.

Vocabulary: a *case* is what a seed draws before the run, the fault plan and the workload. It is plain data, so that
it can be printed and shrunk. The *schedule* is what the seed decides during the run; a case with a tape
replays one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, Literal

import attrs
import trio

from callboard.log.errors import InvalidArgument
from callboard.simulations.entropy import Generator, SeededEntropy
from callboard.simulations.faults import NO_FAULTS, FaultSpace, Plan, draw_plan
from callboard.simulations.search.redrawing import Drawing
from callboard.simulations.search.shrink import Case
from callboard.simulations.world import Run, Settings, World, run, schedulers
from callboard.testing.guard import no_draws

SEEDS: Final = 100
"""Seeds of a test that does not say how many."""

Escapes = Literal["refuse", "control"]
Body = Callable[[World, Any], Awaitable[object]]
Workload = Callable[[SeededEntropy], Any]


@attrs.frozen(kw_only=True)
class Trial:
    """`body(world, workload)` and how to run it."""

    name: str
    file: str
    """The source file of the body, for tracebacks."""
    body: Body
    faults: FaultSpace | Plan | None = None
    scheduler: str | None = None
    within: float | None = None
    workload: Workload | None = None
    escapes: Escapes = "refuse"

    def case(self, seed: int) -> Case:
        """What this seed draws, always the same."""
        entropy = SeededEntropy(seed)
        plan = NO_FAULTS
        if isinstance(self.faults, FaultSpace):
            plan = draw_plan(entropy.fork("plan"), self.faults)
        elif self.faults is not None:
            plan = self.faults
        workload = None if self.workload is None else self.workload(entropy.fork("workload"))
        return Case(workload, plan)

    def drawing(self, seed: int) -> Drawing | None:
        """How this seed's workload is drawn; None without one."""
        if self.workload is None:
            return None
        return Drawing(self.workload, SeededEntropy(seed).fork("workload"))

    def run(
        self,
        seed: int,
        case: Case,
        *,
        trace: Literal["off", "digest", "full"] = "off",
        record_schedule: bool = False,
        tick_limit: int = Settings().tick_limit,
        watched: bool = False,
    ) -> Run:
        """One run. Its `failure` is the exception of the body, except `KeyboardInterrupt`, which is raised.

        `watched`: its history has what the program did, for a story.
        """
        if trio.lowlevel.in_trio_run():
            raise InvalidArgument(
                "a simulated world cannot run inside another trio run. Call it from a plain `def` test."
            )
        settings = Settings(
            scheduler=self.scheduler,
            starvable=self.faults.actors if isinstance(self.faults, FaultSpace) else (),
            trace=trace,
            record_schedule=record_schedule,
            tick_limit=tick_limit,
            escapes=self.escapes,
            watched=watched,
        )
        if self.within is not None:
            settings = attrs.evolve(settings, virtual_limit_s=self.within)

        async def main(world: World) -> None:
            await self.body(world, case.workload)

        with no_draws():
            return run(main, seed=seed, plan=case.plan, tape=case.tape, settings=settings)


def trial_problems(
    *,
    faults: object,
    scheduler: object,
    within: Any,
    workload: object,
    escapes: object,
    seeds: object = 1,
) -> list[str]:
    """What is wrong with these settings of a trial, in words."""
    problems = []
    if not isinstance(seeds, int) or isinstance(seeds, bool) or seeds < 1:
        problems.append(f"seeds={seeds!r}: wants a number of seeds, 1 or more")
    if not (faults is None or isinstance(faults, FaultSpace | Plan)):
        problems.append(f"faults={faults!r}: wants a FaultSpace, a Plan or None")
    if scheduler is not None and not _is_scheduler(scheduler):
        problems.append(f"scheduler={scheduler!r}: wants fifo, shuffle, walk, pct:<depth> or starve:<path>")
    if within is not None and not within > 0:
        problems.append(f"within={within!r}: wants virtual seconds above 0")
    if not (workload is None or callable(workload)):
        problems.append(f"workload={workload!r}: wants a function of the entropy")
    if escapes not in ("refuse", "control"):
        problems.append(f"escapes={escapes!r}: wants refuse or control")
    return problems


def _is_scheduler(name: object) -> bool:
    if not isinstance(name, str):
        return False
    try:
        schedulers.make(name, Generator(0))
    except InvalidArgument:
        return False
    return True
