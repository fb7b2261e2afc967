"""What a runtime reports of itself: all counters, and groups with their members and positions (`group_figures`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final

import attrs

from callboard.actors.catalog.commands import CatalogStatistics
from callboard.actors.forwarding.commands import DelayedCounts, Forwarded, OutboxCounts
from callboard.actors.names import OWN_GROUPS
from callboard.actors.partition.commands import PartitionStatistics
from callboard.actors.recurring.commands import ScheduleStands
from callboard.actors.settings import GroupSettings
from callboard.actors.timers.commands import TimerStatistics
from callboard.log.errors import InvalidArgument
from callboard.message import from_us

if TYPE_CHECKING:
    from callboard.actors.clients.port import PartitionPort
    from callboard.actors.companions import Outbox
    from callboard.actors.mirror import MirroredSchedule
    from callboard.actors.recurring.spec import Zones


DESCRIBE_TIMEOUT_S: Final = 5.0
"""A partition that does not answer within this time is passed over."""


@attrs.frozen
class ConsumerInfo:
    """A member of a group: its id, which no other consumer of the directory has or had, and the name it was given."""

    consumer: int
    """Its id."""
    name: str | None
    """The name it was given (`subscribe(name=)`); None without one."""
    generation: int
    """Rises when it loses all that it had leased and joins again."""
    topics: tuple[str, ...]
    """The topics that it reads."""
    assigned: tuple[tuple[str, int], ...] = ()
    """In an exclusive group: the partitions that it owns, as (topic, partition)."""
    in_flight: int | None = None
    """Messages that it has leased now, fetched ahead or in hand; None but in what `Group.describe` returns."""
    oldest_leased: datetime | None = None
    """When the oldest of its leases began, or its partition restarted since then; None without any, and as above."""


@attrs.frozen
class GroupInfo:
    """A consumer group."""

    name: str
    """Its name."""
    group_id: int
    """Its number, which no other group of the directory has or had."""
    topics: tuple[str, ...]
    """The topics that it reads."""
    members: int
    """How many consumers it has now."""
    settings: GroupSettings
    """As they are now."""
    consumers: tuple[ConsumerInfo, ...] = ()
    """Its members, by id."""
    pattern: str | None = None
    """Which topics it reads, when they are not named: `topics` has those that match now."""
    dead_letters: bool = False
    """Whether topics for dead letters match the pattern too."""
    rebalances: int = 0
    """In an exclusive group: how often partitions got other owners. This and what follows is counted since the
    directory was opened."""
    forced_handovers: int = 0
    """Partitions that were taken from members which had not let go of them within `rebalance_timeout`."""
    stalled_members: int = 0
    """Members that lost their partitions because they did nothing for `session_timeout` while messages waited."""

    @property
    def own(self) -> bool:
        """Whether it is the broker's own: no user reads in it or changes it."""
        return self.name in OWN_GROUPS

    @property
    def durable(self) -> bool:
        """Whether it outlives its last consumer."""
        return self.settings.durable


@attrs.frozen
class DelayedStatistics:
    """Delayed messages of one partition."""

    topic: str
    """The topic that the messages are for."""
    partition: int
    """The partition that they are for."""
    state: str
    """Of the partition in which they wait, as in `PartitionStatistics`."""
    pending: int
    """Those that wait."""
    next_due: datetime | None
    """When the first of them is looked at: it is due then, or later."""
    moved: int
    """Those that came to the topic since the directory was opened."""
    cancelled: int
    """Those that were cancelled since the directory was opened."""
    lost: int
    """Damaged or missing when they were looked for."""
    damages: tuple[str, ...] = ()
    """What is damaged or missing in their log, and not acknowledged with `callboard repair --accept`."""


@attrs.frozen
class ForwardingStatistics:
    """Dead letters that are forwarded to one topic."""

    topic: str
    """The topic that groups name (`dead_letter_topic`)."""
    forwarded: int
    """Those that came there since the directory was opened."""
    kept: int
    """Those that partitions keep for it."""
    held: str | None
    """Why it takes none now; None when it does, as far as is known."""


@attrs.frozen
class OutboxStatistics:
    """What the acks of one partition publish (`message.publish`)."""

    topic: str
    """The topic whose messages were acked."""
    partition: int
    """The partition whose messages were acked."""
    state: str
    """Of the partition in which the messages lie, as in `PartitionStatistics`."""
    pending: int
    """Messages that are not in their topics yet."""
    forwarded: int
    """Those that came there since the directory was opened."""
    held: int
    """Partitions that do not take what is for them now."""
    refused: int
    """Acks that were refused because there was no room."""
    dropped: int
    """Messages whose topic was deleted."""
    lost: int
    """Messages that were damaged or missing."""
    discarded: int
    """Messages that were stored, and whose ack did not count."""
    damages: tuple[str, ...] = ()
    """What is damaged or missing in their log, and not acknowledged with `callboard repair --accept`."""


@attrs.frozen
class ScheduleStatistics:
    """A recurring publish."""

    topic: str
    """The topic that it publishes to."""
    name: str
    """Its name, unique in its topic."""
    partition: int
    """The partition that it publishes to."""
    is_paused: bool
    """Whether it waits until it is resumed."""
    next_due: datetime | None
    """What is published next; it lies in the past while it waits for room. None while the schedule is paused."""
    last_due: datetime | None
    """The due instant of what was published last."""
    fired: int
    """Firings published since the directory was opened."""
    passed_over: int
    """Firings that were missed and are skipped, found since the directory was opened; of a cron expression long spans
    are counted to 1,000."""
    problem: str | None
    """Why a firing waits."""


@attrs.frozen
class RuntimeStatistics:
    """Everything countable, now."""

    directory: str
    """The directory that the runtime has open."""
    partitions: tuple[PartitionStatistics, ...]
    """All partitions of all topics."""
    groups: tuple[GroupInfo, ...]
    """All groups, by name."""
    dead_letters: int
    """Messages to actors that no actor took, since the directory was opened."""
    leased_messages: int
    """Messages in hand whose leases the runtime renews now."""
    timers: TimerStatistics
    """What the timer wheel has done."""
    delayed: tuple[DelayedStatistics, ...] = ()
    """Partitions with delayed messages."""
    outbox: tuple[OutboxStatistics, ...] = ()
    """Partitions whose messages were acked with publishes."""
    forwarding: tuple[ForwardingStatistics, ...] = ()
    """Topics that groups name for their dead letters."""
    schedules: tuple[ScheduleStatistics, ...] = ()
    """Recurring publishes."""
    catalog: CatalogStatistics = CatalogStatistics()
    """What the catalog has lost."""


@attrs.frozen
class GroupPlace:
    """Where a group stands in one partition."""

    topic: str
    """The topic."""
    partition: int
    """The partition."""
    state: str
    """Of the partition, as in `PartitionStatistics`; with any but `running` and `full` the numbers may be zeros."""
    floor: int
    """All before this offset is settled."""
    end: int
    """One above the last offset that can be read."""
    lag: int
    """Messages that are not settled."""
    in_flight: int
    """Those of them that consumers have."""
    redelivered: int
    """Since the group began."""
    dead: int
    """Dead letters that the partition keeps."""
    owner: int | None
    """In an exclusive group: the consumer that owns the partition."""
    oldest_unsettled: datetime | None
    """When the first message that is not settled was appended; None without one."""


@attrs.frozen
class GroupDescription:
    """A group, and where it stands."""

    group: GroupInfo
    """Its settings and members."""
    places: tuple[GroupPlace, ...]
    """Where it stands in each partition."""

    @property
    def lag(self) -> int:
        """Messages that are not settled, in all partitions."""
        return sum(place.lag for place in self.places)

    @property
    def in_flight(self) -> int:
        """Messages that consumers have."""
        return sum(place.in_flight for place in self.places)

    @property
    def oldest_unsettled(self) -> datetime | None:
        """When the first message of all that is not settled was appended."""
        return min(
            (place.oldest_unsettled for place in self.places if place.oldest_unsettled is not None),
            default=None,
        )


def forwarding_statistics(
    forwarded: Forwarded, groups: Sequence[GroupInfo], partitions: Sequence[PartitionStatistics]
) -> tuple[ForwardingStatistics, ...]:
    """What is on its way to topics of dead letters, by topic."""
    targets = {group.group_id: group.settings.dead_letter_topic for group in groups}
    kept: Counter[str] = Counter()
    for stands in [each for partition in partitions for each in partition.groups]:
        if (topic := targets.get(stands.group_id)) is not None:
            kept[topic] += stands.dead
    named = {topic for topic in targets.values() if topic is not None} | set(forwarded.counts)
    return tuple(
        ForwardingStatistics(
            topic=topic,
            forwarded=forwarded.counts.get(topic, 0),
            kept=kept[topic],
            held=forwarded.held.get(topic),
        )
        for topic in sorted(named)
    )


def outbox_statistics(
    outboxes: Sequence[Outbox],
    partitions: Sequence[PartitionStatistics],
    counted: Mapping[tuple[str, int], OutboxCounts],
) -> tuple[OutboxStatistics, ...]:
    """What acks publish: of these outboxes, what their partitions tell, and the forwarder."""
    found = []
    for outbox, partition in zip(outboxes, partitions, strict=True):
        place = outbox.port.topic_id, outbox.port.index
        counts = counted.get(place) or OutboxCounts(*place)
        found.append(
            OutboxStatistics(
                topic=outbox.port.topic,
                partition=outbox.port.index,
                state=partition.state,
                pending=counts.pending,
                forwarded=counts.forwarded,
                held=counts.held,
                refused=counts.refused,
                dropped=counts.dropped,
                lost=counts.lost,
                discarded=counts.discarded,
                damages=partition.damages,
            )
        )
    return tuple(found)


def delayed_statistics(
    ports: Sequence[PartitionPort],
    counts: Mapping[tuple[str, int], DelayedCounts],
    partitions: Sequence[PartitionStatistics],
) -> tuple[DelayedStatistics, ...]:
    """What waits until it is due in these partitions: as their actor counts it, and what they tell themselves."""
    found = []
    for port, partition in zip(ports, partitions, strict=True):
        counted = counts.get((port.topic_id, port.index), DelayedCounts())
        due_us = counted.next_due_us
        found.append(
            DelayedStatistics(
                topic=port.topic,
                partition=port.index,
                state=partition.state,
                pending=counted.pending,
                next_due=None if due_us is None else from_us(due_us),
                moved=counted.moved,
                cancelled=counted.cancelled,
                lost=counted.lost,
                damages=partition.damages,
            )
        )
    return tuple(found)


def schedule_statistics(live: MirroredSchedule, zones: Zones) -> ScheduleStatistics:
    """How a recurring publish stands."""
    record, following = live.record, None
    stands = live.stands or ScheduleStands(record.schedule_id, record.since_us, record.since_us)
    problem = stands.problem
    if not record.is_paused:
        try:
            is_heard = stands.since_us == record.since_us
            following = live.rule(zones).after(stands.from_us if is_heard else record.since_us)
        except InvalidArgument as error:  # its zone is not known on this machine
            problem = str(error)
    return ScheduleStatistics(
        topic=live.port.topic,
        name=record.spec.name,
        partition=record.spec.partition,
        is_paused=record.is_paused,
        next_due=None if following is None else from_us(following),
        last_due=None if stands.fired_us is None else from_us(stands.fired_us),
        fired=stands.fired,
        passed_over=stands.passed_over,
        problem=problem,
    )
