"""A consumer's leases: how their messages are counted and settled, and acks that nobody waits for.

Invariants
----------
H1  `in_flight` is the number of messages that were delivered and neither settled, given back nor, once somebody
    waited for room, found to have run out.
H2  Every `ack(wait=False)` has an outcome: it is told by the next `flush`, or by leaving the consumer.
H3  Such acks are sent at the latest when the consumer fetches, flushes or ends, or `ACK_LINGER_S` have passed. Those of
    neighbouring messages of a lease go as one command.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, Protocol

import trio

from callboard.actors.catalog.directory import LiveTopic
from callboard.actors.delivery.receipts import merged
from callboard.actors.kernel import Reply
from callboard.actors.partition import commands as c
from callboard.actors.partition.port import PartitionPort
from callboard.log.errors import (
    ActorCrashed,
    ActorStopped,
    CallboardError,
    LeaseLost,
    MailboxFull,
    RuntimeClosed,
)

if TYPE_CHECKING:
    from callboard.session import Session

SettledRanges = Sequence[tuple[int, list[tuple[int, int]]]]


class LeasedMessage(Protocol):
    """A delivered message, and the lease that it is part of."""

    port: PartitionPort
    partition: int
    offset: int
    lease_id: int
    deadline: float


class _Lazy(NamedTuple):
    """An ack that nobody waits for; `valid` as in `Held._settle_now`."""

    port: PartitionPort
    message: c.Settle
    valid: bool
    reply: Reply


class _Gathered:
    """Acks that are not sent yet, of neighbouring messages from `start` to before `stop`; `valid` as in `_Lazy`."""

    __slots__ = ("lease_id", "port", "start", "stop", "valid")

    def __init__(self, port: PartitionPort, lease_id: int, offset: int, valid: bool) -> None:
        self.port = port
        self.lease_id = lease_id
        self.start = offset
        self.stop = offset + 1
        self.valid = valid


class ConsumerLeases:
    """The leases of one consumer."""

    def __init__(self, runtime: Session, live: LiveTopic, group: str) -> None:
        self.in_flight = 0
        self._runtime = runtime
        self._live = live
        self._group = group
        self._group_id = 0
        self._max_in_flight = 1
        self._is_over = False
        self._leases: dict[tuple[int, int], list[float]] = {}
        """By partition and lease: how many messages of it are held, and its deadline."""
        self._freed = trio.Event()
        self._gathered: deque[_Gathered] = deque()
        """The oldest first; the last one still grows."""
        self._lazy: deque[_Lazy] = deque()
        self._lazy_ports: dict[int, PartitionPort] = {}
        self._lost_lazily: list[tuple[int, int]] = []
        self._failed_lazily: CallboardError | None = None

    def begin(self, group_id: int, max_in_flight: int) -> None:
        """The consumer is a member now, or its group was altered."""
        self._group_id = group_id
        self._max_in_flight = max_in_flight
        self._freed.set()

    def end(self) -> None:
        """The consumer leaves: all that it holds is released."""
        self._is_over = True

    def forget(self) -> None:
        """What is held is another's by now, or nobody's: its receipts are void."""
        self._leases.clear()
        self.in_flight = 0
        self._freed.set()

    # -- counting

    def accept(self, port: PartitionPort, leased: c.LeasedRecords) -> bool:
        """Count what was delivered; False when it is nothing."""
        count = sum([columns.count for columns in leased.batches])
        if count == 0:
            return False
        self._leases[port.index, leased.lease_id] = [count, leased.deadline]
        self.in_flight += count
        return True

    def room(self) -> int:
        """How many more messages the consumer may hold."""
        return self._max_in_flight - self.in_flight

    async def wait_for_room(self) -> None:
        """Wait until something in flight is settled, or its lease has run out."""
        now = self._runtime.clock.monotonic()
        for key, (count, deadline) in list(self._leases.items()):
            if deadline <= now:
                del self._leases[key]
                self.in_flight -= int(count)
        if self.room() > 0:
            await trio.lowlevel.checkpoint()
            return
        self._freed = trio.Event()
        with trio.move_on_at(min([deadline for _, deadline in self._leases.values()], default=now)):
            await self._freed.wait()

    def _settled(self, partition: int, lease_id: int, count: int) -> bool:
        """Count `count` messages of a lease as no longer in flight; whether the lease had not run out."""
        lease = self._leases.get((partition, lease_id))
        if lease is None:
            return False
        count = min(count, int(lease[0]))
        lease[0] -= count
        self.in_flight -= count
        if lease[0] <= 0:
            del self._leases[partition, lease_id]
        self._freed.set()
        return lease[1] > self._runtime.clock.monotonic()

    # -- settling

    async def settle(
        self,
        port: PartitionPort,
        verb: str,
        settled: SettledRanges,
        *,
        delay_s: float | None = None,
        reason: str | None = None,
        wait: bool = True,
    ) -> None:
        """Settle ranges of leases; what messages and batches call. Raises `LeaseLost`."""
        self._runtime.check_open()
        lost: list[tuple[int, int]] = []
        for lease_id, ranges in settled:
            valid = self._settled(port.index, lease_id, sum([stop - start for start, stop in ranges]))
            message = c.Settle(self._group_id, verb, lease_id, ranges, delay_s, reason, not wait)
            if wait:
                lost.extend(await self._settle_now(port, message, valid))
            elif len(ranges) == 1 and ranges[0][1] == ranges[0][0] + 1:
                await self._gather(port, lease_id, ranges[0][0], valid)
            else:
                await self._settle_lazily(port, message, valid)
        if lost:
            raise self._lease_lost(port, lost, verb)
        if len(self._lost_lazily) >= self._runtime.limits.lazy_acks:
            raise self._lost_meanwhile()

    async def _settle_now(
        self, port: PartitionPort, message: c.Settle, valid: bool, crashed: bool = False
    ) -> c.Ranges:
        """Settle, through restarts of the partition; returns what was lost.

        `valid`: the lease had not run out when this began. If the partition crashed in between and nothing is left to
        settle, it was the first try that settled it: leases are renewed when a partition restarts.
        """
        while True:
            try:
                settlement = await port.ref.ask(message)
            except ActorCrashed:
                crashed = True
                continue
            except ActorStopped as error:
                raise self.stopped() from error
            return () if crashed and valid else settlement.lost

    # -- giving back without waiting

    def give_back_messages(self, messages: Iterable[LeasedMessage]) -> None:
        """Release messages; without effect on those whose lease has run out."""
        by_lease: dict[tuple[int, int], list[LeasedMessage]] = {}
        for message in messages:
            by_lease.setdefault((message.partition, message.lease_id), []).append(message)
        for (_, lease_id), leases in by_lease.items():
            ranges = merged([(message.offset, message.offset + 1) for message in leases])
            self._release(leases[0].port, lease_id, ranges)

    def give_back(self, port: PartitionPort, parts: Sequence[c.LeasedRecords]) -> None:
        """Release what was delivered and did not reach the caller."""
        for leased in parts:
            self._release(port, leased.lease_id, [(start, stop) for start, stop, _ in leased.ranges])

    def _release(self, port: PartitionPort, lease_id: int, ranges: c.Ranges) -> None:
        self._settled(port.index, lease_id, sum([stop - start for start, stop in ranges]))
        with suppress(CallboardError):  # then the lease runs out by itself
            port.ref.tell_nowait(c.Settle(self._group_id, "release", lease_id, ranges, lazy=True))

    # -- acks that nobody waits for

    def ack_quickly(self, port: PartitionPort, lease_id: int, offset: int) -> bool:
        """Join an ack to those of its neighbours that are not sent yet; False, and nothing done, without any."""
        gathered = self._gathered[-1] if self._gathered else None
        lease = self._leases.get((port.index, lease_id))
        if (
            gathered is None
            or lease is None
            or gathered.stop != offset
            or gathered.lease_id != lease_id
            or gathered.port is not port
            or gathered.valid is not (lease[1] > self._runtime.clock.monotonic())
        ):
            return False
        self._runtime.check_open()
        gathered.stop += 1
        lease[0] -= 1
        self.in_flight -= 1
        if lease[0] <= 0:
            del self._leases[port.index, lease_id]
        self._freed.set()
        return True

    async def _gather(self, port: PartitionPort, lease_id: int, offset: int, valid: bool) -> None:
        """Begin to gather, behind what cannot be joined: that is sent."""
        await self._send_waiting()
        await self._make_way()
        self._gathered.append(_Gathered(port, lease_id, offset, valid))
        self._runtime.lingers.add(self)

    def send_gathered(self) -> bool:
        """Send what was gathered, without waiting; False when a mailbox has no room."""
        while self._gathered:
            port, message, valid = self._next_gathered()
            try:
                reply = port.ref.ask_nowait(message)
            except MailboxFull:
                return False
            except ActorStopped:
                self._failed_lazily = self._failed_lazily or self.stopped()
            except CallboardError as error:
                self._failed_lazily = self._failed_lazily or error
            else:
                self._lazy.append(_Lazy(port, message, valid, reply))
            self._gathered.popleft()
        return True

    async def _send_waiting(self) -> None:
        """Send what was gathered, and wait for room if there is none."""
        while not self.send_gathered():
            port, message, valid = self._next_gathered()
            gathered = self._gathered.popleft()
            try:
                self._lost_lazily.extend(await self._settle_now(port, message, valid))
            except BaseException:
                self._gathered.appendleft(gathered)
                raise

    def _next_gathered(self) -> tuple[PartitionPort, c.Settle, bool]:
        gathered = self._gathered[0]
        port = gathered.port
        self._lazy_ports[port.index] = port
        ranges = ((gathered.start, gathered.stop),)
        return port, c.Settle(self._group_id, "ack", gathered.lease_id, ranges, lazy=True), gathered.valid

    async def _make_way(self) -> None:
        """Collect outcomes that are there, and wait for the oldest when there are too many."""
        lazy = self._lazy
        limit = self._runtime.limits.lazy_acks
        while lazy and (len(lazy) >= limit or (lazy[0].reply.done and not lazy[0].reply.abandoned)):
            await self._collect_oldest()

    async def _settle_lazily(self, port: PartitionPort, message: c.Settle, valid: bool) -> None:
        await self._make_way()
        self._lazy_ports[port.index] = port
        try:
            reply = port.ref.ask_nowait(message)
        except MailboxFull:
            self._lost_lazily.extend(await self._settle_now(port, message, valid))
        except ActorStopped as error:
            raise self.stopped() from error
        else:
            self._lazy.append(_Lazy(port, message, valid, reply))

    async def _collect_oldest(self) -> None:
        """Take the outcome of the oldest ack; when this is cancelled, it is asked for again later (H2)."""
        lazy = self._lazy.popleft()
        try:
            await self._collect(lazy)
        except BaseException:
            self._lazy.appendleft(lazy)
            raise

    async def _collect(self, lazy: _Lazy) -> None:
        """Take the outcome of an ack; `flush` tells of it (H2)."""
        port, message, valid, reply = lazy
        try:
            if reply.abandoned:
                lost = await self._settle_now(port, message, valid, crashed=True)
            else:
                if not reply.done:
                    await reply.settled()
                lost = reply.value().lost
        except ActorCrashed:
            lost = await self._settle_now(port, message, valid, crashed=True)
        except ActorStopped:
            self._failed_lazily = self._failed_lazily or self.stopped()
            return
        except CallboardError as error:
            self._failed_lazily = self._failed_lazily or error
            return
        self._lost_lazily.extend(lost)

    async def flush(self) -> None:
        """See `Consumer.flush`."""
        await self._send_waiting()
        for index, port in list(self._lazy_ports.items()):
            await self._flush_port(port)
            del self._lazy_ports[index]
        while self._lazy:
            await self._collect_oldest()
        failed, self._failed_lazily = self._failed_lazily, None
        if failed is not None:
            raise failed.again()
        if self._lost_lazily:
            raise self._lost_meanwhile()
        await trio.lowlevel.checkpoint()

    async def _flush_port(self, port: PartitionPort) -> None:
        while True:
            try:
                await port.ref.ask(c.Flush())
            except ActorCrashed:
                continue
            except ActorStopped as error:
                raise self.stopped() from error
            except CallboardError as error:
                self._failed_lazily = self._failed_lazily or error
            return

    # -- leases that go on

    async def extend(self, message: LeasedMessage, seconds: float) -> None:
        """What `ReceivedMessage.extend` calls. Raises `LeaseLost`."""
        self._runtime.check_open()
        if self._is_over:
            raise RuntimeClosed("the consumer is closed: it has no leases any more. Subscribe again.")
        ranges = ((message.offset, message.offset + 1),)
        command = c.Extend(self._group_id, message.lease_id, seconds)
        while True:
            asked_at = self._runtime.clock.monotonic()
            try:
                kept = await message.port.ref.ask(command)
            except ActorCrashed:
                continue
            except ActorStopped as error:
                raise self.stopped() from error
            break
        if not kept:
            raise self._lease_lost(message.port, ranges, "extend")
        self.lease_extended(message, asked_at + seconds)

    def lease_extended(self, message: LeasedMessage, deadline: float) -> None:
        """The lease of `message` ends at another time than it did."""
        message.deadline = deadline
        lease = self._leases.get((message.partition, message.lease_id))
        if lease is not None:
            lease[1] = deadline

    # -- errors

    def stopped(self) -> CallboardError:
        """The error for a partition that has ended for good."""
        if self._live.deleted:
            return RuntimeClosed(f"topic {self._live.name!r} was deleted; there is nothing more to consume.")
        return RuntimeClosed("the runtime is closed. Open it again.")

    def _lost_meanwhile(self) -> LeaseLost:
        """The error for acks that nobody waited for, and that came too late."""
        lost, self._lost_lazily = self._lost_lazily, []
        return self._lease_lost(None, lost, "ack")

    def _lease_lost(
        self, port: PartitionPort | None, lost: Sequence[tuple[int, int]], verb: str
    ) -> LeaseLost:
        where = f"{port.label}" if port is not None else f"{self._live.name}"
        spans = ", ".join(
            f"{start}" if stop == start + 1 else f"{start} to {stop - 1}" for start, stop in lost[:5]
        )
        return LeaseLost(
            f"{where}: the lease on offset {spans}{' and more' if len(lost) > 5 else ''} is lost: it ran out and the"
            f" message was leased again, or it was settled. This {verb} had no effect on it. Use a longer"
            " visibility_timeout, extend(), or receive(), which renews.",
            lost=tuple(lost),
            group=self._group,
        )
