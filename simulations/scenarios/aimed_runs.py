"""Small scenarios, each aimed at a safeguard that general traffic seldom needs.

- `smuggled-frames`: payloads that hold frames, valid ones of another segment, in a log whose real frames rot.
- `stored-index`: enough bytes that indexes are stored, and indexes that rot.
- `failing-syncs`: syncs of the log that fail, and then the power.
- `failing-journals`: syncs of delivery journals that fail, and then the actor.
- `lost-leases`: the same, of leases that consumers still have, and are given back, or that an ended process had.
- `unsynced-and-seen`: records at level `leader` that groups get before any sync, and then the power.
"""

from __future__ import annotations

from typing import Final

import attrs

from callboard.log.format.columns import Columns
from callboard.log.format.frame import encode_frame
from callboard.log.limits import KIB, MIB
from callboard.simulations.disk.survival import Survival
from callboard.simulations.entropy import SeededEntropy
from callboard.simulations.faults.kinds import CrashActor, FailVerb, Fault, KillProcess, PowerCut, Rot
from callboard.simulations.faults.plan import Plan
from callboard.simulations.faults.swarm import FaultSpace
from callboard.simulations.faults.when import After, At
from callboard.simulations.scenarios.broker_runs import BrokerRun
from callboard.simulations.scenarios.damage_runs import DamagedRun
from callboard.simulations.scenarios.draws import between, one_of
from callboard.simulations.scenarios.traffic import Traffic

OTHER_SEGMENT: Final = 0x1234_5678_9ABC_DEF0
PARTITION: Final = ("topics/orders/0",)


@attrs.frozen(kw_only=True)
class Smuggling(Traffic):
    """Traffic whose payloads hold a frame: of another segment, valid there, with a record that was never published."""

    def value(self, number: int) -> bytes:
        """The message's text, and behind it a frame."""
        forged = Columns.build([b"forged %d " % number])
        parts = encode_frame(
            forged, segment_id=OTHER_SEGMENT, base_offset=2 * number + 1, append_time_us=1_700_000_000_000_000
        )
        return b"message %d " % number + b"".join(parts)


class SmuggledFrames(DamagedRun):
    """Real frames rot; what lies in their payloads must not take their place."""

    name = "smuggled-frames"
    space = FaultSpace(
        weights={"Rot": 4, "PowerCut": 1, "CrashActor": 1},
        actors=PARTITION,
        paths=("/0/0000",),
        faults=(3, 8),
        horizon_s=1.0,
    )

    def workload(self, entropy: SeededEntropy) -> Smuggling:
        """One partition, published singly."""
        return Smuggling(
            messages=between(entropy, 20, 40),
            partitions=1,
            publishers=1,
            keys=0,
            styles=("one by one",),
            consumers=1,
            pause_s=0.02,
        )


class StoredIndex(BrokerRun):
    """More than a megabyte in one segment, so that its index is stored; then rot in the index, and a new life."""

    name = "stored-index"
    space = FaultSpace(weights={"PowerCut": 1, "Rot": 1, "KillProcess": 1})

    def plan(self, entropy: SeededEntropy) -> Plan:
        """A power cut that leaves the index on the disk, then rot in it."""
        rot = tuple(Rot(At(0.9), ".index", entropy.integer(32)) for _ in range(between(entropy, 2, 6)))
        survival = Survival(seed=entropy.integer(32), applied=1.0, names=1.0)
        return Plan((PowerCut(At(0.7), survival, down_s=0.1), *rot, KillProcess(At(1.0), down_s=0.1)))

    def workload(self, entropy: SeededEntropy) -> Traffic:
        """Large batches, so that there are offsets between those in the index."""
        return Traffic(
            messages=between(entropy, 900, 1_100),
            partitions=1,
            publishers=2,
            batch=20,
            keys=0,
            value_bytes=2 * KIB,
            segment_bytes=8 * MIB,
            styles=("batches",),
            consumers=1,
            pause_s=0.05,
        )


class FailingSyncs(BrokerRun):
    """Syncs of the log fail, and soon after the power does."""

    name = "failing-syncs"
    space = FaultSpace(weights={"FailVerb": 1, "PowerCut": 1}, verbs=("sync",), errnos=("EIO",))

    def plan(self, entropy: SeededEntropy) -> Plan:
        """Some failing syncs, then a power cut that keeps nothing unsynced; and all of it again."""
        faults: list[Fault] = []
        for round_at in (0.0, 1.0):
            for _ in range(between(entropy, 1, 3)):
                at = At(round_at + entropy.random() * 0.3)
                faults.append(FailVerb(at, "sync", "EIO", "/0/0000", times=between(entropy, 1, 2)))
            faults.append(PowerCut(At(round_at + 0.1 + entropy.random() * 0.3), down_s=0.05))
        return Plan(tuple(faults))

    def workload(self, entropy: SeededEntropy) -> Traffic:
        """Publishes and acks that share plans."""
        return Traffic(
            messages=between(entropy, 60, 120),
            partitions=1,
            publishers=between(entropy, 2, 8),
            pause_s=one_of(entropy, (0.0, 0.005, 0.02)),
            styles=("one by one", "one by one"),
            nack_every=one_of(entropy, (0, 5)),
            visibility_s=2.0,
        )


class FailingJournals(BrokerRun):
    """Delivery journals fail, also while they are healed; then a partition's actor does, and replays them."""

    name = "failing-journals"
    space = FaultSpace(
        weights={"FailVerb": 1, "CrashActor": 1}, verbs=("sync",), errnos=("EIO",), actors=PARTITION
    )

    def plan(self, entropy: SeededEntropy) -> Plan:
        """Failing syncs, and crashes soon after."""
        faults: list[Fault] = []
        for round_at in (0.0, 1.0, 2.0):
            at = At(round_at + entropy.random() * 0.3)
            faults.append(FailVerb(at, "sync", "EIO", "delivery", times=between(entropy, 1, 4)))
            faults.append(CrashActor(At(round_at + 0.3 + entropy.random() * 0.3), PARTITION[0]))
        return Plan(tuple(faults))

    def workload(self, entropy: SeededEntropy) -> Traffic:
        """Groups that nack much, and take their time."""
        return Traffic(
            messages=between(entropy, 40, 80),
            partitions=1,
            publishers=2,
            pause_s=0.05,
            styles=("one by one", "one by one"),
            handling_s=one_of(entropy, (0.0, 0.05)),
            nack_every=one_of(entropy, (2, 3)),
            visibility_s=2.0,
        )


class LostLeases(BrokerRun):
    """Delivery journals lose leases, or that these have ended, and the partition's actor crashes before they are whole
    again.
    """

    name = "lost-leases"
    space = FaultSpace(
        weights={"FailVerb": 1, "CrashActor": 1, "KillProcess": 1},
        verbs=("sync", "write"),
        errnos=("EIO",),
        actors=PARTITION,
    )

    def plan(self, entropy: SeededEntropy) -> Plan:
        """Failing syncs of the journal that revert what was written, each with a crash right behind it."""
        ended = entropy.fork("ended")
        if ended.random() < 0.3:
            return self._in_a_new_process(ended)
        faults: list[Fault] = []
        for _ in range(between(entropy, 1, 3)):
            after = After("deliver", between(entropy, 1, 40))
            faults.append(
                FailVerb(after, "sync", "EIO", "delivery", times=between(entropy, 1, 2), pages="reverted")
            )
        crashes = between(entropy, 1, 3)
        faults += [CrashActor(After("fault", 1 + 2 * each), PARTITION[0]) for each in range(crashes)]
        return Plan(tuple(faults))

    @staticmethod
    def _in_a_new_process(entropy: SeededEntropy) -> Plan:
        """A process ends with its leases; the next one cannot journal that, and its actor crashes."""
        refused = After("event.ActorStarted", 2, PARTITION[0])
        verb, times = one_of(entropy, ("write", "sync")), between(entropy, 1, 3)
        return Plan(
            (
                KillProcess(After("deliver", between(entropy, 1, 30)), 0.05),
                FailVerb(refused, verb, "EIO", "delivery", times=times, pages="reverted"),
                CrashActor(After("fault", between(entropy, 2, 3)), PARTITION[0]),
            )
        )

    def workload(self, entropy: SeededEntropy) -> Traffic:
        """Consumers that take their time, settle what they have been given back, and fail with some of it, also more
        than once: they nack it, forget it until its lease runs out, or release it.
        """
        return Traffic(
            messages=between(entropy, 40, 80),
            partitions=1,
            publishers=between(entropy, 1, 3),
            pause_s=one_of(entropy, (0.01, 0.05)),
            styles=("one by one", "one by one"),
            consumers=between(entropy, 1, 3),
            handling_s=one_of(entropy, (0.02, 0.2, 0.5)),
            nack_every=one_of(entropy, (0, 2, 3)),
            nack_delay_s=one_of(entropy, (0.1, 1.0)),
            forget_every=(forget_every := one_of(entropy, (0, 0, 3))),
            visibility_s=1.0 if forget_every else 10.0,
            release_every=one_of(entropy, (0, 4)),
            failures=one_of(entropy, (1, 3)),
        )


class UnsyncedAndSeen(BrokerRun):
    """What groups have seen, and acked, before any sync of it."""

    name = "unsynced-and-seen"
    space = FaultSpace(
        weights={"PowerCut": 1},
        faults=(1, 3),
        horizon_s=0.3,
        down_s=(0.01, 0.1),
    )

    def workload(self, entropy: SeededEntropy) -> Traffic:
        """Mostly level `leader`."""
        return Traffic(
            messages=between(entropy, 40, 80),
            partitions=1,
            publishers=between(entropy, 1, 4),
            acks=one_of(entropy, (("leader",), ("leader", "leader", "all"))),
            pause_s=0.01,
            styles=("one by one", "receive", "one by one"),
            handling_s=one_of(entropy, (0.1, 1.0)),
            consumers=between(entropy, 1, 4),
            visibility_s=5.0,
        )
