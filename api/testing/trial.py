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
from callboard.simulations.clock import START_US
from callboard.simulations.entropy import Generator, SeededEntropy
from callboard.simulations.faults import NO_FAULTS, FaultSpace, Plan, draw_plan
from callboard.simulations.faults.swarm import for_a_program
from callboard.simulations.scenarios.draws import one_of
from callboard.simulations.search.redrawing import Drawing
from callboard.simulations.search.shrink import Case
from callboard.simulations.world import Run, Settings, World, run, schedulers
from callboard.simulations.world.computing import limited_drawing
from callboard.simulations.world.escapes import guard
from callboard.testing.beside_hypothesis import no_draws
from callboard.testing.crashes import CRASHES, NO_PASSINGS, Passings, draw_aimed

SEEDS: Final = 300
"""How many seeds a test has, unless it says otherwise."""
SNAPSHOTS: Final = (None, 1, 3, 7)
"""After how many events durable actors write a snapshot, in worlds of different seeds; None: as usual."""

Escapes = Literal["refuse", "control"]
Body = Callable[[World, Any], Awaitable[object]]
Workload = Callable[[SeededEntropy], Any]


@attrs.frozen(kw_only=True)
class TrialSettings:
    """What the arguments of `simulate` say about each run."""

    faults: FaultSpace | Plan | None
    scheduler: str | None
    within: float | None
    workload: Workload | None
    escapes: Escapes

    def problems(self, seeds: object = 1) -> list[str]:
        """What is wrong with these settings, and with the number of seeds, in words."""
        problems = []
        if not isinstance(seeds, int) or isinstance(seeds, bool) or seeds < 1:
            problems.append(f"seeds={seeds!r}: wants a number of seeds, 1 or more")
        if not (self.faults is None or isinstance(self.faults, FaultSpace | Plan)):
            problems.append(f"faults={self.faults!r}: wants a FaultSpace, a Plan or None")
        if self.scheduler is not None and not _is_scheduler(self.scheduler):
            problems.append(
                f"scheduler={self.scheduler!r}: wants fifo, shuffle, walk, pct:<depth> or starve:<path>"
            )
        if self.within is not None and not self.within > 0:
            problems.append(f"within={self.within!r}: wants virtual seconds above 0")
        if not (self.workload is None or callable(self.workload)):
            problems.append(f"workload={self.workload!r}: wants a function of the entropy")
        if self.escapes not in ("refuse", "control"):
            problems.append(f"escapes={self.escapes!r}: wants refuse or control")
        return problems


@attrs.frozen(kw_only=True)
class Trial:
    """`body(world, workload)` and how to run it."""

    name: str
    file: str
    """The source file of the body, for tracebacks."""
    body: Body
    settings: TrialSettings

    @staticmethod
    def snapshot_every(seed: int) -> int | None:
        """After how many events durable actors write a snapshot, unless their class says it; None: as usual.

        Few tests have as many events as the usual number. Seed 0 stays usual: the others aim by its run.
        """
        return one_of(SeededEntropy(seed).fork("limits"), SNAPSHOTS) if seed else None

    @property
    def is_aimed(self) -> bool:
        """Whether faults are drawn from what the run of seed 0 passes, which itself has none."""
        return self.settings.faults is CRASHES

    def case(self, seed: int, passings: Passings = NO_PASSINGS) -> Case:
        """What this seed draws, always the same. `passings` are those of seed 0, for a trial that is aimed."""
        entropy = SeededEntropy(seed)
        plan = NO_FAULTS
        faults = self.settings.faults
        if self.is_aimed:
            plan = draw_aimed(entropy, passings)
        elif isinstance(faults, FaultSpace):
            plan = draw_plan(entropy.fork("plan"), for_a_program(faults))
        elif faults is not None:
            plan = faults
        if self.settings.workload is None:
            return Case(None, plan)
        with limited_drawing(f"workload of {self.name}"):
            return Case(self._guarded(self.settings.workload)(entropy.fork("workload")), plan)

    def drawing(self, seed: int) -> Drawing | None:
        """How this seed's workload is drawn; None without one."""
        if self.settings.workload is None:
            return None
        return Drawing(self._guarded(self.settings.workload), SeededEntropy(seed).fork("workload"))

    def _guarded(self, workload: Workload) -> Workload:
        """The workload function, which may make no call that no seed decides, just as the body may not."""

        def draw(entropy: SeededEntropy) -> Any:
            escaped: list[BaseException] = []
            library = Generator(f"{entropy.seed}/library")
            with guard(self.settings.escapes, library, lambda: START_US, lambda: 0.0, escaped.append):
                drawn = workload(entropy)
            if escaped:  # although some code swallowed it
                raise escaped[0]
            return drawn

        return draw

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

        If it is `watched`, its history shows what the program did.
        """
        settings = self.settings
        if trio.lowlevel.in_trio_run():
            raise InvalidArgument(
                "a simulated world cannot run inside another trio run. Call it from a plain `def` test."
            )
        how = Settings(
            scheduler=settings.scheduler,
            starvable=settings.faults.actors if isinstance(settings.faults, FaultSpace) else (),
            trace=trace,
            record_schedule=record_schedule,
            tick_limit=tick_limit,
            escapes=settings.escapes,
            snapshot_every=self.snapshot_every(seed),
            counts_steps=self.is_aimed and seed == 0,
            watched=watched,
        )
        if settings.within is not None:
            how = attrs.evolve(how, virtual_limit_s=settings.within)

        async def main(world: World) -> None:
            world.judges_snapshots = True
            await self.body(world, case.workload)

        with no_draws():
            return run(main, seed=seed, plan=case.plan, tape=case.tape, settings=how)


def _is_scheduler(name: object) -> bool:
    if not isinstance(name, str):
        return False
    try:
        schedulers.make(name, Generator(0))
    except InvalidArgument:
        return False
    return True
