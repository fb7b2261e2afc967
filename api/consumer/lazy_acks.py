"""Acks that are not awaited (`ack(wait=False)`): gathered, sent together, and their outcomes kept for the next flush.

`GatheredAcks` joins those of one lease; `SentAck` is their command on its way to the partition, until its outcome is
known.

Invariants
----------
LZ1  Every `ack(wait=False)` has an outcome: the next `flush` reports it, or leaving the consumer, which says
     nothing of deleted topics.
LZ2  Such acks are sent at the latest when the consumer fetches, flushes or ends, or `ACK_LINGER_S` have passed. Those
     of one lease that follow each other go as one command, neighbours as one range, unless acks of the lease were cut
     off. None waits for the outcome of another, nor for the restart of a partition, unless `lazy_acks` have none.
"""

from __future__ import annotations

import math
from collections import deque
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import trio

from callboard.actors.clients.port import PartitionPort
from callboard.actors.kernel import Reply
from callboard.actors.partition import commands as c
from callboard.actors.timers.commands import NEVER
from callboard.actors.timing import Callback
from callboard.consumer.losses import cannot_settle, lease_lost
from callboard.log.errors import (
    ActorCrashed,
    ActorStopped,
    CallboardError,
    LeaseLost,
    MailboxFull,
    StorageError,
    TopicNotFound,
)
from callboard.log.limits import STUCK_AFTER_S

if TYPE_CHECKING:
    from callboard.consumer.leases import ConsumerLease, ConsumerLeases, Settled

ACK_LINGER_S: float = 0.005
"""How long a consumer may gather acks that are not awaited, before it sends them to the partition."""


class GatheredAcks:
    """Acks of one lease that are not sent yet; `valid` as in `SentAck`."""

    __slots__ = ("lease", "ranges", "start", "stop", "valid")

    def __init__(self, lease: ConsumerLease, valid: bool, start: int, stop: int) -> None:
        self.lease = lease
        self.valid = valid
        self.ranges: list[tuple[int, int]] = []
        """Those before the last."""
        self.start = start
        self.stop = stop

    def command(self, group_id: int) -> c.Ack:
        """What is sent."""
        ranges = [*self.ranges, (self.start, self.stop)]
        again = self.valid and self.lease.were_cut_off(ranges)
        return c.Ack(group_id, self.lease.lease_id, ranges, lazy=True, again=again)


class SentAck(NamedTuple):
    """An ack that is not awaited. `valid`: the lease had not run out when it was made, and nothing was given back."""

    port: PartitionPort
    message: c.Ack
    valid: bool
    reply: Reply

    def outcome(self) -> c.Ranges | None:
        """What of it was lost, when its reply is done. Raises what the partition refused it with.

        None: it stays unknown. The partition crashed before it answered, or the task that waited was cancelled.
        """
        if not self.reply.has_answer:
            return None
        try:
            lost: c.Ranges = self.reply.value().lost
        except ActorCrashed:
            return None
        return lost

    def asked_again(self) -> SentAck:
        """The same ack on its way once more. Raises like `ActorRef.ask_nowait`."""
        message = self.message._replace(again=True) if self.valid else self.message
        return self._replace(message=message, reply=self.port.ref.ask_nowait(message))


class LazyAcks:
    """Those of one consumer."""

    def __init__(self, leases: ConsumerLeases) -> None:
        self._leases = leases
        self._session = leases.session
        self._clock = leases.session.clock
        self.gathered: deque[GatheredAcks] = deque()
        """The last one still grows."""
        self.sent: deque[SentAck] = deque()
        """Those without an outcome, the oldest first."""
        self._collecting = trio.Lock()
        """Held by the task that takes outcomes, so that a flush misses none."""
        self._lost: dict[PartitionPort, list[tuple[int, int]]] = {}
        self._lost_ranges = 0
        self._lost_causes: set[str | None] = set()
        """Why they came too late."""
        self._failed: CallboardError | None = None
        self._lingering = leases.session.timers.timer(Callback(self._linger_ended))

    def join(self, lease: ConsumerLease, start: int, stop: int) -> bool:
        """Gather an ack with those of the same lease; False, and nothing done, when others are gathered, or none.

        When acks of the lease were cut off, each is sent by itself, so that the partition knows which are repeated.
        """
        gathered = self.gathered[-1] if self.gathered else None
        if gathered is None or gathered.lease is not lease or lease.unsure_acks is not None:
            return False
        if gathered.valid is not lease.is_valid(self._clock.monotonic(), start, stop):
            return False
        self._session.check_open()
        if gathered.stop != start:
            gathered.ranges.append((gathered.start, gathered.stop))
            gathered.start = start
        gathered.stop = stop
        self._leases.count_out(lease, stop - start)
        return True

    async def ack(self, settled: Settled) -> None:
        """Gather acks; those of another lease are sent first. Raises `LeaseLost` when very many were lost before."""
        self._session.check_open()
        if not self.gathered or not settled or self.gathered[-1].lease is not settled[0][0]:
            await self.send_waiting()
            await self._take_outcomes()
            self._linger()
        for lease, ranges in settled:
            for start, stop in ranges:
                if not self.join(lease, start, stop):
                    is_valid = lease.is_valid(self._clock.monotonic(), start, stop)
                    parts = chain.from_iterable(lease.parted(((start, stop),)))
                    self.gathered.extend([GatheredAcks(lease, is_valid, *part) for part in parts])
                    self._leases.count_out(lease, stop - start)
        if self._lost_ranges >= self._session.limits.lazy_acks:
            raise self._lost_meanwhile()

    def _linger(self) -> None:
        """Have what is gathered sent in time, whatever the consumer's task does meanwhile (LZ2)."""
        if self._lingering.deadline == NEVER:
            self._lingering.arm(self._clock.monotonic() + ACK_LINGER_S)

    def _linger_ended(self) -> None:
        if self._lingering.has_come() and not self.send():
            self._linger()

    def send(self) -> bool:
        """Send what was gathered, without waiting; False when a mailbox has no room."""
        while self.gathered:
            gathered = self.gathered[0]
            port, message = gathered.lease.port, gathered.command(self._leases.group_id)
            try:
                self.sent.append(SentAck(port, message, gathered.valid, port.ref.ask_nowait(message)))
            except MailboxFull:
                return False
            except CallboardError as error:
                self._note_failed(port, error)
            self.gathered.popleft()
        return True

    async def send_waiting(self) -> None:
        """Send what was gathered, and wait for room if there is none."""
        while not self.send():
            gathered = self.gathered.popleft()
            port, message = gathered.lease.port, gathered.command(self._leases.group_id)
            try:
                self._note_lost(port, message, await self._leases.settle(port, message, gathered.valid))
            except TopicNotFound as error:
                self._note_failed(port, error)
            except BaseException:
                gathered.lease.acks_cut_off(message.ranges)
                self.gathered.appendleft(gathered)
                raise

    def _note_failed(self, port: PartitionPort, error: CallboardError) -> None:
        """Remember what the next `flush` raises: the first failure, but one of a deleted topic last."""
        if isinstance(error, ActorStopped):
            error = cannot_settle(self._leases.session, port)
        if self._failed is None or isinstance(self._failed, TopicNotFound):
            self._failed = error

    def _note_lost(self, port: PartitionPort, ack: c.Ack, lost: c.Ranges) -> None:
        if lost:
            self._lost.setdefault(port, []).extend(lost)
            self._lost_ranges += len(lost)
            self._lost_causes |= self._leases.causes(port, ack.lease_id, lost)

    async def _take_outcomes(self) -> None:
        """Take the outcomes that have come. Waits for one only while very many acks have none."""
        sent, limit = self.sent, self._session.limits.lazy_acks
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
        for _ in range(len(self.sent)):
            if not self._has_taken_oldest():
                self.sent.rotate(-1)

    def _has_taken_oldest(self) -> bool:
        """Take the outcome of the oldest ack if it has come. If it never will, ask again, without waiting until the
        partition has restarted. False, and nothing done, when it may still come, or the mailbox has no room.
        """
        sent = self.sent[0]
        if not sent.reply.done:
            return False
        port = sent.port
        try:
            lost = sent.outcome()
            if lost is None:
                self.sent.append(sent.asked_again())
            else:
                self._note_lost(port, sent.message, lost)
        except MailboxFull:
            return False
        except CallboardError as error:
            self._note_failed(port, error)
        self.sent.popleft()
        return True

    async def _collect_oldest(self) -> None:
        """Wait for the outcome of the oldest ack; when this is cancelled, it is asked for again later (LZ1)."""
        sent = self.sent.popleft()
        port, message, valid, reply = sent
        try:
            if not reply.done:
                with suppress(ActorCrashed):
                    await reply.settled()
            lost = sent.outcome()
            if lost is None:
                lost = await self._leases.settle(port, message, valid, crashed=True)
        except CallboardError as error:
            self._note_failed(port, error)
        except BaseException:
            self.sent.appendleft(sent)
            raise
        else:
            self._note_lost(port, message, lost)

    async def flush(self, *, is_leaving: bool = False) -> None:
        """See `Consumer.flush`. Leaving, nothing is said of acks in deleted topics, and it gives up with an indefinite
        `StorageError` when no outcome has come for `STUCK_AFTER_S`.
        """
        async with self._collecting:
            await self._flush(is_leaving)

    async def _flush(self, is_leaving: bool) -> None:
        patience_s = STUCK_AFTER_S if is_leaving else math.inf
        with trio.move_on_after(patience_s) as waiting:
            await self._take_all(waiting, patience_s)
        if waiting.cancelled_caught:
            raise self._unanswered()
        failed, self._failed = self._failed, None
        if is_leaving:
            is_live = self._leases.session.mirror.is_live
            self._lost = {port: lost for port, lost in self._lost.items() if is_live(port)}
            failed = None if isinstance(failed, TopicNotFound) else failed
        if failed is not None:
            raise failed.again()
        if self._lost:
            raise self._lost_meanwhile()
        await trio.lowlevel.checkpoint()

    async def _take_all(self, waiting: trio.CancelScope, patience_s: float) -> None:
        """Send what was gathered and take all outcomes; each that comes puts off the end of `waiting`."""
        await self.send_waiting()
        self._look_at_all()  # what a cancelled flush waited for is asked again before partitions sync
        # What has an outcome is synced. The other partitions sync now, all at the same time; one whose mailbox is full
        # does so by itself when the linger of its acks is over.
        for port in dict.fromkeys([sent.port for sent in self.sent if not sent.reply.done]):
            with suppress(CallboardError):
                port.ref.tell_nowait(c.Flush(acks_only=True))
        while self.sent:
            await self._collect_oldest()
            waiting.deadline = trio.current_time() + patience_s

    def _unanswered(self) -> StorageError:
        """The error of a consumer that leaves, for acks of which it waits no longer."""
        self._look_at_all()
        labels = {sent.port.label for sent in self.sent} | {each.lease.port.label for each in self.gathered}
        error = StorageError(
            f"acks of group {self._leases.group!r} in {', '.join(sorted(labels))} have had no answer for"
            f" {STUCK_AFTER_S:g} s: the disk may hang. They count if the partition can still write them; else their"
            " messages are delivered again. Look at `callboard stats`."
        )
        error.indefinite = True
        return error

    def _lost_meanwhile(self) -> LeaseLost:
        """The error for acks that were not awaited and came too late."""
        lost, self._lost, self._lost_ranges = self._lost, {}, 0
        causes, self._lost_causes = self._lost_causes, set()
        return lease_lost(lost, "ack", self._leases.group, causes)
