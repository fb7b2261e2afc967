"""How failures of handlers are reported: as `HandlerFailed` and `WorkHindered`, and as the reason of a dead letter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from callboard.actors.kernel.failures import describe, place, unwrap
from callboard.actors.notices import HandlerFailed, WorkHindered
from callboard.consumer.arguments import REASON_CHARACTERS
from callboard.consumer.losses import loss_of
from callboard.log.errors import CallboardError, TopicNotFound
from callboard.reports.tracebacks import traceback_lines

if TYPE_CHECKING:
    from callboard.consumer.fetcher import Fetcher
    from callboard.consumer.messages import ReceivedMessage

AGAIN: Final = "The message is delivered again."
GIVEN_UP: Final = "This was its last attempt."
SETTLED: Final = "The handler had settled the message before, which holds."
UNSETTLED: Final = "It has not settled the message."
GONE: Final = "The message is gone with its topic."
"""What becomes of a message whose handler failed."""
HINDERED: Final = "Its handlers go on; what is not settled is delivered again."
LEFT: Final = "Its messages are gone with it."
"""What becomes of the messages when `work` is hindered."""


class FailureReports:
    """Those of one call of `work`."""

    def __init__(self, consumer: Fetcher) -> None:
        self._consumer = consumer

    def nacked(self, message: ReceivedMessage, failure: BaseException) -> None:
        """The handler has failed, and its message is about to be nacked."""
        outcome, most = AGAIN, self._consumer.settings.max_deliveries
        if message.lease.account.is_deleted:
            outcome = GONE
        elif most is not None and message.attempt >= most:
            outcome = GIVEN_UP
        self._failed(message, in_a_line(failure), outcome, failure)

    def settled(self, message: ReceivedMessage, failure: BaseException) -> None:
        """The handler has failed, and had settled its message before."""
        self._failed(message, in_a_line(failure), SETTLED, failure)

    def left(self, message: ReceivedMessage, failure: BaseException) -> None:
        """The handler was cancelled with its `work`, and has failed besides."""
        self._failed(message, in_a_line(failure), SETTLED if message.settled else AGAIN, failure)

    def lost(self, message: ReceivedMessage) -> None:
        """The handler was cancelled because its message's lease was lost."""
        why = loss_of(message.lease, self._consumer.leases.group_id, message.offset)
        self._failed(message, f"its lease was lost while it ran, and it was cancelled: {why}", UNSETTLED)

    def hindered(self, error: CallboardError) -> None:
        """Messages could not be fetched, or not settled."""
        rest = LEFT if isinstance(error, TopicNotFound) else HINDERED
        self._consumer.session.emit(WorkHindered(self._consumer.group, str(error), rest))

    def _failed(
        self, message: ReceivedMessage, cause: str, outcome: str, failure: BaseException | None = None
    ) -> None:
        self._consumer.session.emit(
            HandlerFailed(
                group=self._consumer.group,
                topic=message.topic,
                partition=message.partition,
                offset=message.offset,
                attempt=message.attempt,
                cause=cause,
                frames=() if failure is None else traceback_lines(failure),
                place=None if failure is None else place(failure),
                max_deliveries=self._consumer.settings.max_deliveries,
                outcome=outcome,
                exception=failure,
            )
        )


def in_a_line(failure: BaseException) -> str:
    """What an exception is; a group of one is the exception that it holds."""
    cause = describe(failure)[:REASON_CHARACTERS]
    if isinstance(unwrap(failure), trio.Cancelled):
        return f"{cause.removesuffix('.')} (by a scope that is not around the handler)"
    return cause


def reason_of(failure: BaseException | None) -> str | None:
    """What the dead letter says of an exception."""
    if failure is None:
        return None
    cause, where = in_a_line(failure), place(failure)
    return cause if where is None else f"{cause.removesuffix('.')}, at {where}"


def cause_of(error: BaseException) -> BaseException | None:
    """What an exception was raised from, or while it was handled."""
    if error.__cause__ is None and not error.__suppress_context__:
        return error.__context__
    return error.__cause__
