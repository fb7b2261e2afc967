"""Calls of a handler: `work` keeps the lease of a message while its handler runs, and settles it by how that ends.

A handler that returns has its message acked, without waiting for the disk; one that raises has it nacked. One that is
cancelled, or raises what is no `Exception`, *leaves* it: the message is given back.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, Never, cast

import attrs
import trio

from callboard.actors.kernel.failures import leaves, unwrap
from callboard.consumer.contexts import renewed_lease
from callboard.consumer.handler_failures import FailureReports, cause_of, reason_of
from callboard.consumer.verdicts import Reject, Retry, meant
from callboard.log.errors import CallboardError, InvalidArgument, RuntimeClosed
from callboard.log.plain import shown

if TYPE_CHECKING:
    from callboard.consumer.fetcher import Fetcher
    from callboard.consumer.messages import ReceivedMessage

Handler = Callable[["ReceivedMessage"], Awaitable[object]]

FLUSH_S: Final = 1.0
"""So long after an ack its outcome is asked for, with those of all others meanwhile."""


class NotAsync(InvalidArgument):
    """The handler is no async function, which its first call shows. It ends `work`."""


@attrs.define(eq=False)
class HandlerTask:
    """What a task handles, and the scope it does so in: one for all its messages, until a lease is lost."""

    give_back_unbegun: Callable[[], None]
    scope: trio.CancelScope = attrs.Factory(trio.CancelScope)
    message: ReceivedMessage = attrs.field(init=False)
    is_lost: bool = False
    """The lease of `message` was lost, and the scope is cancelled."""
    left: ReceivedMessage | None = None
    """The message whose handler was left by that cancellation."""

    def lost(self) -> bool:
        """Cancel the handler, unless its message is settled: then it goes on."""
        if self.message.settled:
            return True
        self.is_lost = True
        self.scope.cancel()
        return False

    def renewed(self, _: float) -> None:
        """Handlers take their time: what waits is for others to do."""
        self.give_back_unbegun()


class HandlerSettlements:
    """How messages are settled for a handler. The simulator watches these calls."""

    def __init__(self, consumer: Fetcher) -> None:
        self._consumer = consumer

    async def ack(self, message: ReceivedMessage) -> None:
        """Ack without waiting for the disk."""
        await message.ack(wait=False)

    async def nack(self, message: ReceivedMessage, delay: float | None, reason: str | None) -> None:
        """Have the message come again."""
        await message.nack(delay=delay, reason=reason)

    async def reject(self, message: ReceivedMessage, reason: str | None) -> None:
        """Give the message up."""
        await message.reject(reason=reason)

    async def flush(self) -> None:
        """Wait for the outcome of all acks."""
        await self._consumer.flush()


class HandlerCalls:
    """Those of one call of `work`."""

    def __init__(self, consumer: Fetcher, handler: Handler, settlements: HandlerSettlements) -> None:
        self._consumer = consumer
        self._handler = handler
        self._settlements = settlements
        self.reports = FailureReports(consumer)
        self._acked = trio.Event()

    async def handle(self, message: ReceivedMessage, task: HandlerTask) -> None:
        """Call the handler, keep the lease meanwhile, settle by how it ends."""
        leases, task.message = self._consumer.session.renewed_leases, message
        held = renewed_lease(self._consumer, message, task.lost, task.renewed)
        leases.add(held)
        failure: BaseException | None = None
        try:
            answer = cast(object, self._handler(message))
            if not isinstance(answer, Awaitable):
                raise NotAsync(
                    f"the handler {shown(self._handler, 80)} returned {type(answer).__name__}, which nobody can await."
                    " It has run, and its message is delivered again, as if it had not been. Make it `async def`; call"
                    " what blocks with `await trio.to_thread.run_sync(...)`."
                )
            await answer
        except NotAsync:  # as each message would: they are not to end as dead letters
            self._leave(task)
            raise
        except Exception as error:  # noqa: BLE001 - it is logged, and the message comes again
            failure = meant(error)
        except (trio.Cancelled, BaseExceptionGroup) as error:
            if not _is_foreign_cancellation(error):
                self._leave(task)
                if task.left is None and isinstance(error, BaseExceptionGroup):
                    self._leave_nursery(error, message)
                raise
            failure = error
        except BaseException:
            self._leave(task)
            raise
        finally:
            leases.remove(held)
        if task.is_lost:
            self.reports.lost(message)
        elif not message.settled:
            await self._settle(message, failure)
        elif failure is not None:
            self.reports.settled(message, failure)

    def _leave(self, task: HandlerTask) -> None:
        """The handler's exception ends its task: its message is given back."""
        message = task.message
        if task.is_lost:
            task.left = message
        elif not message.settled:
            self._consumer.leases.give_back_messages([message])

    def _leave_nursery(self, group: BaseExceptionGroup[BaseException], message: ReceivedMessage) -> None:
        """What a handler's own nursery raises beside the cancellation is logged, and the cancellation alone raised."""
        beside, rest = group.split(Exception)
        if (
            beside is not None
            and rest is not None
            and all(type(leaf) is trio.Cancelled for leaf in leaves(rest))
        ):
            self.reports.left(message, unwrap(beside))
            raise rest

    async def _settle(self, message: ReceivedMessage, failure: BaseException | None) -> None:
        delay = failure.after if isinstance(failure, Retry) else None
        try:
            if failure is None:
                await self._settlements.ack(message)
                self._acked.set()
                return
            if isinstance(failure, Reject):
                await self._settlements.reject(message, failure.reason)
                return
            if isinstance(failure, Retry):
                reason = failure.reason or reason_of(cause_of(failure))
            else:
                reason = reason_of(failure)
                self.reports.nacked(message, failure)
            await self._settlements.nack(message, delay, reason)
        except RuntimeClosed:
            return  # the task that fetches hears of it
        except CallboardError as error:
            self.reports.hindered(error)

    # -- the outcome of acks

    async def flush_now_and_then(self) -> Never:
        """Ask for the outcome of acks as long as there are any."""
        while True:
            await self._acked.wait()
            await trio.sleep(FLUSH_S)
            self._acked = trio.Event()
            await self.flush()

    async def flush(self) -> None:
        """Wait for the outcome of all acks; those that did not count are reported."""
        try:
            await self._settlements.flush()
        except RuntimeClosed:
            return
        except CallboardError as error:
            self.reports.hindered(error)


def _is_foreign_cancellation(error: BaseException) -> bool:
    """Whether nothing but `trio.Cancelled` makes it more than a failure, and no scope around the handler is cancelled.

    A handler raises such a one when it unwraps the outcome of another task. A nursery would take it for its own, and
    end without a word.
    """
    if any(not isinstance(leaf, (Exception, trio.Cancelled)) for leaf in leaves(error)):
        return False
    return trio.current_effective_deadline() != -math.inf
