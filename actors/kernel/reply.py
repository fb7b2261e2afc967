"""Question, Reply and Envelope: what is asked, how the actor answers, and how both travel.

An asker parks itself with `trio.lowlevel.wait_task_rescheduled`, and `Reply.answer` reschedules it. A memory channel
per question does the same in portable trio, but with 33,000 questions per second instead of 44,000. Therefore this
module uses `trio.lowlevel`.

Invariants
----------
RP1  A reply is done once: answered, failed, or abandoned by its asker. Later answers are dropped and counted.
RP2  At most one task waits for a reply, and it is rescheduled at most once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from numbers import Real
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import trio

from callboard.log.errors import AskTimeout, InvalidArgument
from callboard.log.plain import is_a, number, refuse_copy, shown

M = TypeVar("M")
A_co = TypeVar("A_co", covariant=True)


class Question(Generic[A_co]):
    """A message that names the type of its answer: `class Balance(Question[int])`.

    Type checkers then know what `ask` returns. It has no other effect: any message may be asked.
    """

    __slots__ = ()


class LateReplies(Protocol):
    """The object that counts late answers, and the path of its actor."""

    path: str
    late_replies: int
    loop: trio.lowlevel.Task | None
    """The only task that would have to answer, if there is one."""


class Reply:
    """The answer to one question, given by the actor and awaited by the asker.

    The actor calls `answer` or `fail`. Both return True when the reply was open, and False when it was done already
    (the asker has stopped waiting, or it was answered before): then the value is dropped and counted as a late reply.
    Never give the same error object to two replies, because each raises it in its asker's task.
    """

    __slots__ = (
        "_cell",
        "_error",
        "_kept_in",
        "_task",
        "_value",
        "abandoned",
        "deferred",
        "done",
        "is_kept",
        "unawaited",
    )

    __reduce_ex__ = refuse_copy

    def __init__(self, cell: LateReplies) -> None:
        self._cell = cell
        self._task: trio.lowlevel.Task | None = None
        self._value: Any = None
        self._error: BaseException | None = None
        self._kept_in: dict[Reply, None] | None = None
        self.abandoned = False
        """The asker has stopped waiting."""
        self.deferred = False
        """The actor called `defer_reply`: the return value of `receive` does not answer the question."""
        self.done = False
        """Answered, failed or abandoned."""
        self.is_kept = False
        """A wait that is cancelled does not abandon the question: the answer may be awaited again."""
        self.unawaited: Callable[[], object] | None = None
        """Called when it is done while no task waits for it."""

    @property
    def has_answer(self) -> bool:
        """Whether `value` gives an answer, or raises the actor's error: it is done, and was not abandoned."""
        return self.done and not self.abandoned

    @trio.lowlevel.enable_ki_protection  # half an answer would leave its asker waiting
    def answer(self, value: Any = None) -> bool:
        """Answer with `value`."""
        if self.done:
            self._cell.late_replies += 1
            return False
        self.done = True
        if self._kept_in is not None:
            self._kept_in.pop(self, None)
        self._value = value
        task = self._task
        if task is not None:
            self._task = None
            trio.lowlevel.reschedule(task)
        elif self.unawaited is not None:
            self.unawaited()
        return True

    def fail(self, error: BaseException) -> bool:
        """Answer by raising `error` in the asker."""
        if not is_a(error, BaseException):
            raise InvalidArgument(
                f"a question fails with an exception, not {shown(error)}. Nothing was done."
            )
        if self.done:
            self._cell.late_replies += 1
            return False
        self._error = error
        return self.answer(None)

    def abandon(self) -> None:
        """The asker no longer waits. May be called at any time; does nothing when the reply is done."""
        if not self.done:
            self._abandon()

    def _abandon(self) -> None:
        self.abandoned = True
        self.end()

    def end(self) -> None:
        """It is done, and its actor holds it no longer: for other modules of the package, whose replies are notices."""
        self.done = True
        if self._kept_in is not None:
            self._kept_in.pop(self, None)

    def keep_in(self, open_replies: dict[Reply, None]) -> None:
        """It is not done yet. Be one of these until it is: its actor fails what is open when it ends."""
        open_replies[self] = None
        self._kept_in = open_replies

    def expire(self) -> None:
        """The timeout has passed: wake the asker if it still waits; it then finds the reply `abandoned`."""
        task, self._task = self._task, None
        if task is not None:
            self._abandon()
            trio.lowlevel.reschedule(task)

    async def wait(self, timeout: float | None = None) -> Any:
        """The answer. Raises the actor's error, or `AskTimeout` after `timeout` seconds.

        Cancellation and timeout abandon the question: a later answer is dropped. Raises `InvalidArgument` when the
        reply was awaited before.
        """
        if timeout is None:
            return await self.settled()
        seconds = seconds_of(timeout)
        with trio.move_on_after(seconds):
            return await self.settled()
        raise ask_timeout(self._cell.path, seconds)

    async def settled(self) -> Any:
        """Like `wait` without a timeout, with one call less. None when the question is `abandoned` meanwhile."""
        if self._task is not None or self.abandoned:
            raise InvalidArgument(f"The reply of {self._cell.path!r} is awaited once only. Ask again.")
        if self.done:
            await trio.lowlevel.checkpoint()
        else:
            task = trio.lowlevel.current_task()
            if task is self._cell.loop and not self.deferred:
                self.abandon()
                raise awaits_itself(self._cell.path)
            self._task = task
            await trio.lowlevel.wait_task_rescheduled(self._give_up)
        if self._error is not None:
            raise self._error
        return self._value

    def value(self) -> Any:
        """The answer of a reply that is `done`, without waiting; raises the actor's error.

        Raises `InvalidArgument` when there is no answer.
        """
        if not self.has_answer:
            raise InvalidArgument(f"The reply of {self._cell.path!r} has no answer. Wait for it.")
        if self._error is not None:
            raise self._error
        return self._value

    def _give_up(self, _raise_cancel: Any) -> trio.lowlevel.Abort:
        self._task = None
        if not self.is_kept:
            self.abandon()
        return trio.lowlevel.Abort.SUCCEEDED


class Envelope(NamedTuple, Generic[M]):
    """A message and, for a question, its reply. Unpacks: `for message, reply in batch`."""

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


def awaits_itself(path: str) -> InvalidArgument:
    """The error of an actor that waits for its own answer."""
    return InvalidArgument(
        f"Actor {path!r} waits for an answer of its own: it handles one message at a time, and would wait for ever. The"
        " question is in its mailbox, and its answer is not awaited now. Wait in a task: context.start_task."
    )


def seconds_of(timeout: float) -> float:
    """The timeout as a float. Raises `InvalidArgument`."""
    seconds = math.nan
    if type(timeout) is float:
        seconds = timeout
    elif is_a(timeout, Real):
        found = number(timeout)
        with suppress(Exception):  # it is too large for a float, or the code of another class raises
            seconds = float(timeout if found is None else found)
    if seconds >= 0:
        return seconds
    raise InvalidArgument(
        f"A timeout is a number of seconds, 0 or more, not {shown(timeout)}. Nothing was done."
    )
