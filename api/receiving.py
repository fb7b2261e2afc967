"""`async with consumer.receive() as message`: the lease lives as long as the body, which decides how it is settled."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

import trio

from callboard.actors.broker.renewals import RENEW_AT, Hold
from callboard.actors.broker.settings import backoff_delay
from callboard.log.errors import CallboardError, InvalidArgument, LeaseLost

if TYPE_CHECKING:
    from callboard.consumer import Consumer
    from callboard.received import ReceivedMessage


class Receiving:
    """One message, held. Made by `Consumer.receive`; see there for how it is settled."""

    def __init__(self, consumer: Consumer, timeout: float | None) -> None:
        self._consumer = consumer
        self._timeout = timeout
        self._scope = trio.CancelScope()
        self._message: ReceivedMessage | None = None
        self._hold: Hold | None = None
        self._lost = False
        self._used = False

    async def __aenter__(self) -> ReceivedMessage:
        if self._used:
            raise InvalidArgument("a receive() is entered once. Call consumer.receive() again.")
        self._used = True
        message = await self._consumer.get(timeout=self._timeout)
        self._message = message
        if message is not None:
            timeout = self._consumer.settings.visibility_timeout
            self._hold = Hold(
                port=message.port,
                group_id=self._consumer.group_id,
                lease_id=message.lease_id,
                offset=message.offset,
                visibility_timeout=timeout,
                deadline=message.deadline,
                due=message.deadline - timeout * (1 - RENEW_AT),
                lost=self._lease_lost,
            )
            self._consumer.runtime.holds.add(self._hold)
        self._scope.__enter__()
        return message  # type: ignore[return-value]

    def _lease_lost(self) -> None:
        self._lost = True
        self._scope.cancel()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        absorbed = bool(self._scope.__exit__(kind, error, traceback))
        message, hold = self._message, self._hold
        if hold is not None:
            self._consumer.runtime.holds.remove(hold)
        if message is None:
            await trio.lowlevel.checkpoint()
            return absorbed
        if self._lost:
            raise LeaseLost(
                f"the lease on {message.topic}/{message.partition}@{message.offset} was lost while its handler ran; the"
                " handler was cancelled. Somebody else has, or had, the message.",
                group=self._consumer.group,
            )
        if message._settled:
            await trio.lowlevel.cancel_shielded_checkpoint()
        elif error is None:
            await message.ack()
        else:
            await self._give_back(message, error)
        return False

    async def _give_back(self, message: ReceivedMessage, error: BaseException) -> None:
        """Nack after an exception, release after anything else; never hides the body's exception."""
        try:
            if isinstance(error, Exception):
                delay = backoff_delay(self._consumer.settings, message.attempt)
                await message.nack(delay=delay, reason=f"{type(error).__name__}: {error}"[:200])
            else:
                self._consumer.give_back_nowait(message)
                await trio.lowlevel.cancel_shielded_checkpoint()
        except CallboardError as problem:
            error.add_note(f"(and the message could not be given back: {problem})")
