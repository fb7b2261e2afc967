"""A consumer: one member of a group, reading one topic.

It holds no task of its own. It asks the partitions that have, or may have, something ready, one after the other, and
sleeps on a flag that they set; leases are asked for only when the caller wants messages. One-by-one iteration fetches a
few at a time, more as long as the caller is quick, so that a slow handler never sits on messages that others could do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import trio

from callboard.actors import ActorRef, Reply
from callboard.actors.broker import commands as c
from callboard.actors.broker.catalog_commands import EnsureGroup
from callboard.actors.broker.coordinator import Join, Leave
from callboard.actors.broker.directory import LiveTopic
from callboard.actors.broker.port import PartitionPort
from callboard.actors.broker.settings import GroupSettings
from callboard.log.errors import (
    ActorCrashed,
    ActorStopped,
    CallboardError,
    InvalidArgument,
    LeaseLost,
    MailboxFull,
    PartitionUnavailable,
    RuntimeClosed,
)
from callboard.log.limits import FETCH_BYTES_MAX, LAZY_ACKS_MAX, PREFETCH_MAX
from callboard.received import ReceivedBatch, ReceivedMessage, attempts, check_seconds
from callboard.receiving import Receiving

if TYPE_CHECKING:
    from callboard.runtime import Runtime

SettledRanges = Sequence[tuple[int, list[tuple[int, int]]]]


class Consumer:
    """Made by `Topic.subscribe`; use it with `async with`, from one task at a time."""

    def __init__(self, runtime: Runtime, live: LiveTopic, group: str, given: Mapping[str, Any]) -> None:
        self.group = group
        self.settings = GroupSettings()
        self.runtime = runtime
        self.group_id = 0
        self._live = live
        self._given = given
        self._id = 0
        self._coordinator: ActorRef[Any]
        self._flag = c.Flag()
        self._maybe: dict[int, None] = {}
        self._buffer: deque[ReceivedMessage] = deque()
        self._leases: dict[tuple[int, int], list[float]] = {}
        self._in_flight = 0
        self._freed = trio.Event()
        self._lazy: deque[tuple[PartitionPort, Reply]] = deque()
        self._lost_lazily: list[tuple[int, int]] = []
        self._ahead: tuple[PartitionPort, Reply] | None = None
        self._prefetch = 1
        self._fetched_at = 0.0
        self._open = False

    def __repr__(self) -> str:
        return f"<Consumer of {self._live.name!r} in group {self.group!r}>"

    # -- joining and leaving

    async def __aenter__(self) -> Self:
        if self._id:
            raise InvalidArgument("a consumer is entered once. Subscribe again.")
        self._id = self.runtime.next_consumer()
        self._coordinator = await self.runtime.ask_catalog(
            EnsureGroup(self.group, self._live.name, self._given)
        )
        self._open = True
        try:
            self.group_id, self.settings = await self._coordinator.ask(Join(self._id, self._live))
        except BaseException:
            self._leave_nowait()
            raise
        self._maybe = dict.fromkeys(range(len(self._live.ports)))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._open = False
        self._buffer.clear()
        if error is not None:
            self._leave_nowait()
            await trio.lowlevel.cancel_shielded_checkpoint()
            return
        try:
            await self._flush_lazy()
            await self._coordinator.ask(Leave(self._id))
        except ActorStopped:
            return
        except BaseException:
            self._leave_nowait()
            raise

    def _leave_nowait(self) -> None:
        try:
            self._coordinator.tell_nowait(Leave(self._id))
        except CallboardError:
            self._open = False

    def _check_open(self) -> None:
        self.runtime.check_open()
        if not self._open:
            raise RuntimeClosed("the consumer is closed. Use it inside `async with topic.subscribe(...)`.")

    # -- one by one

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage:
        message = await self.get()
        if message is None:
            raise StopAsyncIteration
        return message

    async def get(self, *, timeout: float | None = None) -> ReceivedMessage | None:
        """The next message; None when there is none within `timeout` seconds (None: wait for ever)."""
        if timeout is None:
            return await self._next()
        check_seconds("timeout", timeout)
        with trio.move_on_after(timeout):
            return await self._next()
        return None

    async def _next(self) -> ReceivedMessage:
        self._check_open()
        clock = self.runtime.clock
        while True:
            while self._buffer:
                message = self._buffer.popleft()
                if clock.monotonic() < message.deadline:
                    await trio.lowlevel.checkpoint()
                    return message
                self.give_back_nowait(message)
            self._adapt_prefetch(clock.monotonic())
            port, handed = await self._fetch(self._prefetch)
            self._fetched_at = clock.monotonic()
            numbers = iter(attempts(handed))
            self._buffer.extend(
                ReceivedMessage(self, port, handed, columns, index, next(numbers))
                for columns in handed.batches
                for index in range(columns.count)
            )

    def _adapt_prefetch(self, now: float) -> None:
        """Fetch more while the caller empties the buffer quickly, one at a time when it is slow."""
        quick = min(0.1, self.settings.visibility_timeout / 8)
        if self._fetched_at and now - self._fetched_at < quick:
            self._prefetch = min(self._prefetch * 2, PREFETCH_MAX)
        else:
            self._prefetch = 1

    def receive(self, *, timeout: float | None = None) -> Receiving:
        """`async with consumer.receive() as message:` holds the lease while the body runs.

        A body that ends acks the message, one that raises nacks it (with a growing delay) and lets the exception pass,
        one that is cancelled releases it. When the lease is lost all the same, the body is cancelled and `LeaseLost` is
        raised. With a `timeout`, the message is None when there was none.
        """
        self._check_open()
        return Receiving(self, timeout)

    # -- batches

    def batches(self, *, max_records: int = 1000, max_wait: float = 0.01) -> Batches:
        """Iterate batches of up to `max_records` messages, each of one partition: the quickest way to consume.

        A batch that is not full is handed over after `max_wait` seconds.
        """
        self._check_open()
        if (
            isinstance(max_records, bool)
            or not isinstance(max_records, int)
            or not 1 <= max_records <= 100_000
        ):
            raise InvalidArgument(f"max_records is {max_records!r:.40}, not a number from 1 to 100,000.")
        check_seconds("max_wait", max_wait)
        return Batches(self, max_records, max_wait)

    async def get_batch(self, max_records: int, max_wait: float) -> ReceivedBatch:
        """One batch; see `batches`."""
        self._check_open()
        port, handed = await self._fetch(max_records)
        parts = [handed]
        count = sum(columns.count for columns in handed.batches)
        if count < max_records and max_wait > 0:
            until = trio.current_time() + max_wait
            while count < max_records:
                more = await self._fetch_more(port, max_records - count, until)
                if more is None:
                    break
                parts.append(more)
                count += sum(columns.count for columns in more.batches)
        if count >= max_records:
            self.look_ahead(max_records)
        return ReceivedBatch(self, port, parts)

    async def _fetch_more(self, port: PartitionPort, limit: int, until: float) -> c.Handed | None:
        """More from the same partition, before `until`."""
        limit = min(limit, self.settings.max_in_flight - self._in_flight)
        while limit > 0:
            handed = await self._ask_partition(port, limit)
            if handed is not None:
                return handed
            with trio.move_on_at(until) as waiting:
                await self._flag.wait()
            if waiting.cancelled_caught:
                return None
            self._maybe.update(dict.fromkeys(self._flag.take()))
            if port.index not in self._maybe:
                return None
        return None

    # -- fetching

    async def _fetch(self, wanted: int) -> tuple[PartitionPort, c.Handed]:
        """Lease up to `wanted` messages from the next partition that has some; waits until one has."""
        ahead = await self._looked_ahead()
        if ahead is not None:
            return ahead
        while True:
            self._check_open()
            limit = min(wanted, self.settings.max_in_flight - self._in_flight)
            if limit <= 0:
                await self._room()
                continue
            self._maybe.update(dict.fromkeys(self._flag.take()))
            for index in list(self._maybe):
                port = self._live.ports[index]
                handed = await self._ask_partition(port, limit)
                if handed is not None:
                    del self._maybe[index]
                    self._maybe[index] = None
                    return port, handed
                self._maybe.pop(index, None)
            self._check_any_available()
            await self._flag.wait()

    def _command(self, limit: int) -> c.Fetch:
        timeout = self.settings.visibility_timeout
        return c.Fetch(self.group_id, self._id, limit, FETCH_BYTES_MAX, timeout, self._flag)

    async def _ask_partition(self, port: PartitionPort, limit: int) -> c.Handed | None:
        while True:
            try:
                handed: c.Handed | None = await port.ref.ask(self._command(limit))
            except ActorCrashed:
                continue
            except PartitionUnavailable:
                port.wakes.append(self._flag)
                return None
            except ActorStopped as error:
                raise self._stopped() from error
            if handed is None or self._accept(port, handed):
                return handed

    def _accept(self, port: PartitionPort, handed: c.Handed) -> bool:
        """Note what was handed over; False when it is nothing."""
        count = sum([columns.count for columns in handed.batches])
        if count == 0:
            return False
        self._leases[port.index, handed.lease_id] = [count, handed.deadline]
        self._in_flight += count
        return True

    def look_ahead(self, wanted: int) -> None:
        """Ask for the next messages already: their lease is then journalled together with the coming ack."""
        limit = min(wanted, self.settings.max_in_flight - self._in_flight)
        index = next(iter(self._maybe), None)
        if self._ahead is None and limit > 0 and index is not None:
            port = self._live.ports[index]
            with suppress(CallboardError):
                self._ahead = port, port.ref.ask_nowait(self._command(limit))

    async def _looked_ahead(self) -> tuple[PartitionPort, c.Handed] | None:
        """What `look_ahead` found, unless that is nothing or its lease has run out meanwhile."""
        if self._ahead is None:
            return None
        (port, reply), self._ahead = self._ahead, None
        try:
            handed: c.Handed | None = await reply.wait()
        except CallboardError:
            return None
        if handed is None:
            self._maybe.pop(port.index, None)
            return None
        if handed.deadline <= self.runtime.clock.monotonic() or not self._accept(port, handed):
            return None
        return port, handed

    def _check_any_available(self) -> None:
        ports = self._live.ports
        if all(port.state == "failed" for port in ports):
            raise ports[0].unavailable()

    def _stopped(self) -> CallboardError:
        if self._live.deleted:
            return RuntimeClosed(f"topic {self._live.name!r} was deleted; there is nothing more to consume.")
        return RuntimeClosed("the runtime is closed. Open it again.")

    async def _room(self) -> None:
        """Wait until something in flight is settled, or its lease has run out."""
        now = self.runtime.clock.monotonic()
        for key, (count, deadline) in list(self._leases.items()):
            if deadline <= now:
                del self._leases[key]
                self._in_flight -= int(count)
        if self._in_flight < self.settings.max_in_flight:
            await trio.lowlevel.checkpoint()
            return
        self._freed = trio.Event()
        with trio.move_on_at(min(deadline for _, deadline in self._leases.values())):
            await self._freed.wait()

    # -- settling

    async def settle(
        self,
        port: PartitionPort,
        verb: str,
        settled: SettledRanges,
        *,
        seconds: float = 0.0,
        reason: str | None = None,
        wait: bool = True,
    ) -> None:
        """Settle ranges of leases; what messages and batches call. Raises `LeaseLost`."""
        self.runtime.check_open()
        lost: list[tuple[int, int]] = []
        try:
            for lease_id, ranges in settled:
                self._settled_here(port.index, lease_id, sum(stop - start for start, stop in ranges))
                message = c.Settle(self.group_id, verb, lease_id, ranges, seconds, reason, not wait)
                if wait:
                    settlement = await port.ref.ask(message)
                    lost.extend(settlement.lost)
                else:
                    await self._settle_lazily(port, message)
        except ActorStopped as error:
            raise self._stopped() from error
        if lost:
            raise self._lease_lost(port, lost, verb)

    def give_back_nowait(self, message: ReceivedMessage) -> None:
        """Release a message without waiting; without effect when its lease has run out."""
        self._settled_here(message.partition, message.lease_id, 1)
        ranges = ((message.offset, message.offset + 1),)
        release = c.Settle(self.group_id, "release", message.lease_id, ranges, lazy=True)
        with suppress(CallboardError):  # then its lease runs out by itself
            message.port.ref.tell_nowait(release)

    async def _settle_lazily(self, port: PartitionPort, message: c.Settle) -> None:
        lazy = self._lazy
        while lazy and lazy[0][1].done:
            await self._collect(*lazy.popleft())
        if len(lazy) >= LAZY_ACKS_MAX:
            await self._collect(*lazy.popleft())
        while True:
            try:
                lazy.append((port, port.ref.ask_nowait(message)))
            except MailboxFull:
                await trio.lowlevel.checkpoint()
            else:
                return

    async def _collect(self, port: PartitionPort, reply: Reply) -> None:
        settlement = await reply.wait()
        self._lost_lazily.extend(settlement.lost)

    async def flush(self) -> None:
        """Return once every `ack(wait=False)` so far is synced.

        Raises `LeaseLost` when some of those messages had been leased again.
        """
        self._check_open()
        await self._flush_lazy()

    async def _flush_lazy(self) -> None:
        ports = {port.index: port for port, reply in self._lazy if not reply.done}
        try:
            for port in ports.values():
                await port.ref.ask(c.Flush())
            while self._lazy:
                await self._collect(*self._lazy.popleft())
        except ActorStopped as error:
            raise self._stopped() from error
        lost, self._lost_lazily = self._lost_lazily, []
        if lost:
            raise self._lease_lost(None, lost, "ack")
        await trio.lowlevel.checkpoint()

    def _settled_here(self, partition: int, lease_id: int, count: int) -> None:
        lease = self._leases.get((partition, lease_id))
        if lease is None:
            return
        lease[0] -= count
        self._in_flight -= count
        if lease[0] <= 0:
            del self._leases[partition, lease_id]
        self._freed.set()

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
            group=self.group,
        )

    async def extend(self, message: ReceivedMessage, seconds: float) -> None:
        """What `ReceivedMessage.extend` calls."""
        self._check_open()
        command = c.Settle(
            self.group_id, "extend", message.lease_id, ((message.offset, message.offset + 1),), seconds
        )
        kept = await message.port.ref.ask(command)
        if not kept:
            raise self._lease_lost(message.port, [(message.offset, message.offset + 1)], "extend")
        message.deadline = self.runtime.clock.monotonic() + seconds
        lease = self._leases.get((message.partition, message.lease_id))
        if lease is not None:
            lease[1] = message.deadline


class Batches:
    """Asynchronous iterator of batches; made by `Consumer.batches`."""

    def __init__(self, consumer: Consumer, max_records: int, max_wait: float) -> None:
        self._consumer = consumer
        self._max_records = max_records
        self._max_wait = max_wait

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedBatch:
        return await self._consumer.get_batch(self._max_records, self._max_wait)
