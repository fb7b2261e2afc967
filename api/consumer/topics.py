"""How a consumer keeps to its topics: joins with them, leaves those that are deleted, takes up those that come.

Topics that were named are the consumer's until they are deleted, which it reports to its caller. The topics of a
pattern are those that the group reads (`Participation.topic_ids`): they come and go without a word, and there may be
none at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from callboard.actors.groups.commands import Join
from callboard.consumer.losses import cannot_settle
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
    from callboard.actors.clients.port import PartitionPort
    from callboard.actors.groups.commands import Joined
    from callboard.actors.mirror import MirroredTopic
    from callboard.consumer.leases import ConsumerLeases
    from callboard.consumer.member import GroupMember
    from callboard.consumer.turns import PartitionTurns
    from callboard.session import Session


class ReadTopics:
    """Those of one consumer."""

    def __init__(
        self,
        session: Session,
        leases: ConsumerLeases,
        member: GroupMember,
        turns: PartitionTurns,
        lives: Sequence[MirroredTopic],
    ) -> None:
        self._session = session
        self._leases = leases
        self._member = member
        self._turns = turns
        self.lives = list(lives)
        self.have_priorities = any(live.settings.priorities for live in lives)
        for live in lives:
            leases.begin_with(live)
            member.begin_with(live)

    def __str__(self) -> str:
        pattern = self._member.pattern
        return ", ".join(repr(live.name) for live in self.lives) if pattern is None else pattern.words

    def ports(self) -> list[PartitionPort]:
        """The partitions of all topics."""
        return [port for live in self.lives for port in live.ports]

    def places(self) -> tuple[tuple[str, int], ...]:
        """In an exclusive group: the partitions that the consumer has, as (topic, partition), sorted."""
        names = {live.topic_id: live.name for live in self.lives}
        places = self._member.participation.handed_over
        return tuple(sorted((names[topic_id], index) for topic_id, index in places if topic_id in names))

    def begin(self) -> None:
        """The consumer has joined for the first time."""
        for live in self.lives:
            self._begin_with(live)

    def look_again(self) -> None:
        """Have every partition looked at again, and a task that waits woken."""
        for port in self.ports():
            self._turns.awaited.noticed(port)

    def leave_deleted(self) -> None:
        """Leave topics that were deleted. Raises as `_leave_topic`."""
        for live in [live for live in self.lives if live.deleted]:
            self._leave_topic(live)

    async def join(self) -> None:
        """Become a member, or make sure of it: the coordinator opens the group wherever that is missing."""
        if self._member.pattern is not None:
            await self._join_with(None)
            self.follow()
            return
        for live in list(self.lives):
            await self._join_with(live)

    async def _join_with(self, live: MirroredTopic | None) -> None:
        """Join with one topic; None: with all that the group of a pattern reads."""
        member, topic_id = self._member, None if live is None else live.topic_id
        while True:
            try:
                join = Join(member.id, topic_id, member.name, member.participation.number)
                joined: Joined = await member.coordinator.ask(join)
                break
            except ActorCrashed:
                continue
            except TopicNotFound:
                if live is None:
                    raise
                self._leave_topic(live)
            except ActorStopped as error:
                self._session.check_open()
                if live is not None and live.deleted:
                    self._leave_topic(live)
                if not member.live_group.is_over:
                    raise RuntimeClosed("the runtime is closed. Open it again.") from error
                raise GroupNotFound(
                    f"group {self._member.group!r} was deleted or has expired. Subscribe again.",
                    group=self._member.group,
                ) from error
        member.joined(joined)

    def follow(self) -> None:
        """Of a group of a pattern: leave what it does not read any more, and begin with what it reads besides."""
        topic_ids, mirror = self._member.participation.topic_ids, self._session.mirror
        if topic_ids is None:
            return
        found = {topic_id: mirror.by_id(topic_id) for topic_id in topic_ids}
        topics = {topic_id: live for topic_id, live in found.items() if live is not None}
        for live in [live for live in self.lives if topics.get(live.topic_id) is not live]:
            self._let_go_of_topic(live)
        known = {live.topic_id for live in self.lives}
        for topic_id, live in topics.items():
            if topic_id not in known and not live.deleted:
                self.lives.append(live)
                self._leases.begin_with(live)
                self._member.begin_with(live)
                self.have_priorities = self.have_priorities or live.settings.priorities
                self._begin_with(live)
        self._turns.awaited.look_again()

    def _begin_with(self, live: MirroredTopic) -> None:
        """Have the topic's partitions asked: consumers that come together begin at different ones.

        Those that had nothing when the group was opened say when they have: most of a thousand may be empty.
        """
        first = self._member.id % len(live.ports)
        for port in (*live.ports[first:], *live.ports[:first]):
            is_settled = self._member.had_nothing(port)
            if not (is_settled and self._member.reads(port) and self._turns.awaits(port)):
                self._turns.look_at([port])
                self._turns.awaited.noticed(port)

    def _let_go_of_topic(self, live: MirroredTopic) -> None:
        """The topic is deleted, or for dead letters by now: what was leased of it is in flight no more."""
        self.lives.remove(live)
        self._turns.end_topic(live.name)
        self._member.let_go_of(live)
        self._leases.forget_where(frozenset(live.ports).__contains__)

    async def refused(self, port: PartitionPort, error: CallboardError) -> None:
        """A partition did not do what it was asked. Returns when it is worth asking again."""
        if isinstance(error, (ConsumerFenced, GroupNotFound)):
            await self.join()  # raises unless the partition had only missed that the group was opened
        elif isinstance(error, PartitionUnavailable):
            if self._leases.await_revival(port, self._turns.awaited):  # else it was revived meanwhile
                self._turns.end(port)
        elif isinstance(error, ActorStopped):
            if not self._session.mirror.is_live(port):
                for live in [live for live in self.lives if port in live.ports]:
                    self._leave_topic(live)
                self._turns.end(port)
            else:
                raise cannot_settle(self._session, port) from error
        elif not isinstance(error, ActorCrashed):
            raise error

    def _leave_topic(self, live: MirroredTopic) -> None:
        """A topic was deleted. If it was named, raise the error for that; those that are left are still read."""
        if self._member.pattern is not None:
            self._let_go_of_topic(live)
            return
        self._turns.end_topic(live.name)
        is_live = self._session.mirror.is_live
        self._leases.forget_where(lambda port: not is_live(port))
        if len(self.lives) == 1:  # it stays: every further call hears the same
            raise RuntimeClosed(f"topic {live.name!r} was deleted; there is nothing more to consume.")
        self.lives.remove(live)
        raise TopicNotFound(
            f"topic {live.name!r} was deleted while group {self._member.group!r} read it with others. It has nothing"
            f" more; this consumer continues with {', '.join(other.name for other in self.lives)} when it is asked"
            " again.",
            topic=live.name,
        )

    async def check_any_available(self) -> None:
        """Raise when waiting is in vain: all partitions have failed, or the group is gone and no partition says so."""
        ports = self.ports()
        mirror = self._session.mirror
        failed = [port for port in ports if mirror.state_of(port) == "failed"]
        if failed and len(failed) == len(ports) and (error := mirror.refusal(failed[0])):
            raise error
        if self._member.participation.is_stopped and not any(map(self._member.reads, ports)):
            await self.join()
