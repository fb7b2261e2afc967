"""The coordinator of one consumer group: its members, and what becomes of a group without any.

Leases are kept by the partitions, so a coordinator only opens the group in a topic's partitions when a member joins,
releases a leaving member's leases there, decides which member owns which partition if the group is exclusive, and
watches the clock: a durable group without members is expired after `group_expiry`, because what it has not settled
would hold retention back for ever; an ephemeral group ends with its last member.

Its loop never waits: what takes a partition's answer, or the catalog's, is a task of its own, so a topic whose
disk hangs delays its readers and no others. Its incarnations hand its members on to each other (`Membership`), since
a consumer outlives its coordinator's crash. What the catalog decides comes in notices, anew to each incarnation.
"""

from __future__ import annotations

import math
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, assert_never

import trio

from callboard.actors.catalog.commands import CATALOG, EndGroup, GroupIdle
from callboard.actors.clients.port import PartitionPort
from callboard.actors.groups.commands import (
    Acted,
    CoordinatorCommand,
    Departed,
    Fence,
    Fenced,
    GroupDecided,
    GroupTopic,
    Join,
    Joined,
    Leave,
    ListMembers,
    MembersInfo,
    TellMembers,
    TopicsRead,
)
from callboard.actors.groups.exclusive import ExclusivePartitions
from callboard.actors.groups.membership import Member, ReadTopic
from callboard.actors.groups.sessions import Sessions
from callboard.actors.kernel import Actor, Reply, notify
from callboard.actors.notices import GroupKept, LeaseReleaseFailed, MemberStalled
from callboard.actors.partition import commands as c
from callboard.actors.timing import Timers
from callboard.log.errors import (
    ActorCrashed,
    ActorStopped,
    CallboardError,
    InternalError,
    MailboxFull,
    PartitionUnavailable,
    TopicNotFound,
)
from callboard.log.format.stamps import is_ahead
from callboard.log.limits import RELEASES_AT_ONCE, RELEASES_SHARED, STUCK_AFTER_S

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from callboard.actors.groups.spec import CoordinatorSpec

EXPIRY_GRACE_S: Final = 3600.0
"""A group that no consumer could join, because the directory was closed that long, is not expired before its consumers
had this long (or its whole `group_expiry`, if that is shorter) to come back."""
GRACE_STEP_S: Final = 60.0
"""How much of that each opening takes at least, and how often the catalog hears how much is used: many short openings
use it up. A tenth of it where that is less."""
GRACE_STEPS: Final = 10
"""At least this many openings pass before all of it is used, however short they are."""
JOIN_PATIENCE_S: Final = 0.2
"""A consumer that joins waits no longer for partitions that do not answer: what it asks of them comes behind that."""
LEAVE_PATIENCE_S: Final = STUCK_AFTER_S
"""A consumer that leaves waits no longer for them: its leases there are released when they answer."""
KEPT_LOOK_S: Final = 60.0
"""A group that does not expire since partitions keep dead letters of it is looked at again after this."""
RETRY_S: Final = 10.0
"""Pause before the catalog is sent again what it could not store."""
UNJOINED_S: Final = 10.0
"""An ephemeral group ends when it has no member this long after its coordinator started: the one it was made for may
have given up before joining, and without a member that leaves it would never end."""

GroupQuestion = c.OpenGroup | c.ReleaseConsumer | c.FenceConsumer


class Coordinator(Actor[CoordinatorCommand]):
    """The actor that knows the members of one consumer group and decides which of them owns which partition."""

    defers_interrupts = True

    def __init__(self, spec: CoordinatorSpec) -> None:
        self._name = spec.name
        self._group_id = spec.group_id
        self._idle_since_us = spec.idle_since_us
        self._membership = spec.membership
        self._stamps = spec.membership.stamps
        noticed = spec.idle_noticed
        is_known = noticed is not None and noticed[0] == spec.idle_since_us
        self._noticed_us = noticed[1] if noticed is not None and is_known else None
        """When it was noticed that the instant since which the group is idle is ahead; later than that instant: how
        much of the grace was used, added to it."""
        if noticed is not None and noticed[1] < noticed[0]:
            self._stamps.resume((noticed,))
        self._timers = Timers(spec.wheel)
        self._news = trio.Event()
        self._is_over = False
        """The group is to end: it has expired, or is ephemeral and without members."""
        self._expired_after: float | None = None
        self._is_kept_reported = self._looks_again = False
        self._exclusive: ExclusivePartitions | None = None
        self._sessions: Sessions | None = None

    async def started(self) -> None:
        """Begin to watch for expiry. What the first incarnation heard of idleness is stale in later ones."""
        idle_since_us = self._idle_since_us
        if self._membership.members:
            idle_since_us = None
        elif idle_since_us is None or self.context.incarnation > 1:
            idle_since_us, self._noticed_us = self.context.clock.wall_us(), None
            self._news.set()
        self._idle_since_us = idle_since_us
        if self._membership.ending is not None:
            self._news.set()
        if self._membership.settings.mode == "exclusive":
            self._exclusive = ExclusivePartitions(self.context, self._name, self._group_id, self._membership)
            self._exclusive.begin()
            self._sessions = Sessions(
                self.context, self._timers, self._group_id, self._membership, self._suspend
            )
            self.context.start_task(self._sessions.watch, name="sessions")
        self.context.start_task(self._expire_when_idle, name="expiry")
        self.context.start_task(self._tell_catalog, name="news")
        self.context.start_task(self._watch_departures, name="departures")
        if self._membership.leaving:
            self.context.start_task(self._release, [*self._membership.leaving.values()], name="leaving")
        if not self._membership.settings.durable:
            self.context.start_task(self._end_unless_joined, name="joining")
        if self._membership.is_of_pattern:
            self.context.start_task(self._follow_topics, name="topics")

    async def receive(self, message: CoordinatorCommand) -> MembersInfo | None:
        """Join, leave, fence; what the catalog has decided; what consumers say of themselves."""
        match message:
            case ListMembers():
                return self._membership.described()
            case GroupDecided():
                self._decided(message)
                return None
            case TellMembers():
                self._membership.tell_members(self.context.ref)
                return None
            case Departed(consumer):
                self._membership.depart(consumer)
                return None
            case Acted(consumer, activity):
                if self._sessions is not None:
                    self._sessions.heard(consumer, activity)
                return None
        reply = self.context.defer_reply()
        match message:
            case Join():
                self._join(message, reply)
            case Leave(consumer):
                self._leave((consumer,), reply)
            case Fence(consumer):
                self._fence(consumer, reply)
            case _:
                assert_never(message)
        return None

    def _decided(self, decided: GroupDecided) -> None:
        known = self._membership.topics
        topics = {each.topic_id: known.get(each.topic_id) or self._found(each) for each in decided.topics}
        if self._membership.decided(decided, topics) and self._exclusive is not None:
            self._exclusive.topic_deleted()

    def _found(self, topic: GroupTopic) -> ReadTopic:
        """Where the partitions of a topic are."""
        ports = [
            PartitionPort(topic.name, topic.topic_id, index, self.context.actor(f"{topic.path}/{index}"))
            for index in range(topic.partitions)
        ]
        return ReadTopic(topic.topic_id, topic.name, tuple(ports))

    # -- joining

    def _join(self, message: Join, reply: Reply) -> None:
        """A consumer joins, or a member joins again. One that gave up before its turn has departed already."""
        if reply.done:
            return
        if not self._membership.is_open.is_set():
            self.context.start_task(self._join_later, message, reply, name="joining")
            return
        topics = dict(self._membership.topics)
        if message.topic_id is not None:
            topic = topics.get(message.topic_id)
            if topic is None:
                reply.fail(TopicNotFound(f"the topic of group {self._name!r} was deleted.", topic=None))
                return
            topics = {topic.topic_id: topic}
        member = self._membership.members.setdefault(message.consumer, Member(message.consumer, message.name))
        member.number = message.number
        member.topics = topics if message.topic_id is None else {**member.topics, **topics}
        member.is_suspended = False
        if self._idle_since_us is not None:
            self._set_idle(None)
        generation = member.generation

        def joined(asked: Sequence[tuple[PartitionPort, Reply | None]]) -> Joined:
            settled = [(port.topic_id, port.index) for port, asking in asked if _is_settled(asking)]
            membership = self._membership
            topic_ids = tuple(membership.topics) if membership.is_of_pattern else None
            return Joined(
                self._group_id,
                generation,
                membership.settings,
                topic_ids,
                frozenset(settled),
                membership.version,
            )

        ports = [port for topic in topics.values() for port in topic.ports]
        self._ask_each(ports, self._opening, reply, joined, JOIN_PATIENCE_S, "joining")
        if self._exclusive is not None:
            self._exclusive.rebalance()

    async def _join_later(self, message: Join, reply: Reply) -> None:
        """When the catalog has answered that the group does not end; if it does, the coordinator is stopped."""
        await self._membership.is_open.wait()
        self._join(message, reply)

    def _opening(self, port: PartitionPort) -> c.OpenGroup:
        """With the settings of now: they may be altered while a partition restarts."""
        return self._membership.opening(port.topic_id)

    async def _follow_topics(self) -> None:
        """Of a group of a pattern: have new topics know it, also without readers, and members know what they read.

        An incarnation begins with all topics, whatever the one before it has done.
        """
        membership = self._membership
        opened: set[str] = set()
        while True:
            topics = dict(membership.topics)
            for topic_id, topic in topics.items():
                if topic_id not in opened:
                    self._ask_each(topic.ports, self._opening, None, _nothing, math.inf, "opening")
            opened = set(topics)
            for member in membership.members.values():
                member.topics = dict(topics)
            if self._exclusive is not None:
                self._exclusive.rebalance()
            for member in membership.members.values():
                notify(self.context.ref, member.number, TopicsRead(tuple(topics)))
            await membership.topics_changed.wait()

    def _ask_each(
        self,
        ports: Sequence[PartitionPort],
        command: Callable[[PartitionPort], GroupQuestion],
        reply: Reply | None,
        answer: Callable[[Sequence[tuple[PartitionPort, Reply | None]]], object],
        patience_s: float,
        name: str,
    ) -> None:
        """Ask the partitions at once. A task waits until each has answered; `answer` is due after `patience_s` at most,
        and made of what they have answered by then.

        One that has failed is passed: a consumer that meets it when it is revived, and does not know the group, joins
        again.
        """
        asked = [(port, _asked(port, command(port))) for port in ports]

        async def wait_for_each() -> None:
            try:
                for port, asking in asked:
                    try:
                        await _answered(port, partial(command, port), asking)
                    except PartitionUnavailable:
                        pass
                    except ActorStopped:
                        membership = self._membership
                        if not membership.is_of_pattern or port.topic_id in membership.topics:
                            raise
            except InternalError:
                raise
            except CallboardError as error:
                if reply is not None and not reply.done:
                    reply.fail(error)

        made = partial(answer, asked)
        self.context.start_task(_answer_within, patience_s, wait_for_each, reply, made, name=name)

    # -- telling members

    def _fence(self, consumer: int, reply: Reply) -> None:
        """The partitions first: what they release by then belongs to the generation that ends."""
        member = self._membership.members.get(consumer)
        if member is None:
            reply.answer(None)
        else:
            self._fence_member(member, reply)

    def _suspend(self, member: Member) -> None:
        """A member is stalled: others own its partitions, until it asks for messages again."""
        timeout = self._membership.settings.session_timeout
        self.context.emit(MemberStalled(self._name, member.consumer, member.name, timeout or 0.0))
        self._membership.stalled_members += 1
        member.is_suspended = True
        self._fence_member(member, None)
        if self._exclusive is not None:
            self._exclusive.rebalance()

    def _fence_member(self, member: Member, reply: Reply | None) -> None:
        consumer = member.consumer
        member.generation += 1
        fence = c.FenceConsumer(self._group_id, consumer, member.generation)
        ports = [port for topic in member.topics.values() for port in topic.ports]
        self._ask_each(ports, lambda _: fence, reply, _nothing, math.inf, "fencing")
        notify(self.context.ref, member.number, Fenced(member.generation))

    # -- leaving

    async def _watch_departures(self) -> None:
        while True:
            self._leave(await self._membership.departures(), None)

    def _leave(self, consumers: Sequence[int], reply: Reply | None) -> None:
        """They are members no longer; their leases are released beside the loop."""
        members = self._membership.members
        leaving = [members.pop(consumer) for consumer in consumers if consumer in members]
        self._membership.leaving.update({member.consumer: member for member in leaving})
        if leaving and not members:
            self._set_idle(self.context.clock.wall_us())
        if leaving and self._exclusive is not None:
            self._exclusive.rebalance()
        release = partial(self._release, leaving)
        self.context.start_task(_answer_within, LEAVE_PATIENCE_S, release, reply, _nothing, name="leaving")

    async def _release(self, leaving: Sequence[Member]) -> None:
        by_topic: dict[ReadTopic, list[int]] = {}
        for member in leaving:
            for topic in member.topics.values():
                by_topic.setdefault(topic, []).append(member.consumer)
        async with trio.open_nursery() as nursery:
            for topic, consumers in by_topic.items():
                # One that hangs must not delay what others are asked later.
                share = RELEASES_SHARED if len(consumers) <= RELEASES_AT_ONCE else 1
                for first in range(0, len(topic.ports), share):
                    nursery.start_soon(self._release_at, topic.ports[first : first + share], consumers)
        for member in leaving:
            self._membership.leaving.pop(member.consumer, None)
        if leaving and not self._membership.members and not self._membership.settings.durable:
            self._end()

    async def _release_at(self, ports: Sequence[PartitionPort], consumers: Sequence[int]) -> None:
        """All of these partitions are asked before any is waited for."""
        for first in range(0, len(consumers), RELEASES_AT_ONCE):
            releases = {
                consumer: c.ReleaseConsumer(self._group_id, consumer)
                for consumer in consumers[first : first + RELEASES_AT_ONCE]
            }
            asked = [
                (port, [(consumer, _asked(port, release)) for consumer, release in releases.items()])
                for port in ports
            ]
            ports = [port for port, asking in asked if await self._has_released(port, asking)]

    async def _has_released(self, port: PartitionPort, asked: Iterable[tuple[int, Reply | None]]) -> bool:
        """Wait until a partition has; False when there is nothing more to be asked of it."""
        try:
            for consumer, asking in asked:
                try:
                    await _answered(port, partial(c.ReleaseConsumer, self._group_id, consumer), asking)
                except PartitionUnavailable:
                    self._membership.missed_departure(self._group_id, port)
        except ActorStopped:
            return False  # the topic is deleted
        except InternalError:
            raise
        except CallboardError as error:
            self.context.emit(LeaseReleaseFailed(self._name, str(error)))
            return False
        return True

    # -- what the catalog hears

    def _set_idle(self, since_us: int | None) -> None:
        self._idle_since_us = since_us
        self._noticed_us = None
        self._is_over = False
        self._is_kept_reported = self._is_kept_reported and since_us is not None
        self._membership.changed.set()
        self._news.set()

    def _end(self) -> None:
        self._is_over = True
        self._news.set()

    async def _tell_catalog(self) -> None:
        """Tell the catalog the latest, and again until it is stored; the group's own loop does not wait."""
        catalog, group_id, membership = self.context.actor(CATALOG), self._group_id, self._membership
        while True:
            await self._news.wait()
            self._news = trio.Event()
            try:
                if membership.settings.durable and membership.ending is None:
                    await catalog.ask(GroupIdle(group_id, self._idle_since_us, self._noticed_us))
                if self._is_over and not membership.members:
                    membership.close(EndGroup(group_id, self._expired_after))
                self._is_over = False
                if membership.ending is not None:
                    kept = await catalog.ask(membership.ending)
                    if kept is None:
                        continue  # the group has ended: the catalog stops its coordinator
                    membership.reopen()
                    if kept:
                        self._is_kept(kept)
            except ActorStopped:
                return
            except InternalError:
                raise
            except CallboardError:
                self._is_over = self._is_over or membership.ending is not None
                membership.reopen()
                self._news.set()
                await self._timers.sleep(RETRY_S)

    async def _end_unless_joined(self) -> None:
        await self._timers.sleep(UNJOINED_S)
        if not self._membership.members:
            self._end()

    async def _expire_when_idle(self) -> None:
        membership, clock = self._membership, self.context.clock
        if not membership.settings.durable:
            return
        begun, used_before_s = clock.monotonic(), self._used_grace_s
        with self._timers.timer(membership.changed) as timer:
            while True:
                now, left_s, expiry = clock.monotonic(), math.inf, membership.settings.group_expiry
                if expiry is not None and self._idle_since_us is not None:
                    left_s = self._left_s(expiry, self._idle_since_us, now - begun, used_before_s)
                    if now + left_s <= now:  # also when so little is left that the clock cannot tell it
                        self._expired_after = expiry
                        self._end()
                        left_s = math.inf
                timer.arm(now + left_s)
                await membership.changed.wait()

    def _left_s(self, expiry: float, idle_since_us: int, opened_s: float, used_before_s: float) -> float:
        """In how many seconds an idle group expires, or is looked at again because its grace is not used up.

        It could be joined for `opened_s` seconds in this opening, and for `used_before_s` of its grace before.
        """
        now_us, grace_s = self.context.clock.wall_us(), min(expiry, EXPIRY_GRACE_S)
        left_s = expiry - (now_us - self._believed_since(idle_since_us, now_us)) / 1e6
        used_s = min(used_before_s, self._used_grace_s) + opened_s
        if left_s <= 0 < grace_s - used_s:
            return min(grace_s - used_s, self._use_grace(used_s, min(GRACE_STEP_S, grace_s / GRACE_STEPS)))
        if left_s > 0 and self._used_grace_s:  # by a clock that was ahead
            self._noticed_us, used_s = idle_since_us, opened_s
            self._news.set()
        return max(left_s, grace_s - used_s)

    @property
    def _used_grace_s(self) -> float:
        """How long the group could be joined, as far as the catalog has heard of it, since it was to expire."""
        since_us, noticed_us = self._idle_since_us, self._noticed_us
        return 0.0 if since_us is None or noticed_us is None else max(0, noticed_us - since_us) / 1e6

    def _use_grace(self, used_s: float, step_s: float) -> float:
        """So much of the grace is used: have the catalog keep that, and a step more; in how long to say it again."""
        since_us = self._idle_since_us
        is_ahead_noticed = (
            since_us is not None and self._noticed_us is not None and self._noticed_us < since_us
        )
        if since_us is not None and not is_ahead_noticed and self._used_grace_s < used_s + step_s / 2:
            self._noticed_us = since_us + round((used_s + step_s) * 1e6)
            self._news.set()
        return step_s

    def _believed_since(self, idle_since_us: int, now_us: int) -> int:
        """Since when the group is idle. The catalog keeps what is noticed: else each opening would notice it anew."""
        since_us = self._stamps.believed(idle_since_us, now_us)
        if is_ahead(idle_since_us, now_us) and since_us != self._noticed_us:
            self._noticed_us = since_us
            self._news.set()
        return since_us

    def _is_kept(self, dead_letters: int) -> None:
        """The group does not expire, because of these. That is reported once, and looked at again."""
        if not self._is_kept_reported:
            self._is_kept_reported = True
            self.context.emit(GroupKept(self._name, self._expired_after or 0.0, dead_letters))
        if not self._looks_again:
            self._looks_again = True
            self.context.start_task(self._look_again, name="kept")

    async def _look_again(self) -> None:
        await self._timers.sleep(KEPT_LOOK_S)
        self._looks_again = False
        self._membership.changed.set()


async def _answer_within(
    patience_s: float, work: Callable[[], Awaitable[None]], reply: Reply | None, answer: Callable[[], object]
) -> None:
    """Do the work to its end; answer with what `answer` makes when it is done, or after `patience_s`."""
    is_done = trio.Event()

    async def do_work() -> None:
        await work()
        is_done.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(do_work)
        with trio.move_on_after(patience_s):
            await is_done.wait()
        if reply is not None and not reply.done:
            reply.answer(answer())


def _nothing(_asked: object = None) -> None:
    """The answer to what is only done."""


def _is_settled(asking: Reply | None) -> bool:
    """Whether a partition has answered that there is nothing for the group that was opened."""
    if asking is None or not asking.has_answer:
        return False
    with suppress(CallboardError):
        opened: c.GroupOpened = asking.value()
        return not opened.has_unsettled
    return False


def _asked(port: PartitionPort, command: GroupQuestion) -> Reply | None:
    """Ask without waiting, so that what is asked of a partition stays in order; None when it takes nothing now."""
    try:
        return port.ref.ask_nowait(command)
    except CallboardError:
        return None


async def _answered(port: PartitionPort, command: Callable[[], GroupQuestion], reply: Reply | None) -> None:
    """Wait for the answer, asking again (these commands may be repeated) while the partition restarts.

    Raises PartitionUnavailable when it has failed.
    """
    while True:
        try:
            if reply is None:
                await port.ref.ask(command())
            elif reply.done:
                reply.value()  # no pass of the loop for each of a thousand that have answered together
            else:
                await reply.settled()
        except (ActorCrashed, MailboxFull):
            reply = None
        else:
            return
