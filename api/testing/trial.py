"""A trial: a user's function with everything that one seed needs to run it.

Vocabulary: a *case* is what a seed draws before the run, the fault plan and the workload. It is plain data, so that
it can be printed and shrunk. The *schedule* is what the seed decides during the run; a case with a tape
replays one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Literal

import attrs
import trio

from callboard.log.errors import InvalidArgument
from callboard.simulations.clock import START_US
from callboard.simulations.entropy import Generator, SeededEntropy
from callboard.simulations.faults import NO_FAULTS, After, Fault, FaultSpace, Plan, draw_plan
from callboard.simulations.faults.swarm import STEPS, for_a_program
from callboard.simulations.faults.when import AWAIT, WAKE
from callboard.simulations.scenarios.draws import one_of
from callboard.simulations.search.redrawing import Drawing
from callboard.simulations.search.shrink import Case
from callboard.simulations.world import Run, Settings, World, run, schedulers
from callboard.simulations.world.computing import limited_drawing
from callboard.simulations.world.escapes import guard
from callboard.testing.guard import no_draws

SEEDS: Final = 300
"""Seeds of a test that does not say how many."""
CRASHES: Final = FaultSpace(weights={"PowerCut": 2, "KillProcess": 1}, faults=(0, 3), down_s=(0.01, 100.0))
"""Faults of a test that does not say which: any machine may stop, before any step of its program, write or sync."""
BUSY: Final = FaultSpace(weights={"BusyLoop": 1}, always=("BusyLoop",), faults=(0, 3))
"""The loop is busy or wakes up late, at drawn wake-ups and steps, in runs whose faults are the usual ones."""
SNAPSHOTS: Final = (None, 1, 3, 7)
"""After how many events durable actors write a snapshot, in worlds of different seeds; None: as usual."""
NOTHING_PASSED: Final[Mapping[str, int]] = {}
FURTHER: Final = 1.25
"""A machine that boots again passes more points than a run without faults: so many times as many may be waited for."""
STEPS_SHARE: Final = 2
"""Steps of the program count so much more than writes and syncs: of these, many belong to the opening of a runtime."""

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
    faults: FaultSpace | Plan | None = CRASHES
    scheduler: str | None = None
    within: float | None = None
    workload: Workload | None = None
    escapes: Escapes = "refuse"

    @staticmethod
    def snapshot_every(seed: int) -> int | None:
        """After how many events durable actors write snapshots that do not say it themselves; None: as usual.

        Few seeds have as many events as the usual number. Seed 0 is the run by which the others aim, and stays usual.
        """
        return one_of(SeededEntropy(seed).fork("limits"), SNAPSHOTS) if seed else None

    @property
    def is_aimed(self) -> bool:
        """Whether plans depend on what a run without faults, that of seed 0, passes."""
        return self.faults is CRASHES

    def case(self, seed: int, passed: Mapping[str, int] = NOTHING_PASSED) -> Case:
        """What this seed draws, always the same. `passed`: how often a run without faults passed which points."""
        entropy = SeededEntropy(seed)
        plan = NO_FAULTS
        if self.is_aimed:
            crashes = draw_crashes(entropy.fork("plan"), passed)
            plan = Plan((*crashes.faults, *draw_busy(entropy.fork("busy"), passed).faults))
        elif isinstance(self.faults, FaultSpace):
            plan = draw_plan(entropy.fork("plan"), for_a_program(self.faults))
        elif self.faults is not None:
            plan = self.faults
        if self.workload is None:
            return Case(None, plan)
        with limited_drawing(f"workload of {self.name}"):
            return Case(self.draw(entropy.fork("workload")), plan)

    def draw(self, entropy: SeededEntropy) -> Any:
        """The workload, whose function may call no more around the seed than the body may."""
        assert self.workload is not None  # noqa: S101 - asked before
        escaped: list[BaseException] = []
        library = Generator(f"{entropy.seed}/library")
        with guard(self.escapes, library, lambda: START_US, lambda: 0.0, escaped.append):
            drawn = self.workload(entropy)
        if escaped:  # although some code swallowed it
            raise escaped[0]
        return drawn

    def faults_met(self, case: Case, run: Run) -> dict[str, int]:
        """How often faults of the kinds had an effect that the test asks for by name; nothing for the usual crashes."""
        if self.faults is None or self.is_aimed:
            return {}
        kinds = {type(fault).__name__ for fault in case.plan.faults}
        if isinstance(self.faults, FaultSpace):
            kinds |= {kind for kind, weight in self.faults.weights if weight > 0}
        found = dict.fromkeys(sorted(kinds), 0)
        for index, fault in enumerate(case.plan.faults):
            found[type(fault).__name__] += run.hits.get(index, 0)
        return found

    def drawing(self, seed: int) -> Drawing | None:
        """How this seed's workload is drawn; None without one."""
        if self.workload is None:
            return None
        return Drawing(self.draw, SeededEntropy(seed).fork("workload"))

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
            snapshot_every=self.snapshot_every(seed),
            counts_steps=self.is_aimed and seed == 0,
            watched=watched,
        )
        if self.within is not None:
            settings = attrs.evolve(settings, virtual_limit_s=self.within)

        async def main(world: World) -> None:
            world.judges_snapshots = True
            await self.body(world, case.workload)

        with no_draws():
            return run(main, seed=seed, plan=case.plan, tape=case.tape, settings=settings)


def draw_crashes(entropy: SeededEntropy, passed: Mapping[str, int]) -> Plan:
    """A plan of crashes, each at one of the points of `passed`, early or late; none if there are none."""
    points = [(probe, round(passed.get(probe, 0) * FURTHER)) for probe in STEPS]
    if not any(count for _, count in points):
        return NO_FAULTS
    # Each point once, and steps of the program as often as their share says.
    places = [(probe, at) for probe, count in points for at in range(1, count + 1)]
    places += [place for place in places if place[0] == AWAIT] * (STEPS_SHARE - 1)
    return _aimed(entropy, CRASHES, places)


def draw_busy(entropy: SeededEntropy, passed: Mapping[str, int]) -> Plan:
    """A plan in which the loop is busy at some wake-ups, and before some steps."""
    places = [(WAKE, at + 1) for at in range(passed.get(WAKE, 0))]
    if not places:
        return NO_FAULTS
    if passed.get(AWAIT):
        places += [(AWAIT, 1 + int(entropy.random() * passed[AWAIT])) for _ in places]
    return _aimed(entropy, BUSY, places)


def _aimed(entropy: SeededEntropy, space: FaultSpace, places: Sequence[tuple[str, int]]) -> Plan:
    """A plan out of `space`, each fault at one of `places`: passings of probes."""
    aims = entropy.fork("aims")

    def aimed(fault: Fault) -> Fault:
        return attrs.evolve(fault, when=After(*places[int(aims.random() * len(places))]))

    return Plan(tuple(map(aimed, draw_plan(entropy, space).faults)))


def points_passed(run: Run) -> dict[str, int]:
    """How often a run's loop woke up and, if it booted a machine, passed the points at which machines may stop."""
    return {WAKE: run.probes[WAKE]} | ({probe: run.probes[probe] for probe in STEPS} if run.boots else {})


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
