"""What other actors of the broker ask of partitions: questions that survive a restart, publishes to other topics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeVar

from callboard.actors.clients.account import Account
from callboard.actors.clients.port import REFUSING
from callboard.actors.partition import commands as c
from callboard.log.errors import ActorCrashed, ActorStopped, CallboardError, MailboxFull, StorageError

if TYPE_CHECKING:
    from callboard.actors.clients.port import PartitionPort
    from callboard.actors.kernel import Question
    from callboard.actors.timing import Timers
    from callboard.log.format.columns import Columns

A = TypeVar("A")
Refusal = Callable[["PartitionPort", frozenset[str]], "CallboardError | None"]

PAUSE_S: Final = 0.1
"""A full mailbox is tried again after this."""


class SourceEnded(ActorStopped):
    """What a source sends was not sent, since the source has ended."""


class PartitionCalls:
    """Asks on behalf of one actor."""

    def __init__(self, timers: Timers, refusal: Refusal) -> None:
        self._timers = timers
        self._refusal = refusal
        """Tells the error for what the state of a partition refuses, when it is one of these."""
        self._storing: dict[PartitionPort, tuple[Account, int]] = {}
        """The accounts with partitions at which something is stored now, and by how many tasks."""

    async def ask(self, port: PartitionPort, command: Question[A], *, unless: frozenset[str] = REFUSING) -> A:
        """What the partition answers, after as many restarts as it takes: only for what may be asked twice.

        In a state of `unless` it is not asked. Raises `PartitionUnavailable`, `ActorStopped`, and what the partition
        answers.
        """
        while True:
            if (refusal := self._refusal(port, unless)) is not None:
                raise refusal
            try:
                return await port.ref.ask(command)
            except ActorCrashed:
                continue
            except MailboxFull:
                await self._timers.sleep(PAUSE_S)

    async def read(self, port: PartitionPort, reading: c.Read) -> Sequence[Columns]:
        """Records from an offset on; none when the log holds none there, and never will.

        Raises `StorageError` while the log is not recovered, for want of space, as far as that offset.
        """
        while True:
            answer = await self.ask(port, reading)
            if answer is not None:
                batches: Sequence[Columns] = answer[0]
                return batches
            if reading.offset >= (await self.describe_recovered(port)).visible_end:
                return ()

    async def describe_recovered(self, port: PartitionPort) -> c.PartitionStatistics:
        """What the partition tells of itself. Raises `StorageError` while its log waits for space to be recovered."""
        statistics: c.PartitionStatistics = await self.ask(port, c.Describe())
        if statistics.is_recovery_owed:
            raise StorageError(
                f"{port.label}: the disk is too full to tell what is there. Free space: it is tried again."
            )
        return statistics

    async def store(
        self, target: PartitionPort, batch: Columns, is_live: Callable[[], bool] = lambda: True
    ) -> None:
        """Publish what a source sends, synced, while the source lives. Raises as `ask` does, and `SourceEnded`.

        It is in the target's mailbox in the step in which the source was seen to live: so a reader that sees that a
        source has ended, and then asks the target for something, asks behind all that the source has sent.
        """
        with self._account(target) as account:
            size, credit = batch.size_bytes, account.credit
            account.want()
            if (refusal := self._refusal(target, REFUSING)) is not None:
                raise refusal
            if not await credit.take(size):
                raise self._refusal(target, REFUSING) or account.unavailable()
            try:
                if not is_live():
                    raise SourceEnded(
                        f"what was for {target.label} is of a topic, or a group, that was deleted"
                    )
                message = c.PublishMany(batch, c.Level.ALL, size, c.Guard(rises=True), client=account.number)
                reply = target.ref.ask_nowait(message)
            except BaseException:
                credit.give_back(size)
                raise
            await reply.wait()

    @contextmanager
    def _account(self, target: PartitionPort) -> Iterator[Account]:
        """The actor's account with a partition, while some task of it stores something there."""
        account, tasks = self._storing.get(target) or (Account(target), 0)
        self._storing[target] = account, tasks + 1
        try:
            yield account
        finally:
            account, tasks = self._storing.pop(target)
            if tasks > 1:
                self._storing[target] = account, tasks - 1
            else:
                account.close()


def record_in(batches: Sequence[Columns], offset: int) -> tuple[Columns, int] | None:
    """The columns and the index of the record at an offset; None when it is not among these."""
    for columns in batches:
        index = columns.index_at(offset)
        if index < columns.count and columns.offset(index) == offset:
            return columns, index
    return None
