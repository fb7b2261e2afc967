"""A batch of messages of several partitions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import datetime
from itertools import chain
from typing import TYPE_CHECKING, TypeVar

import trio

from callboard.arguments import check_flag
from callboard.log.errors import CallboardError, InvalidArgument, LeaseLost
from callboard.log.plain import refuse_copy

if TYPE_CHECKING:
    from callboard.consumer.messages import ReceivedBatch, ReceivedMessage

T = TypeVar("T")


class MixedBatch:
    """Leased messages of any partitions, as columns; settled as a whole, part by part, or message by message.

    Each part is a `ReceivedBatch` of one partition. Settling the whole settles the parts that were not settled by
    themselves, each partition for itself: there is no moment in which all are.
    """

    __slots__ = ("parts",)
    __reduce_ex__ = refuse_copy

    def __init__(self, parts: Sequence[ReceivedBatch]) -> None:
        self.parts = tuple(parts)
        """One batch for each partition that has messages here."""

    def values(self) -> list[bytes]:
        """All payloads; empty for a tombstone. All columns are in the order of iteration: partition by partition."""
        return self._joined(lambda part: part.values())

    def keys(self) -> list[bytes | None]:
        """All keys."""
        return self._joined(lambda part: part.keys())

    def headers(self) -> list[dict[str, bytes]]:
        """All headers; a message without any has an empty dict."""
        return self._joined(lambda part: part.headers())

    def timestamps(self) -> list[datetime]:
        """The events' own times; the append time of a message that was published without one."""
        return self._joined(lambda part: part.timestamps())

    def attempts(self) -> list[int]:
        """Which delivery this is of each message; 1 is the first."""
        return self._joined(lambda part: part.attempts())

    def places(self) -> list[tuple[str, int, int]]:
        """Where each message is: topic, partition, offset."""
        return self._joined(lambda part: [(part.topic, part.partition, offset) for offset in part.offsets()])

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def __iter__(self) -> Iterator[ReceivedMessage]:
        return chain.from_iterable(self.parts)

    def __repr__(self) -> str:
        return f"<MixedBatch of {len(self)} messages from {len(self.parts)} partitions>"

    async def ack(self, *, wait: bool = True) -> None:
        """All messages are done with. Raises `LeaseLost` when some were leased again meanwhile; the rest is acked.

        Without `wait` as `ReceivedMessage.ack`. A part that publishes with its ack is waited for all the same.
        """
        if check_flag("wait", wait):
            await self._settle(lambda part: part.ack())
            return
        failed: list[CallboardError] = []
        for part in self._unsettled():  # without a task for each: few of them wait for anything
            try:
                await part.ack(wait=False)
            except CallboardError as error:
                failed.append(error)
        if failed:
            raise _joined_error(failed)

    async def nack(self, *, delay: float | None = None, reason: str | None = None) -> None:
        """All messages failed: deliver them again, after `delay` seconds at the earliest, or the group's backoff."""
        await self._settle(lambda part: part.nack(delay=delay, reason=reason))

    async def reject(self, *, reason: str | None = None) -> None:
        """No message can ever be handled: they are dead letters. Raises `LeaseLost`, `DeadLettersFull`."""
        await self._settle(lambda part: part.reject(reason=reason))

    async def release(self) -> None:
        """Give all messages back unhandled."""
        await self._settle(lambda part: part.release())

    async def _settle(self, settle: Callable[[ReceivedBatch], Awaitable[None]]) -> None:
        """Settle the parts, all at once: their partitions write at the same time. What failed may be tried again."""
        failed: list[CallboardError] = []
        unsettled = self._unsettled()

        async def settle_part(part: ReceivedBatch) -> None:
            try:
                await settle(part)
            except CallboardError as error:
                failed.append(error)

        async with trio.open_nursery() as nursery:
            for part in unsettled:
                nursery.start_soon(settle_part, part)
        if failed:
            raise _joined_error(failed)

    def _unsettled(self) -> list[ReceivedBatch]:
        parts = [part for part in self.parts if not part.settled]
        if not parts:
            raise InvalidArgument("this batch is settled already. A batch is settled once.")
        return parts

    def _joined(self, column: Callable[[ReceivedBatch], list[T]]) -> list[T]:
        return [item for part in self.parts for item in column(part)]


def _joined_error(failed: Sequence[CallboardError]) -> CallboardError:
    """One error for those of several partitions: of another kind than a lost lease, if there is one."""
    others = [error for error in failed if not isinstance(error, LeaseLost)]
    first = others[0] if others else failed[0]
    for error in failed:
        if error is not first:
            first.add_note(f"and, of another partition: {error}")
    return first
