"""The schedules of a runtime that are live: what the catalog, which fills it, shares with the actor that publishes.

They outlive the incarnations of both. Following the catalog's records is idempotent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import attrs

from callboard.actors.partition.port import PartitionPort
from callboard.actors.recurring.commands import ScheduleOpened
from callboard.actors.recurring.cron import Rule
from callboard.actors.recurring.position import Position
from callboard.actors.recurring.spec import ScheduleRecord, Zones
from callboard.actors.standing import StandingNotices
from callboard.actors.timing import Flag
from callboard.log.seams.clock import Clock


@attrs.define(eq=False)
class LiveSchedule:
    """One schedule."""

    record: ScheduleRecord
    port: PartitionPort
    """Of the partition that it publishes to."""
    position: Position
    zones: Zones
    flag: Flag = attrs.field(factory=Flag)
    """Set when it was changed."""
    is_over: bool = False
    """It was removed."""
    fired: int = 0
    """Firings published since the directory was opened."""
    problem: str | None = None
    """Why a firing waits."""
    _rule: Rule | None = None

    @property
    def label(self) -> str:
        """As messages name it: topic, then name."""
        return f"{self.port.topic}/{self.record.spec.name}"

    def rule(self) -> Rule:
        """When it is due. Raises `InvalidArgument` as long as its zone is not known on this machine."""
        if self._rule is None:
            self._rule = self.record.spec.rule(self.record.created_us, self.zones)
        return self._rule


class Schedules:
    """All of them."""

    def __init__(self, zones: Zones, clock: Clock) -> None:
        self._zones = zones
        self._clock = clock
        self._all: dict[int, LiveSchedule] = {}
        self.notices = StandingNotices[ScheduleOpened]()
        """To the actor that serves them."""
        self.start: Callable[[], object] = lambda: None
        """Starts it, the first time that there is one."""

    def __iter__(self) -> Iterator[LiveSchedule]:
        return iter(sorted(self._all.values(), key=lambda live: (live.port.topic, live.record.spec.name)))

    def get(self, schedule_id: int) -> LiveSchedule | None:
        """The schedule of that id."""
        return self._all.get(schedule_id)

    def of_topic(self, topic_id: str) -> list[LiveSchedule]:
        """Those of a topic, by name."""
        return [live for live in self if live.port.topic_id == topic_id]

    def at(self, port: PartitionPort) -> frozenset[int]:
        """The ids of those that publish to a partition."""
        return frozenset(schedule_id for schedule_id, live in self._all.items() if live.port is port)

    def follow(
        self,
        ports: Sequence[PartitionPort],
        records: Sequence[ScheduleRecord],
        *,
        began: ScheduleRecord | None = None,
    ) -> None:
        """A topic with these partitions has these schedules; `began` was made just now."""
        wanted = {record.schedule_id: record for record in records}
        if ports:
            for live in self.of_topic(ports[0].topic_id):
                if live.record.schedule_id not in wanted:
                    self._end(live)
        for record in records:
            live = self._all.get(record.schedule_id) or self._begin(ports, record)
            if record is began or record.since_us != live.record.since_us:
                live.position.begin(
                    record.since_us, round(self._clock.monotonic() * 1e6), self._clock.wall_us()
                )
            elif record == live.record:
                continue
            live.record = record
            live.flag.set()

    def _begin(self, ports: Sequence[PartitionPort], record: ScheduleRecord) -> LiveSchedule:
        position = Position(record.spec.missed, record.since_us)
        live = LiveSchedule(record, ports[record.spec.partition], position, self._zones)
        self._all[record.schedule_id] = live
        self.notices.stand(record.schedule_id, ScheduleOpened(record.schedule_id))
        self.start()
        return live

    def retire(self, topic_id: str) -> None:
        """The topic is deleted."""
        for live in self.of_topic(topic_id):
            self._end(live)

    def _end(self, live: LiveSchedule) -> None:
        self._all.pop(live.record.schedule_id, None)
        self.notices.withdraw(live.record.schedule_id)
        live.is_over = True
        live.flag.set()
