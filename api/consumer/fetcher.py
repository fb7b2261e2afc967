"""The inside of a consumer: one member of a group, which fetches messages of one topic or several.

`Consumer` is its public face. It holds no task of its own. It asks the partitions that have, or may have, something
ready, and waits for their notices; leases are asked for only when the caller wants messages. Topics take turns, and so
do the partitions of each. One lease covers a few messages of one-by-one iteration, or a few batches: more as long as
the caller is quick. What a slow handler leaves lying is given back for others to do.

Several tasks may share a consumer: they take turns at fetching.

Invariants
----------
U1  A message that was fetched is not taken yet, in the caller's hands, or given back; a cancelled call loses none. A
    question that a call gave up waiting for is the next call's.
U2  What the caller holds unsettled never exceeds `max_in_flight`, leases that ran out not counted.
U3  Only one task fetches at a time.
U4  What was fetched and not handed over is given back when its lease is half over, whatever the caller does: no
    attempt counts for a message that no program saw, and none is held up for longer that others could have.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, overload

import trio

from callboard.actors.catalog.commands import ConsumerAdmission, EnsureGroup
from callboard.actors.catalog.directory import LiveGroup, LiveTopic
from callboard.actors.groups.assignment import Place
from callboard.actors.groups.commands import Leave
from callboard.actors.groups.participation import Participation
from callboard.actors.kernel import ActorRef, Reply
from callboard.actors.names import check_name
from callboard.actors.partition import commands as c
from callboard.actors.partition.port import PartitionPort
from callboard.actors.settings import GroupSettings, check_group
from callboard.actors.timers.commands import NEVER
from callboard.actors.timing import Callback
from callboard.actors.topic_patterns import TopicPattern
from callboard.consumer.arguments import patience_of
from callboard.consumer.assignment import FollowsAssignment, leased_by
from callboard.consumer.batches import TakesBatches
from callboard.consumer.leases import Asked, ConsumerLease, ConsumerLeases, LeasedPart
from callboard.consumer.messages import ReceivedMessage, messages_of
from callboard.consumer.notices import AwaitedPartitions
from callboard.consumer.settlements import Settlements
from callboard.consumer.topics import FollowsTopics
from callboard.log.errors import (
    ActorCrashed,
    ActorStopped,
    CallboardError,
    ConsumerDrained,
    InvalidArgument,
    MailboxFull,
    PartitionUnavailable,
    RuntimeClosed,
    TopicNotFound,
)
from callboard.message import by_priority

if TYPE_CHECKING:
    from callboard.session import Session


PASS_MESSAGES = 64
PASS_S = 0.001
"""Yield to other tasks after this many buffered messages, and after this many seconds."""
LATE_S = 0.02
"""How long a consumer waits for the answer of one partition before it asks others."""
LOOK_S = 0.05
"""How long a consumer that does not want to wait allows the partitions for their answers."""


class Fetcher(TakesBatches, FollowsTopics, FollowsAssignment):
    """A member of a group, entered and left with `async with`. Tasks may share it."""

    def __init__(
        self,
        session: Session,
        lives: Sequence[LiveTopic],
        group: str,
        given: Mapping[str, Any],
        name: str | None = None,
        pattern: TopicPattern | None = None,
    ) -> None:
        self.group = check_name(group, "group")
        self.pattern = pattern
        """Which topics it reads, if they are not named."""
        self.name = None if name is None else check_name(name, "consumer")
        """Display name, which stands beside the consumer's id in `Runtime.groups`."""
        self.settings = GroupSettings()
        self.session = session
        self.leases = ConsumerLeases(session, self.group, lambda: self.let_go())
        self.settlements = Settlements(self.leases)
        self.lazy_acks = self.settlements.lazy_acks
        self._lives = list(lives)
        for live in lives:
            self.leases.begin_with(live)
        self._given = given
        self._entered = False
        self._id = 0
        self._coordinator: ActorRef[Any]
        self._live_group: LiveGroup
        self._participation: Participation
        self._generation = 1
        self._awaited = AwaitedPartitions[PartitionPort](lambda: self.leases.in_flight)
        self._places = {port: (live.topic_id, port.index) for live in lives for port in live.ports}
        self.let_go: Callable[[], object] = self.give_back_stale
        """Called when it may no longer read some partition."""
        self._turns: dict[str, dict[PartitionPort, None]] = {}
        """Partitions that have, or may have, something ready, by topic; the first of the first topic is next."""
        self._buffer: deque[ReceivedMessage] = deque()
        """Messages that were fetched for one-by-one iteration."""
        self._untaken: ConsumerLease | None = None
        """A lease of which batches are left."""
        self._filling: list[LeasedPart] = []
        """What the batch has that is being filled."""
        self._stale = session.timers.timer(Callback(self._look_for_stale))
        """Comes when the first lease of which something may not be handed over is half over (U4)."""
        self._turn = trio.Lock()
        self._asked: Asked | None = None
        """The question that is under way (U1)."""
        self._settled = frozenset[Place]()
        """Partitions that had nothing for the group when it was joined."""
        self._late: dict[PartitionPort, Asked] = {}
        """Questions that were not answered for a while: meanwhile other partitions are asked."""
        self._is_single = False
        """It reads one partition alone."""
        self._units = 1
        """What the caller takes at a time, a message or a batch: how often a lease covers that."""
        self._ahead = 1
        """How many partitions are asked at a time for batches."""
        self._messages_in_pass = 0
        self._acts = 0
        """How often something was fetched or taken."""
        self._pass_until = 0.0
        self._fetched_at: float | None = None
        self._lease_s = math.inf
        """How long the last lease lasted from when it was asked for."""
        self._given_at: float | None = None
        """When the last batch was handed over."""
        self._took_s = math.inf
        """How long the caller was busy with a batch, the last time."""
        self._open = False
        self.is_draining = False
        """Whether `drain` was called: it takes no further message."""
        self._follows = False
        """What it reads may change: the group is of a pattern, or exclusive."""
        self._has_priorities = any(live.settings.priorities for live in lives)

    def __repr__(self) -> str:
        read = ", ".join(repr(live.name) for live in self._lives)
        return f"<Consumer of {read if self.pattern is None else self.pattern.words} in group {self.group!r}>"

    @property
    def assigned(self) -> tuple[tuple[str, int], ...]:
        """In an exclusive group: the partitions that are this consumer's now, as (topic, partition), sorted."""
        if not self._open:
            return ()
        names = {live.topic_id: live.name for live in self._lives}
        places = self._participation.handed_over
        return tuple(sorted((names[topic_id], index) for topic_id, index in places if topic_id in names))

    # -- joining and leaving

    async def __aenter__(self) -> Self:
        if self._entered:
            raise InvalidArgument("a consumer is entered once. Subscribe again.")
        self._entered = True
        for live in self._lives:
            if live.deleted:
                raise TopicNotFound(f"topic {live.name!r} was deleted.", topic=live.name)
        names = tuple(live.name for live in self._lives)
        admission: ConsumerAdmission = await self.session.ask_catalog(
            EnsureGroup(self.group, names, check_group(self.group, self._given), self.pattern)
        )
        group = self.session.group_of_id(admission.group_id, self.group)
        self._id, self._live_group, self._coordinator = admission.consumer, group, group.ref
        self._participation = Participation(group.ref, self._id, self._look_again, self._activity)
        self._participation.open()
        self._open = True
        try:
            await self._join()
        except BaseException:
            self._open = False
            self._participation.depart()
            raise
        self._follows = self.pattern is not None or self.settings.mode == "exclusive"
        self._is_single = self.pattern is None and sum(len(live.ports) for live in self._lives) == 1
        for live in self._lives:
            self._begin_with(live)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.session.check_run()
        self._open = False
        self._awaited.close()
        self._stale.cancel()
        self.give_back_fetched()  # before its leases can run out: a task that leaves may have computed for long (U4)
        self.leases.end()
        self._drop_fetched()
        if error is not None:
            if not self.lazy_acks.send():
                # A mailbox has no room: the acks come before the release of what is leased, unless that takes long.
                scope = trio.CancelScope(deadline=trio.current_time() + LATE_S, shield=True)
                with scope, suppress(CallboardError):
                    await self.lazy_acks.send_waiting()
            self._participation.depart()
            await trio.lowlevel.cancel_shielded_checkpoint()
            return
        try:
            await self.lazy_acks.flush(is_leaving=True)
            await self._leave()
            self._participation.close()
        except BaseException:
            self._participation.depart()
            raise

    def _take_settings(self) -> None:
        self.settings = self._participation.settings
        self.leases.alter(self.settings.max_in_flight)

    def _look_again(self) -> None:
        """The coordinator has news: what sleeps looks at every partition again, and takes them."""
        self._take_settings()
        if self._participation.generation > self._generation:
            self._drop_fetched()
            self.leases.forget()
        self._follow_topics()
        if self._participation.assigned is not None:
            self._follow_assignment()
        for live in self._lives:
            for port in live.ports:
                self._awaited.noticed(port)

    def _drop_fetched(self) -> None:
        """What was fetched, or is being, is no longer this consumer's: the partitions release it."""
        self._buffer.clear()
        self._untaken = None
        asked, self._asked = self._asked, None
        if asked is not None:
            asked.reply.expire()  # a task that waits for it asks anew, or hears that the consumer is closed
            asked.reply.abandon()
        for late in self._late.values():
            late.reply.abandon()
        self._late.clear()

    async def _leave(self) -> None:
        """Leave, and wait until the leases are released; for partitions that do not answer, 5 s at most."""
        while True:
            try:
                await self._coordinator.ask(Leave(self._id))
            except ActorCrashed:
                continue
            except ActorStopped:
                pass  # the group is deleted, or the runtime closes
            return

    def drain(self) -> None:
        """See `Consumer.drain`."""
        self.is_draining = True
        if self._open:
            self.give_back_fetched()
            for live in self._lives:
                for port in live.ports:
                    self._awaited.noticed(port)
                    self.leases.noticed(port)

    def check_open(self) -> None:
        """Raise unless it is entered, and the runtime is open."""
        self.session.check_open()
        if not self._open:
            raise self._closed()

    def _check_taking(self) -> None:
        """Raise unless further messages may be taken."""
        if not self._open:
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
        timeout = patience_of(timeout)
        until = math.inf if timeout is None else trio.current_time() + timeout
        self.session.check_open()
        if self.is_draining or not self._open:
            self._check_taking()
        while True:
            if self._buffer:
                await self._pass()
            else:
                if self._turn.locked():  # another task fetches (U3)
                    with trio.move_on_at(until) as waiting:
                        await self._turn.acquire()
                    if waiting.cancelled_caught:
                        return None
                else:
                    self._turn.acquire_nowait()
                try:
                    if not self._buffer:
                        lease = self._untaken
                        if lease is None:
                            lease = await self._first(1, until)
                        if lease is None:
                            return None
                        self._untaken = None
                        self._buffer += self._in_order(messages_of(self.settlements, lease))
                finally:
                    self._turn.release()
            # From here on there is no checkpoint (U1).
            if buffer := self._buffer:
                if self.is_fresh(buffer[0].lease):
                    return buffer.popleft()
                self.give_back_buffer()

    async def _first(self, unit: int, until: float) -> ConsumerLease | None:
        """As `_fetch`; but the partitions have `LOOK_S` for their answers, even when `until` is over."""
        if until == math.inf:
            return await self._fetch(unit, until)
        with trio.move_on_at(max(until, trio.current_time() + LOOK_S)):
            return await self._fetch(unit, until)
        return None

    def _in_order(self, messages: list[ReceivedMessage]) -> list[ReceivedMessage]:
        """Messages of one lease in the order in which they are handed over."""
        if not self._has_priorities:
            return messages
        return by_priority(messages, self.settings.starvation_after, self.session.clock.wall_us())

    async def _pass(self) -> None:
        """A checkpoint for cancellation, and one that lets other tasks run unless they have run a moment ago."""
        self._messages_in_pass += 1
        self._acts += 1
        if self.leases.has_waited:
            await trio.lowlevel.checkpoint_if_cancelled()
        elif self._messages_in_pass < PASS_MESSAGES and self.session.clock.monotonic() < self._pass_until:
            await trio.lowlevel.checkpoint_if_cancelled()
            return
        else:
            await trio.lowlevel.checkpoint()
        self.leases.looked()
        self._messages_in_pass = 0
        self._pass_until = self.session.clock.monotonic() + PASS_S

    def give_back_buffer(self) -> None:
        """Release what was fetched and not yet asked for."""
        messages, self._buffer = self._buffer, deque()
        self.leases.give_back_messages(messages)
        lease, self._untaken = self._untaken, None
        if lease is not None:
            self.leases.give_back([lease.take(lease.untaken)])

    def give_back_fetched(self) -> None:
        """As `give_back_buffer`, with answers that were not taken."""
        self.give_back_buffer()
        self._give_back_answers(math.inf)

    def give_back_stale(self) -> None:
        """As `give_back_fetched`, what is not fresh of it (U4)."""
        lease = self._buffer[0].lease if self._buffer else self._untaken
        if lease is not None and not self.is_fresh(lease):
            self.give_back_buffer()
        if self._filling:
            self._drop_stale(self._filling)
        self._give_back_answers(self.session.clock.monotonic())

    def _give_back_answers(self, now: float) -> None:
        """Give back what was answered, and is stale by `now`."""
        asked = self._asked
        if asked is not None and self._answer_stale_at(asked) <= now:
            self._give_up_asked()
        self._give_up_late([port for port, late in self._late.items() if self._answer_stale_at(late) <= now])

    def _answer_stale_at(self, asked: Asked) -> float:
        """When the lease that was answered is half over; never, if there is none."""
        leased = leased_by(asked.reply)
        return NEVER if leased is None else leased.deadline - self._lasts_s() / 2

    def _answered(self, port: PartitionPort) -> None:
        """A partition has answered while no task waits for that."""
        asked = self._late.get(port, self._asked)
        if asked is not None:
            self._watch(self._answer_stale_at(asked))
            if asked.is_late:
                self._awaited.noticed(port)

    def _watch(self, stale_at: float) -> None:
        """Have the timer come then, or before."""
        if stale_at < self._stale.deadline:
            self._stale.arm(stale_at)

    def _look_for_stale(self) -> None:
        """The timer has come."""
        if self._stale.has_come():
            self.let_go()
            answers = [*self._late.values(), *([] if self._asked is None else [self._asked])]
            first = self.leases.next_stale(self.session.clock.monotonic())
            self._watch(min([first, *map(self._answer_stale_at, answers)]))

    # -- fetching

    def is_fresh(self, lease: ConsumerLease) -> bool:
        """Whether at least half of it is left, nothing in it has expired, and the topic is there."""
        port = lease.port  # every message comes this way: no call without need
        if self._follows and not self._reads(port):
            return False
        if (port.is_deleted or lease.account.ended_some) and lease.is_outdated(self.leases.group_id):
            return False
        if lease.expires_us is not None and lease.expires_us <= self.session.clock.wall_us():
            return False  # its partition settles what has expired, and gives the rest once more
        return self.session.clock.monotonic() < lease.stale_at

    def _lasts_s(self) -> float:
        """How long leases last: while the timeout is altered, partitions know of it before consumers do."""
        return min(self.settings.visibility_timeout, self._lease_s)

    def _look_at(self, ports: Iterable[PartitionPort]) -> None:
        """These partitions may have something ready: they come last."""
        for port in ports:
            if self._reads(port):
                self._turns.setdefault(port.topic, {})[port] = None

    async def _fetch(self, unit: int, until: float) -> ConsumerLease | None:
        """Lease what comes next for a caller that takes `unit` at a time; None when nothing was ready by `until`."""
        if self.lazy_acks.gathered:
            self.lazy_acks.send()
        is_early = self._asked is not None  # by an earlier call
        while True:
            self._check_taking()
            for live in [live for live in self._lives if live.deleted]:
                self._leave_topic(live)
            if self._participation.generation > self._generation:
                await self._join()
            if self._asked is None:
                is_early = False
                if self._awaited.ready:
                    self._look_at(self._awaited.take())
                if not await self._ask(unit):
                    with trio.move_on_at(until) as waiting:
                        if self.leases.room() <= 0:
                            self._give_up_late(list(self._late))
                            await self.leases.wait_for_room([live.ports[0] for live in self._lives])
                        else:
                            await self._check_any_available()
                            await self._awaited.wait()
                    if waiting.cancelled_caught:
                        return None
                    continue
            lease = await self._answer()
            if lease is not None:
                if self._is_wanted(lease) and (not is_early or self.is_fresh(lease)):
                    return lease
                self.leases.give_back([lease.take(lease.untaken)])

    def _is_wanted(self, lease: ConsumerLease) -> bool:
        """Whether what was leased may still be handed over."""
        is_open = self._open and not self.is_draining
        return is_open and not lease.is_outdated(self.leases.group_id) and self._reads(lease.port)

    async def _ask(self, unit: int, port: PartitionPort | None = None, *, can_wait: bool = True) -> bool:
        """Ask `port` for a unit, or the partition whose turn it is for as many as one lease is to cover.

        False when there is no partition to ask, or no room for anything. The question outlasts the call that asks it
        (U1).
        """
        leases, limits = self.leases, self.session.limits
        ahead: list[PartitionPort] = []
        room = self._unasked_room()
        if port is not None:
            limit = min(unit, room)
        else:
            if self._fetched_at is not None:
                # More if the caller has quickly taken the last one, a single one if not.
                taken_s, self._fetched_at = self.session.clock.monotonic() - self._fetched_at, None
                if unit > 1:
                    taken_s = max(taken_s, self._took_s)
                is_quick = taken_s < min(0.1, self.settings.visibility_timeout / 8)
                self._units = 2 * self._units if is_quick else 1
                self._ahead = min(2 * self._ahead, limits.leased_batches) if is_quick and unit > 1 else 1
            most = limits.prefetch
            if unit > 1:
                most = max(1, min(limits.leased_batches, leases.max_in_flight // 4 // unit))
            self._units = min(self._units, most)
            turns = self._next_turns(self._ahead if unit > 1 else 1)
            port, ahead = (turns[0], turns[1:]) if turns else (None, [])
            if port in self._late:
                room += self._late[port].limit
            limit = (
                min(unit, room)
                if ahead
                else min(unit * self._units, room if room < unit else room // unit * unit)
            )
        if port is None or (limit <= 0 and port not in self._late):
            return False
        if port in self._late:
            if can_wait:
                self._asked = self._late.pop(port)
        else:
            try:
                try:
                    self._asked = self._question(port, limit)
                except MailboxFull:
                    if not can_wait:
                        return False
                    asked = self._prepared(port, port.ref.question(), limit)
                    with trio.move_on_after(math.inf if self._is_single else LATE_S) as waiting:
                        await port.ref.send(self._fetching(limit), asked.reply)
                    if waiting.cancelled_caught:  # the others come first, then this one again
                        self._end_turn(port)
                        self._look_at([port])
                        return True
                    self._asked = asked
            except CallboardError as error:
                if can_wait:
                    await self._refused(port, error)
                return can_wait
        if ahead:
            self._ask_ahead(ahead, unit, self._unasked_room())
        return can_wait or self._asked is not None

    def _unasked_room(self) -> int:
        """How many more messages partitions may be asked for: what they have been asked for has its room."""
        asked = 0 if self._asked is None else self._asked.limit
        return self.leases.room() - asked - sum([each.limit for each in self._late.values()])

    def _ask_ahead(self, ports: Iterable[PartitionPort], unit: int, room: int) -> None:
        """Ask those whose turns come next, as far as there is room for what they are asked for."""
        limit = max(1, min(unit, self.leases.max_in_flight // 4 // self.session.limits.leased_batches))
        for port in ports:
            if port not in self._late and room >= limit:
                with suppress(CallboardError):  # it is asked again in its turn
                    self._late[port] = self._question(port, limit)
                    room -= limit

    def _next_turns(self, most: int) -> list[PartitionPort]:
        """The partitions whose turns are next."""
        found: list[PartitionPort] = []
        rows = [iter(ports) for ports in self._turns.values()]
        while rows and len(found) < most:
            nexts = [next(row, None) for row in rows]
            found += [port for port in nexts if port is not None]
            rows = [row for row, port in zip(rows, nexts, strict=True) if port is not None]
        return found[:most]

    def _fetching(self, limit: int) -> c.Fetch:
        limits = self.session.limits
        return c.Fetch(self.leases.group_id, self._id, limit, limits.fetch_bytes, self._generation, self.name)

    def _question(self, port: PartitionPort, limit: int) -> Asked:
        """Ask for so many. Raises as `ask_nowait`."""
        return self._prepared(port, port.ref.ask_nowait(self._fetching(limit)), limit)

    def _prepared(self, port: PartitionPort, reply: Reply, limit: int) -> Asked:
        reply.is_kept = True
        reply.unawaited = partial(self._answered, port)
        return Asked(port, reply, self.session.clock.monotonic(), limit)

    async def _answer(self) -> ConsumerLease | None:
        """Wait for what was asked; None when the partition has nothing or refuses, or the answer is not wanted."""
        asked = self._asked
        if asked is None:
            return None
        port, reply, asked_at, limit, is_late = asked
        try:
            if self._is_single or reply.done:
                leased: c.LeasedRecords | None = await reply.settled()
            else:
                with trio.move_on_after(LATE_S) as waiting:
                    leased = await reply.settled()
                if waiting.cancelled_caught:
                    if self._asked is not asked:
                        return None
                    if not reply.done:
                        self._set_aside(asked)
                        return None
                    leased = reply.value()  # it came in the same moment
        except CallboardError as error:
            if self._asked is not asked:
                return None
            self._asked = None
            await self._refused(port, error)
            return None
        if self._asked is not asked:
            return None
        self._asked = None
        self._acts += 1
        if leased is None:
            await self._await(port)
            self._end_turn(port)
            return None
        lease = self.leases.accept(port, leased)
        if lease is None or lease.untaken >= limit or leased.is_part or not self._awaits(port):
            ports = self._turns.pop(port.topic, {})
            ports.pop(port, None)
            ports[port] = None
            self._turns[port.topic] = ports
        if lease is not None:
            self._fetched_at = now = self.session.clock.monotonic()
            if not is_late:
                self._lease_s = lease.deadline - asked_at
            lease.stale_at = lease.deadline - self._lasts_s() / 2
            self._watch(lease.stale_at)
            if lease.deadline <= now or (is_late and (self.leases.room() < 0 or not self.is_fresh(lease))):
                self.leases.give_back([lease.take(lease.untaken)])
                return None
        return lease

    def _set_aside(self, asked: Asked) -> None:
        """The partition does not answer for now: it is looked at again when it does."""
        self._asked = None
        self._late[asked.port] = asked._replace(is_late=True, limit=0)
        self._end_turn(asked.port)

    def _awaits(self, port: PartitionPort) -> bool:
        """Have a partition that had less than it was asked for say when it has more: no fetch is in vain.

        False when it takes no question now: it is asked in its turn.
        """
        try:
            self._awaited.ask_nowait(port, port.ref, c.WaitForReady(self.leases.group_id, self._id))
        except CallboardError:
            return False
        self._end_turn(port)
        return True

    async def _await(self, port: PartitionPort) -> None:
        """Have a partition in which nothing was ready say when something is."""
        if port.state == "failed":
            port.add_restart_waiter(self._awaited)
            return
        try:
            await self._awaited.ask(port, port.ref, c.WaitForReady(self.leases.group_id, self._id))
        except PartitionUnavailable:
            self._awaited.noticed(port)
        except ActorStopped as error:
            await self._refused(port, error)

    def _end_turn(self, port: PartitionPort) -> None:
        """There is nothing in the partition now."""
        ports = self._turns.get(port.topic)
        if ports is not None:
            ports.pop(port, None)
            if not ports:
                del self._turns[port.topic]
