"""Retention against readers: segments are dropped while groups and readers are still at them.

Nothing that a group has not settled may go, unless the topic says so and the group counts it; readers see what they see
in order, unaltered, and never anything that a later reader sees differently.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from callboard.actors.partition.partition import UPKEEP_RETRY_S
from callboard.log.limits import SEGMENT_BYTES_MIN
from callboard.simulations.checkers import retention
from callboard.simulations.entropy import SeededEntropy
from callboard.simulations.faults import aimed
from callboard.simulations.history.clients import ObservedTopic
from callboard.simulations.scenarios.broker_runs import PARTITIONS, BrokerSpace
from callboard.simulations.scenarios.broker_workload import BrokerWorkload
from callboard.simulations.scenarios.draws import COUNT_MAX, between, draw_limits, one_of
from callboard.simulations.scenarios.read_beside import read_beside
from callboard.simulations.scenarios.retention_watch import RetentionWatch
from callboard.simulations.scenarios.traffic import STYLES, Traffic
from callboard.simulations.violations import Violation
from callboard.simulations.world import Machine, World

if TYPE_CHECKING:
    from callboard.simulations.faults.kinds import Fault

UPKEEP_S: Final = UPKEEP_RETRY_S + 0.5
"""How long it may take until upkeep looks again at what a group held back, or the disk refused."""


@attrs.frozen(kw_only=True)
class RetentionTraffic(Traffic):
    """Traffic that outgrows what is kept."""

    kept_segments: int = 2
    kept_s: float = 0.0
    """Retention by age; 0 for none."""
    drop_unread: bool = False
    readers: int = 1
    reading_s: float = 0.0
    """How long a reader takes for each record: retention may overtake it."""

    def _counts(self) -> dict[str, tuple[int, int]]:
        return Traffic._counts(self) | {"kept_segments": (self.kept_segments, COUNT_MAX)}


class RetentionWorkload(BrokerWorkload):
    """Clients of a topic that keeps little."""

    def __init__(self, world: World, traffic: RetentionTraffic) -> None:
        settings: dict[str, Any] = {"drop_unread": traffic.drop_unread}
        if traffic.kept_segments > 0:
            settings["retention_bytes"] = traffic.kept_segments * traffic.segment_bytes
        if traffic.kept_s > 0:
            settings["retention_age"] = max(1.0, traffic.kept_s)
            settings["segment_age"] = max(1.0, traffic.kept_s / 2)
        super().__init__(world, traffic, **settings)
        self.terms = attrs.evolve(
            self.terms,
            drops="retention_bytes" in settings or "retention_age" in settings,
            drops_unread=traffic.drop_unread,
            gives_back=traffic.drop_unread,  # what is left of a lease when retention has dropped some of it
            retention_bytes=settings.get("retention_bytes"),
            retention_age_s=settings.get("retention_age"),
        )
        self.reading_s = max(0.0, traffic.reading_s)
        self._watch_files = RetentionWatch(world, self.moments.places)
        self._gone_after_s = (
            settings["retention_age"] + settings["segment_age"] + UPKEEP_S if traffic.kept_s > 0 else 0.0
        )
        self.patience_s += self._gone_after_s + 2 * traffic.messages * self.reading_s

    async def beside(self, machine: Machine, runtime: Any, nursery: trio.Nursery) -> None:
        """In one of three runs another process reads a partition's files."""
        draws = self.world.entropy.fork(f"beside machine {machine.number}")
        if one_of(draws, (True, False, False)):
            await read_beside(self.world, machine, runtime.topic(self.traffic.topic_names[0]), draws)

    async def _publish(self, topic: ObservedTopic, numbers: list[int], acks: str) -> str:
        """Publish; look how full the partitions were when that is refused."""
        history = self.world.history
        begun, before = len(history), self._watch_files.before()
        end = await super()._publish(topic, numbers, acks)
        refusals = [
            entry for entry in history.of("refused") if entry.number >= begun and entry.who == topic.who
        ]
        if any(entry.detail == "TopicFull" for entry in refusals):
            self._watch_files.refused(topic.who, topic.topic.name, begun, before)
        return end

    async def _until_settled(self, runtime: Any) -> None:
        """Until every group has settled everything; and then, with an age, until all is too old and has gone."""
        await super()._until_settled(runtime)
        jumped = any(label == "JumpClock" for label in self.world.fault_counts)
        if self._gone_after_s <= 0 or jumped or not self.world.healed.is_set():
            return
        await trio.sleep(self._gone_after_s)
        for partition in (await runtime.stats()).partitions:
            is_whole = partition.state == "running" and not partition.damages
            if is_whole and partition.start_offset < partition.visible_end:
                words = (
                    f"{partition.topic}/{partition.partition} still has offset {partition.start_offset},"
                    f" {self._gone_after_s:g} s after everything was settled"
                )
                raise self.world.broken(Violation(retention.PROMISE, words))


class RetentionAgainstReaders:
    """Small topics that overflow, by size or by age, with slow groups and readers that follow."""

    name = "retention-against-readers"
    space = BrokerSpace(
        weights={
            "PowerCut": 2,
            "KillProcess": 1,
            "CrashActor": 2,
            "JumpClock": 2,
            "FailVerb": 1,
            "CrashConsumer": 1,
        },
        actors=PARTITIONS,
        faults=(0, 4),
        horizon_s=2.0,
    )

    def aimed(self, entropy: SeededEntropy) -> list[Fault]:
        """In some seeds a life ends when a segment is dropped, or has just been."""
        found = aimed.at_a_drop(entropy, self.space, PARTITIONS, ("/delivery/", "publishers", "damage"), 8)
        return found + aimed.behind_a_drop(entropy, 8)

    def workload(self, entropy: SeededEntropy) -> RetentionTraffic:
        """Some 100 to 400 KiB a partition, of which 128 or 256 are kept."""
        stored, aged = entropy.fork("stored"), entropy.fork("aged")
        traffic = RetentionTraffic(
            messages=between(entropy, 30, 70),
            partitions=one_of(entropy, (1, 1, 2)),
            publishers=between(entropy, 1, 3),
            batch=one_of(entropy, (1, 4)),
            keys=one_of(entropy, (0, 5)),
            value_bytes=one_of(entropy, (6000, 12000)),
            pause_s=one_of(entropy, (0.02, 0.1)),
            segment_bytes=SEGMENT_BYTES_MIN,
            styles=tuple(one_of(entropy, STYLES) for _ in range(one_of(entropy, (1, 1, 2)))),
            consumers=between(entropy, 1, 2),
            visibility_s=one_of(entropy, (1.0, 5.0)),
            handling_s=one_of(entropy, (0.0, 0.02)),
            kept_segments=one_of(entropy, (0, 2, 4)),
            kept_s=one_of(entropy, (0.0, 0.0, 2.0)),
            drop_unread=one_of(entropy, (False, True)),
            readers=between(entropy, 0, 2),
            acks=one_of(entropy, (("all",), ("all",), ("all", "none"), ("none",))),
            moments=one_of(stored, (0, 0, 0, 1)),
            closings=one_of(stored, (0, 0, 0, 1, 1, 2)),
            close_after_s=one_of(stored, (0.1, 0.5)),
            flush_every=one_of(stored, (0, 3)),
            limits=draw_limits(entropy.fork("limits")),
            reading_s=one_of(entropy.fork("reading"), (0.0, 0.0, 0.1, 0.4)),
        )
        unsynced = entropy.fork("unsynced")
        if unsynced.random() < 0.25:
            return self._unsynced(unsynced, traffic)
        if aged.random() < 0.75:
            return self._crowded(entropy.fork("crowded"), traffic)
        # Few messages over some seconds, so that segments hold young ones and old ones, and go by their age alone.
        return attrs.evolve(
            traffic,
            messages=between(aged, 25, 40),
            publishers=1,
            batch=1,
            pause_s=one_of(aged, (0.1, 0.2, 0.4)),
            kept_segments=0,
            kept_s=one_of(aged, (1.0, 2.0)),
        )

    @staticmethod
    def _unsynced(entropy: SeededEntropy, traffic: RetentionTraffic) -> RetentionTraffic:
        """A consumer keeps up, no ack waits for a sync, and a segment goes as soon as it is settled."""
        return attrs.evolve(
            traffic,
            partitions=1,
            publishers=1,
            batch=1,
            value_bytes=one_of(entropy, (12_000, 20_000)),
            pause_s=one_of(entropy, (0.0, 0.001, 0.005)),
            acks=("none",),
            flush_every=0,
            styles=("lazy",),
            consumers=1,
            handling_s=0.0,
            latency_s=one_of(entropy, (0.0, 0.002)),
            kept_segments=1,
            kept_s=0.0,
            drop_unread=False,
            moments=0,
            closings=0,
        )

    @staticmethod
    def _crowded(entropy: SeededEntropy, traffic: RetentionTraffic) -> RetentionTraffic:
        """In some seeds more read at once, each at another place, than segments may be open; nothing is in memory."""
        if entropy.random() < 0.6:
            return traffic
        small = {"open_segments": between(entropy, 1, 2), "tail_cache_bytes": between(entropy, 1, 20_000)}
        return attrs.evolve(
            traffic,
            partitions=1,
            styles=tuple(one_of(entropy, STYLES) for _ in range(between(entropy, 2, 3))),
            readers=between(entropy, 2, 4),
            lag_s=one_of(entropy, (0.0, 0.5)),
            kept_segments=one_of(entropy, (0, 4)),
            latency_s=one_of(entropy, (0.002, 0.01)),
            limits=tuple((dict(traffic.limits) | small).items()),
        )

    async def main(self, world: World, workload: RetentionTraffic) -> None:
        """Run clients and readers, and look what is kept."""
        surviving = await RetentionWorkload(world, workload).run()
        dropped = any(left.start > 0 for left in surviving.partitions)
        world.sometimes("retention dropped segments", dropped)
        world.sometimes("a reader read", bool(world.history.of("read")))
        overtaken = any("OffsetOutOfRange" in entry.detail for entry in world.history.of("note"))
        world.sometimes("retention overtook a reader", overtaken)
        unread = bool(world.history.of("UnreadDropped"))
        world.sometimes("retention dropped what a group had not settled", unread)
        refusals = {entry.detail for entry in world.history.of("refused")}
        world.sometimes("a publish was refused for a full topic", "TopicFull" in refusals)
