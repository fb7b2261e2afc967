"""Exclusive groups: has the partitions keep to the assignment that follows from its members.

The assignment itself is pure (`assignment`) and shared by all incarnations of the coordinator, through `Membership`.
Here is what it takes to carry it out: each partition whose owner changes is asked by a task, until it answers that no
other member has leases there. A member that must let go of a partition is notified too, and gives back what its caller
has not taken. What its caller has in hand it may settle within `rebalance_timeout`; then those leases end, and bodies
of `receive` that hold them are cancelled.

Members whose partitions stay hear nothing, and neither do their partitions.

Invariants
----------
EG1  A partition is asked by the task alone. What waits for it, as a peer only hears.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Never

import trio

from callboard.actors.groups.commands import Assigned, HandedOver, LookAgain, Place, TakenAway
from callboard.actors.kernel import Began, Failed, Peer, Terminated, notify
from callboard.actors.notices import HandOverForced
from callboard.actors.partition.commands import AssignPartition
from callboard.actors.timing import Flag
from callboard.log.errors import ActorCrashed, ActorStopped, InternalError, MailboxFull, PartitionUnavailable

if TYPE_CHECKING:
    from callboard.actors.clients.port import PartitionPort
    from callboard.actors.groups.membership import Membership
    from callboard.actors.kernel import ActorRef, Context


class ExclusivePartitions:
    """What one incarnation of a coordinator does for an exclusive group."""

    def __init__(
        self,
        context: Context[Any],
        name: str,
        group_id: int,
        membership: Membership,
    ) -> None:
        self._context = context
        self._name = name
        self._group_id = group_id
        self._membership = membership
        self._deleted = Flag()
        """Set when a topic is deleted."""

    def begin(self) -> None:
        """Go on with what an earlier incarnation has begun."""
        self._start(self._membership.assignment.moving())
        self.rebalance()
        self._context.start_task(self._follow_deletions, name="deletions")

    async def _follow_deletions(self) -> None:
        """Share out anew what is left when a topic is deleted. Members that own nothing hear of it only here."""
        while True:
            for member in self._membership.members.values():
                notify(self._context.ref, member.number, LookAgain())
            await self._deleted.wait()
            self.rebalance()

    def topic_deleted(self) -> None:
        """The group reads a topic no more."""
        self._deleted.set()

    def rebalance(self) -> None:
        """Members have come, or gone: decide anew, have the partitions know, and tell the members."""
        membership = self._membership
        members = [member for member in membership.members.values() if not member.is_suspended]
        topics = {
            topic.topic_id: topic
            for member in members
            for topic in member.topics.values()
            if not topic.is_over
        }
        readers = {member.consumer: frozenset(member.topics) & topics.keys() for member in members}
        counts = {topic_id: len(topic.ports) for topic_id, topic in topics.items()}
        changed = membership.assignment.rebalance(readers, counts, self._context.clock.monotonic())
        membership.rebalances += bool(changed)
        self._start(changed)
        assignment = membership.assignment
        for member in membership.members.values():
            places = assignment.owned(member.consumer)
            handed_over = [place for place in places if not assignment.rows[place].is_moving]
            assigned = Assigned(frozenset(places), frozenset(handed_over))
            notify(self._context.ref, member.number, assigned)

    def _start(self, places: list[Place]) -> None:
        for place in places:
            epoch = self._membership.assignment.rows[place].epoch
            self._context.start_task(self._hand_over, place, epoch, name="hand-over")

    async def _hand_over(self, place: Place, epoch: int) -> None:
        """Until the partition has been handed over to its owner of `epoch`, or that is not its owner any more."""
        assignment, is_forced, is_overdue = self._membership.assignment, False, False
        while (row := assignment.rows.get(place)) is not None and row.epoch == epoch and row.is_moving:
            topic = self._membership.topics.get(place[0])
            if topic is None:
                return
            port = topic.ports[place[1]]
            settings, now = self._membership.settings, self._context.clock.monotonic()
            left_s = row.since + settings.rebalance_timeout - now
            if (left_s <= 0 or is_overdue) and not is_forced:
                is_forced = True
                self._tell_forced(place, row.holder, port)
            command = AssignPartition(self._group_id, row.owner, epoch, is_forced)
            try:
                with trio.move_on_after(math.inf if is_forced else left_s) as waiting:
                    if await port.ref.ask(command):
                        self._handed_over(place, epoch, row.owner)
                is_overdue = waiting.cancelled_caught
            except (ActorCrashed, MailboxFull):
                continue
            except PartitionUnavailable:
                await _until_back(port)
            except ActorStopped:
                return  # the topic is deleted, or the runtime closes

    def _handed_over(self, place: Place, epoch: int, owner: int | None) -> None:
        membership = self._membership
        member = None if owner is None else membership.members.get(owner)
        if membership.assignment.handed_over(place, epoch) and member is not None:
            notify(self._context.ref, member.number, HandedOver(place))

    def _tell_forced(self, place: Place, holder: int | None, port: PartitionPort) -> None:
        if holder is not None and (member := self._membership.members.get(holder)) is not None:
            timeout = self._membership.settings.rebalance_timeout
            self._membership.forced_handovers += 1
            self._context.emit(HandOverForced(self._name, port.topic, port.index, holder, timeout))
            notify(self._context.ref, member.number, TakenAway(place))


class _Heard:
    """Hears what an actor says, and sets a flag when it is one of these notices."""

    def __init__(self, ref: ActorRef[Any], flag: Flag, *notices: type[object]) -> None:
        self._flag = flag
        self._notices = notices
        self.has_failed = False
        """Whether the actor has failed for good."""
        self._peer: Peer[None, Any] = Peer(ref, self)
        self._peer.open()

    def close(self) -> None:
        """Hear nothing more."""
        self._peer.close()

    def compose(self, _: None) -> Never:
        """It has no news for the actor."""
        raise InternalError("a coordinator that waits for another actor only hears", invariant="EG1")

    def hear(self, message: object) -> None:
        """The actor says this."""
        if isinstance(message, Failed):
            self.has_failed = True
        elif isinstance(message, self._notices):
            self._flag.set()


async def _until_back(port: PartitionPort) -> None:
    """Wait until a partition that has failed begins again, or is deleted."""
    flag = Flag()
    heard = _Heard(port.ref, flag, Began, Terminated)
    try:
        if heard.has_failed:  # else it was revived meanwhile
            await flag.wait()
    finally:
        heard.close()
