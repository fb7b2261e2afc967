"""The scenarios in which clients use a broker under faults: each a kind of traffic, a fault space, and the promises.

Each class below says what it is after. What the clients do, and which promises the broker is held to, is in
`broker_workload.py`.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import attrs

from callboard.simulations.entropy import SeededEntropy
from callboard.simulations.faults import Fault, aimed
from callboard.simulations.faults.swarm import FaultSpace
from callboard.simulations.scenarios.broker_workload import BrokerWorkload
from callboard.simulations.scenarios.cut_when_told import TOLD, cut_when_told
from callboard.simulations.scenarios.draws import (
    BROKER_LIMITS,
    COUNT_MAX,
    WINDOW_LIMITS,
    between,
    draw_limits,
    few,
    one_of,
)
from callboard.simulations.scenarios.traffic import IMPATIENT, LEVELS, STYLES, Traffic, draw_traffic
from callboard.simulations.world import World

PARTITIONS: Final = ("topics/orders/0", "topics/orders/1", "topics/orders/2")
OTHERS: Final = ("catalog", "openings", "timer-wheel", "groups/group-0", "groups/group-1")
CONSUMERS: Final = ("group-0.1", "group-0.2", "group-1.1", "group-1.2", "group-2.1")
FILES: Final = ("", "", "topics/", ".log", "delivery", "catalog")
"""Parts of paths that disk faults are about."""
MESSAGES: Final = (
    *(
        "",
        "Fetch",
        "Ack",
        "Release",
        "Extend",
        "ReleaseConsumer",
        "WaitForReady",
        "Flush",
        "PublishOne",
        "PublishMany",
    ),
    *(
        "OpenGroup",
        "AlterDelivery",
        "CloseGroup",
        "Alter",
        "Join",
        "Leave",
        "CreateTopic",
        "EnsureGroup",
        "GroupIdle",
    ),
)
"""What clients of a broker do."""
BrokerSpace = partial(
    FaultSpace, actors=PARTITIONS + OTHERS, consumers=CONSUMERS, messages=MESSAGES, paths=FILES
)
"""Faults of the actors, consumers and files of a broker with one topic."""


class BrokerRun:
    """What the scenarios of a broker do."""

    async def main(self, world: World, workload: Traffic) -> None:
        """Run the clients until everything is settled."""
        await BrokerWorkload(world, workload).run()


class PublishAndRecover(BrokerRun):
    """Publish, lose the power or the process, recover, continue: with every kind of fault now and then."""

    name = "publish-and-recover"
    space = BrokerSpace(
        faults=(0, 6),
        horizon_s=1.5,
        for_s=(0.01, 15.0),
    )

    def workload(self, entropy: SeededEntropy) -> Traffic:
        """Traffic of any kind."""
        return draw_traffic(entropy)


class PublishOnly(BrokerRun):
    """Publishers alone: what only a later sync for an ack's sake would have saved is lost here."""

    name = "publish-only"
    space = BrokerSpace(
        weights={"PowerCut": 4, "KillProcess": 1, "CrashActor": 1, "FailVerb": 1, "SlowDisk": 1},
        actors=PARTITIONS,
        verbs=("write", "sync"),
        errnos=("EIO",),
        faults=(0, 4),
        horizon_s=0.4,
        down_s=(0.01, 0.1),
    )

    def aimed(self, entropy: SeededEntropy) -> list[Fault]:
        """In half of the seeds the power is lost just when a publish was answered."""
        return aimed.between_syncs(entropy, "published", 60) if entropy.random() < 0.5 else []

    def workload(self, entropy: SeededEntropy) -> Traffic:
        """Many publishers of several levels, whose records meet in commits, and a power cut at the end."""
        together = entropy.fork("together")
        traffic = attrs.evolve(
            draw_traffic(entropy, messages=(3, 60)),
            publishers=between(entropy, 3, 12),
            partitions=one_of(entropy, (1, 1, 2)),
            batch=one_of(entropy, (1, 1, 3)),
            pause_s=one_of(entropy, (0.0, 0.001, 0.01)),
            acks=one_of(entropy, (*LEVELS[1:], ("leader", "all"))),
            styles=(),
            latency_s=one_of(together, (0.0, 0.002, 0.01)),
            cut_at_end=True,
        )
        return self._impatient(entropy.fork("impatient"), traffic)

    @staticmethod
    def _impatient(entropy: SeededEntropy, traffic: Traffic) -> Traffic:
        """In some seeds publishers give up what waits behind a commit, and have the rest synced."""
        if entropy.random() < 0.75:
            return traffic
        return attrs.evolve(
            traffic,
            patience_s=one_of(entropy, (0.001, 0.005)),
            latency_s=one_of(entropy, (0.002, 0.01)),
            flush_every=one_of(entropy, (1, 3)),
            limits=tuple((dict(traffic.limits) | {"cancelled_sift_bytes": between(entropy, 1, 500)}).items()),
        )


class CrashStorms(BrokerRun):
    """Many publishers at once, so that commits are shared, while actors, processes and power fail again and again."""

    name = "crash-storms"
    space = BrokerSpace(
        weights={
            "CrashActor": 3,
            "CrashInBatch": 3,
            "CrashInRecovery": 2,
            "CrashOnMessage": 3,
            "CrashUntilDown": 1,
            "PowerCut": 3,
            "KillProcess": 2,
            "FailVerb": 1,
            "RetryIndefinite": 3,
            "SlowDisk": 1,
        },
        verbs=("write", "sync"),
        errnos=("EIO",),
        faults=(2, 8),
        horizon_s=1.0,
        down_s=(0.01, 0.5),
    )

    def workload(self, entropy: SeededEntropy) -> Traffic:
        """Publishers that hardly pause."""
        return attrs.evolve(
            draw_traffic(entropy),
            publishers=few(entropy, 4, 20),
            pause_s=one_of(entropy, (0.0, 0.002, 0.05)),
            batch=one_of(entropy, (1, 2)),
            styles=(one_of(entropy, STYLES),),
            consumers=between(entropy, 1, 2),
            handling_s=0.0,
        )


class ManyGroups(BrokerRun):
    """Many groups with slow consumers that die, stand still and outlive their leases."""

    name = "many-groups"
    space = BrokerSpace(
        weights={
            "CrashConsumer": 4,
            "CrashActor": 2,
            "CrashInBatch": 1,
            "PauseActor": 2,
            "SlowActor": 1,
            "DelayMailbox": 1,
            "FillMailbox": 1,
            "JumpClock": 2,
            "PowerCut": 1,
            "KillProcess": 1,
            "SlowDisk": 1,
            "Stall": 1,
        },
        consumers=(*CONSUMERS, "group-3.1", "group-4.1"),
        faults=(1, 8),
        horizon_s=4.0,
    )

    def workload(self, entropy: SeededEntropy) -> Traffic:
        """Few messages, many groups, leases that are shorter than some handlers take, and shortened under way."""
        traffic = attrs.evolve(
            draw_traffic(entropy, messages=(3, 60)),
            styles=tuple(one_of(entropy, STYLES) for _ in range(few(entropy, 2, 5))),
            consumers=between(entropy, 1, 2),
            visibility_s=one_of(entropy, (0.2, 1.0, 5.0)),
            handling_s=one_of(entropy, (0.02, 0.1, 0.3)),
            nack_every=one_of(entropy, (0, 9)),
            forget_every=one_of(entropy, (0, 17)),
            pause_s=one_of(entropy, (0.0, 0.05)),
        )
        return attrs.evolve(traffic, altered_visibility_s=traffic.visibility_s * one_of(entropy, (0.0, 0.5)))


class OrderPerKey(BrokerRun):
    """Groups with order per key: many consumers, failing messages, small windows, crashes of all kinds."""

    name = "order-per-key"
    space = BrokerSpace(
        weights={
            "CrashConsumer": 4,
            "CrashActor": 3,
            "CrashInBatch": 2,
            "CrashInRecovery": 1,
            "PauseActor": 1,
            "PowerCut": 2,
            "KillProcess": 2,
            "FailVerb": 1,
            "FailRead": 1,
            "SlowDisk": 1,
        },
        errnos=("EIO",),
        faults=(1, 8),
        horizon_s=3.0,
    )

    def workload(self, entropy: SeededEntropy) -> Traffic:
        """Few keys and many, groups of several consumers that nack, forget and take long."""
        return attrs.evolve(
            draw_traffic(entropy, messages=(3, 80)),
            ordering="key",
            keys=one_of(entropy, (1, 3, 7, 30)),
            partitions=one_of(entropy, (1, 1, 2)),
            styles=tuple(one_of(entropy, STYLES) for _ in range(one_of(entropy, (1, 2)))),
            consumers=between(entropy, 1, 4),
            visibility_s=one_of(entropy, (0.5, 2.0)),
            handling_s=one_of(entropy, (0.0, 0.01)),
            nack_every=one_of(entropy, (0, 5, 9)),
            forget_every=one_of(entropy, (0, 0, 17)),
            limits=draw_limits(entropy.fork("limits"), (*BROKER_LIMITS, *WINDOW_LIMITS)),
        )


class SeveralTopics(BrokerRun):
    """Groups whose consumers read several topics together, while partitions of either, consumers and disks fail."""

    name = "several-topics"
    space = BrokerSpace(
        weights={
            "CrashActor": 3,
            "CrashInBatch": 2,
            "CrashConsumer": 2,
            "PowerCut": 2,
            "KillProcess": 1,
            "FailVerb": 1,
            "FullDisk": 1,
            "SlowDisk": 1,
            "Stall": 1,
            "JumpClock": 1,
        },
        actors=("topics/orders/0", "topics/orders/1", "topics/orders-1/0", "topics/orders-1/1", *OTHERS),
        faults=(1, 8),
        horizon_s=2.0,
    )

    def workload(self, entropy: SeededEntropy) -> Traffic:
        """Two or three topics with few partitions each, and one or two groups that read all of them."""
        return attrs.evolve(
            draw_traffic(entropy),
            topics=between(entropy, 2, 3),
            partitions=one_of(entropy, (1, 1, 2)),
            styles=tuple(one_of(entropy, STYLES) for _ in range(one_of(entropy, (1, 1, 2)))),
            visibility_s=one_of(entropy, (0.5, 2.0, 10.0)),
        )


@attrs.frozen(kw_only=True)
class TightTraffic(Traffic):
    """Traffic that meets failures."""

    cut_when_told: int = 0
    """At which success after the first fault the power is cut; 0: never."""
    cut_when_acked: bool = False
    """Whether only success of acks counts for that."""

    def _counts(self) -> dict[str, tuple[int, int]]:
        return Traffic._counts(self) | {"cut_when_told": (self.cut_when_told, COUNT_MAX)}


class DiskFullAndHealed:
    """The disk is full now and then, and heals: publishes are refused, everything else continues."""

    name = "disk-full-and-healed"
    space = BrokerSpace(
        weights={
            "FullDisk": 5,
            "FailVerb": 2,
            "ShortWrite": 1,
            "PowerCut": 1,
            "CrashActor": 1,
            "KillProcess": 1,
        },
        actors=PARTITIONS,
        errnos=("ENOSPC", "EDQUOT"),
        verbs=("write", "zero", "create", "sync", "rename", "sync_directory"),
        faults=(1, 5),
        horizon_s=1.0,
        for_s=(0.05, 5.0),
    )

    def aimed(self, entropy: SeededEntropy) -> list[Fault]:
        """In most seeds what follows a failure fails as well, or the log does while acks are under way, or begins."""
        chance = entropy.random()
        if chance < 0.2:
            return aimed.at_a_new_segment(entropy, self.space, 6)
        if chance < 0.5:
            return aimed.after_a_fault(entropy, self.space, (".log", "delivery"))
        return aimed.amid(entropy, self.space, "ack", 40, ".log") if chance < 0.8 else []

    def workload(self, entropy: SeededEntropy) -> TightTraffic:
        """Messages that take space, publishers that soon wait for room, and now and then a power cut at the end."""
        traffic = draw_traffic(entropy)
        limits = dict(traffic.limits)
        if one_of(entropy, (False, True)):
            limits["pending_bytes"] = between(entropy, 1, 10_000)
        return TightTraffic(
            **attrs.asdict(
                attrs.evolve(
                    traffic,
                    value_bytes=one_of(entropy, (100, 2000, 4000)),
                    acks=one_of(entropy, (("all",), ("all",), ("leader",))),
                    pause_s=one_of(entropy, (0.0, 0.02)),
                    latency_s=one_of(entropy, (0.0, 0.002, 0.01)),
                    refused_s=one_of(entropy, (0.05, 1.0)),
                    handling_s=one_of(entropy, (0.0, 0.01, 0.05)),
                    styles=tuple(one_of(entropy, STYLES) for _ in range(few(entropy, 1, 3))),
                    lag_s=0.0,
                    limits=tuple(limits.items()),
                ),
                recurse=False,
            ),
            cut_when_told=one_of(entropy, (0, 1, 1, 2)),
            cut_when_acked=one_of(entropy.fork("cut"), (False, True)),
        )

    async def main(self, world: World, workload: TightTraffic) -> None:
        """Run the clients until everything is settled; the power is cut when something succeeded after a failure."""
        cut_when_told(world, workload.cut_when_told, ("acked",) if workload.cut_when_acked else TOLD)
        await BrokerWorkload(world, workload).run()


class EveryFeature(BrokerRun):
    """All that clients of a broker can do, side by side, with few faults: what one feature does to another."""

    name = "every-feature"
    space = FaultSpace(
        actors=PARTITIONS + OTHERS,
        consumers=CONSUMERS,
        messages=MESSAGES,
        paths=FILES,
        faults=(0, 4),
        horizon_s=1.5,
        for_s=(0.01, 5.0),
    )

    def workload(self, entropy: SeededEntropy) -> Traffic:
        """Each feature in some of the seeds, so that each pair of them meets."""
        topics = one_of(entropy, (1, 1, 2))
        visibility_s = one_of(entropy, (0.5, 2.0))
        return attrs.evolve(
            draw_traffic(entropy, messages=(3, 90)),
            topics=topics,
            partitions=one_of(entropy, (1, 1, 2)),
            annotate_every=one_of(entropy, (0, 1, 3)),
            compression=one_of(entropy, ("none", "gzip", "zstd")),
            styles=tuple(one_of(entropy, (*STYLES, IMPATIENT)) for _ in range(one_of(entropy, (1, 1, 2)))),
            patience_s=one_of(entropy, (0.0, 0.0, 0.001, 0.02)),
            ordering=one_of(entropy, ("none", "none", "key")),
            visibility_s=visibility_s,
            altered_visibility_s=one_of(entropy, (0.0, 0.0, visibility_s / 2)),
            max_in_flight=one_of(entropy, (0, 1, 3)),
            nack_delay_s=one_of(entropy, (0.0, 0.5, -1.0)),
            nack_every=one_of(entropy, (0, 5)),
            forget_every=one_of(entropy, (0, 0, 29)),
            release_every=one_of(entropy, (0, 7)),
            extended_offset=one_of(entropy, (-1, 3)),
            readers=between(entropy, 0, 3),
            alterations=one_of(entropy, (0, 0, 0, 1)),
            recreations=one_of(entropy, (0, 0, 3)),
            mistakes=one_of(entropy, (0, 0, 12)),
            limits=draw_limits(entropy.fork("limits"), BROKER_LIMITS + WINDOW_LIMITS),
        )
