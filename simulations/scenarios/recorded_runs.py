"""Recorded traffic: a real day of web requests, replayed at its own pace under virtual time, with faults on the way.

`recorded-day` replays all of it, `recorded-traffic` some hundreds of its events. Without the recording a similar day is
made. The real file system is read once per process, before any run: inside a run nothing passes by the seams.
"""

from __future__ import annotations

import os
import pathlib
from collections import deque
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import attrs
import trio

from callboard.log.limits import KIB
from callboard.simulations.entropy import SeededEntropy
from callboard.simulations.history.clients import ObservedTopic
from callboard.simulations.scenarios.broker_runs import BrokerSpace
from callboard.simulations.scenarios.broker_workload import BrokerWorkload
from callboard.simulations.scenarios.draws import between, draw_limits, one_of
from callboard.simulations.scenarios.operator import OPERATOR_S
from callboard.simulations.scenarios.traffic import STYLES, Traffic
from callboard.simulations.world import Machine, World
from callboard.traffic import Event, load_profile, read_events, synthesise

VARIABLE: Final = "CALLBOARD_TRAFFIC_DIR"
FILE: Final = "nasa-http/nasa_19950801.tsv"
EVENTS: Final = 30_969
"""Of the recorded day; as many are made when there is no recording."""
PROBES = {
    "publish": 300,
    "deliver": 300,
    "ack": 300,
    "disk.write": 300,
    "disk.sync": 200,
    "event.ActorStarted": 20,
}


@lru_cache(maxsize=1)
def recorded_day() -> tuple[tuple[Event, ...], bool]:
    """A day's events in the order of time, and whether they are real: else they are made from the profile."""
    directory = os.environ.get(VARIABLE)
    path = pathlib.Path(directory) / FILE if directory else None
    if path is not None and path.is_file():
        with path.open("rb") as lines:
            found = tuple(read_events(lines))
        return tuple(sorted(found, key=lambda event: event.time_us)), True
    made = synthesise(load_profile(), EVENTS, SeededEntropy(1).fork("traffic"))
    return tuple(made), False


@attrs.frozen(kw_only=True)
class RecordedRuns(Traffic):
    """Traffic that was recorded: events from `first` on."""

    first: int = 0


class RecordedWorkload(BrokerWorkload):
    """Clients that publish each event when it was recorded."""

    def __init__(self, world: World, traffic: RecordedRuns) -> None:
        events, self.is_real = recorded_day()
        stop = traffic.first + traffic.messages
        self._events: tuple[Event, ...] = events[traffic.first : stop]
        super().__init__(world, attrs.evolve(traffic, messages=0, publishers=1))
        for number in range(len(self._events)):
            world.history.message(*self.message(number))
        self._due: deque[int] = deque(range(len(self._events)))
        self._began: float | None = None
        span = (self._events[-1].time_us - self._events[0].time_us) / 1e6 if self._events else 0.0
        self.heal_at_s = self.busy_until_s = span + 60.0

    async def _publisher(self, machine: Machine, topics: Sequence[Any], index: int) -> None:
        """Publish each event when it is due; those of one moment together."""
        observed = ObservedTopic(self.world, machine.number, topics[0], "replay")
        events, due = self._events, self._due
        if self._began is None:
            self._began = self.world.now
        while due:
            at_us = events[due[0]].time_us
            at = self._began + (at_us - events[0].time_us) / 1e6
            if at > self.world.now:
                await trio.sleep(at - self.world.now)
            together = []
            while due and events[due[0]].time_us == at_us:
                together.append(due.popleft())
            if await self._publish(observed, together, "all") == "refused":
                due.extendleft(reversed(together))
                await trio.sleep(OPERATOR_S)

    def message(self, number: int) -> tuple[bytes, bytes | None]:
        """Value and key of an event; no value stands there twice."""
        event = self._events[number]
        return b"%d %s" % (number, event.value), event.key


class RecordedRun:
    """What the scenarios of recorded traffic do."""

    async def main(self, world: World, workload: RecordedRuns) -> None:
        """Replay the recording."""
        replay = RecordedWorkload(world, workload)
        world.sometimes("the recording is real", replay.is_real)
        await replay.run()


class RecordedTraffic(RecordedRun):
    """Some hundred events out of the recorded day."""

    name = "recorded-traffic"
    space = BrokerSpace(
        faults=(0, 5),
        probes=PROBES,
        horizon_s=300.0,
    )

    def workload(self, entropy: SeededEntropy) -> RecordedRuns:
        """A window of the day, and two groups."""
        events, _ = recorded_day()
        count = between(entropy, 150, 300)
        return RecordedRuns(
            first=between(entropy, 0, max(0, len(events) - count)),
            messages=count,
            partitions=between(entropy, 1, 4),
            styles=(one_of(entropy, STYLES), "batches"),
            consumers=between(entropy, 1, 2),
            visibility_s=one_of(entropy, (2.0, 30.0)),
            nack_every=one_of(entropy, (0, 31)),
            poll_s=5.0,
            limits=draw_limits(entropy.fork("limits")),
        )


class RecordedDay(RecordedRun):
    """The whole recorded day, 30,969 events in 24 virtual hours, with faults throughout."""

    name = "recorded-day"
    space = BrokerSpace(
        weights={
            "PowerCut": 3,
            "KillProcess": 2,
            "CrashActor": 4,
            "CrashConsumer": 2,
            "JumpClock": 1,
            "FailVerb": 1,
        },
        faults=(4, 16),
        probes={name: count * 60 for name, count in PROBES.items()},
        horizon_s=80_000.0,
    )

    def workload(self, entropy: SeededEntropy) -> RecordedRuns:
        """All of it, by four partitions, to two groups."""
        events, _ = recorded_day()
        return RecordedRuns(
            messages=len(events),
            partitions=4,
            styles=("batches", "lazy"),
            consumers=2,
            visibility_s=30.0,
            segment_bytes=1024 * KIB,
            nack_every=997,
            forget_every=1999,
            poll_s=5.0,
        )
