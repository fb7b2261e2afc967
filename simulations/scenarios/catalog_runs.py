"""The scenario in which topics and groups come and go, while the catalog's disk, its actors and consumers fail."""

from __future__ import annotations

from typing import Final

from callboard.simulations.entropy import SeededEntropy
from callboard.simulations.faults import Fault, aimed
from callboard.simulations.faults.swarm import FaultSpace
from callboard.simulations.scenarios.catalog_workload import CatalogWorkload, Changes, draw_changes
from callboard.simulations.world import World

ACTORS: Final = (
    "catalog",
    "catalog",
    "catalog",
    "groups/group-0",
    "groups/group-1",
    "topics/topic-0/0",
    "topics/topic-1/0",
)
PROBES: Final = {
    "change": 30,
    "disk.write": 30,
    "disk.sync": 20,
    "disk.create": 10,
    "disk.unlink": 8,
    "event.ActorStarted": 15,
    "event.GroupExpired": 3,
}
MOMENTS: Final = (
    ("event.GroupExpired", "", 3),
    ("gone", "visitor", 6),
    ("event.ActorStarted", "catalog", 3),
    ("event.ActorStarted", "groups/", 4),
)
"""Points, about what, and up to which passing: what is written next is what only the catalog's disk remembers."""


class TopicsAndGroups:
    """Topics and groups are created, altered, deleted, made again, and expire, while the catalog's disk fails."""

    name = "topics-and-groups"
    space = FaultSpace(
        weights={
            "FailVerb": 12,
            "ShortWrite": 2,
            "FullDisk": 2,
            "FailRead": 1,
            "SlowDisk": 1,
            "Stall": 1,
            "PowerCut": 3,
            "KillProcess": 2,
            "CrashActor": 3,
            "CrashInBatch": 2,
            "CrashInRecovery": 1,
            "PauseActor": 1,
            "FillMailbox": 1,
            "CrashConsumer": 2,
        },
        actors=ACTORS,
        consumers=("visitor-1", "visitor-2", "visitor-3"),
        paths=("catalog", "catalog", "catalog", "catalog", "topics/", ""),
        verbs=("write", "write", "sync", "sync", "sync", "create", "rename", "sync_directory", "unlink"),
        probes=PROBES,
        always=("FailVerb",),
        times=(1, 40),
        faults=(1, 6),
        horizon_s=4.0,
        for_s=(0.01, 3.0),
    )

    def aimed(self, entropy: SeededEntropy) -> list[Fault]:
        """In every second seed the catalog's disk refuses what is written when a group ends, or after a start."""
        if entropy.random() < 0.5:
            return []
        return aimed.at_the_first_plan(entropy, self.space, MOMENTS, "catalog")

    def workload(self, entropy: SeededEntropy) -> Changes:
        """Any administrators and visitors."""
        return draw_changes(entropy)

    async def main(self, world: World, workload: Changes) -> None:
        """Run them, and look at what is left."""
        await CatalogWorkload(world, workload).run()
