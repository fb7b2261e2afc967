"""Deadlines: when the askers of one system give up, kept by one task for all of them.

A cancel scope per question does the same in portable trio, at half as many questions a second of 64 askers and four
fifths of one (benchmarks/kernel.py): that is why this module exists. While the task does not run (before a system is
opened, say), scopes are used.

Invariants
----------
D1  A question is given up at its deadline, never before, and only if it is not settled by then. When both happen in
    one tick, either may come first.
D2  While no question is open the task sleeps for ever, else at most until the earliest deadline: nothing ticks.
D3  With `n` questions open, at most `n + 64` settled ones are remembered, and of those nothing but the deadline.
D4  Ctrl-C is raised in no step of the task: it would lose questions.
"""

from __future__ import annotations

import math
from heapq import heapify, heappop, heappush
from typing import Final

import trio

from callboard.actors.kernel.reply import Reply

__all__ = ["Deadlines", "Open"]

SETTLED_MAX: Final = 64


class Open:
    """A question that is open: `reply` is None once it is settled."""

    __slots__ = ("reply",)

    def __init__(self, reply: Reply) -> None:
        self.reply: Reply | None = reply


class Deadlines:
    """Those of all questions that are open in one system."""

    __slots__ = ("_alarm", "_due", "_numbers", "_open")

    def __init__(self) -> None:
        self._alarm: trio.CancelScope | None = None
        self._due: list[tuple[float, int, Open]] = []
        """Deadline, a number that decides ties, the question."""
        self._numbers = 0
        self._open = 0

    @property
    def kept(self) -> bool:
        """Whether the task runs: else nobody is given up."""
        return self._alarm is not None

    def __len__(self) -> int:
        """How many are remembered, settled or not."""
        return len(self._due)

    def add(self, reply: Reply, deadline: float) -> Open:
        """Give `reply` up at `deadline` (trio's time), unless `settled` is called before. Only while `kept`."""
        due = self._due
        self._numbers += 1
        self._open += 1
        question = Open(reply)
        heappush(due, (deadline, self._numbers, question))
        if due[0][2] is question and self._alarm is not None:
            self._alarm.deadline = deadline
        return question

    def settled(self, question: Open) -> None:
        """The asker waits no more, however that came. Called once for each."""
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
        """Give up what is due, until cancelled."""
        try:
            while True:
                self._alarm = trio.CancelScope(deadline=self._due[0][0] if self._due else math.inf)
                with self._alarm:
                    await trio.sleep_forever()
                self._expire(trio.current_time())
        finally:
            self._alarm = None

    def end(self) -> None:
        """The tree has ended: whoever still waits, for an answer that an interrupt cut short, is given up."""
        self._expire(math.inf)

    def _expire(self, now: float) -> None:
        due = self._due
        while due and due[0][0] <= now:
            reply = heappop(due)[2].reply
            if reply is not None:
                reply.expire()
