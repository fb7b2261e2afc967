"""The scenarios of plain actors: supervisor trees with intensity and escalation, and ten actors with one crash."""

from __future__ import annotations

from typing import Final

from callboard.simulations.entropy import SeededEntropy
from callboard.simulations.faults.swarm import FaultSpace
from callboard.simulations.scenarios.actor_workload import ActorTraffic, ActorWorkload, draw_actor_traffic
from callboard.simulations.world import World

WORKERS: Final = tuple(f"team-{team}/worker-{worker}" for team in range(4) for worker in range(4))
PROBES: Final = {"ask": 100, "event.ActorStarted": 15}


class ActorRun:
    """What the scenarios of plain actors do."""

    async def main(self, world: World, workload: ActorTraffic) -> None:
        """Ask everything."""
        await ActorWorkload(world, workload).run()


class SupervisorTrees(ActorRun):
    """Teams under supervisors with all strategies, crashing often enough to escalate."""

    name = "supervisor-trees"
    space = FaultSpace(
        weights={
            "CrashActor": 4,
            "CrashInBatch": 2,
            "PauseActor": 1,
            "SlowActor": 1,
            "DelayMailbox": 1,
            "FillMailbox": 1,
            "JumpClock": 1,
            "KillProcess": 1,
        },
        actors=WORKERS,
        probes=PROBES,
        faults=(0, 8),
        horizon_s=3.0,
        for_s=(0.01, 3.0),
    )

    def workload(self, entropy: SeededEntropy) -> ActorTraffic:
        """Any teams and questions."""
        return draw_actor_traffic(entropy)


class PlainActors(ActorRun):
    """Ten actors, two hundred questions, one crash: the least that a simulation of actors is, and the benchmark."""

    name = "plain-actors"
    space = FaultSpace(
        weights={"CrashActor": 1, "CrashInBatch": 1},
        actors=tuple(f"team-0/worker-{worker}" for worker in range(10)),
        probes=PROBES,
        faults=(1, 1),
        horizon_s=0.0,
    )

    def workload(self, entropy: SeededEntropy) -> ActorTraffic:
        """Always the same."""
        return ActorTraffic()
