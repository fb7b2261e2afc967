"""What a consumer receives: messages and batches that are leased to it until they are settled or the lease runs out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from callboard.actors.partition.commands import Handed
from callboard.actors.partition.port import PartitionPort
from callboard.log.errors import InvalidArgument, LeaseLost
from callboard.log.format.columns import Columns
from callboard.message import ColumnBatch, Record

if TYPE_CHECKING:
    from callboard.held import Held


class ReceivedMessage(Record):
    """A leased message. Settle it once: `ack`, `nack` or `release`; or let its lease run out."""

    __slots__ = ("_held", "_settled", "attempt", "deadline", "lease_id", "port")

    def __init__(
        self,
        held: Held,
        port: PartitionPort,
        handed: Handed,
        columns: Columns,
        index: int,
        attempt: int,
    ) -> None:
        super().__init__(port.topic, port.index, columns, index)
        self._held = held
        self._settled = False
        self.port = port
        self.lease_id = handed.lease_id
        self.deadline = handed.deadline
        self.attempt = attempt

    async def ack(self, *, wait: bool = True) -> None:
        """The message is done with. With `wait`, returns once that is synced; without, `Consumer.flush` does.

        Without `wait` this is a checkpoint only while very many such acks are under way.

        Raises `LeaseLost` when the message was leased again meanwhile: then this ack has no effect.
        """
        await self._settle("ack", wait=wait)

    async def nack(self, *, delay: float = 0.0, reason: str | None = None) -> None:
        """The message failed: deliver it again, after `delay` seconds at the earliest. The attempt counts.

        Handed to the operating system, not synced: a power loss may take it, and then the attempt has not counted.
        """
        check_seconds("delay", delay)
        await self._settle("nack", seconds=delay, reason=reason)

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
        await self._held.extend(self, seconds)

    @property
    def settled(self) -> bool:
        """Whether it was acked, nacked or released."""
        return self._settled

    async def _settle(
        self, verb: str, *, seconds: float = 0.0, reason: str | None = None, wait: bool = True
    ) -> None:
        """Settle once; what was cancelled, or refused by the disk, may be tried again."""
        if self._settled:
            raise self._twice()
        self._settled = True
        ranges = [(self.lease_id, [(self.offset, self.offset + 1)])]
        try:
            await self._held.settle(self.port, verb, ranges, seconds=seconds, reason=reason, wait=wait)
        except LeaseLost:
            raise
        except BaseException:
            self._settled = False
            raise

    def _twice(self) -> InvalidArgument:
        return InvalidArgument(
            f"message {self.topic}/{self.partition}@{self.offset} is settled already. A message is settled once."
        )


class ReceivedBatch(ColumnBatch):
    """Leased messages of one partition, as columns; settled as a whole, or message by message when iterated."""

    __slots__ = ("_held", "_parts", "_settled", "port")

    def __init__(self, held: Held, port: PartitionPort, handed: Sequence[Handed]) -> None:
        super().__init__(port.topic, port.index, [columns for part in handed for columns in part.batches])
        self._held = held
        self._parts = list(handed)
        self._settled = False
        self.port = port

    def attempts(self) -> list[int]:
        """Which delivery this is of each message; 1 is the first."""
        return [attempt for handed in self._parts for attempt in attempts(handed)]

    def __iter__(self) -> Iterator[ReceivedMessage]:
        for handed in self._parts:
            numbers = iter(attempts(handed))
            for columns in handed.batches:
                for index in range(columns.count):
                    yield ReceivedMessage(self._held, self.port, handed, columns, index, next(numbers))

    def __repr__(self) -> str:
        return f"<ReceivedBatch of {len(self)} messages from {self.topic}/{self.partition}>"

    async def ack(self, *, wait: bool = True) -> None:
        """All messages are done with. Raises `LeaseLost` when some were leased again meanwhile (`lost` names them)."""
        await self._settle("ack", wait=wait)

    async def nack(self, *, delay: float = 0.0, reason: str | None = None) -> None:
        """All messages failed: deliver them again, after `delay` seconds at the earliest."""
        check_seconds("delay", delay)
        await self._settle("nack", seconds=delay, reason=reason)

    async def release(self) -> None:
        """Give all messages back unhandled."""
        await self._settle("release")

    async def _settle(
        self, verb: str, *, seconds: float = 0.0, reason: str | None = None, wait: bool = True
    ) -> None:
        if self._settled:
            raise InvalidArgument(
                f"this batch of {self.topic}/{self.partition} is settled already. A batch is settled once."
            )
        self._settled = True
        ranges = [
            (handed.lease_id, [(start, stop) for start, stop, _ in handed.ranges]) for handed in self._parts
        ]
        try:
            await self._held.settle(self.port, verb, ranges, seconds=seconds, reason=reason, wait=wait)
        except LeaseLost:
            raise
        except BaseException:
            self._settled = False
            raise


def attempts(handed: Handed) -> list[int]:
    """The attempt of each record in `handed.batches`, in order."""
    if len(handed.ranges) == 1:
        return [handed.ranges[0][2]] * sum(columns.count for columns in handed.batches)
    return [
        next(attempt for start, stop, attempt in handed.ranges if start <= offset < stop)
        for columns in handed.batches
        for offset in columns.offset_list()
    ]


def check_seconds(what: str, seconds: object) -> None:
    """Raise `InvalidArgument` unless `seconds` is a finite number from 0 on."""
    valid = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
    if not valid or not 0 <= seconds < 10**9:  # type: ignore[operator]
        raise InvalidArgument(
            f"{what} is {seconds!r:.40}, not a number of seconds from 0 on. Nothing was changed."
        )
