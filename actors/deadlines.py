"""Deadlines: when the askers of one system give up, kept by one task for all of them.

A cancel scope per question does the same in portable trio, at less than half as many questions a second
(benchmarks/kernel.py): that is why this module exists.

Invariants
----------
D1  A question is given up at its deadline, never before, and only if it is not settled by then.
D2  The task sleeps until the earliest deadline that it was told of: nothing ticks.
D3  Settled questions are forgotten in time: with `n` open at most, no more than `max(64, 2 * n) + 1` are remembered.
"""

from __future__ import annotations

import math
from heapq import heapify, heappop, heappush
from typing import Final

import trio

from callboard.actors.reply import Reply

__all__ = ["Deadlines"]

KEPT_MIN: Final = 64


class Deadlines:
    """Those of all questions that are open in one system."""

    def __init__(self) -> None:
        self._alarm: trio.CancelScope | None = None
        self._due: list[tuple[float, int, float, Reply]] = []
        """Deadline, a number that decides ties, seconds allowed, reply."""
        self._numbers = 0
        self._prune_at = KEPT_MIN

    def __len__(self) -> int:
        return len(self._due)

    def add(self, reply: Reply, deadline: float, timeout_s: float) -> None:
        """Give `reply` up at `deadline` (trio's time), unless it is settled; `timeout_s` is for the error's words."""
        due = self._due
        self._numbers += 1
        heappush(due, (deadline, self._numbers, timeout_s, reply))
        if due[0][3] is reply and self._alarm is not None:
            self._alarm.deadline = deadline
        if len(due) > self._prune_at:
            self._due = [entry for entry in due if not entry[3].done]
            heapify(self._due)
            self._prune_at = max(KEPT_MIN, 2 * len(self._due))

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

    def _expire(self, now: float) -> None:
        due = self._due
        while due and due[0][0] <= now:
            _, _, timeout_s, reply = heappop(due)
            reply.expire(timeout_s)
