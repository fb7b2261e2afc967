"""Deadlines: the timeouts of all questions in one system, watched by one task.

A cancel scope per question does the same in portable trio, but 64 askers then ask half as many questions per second,
and one asker four fifths as many (benchmarks/kernel.py). While the task does not run, for example before a system is
opened, askers use scopes.

Invariants
----------
DL1  A question expires at its deadline, never before, and only if it is still open. When its deadline and its answer
     fall into one tick, either may come first.
DL2  The task sleeps while no question is open, otherwise at most until the earliest deadline; it has no periodic timer.
DL3  With `n` questions open, at most `n + 64` closed ones are kept, and only their deadlines.
DL4  Ctrl-C is not raised in any step of the task: it would lose questions.
"""

from __future__ import annotations

import math
from heapq import heapify, heappop, heappush
from typing import Final

import attrs
import trio

from callboard.actors.kernel.reply import Reply

SETTLED_MAX: Final = 64


@attrs.define(eq=False)
class OpenQuestion:
    """A question that waits for its answer. `reply` is None when the question is closed."""

    reply: Reply | None


class Deadlines:
    """The deadlines of all open questions in one system."""

    __slots__ = ("_alarm", "_due", "_numbers", "_open")

    def __init__(self) -> None:
        self._alarm: trio.CancelScope | None = None
        self._due: list[tuple[float, int, OpenQuestion]] = []
        """Deadline, a number that decides ties, the question."""
        self._numbers = 0
        self._open = 0

    @property
    def kept(self) -> bool:
        """Whether the task runs; otherwise no question expires."""
        return self._alarm is not None

    def __len__(self) -> int:
        """How many questions are kept, open or closed."""
        return len(self._due)

    def add(self, reply: Reply, deadline: float) -> OpenQuestion:
        """Expire `reply` at `deadline` (trio's time), unless `settled` is called before. Only while `kept`."""
        due = self._due
        self._numbers += 1
        self._open += 1
        question = OpenQuestion(reply)
        heappush(due, (deadline, self._numbers, question))
        if due[0][2] is question and self._alarm is not None:
            self._alarm.deadline = deadline
        return question

    def settled(self, question: OpenQuestion) -> None:
        """Close the question: its asker no longer waits. Called once for each question."""
        question.reply = None
        self._open -= 1
        if not self._open:
            self._due.clear()
            if self._alarm is not None:
                self._alarm.deadline = math.inf
        elif len(self._due) > 2 * self._open + SETTLED_MAX:
            self._due = [entry for entry in self._due if entry[2].reply is not None]
            heapify(self._due)

    @trio.lowlevel.enable_ki_protection
    async def run(self) -> None:
        """Expire questions when they are due, until cancelled."""
        try:
            while True:
                self._alarm = trio.CancelScope(deadline=self._due[0][0] if self._due else math.inf)
                with self._alarm:
                    await trio.sleep_forever()
                self._expire(trio.current_time())
        finally:
            self._alarm = None

    def end(self) -> None:
        """Expire every question: the tree has ended, and an interrupt may have cut answers short."""
        self._expire(math.inf)

    def _expire(self, now: float) -> None:
        due = self._due
        while due and due[0][0] <= now:
            reply = heappop(due)[2].reply
            if reply is not None:
                reply.expire()
