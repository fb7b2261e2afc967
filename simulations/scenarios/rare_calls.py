"""Calls that programs make seldom: each is a turn of a client, at any moment of a run, beside others.

The turns are in `rare_broker_turns.py`, `rare_actor_turns.py` and `rare_crash_turns.py`. A turn knows what its calls
must give: a refusal with the error that the documentation names, a range of records, the first message of a group that
begins at an instant. What fails because something is broken meanwhile is left; the next turn begins with topics and
groups of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import trio

from callboard.simulations.checkers import Terms, enforce
from callboard.simulations.entropy import SeededEntropy
from callboard.simulations.faults.swarm import FaultSpace
from callboard.simulations.history.surviving import Surviving
from callboard.simulations.scenarios.draws import COUNT_MAX, between, draw_limits, limits_of, one_of
from callboard.simulations.scenarios.rare_actor_turns import ACTOR_TURNS
from callboard.simulations.scenarios.rare_broker_turns import BROKER_TURNS
from callboard.simulations.scenarios.rare_client import RareClient, Turn, passing
from callboard.simulations.scenarios.rare_crash_turns import CRASH_TURNS
from callboard.simulations.scenarios.traffic import Traffic

if TYPE_CHECKING:
    from callboard.simulations.world import Machine, World


@attrs.frozen(kw_only=True)
class RareTraffic(Traffic):
    """How many turns are made, and how many beside one another."""

    turns: int = 12
    beside: int = 2
    closes_s: tuple[float, ...] = (0.0,)
    """After how long the runtime is closed, whatever clients do, one of these; 0: when they have done their work."""

    def _counts(self) -> dict[str, tuple[int, int]]:
        return Traffic._counts(self) | {"turns": (self.turns, COUNT_MAX), "beside": (self.beside, 100)}


class RareCalls:
    """Turns of calls that are made seldom, while little goes wrong."""

    name = "rare-calls"
    turns: tuple[Turn, ...] = (*BROKER_TURNS, *ACTOR_TURNS, *CRASH_TURNS)
    last_turns: tuple[Turn, ...] = ()
    """Of these a run makes one more, at its end: what is added here leaves all that comes before as it was."""
    client: type[RareClient] = RareClient
    space = FaultSpace(
        weights={
            "CrashActor": 2,
            "CrashInBatch": 1,
            "FailVerb": 1,
            "SlowDisk": 2,
            "Stall": 1,
            "PauseActor": 1,
            "DelayMailbox": 1,
            "FillMailbox": 1,
            "KillProcess": 1,
        },
        actors=(
            *("catalog", "openings", "timer-wheel"),
            *("topics/c0-1/0", "topics/c1-1/0", "groups/c0-2", "user/odd"),
        ),
        verbs=("write", "sync"),
        errnos=("EIO",),
        probes={"turn": 12},
        faults=(0, 3),
        horizon_s=3.0,
        for_s=(0.01, 8.0),
        latency_s=(0.001, 0.05),
        down_s=(0.01, 0.1),
    )

    def workload(self, entropy: SeededEntropy) -> RareTraffic:
        """A dozen turns."""
        return RareTraffic(
            turns=between(entropy, 6, 16),
            beside=between(entropy, 1, 3),
            closes_s=one_of(entropy, ((0.0,), (0.0,), (0.0, 0.01, 0.2, 1.0))),
            latency_s=one_of(entropy, (0.0, 0.0, 0.001, 0.02)),
            styles=(),
            limits=draw_limits(entropy.fork("limits")),
        )

    async def main(self, world: World, workload: RareTraffic) -> None:
        """Make the turns, in as many lives as it takes."""
        turns, last_turns = self.turns, [*self.last_turns]
        left = [max(0, workload.turns)]
        world.limits = limits_of(workload.limits)
        world.disk.latency_s = max(0.0, workload.latency_s)

        async def client(machine: Machine, runtime: Any, index: int) -> None:
            draws = world.entropy.fork(f"client {index} on machine {machine.number}, {left[0]}")
            rare = self.client(world, machine, runtime, draws, f"c{index}m{machine.number}t{left[0]}")
            while left[0] > 0 and machine.runtime is runtime:
                left[0] -= 1
                await rare.make(one_of(draws, turns))

        async def make_last(machine: Machine, runtime: Any) -> None:
            draws = world.entropy.fork("last turn")
            rare = self.client(world, machine, runtime, draws, "last")
            turn = one_of(draws, last_turns)
            last_turns.clear()
            await rare.make(turn)

        async def live(machine: Machine) -> None:
            while left[0] > 0 or last_turns:
                closes_s = one_of(world.entropy, workload.closes_s)
                async with trio.open_nursery() as nursery:
                    with passing(world, "session"):
                        async with machine.open_runtime() as runtime:
                            async with trio.open_nursery() as clients:
                                # A runtime may close while clients are at work.
                                where = clients if closes_s == 0 else nursery
                                for index in range(max(1, workload.beside)):
                                    where.start_soon(client, machine, runtime, index, name=f"client {index}")
                                await trio.sleep(closes_s)
                            if last_turns and left[0] <= 0:
                                await make_last(machine, runtime)
                await trio.sleep(0.1)

        await world.machine_until_done(live)
        enforce(world.history, Surviving(()), Terms(beyond=True))
