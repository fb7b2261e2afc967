"""Membership: a group's settings and its consumers, as the incarnations of its coordinator hand them on to each other.

The catalog shares it with the coordinator: it alters the settings, and closes the group while it decides that it ends.
Consumers hear of it in notices, and depart by one (`participation`). Departures are gathered here: many are one task's.

Invariants
----------
G1  Who departs is a member no longer once the coordinator has looked, whatever else waits in its mailbox.
G2  Only the coordinator adds members and takes them out.
G3  A group that ends by itself has no members, nor any until that is decided.
G4  Every member of a group of a pattern reads the same topics: those that the catalog has decided on, as far as they
    run.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from callboard.actors.groups.assignment import Assignment
from callboard.actors.groups.commands import SettingsAltered
from callboard.actors.kernel import Began, Peer, Terminated, notify
from callboard.actors.partition.commands import (
    DeliverySettings,
    OpenGroup,
    PartitionCommand,
    RemainingMembers,
)
from callboard.actors.settings import GroupSettings, Start
from callboard.actors.timing import Flag
from callboard.log.format.stamps import Stamps

if TYPE_CHECKING:
    from callboard.actors.catalog.live_topic import LiveTopic
    from callboard.actors.kernel import ActorRef
    from callboard.actors.partition.port import PartitionPort


SHARED: Final = [
    field.name for field in attrs.fields(DeliverySettings) if field.name in attrs.fields_dict(GroupSettings)
]
"""What partitions need to know of a group's settings as they are."""


@attrs.define(eq=False)
class Member:
    """A consumer as its group knows it: its handle (id and generation), its name, and its topics by id."""

    consumer: int
    name: str | None = None
    number: int = 0
    """Of the peer by which it hears of its group."""
    generation: int = 1
    is_suspended: bool = False
    """In an exclusive group: it was stalled, and owns nothing until it joins again."""
    topics: dict[str, LiveTopic] = attrs.field(factory=dict)


class MissedDepartures:
    """Tells a partition that had failed when members left which consumers remain, as soon as it takes a message again.

    It belongs to the coordinator, and outlives its incarnations.
    """

    def __init__(self, membership: Membership, group_id: int, port: PartitionPort) -> None:
        self._membership = membership
        self._group_id = group_id
        self._port = port
        self._peer: Peer[None, PartitionCommand] = Peer(port.ref, self)

    def begin(self) -> None:
        """The partition is to hear it."""
        self._peer.open()
        self._peer.mark(None)

    def compose(self, _: None) -> RemainingMembers:
        """Who is a member now; a member that leaves is one until its leases are released."""
        self._end()
        return RemainingMembers(self._group_id, (*self._membership.members, *self._membership.leaving))

    def hear(self, message: object) -> None:
        """The partition is back, or its topic is deleted; what else it says is for clients."""
        if isinstance(message, Began):
            self._peer.mark(None)
        elif isinstance(message, Terminated):
            self._end()

    def _end(self) -> None:
        self._peer.close()
        self._membership.missed.pop(self._port, None)


class Membership:
    """One group: its settings and its members."""

    def __init__(self, settings: GroupSettings, birth: int = 0) -> None:
        self.settings = settings
        self.birth = birth
        """Which group it is of those that have had its id; 0: unknown."""
        self._delivery_settings: DeliverySettings | None = None
        self._opening: OpenGroup | None = None
        self.version = 0
        """How often they were altered in this process."""
        self.told = settings
        """The settings that every member and partition has."""
        self.changed = Flag()
        """Set when the settings have changed, or there are no members any more, or members again."""
        self.members: dict[int, Member] = {}
        self.leaving: dict[int, Member] = {}
        """Who has left, and has leases that are not released yet."""
        self.is_open = trio.Event()
        """Set unless the catalog decides that the group ends: a consumer that joins waits for that."""
        self.is_open.set()
        self.topics: dict[str, LiveTopic] | None = None
        """By id: what a group of a pattern reads now; None when its consumers name their topics."""
        self.found: frozenset[str] = frozenset()
        """Those of them that came after the group."""
        self.topics_changed = Flag()
        self.is_expiry_told = False
        """It was reported that it expires; storing that may take several attempts."""
        self.assignment = Assignment()
        """Of an exclusive group: the owner of each partition."""
        self.stamps = Stamps()
        """What a clock that was ahead has left."""
        self.idle_since_us: int | None = None
        """Since when there are no members; None when there are."""
        self.rebalances = 0
        """Decisions that gave partitions other owners; this and what follows since the directory was opened."""
        self.forced_handovers = 0
        """Partitions that were taken from a member which had not let go of them in time."""
        self.stalled_members = 0
        """Members whose session timed out."""
        self.missed: dict[PartitionPort, MissedDepartures] = {}
        """Partitions that have not heard of members that left."""
        self._departed: dict[int, None] = {}
        self._news = trio.Event()

    def alter(self, settings: GroupSettings) -> None:
        """The group has these settings from now on; `tell_members` follows when its partitions know."""
        self.settings, self._delivery_settings = settings, None
        self.version += 1
        self.changed.set()

    def read(self, topics: dict[str, LiveTopic], found: frozenset[str]) -> None:
        """A group of a pattern reads these topics from now on; its coordinator tells partitions and members."""
        self.found = found
        if topics != self.topics:
            self.topics = topics
            self.topics_changed.set()

    def start_in(self, topic_id: str) -> Start:
        """Where the group begins in a topic."""
        return "beginning" if topic_id in self.found else self.settings.start

    def opening(self, group_id: int, start: Start) -> OpenGroup:
        """How partitions of a topic open the group, which has this id and begins there, with the settings of now.

        The same object for all of them, until the settings are altered: each keeps it.
        """
        settings, last = self.delivery_settings(), self._opening
        if last is None or last.settings is not settings or last.start != start:
            is_implied = start == "beginning"
            last = OpenGroup(
                group_id, self.settings.durable, start, settings, self.birth, is_implied=is_implied
            )
            self._opening = last
        return last

    def delivery_settings(self) -> DeliverySettings:
        """What partitions have to know of the settings: the same object for all, until they are altered."""
        if self._delivery_settings is None:
            self._delivery_settings = self._for_partitions(self.settings)
        return self._delivery_settings

    def _for_partitions(self, settings: GroupSettings) -> DeliverySettings:
        given = {name: getattr(settings, name) for name in SHARED}
        if isinstance(settings.retry, (int, float)):
            given["retry"] = (settings.retry,)
        return DeliverySettings(
            version=self.version,
            is_exclusive=settings.mode == "exclusive",
            keeps_expired=settings.dead_letter_expired,
            **given,
        )

    def assigned(self, consumer: int) -> tuple[tuple[str, int], ...]:
        """The partitions that a member of an exclusive group has by now, as (topic, partition)."""
        member = self.members.get(consumer)
        places = [] if member is None else self.assignment.owned(consumer, is_moving=False)
        topics = {} if member is None else member.topics
        return tuple(
            sorted((topics[topic_id].name, index) for topic_id, index in places if topic_id in topics)
        )

    def names(self) -> dict[int, str]:
        """The names of the members that have one, by consumer id."""
        return {each.consumer: each.name for each in self.members.values() if each.name is not None}

    def tell_members(self, coordinator: ActorRef[Any]) -> None:
        """Every partition knows the settings, or will when it runs: have the members know, too."""
        self.told = self.settings
        for member in self.members.values():
            notify(coordinator, member.number, SettingsAltered(self.settings))

    @contextmanager
    def closed(self) -> Iterator[None]:
        """Nobody becomes a member meanwhile (G3)."""
        self.is_open = trio.Event()
        try:
            yield
        finally:
            self.is_open.set()

    def missed_departure(self, group_id: int, port: PartitionPort) -> None:
        """A member has left, and the partition has failed."""
        if port not in self.missed:
            self.missed[port] = missed = MissedDepartures(self, group_id, port)
            missed.begin()

    def depart(self, consumer: int) -> None:
        """The consumer has gone. Never waits, never fails; departing twice is departing once."""
        self._departed[consumer] = None
        self._news.set()

    async def departures(self) -> list[int]:
        """Wait until a member has departed; then all that have, in order, once each."""
        await self._news.wait()
        self._news = trio.Event()
        departed, self._departed = self._departed, {}
        return list(departed)
