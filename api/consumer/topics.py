"""How a consumer keeps to its topics: joins with them, leaves those that are deleted, takes up those that come.

Topics that were named are the consumer's until they are deleted, which it reports to its caller. The topics of a
pattern are those that the group reads (`Participation.topic_ids`): they come and go without a word, and there may be
none at all.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from callboard.actors.groups.commands import Join
from callboard.consumer.losses import stopped
from callboard.log.errors import (
    ActorCrashed,
    ActorStopped,
    CallboardError,
    ConsumerFenced,
    GroupNotFound,
    PartitionUnavailable,
    RuntimeClosed,
    TopicNotFound,
)

if TYPE_CHECKING:
    from callboard.actors.catalog.directory import LiveGroup, LiveTopic
    from callboard.actors.groups.assignment import Place
    from callboard.actors.groups.commands import Joined
    from callboard.actors.groups.participation import Participation
    from callboard.actors.kernel import ActorRef
    from callboard.actors.partition.port import PartitionPort
    from callboard.actors.topic_patterns import TopicPattern
    from callboard.consumer.leases import ConsumerLeases
    from callboard.consumer.notices import AwaitedPartitions
    from callboard.session import Session


class FollowsTopics:
    """The part of a consumer that knows which topics it reads."""

    group: str
    name: str | None
    pattern: TopicPattern | None
    session: Session
    leases: ConsumerLeases
    _id: int
    _open: bool
    _lives: list[LiveTopic]
    _places: dict[PartitionPort, Place]
    _turns: dict[str, dict[PartitionPort, None]]
    _awaited: AwaitedPartitions[PartitionPort]
    _coordinator: ActorRef[Any]
    _live_group: LiveGroup
    _participation: Participation
    _generation: int
    _has_priorities: bool
    _settled: frozenset[Place]

    if TYPE_CHECKING:

        def _look_at(self, ports: Iterable[PartitionPort]) -> None: ...
        def _end_turn(self, port: PartitionPort) -> None: ...
        def _reads(self, port: PartitionPort) -> bool: ...
        def _awaits(self, port: PartitionPort) -> bool: ...
        def _take_settings(self) -> None: ...

    async def _join(self) -> None:
        """Become a member, or make sure of it: the coordinator opens the group wherever that is missing."""
        if self.pattern is not None:
            await self._join_with(None)
            self._follow_topics()
            return
        for live in list(self._lives):
            await self._join_with(live)

    async def _join_with(self, live: LiveTopic | None) -> None:
        """Join with one topic; None: with all that the group of a pattern reads."""
        topic_id = None if live is None else live.topic_id
        while True:
            try:
                join = Join(self._id, topic_id, self.name, self._participation.number)
                joined: Joined = await self._coordinator.ask(join)
                break
            except ActorCrashed:
                continue
            except TopicNotFound:
                if live is None:
                    raise
                self._leave_topic(live)
            except ActorStopped as error:
                self.session.check_open()
                if live is not None and live.deleted:
                    self._leave_topic(live)
                if not self._live_group.is_over:
                    raise RuntimeClosed("the runtime is closed. Open it again.") from error
                raise GroupNotFound(
                    f"group {self.group!r} was deleted or has expired. Subscribe again.", group=self.group
                ) from error
        if not self._open:  # left meanwhile, by another task
            self._participation.depart()
        self._generation = joined.generation
        self.leases.joined(joined.group_id)
        self._settled = joined.settled
        self._participation.joined(joined)
        self._take_settings()

    def _follow_topics(self) -> None:
        """Of a group of a pattern: leave what it does not read any more, and begin with what it reads besides."""
        topic_ids, directory = self._participation.topic_ids, self.session.directory
        if topic_ids is None:
            return
        found = {topic_id: directory.by_id(topic_id) for topic_id in topic_ids}
        topics = {topic_id: live for topic_id, live in found.items() if live is not None}
        for live in [live for live in self._lives if topics.get(live.topic_id) is not live]:
            self._let_go_of_topic(live)
        known = {live.topic_id for live in self._lives}
        for topic_id, live in topics.items():
            if topic_id not in known and not live.deleted:
                self._lives.append(live)
                self.leases.begin_with(live)
                self._places.update((port, (topic_id, port.index)) for port in live.ports)
                self._has_priorities = self._has_priorities or live.settings.priorities
                self._begin_with(live)
        self._awaited.look_again()

    def _begin_with(self, live: LiveTopic) -> None:
        """Have the topic's partitions asked: consumers that come together begin at different ones.

        Those that had nothing when the group was opened say when they have: most of a thousand may be empty.
        """
        first = self._id % len(live.ports)
        for port in (*live.ports[first:], *live.ports[:first]):
            is_settled = self._places.get(port) in self._settled
            if not (is_settled and self._reads(port) and self._awaits(port)):
                self._look_at([port])
                self._awaited.noticed(port)

    def _let_go_of_topic(self, live: LiveTopic) -> None:
        """The topic is deleted, or for dead letters by now: what was leased of it is in flight no more."""
        self._lives.remove(live)
        self._turns.pop(live.name, None)
        ports = frozenset(live.ports)
        for port in ports:
            self._places.pop(port, None)
        self.leases.forget_where(ports.__contains__)

    async def _refused(self, port: PartitionPort, error: CallboardError) -> None:
        """A partition did not do what it was asked. Returns when it is worth asking again."""
        if isinstance(error, (ConsumerFenced, GroupNotFound)):
            await self._join()  # raises unless the partition had only missed that the group was opened
        elif isinstance(error, PartitionUnavailable):
            if port.state == "failed":  # else it was revived meanwhile
                port.add_restart_waiter(self._awaited)
                self._end_turn(port)
        elif isinstance(error, ActorStopped):
            if port.is_deleted:
                for live in [live for live in self._lives if port in live.ports]:
                    self._leave_topic(live)
                self._end_turn(port)
            else:
                raise stopped(port) from error
        elif not isinstance(error, ActorCrashed):
            raise error

    def _leave_topic(self, live: LiveTopic) -> None:
        """A topic was deleted. If it was named, raise the error for that; those that are left are still read."""
        if self.pattern is not None:
            self._let_go_of_topic(live)
            return
        self._turns.pop(live.name, None)
        self.leases.forget_where(lambda port: port.is_deleted)
        if len(self._lives) == 1:  # it stays: every further call hears the same
            raise RuntimeClosed(f"topic {live.name!r} was deleted; there is nothing more to consume.")
        self._lives.remove(live)
        raise TopicNotFound(
            f"topic {live.name!r} was deleted while group {self.group!r} read it with others. It has nothing more;"
            f" this consumer continues with {', '.join(other.name for other in self._lives)} when it is asked again.",
            topic=live.name,
        )

    async def _check_any_available(self) -> None:
        """Raise when waiting is in vain: all partitions have failed, or the group is gone and no partition says so."""
        ports = [port for live in self._lives for port in live.ports]
        if ports and all(port.state == "failed" for port in ports):
            raise ports[0].unavailable()
        if self._participation.is_stopped and not any(map(self._reads, ports)):
            await self._join()
