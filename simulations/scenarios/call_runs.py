"""Every call of publishers and consumers, in any order, and batches of which a part fails.

`every-call` is about consumers: see `free_consumer.py`. Little goes wrong besides, and often nothing, so that what
holds at once is demanded at once. `parts-of-batches` is about publishers: their batches go to several partitions, of
which each fails by itself.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from typing import Any
from zlib import crc32

import attrs
import trio

from callboard.log.errors import CallboardError, GroupNotFound, InvalidArgument
from callboard.log.limits import SEGMENT_BYTES_MIN
from callboard.simulations.entropy import SeededEntropy
from callboard.simulations.faults import Fault, aimed
from callboard.simulations.history.clients import ObservedConsumer, consume
from callboard.simulations.scenarios.broker_runs import PARTITIONS, BrokerSpace
from callboard.simulations.scenarios.broker_workload import (
    BACKOFF_S,
    MAX_BACKOFF_S,
    BrokerWorkload,
)
from callboard.simulations.scenarios.draws import COUNT_MAX, between, one_of, sized
from callboard.simulations.scenarios.free_consumer import BodyFailed, FreeConsumer
from callboard.simulations.scenarios.retention_runs import RetentionTraffic, RetentionWorkload
from callboard.simulations.scenarios.traffic import FIRST_TIMESTAMP, Traffic, draw_traffic
from callboard.simulations.world import Machine, World

FREE: str = "free"
"""How a group consumes: by any calls."""
REST_S: float = 0.05
"""How long a consumer that has ended stays away."""


@attrs.frozen(kw_only=True)
class CallTraffic(Traffic):
    """Traffic of consumers that make any calls."""

    calls: int = 60
    """How many calls of any kind each consumer makes in a run, before it only works."""
    free_s: float = 2.0
    """For how long after healing it makes them at most."""
    tasks: int = 1
    """Of each consumer."""
    hoards: bool = False
    """Whether consumers mostly take as much as they may, in batches, before they settle it."""
    mixed: bool = False
    """Whether some messages of each batch, no two batches alike, have keys, headers and times, and others have not."""

    def _counts(self) -> dict[str, tuple[int, int]]:
        return Traffic._counts(self) | {"calls": (self.calls, COUNT_MAX), "tasks": (self.tasks, 100)}

    def key(self, number: int) -> bytes | None:
        """The key of a message."""
        return None if self.mixed and not _has(number, 1) else super().key(number)

    def headers(self, number: int) -> dict[str, bytes] | None:
        """The headers of a message."""
        return {"number": b"%d" % number} if self.mixed and _has(number, 2) else super().headers(number)

    def timestamp(self, number: int) -> datetime | None:
        """The own time of a message."""
        if self.mixed and _has(number, 4):
            return FIRST_TIMESTAMP + timedelta(seconds=number)
        return super().timestamp(number)

    @property
    def work_s(self) -> float:
        """The same, with the time for calls, and for what is left leased then."""
        return self.usual_work_s + max(0.0, self.free_s) + 3 * self.visibility_s


def _has(number: int, what: int) -> bool:
    """Whether a message of a mixed batch has that: as good as tossed, and the same for the same number."""
    return bool(crc32(b"%d" % number) & what)


class CallWorkload(BrokerWorkload):
    """Clients of which each consumer makes any calls."""

    def __init__(self, world: World, traffic: CallTraffic) -> None:
        super().__init__(world, traffic)
        self.calls = traffic
        self._calls_left: dict[str, int] = {}
        self._healed_at: float | None = None

    def _may(self, who: str) -> bool:
        """Whether that consumer may make one more call of any kind."""
        left = self._calls_left.setdefault(who, self.calls.calls)
        self._calls_left[who] = left - 1
        if self._healed_at is None and self.world.healed.is_set():
            self._healed_at = self.world.now
        is_late = self._healed_at is not None and self.world.now > self._healed_at + self.calls.free_s
        return left > 0 and not is_late

    async def _consumer(self, machine: Machine, topic: Any, group: str, style: str, who: str) -> None:
        if style != FREE:
            await super()._consumer(machine, topic, group, style, who)
            return
        traffic = self.calls
        settings = {"max_in_flight": traffic.max_in_flight} if traffic.max_in_flight > 0 else {}

        async def live(consumer: ObservedConsumer) -> None:
            draws = self.world.entropy.fork(f"calls of {who} in life {consumer.life}")
            may = partial(self._may, who)
            visibility_s = max(0.05, traffic.visibility_s)
            free = FreeConsumer(self.world, consumer, draws, may, visibility_s, hoards=traffic.hoards)
            await free.run(max(1, traffic.tasks))

        while True:
            try:
                await consume(
                    self.world,
                    machine.number,
                    topic,
                    group,
                    who,
                    live,
                    visibility_timeout=max(0.05, traffic.visibility_s),
                    backoff=BACKOFF_S,
                    max_backoff=MAX_BACKOFF_S,
                    ordering=traffic.ordering,
                    **settings,
                )
            except BodyFailed:
                pass
            except (InvalidArgument, BaseExceptionGroup):
                raise
            except CallboardError as error:
                if machine.runtime is None and not isinstance(error, GroupNotFound):
                    raise
            await trio.sleep(REST_S)


class EveryCall:
    """Consumers that make every call there is, in any order, and messages that are not lost on them."""

    name = "every-call"
    space = BrokerSpace(
        weights={
            "CrashConsumer": 3,
            "CrashActor": 2,
            "CrashInBatch": 1,
            "KillProcess": 1,
            "PowerCut": 1,
            "FailVerb": 2,
            "SlowDisk": 1,
            "PauseActor": 1,
            "CrashOnMessage": 1,
        },
        added=("DelayMailbox",),
        probes={},
        verbs=("write", "sync"),
        errnos=("EIO",),
        faults=(0, 3),
        horizon_s=1.5,
        for_s=(0.01, 1.0),
        down_s=(0.01, 0.5),
    )

    def aimed(self, entropy: SeededEntropy) -> list[Fault]:
        """In some seeds partitions crash on what consumers ask of them, in others one of them answers late."""
        chance = entropy.random()
        if chance < 0.35:
            return aimed.at_questions(entropy, PARTITIONS[:2], 3.0)
        return aimed.late_answers(entropy, PARTITIONS, 1.5) if chance < 0.7 else []

    def workload(self, entropy: SeededEntropy) -> CallTraffic:
        """A few messages, which come all the time, few consumers, and leases of all lengths."""
        drawn = draw_traffic(entropy)
        given = {field.name: getattr(drawn, field.name) for field in attrs.fields(Traffic)}
        given |= {
            "messages": sized(entropy, 20, 50),
            "partitions": between(entropy, 1, 2),
            "publishers": between(entropy, 1, 3),
            "batch": one_of(entropy, (1, 2, 5)),
            "value_bytes": one_of(entropy, (20, 600)),
            "pause_s": one_of(entropy, (0.0, 0.05, 0.2)),
            "patience_s": one_of(entropy, (0.0, 0.0, 0.002)),
            "styles": (FREE,) * between(entropy, 1, 2),
            "consumers": between(entropy, 1, 3),
            "ordering": one_of(entropy, ("none", "none", "none", "key")),
            "visibility_s": one_of(entropy, (0.3, 1.0, 8.0)),
            "max_in_flight": one_of(entropy, (0, 1, 2, 5, 20)),
            "calls": one_of(entropy, (20, 60, 120)),
            "free_s": one_of(entropy, (1.0, 4.0)),
            "tasks": one_of(entropy, (1, 1, 1, 2)),
            "lag_s": 0.0,
            "cut_at_end": False,
        }
        mixed = entropy.fork("mixed")
        if mixed.random() < 0.4:
            given |= {"mixed": True, "keys": 3, "keyless_every": 0, "annotate_every": 0, "chosen_every": 0}
            # All at once, in one partition: consumers that only work fetch ahead, and take batches apart.
            given |= {"batch": one_of(mixed, (5, 12)), "partitions": 1, "pause_s": 0.0}
            given |= {"calls": one_of(mixed, (5, 20, 60)), "max_in_flight": one_of(mixed, (0, 0, 20))}
        hoarding = entropy.fork("hoarding")
        if hoarding.random() < 0.15:
            # Much in several partitions, and little room: what partitions are asked for ahead has to fit into it.
            given |= {
                "hoards": True,
                "partitions": between(hoarding, 3, 6),
                "keys": 0,
                "batch": 5,
                "pause_s": 0.0,
            }
            given |= {"max_in_flight": between(hoarding, 3, 8), "visibility_s": one_of(hoarding, (1.0, 8.0))}
        return CallTraffic(**given)

    async def main(self, world: World, workload: CallTraffic) -> None:
        """Run the clients until everything is settled."""
        await CallWorkload(world, workload).run()


class PartsOfBatches:
    """Batches over several partitions, each of which is full, fails, crashes and comes back by itself."""

    name = "parts-of-batches"
    space = BrokerSpace(
        weights={
            "Stall": 3,
            "CrashInBatch": 4,
            "CrashActor": 3,
            "FailVerb": 2,
            "ShortWrite": 1,
            "SlowDisk": 1,
            "PowerCut": 1,
        },
        always=("Stall", "CrashInBatch"),
        actors=PARTITIONS,
        paths=("/0/", "/1/", "/2/", ".log"),
        verbs=("write", "sync"),
        errnos=("EIO", "ENOSPC", "EDQUOT"),
        probes={},
        faults=(3, 16),
        horizon_s=12.0,
        down_s=(0.01, 0.1),
        for_s=(3.0, 14.0),
        latency_s=(0.001, 0.1),
        times=(1, 4),
    )

    def aimed(self, entropy: SeededEntropy) -> list[Fault]:
        """In every second seed one partition refuses while another does not answer, twice."""
        if entropy.random() < 0.5:
            return []
        return [fault for _ in range(2) for fault in aimed.by_parts(entropy, PARTITIONS[:2], 8.0)]

    def workload(self, entropy: SeededEntropy) -> RetentionTraffic:
        """Batches of a few messages for longer than it takes a disk to be given up, or until partitions are full."""
        drawn = draw_traffic(entropy, messages=(40, 140))
        given = {field.name: getattr(drawn, field.name) for field in attrs.fields(Traffic)}
        is_full = entropy.random() < 0.25
        given |= {
            "publishers": between(entropy, 2, 4),
            "partitions": between(entropy, 2, 3),
            "batch": one_of(entropy, (2, 3)),
            "keys": one_of(entropy, (2, 3, 7)),
            "pause_s": one_of(entropy, (0.05, 0.5, 1.0, 2.0)),
            "patience_s": one_of(entropy, (0.0, 0.02, 0.3, 0.3)),
            "styles": ("batches",) if is_full else one_of(entropy, ((), (), ("batches",))),
            "lag_s": 1.5 if is_full else 0.0,
            "retries": one_of(entropy, (0, 0, 10)),
            "kept_segments": 1 if is_full else 0,
            "segment_bytes": SEGMENT_BYTES_MIN,
            "value_bytes": one_of(entropy, (8000, 16000)) if is_full else one_of(entropy, (20, 600)),
            "handling_s": 0.0,
        }
        return RetentionTraffic(**given)

    async def main(self, world: World, workload: RetentionTraffic) -> None:
        """Run the clients until everything is settled."""
        await RetentionWorkload(world, workload).run()
