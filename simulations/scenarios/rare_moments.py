"""Moments that come seldom by chance, made on purpose: see the `rare_*_turns.py` that are named below.

Each turn has a topic of its own, and brings about there what a planted bug needs to show: a crash while a lease is
renewed, a mailbox that is full as acks are sent, a consumer that gives up in the moment in which it is served. A run
ends with one of the turns of `rare_last_turns.py`. In half of the seeds a fault strikes besides; turns then judge less.
"""

from __future__ import annotations

import attrs

from callboard.simulations.entropy import SeededEntropy
from callboard.simulations.scenarios.draws import between, draw_limits, one_of
from callboard.simulations.scenarios.rare_calls import RareCalls, RareTraffic
from callboard.simulations.scenarios.rare_client import Turn
from callboard.simulations.scenarios.rare_disk_turns import DISK_TURNS
from callboard.simulations.scenarios.rare_last_turns import LAST_DISK_TURNS, LAST_MOMENT_TURNS
from callboard.simulations.scenarios.rare_lease_turns import LEASE_TURNS
from callboard.simulations.scenarios.rare_moment_client import MomentClient, PatientClient
from callboard.simulations.scenarios.rare_partition_turns import PARTITION_TURNS
from callboard.simulations.scenarios.rare_wait_turns import WAIT_TURNS

SMALL_ROOM: int = 20_000
"""This many bytes may wait at a partition in most seeds: turns can fill that."""


class RareMoments(RareCalls):
    """Turns that make what seldom happens, on a runtime on which little else goes wrong."""

    name = "rare-moments"
    turns: tuple[Turn, ...] = (*LEASE_TURNS, *PARTITION_TURNS)
    last_turns: tuple[Turn, ...] = LAST_MOMENT_TURNS
    client = MomentClient
    space = attrs.evolve(
        RareCalls.space,
        weights={"CrashActor": 1, "SlowDisk": 2, "PauseActor": 1, "DelayMailbox": 2, "KillProcess": 1},
        faults=(0, 1),
        for_s=(0.01, 3.0),
    )

    def workload(self, entropy: SeededEntropy) -> RareTraffic:
        """A few turns: each takes seconds."""
        limits = dict(draw_limits(entropy.fork("limits")))
        if entropy.random() < 0.7:
            limits["pending_bytes"] = between(entropy, 100, SMALL_ROOM)
            limits["commit_bytes"] = between(entropy, 10, SMALL_ROOM // 4)
        if entropy.random() < 0.5:
            limits["tail_cache_bytes"] = 1  # everything is read from the disk
        return RareTraffic(
            turns=between(entropy, 4, 10),
            beside=between(entropy, 1, 3),
            latency_s=one_of(entropy, (0.0, 0.0, 0.001, 0.02)),
            styles=(),
            limits=tuple(limits.items()),
        )


class RareDisks(RareMoments):
    """The same, with turns in which a disk refuses or hangs just when that matters."""

    name = "rare-disks"
    turns: tuple[Turn, ...] = DISK_TURNS
    last_turns: tuple[Turn, ...] = LAST_DISK_TURNS


class RareWaits(RareMoments):
    """The same, with turns in which a task waits, and what would wake it goes wrong."""

    name = "rare-waits"
    turns: tuple[Turn, ...] = WAIT_TURNS
    last_turns: tuple[Turn, ...] = ()
    client = PatientClient

    def workload(self, entropy: SeededEntropy) -> RareTraffic:
        """In some seeds a partition does little in a step."""
        traffic = super().workload(entropy)
        if entropy.random() < 0.5:
            traffic = attrs.evolve(traffic, limits=(*traffic.limits, ("step_items", between(entropy, 1, 3))))
        return traffic
