"""The sender: how all that is published reaches the partitions of a topic, and what they answer.

Whatever is published comes here as a checked command for one partition (`PublishOne`, `PublishMany`). The sender takes
credit for its bytes or waits for some, puts the command into the partition's mailbox, and waits for the answer as its
level asks. A partition that takes nothing, a topic that is deleted and a runtime that is closed are refused here, and
what a cancelled task had taken of the credit is given back here. Nothing else sends a publish.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import trio

from callboard.actors.clients.account import Account
from callboard.actors.kernel import Reply
from callboard.actors.partition.commands import Level, PublishMany, PublishOne
from callboard.log.errors import ActorStopped, CallboardError, MailboxFull, RuntimeClosed, TopicNotFound

if TYPE_CHECKING:
    from callboard.actors.clients.port import PartitionPort
    from callboard.actors.kernel import Question
    from callboard.actors.mirror import MirroredTopic

A = TypeVar("A")
TELLS_PER_PASS: Final = 32
"""Records that no task awaits, published in one step of a task at most; then other tasks run."""


class TopicSender:
    """Sends what one process publishes to a live topic. See the module."""

    def __init__(self, live: MirroredTopic) -> None:
        self._live = live
        self.accounts: Final = [Account(port) for port in live.ports]
        """By partition."""
        self._beside: dict[PartitionPort, Account] = {}
        """Accounts with partitions of the topic that hold something besides what was published."""
        self._tells = 0
        """Publishes that were not awaited, since the last one that let other tasks run."""

    def account_of(self, port: PartitionPort) -> Account:
        """The account with a partition of the topic, or with one beside it."""
        if not port.holds:
            return self.accounts[port.index]
        account = self._beside.get(port)
        if account is None:
            account = self._beside[port] = Account(port)
        return account

    def all_accounts(self) -> Sequence[Account]:
        """All that there are."""
        return (*self.accounts, *self._beside.values())

    # -- commands

    async def send(self, account: Account, command: PublishOne | PublishMany) -> Any:
        """Send the command and wait as its level asks; returns the answer, or None for one that is not awaited."""
        try:
            if command.level is Level.NONE:
                await self._tell(account, command)
                return None
            reply = self._begin_nowait(account, command) or await self._begin(account, command)
            return await reply.settled()
        except ActorStopped as error:
            raise self.cannot_publish() from error

    async def send_all(self, commands: Sequence[tuple[Account, PublishMany]]) -> list[Any | CallboardError]:
        """The answer to each command, or its error: sends as many as there is credit for, then waits for them.

        Before it waits for room it waits for all that it has sent: two batches would wait for each other, or a large
        one for itself.
        """
        begun: deque[Reply | CallboardError | None] = deque()
        answers: list[Any | CallboardError] = []
        for account, command in commands:
            if not account.credit.has_room(command.size_bytes):
                while begun:
                    answers.append(await self._answer(begun.popleft()))
            try:
                if command.level is Level.NONE:
                    await self._tell(account, command)
                    begun.append(None)
                else:
                    begun.append(self._begin_nowait(account, command) or await self._begin(account, command))
            except ActorStopped:
                begun.append(self.cannot_publish())
            except CallboardError as error:
                begun.append(error)
        while begun:
            answers.append(await self._answer(begun.popleft()))
        return answers

    async def _answer(self, begun: Reply | CallboardError | None) -> Any | CallboardError:
        """What came of a command that was begun."""
        if not isinstance(begun, Reply):
            return begun
        try:
            return await begun.settled()
        except ActorStopped:
            return self.cannot_publish()
        except CallboardError as error:
            return error

    @staticmethod
    def _begin_nowait(account: Account, command: PublishOne | PublishMany) -> Reply | None:
        """Begin a command that is awaited, when there are credit and room for it; None: nothing was done."""
        size = command.size_bytes
        if account.state != "running" or not account.credit.take_nowait(size):
            return None
        try:
            return account.ref.ask_nowait(command)
        except MailboxFull:
            account.credit.give_back(size)
            return None
        except BaseException:
            account.credit.give_back(size)
            raise

    async def _begin(self, account: Account, command: PublishOne | PublishMany) -> Reply:
        """Take credit for a command that is awaited, and put it into the mailbox, waiting for both.

        The partition returns the credit, unless it never gets the command.
        """
        await self._take(account, command.size_bytes)
        reply = account.ref.question()
        failures = account.failures
        try:
            await account.ref.send(command, reply)
        except BaseException:
            if account.failures == failures:  # or that has returned it
                account.credit.give_back(command.size_bytes)
            raise
        return reply

    async def _take(self, account: Account, size_bytes: int) -> None:
        """Take credit, or wait for some, unless the partition refuses everything, or comes to meanwhile."""
        while True:
            if account.state != "running":
                self.check_takes(account)
                account.want()
            if account.credit.take_nowait(size_bytes) or await account.credit.take(size_bytes):
                return

    async def _tell(self, account: Account, command: PublishOne | PublishMany) -> None:
        """Take credit for what is not awaited, and enqueue it; the account counts what fails.

        A checkpoint for cancellation, and once in `TELLS_PER_PASS` times one that lets other tasks run.
        """
        if account.state != "running" or not account.credit.take_nowait(command.size_bytes):
            await self._take(account, command.size_bytes)
        records = 1 if isinstance(command, PublishOne) else command.columns.count
        account.unawaited_begun(records, command.size_bytes)
        try:
            await trio.lowlevel.checkpoint_if_cancelled()
            try:
                account.ref.tell_nowait(command)
            except MailboxFull:
                await account.ref.tell(command)
                return
        except BaseException:
            account.unawaited_ended(records, command.size_bytes)
            account.credit.give_back(command.size_bytes)
            raise
        self._tells += 1
        if self._tells >= TELLS_PER_PASS or records > 1:
            self._tells = 0
            await trio.lowlevel.cancel_shielded_checkpoint()

    # -- questions beside them

    async def ask(self, port: PartitionPort, question: Question[A]) -> A:
        """Ask a partition something that takes no credit. Raises as `send` does."""
        account = self.account_of(port)
        self.check_takes(account)
        account.want()
        try:
            return await account.ref.ask(question)
        except ActorStopped as error:
            raise self.cannot_publish() from error

    # -- refusals

    def check_takes(self, account: Account) -> None:
        """Raise the error of a partition that takes nothing, and will not soon."""
        if account.refuses:
            raise self.cannot_publish() if self._live.deleted else account.unavailable()

    def cannot_publish(self) -> CallboardError:
        """The error for a publish when the partition has ended for good."""
        if self._live.deleted:
            return TopicNotFound(
                f"topic {self._live.name!r} was deleted. Nothing was written.", topic=self._live.name
            )
        return RuntimeClosed("the runtime is closed. Nothing was written. Open it again.")
