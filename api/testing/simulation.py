"""The pytest fixture `simulation`: single runs and searches in the simulated world."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal

import attrs

from callboard.log.errors import ConfigurationError
from callboard.simulations.faults import FaultSpace, Plan
from callboard.simulations.world import Run, Tape, World
from callboard.testing.crashes import CRASHES
from callboard.testing.search import search
from callboard.testing.session import current_call
from callboard.testing.trial import SEEDS, Escapes, Trial, TrialSettings, Workload


class Simulation:
    """Runs functions in the simulated world. Stateless; call it from a plain `def` test, not from an async one."""

    def __call__(
        self,
        main: Callable[[World], Awaitable[object]],
        *,
        seed: int = 0,
        faults: FaultSpace | Plan | None = None,
        scheduler: str | None = None,
        within: float | None = None,
        escapes: Escapes = "refuse",
        tape: Tape | None = None,
        trace: Literal["off", "digest", "full"] = "digest",
        record_schedule: bool = False,
    ) -> Run:
        """Run `await main(world)` once and return all that is known of it; `run.failure` is the exception of `main`.

        `faults`, `scheduler`, `within` (virtual seconds) and `escapes` are those of `simulate`. `trace` says how
        much of the run to keep: nothing, a digest that is the same for the same run, or every line. With
        `record_schedule` the run has a `tape`, which replays its schedule. Raises `ConfigurationError` for
        invalid arguments.
        """
        settings = TrialSettings(
            faults=faults, scheduler=scheduler, within=within, workload=None, escapes=escapes
        )
        trial = _trial(main, settings)
        case = attrs.evolve(trial.case(seed), tape=tape)
        return trial.run(seed, case, trace=trace, record_schedule=record_schedule)

    def search(
        self,
        main: Callable[..., Awaitable[object]],
        *,
        seeds: int = SEEDS,
        faults: FaultSpace | Plan | None = CRASHES,
        scheduler: str | None = None,
        within: float | None = None,
        workload: Workload | None = None,
        escapes: Escapes = "refuse",
    ) -> None:
        """Do what `simulate` does, here and now: run `main` under each seed, shrink the first failure and raise it.

        Runs `main(world)`, or `main(world, drawn)` with what `workload(entropy)` drew.
        """
        __tracebackhide__ = True
        settings = TrialSettings(
            faults=faults, scheduler=scheduler, within=within, workload=workload, escapes=escapes
        )
        trial = _trial(main, settings, seeds)
        options, hits = current_call()
        hits.add(search(trial, options.seeds_to_run(seeds), options))


def _trial(main: Callable[..., Awaitable[object]], settings: TrialSettings, seeds: int = 1) -> Trial:
    problems = settings.problems(seeds)
    if problems:
        raise ConfigurationError(
            f"This simulation is not possible: {'; '.join(problems)}.", problems=tuple(problems)
        )

    async def body(world: World, drawn: Any) -> None:
        await (main(world) if settings.workload is None else main(world, drawn))

    called = getattr(main, "func", main)  # what a partial calls
    return Trial(
        name=getattr(called, "__name__", "simulation"),
        file=getattr(getattr(called, "__code__", None), "co_filename", ""),
        body=body,
        settings=settings,
    )
