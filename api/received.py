"""What a consumer receives: messages and batches that are leased to it until they are settled or the lease runs out."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from callboard.actors.partition.commands import LeasedRecords
from callboard.actors.partition.port import PartitionPort
from callboard.log.errors import InvalidArgument, LeaseLost
from callboard.log.format.columns import Columns
from callboard.message import ColumnBatch, Record

if TYPE_CHECKING:
    from callboard.consumer_leases import ConsumerLeases


class ReceivedMessage(Record):
    """A leased message. Settle it once: `ack`, `nack` or `release`; or let its lease run out."""

    __slots__ = ("_batch", "_leases", "_settled", "attempt", "deadline", "lease_id", "port")

    def __init__(
        self,
        leases: ConsumerLeases,
        port: PartitionPort,
        leased: LeasedRecords,
        columns: Columns,
        index: int,
        attempt: int,
        batch: ReceivedBatch | None = None,
    ) -> None:
        self.topic = port.topic
        self.partition = port.index
        self.offset = columns.offset(index)
        self._columns = columns
        self._index = index
        self._batch = batch
        self._leases = leases
        self._settled = False
        self.port = port
        self.lease_id = leased.lease_id
        self.deadline = leased.deadline
        self.attempt = attempt

    async def ack(self, *, wait: bool = True) -> None:
        """The message is done with. With `wait`, returns once that is synced; without, `Consumer.flush` does.

        Without `wait` this is a checkpoint only while very many such acks are under way, and acks of neighbouring
        messages are gathered for a few milliseconds and written as one.

        Raises `LeaseLost` when the message was leased again meanwhile: then this ack has no effect.
        """
        if not wait and not self._settled and self._leases.ack_quickly(self.port, self.lease_id, self.offset):
            self._settled = True
            if self._batch is not None:
                self._batch.settled_singly[self.offset] = None
            return
        await self._settle("ack", wait=wait)

    async def nack(self, *, delay: float | None = None, reason: str | None = None) -> None:
        """The message failed: deliver it again, after `delay` seconds at the earliest. The attempt counts.

        Without a `delay`, after the group's backoff: `backoff` seconds, doubled with each attempt up to `max_backoff`.
        Handed to the operating system, not synced: a power loss may take it, and then the attempt has not counted.
        """
        check_nack(delay, reason)
        await self._settle("nack", delay_s=delay, reason=reason)

    async def release(self) -> None:
        """Give the message back unhandled: it is delivered again, and this attempt does not count."""
        await self._settle("release")

    async def extend(self, seconds: float) -> None:
        """Keep the lease for `seconds` from now. It covers all that was leased together with this message.

        Raises `LeaseLost` when it has run out.
        """
        check_seconds("seconds", seconds)
        if self._settled:
            raise self._twice()
        await self._leases.extend(self, seconds)

    @property
    def settled(self) -> bool:
        """Whether it was acked, nacked or released."""
        return self._settled

    async def _settle(
        self, verb: str, *, delay_s: float | None = None, reason: str | None = None, wait: bool = True
    ) -> None:
        """Settle once; what was cancelled, or refused by the disk, may be tried again."""
        if self._settled:
            raise self._twice()
        self._settled = True
        batch = self._batch
        if batch is not None:
            batch.settled_singly[self.offset] = None
        ranges = [(self.lease_id, [(self.offset, self.offset + 1)])]
        try:
            await self._leases.settle(self.port, verb, ranges, delay_s=delay_s, reason=reason, wait=wait)
        except LeaseLost:
            raise
        except BaseException:
            self._settled = False
            if batch is not None:
                batch.settled_singly.pop(self.offset, None)
            raise

    def _twice(self) -> InvalidArgument:
        return InvalidArgument(
            f"message {self.topic}/{self.partition}@{self.offset} is settled already. A message is settled once."
        )


class ReceivedBatch(ColumnBatch):
    """Leased messages of one partition, as columns; settled as a whole, or message by message when iterated.

    Settling the batch leaves out the messages that were settled by themselves.
    """

    __slots__ = ("_leases", "_parts", "_settled", "port", "settled_singly")

    def __init__(self, leases: ConsumerLeases, port: PartitionPort, leased: Sequence[LeasedRecords]) -> None:
        super().__init__(port.topic, port.index, [columns for part in leased for columns in part.batches])
        self._leases = leases
        self._parts = list(leased)
        self._settled = False
        self.settled_singly: dict[int, None] = {}
        self.port = port

    def attempts(self) -> list[int]:
        """Which delivery this is of each message; 1 is the first."""
        return [attempt for leased in self._parts for attempt in attempts(leased)]

    def __iter__(self) -> Iterator[ReceivedMessage]:
        for leased in self._parts:
            numbers = iter(attempts(leased))
            for columns in leased.batches:
                for index in range(columns.count):
                    yield ReceivedMessage(
                        self._leases, self.port, leased, columns, index, next(numbers), self
                    )

    def __repr__(self) -> str:
        return f"<ReceivedBatch of {len(self)} messages from {self.topic}/{self.partition}>"

    async def ack(self, *, wait: bool = True) -> None:
        """All messages are done with. Raises `LeaseLost` when some were leased again meanwhile (`lost` names them)."""
        await self._settle("ack", wait=wait)

    async def nack(self, *, delay: float | None = None, reason: str | None = None) -> None:
        """All messages failed: deliver them again, after `delay` seconds at the earliest, or the group's backoff."""
        check_nack(delay, reason)
        await self._settle("nack", delay_s=delay, reason=reason)

    async def release(self) -> None:
        """Give all messages back unhandled."""
        await self._settle("release")

    async def _settle(
        self, verb: str, *, delay_s: float | None = None, reason: str | None = None, wait: bool = True
    ) -> None:
        if self._settled:
            raise InvalidArgument(
                f"this batch of {self.topic}/{self.partition} is settled already. A batch is settled once."
            )
        self._settled = True
        ranges = [
            (leased.lease_id, [(start, stop) for start, stop, _ in leased.ranges]) for leased in self._parts
        ]
        if self.settled_singly:
            settled = sorted(self.settled_singly)
            cut = [(lease_id, _without(named, settled)) for lease_id, named in ranges]
            ranges = [(lease_id, named) for lease_id, named in cut if named]
        try:
            await self._leases.settle(self.port, verb, ranges, delay_s=delay_s, reason=reason, wait=wait)
        except LeaseLost:
            raise
        except BaseException:
            self._settled = False
            raise


def attempts(leased: LeasedRecords) -> list[int]:
    """The attempt of each record in `handed.batches`, in order."""
    if len(leased.ranges) == 1:
        return [leased.ranges[0][2]] * sum(columns.count for columns in leased.batches)
    found: list[int] = []
    rows = iter(leased.ranges)
    _, stop, attempt = next(rows, (0, 0, 0))
    for columns in leased.batches:
        for offset in columns.offset_list():
            while offset >= stop:
                _, stop, attempt = next(rows)
            found.append(attempt)
    return found


def _without(ranges: list[tuple[int, int]], offsets: list[int]) -> list[tuple[int, int]]:
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


def check_nack(delay: object, reason: object) -> None:
    """Raise `InvalidArgument` unless these can be a nack's delay and reason."""
    if delay is not None:
        check_seconds("delay", delay)
    if reason is not None and not isinstance(reason, str):
        raise InvalidArgument(
            f"reason is {type(reason).__name__}, not text. Nothing was changed. Give str(...) of it."
        )


def check_seconds(what: str, seconds: object) -> None:
    """Raise `InvalidArgument` unless `seconds` is a finite number from 0 on."""
    valid = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
    if not valid or not 0 <= seconds < 10**9:  # type: ignore[operator]
        raise InvalidArgument(
            f"{what} is {seconds!r:.40}, not a number of seconds from 0 on. Nothing was changed."
        )
