"""A consumer: one member of a group, reading one topic.

It holds no task of its own. It asks the partitions that have, or may have, something ready, one after the other, and
waits for their notices; leases are asked for only when the caller wants messages. One-by-one iteration fetches a
few at a time, more as long as the caller is quick; what a slow handler leaves lying is given back for others to do.

Several tasks may share a consumer: they take turns at fetching.

Invariants
----------
U1  A message that was fetched is in the buffer, in the caller's hands, or given back; a cancelled call loses none.
U2  What the caller holds unsettled never exceeds `max_in_flight`, leases that ran out not counted.
U3  Only one task fetches at a time.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, overload

import trio

from callboard.actors.catalog.commands import Admission, EnsureGroup
from callboard.actors.catalog.directory import LiveTopic
from callboard.actors.groups.coordinator import Join, Leave
from callboard.actors.groups.membership import Joined, MemberNews, Membership
from callboard.actors.kernel import ActorRef, Reply
from callboard.actors.names import check_name
from callboard.actors.partition import commands as c
from callboard.actors.partition.awaited import AwaitedPartitions
from callboard.actors.partition.port import PartitionPort
from callboard.actors.settings import GroupSettings
from callboard.consumer_leases import ConsumerLeases
from callboard.log.errors import (
    ActorCrashed,
    ActorStopped,
    CallboardError,
    ConsumerFenced,
    GroupNotFound,
    InvalidArgument,
    PartitionUnavailable,
    RuntimeClosed,
    TopicNotFound,
)
from callboard.received import ReceivedBatch, ReceivedMessage, attempts, check_seconds
from callboard.receiving import Batches, Receiving

if TYPE_CHECKING:
    from callboard.session import Session


PASS_MESSAGES = 64
PASS_S = 0.001
"""Other tasks run at the latest after so many messages that were there already, and after so many seconds."""
LOOK_S = 0.05
"""How long a consumer that does not want to wait allows the partitions for their answers."""


class Consumer:
    """Made by `Topic.subscribe`; use it with `async with`. Tasks may share it, or each have one of its own."""

    def __init__(
        self, runtime: Session, live: LiveTopic, group: str, given: Mapping[str, Any], name: str | None = None
    ) -> None:
        self.group = group
        self.name = None if name is None else check_name(name, "consumer")
        """Who this is, for people: it stands beside the consumer's id in `Runtime.groups`."""
        self.settings = GroupSettings()
        self.runtime = runtime
        self.group_id = 0
        self.leases = ConsumerLeases(runtime, live, group)
        self._live = live
        self._given = given
        self._entered = False
        self._id = 0
        self._coordinator: ActorRef[Any]
        self._membership: Membership
        self._news: MemberNews
        self._generation = 1
        self._awaited = AwaitedPartitions()
        self._maybe: dict[int, None] = {}
        self._buffer: deque[ReceivedMessage] = deque()
        self._turn = trio.Lock()
        self._ahead: tuple[PartitionPort, Reply] | None = None
        self._prefetch = 1
        self._messages_in_pass = 0
        self._pass_until = 0.0
        self._fetched_at: float | None = None
        self._open = False

    def __repr__(self) -> str:
        return f"<Consumer of {self._live.name!r} in group {self.group!r}>"

    # -- joining and leaving

    async def __aenter__(self) -> Self:
        if self._entered:
            raise InvalidArgument("a consumer is entered once. Subscribe again.")
        self._entered = True
        if self._live.deleted:
            raise TopicNotFound(f"topic {self._live.name!r} was deleted.", topic=self._live.name)
        admission: Admission = await self.runtime.ask_catalog(
            EnsureGroup(self.group, self._live.name, self._given)
        )
        self._id, self._membership = admission.consumer, admission.group.membership
        self._coordinator = admission.group.ref
        self._news = self._membership.news[self._id] = MemberNews(self._look_again)
        self._open = True
        try:
            await self._join()
        except BaseException:
            self._open = False
            self._membership.depart(self._id)
            raise
        count = len(self._live.ports)
        first = self._id % count  # consumers that come together do not all begin at the same partition
        self._maybe = dict.fromkeys((*range(first, count), *range(first)))
        return self

    async def _join(self) -> None:
        """Become a member, or make sure of it: the coordinator opens the group wherever that is missing."""
        while True:
            try:
                joined: Joined = await self._coordinator.ask(Join(self._id, self._live.topic_id, self.name))
                if not self._open:  # left meanwhile, by another task
                    self._membership.depart(self._id)
                self.group_id, self.settings = joined.group_id, joined.settings
                self._generation = joined.generation
                self.leases.begin(self.group_id, self.settings.max_in_flight)
            except ActorCrashed:
                continue
            except ActorStopped as error:
                self.runtime.check_open()
                if self._live.deleted:
                    raise self.leases.stopped() from error
                raise GroupNotFound(
                    f"group {self.group!r} was deleted or has expired. Subscribe again.", group=self.group
                ) from error
            else:
                return

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.runtime.check_run()
        self._open = False
        self._awaited.close()
        self.leases.end()
        self._buffer.clear()
        if error is not None:
            self.leases.send_gathered()
            self._membership.depart(self._id)
            await trio.lowlevel.cancel_shielded_checkpoint()
            return
        try:
            await self.leases.flush()
            await self._leave()
        except BaseException:
            self._membership.depart(self._id)
            raise

    def _look_again(self) -> None:
        """The coordinator has news: what sleeps looks at every partition again, and takes them."""
        if self._is_fenced:
            self._buffer.clear()
            self.leases.forget()
        for port in self._live.ports:
            self._awaited.set(port.index)

    @property
    def _is_fenced(self) -> bool:
        """The group has begun a new generation of this consumer: what it has fetched is not its own."""
        return self._news.generation > self._generation

    async def _leave(self) -> None:
        """Leave, and wait until the leases are released."""
        while True:
            try:
                await self._coordinator.ask(Leave(self._id))
            except ActorCrashed:
                continue
            except ActorStopped:
                pass  # the group is deleted, or the runtime closes
            return

    def _check_open(self) -> None:
        self.runtime.check_open()
        if not self._open:
            raise RuntimeClosed("the consumer is closed. Use it inside `async with topic.subscribe(...)`.")

    # -- one by one

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage:
        message = await self._next(math.inf)
        if message is None:
            raise StopAsyncIteration
        return message

    @overload
    async def get(self, *, timeout: None = None) -> ReceivedMessage: ...
    @overload
    async def get(self, *, timeout: float | None) -> ReceivedMessage | None: ...
    async def get(self, *, timeout: float | None = None) -> ReceivedMessage | None:
        """The next message; None when there is none within `timeout` seconds (None: wait for ever).

        `timeout=0` looks once: it waits for the partitions' answers, for 50 ms at most, and for nothing else.

        Every call is a checkpoint where it can be cancelled, and a cancelled call loses no message. It is not always a
        schedule point: of messages that were fetched together, up to 64 come in one pass of the loop, within a
        millisecond. So is iterating.
        """
        if timeout is None:
            return await self._next(math.inf)
        check_seconds("timeout", timeout)
        until = trio.current_time() + timeout
        with trio.move_on_after(max(timeout, LOOK_S)):
            return await self._next(until)
        return None

    async def _next(self, until: float) -> ReceivedMessage | None:
        """The next message; None when there was none by `until`.

        After it is taken from the buffer there is no checkpoint any more (U1).
        """
        self._check_open()
        while True:
            if self._buffer:
                await self._pass()
            else:
                with trio.move_on_at(until) as waiting:
                    await self._begin_turn()
                if waiting.cancelled_caught:
                    return None
                try:
                    if not self._buffer and not await self._fill_buffer(until):
                        return None
                finally:
                    self._turn.release()
            message = self._buffered()
            if message is not None:
                return message

    async def _pass(self) -> None:
        """A checkpoint for cancellation, and now and then one that lets other tasks run."""
        self._messages_in_pass += 1
        if self._messages_in_pass < PASS_MESSAGES and self.runtime.clock.monotonic() < self._pass_until:
            await trio.lowlevel.checkpoint_if_cancelled()
            return
        await trio.lowlevel.checkpoint()
        self._begin_pass()

    def _begin_pass(self) -> None:
        self._messages_in_pass = 0
        self._pass_until = self.runtime.clock.monotonic() + PASS_S

    async def _begin_turn(self) -> None:
        """Wait until no other task fetches (U3)."""
        if self._turn.locked():
            await self._turn.acquire()
        else:
            self._turn.acquire_nowait()

    async def _fill_buffer(self, until: float) -> bool:
        """Fetch a few messages; False when there was none by `until`."""
        clock = self.runtime.clock
        self._adapt_prefetch(clock.monotonic())
        found = await self._fetch(self._prefetch, until)
        if found is None:
            return False
        port, leased = found
        self._begin_pass()
        self._fetched_at = clock.monotonic()
        numbers = iter(attempts(leased))
        self._buffer.extend(
            ReceivedMessage(self.leases, port, leased, columns, index, next(numbers))
            for columns in leased.batches
            for index in range(columns.count)
        )
        return True

    def _buffered(self) -> ReceivedMessage | None:
        """The next of the buffer. When too little is left of its lease, all that is there is given back."""
        if self._buffer:
            if self._is_fresh(self._buffer[0].deadline):
                return self._buffer.popleft()
            self.give_back_buffer()
        return None

    def give_back_buffer(self) -> None:
        """Release what was fetched and not yet asked for."""
        messages = list(self._buffer)
        self._buffer.clear()
        self.leases.give_back_messages(messages)

    def _is_fresh(self, deadline: float) -> bool:
        """Whether at least half of a visibility timeout is left."""
        return deadline - self.runtime.clock.monotonic() >= self.settings.visibility_timeout / 2

    def _adapt_prefetch(self, now: float) -> None:
        """Fetch more while the caller empties the buffer quickly, one at a time when it is slow."""
        quick = min(0.1, self.settings.visibility_timeout / 8)
        if self._fetched_at is not None and now - self._fetched_at < quick:
            self._prefetch = min(self._prefetch * 2, self.runtime.limits.prefetch)
        else:
            self._prefetch = 1

    @overload
    def receive(self, *, timeout: None = None) -> Receiving[ReceivedMessage]: ...
    @overload
    def receive(self, *, timeout: float | None) -> Receiving[ReceivedMessage | None]: ...
    def receive(self, *, timeout: float | None = None) -> Receiving[Any]:
        """`async with consumer.receive() as message:` holds the lease while the body runs.

        A body that ends acks the message, one that raises nacks it (with a growing delay) and lets the exception pass,
        one that is cancelled releases it. When the lease is lost all the same, the body is cancelled and `LeaseLost` is
        raised. With a `timeout`, the message is None when there was none.
        """
        self._check_open()
        return Receiving(self, timeout)

    async def flush(self) -> None:
        """Return once every `ack(wait=False)` so far is synced.

        Raises `LeaseLost` when some of those messages had been leased again, and `StorageError` when acks could not be
        written: their messages are delivered again.
        """
        self._check_open()
        await self.leases.flush()

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
        await self._begin_turn()
        try:
            if self._buffer:
                self.give_back_buffer()  # fetched for one-by-one iteration: it comes again, as part of a batch
            parts: list[c.LeasedRecords] = []
            while not parts:
                found = await self._fetch(max_records, math.inf)
                if found is None:
                    continue
                port, leased = found
                parts.append(leased)
                try:
                    count = await self._fill_batch(port, parts, max_records, max_wait)
                except BaseException:
                    self.leases.give_back(port, parts)
                    raise
                self._drop_stale(port, parts)
            if count >= max_records:
                self.look_ahead(max_records)
        finally:
            self._turn.release()
        return ReceivedBatch(self.leases, port, parts)

    def _drop_stale(self, port: PartitionPort, parts: list[c.LeasedRecords]) -> None:
        """Give back the parts whose lease has run out: on a slow disk filling a batch may take long."""
        now = self.runtime.clock.monotonic()
        stale = [leased for leased in parts if leased.deadline <= now]
        if stale:
            parts[:] = [leased for leased in parts if leased not in stale]
            self.leases.give_back(port, stale)

    async def _fill_batch(
        self, port: PartitionPort, parts: list[c.LeasedRecords], max_records: int, max_wait: float
    ) -> int:
        """Add to `parts` until they are `max_records`, or `max_wait` is over; returns how many they are."""
        count = sum([columns.count for columns in parts[0].batches])
        if count < max_records and max_wait > 0:
            until = trio.current_time() + max_wait
            while count < max_records:
                more = await self._fetch_more(port, max_records - count, until)
                if more is None:
                    break
                parts.append(more)
                count += sum([columns.count for columns in more.batches])
        return count

    async def _fetch_more(self, port: PartitionPort, limit: int, until: float) -> c.LeasedRecords | None:
        """More from the same partition, before `until`."""
        limit = min(limit, self.leases.room())
        while limit > 0:
            leased = await self._ask_partition(port, limit)
            if leased is not None:
                return leased
            with trio.move_on_at(until) as waiting:
                await self._await(port)
                await self._awaited.wait()
            if waiting.cancelled_caught:
                return None
            self._maybe.update(dict.fromkeys(self._awaited.take()))
            if port.index not in self._maybe:
                return None
        return None

    # -- fetching

    async def _fetch(self, wanted: int, until: float) -> tuple[PartitionPort, c.LeasedRecords] | None:
        """Lease up to `wanted` messages from the next partition that has some; None when none had any by `until`."""
        self.leases.send_gathered()
        if self._is_fenced:
            self._ahead = None
        ahead = await self._looked_ahead()
        if ahead is not None:
            return ahead
        while True:
            self._check_open()
            if self._is_fenced:
                await self._join()
            limit = min(wanted, self.leases.room())
            if limit <= 0:
                with trio.move_on_at(until) as waiting:
                    await self.leases.wait_for_room()
                if waiting.cancelled_caught:
                    return None
                continue
            self._maybe.update(dict.fromkeys(self._awaited.take()))
            for index in list(self._maybe):
                port = self._live.ports[index]
                leased = await self._ask_partition(port, limit)
                if leased is not None:
                    del self._maybe[index]
                    self._maybe[index] = None
                    return port, leased
                await self._await(port)
                self._maybe.pop(index, None)
            self._check_any_available()
            with trio.move_on_at(until) as waiting:
                await self._awaited.wait()
            if waiting.cancelled_caught:
                return None

    async def _await(self, port: PartitionPort) -> None:
        """Have a partition in which nothing was ready say when something is."""
        if port.state != "failed":
            try:
                await self._awaited.ask(port.index, port.ref, c.WaitForReady(self.group_id, self._id))
            except PartitionUnavailable:
                self._awaited.set(port.index)
            except ActorStopped as error:
                raise self.leases.stopped() from error

    def _command(self, limit: int) -> c.Fetch:
        return c.Fetch(self.group_id, self._id, limit, self.runtime.limits.fetch_bytes, self._generation)

    async def _ask_partition(self, port: PartitionPort, limit: int) -> c.LeasedRecords | None:
        while True:
            try:
                leased: c.LeasedRecords | None = await port.ref.ask(self._command(limit))
            except ActorCrashed:
                continue
            except ConsumerFenced:
                await self._join()
                continue
            except GroupNotFound:
                await self._join()  # raises unless the partition had only missed that the group was opened
                continue
            except PartitionUnavailable:
                if port.state != "failed":
                    continue  # revived meanwhile
                port.restart_waiters.add(self._awaited)
                return None
            except ActorStopped as error:
                raise self.leases.stopped() from error
            if leased is None or self.leases.accept(port, leased):
                return leased

    def look_ahead(self, wanted: int) -> None:
        """Ask for the next messages already: their lease is then journalled together with the coming ack."""
        limit = min(wanted, self.leases.room())
        index = next(iter(self._maybe), None)
        if self._ahead is None and limit > 0 and index is not None:
            port = self._live.ports[index]
            with suppress(CallboardError):
                self._ahead = port, port.ref.ask_nowait(self._command(limit))

    async def _looked_ahead(self) -> tuple[PartitionPort, c.LeasedRecords] | None:
        """What `look_ahead` found, unless that is nothing or too little is left of its lease."""
        if self._ahead is None:
            return None
        port, reply = self._ahead
        if reply.done:
            await trio.lowlevel.checkpoint()  # cancelled here, the answer is there for the next call (U1)
        self._ahead = None
        try:
            leased: c.LeasedRecords | None = reply.value() if reply.done else await reply.settled()
        except CallboardError:
            return None
        if leased is None:
            return None  # still in `_maybe`: it is asked once more, and then awaited
        if not self.leases.accept(port, leased):
            return None
        if not self._is_fresh(leased.deadline):
            self.leases.give_back(port, [leased])
            return None
        return port, leased

    def _check_any_available(self) -> None:
        ports = self._live.ports
        if all(port.state == "failed" for port in ports):
            raise ports[0].unavailable()
