"""The inside of a consumer: one member of a group, which fetches messages of one topic or several.

`Consumer` is its public face. It holds no task of its own. It asks the partitions that have, or may have, something
ready, and waits for their notices; leases are asked for only when the caller wants messages. Topics take turns, and so
do the partitions of each. One lease covers a few messages of one-by-one iteration, or a few batches: more as long as
the caller is quick. What a slow handler leaves lying is given back for others to do.

Several tasks may share a consumer: they take turns at fetching.

That loop is in this class. The rest is in its parts, each of which alone writes what it is about:

``leases``       what is in flight, and how it is settled without being awaited
``settlements``  acks and the other ends of messages
``member``       the consumer's membership of its group, and what it may read
``topics``       the topics that it reads
``turns``        which partition is asked next, and the notices of the others
``questions``    what partitions were asked for, and has not been taken yet
``fetched``      what was fetched, and not handed over yet
``pace``         how quick the caller is

Invariants
----------
FE1  A message that was fetched is not taken yet, in the caller's hands, or given back; a cancelled call loses none. A
     question that a call gave up waiting for is the next call's.
FE2  What the caller holds unsettled never exceeds `max_in_flight`, leases that ran out not counted.
FE3  Only one task fetches at a time.
FE4  What was fetched and not handed over is given back when its lease is half over, whatever the caller does: no
     attempt counts for a message that no program saw, and none is held up for longer that others could have.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from operator import is_
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, overload

import trio

from callboard.actors.clients.port import PartitionPort
from callboard.actors.names import check_name
from callboard.consumer.arguments import patience_of
from callboard.consumer.caller_pace import CallerPace
from callboard.consumer.fetched import FetchedMessages
from callboard.consumer.leases import ConsumerLease, ConsumerLeases
from callboard.consumer.member import GroupMember
from callboard.consumer.messages import ReceivedMessage, messages_of
from callboard.consumer.questions import LATE_S, LeaseQuestions
from callboard.consumer.settlements import Settlements
from callboard.consumer.topics import ReadTopics
from callboard.consumer.turns import PartitionTurns
from callboard.log.errors import (
    ActorStopped,
    CallboardError,
    MailboxFull,
    PartitionUnavailable,
    TopicNotFound,
)
from callboard.message import by_priority

if TYPE_CHECKING:
    from callboard.actors.mirror import MirroredTopic
    from callboard.actors.settings import GroupSettings
    from callboard.actors.topic_patterns import TopicPattern
    from callboard.session import Session


LOOK_S = 0.05
"""How long a consumer that does not want to wait allows the partitions for their answers."""


class Fetcher:
    """A member of a group, entered and left with `async with`. Tasks may share it."""

    def __init__(
        self,
        session: Session,
        lives: Sequence[MirroredTopic],
        group: str,
        given: Mapping[str, Any],
        name: str | None = None,
        pattern: TopicPattern | None = None,
    ) -> None:
        self.group = check_name(group, "group")
        self.session = session
        self._clock = session.clock
        self.leases = leases = ConsumerLeases(session, self.group, lambda: self.let_go())
        self.settlements = Settlements(leases)
        self.lazy_acks = self.settlements.lazy_acks
        self.member = member = GroupMember(session, leases, given, name, pattern)
        self.turns = PartitionTurns(leases, member)
        self.topics = ReadTopics(session, leases, member, self.turns, lives)
        self.questions = LeaseQuestions(
            session, leases, member, self.turns, lambda stale_at: self.fetched.watch(stale_at)
        )
        self.fetched = FetchedMessages(session, leases, member, self.questions, lambda: self.let_go())
        self.is_fresh = self.fetched.is_fresh
        self.give_back_fetched = self.fetched.give_back
        self.give_back_stale = self.fetched.give_back_stale
        self.let_go: Callable[[], object] = self.give_back_stale
        """Called when it may no longer read some partition, or any."""
        self.pace = CallerPace(session.clock, session.limits)
        self.lock = trio.Lock()
        """Held by the task that fetches (FE3)."""
        self._is_single = False
        """It reads one partition alone."""
        self._answers = 0
        """How many were taken."""

    def __repr__(self) -> str:
        return f"<Consumer of {self.topics} in group {self.group!r}>"

    @property
    def name(self) -> str | None:
        """See `Consumer.name`."""
        return self.member.name

    @property
    def settings(self) -> GroupSettings:
        """See `Consumer.settings`."""
        return self.member.settings

    @property
    def is_draining(self) -> bool:
        """See `Consumer.is_draining`."""
        return self.member.is_draining

    @property
    def assigned(self) -> tuple[tuple[str, int], ...]:
        """See `Consumer.assigned`."""
        return self.topics.places() if self.member.is_open else ()

    # -- joining and leaving

    async def __aenter__(self) -> Self:
        member, lives = self.member, self.topics.lives
        member.use()
        for live in lives:
            if live.deleted:
                raise TopicNotFound(f"topic {live.name!r} was deleted.", topic=live.name)
        await member.admit(tuple([live.name for live in lives]), self._look_again, self._activity)
        try:
            await self.topics.join()
        except BaseException:
            member.end()
            member.participation.depart()
            raise
        self._is_single = member.pattern is None and len(self.topics.ports()) == 1
        self.topics.begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.session.check_run()
        participation = self.member.participation
        self.member.end()
        self.turns.awaited.close()
        self.fetched.end()
        self.leases.end()
        self.fetched.drop()
        if error is not None:
            if not self.lazy_acks.send():
                # A mailbox has no room: the acks come before the release of what is leased, unless that takes long.
                scope = trio.CancelScope(deadline=trio.current_time() + LATE_S, shield=True)
                with scope, suppress(CallboardError):
                    await self.lazy_acks.send_waiting()
            participation.depart()
            await trio.lowlevel.cancel_shielded_checkpoint()
            return
        try:
            await self.lazy_acks.flush(is_leaving=True)
            await self.member.leave()
            participation.close()
        except BaseException:
            participation.depart()
            raise

    def _look_again(self) -> None:
        """The coordinator has news: what sleeps looks at every partition again, and takes them."""
        self.member.take_settings()
        if self.member.is_outdated:
            self.fetched.drop()
            self.leases.forget()
        self.topics.follow()
        if self.member.participation.assigned is not None or self.settings.paused:
            self._let_go_of_unread()
        self.topics.look_again()

    def _let_go_of_unread(self) -> None:
        """Let go of partitions that are another's from now on, and of all while the group is paused: give back what the
        caller has not taken, at once.

        What the caller has in hand stays in its hands.
        """
        self.questions.give_up_unread()
        self.let_go()
        for port in self.member.take_ended():
            self.leases.forget_where(partial(is_, port))
            self.session.renewed_leases.lose(self.leases, port)

    def _activity(self) -> tuple[int, int] | None:
        """What shows whether it has stalled; None while a call, or a body that holds a lease, goes on."""
        if self.lock.locked() or self.session.renewed_leases.has_any(self.leases):
            return None
        return self._answers + self.leases.loop_pass.steps, self.leases.in_flight

    def drain(self) -> None:
        """See `Consumer.drain`."""
        self.member.drain()
        if self.member.is_open:
            self.fetched.give_back()
            for port in self.topics.ports():
                self.turns.awaited.noticed(port)
                self.leases.noticed(port)

    def check_open(self) -> None:
        """Raise unless it is entered, and the runtime is open."""
        self.member.check_open()

    async def flush(self) -> None:
        """See `Consumer.flush`."""
        self.check_open()
        await self.lazy_acks.flush()

    # -- one by one

    @overload
    async def get(self, *, timeout: None = None) -> ReceivedMessage: ...
    @overload
    async def get(self, *, timeout: float | None) -> ReceivedMessage | None: ...
    async def get(self, *, timeout: float | None = None) -> ReceivedMessage | None:
        """See `Consumer.get`."""
        until = math.inf
        if timeout is not None and (patience_s := patience_of(timeout)) is not None:
            until = trio.current_time() + patience_s
        self.session.check_open()
        member, fetched = self.member, self.fetched
        if member.is_draining or not member.is_open:
            member.check_taking()
        while True:
            if fetched.buffer:
                await self.leases.loop_pass.step()
            else:
                if self.lock.locked():  # another task fetches (FE3)
                    with trio.move_on_at(until) as waiting:
                        await self.lock.acquire()
                    if waiting.cancelled_caught:
                        return None
                else:
                    self.lock.acquire_nowait()
                try:
                    if not fetched.buffer:
                        lease = fetched.untaken or await self.first(1, until)
                        if lease is None:
                            return None
                        fetched.take_untaken()
                        messages = messages_of(self.settlements, lease)
                        if self.topics.have_priorities:
                            messages = by_priority(
                                messages, self.settings.starvation_after, self._clock.wall_us()
                            )
                        fetched.put(messages)
                finally:
                    self.lock.release()
            # From here on there is no checkpoint (FE1).
            if (message := fetched.take()) is not None:
                return message

    # -- fetching

    async def first(self, unit: int, until: float) -> ConsumerLease | None:
        """Lease what comes next for a caller that takes `unit` at a time; None when nothing was ready by `until`.

        The partitions have `LOOK_S` for their answers, even when `until` is over.
        """
        if until == math.inf:
            return await self._fetch(unit, until)
        with trio.move_on_at(max(until, trio.current_time() + LOOK_S)):
            return await self._fetch(unit, until)
        return None

    async def _fetch(self, unit: int, until: float) -> ConsumerLease | None:
        if self.lazy_acks.gathered:
            self.lazy_acks.send()
        is_early = self.questions.asked is not None  # by an earlier call
        while True:
            self.member.check_taking()
            self.topics.leave_deleted()
            if self.member.is_outdated:
                await self.topics.join()
            if self.questions.asked is None:
                is_early = False
                self.turns.look_at_noticed()
                if not await self.ask(unit):
                    with trio.move_on_at(until) as waiting:
                        if self.leases.room() <= 0:
                            self.questions.give_up_late(list(self.questions.late))
                            await self.leases.wait_for_room([live.ports[0] for live in self.topics.lives])
                        else:
                            await self.topics.check_any_available()
                            await self.turns.awaited.wait()
                    if waiting.cancelled_caught:
                        return None
                    continue
            lease = await self.answer()
            if lease is not None:
                if self.fetched.is_wanted(lease) and (not is_early or self.fetched.is_fresh(lease)):
                    return lease
                self.leases.give_back([lease.take(lease.untaken)])

    async def ask(self, unit: int, port: PartitionPort | None = None, *, can_wait: bool = True) -> bool:
        """Ask `port` for a unit, or the partition whose turn it is for as many as one lease is to cover.

        False when there is no partition to ask, or no room for anything. The question outlasts the call that asks it
        (FE1).
        """
        questions, pace = self.questions, self.pace
        ahead: list[PartitionPort] = []
        room = questions.room()
        if port is not None:
            limit = min(unit, room)
        else:
            pace.asks_again(unit, self.settings)
            turns = self.turns.next(pace.ahead if unit > 1 else 1)
            port, ahead = (turns[0], turns[1:]) if turns else (None, [])
            limit = (
                min(unit, room)
                if ahead
                else min(unit * min(pace.units, pace.units_max), room if room < unit else room // unit * unit)
            )
        if port is None or (limit <= 0 and port not in questions.late):
            return False
        if port in questions.late:
            if can_wait:
                questions.take_late(port)
        else:
            try:
                try:
                    questions.ask_nowait(port, limit)
                except MailboxFull:
                    if not can_wait:
                        return False
                    if not await questions.ask(port, limit, math.inf if self._is_single else LATE_S):
                        self.turns.end(port)  # the others come first, then this one again
                        self.turns.look_at([port])
                        return True
            except CallboardError as error:
                if can_wait:
                    await self.topics.refused(port, error)
                return can_wait
        if ahead:
            questions.ask_ahead(ahead, unit)
        return can_wait or questions.asked is not None

    async def answer(self) -> ConsumerLease | None:
        """Wait for what was asked; None when the partition has nothing or refuses, or the answer is not wanted."""
        asked = self.questions.asked
        if asked is None:
            return None
        port = asked.port
        try:
            is_wanted, leased = await self.questions.answer(asked, is_single=self._is_single)
        except CallboardError as error:
            await self.topics.refused(port, error)
            return None
        if not is_wanted:
            return None
        self._answers += 1
        if leased is None:
            await self._await(port)
            self.turns.end(port)
            return None
        lease = self.leases.accept(port, leased)
        if lease is None or lease.untaken >= asked.limit or leased.is_part or not self.turns.awaits(port):
            self.turns.put_last(port)
        if lease is not None:
            now = self._clock.monotonic()
            self.pace.fetched(now)
            self.questions.accepted(lease, asked, now)
            self.fetched.watch(lease.stale_at)
            # Its room may be gone: no room was kept for it while it was late, or a settlement was cut off meanwhile.
            is_unfit = self.questions.room() < 0 or (asked.is_late and not self.is_fresh(lease))
            if lease.deadline <= now or is_unfit:
                self.leases.give_back([lease.take(lease.untaken)])
                return None
        return lease

    async def _await(self, port: PartitionPort) -> None:
        """Have a partition in which nothing was ready say when something is."""
        if self.leases.await_revival(port, self.turns.awaited):
            return
        try:
            await self.turns.ask_to_wait(port)
        except PartitionUnavailable:
            self.turns.awaited.noticed(port)
        except ActorStopped as error:
            await self.topics.refused(port, error)
