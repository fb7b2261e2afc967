"""Membership: a group's settings and its consumers, as the incarnations of its coordinator hand them on to each other.

Only the coordinator writes it. What the catalog decides about the group comes in notices (`GroupDecided`). Consumers
hear of it in notices, and depart by one. Departures are gathered here: many are one task's.

Invariants
----------
ME1  Who departs is a member no longer once the coordinator has looked, whatever else waits in its mailbox.
ME2  Only the coordinator adds members and takes them out.
ME3  A group that ends by itself has no members, nor any until that is decided.
ME4  Every member of a group of a pattern reads the same topics: those that the catalog has decided on, as far as they
     run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import trio

from callboard.actors.groups.assignment import Assignment
from callboard.actors.groups.commands import GroupDecided, MemberInfo, MembersInfo, SettingsAltered
from callboard.actors.kernel import Began, Peer, Terminated, notify
from callboard.actors.partition.commands import OpenGroup, PartitionCommand, RemainingMembers
from callboard.actors.partition.spec import GroupOpenings
from callboard.actors.settings import GroupSettings
from callboard.actors.timing import Flag
from callboard.log.format.stamps import Stamps

if TYPE_CHECKING:
    from callboard.actors.catalog.commands import EndGroup
    from callboard.actors.clients.port import PartitionPort
    from callboard.actors.kernel import ActorRef


@attrs.define(eq=False)
class ReadTopic:
    """A topic that a group reads, and where its partitions are found."""

    topic_id: str
    name: str
    ports: tuple[PartitionPort, ...]
    is_over: bool = False
    """It is deleted, or the group reads it no more."""


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
    topics: dict[str, ReadTopic] = attrs.field(factory=dict)


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

    def __init__(self, group_id: int, birth: int, decided: GroupDecided) -> None:
        self._openings = GroupOpenings(group_id, birth, decided.settings)
        self.changed = Flag()
        """Set when the settings have changed, or there are no members any more, or members again."""
        self.members: dict[int, Member] = {}
        self.leaving: dict[int, Member] = {}
        """Who has left, and has leases that are not released yet."""
        self.ending: EndGroup | None = None
        """What the catalog was asked, until it has answered: whether the group ends."""
        self.is_open = trio.Event()
        """Set unless that is asked: a consumer that joins waits for the answer."""
        self.is_open.set()
        self.topics: dict[str, ReadTopic] = {}
        """By id: what the group reads now, as far as it runs."""
        self.is_of_pattern = decided.is_of_pattern
        """Each member reads all of that; else members name their topics."""
        self.found = decided.found
        """Those of them that came after the group."""
        self.topics_changed = Flag()
        self.assignment = Assignment()
        """Of an exclusive group: the owner of each partition."""
        self.stamps = Stamps()
        """What a clock that was ahead has left."""
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

    @property
    def settings(self) -> GroupSettings:
        """Those of now."""
        return self._openings.settings

    @property
    def version(self) -> int:
        """How often they were altered in this process."""
        return self._openings.version

    def decided(self, decided: GroupDecided, topics: dict[str, ReadTopic]) -> bool:
        """The catalog has decided this, and the group reads these topics from now on: the coordinator has partitions
        and members know. Returns whether it reads one no more.
        """
        if decided.version > self._openings.version:
            self._openings.alter(decided.settings, decided.version)
            self.changed.set()
        self.found = decided.found
        gone = [topic for topic_id, topic in self.topics.items() if topic_id not in topics]
        for topic in gone:
            topic.is_over = True
        if topics != self.topics:
            self.topics = topics
            self.topics_changed.set()
        return bool(gone)

    def opening(self, topic_id: str) -> OpenGroup:
        """How partitions of a topic open the group, with the settings of now."""
        return self._openings.opening("beginning" if topic_id in self.found else self.settings.start)

    def assigned(self, consumer: int) -> tuple[tuple[str, int], ...]:
        """The partitions that a member of an exclusive group has by now, as (topic, partition)."""
        member = self.members.get(consumer)
        places = [] if member is None else self.assignment.owned(consumer, is_moving=False)
        topics = {} if member is None else member.topics
        return tuple(
            sorted((topics[topic_id].name, index) for topic_id, index in places if topic_id in topics)
        )

    def described(self) -> MembersInfo:
        """The members, for people."""
        members = [
            MemberInfo(
                member.consumer,
                member.name,
                member.generation,
                tuple(topic.name for topic in member.topics.values()),
                self.assigned(member.consumer),
            )
            for _, member in sorted(self.members.items())
        ]
        return MembersInfo(tuple(members), self.rebalances, self.forced_handovers, self.stalled_members)

    def tell_members(self, coordinator: ActorRef[Any]) -> None:
        """Have the members know the settings of now."""
        for member in self.members.values():
            notify(coordinator, member.number, SettingsAltered(self.settings, self.version))

    def close(self, ending: EndGroup) -> None:
        """The catalog is asked this. No consumer joins meanwhile (ME3), nor after a crash of the coordinator,
        which asks again.
        """
        self.ending, self.is_open = ending, trio.Event()

    def reopen(self) -> None:
        """The group does not end."""
        self.ending = None
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
