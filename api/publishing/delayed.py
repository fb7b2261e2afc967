"""The messages of a topic that wait until they are due: `topic.delayed()`."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence, Sized
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar

import attrs
import trio

from callboard.actors.clients.calls import record_in
from callboard.actors.forwarding.commands import CancelDelayed, CountDelayed, ListDelayed
from callboard.actors.kernel import ActorRef, Question
from callboard.actors.partition.commands import Read
from callboard.actors.records.delayed_records import DELAYED, due_of
from callboard.log.errors import ActorCrashed, ActorStopped, InvalidArgument, RuntimeClosed, TopicNotFound
from callboard.log.format.columns import FOREVER
from callboard.log.limits import OFFSET_MAX, READ_BYTES_DEFAULT
from callboard.log.plain import each_of, is_a, items, refuse_copy, shown, whole
from callboard.message import Receipt, Record, ScheduledReceipt, from_us, topic_id_field

if TYPE_CHECKING:
    from callboard.actors.clients.port import PartitionPort
    from callboard.actors.mirror import MirroredTopic
    from callboard.log.format.columns import Columns
    from callboard.session import Session

PAGE: Final = 1000
"""Messages in one request."""


@attrs.frozen(kw_only=True)
class DelayedMessage:
    """A message that waits."""

    topic: str
    partition: int
    schedule_id: int
    due: datetime
    """When it is due; of a delay, unless the clock is set anew meanwhile."""
    value: bytes
    key: bytes | None
    headers: dict[str, bytes]
    timestamp: datetime | None
    """The event's own time, None without one."""
    ttl: float | None
    """How many seconds after it came to its topic it expires; None: as the topic says."""
    priority: int | None
    _topic_id: str | None = topic_id_field()


def waits_in(delayed: ScheduledReceipt | DelayedMessage, topic_id: str) -> bool:
    """Whether it waits in the topic of this id, not in an earlier one of the same name."""
    return delayed._topic_id in (None, topic_id)


A = TypeVar("A")


class DelayedMessages:
    """The messages of one topic that wait until they are due. `Topic.delayed` returns it."""

    __reduce_ex__ = refuse_copy

    def __init__(self, session: Session, live: MirroredTopic) -> None:
        self._session = session
        self._live = live

    async def list(
        self, *, limit: int = 1000, after: DelayedMessage | Receipt | None = None
    ) -> tuple[DelayedMessage, ...]:
        """The first `limit` messages that wait, partition by partition, in the order in which they were published.

        With `after`, the last one of a list before or a `ScheduledReceipt`, it goes on behind that, whether or not that
        still waits. So a million are looked at a thousand at a time, until a list is empty::

            last = None
            while page := await orders.delayed().list(after=last):
                last = page[-1]
        """
        place = (0, -1) if after is None else self._place(after, "listed")
        return await self._behind(place, _limit(limit))

    async def _behind(self, place: tuple[int, int], limit: int) -> tuple[DelayedMessage, ...]:
        first, above = place
        topic_id, ports = self._live.topic_id, self._live.waiting[first:]
        await self._begin(ports)
        found: list[DelayedMessage] = []
        for port in ports:
            while len(found) < limit:
                rows = await self._ask_forwarder(
                    ListDelayed(topic_id, port.index, above, min(PAGE, limit - len(found)))
                )
                if not rows:
                    break
                found += await self._read(port, rows)
                above = rows[-1][0]
            above = -1
        return tuple(found)

    async def next(self, *, limit: int = 100) -> tuple[DelayedMessage, ...]:
        """The `limit` messages that are due first, in the order in which they are due.

        All that wait are looked at, and no more than these are kept in memory.
        """
        limit = _limit(limit)
        await self._begin(self._live.waiting)
        first: list[tuple[int, int, int]] = []
        """A heap of those that are due first, the last of them at its top: (minus due, minus partition, minus id)."""
        for port in self._live.waiting:
            after = -1
            while rows := await self._ask_forwarder(
                ListDelayed(self._live.topic_id, port.index, after, PAGE)
            ):
                for schedule_id, due_us in rows:
                    place = (-due_us, -port.index, -schedule_id)
                    if len(first) < limit:
                        heapq.heappush(first, place)
                    else:
                        heapq.heappushpop(first, place)
                after = rows[-1][0]
        found: list[DelayedMessage] = []
        for port in self._live.waiting:
            rows = sorted([(-due_id, -due) for due, partition, due_id in first if -partition == port.index])
            found += await self._read(port, rows)
        return tuple(sorted(found, key=lambda each: (each.due, each.partition, each.schedule_id)))

    async def count(self) -> int:
        """How many wait now."""
        await self._begin(self._live.waiting)
        topic_id, ports = self._live.topic_id, self._live.waiting
        return sum([await self._ask_forwarder(CountDelayed(topic_id, port.index)) for port in ports])

    async def cancel(
        self, receipts: Receipt | DelayedMessage | Iterable[Receipt] | Iterable[DelayedMessage]
    ) -> int:
        """Have these never come to their topic; returns, once that is synced, how many waited until then.

        They are named by the `ScheduledReceipt`s that `publish` returned, or by what `list` returns. A message that is
        due and on its way is not cancelled any more. Raises `ActorCrashed`, or a `StorageError`, when
        it is not known which were: cancel again; and `TopicNotFound` when one waited in another topic of this name.
        """
        given: list[object] | None = [receipts]
        if not is_a(receipts, Receipt, DelayedMessage):
            given = each_of(receipts)
        if given is None:
            raise InvalidArgument(f"{shown(receipts, 80)} is no receipt, nor several. Nothing was cancelled.")
        by_partition: dict[int, list[int]] = {}
        for receipt in given:
            partition, schedule_id = self._place(receipt, "cancelled")
            by_partition.setdefault(partition, []).append(schedule_id)
        cancelled = 0
        await self._begin(by_partition)
        for partition, ids in by_partition.items():
            cancelled += len(await self.cancel_ids(partition, ids))
        return cancelled

    def _place(self, receipt: object, done: str) -> tuple[int, int]:
        """Partition and schedule id of a delayed message of this topic, before anything is `done`."""
        if not isinstance(receipt, (ScheduledReceipt, DelayedMessage)) or receipt.topic != self._live.name:
            raise InvalidArgument(
                f"{shown(receipt, 80)} is no receipt of a delayed message of topic {self._live.name!r}. Nothing was"
                f" {done}."
            )
        if not waits_in(receipt, self._live.topic_id):
            raise TopicNotFound(
                f"{shown(receipt, 80)} is of another topic {self._live.name!r}: one was deleted, and the other made"
                f" under its name. Nothing was {done}.",
                topic=self._live.name,
            )
        return receipt.partition, receipt.schedule_id

    async def cancel_ids(self, partition: int, schedule_ids: Sequence[int]) -> Sequence[int]:
        """The same by the ids in one partition; returns those that waited until then."""
        index, ids = whole(partition), items(schedule_ids, OFFSET_MAX)
        if index is None or not 0 <= index < len(self._live.ports):
            raise InvalidArgument(
                f"topic {self._live.name!r} has no partition {shown(partition, 40)}. Nothing was cancelled."
            )
        if ids is None:
            raise InvalidArgument(
                f"{shown(schedule_ids, 40)} is no sequence of schedule ids. Nothing was cancelled."
            )
        numbers: list[int] = []
        for schedule_id in ids:
            found = whole(schedule_id)
            if found is None or found < 0:
                raise InvalidArgument(
                    f"{shown(schedule_id, 40)} is no schedule id, a number from 0 on. Nothing was cancelled."
                )
            numbers.append(found)
        await self._begin(self._live.waiting)
        if not self._live.waiting:
            return []
        message = CancelDelayed(self._live.topic_id, index, tuple(numbers))
        cancelled: Sequence[int] = await self._ask_forwarder(message)
        return cancelled

    async def _begin(self, asked: Sized) -> None:
        """Raise `RuntimeClosed`, also where nothing is `asked`: then this is the call's checkpoint."""
        self._session.check_open()
        if not asked:
            await trio.lowlevel.checkpoint()

    async def _ask_forwarder(self, message: Question[A]) -> A:
        return await self._ask(self._session.delayed_forwarder(), message)

    async def _ask(self, ref: ActorRef[Any], message: Question[A]) -> A:
        self._session.check_open()
        while True:
            try:
                return await ref.ask(message)
            except ActorCrashed:
                if isinstance(message, CancelDelayed):
                    raise
            except ActorStopped as error:
                if self._live.deleted:
                    name = self._live.name
                    raise TopicNotFound(f"topic {name!r} was deleted.", topic=name) from error
                raise RuntimeClosed("the runtime is closed. Open it again.") from error

    async def _read(self, port: PartitionPort, rows: Sequence[tuple[int, int]]) -> Sequence[DelayedMessage]:
        found: list[DelayedMessage] = []
        batches: Sequence[Columns] = []
        for schedule_id, due_us in rows:
            at = record_in(batches, schedule_id)
            if at is None:
                answer = await self._ask(port.ref, Read(schedule_id, len(rows), READ_BYTES_DEFAULT))
                batches = [] if answer is None else answer[0]
                at = record_in(batches, schedule_id)
            if at is not None:  # else it came to its topic meanwhile
                found.append(_message(port, schedule_id, due_us, *at))
        return found


def _limit(limit: object) -> int:
    found = whole(limit)
    if found is None or found < 1:
        raise InvalidArgument(f"limit is {shown(limit, 40)}, not a number of messages from 1 on.")
    return min(found, OFFSET_MAX)


def _message(
    port: PartitionPort, schedule_id: int, due_us: int, columns: Columns, index: int
) -> DelayedMessage:
    record = Record(port.topic, port.index, columns, index)
    headers = record.headers
    due = due_of(headers.pop(DELAYED, None))
    time_us, ttl_us = (None, None) if due is None else (due.time_us, due.ttl_us)
    return DelayedMessage(
        topic=port.topic,
        partition=port.index,
        schedule_id=schedule_id,
        due=from_us(due_us),
        value=record.value,
        key=record.key,
        headers=headers,
        timestamp=None if time_us is None else from_us(time_us),
        ttl=None if ttl_us is None else math.inf if ttl_us == FOREVER else ttl_us / 1e6,
        priority=record.priority,
        topic_id=port.topic_id,
    )
