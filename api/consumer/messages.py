"""What a consumer receives: messages and batches that are settled, or whose lease runs out."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Final, overload

from callboard.actors.partition import commands as c
from callboard.arguments import check_flag
from callboard.consumer import publishing_acks
from callboard.consumer.arguments import check_nack, check_seconds
from callboard.consumer.publishing_acks import StagedPublishes
from callboard.log.errors import InvalidArgument, LeaseLost
from callboard.log.limits import OFFSET_MAX
from callboard.log.plain import refuse_copy
from callboard.message import ColumnBatch, Record

if TYPE_CHECKING:
    from callboard.actors.records.outbox_records import Payload
    from callboard.consumer.leases import ConsumerLease, LeasedPart
    from callboard.consumer.settlements import Settle, Settlements
    from callboard.log.format.columns import Columns

BATCH_PLACE: Final = OFFSET_MAX
"""Behind all offsets."""


class ReceivedMessage(Record):
    """A leased message. Settle it once: `ack`, `nack`, `reject` or `release`; or let its lease run out."""

    __slots__ = dict.fromkeys(["_batch", "_settlements", "_staged", "lease"]) | {
        "attempt": "Which delivery to the group this is, among those that count; 1 is the first.",
        "settled": "Whether it was acked, nacked, rejected or released.",
    }
    __reduce_ex__ = refuse_copy
    publish = publishing_acks.publish

    def __init__(
        self,
        settlements: Settlements,
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
        self._settlements = settlements
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
        if (
            wait is False
            and not self.settled
            and self._staged is None
            and self._settlements.lazy_acks.join(self.lease, self.offset, self.offset + 1)
        ):
            self.settled = True
            if self._batch is not None:
                self._batch.settled_singly[self.offset] = None
        else:
            payloads = () if self._staged is None else self._staged.payloads
            await self._settle(self._settlements.acks(payloads, wait=check_flag("wait", wait)))

    async def nack(self, *, delay: float | None = None, reason: str | None = None) -> None:
        """The message failed: deliver it again, after `delay` seconds at the earliest. The attempt counts.

        Without a `delay`, after the group's backoff: `backoff` seconds, doubled with each attempt up to `max_backoff`.
        Handed to the operating system, not synced: a power loss may take it, and then the attempt has not counted.
        """
        delay, reason = check_nack(delay, reason)
        await self._settle(self._settlements.nacks(delay, reason))

    async def reject(self, *, reason: str | None = None) -> None:
        """The message can never be handled: a dead letter, synced. Raises as `ack` does, and `DeadLettersFull`."""
        _, reason = check_nack(None, reason)
        await self._settle(self._settlements.rejects(reason))

    async def release(self) -> None:
        """Give the message back unhandled: it is delivered again, and this attempt does not count."""
        await self._settle(self._settlements.releases())

    async def extend(self, seconds: float) -> None:
        """Keep the lease for `seconds` from now. It covers all that was leased together with this message.

        Raises `LeaseLost` when it has run out.
        """
        seconds = check_seconds("seconds", seconds)
        if self.settled:
            raise self._twice()
        await self._settlements.leases.extend(self.lease, self.offset, seconds)

    async def _settle(self, settle: Settle) -> None:
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
        message.settled, leases = True, message._settlements.leases
        ranges = ((message.offset, message.offset + 1),)
        leases.hand_over(message.lease, c.Ack(leases.group_id, message.lease.lease_id, ranges))


def hand_over_nack(message: ReceivedMessage, reason: str) -> None:
    """Have the partition take a cancelled task's nack."""
    if not message.settled:
        message.settled, leases = True, message._settlements.leases
        ranges = ((message.offset, message.offset + 1),)
        leases.hand_over(
            message.lease, c.Nack(leases.group_id, message.lease.lease_id, ranges, reason=reason)
        )


class ReceivedBatch(ColumnBatch):
    """Leased messages of one partition, as columns; settled as a whole, or message by message when iterated.

    Settling the batch leaves out the messages that were settled by themselves. Indices and slices give messages.
    """

    __slots__ = ("_messages", "_parts", "_settlements", "settled", "settled_singly", "staged")
    __reduce_ex__ = refuse_copy
    publish = publishing_acks.publish

    def __init__(self, settlements: Settlements, parts: Sequence[LeasedPart]) -> None:
        port = parts[0].lease.port
        super().__init__(port.topic, port.index, [span for part in parts for span in part.spans])
        self._settlements = settlements
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
                    yield ReceivedMessage(self._settlements, part.lease, columns, index, next(numbers), self)

    def __repr__(self) -> str:
        return f"<ReceivedBatch of {len(self)} messages from {self.topic}/{self.partition}>"

    async def ack(self, *, wait: bool = True) -> None:
        """All messages are done with. Raises `LeaseLost` when some were leased again meanwhile (`lost` names them).

        Without `wait` as `ReceivedMessage.ack`.
        """
        await self._settle(self._settlements.acks(self._unpublished(), wait=check_flag("wait", wait)))

    async def nack(self, *, delay: float | None = None, reason: str | None = None) -> None:
        """All messages failed: deliver them again, after `delay` seconds at the earliest, or the group's backoff."""
        delay, reason = check_nack(delay, reason)
        await self._settle(self._settlements.nacks(delay, reason))

    async def reject(self, *, reason: str | None = None) -> None:
        """No message can ever be handled: they are dead letters. Raises `LeaseLost`, `DeadLettersFull`."""
        _, reason = check_nack(None, reason)
        await self._settle(self._settlements.rejects(reason))

    async def release(self) -> None:
        """Give all messages back unhandled."""
        await self._settle(self._settlements.releases())

    async def _settle(self, settle: Settle) -> None:
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


def messages_of(settlements: Settlements, lease: ConsumerLease) -> list[ReceivedMessage]:
    """All that is left of a lease, as messages."""
    part = lease.take(lease.untaken)
    numbers = repeat(part.ranges[0][2]) if len(part.ranges) == 1 else part.attempts()
    return [
        ReceivedMessage(settlements, lease, columns, index, next(numbers))
        for columns, start, stop in part.spans
        for index in range(start, stop)
    ]


def without(ranges: list[tuple[int, int]], offsets: list[int]) -> list[tuple[int, int]]:
    """`ranges` without `offsets`; both are sorted."""
    left: list[tuple[int, int]] = []
    place = 0
    for start, stop in ranges:
        place = bisect_left(offsets, start, place)
        while place < len(offsets) and offsets[place] < stop:
            if start < offsets[place]:
                left.append((start, offsets[place]))
            start = offsets[place] + 1
            place += 1
        if start < stop:
            left.append((start, stop))
    return left
