"""Envelope and Reply: a message on its way, and the one-shot answer to a question.

An asker parks itself with `trio.lowlevel.wait_task_rescheduled` and `Reply.answer` reschedules it. A memory channel per
question does the same in portable trio, at 33,000 questions a second against 44,000 this way: that difference is
why this module uses `trio.lowlevel`.

Invariants
----------
R1  A reply is settled once: answered, failed, or abandoned by its asker. What comes later is dropped and counted.
R2  At most one task waits for a reply, and it is rescheduled at most once.
"""

from __future__ import annotations

import math
from contextlib import suppress
from numbers import Real
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import trio

from callboard.log.errors import AskTimeout, InvalidArgument

M = TypeVar("M")
A_co = TypeVar("A_co", covariant=True)


class Question(Generic[A_co]):
    """A message that names the type of its answer: `class Balance(Question[int])`.

    Type checkers then know what `ask` returns. It is a mark only: any message may be asked.
    """

    __slots__ = ()


class LateReplies(Protocol):
    """Where late answers are counted, and whose they are."""

    path: str
    late_replies: int


class Reply:
    """The answer to one question, settled by the actor, awaited by the asker.

    The actor calls `answer` or `fail`; both return True when they settled it, False when it was settled already (the
    asker gave up, or it was answered before): then the value is dropped and counted as a late reply. Give every
    reply an error object of its own: it will be raised in the asker's task.
    """

    __slots__ = ("_cell", "_error", "_task", "_value", "abandoned", "deferred", "done")

    def __init__(self, cell: LateReplies) -> None:
        self._cell = cell
        self._task: trio.lowlevel.Task | None = None
        self._value: Any = None
        self._error: BaseException | None = None
        self.abandoned = False
        """Its asker gave up waiting."""
        self.deferred = False
        """The actor took the answer over with `defer_reply`: returning from `receive` does not answer."""
        self.done = False
        """Settled: answered, failed, or its asker gave up waiting."""

    @trio.lowlevel.enable_ki_protection  # half an answer would leave its asker waiting
    def answer(self, value: Any = None) -> bool:
        """Answer with `value`."""
        if self.done:
            self._cell.late_replies += 1
            return False
        self.done = True
        self._value = value
        task = self._task
        if task is not None:
            self._task = None
            trio.lowlevel.reschedule(task)
        return True

    def fail(self, error: BaseException) -> bool:
        """Answer by raising `error` in the asker."""
        if self.done:
            self._cell.late_replies += 1
            return False
        self._error = error
        return self.answer(None)

    def abandon(self) -> None:
        """The asker no longer waits. Safe to call at any time; does nothing once settled."""
        if not self.done:
            self.done = True
            self.abandoned = True

    def expire(self) -> None:
        """The time is over: whoever still waits wakes up, and finds the question `abandoned`."""
        task, self._task = self._task, None
        if task is not None:
            self.done = self.abandoned = True
            trio.lowlevel.reschedule(task)

    async def wait(self, timeout: float | None = None) -> Any:
        """The answer. Raises the actor's error, or `AskTimeout` after `timeout` seconds.

        Cancellation and timeout abandon the question: a later answer is dropped. Waiting again is refused.
        """
        if timeout is None:
            return await self.settled()
        seconds = seconds_of(timeout)
        with trio.move_on_after(seconds):
            return await self.settled()
        raise ask_timeout(self._cell.path, seconds)

    async def settled(self) -> Any:
        """Like `wait` without a timeout, one call less deep. None when the question is `abandoned` meanwhile."""
        if self._task is not None or self.abandoned:
            raise InvalidArgument(f"The reply of {self._cell.path!r} is awaited once only. Ask again.")
        if self.done:
            await trio.lowlevel.checkpoint()
        else:
            self._task = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(self._give_up)
        if self._error is not None:
            raise self._error
        return self._value

    def value(self) -> Any:
        """The answer of a reply that is `done`, without waiting; raises the actor's error.

        Raises `InvalidArgument` when there is no answer.
        """
        if not self.done or self.abandoned:
            raise InvalidArgument(f"The reply of {self._cell.path!r} has no answer. Wait for it.")
        if self._error is not None:
            raise self._error
        return self._value

    def _give_up(self, _raise_cancel: Any) -> trio.lowlevel.Abort:
        self._task = None
        self.abandon()
        return trio.lowlevel.Abort.SUCCEEDED


class Envelope(NamedTuple, Generic[M]):
    """A message and, when somebody asked, the reply to settle. Unpacks: `for message, reply in batch`."""

    message: M
    reply: Reply | None


def ask_timeout(path: str, timeout_s: float, *, indefinite: bool = True) -> AskTimeout:
    """The error of a question that was not answered in time."""
    fate = (
        "The actor may still act on the question"
        if indefinite
        else "The mailbox was full: it was never asked"
    )
    return AskTimeout(
        f"Actor {path!r} did not answer within {timeout_s:g} s. {fate}; ask again, or allow more time.",
        path=path,
        timeout=timeout_s,
        indefinite=indefinite,
    )


def seconds_of(timeout: float) -> float:
    """The timeout as a float. Raises `InvalidArgument`."""
    seconds = math.nan
    if type(timeout) is float:
        seconds = timeout
    elif isinstance(timeout, Real):
        with suppress(OverflowError):
            seconds = float(timeout)
    if seconds >= 0:
        return seconds
    raise InvalidArgument(f"A timeout is a number of seconds, 0 or more, not {timeout!r}. Nothing was done.")
