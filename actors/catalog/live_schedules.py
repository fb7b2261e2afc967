"""The schedules of a runtime that are live: what the catalog knows of them, and the actor that publishes has said.

It is a peer of that actor, which publishes by a copy of its own: it says which schedules a topic has, anew when it has
changed and to each incarnation, and hears how far each is. Mirrors hear of both. Following the catalog's records is
idempotent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import attrs

from callboard.actors.kernel import Began, Peer
from callboard.actors.recurring.commands import ScheduleBegun, Scheduled, ScheduleStands, TopicSchedules

if TYPE_CHECKING:
    from callboard.actors.clients.port import PartitionPort
    from callboard.actors.kernel import ActorRef
    from callboard.actors.recurring.commands import RecurringCommand
    from callboard.actors.recurring.spec import ScheduleRecord
    from callboard.log.seams.clock import Clock


@attrs.define(eq=False)
class LiveSchedule:
    """One schedule."""

    record: ScheduleRecord
    port: PartitionPort
    """Of the partition that it publishes to."""
    begun: ScheduleBegun | None = None
    """When it was made or resumed, if that was in this opening of the directory."""
    stands: ScheduleStands | None = None
    """How far it is, as it was heard last."""


class Schedules:
    """All of them."""

    def __init__(self, clock: Clock, say: Callable[[TopicSchedules | ScheduleStands], object]) -> None:
        """`say` has mirrors hear."""
        self._clock = clock
        self._say = say
        self._all: dict[int, LiveSchedule] = {}
        self._peer: Peer[str, RecurringCommand] | None = None
        self.start: Callable[[], object] = lambda: None
        """Starts the actor that serves them, the first time that there is one."""

    def get(self, schedule_id: int) -> LiveSchedule | None:
        """The schedule of that id."""
        return self._all.get(schedule_id)

    def _of_topic(self, topic_id: str) -> list[LiveSchedule]:
        """Those of a topic, by name."""
        found = [live for live in self._all.values() if live.port.topic_id == topic_id]
        return sorted(found, key=lambda live: live.record.spec.name)

    def said_of(self, topic_id: str) -> TopicSchedules:
        """What there is to say of a topic."""
        lives = self._of_topic(topic_id)
        return TopicSchedules(
            topic_id, tuple([Scheduled(live.record, live.begun, live.stands) for live in lives])
        )

    def follow(
        self,
        ports: Sequence[PartitionPort],
        records: Sequence[ScheduleRecord],
        *,
        made: ScheduleRecord | None = None,
    ) -> None:
        """A topic with these partitions has these schedules; `made` was made just now."""
        before = {live.record.schedule_id: live.record for live in self._of_topic(ports[0].topic_id)}
        wanted = {record.schedule_id: record for record in records}
        if wanted == before and made is None:
            return
        for schedule_id in before.keys() - wanted:
            del self._all[schedule_id]
        for record in records:
            live = self._all.get(record.schedule_id)
            if live is None:
                live = LiveSchedule(record, ports[record.spec.partition])
                self._all[record.schedule_id] = live
            if record is made or record.since_us != live.record.since_us:
                live.begun = ScheduleBegun(round(self._clock.monotonic() * 1e6), self._clock.wall_us())
            live.record = record
        self._tell(ports[0].topic_id)
        if records:
            self.start()

    def retire(self, topic_id: str) -> None:
        """The topic is deleted, as mirrors have heard."""
        lives = self._of_topic(topic_id)
        for live in lives:
            del self._all[live.record.schedule_id]
        if lives:
            self._mark(topic_id)

    # -- to the actor that publishes, and from it

    def begin(self, ref: ActorRef[RecurringCommand]) -> None:
        """The actor is started: it hears of all that there are."""
        self._peer = Peer(ref, self)
        self._peer.open()
        self.hear(Began())

    def compose(self, topic_id: str) -> RecurringCommand:
        """What a topic has now."""
        return self.said_of(topic_id)

    def hear(self, message: object) -> None:
        """An incarnation has begun, or says how far a schedule is."""
        match message:
            case Began():
                for topic_id in dict.fromkeys(live.port.topic_id for live in self._all.values()):
                    self._mark(topic_id)
            case ScheduleStands(schedule_id):
                live = self._all.get(schedule_id)
                if live is not None:
                    live.stands = message
                    self._say(message)

    def _tell(self, topic_id: str) -> None:
        self._say(self.said_of(topic_id))
        self._mark(topic_id)

    def _mark(self, topic_id: str) -> None:
        if self._peer is not None:
            self._peer.mark(topic_id)
