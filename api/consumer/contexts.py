"""What `Consumer.receive` and `Consumer.batches` give.

`async with consumer.receive() as message`: the lease lives as long as the body, which decides how it is settled.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar, cast

import trio

from callboard.actors.kernel.failures import describe
from callboard.consumer.arguments import REASON_CHARACTERS
from callboard.consumer.losses import loss_of
from callboard.consumer.messages import hand_over_ack, hand_over_nack
from callboard.log.errors import CallboardError, ConsumerDrained, InvalidArgument, LeaseLost
from callboard.log.plain import refuse_copy
from callboard.renewals import RENEW_AT, RenewedLease

if TYPE_CHECKING:
    from callboard.actors.settings import GroupSettings
    from callboard.consumer.leases import ConsumerLeases
    from callboard.consumer.messages import ReceivedBatch, ReceivedMessage
    from callboard.session import Session

M = TypeVar("M", bound="ReceivedMessage | None", covariant=True)


class Receiver(Protocol):
    """The consumer that a message is received by."""

    group: str
    session: Session
    leases: ConsumerLeases

    @property
    def settings(self) -> GroupSettings:
        """The settings of its group, as far as it knows them."""

    async def get(self, *, timeout: float | None) -> ReceivedMessage | None:
        """The next message; None when there is none in time."""

    def give_back_fetched(self) -> None:
        """Release what was fetched and not yet handed over."""


def renewed_lease(
    consumer: Receiver, message: ReceivedMessage, lost: Callable[[], bool], renewed: Callable[[float], None]
) -> RenewedLease:
    """The lease of a message whose body begins: to be added to those that are renewed."""
    timeout = consumer.settings.visibility_timeout
    return RenewedLease(
        message.lease.port,
        consumer.leases.group_id,
        message.lease.lease_id,
        message.offset,
        timeout,
        message.lease,
        message.deadline - timeout * (1 - RENEW_AT),
        lost,
        renewed,
        consumer.leases,
    )


class Receiving(Generic[M]):
    """One message, held. Made by `Consumer.receive`; see there for how it is settled."""

    __reduce_ex__ = refuse_copy

    def __init__(self, consumer: Receiver, timeout: float | None, *, wait: bool = True) -> None:
        self._consumer = consumer
        self._timeout = timeout
        self._waits = wait
        self._scope = trio.CancelScope()
        self._message: ReceivedMessage | None = None
        self._lease: RenewedLease | None = None
        self._lost = False
        self._used = False

    async def __aenter__(self) -> M:
        if self._used:
            raise InvalidArgument("a receive() is entered once. Call consumer.receive() again.")
        self._used = True
        message = await self._consumer.get(timeout=self._timeout)
        self._message = message
        if message is not None:
            self._lease = renewed_lease(self._consumer, message, self._lease_lost, self._lease_renewed)
            self._consumer.session.renewed_leases.add(self._lease)
        self._scope.__enter__()
        return cast(M, message)

    def _lease_lost(self) -> bool:
        if self._message is not None and self._message.settled:
            return True
        self._lost = True
        self._scope.cancel()
        return False

    def _lease_renewed(self, _: float) -> None:
        """The body takes its time: what was fetched with its message is for others to do."""
        self._consumer.give_back_fetched()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._lease is not None:
            self._consumer.session.renewed_leases.remove(self._lease)
        rest: BaseException | None = None
        try:
            is_lost = self._scope.__exit__(kind, error, traceback) and error is not None
        except BaseException as remaining:  # noqa: BLE001 - raised again below: part of a group was absorbed
            is_lost, rest = False, remaining
        if self._message is None:
            await trio.lowlevel.checkpoint()
        elif is_lost:  # only the loss of a lease cancels the scope
            raise self._loss(self._message)
        else:
            await self._settle(self._message, rest or error)
        if rest is not None:
            raise rest

    async def _settle(self, message: ReceivedMessage, error: BaseException | None) -> None:
        """Ack, nack or release, by how the body ended; never hides the body's exception."""
        if message.settled:
            await trio.lowlevel.cancel_shielded_checkpoint()
        elif error is None:
            try:
                await message.ack(wait=self._waits)
            except trio.Cancelled:
                hand_over_ack(message)
                raise
        elif self._lost:
            error.add_note(f"(and {self._loss(message)})")
            await trio.lowlevel.cancel_shielded_checkpoint()
        elif not isinstance(error, Exception):
            self._consumer.leases.give_back_messages([message])
            await trio.lowlevel.cancel_shielded_checkpoint()
        else:
            reason = describe(error)[:REASON_CHARACTERS]
            try:
                await message.nack(reason=reason)
            except trio.Cancelled:
                # The body's exception comes out; the scope that is cancelled tells its task at the next checkpoint.
                hand_over_nack(message, reason)
            except CallboardError as problem:
                error.add_note(f"(and the message could not be given back: {problem})")

    def _loss(self, message: ReceivedMessage) -> LeaseLost:
        return LeaseLost(
            f"the lease on {message.topic}/{message.partition}@{message.offset} was lost while its handler ran; the"
            f" handler was cancelled: {loss_of(message.lease, self._consumer.leases.group_id, message.offset)}.",
            lost=((message.offset, message.offset + 1),),
            group=self._consumer.group,
        )


class Batches:
    """Asynchronous iterator of batches; made by `Consumer.batches`."""

    __reduce_ex__ = refuse_copy

    def __init__(self, take: Callable[[], Awaitable[Any]]) -> None:
        self._take = take

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedBatch:
        try:
            return cast("ReceivedBatch", await self._take())
        except ConsumerDrained:
            raise StopAsyncIteration from None
