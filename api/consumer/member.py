"""A consumer as a member of its group: when it is in, which of its life there this is, and what it may read.

In a shared group a consumer reads every partition. In an exclusive group the coordinator changes what is assigned at
any time (`Participation`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from callboard.actors.catalog.commands import ConsumerAdmission, EnsureGroup
from callboard.actors.groups.commands import Leave
from callboard.actors.names import check_name
from callboard.actors.settings import GroupSettings, check_group
from callboard.consumer.participation import Participation
from callboard.log.errors import ActorCrashed, ActorStopped, ConsumerDrained, InvalidArgument, RuntimeClosed

if TYPE_CHECKING:
    from callboard.actors.clients.port import PartitionPort
    from callboard.actors.groups.commands import Activity, Joined, Place
    from callboard.actors.kernel import ActorRef
    from callboard.actors.mirror import MirroredGroup, MirroredTopic
    from callboard.actors.topic_patterns import TopicPattern
    from callboard.consumer.leases import ConsumerLeases
    from callboard.session import Session


class GroupMember:
    """One consumer's membership in its group: it joins, rejoins and leaves, and knows what the consumer may read."""

    def __init__(
        self,
        session: Session,
        leases: ConsumerLeases,
        given: Mapping[str, Any],
        name: str | None,
        pattern: TopicPattern | None,
    ) -> None:
        self.group = leases.group
        self.pattern = pattern
        """Which topics it reads, if they are not named."""
        self.name = None if name is None else check_name(name, "consumer")
        """Display name, which stands beside the consumer's id in `Runtime.groups`."""
        self.settings = GroupSettings()
        self.id = 0
        self.generation = 1
        self.settled: frozenset[Place] = frozenset()
        """Partitions that had nothing for the group when it was joined."""
        self.is_open = False
        self.is_draining = False
        """It takes no further message."""
        self.follows = False
        """It may not read all of its partitions now: the group is of a pattern, exclusive, or paused."""
        self.coordinator: ActorRef[Any]
        self.live_group: MirroredGroup
        self.participation: Participation
        self._session = session
        self._leases = leases
        self._given = given
        self._is_used = False
        self._places: dict[PartitionPort, Place] = {}

    # -- joining and leaving

    def use(self) -> None:
        """It is entered. Raises `InvalidArgument` the second time."""
        if self._is_used:
            raise InvalidArgument("a consumer is entered once. Subscribe again.")
        self._is_used = True

    async def admit(
        self, topics: tuple[str, ...], wake: Callable[[], object], activity: Callable[[], Activity | None]
    ) -> None:
        """Have the catalog make the group if there is none, and take it in. See `Participation`."""
        admission: ConsumerAdmission = await self._session.ask_catalog(
            EnsureGroup(self.group, topics, check_group(self.group, self._given), self.pattern)
        )
        group = self._session.group_of_id(admission.group_id, self.group)
        self.id, self.live_group, self.coordinator = admission.consumer, group, group.ref
        self.participation = Participation(group.ref, self.id, wake, activity)
        self.participation.open()
        self.is_open = True

    def joined(self, joined: Joined) -> None:
        """The coordinator has taken it in, or says that it has."""
        if not self.is_open:  # left meanwhile, by another task
            self.participation.depart()
        self.generation, self.settled = joined.generation, joined.settled
        self._leases.joined(joined.group_id)
        self.participation.joined(joined)
        self.take_settings()

    def take_settings(self) -> None:
        """The group may have others."""
        settings = self.settings = self.participation.settings
        self.follows = self.pattern is not None or settings.mode == "exclusive" or settings.paused
        self._leases.alter(settings.max_in_flight)

    @property
    def is_outdated(self) -> bool:
        """Whether it has to join again: what it leased is not its own any more."""
        return self.participation.generation > self.generation

    def drain(self) -> None:
        """It takes no further message."""
        self.is_draining = True

    def end(self) -> None:
        """It is about to leave: nothing is taken any more."""
        self.is_open = False

    async def leave(self) -> None:
        """Leave, and wait until the leases are released; for partitions that do not answer, 5 s at most."""
        while True:
            try:
                await self.coordinator.ask(Leave(self.id))
            except ActorCrashed:
                continue
            except ActorStopped:
                pass  # the group is deleted, or the runtime closes
            return

    # -- what it may do

    def check_open(self) -> None:
        """Raise unless it is entered, and the runtime is open."""
        self._session.check_open()
        if not self.is_open:
            raise self._closed()

    def check_taking(self) -> None:
        """Raise unless further messages may be taken."""
        if not self.is_open:
            raise self._closed()
        if self.is_draining:
            raise ConsumerDrained(
                f"the consumer of group {self.group!r} was drained: it takes no further message. Leave it when what is"
                " in hand is settled.",
                group=self.group,
            )

    @staticmethod
    def _closed() -> RuntimeClosed:
        return RuntimeClosed("the consumer is closed. Use it inside `async with topic.subscribe(...)`.")

    # -- what it may read

    def begin_with(self, live: MirroredTopic) -> None:
        """It reads the topic, as far as it is assigned."""
        self._places.update((port, (live.topic_id, port.index)) for port in live.ports)

    def let_go_of(self, live: MirroredTopic) -> None:
        """It does not read the topic any more."""
        for port in live.ports:
            self._places.pop(port, None)

    def reads(self, port: PartitionPort) -> bool:
        """Whether it may read the partition: none, while the group is paused."""
        assigned, place = self.participation.assigned, self._places.get(port)
        return place is not None and (assigned is None or place in assigned) and not self.settings.paused

    def had_nothing(self, port: PartitionPort) -> bool:
        """Whether the partition had nothing for the group when it was joined."""
        return self._places.get(port) in self.settled

    def take_ended(self) -> list[PartitionPort]:
        """The partitions whose leases have ended since the last time: they are another's from now on."""
        ended = self.participation.take_ended()
        return [port for place in ended for port, found in self._places.items() if found == place]
