"""What a consumer receives, and the leases of it: messages and batches that are settled, or whose lease runs out.

`ConsumerLeases` counts what of its leases a consumer has not settled, sends what is settled, and gathers the acks that
are not awaited.

Invariants
----------
H1  `in_flight` is the number of messages that were delivered and neither settled, given back nor, once somebody
    waited for room, found to have run out.
H2  Every `ack(wait=False)` has an outcome: the next `flush` reports it, or leaving the consumer, which says
    nothing of deleted topics.
H3  Such acks are sent at the latest when the consumer fetches, flushes or ends, or `ACK_LINGER_S` have passed. Those of
    one lease that follow each other go as one command, neighbours as one range. None waits for the outcome of another,
    nor for the restart of a partition, unless `lazy_acks` have none.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Final, overload

import trio

from callboard.actors.delivery.receipts import merged
from callboard.actors.kernel import Gathering
from callboard.actors.partition import commands as c
from callboard.actors.partition.beside.outbox_records import Payload
from callboard.actors.partition.port import PartitionPort
from callboard.arguments import check_flag
from callboard.consumer.leases import ConsumerLease, LeasedPart
from callboard.consumer.publishing_acks import AcksWithPublishes, PublishesWithAck, Settled, StagedPublishes
from callboard.consumer.settlements import (
    GatheredAcks,
    SentAck,
    check_nack,
    check_seconds,
    lease_lost,
    without,
)
from callboard.log.errors import (
    ActorCrashed,
    ActorStopped,
    CallboardError,
    InvalidArgument,
    LeaseLost,
    MailboxFull,
    RuntimeClosed,
    TopicNotFound,
)
from callboard.log.format.columns import Columns
from callboard.log.limits import OFFSET_MAX
from callboard.message import ColumnBatch, Record
from callboard.publishing.publisher import publisher_of

if TYPE_CHECKING:
    from callboard.actors.catalog.directory import LiveTopic
    from callboard.actors.partition.account import Account
    from callboard.session import Session


BATCH_PLACE: Final = OFFSET_MAX
"""Behind all offsets."""


class ConsumerLeases(AcksWithPublishes):
    """The leases of one consumer."""

    def __init__(self, session: Session, group: str, let_go: Callable[[], object]) -> None:
        self.accounts: dict[PartitionPort, Account] = {}
        """With the partitions of the topics that it reads."""
        self._let_go = let_go
        """Called when a lease is about to end earlier than was known: what was not handed over goes back before."""
        self.in_flight = 0
        self.max_in_flight = 1
        self.group_id = 0
        self.is_over = False
        """The consumer has left: all that it had leased is released."""
        self.has_waited = False
        """Something was settled, and waited for, since the consumer looked last: other tasks have run meanwhile."""
        self.session = session
        self._group = group
        self._leases: dict[ConsumerLease, None] = {}
        self._freed = trio.Event()
        self.gathered: deque[GatheredAcks] = deque()
        """The last one still grows."""
        self._sent: deque[SentAck] = deque()
        self._collecting = trio.Lock()
        """Held by the task that takes outcomes, so that a flush misses none."""
        self._lost: dict[PartitionPort, list[tuple[int, int]]] = {}
        """Of acks that were not awaited."""
        self._lost_ranges = 0
        self._lost_causes: set[str | None] = set()
        """Why they came too late."""
        self._failed: CallboardError | None = None
        self._unawaited: dict[PartitionPort, Gathering[c.SettleCommand, c.PartitionCommand]] = {}
        """What the partitions are to settle without being awaited: no more than was in flight."""

    def begin_with(self, live: LiveTopic) -> None:
        """The consumer is to read the topic: from now on it hears which leases end there."""
        publisher = publisher_of(live)
        accounts = {port: account for port, account in self.accounts.items() if not port.is_deleted}
        self.accounts = accounts | {port: publisher.account_of(port) for port in live.ports}

    # -- counting

    def accept(self, port: PartitionPort, leased: c.LeasedRecords) -> ConsumerLease | None:
        """Count what was delivered; None when it is nothing, or the topic is gone."""
        count = sum([columns.count for columns in leased.batches])
        account = self.accounts.get(port)
        if count == 0 or account is None:
            return None
        lease = ConsumerLease(account, leased, count)
        self._leases[lease] = None
        self.in_flight += count
        return lease

    def take_messages(self, lease: ConsumerLease) -> list[ReceivedMessage]:
        """All that is left of a lease, as messages."""
        part = lease.take(lease.untaken)
        numbers = repeat(part.ranges[0][2]) if len(part.ranges) == 1 else part.attempts()
        return [
            ReceivedMessage(self, lease, columns, index, next(numbers))
            for columns, start, stop in part.spans
            for index in range(start, stop)
        ]

    def alter(self, max_in_flight: int) -> None:
        """Allow this many messages in flight."""
        self.max_in_flight = max_in_flight
        self._freed.set()

    def next_stale(self, now: float) -> float:
        """When the next of the leases is half over; infinity for none."""
        return min([lease.stale_at for lease in self._leases if lease.stale_at > now], default=math.inf)

    def room(self) -> int:
        """How many more messages the consumer may have."""
        return self.max_in_flight - self.in_flight

    async def wait_for_room(self, ports: Iterable[PartitionPort]) -> None:
        """Wait until something in flight is settled, its lease has run out, or the topic of one of `ports` is deleted.

        May also return before.
        """
        now = self.session.clock.monotonic()
        for lease in [lease for lease in self._leases if lease.deadline <= now]:
            self._count(lease, lease.left)
        if self.room() > 0 or self.is_over:
            await trio.lowlevel.checkpoint()
            return
        self._freed = trio.Event()
        for port in ports:
            port.add_restart_waiter(self)
        with trio.move_on_at(min([lease.deadline for lease in self._leases], default=now)):
            await self._freed.wait()

    def noticed(self, _: PartitionPort) -> None:
        """A partition has restarted, or its topic is deleted: tasks that wait for room look again."""
        self._freed.set()

    def end(self) -> None:
        """The consumer leaves."""
        self.is_over = True
        self._freed.set()

    def forget_where(self, is_gone: Callable[[PartitionPort], bool]) -> None:
        """What was leased of these partitions is in flight no more: it is deleted, or another's by now."""
        for lease in [lease for lease in self._leases if is_gone(lease.port)]:
            self._count(lease, lease.left)
        for port in [port for port in self._unawaited if is_gone(port)]:
            del self._unawaited[port]  # what it has not taken still comes

    def forget(self) -> None:
        """What was leased is another consumer's by now, or free: its receipts are void."""
        for lease in self._leases:
            lease.left = 0
        self._leases.clear()
        self.in_flight = 0
        self._freed.set()

    def _count(self, lease: ConsumerLease, count: int) -> bool:
        """Count messages of a lease as no longer in flight; whether it was counted and had not run out."""
        left = lease.left
        if not left:
            return False
        if count >= left:
            count = left
            del self._leases[lease]
        lease.left = left - count
        self.in_flight -= count
        self._freed.set()
        return lease.deadline > self.session.clock.monotonic()

    def _count_again(self, lease: ConsumerLease, count: int) -> None:
        """Count messages of a lease as in flight once more, unless their lease has ended."""
        if count and not self.is_over and not lease.port.is_deleted:
            self._leases[lease] = None
            lease.left += count
            self.in_flight += count

    # -- settling

    async def ack(self, settled: Settled) -> None:
        """Ack ranges of leases; what messages and batches call. Raises `LeaseLost`, `TopicNotFound`."""
        group_id = self.group_id
        await self._settle("ack", settled, lambda lease, ranges: c.Ack(group_id, lease.lease_id, ranges))

    async def nack(
        self, settled: Settled, *, delay_s: float | None = None, reason: str | None = None
    ) -> None:
        """Nack ranges of leases. Raises as `ack`."""

        def command(lease: ConsumerLease, ranges: c.Ranges) -> c.Nack:
            return c.Nack(self.group_id, lease.lease_id, ranges, delay_s, reason)

        await self._settle("nack", settled, command)

    async def reject(self, settled: Settled, *, reason: str | None = None) -> None:
        """Reject ranges of leases. Raises as `ack`, and `DeadLettersFull`."""

        def command(lease: ConsumerLease, ranges: c.Ranges) -> c.RejectLeased:
            return c.RejectLeased(self.group_id, lease.lease_id, ranges, reason)

        await self._settle("reject", settled, command)

    async def release(self, settled: Settled) -> None:
        """Release ranges of leases. Raises as `ack`."""
        group_id = self.group_id
        await self._settle(
            "release", settled, lambda lease, ranges: c.Release(group_id, lease.lease_id, ranges)
        )

    async def _settle(
        self,
        verb: str,
        settled: Settled,
        command: Callable[[ConsumerLease, c.Ranges], c.SettleCommand],
    ) -> None:
        """Send what `command` makes of each part; `verb` is for an error's words."""
        self.session.check_open()
        lost: list[tuple[int, int]] = []
        causes, counted = set[str | None](), list[tuple[ConsumerLease, int]]()
        try:
            for lease, ranges in settled:
                count = min(lease.left, sum([stop - start for start, stop in ranges]))
                counted.append((lease, count))
                valid = self._count(lease, count) and lease.keeps(ranges)
                message = command(lease, ranges)
                if not isinstance(message, c.Ack):
                    lease.gives_back(ranges)
                elif valid and lease.were_cut_off(ranges):
                    message = message._replace(again=True)
                if here := await self._settle_now(lease.port, message, valid):
                    lost += here
                    causes |= self._causes(lease.port, lease.lease_id, here)
        except BaseException:  # it is there to be settled once more
            for (lease, count), (_, ranges) in zip(counted, settled, strict=False):
                if verb == "ack":
                    lease.acks_cut_off(ranges)
                self._count_again(lease, count)
            raise
        if lost:
            raise lease_lost({settled[0][0].port: lost}, verb, self._group, causes)

    async def _settle_now(
        self, port: PartitionPort, message: c.SettleCommand, valid: bool, crashed: bool = False
    ) -> c.Ranges:
        """Settle, through restarts of the partition; returns what was lost.

        `valid`: when this began the lease had not run out, and these were not given back. If the partition crashed in
        between, it may be the first try that has settled them.
        """
        while True:
            if crashed and valid and not message.again:
                message = message._replace(again=True)
            try:
                lost: c.Ranges = (await port.ref.ask(message)).lost
                self.has_waited = True
            except ActorCrashed:
                crashed = True
                continue
            except ActorStopped as error:
                raise self.stopped(port) from error
            return lost

    def give_back(self, parts: Iterable[LeasedPart]) -> None:
        """Release what did not reach the caller, without waiting."""
        for lease, ranges, _ in parts:
            self.hand_over(lease, c.Release(self.group_id, lease.lease_id, [row[:2] for row in ranges]))

    def give_back_messages(self, messages: Iterable[ReceivedMessage]) -> None:
        """Release messages, without waiting; without effect on those whose lease has run out."""
        by_lease: dict[ConsumerLease, list[tuple[int, int]]] = {}
        for message in messages:
            by_lease.setdefault(message.lease, []).append((message.offset, message.offset + 1))
        for lease, offsets in by_lease.items():
            self.hand_over(lease, c.Release(self.group_id, lease.lease_id, merged(sorted(offsets))))

    def hand_over(self, lease: ConsumerLease, message: c.SettleCommand) -> None:
        """Settle without waiting, also for room in the mailbox; a release has no effect when the lease has run out."""
        if not isinstance(message, c.Ack):
            lease.gives_back(message.ranges)
        self._count(lease, sum([stop - start for start, stop in message.ranges]))
        port = lease.port
        unawaited = self._unawaited.get(port)
        if unawaited is None:
            unawaited = self._unawaited[port] = Gathering(port.ref, c.SettleUnawaited)
        unawaited.add(message)

    # -- acks that are not awaited

    def join_gathered(self, lease: ConsumerLease, start: int, stop: int) -> bool:
        """Gather an ack with those of the same lease; False, and nothing done, when others are gathered, or none."""
        gathered = self.gathered[-1] if self.gathered else None
        if gathered is None or gathered.lease is not lease:
            return False
        if gathered.valid is not lease.is_valid(self.session.clock.monotonic(), start, stop):
            return False
        self.session.check_open()
        if gathered.stop != start:
            gathered.ranges.append((gathered.start, gathered.stop))
            gathered.start = start
        gathered.stop = stop
        self._count(lease, stop - start)
        return True

    async def ack_lazily(self, settled: Settled) -> None:
        """Gather acks; those of another lease are sent first. Raises `LeaseLost` when very many were lost before."""
        self.session.check_open()
        if not self.gathered or not settled or self.gathered[-1].lease is not settled[0][0]:
            await self.send_waiting()
            await self._take_outcomes()
            self.session.lingers.add(self.send_gathered)
        for lease, ranges in settled:
            for start, stop in ranges:
                if not self.join_gathered(lease, start, stop):
                    is_valid = lease.is_valid(self.session.clock.monotonic(), start, stop)
                    self.gathered.append(GatheredAcks(lease, is_valid, start, stop))
                    self._count(lease, stop - start)
        if self._lost_ranges >= self.session.limits.lazy_acks:
            raise self._lost_meanwhile()

    def send_gathered(self) -> bool:
        """Send what was gathered, without waiting; False when a mailbox has no room."""
        while self.gathered:
            gathered = self.gathered[0]
            port, message = gathered.lease.port, gathered.command(self.group_id)
            try:
                self._sent.append(SentAck(port, message, gathered.valid, port.ref.ask_nowait(message)))
            except MailboxFull:
                return False
            except ActorStopped:
                self._note_failed(self.stopped(port))
            except CallboardError as error:
                self._note_failed(error)
            self.gathered.popleft()
        return True

    async def send_waiting(self) -> None:
        """Send what was gathered, and wait for room if there is none."""
        while not self.send_gathered():
            gathered = self.gathered.popleft()
            port, message = gathered.lease.port, gathered.command(self.group_id)
            try:
                self._note_lost(port, message, await self._settle_now(port, message, gathered.valid))
            except TopicNotFound as error:
                self._note_failed(error)
            except BaseException:
                gathered.lease.acks_cut_off(message.ranges)
                self.gathered.appendleft(gathered)
                raise

    def _note_failed(self, error: CallboardError) -> None:
        """Remember what the next `flush` raises: the first failure, but one of a deleted topic last."""
        if self._failed is None or isinstance(self._failed, TopicNotFound):
            self._failed = error

    def _note_lost(self, port: PartitionPort, ack: c.Ack, lost: c.Ranges) -> None:
        if lost:
            self._lost.setdefault(port, []).extend(lost)
            self._lost_ranges += len(lost)
            self._lost_causes |= self._causes(port, ack.lease_id, lost)

    async def _take_outcomes(self) -> None:
        """Take the outcomes that have come. Waits for one only while very many acks have none."""
        sent, limit = self._sent, self.session.limits.lazy_acks
        while sent and self._has_taken_oldest():
            pass
        while len(sent) >= limit:
            self._look_at_all()
            if len(sent) < limit:
                break
            async with self._collecting:
                if len(sent) >= limit:
                    await self._collect_oldest()

    def _look_at_all(self) -> None:
        """Take all outcomes that have come: acks of one partition do not hold up those of others."""
        for _ in range(len(self._sent)):
            if not self._has_taken_oldest():
                self._sent.rotate(-1)

    def _has_taken_oldest(self) -> bool:
        """Take the outcome of the oldest ack if it has come. If it never will, ask again, without waiting until the
        partition has restarted. False, and nothing done, when it may still come, or the mailbox has no room.
        """
        sent = self._sent[0]
        if not sent.reply.done:
            return False
        port = sent.port
        try:
            lost = sent.outcome()
            if lost is None:
                self._sent.append(sent.asked_again())
            else:
                self._note_lost(port, sent.message, lost)
        except MailboxFull:
            return False
        except ActorStopped:
            self._note_failed(self.stopped(port))
        except CallboardError as error:
            self._note_failed(error)
        self._sent.popleft()
        return True

    async def _collect_oldest(self) -> None:
        """Wait for the outcome of the oldest ack; when this is cancelled, it is asked for again later (H2)."""
        sent = self._sent.popleft()
        port, message, valid, reply = sent
        try:
            if not reply.done:
                with suppress(ActorCrashed):
                    await reply.settled()
            lost = sent.outcome()
            if lost is None:
                lost = await self._settle_now(port, message, valid, crashed=True)
        except ActorStopped:
            self._note_failed(self.stopped(port))
        except CallboardError as error:
            self._note_failed(error)
        except BaseException:
            self._sent.appendleft(sent)
            raise
        else:
            self._note_lost(port, message, lost)

    async def flush(self, *, is_leaving: bool = False) -> None:
        """See `Consumer.flush`. Leaving, nothing is said of acks in deleted topics."""
        async with self._collecting:
            await self._flush(is_leaving)

    async def _flush(self, is_leaving: bool) -> None:
        await self.send_waiting()
        self._look_at_all()  # what a cancelled flush waited for is asked again before partitions sync
        # What has an outcome is synced. The other partitions sync now, all at the same time; one whose mailbox is full
        # does so by itself when the linger of its acks is over.
        for port in dict.fromkeys([sent.port for sent in self._sent if not sent.reply.done]):
            with suppress(CallboardError):
                port.ref.tell_nowait(c.Flush(acks_only=True))
        while self._sent:
            await self._collect_oldest()
        failed, self._failed = self._failed, None
        if is_leaving:
            self._lost = {port: lost for port, lost in self._lost.items() if not port.is_deleted}
            failed = None if isinstance(failed, TopicNotFound) else failed
        if failed is not None:
            raise failed.again()
        if self._lost:
            raise self._lost_meanwhile()
        await trio.lowlevel.checkpoint()

    # -- leases that go on

    async def extend(self, lease: ConsumerLease, offset: int, seconds: float) -> None:
        """What `ReceivedMessage.extend` calls. Raises `LeaseLost`."""
        self.session.check_open()
        if self.is_over:
            raise RuntimeClosed("the consumer is closed: it has no leases any more. Subscribe again.")
        while True:
            asked_at = self.session.clock.monotonic()
            # It may end sooner than before, also when the answer does not come.
            if asked_at + seconds < lease.deadline:
                lease.deadline = asked_at + seconds
                lease.stale_at = asked_at  # nothing more of it is handed over: too little may be left
                self.session.renewed_leases.move(self, lease.port, lease.lease_id, asked_at, seconds)
                self._let_go()
            self._freed.set()  # tasks that wait for room wait for the earliest deadline
            try:
                kept = await lease.port.ref.ask(c.Extend(self.group_id, lease.lease_id, seconds))
            except ActorCrashed:
                continue
            except ActorStopped as error:
                raise self.stopped(lease.port) from error
            break
        if not kept:
            lost = [(offset, offset + 1)]
            causes = self._causes(lease.port, lease.lease_id, lost)
            raise lease_lost({lease.port: lost}, "extend", self._group, causes)
        lease.deadline = asked_at + seconds
        self.session.renewed_leases.move(self, lease.port, lease.lease_id, asked_at, seconds)

    # -- errors

    def _lost_meanwhile(self) -> LeaseLost:
        """The error for acks that were not awaited and came too late."""
        lost, self._lost, self._lost_ranges = self._lost, {}, 0
        causes, self._lost_causes = self._lost_causes, set()
        return lease_lost(lost, "ack", self._group, causes)


class ReceivedMessage(PublishesWithAck, Record):
    """A leased message. Settle it once: `ack`, `nack`, `reject` or `release`; or let its lease run out."""

    __slots__ = dict.fromkeys(["_batch", "_leases", "_staged", "lease"]) | {
        "attempt": "Which delivery to the group this is, among those that count; 1 is the first.",
        "settled": "Whether it was acked, nacked, rejected or released.",
    }

    def __init__(
        self,
        leases: ConsumerLeases,
        lease: ConsumerLease,
        columns: Columns,
        index: int,
        attempt: int,
        batch: ReceivedBatch | None = None,
    ) -> None:
        port = lease.port
        self.topic = port.topic
        self.partition = port.index
        deltas = columns.offset_deltas
        self.offset = columns.base_offset + (index if deltas is None else deltas[index])
        self._columns = columns
        self._index = index
        self._batch = batch
        self._leases = leases
        self._staged: StagedPublishes | None = None
        self.lease = lease
        self.settled = False
        self.attempt = attempt

    @property
    def deadline(self) -> float:
        """When its lease runs out, in seconds of the runtime's monotonic clock."""
        return self.lease.deadline

    async def ack(self, *, wait: bool = True) -> None:
        """The message is done with. With `wait`, returns once that is synced; without, `Consumer.flush` does.

        Without `wait` this is a checkpoint only while very many such acks are under way, and acks of neighbouring
        messages are gathered for a few milliseconds and written as one.

        Raises `LeaseLost` when the message was leased again meanwhile: then this ack has no effect. Raises
        `TopicNotFound` when the message's topic was deleted.
        """
        if check_flag("wait", wait):
            await self._settle(self._ack)
        elif (
            not self.settled
            and self._staged is None
            and self._leases.join_gathered(self.lease, self.offset, self.offset + 1)
        ):
            self.settled = True
            if self._batch is not None:
                self._batch.settled_singly[self.offset] = None
        else:
            await self._settle(partial(self._ack, wait=False))

    async def nack(self, *, delay: float | None = None, reason: str | None = None) -> None:
        """The message failed: deliver it again, after `delay` seconds at the earliest. The attempt counts.

        Without a `delay`, after the group's backoff: `backoff` seconds, doubled with each attempt up to `max_backoff`.
        Handed to the operating system, not synced: a power loss may take it, and then the attempt has not counted.
        """
        delay, reason = check_nack(delay, reason)
        await self._settle(lambda settled: self._leases.nack(settled, delay_s=delay, reason=reason))

    async def reject(self, *, reason: str | None = None) -> None:
        """The message can never be handled: a dead letter, synced. Raises as `ack` does, and `DeadLettersFull`."""
        _, reason = check_nack(None, reason)
        await self._settle(lambda settled: self._leases.reject(settled, reason=reason))

    async def release(self) -> None:
        """Give the message back unhandled: it is delivered again, and this attempt does not count."""
        await self._settle(self._leases.release)

    async def extend(self, seconds: float) -> None:
        """Keep the lease for `seconds` from now. It covers all that was leased together with this message.

        Raises `LeaseLost` when it has run out.
        """
        seconds = check_seconds("seconds", seconds)
        if self.settled:
            raise self._twice()
        await self._leases.extend(self.lease, self.offset, seconds)

    async def _ack(self, settled: Settled, *, wait: bool = True) -> None:
        if self._staged is not None and self._staged.payloads:
            await self._leases.ack_and_publish(settled, self._staged.payloads)
        elif wait:
            await self._leases.ack(settled)
        else:
            await self._leases.ack_lazily(settled)

    async def _settle(self, settle: Callable[[Settled], Awaitable[None]]) -> None:
        """Settle once; what was cancelled, or refused by the disk, may be tried again."""
        if self.settled:
            raise self._twice()
        self.settled = True
        batch, offset = self._batch, self.offset
        if batch is not None:
            batch.settled_singly[offset] = None
        settled = ((self.lease, ((offset, offset + 1),)),)
        try:
            await settle(settled)
        except LeaseLost:
            raise
        except BaseException:
            self.settled = False
            if batch is not None:
                batch.settled_singly.pop(offset, None)
            raise

    def _staging(self) -> StagedPublishes:
        if self.settled:
            raise self._twice()
        if self._staged is None:
            batch = self._batch
            self._staged = (
                StagedPublishes()
                if batch is None
                else batch.staged.setdefault(self.offset, StagedPublishes())
            )
        return self._staged

    def _twice(self) -> InvalidArgument:
        return InvalidArgument(
            f"message {self.topic}/{self.partition}@{self.offset} is settled already. A message is settled once."
        )


def hand_over_ack(message: ReceivedMessage) -> None:
    """Have the partition take a cancelled task's ack, unless the ack publishes."""
    if not message.settled and (message._staged is None or not message._staged.payloads):
        message.settled = True
        ranges = ((message.offset, message.offset + 1),)
        message._leases.hand_over(
            message.lease, c.Ack(message._leases.group_id, message.lease.lease_id, ranges)
        )


def hand_over_nack(message: ReceivedMessage, reason: str) -> None:
    """Have the partition take a cancelled task's nack."""
    if not message.settled:
        message.settled = True
        ranges = ((message.offset, message.offset + 1),)
        message._leases.hand_over(
            message.lease, c.Nack(message._leases.group_id, message.lease.lease_id, ranges, reason=reason)
        )


class ReceivedBatch(PublishesWithAck, ColumnBatch):
    """Leased messages of one partition, as columns; settled as a whole, or message by message when iterated.

    Settling the batch leaves out the messages that were settled by themselves. Indices and slices give messages.
    """

    __slots__ = ("_leases", "_messages", "_parts", "settled", "settled_singly", "staged")

    def __init__(self, leases: ConsumerLeases, parts: Sequence[LeasedPart]) -> None:
        port = parts[0].lease.port
        super().__init__(port.topic, port.index, [span for part in parts for span in part.spans])
        self._leases = leases
        self._parts = parts
        self._messages: list[ReceivedMessage] | None = None
        self.settled = False
        self.settled_singly: dict[int, None] = {}
        self.staged: dict[
            int, StagedPublishes
        ] = {}  # by offset; that of the batch as a whole at `BATCH_PLACE`

    def attempts(self) -> list[int]:
        """Which delivery this is of each message; 1 is the first."""
        return [attempt for part in self._parts for attempt in part.attempts()]

    @overload
    def __getitem__(self, index: int) -> ReceivedMessage: ...
    @overload
    def __getitem__(self, index: slice) -> list[ReceivedMessage]: ...
    def __getitem__(self, index: int | slice) -> ReceivedMessage | list[ReceivedMessage]:
        """The message at an index, or those of a slice: the same objects each time. Raises `IndexError`."""
        if self._messages is None:
            self._messages = list(self)
        return self._messages[index]

    def __iter__(self) -> Iterator[ReceivedMessage]:
        return self._made() if self._messages is None else iter(self._messages)

    def _made(self) -> Iterator[ReceivedMessage]:
        for part in self._parts:
            numbers = part.attempts()
            for columns, start, stop in part.spans:
                for index in range(start, stop):
                    yield ReceivedMessage(self._leases, part.lease, columns, index, next(numbers), self)

    def __repr__(self) -> str:
        return f"<ReceivedBatch of {len(self)} messages from {self.topic}/{self.partition}>"

    async def ack(self, *, wait: bool = True) -> None:
        """All messages are done with. Raises `LeaseLost` when some were leased again meanwhile (`lost` names them).

        Without `wait` as `ReceivedMessage.ack`.
        """
        await self._settle(partial(self._ack, wait=check_flag("wait", wait)))

    async def nack(self, *, delay: float | None = None, reason: str | None = None) -> None:
        """All messages failed: deliver them again, after `delay` seconds at the earliest, or the group's backoff."""
        delay, reason = check_nack(delay, reason)
        await self._settle(lambda settled: self._leases.nack(settled, delay_s=delay, reason=reason))

    async def reject(self, *, reason: str | None = None) -> None:
        """No message can ever be handled: they are dead letters. Raises `LeaseLost`, `DeadLettersFull`."""
        _, reason = check_nack(None, reason)
        await self._settle(lambda settled: self._leases.reject(settled, reason=reason))

    async def release(self) -> None:
        """Give all messages back unhandled."""
        await self._settle(self._leases.release)

    async def _ack(self, settled: Settled, *, wait: bool = True) -> None:
        if self.staged and (payloads := self._unpublished()):
            await self._leases.ack_and_publish(settled, payloads)
        elif wait:
            await self._leases.ack(settled)
        else:
            await self._leases.ack_lazily(settled)

    async def _settle(self, settle: Callable[[Settled], Awaitable[None]]) -> None:
        if self.settled:
            raise self._twice()
        self.settled = True
        settled = [(lease, [(start, stop) for start, stop, _ in ranges]) for lease, ranges, _ in self._parts]
        if self.settled_singly:
            singly = sorted(self.settled_singly)
            settled = [(lease, left) for lease, ranges in settled if (left := without(ranges, singly))]
        try:
            await settle(settled)
        except LeaseLost:
            raise
        except BaseException:
            self.settled = False
            raise

    def _staging(self) -> StagedPublishes:
        if self.settled:
            raise self._twice()
        return self.staged.setdefault(BATCH_PLACE, StagedPublishes())

    def _unpublished(self) -> list[Payload]:
        """What is published with the batch: its own, and that of its messages that were not settled singly."""
        staged = [found for offset, found in sorted(self.staged.items()) if offset not in self.settled_singly]
        return [payload for found in staged for payload in found.payloads]

    def _twice(self) -> InvalidArgument:
        return InvalidArgument(
            f"this batch of {self.topic}/{self.partition} is settled already. A batch is settled once."
        )
