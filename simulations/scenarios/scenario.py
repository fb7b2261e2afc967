"""What a scenario is, and how one seed of it is run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol, runtime_checkable

import attrs

from callboard.simulations.entropy import SeededEntropy
from callboard.simulations.faults import Fault, Plan
from callboard.simulations.faults.swarm import FaultSpace, draw_plan
from callboard.simulations.world import Run, Settings, Tape, World, run
from callboard.simulations.world.computing import limited_drawing

STILL_TICKS: Final = 50_000
"""Scheduler ticks at one virtual instant, many times what a run ever takes, after which it is ended: half a second."""
SHORTEST: Final = 0.1
"""The part of a scenario's horizon in which faults come, at least: a short workload is over early."""


class Scenario(Protocol):
    """A workload, a fault space, and what is promised in the end."""

    name: str
    """Letters, digits and hyphens: what one types to run it."""
    space: FaultSpace
    """Which faults there may be, and how often."""

    def workload(self, entropy: SeededEntropy) -> Any:
        """What clients do: frozen attrs of numbers, strings and tuples of such, so that it can be stored and shrunk."""
        ...

    async def main(self, world: World, workload: Any) -> None:
        """Run the workload in `world`, and raise `Violation` for a broken promise."""
        ...


@runtime_checkable
class Planned(Scenario, Protocol):
    """A scenario that draws its own plans; its space says what is in them."""

    def plan(self, entropy: SeededEntropy) -> Plan:
        """The plan of a seed."""
        ...


@runtime_checkable
class Aimed(Scenario, Protocol):
    """A scenario that adds faults at moments that matter to those that are drawn out of its space."""

    def aimed(self, entropy: SeededEntropy) -> Sequence[Fault]:
        """The added faults of a seed; often none."""
        ...


def draw(scenario: Scenario, seed: int) -> tuple[Any, Plan]:
    """The workload and the plan that the seed stands for."""
    entropy = SeededEntropy(seed)
    if isinstance(scenario, Planned):
        plan = scenario.plan(entropy.fork("plan"))
    else:
        horizon_s = scenario.space.horizon_s * SHORTEST ** entropy.fork("horizon").random()
        plan = draw_plan(entropy.fork("plan"), scenario.space, horizon_s)
        if isinstance(scenario, Aimed):
            plan = Plan((*plan.faults, *scenario.aimed(entropy.fork("aimed"))))
    with limited_drawing("the scenario's workload(entropy)"):
        return scenario.workload(entropy.fork("workload")), plan


def run_scenario(
    scenario: Scenario,
    seed: int,
    *,
    plan: Plan | None = None,
    workload: Any = None,
    tape: Tape | None = None,
    settings: Settings = Settings(),
) -> Run:
    """Run one seed of a scenario; workload and plan are drawn from the seed unless given."""
    if workload is None or plan is None:
        drawn_workload, drawn_plan = draw(scenario, seed)
        workload = drawn_workload if workload is None else workload
        plan = drawn_plan if plan is None else plan

    async def main(world: World) -> None:
        await scenario.main(world, workload)

    still_ticks = min(settings.still_ticks, STILL_TICKS)
    settings = attrs.evolve(settings, starvable=scenario.space.actors, still_ticks=still_ticks)
    return run(main, seed=seed, plan=plan, tape=tape, settings=settings)
