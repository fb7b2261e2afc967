"""How long a task is handed what is in memory already before other tasks run.

A *pass* is what a task does between two steps of the trio loop in which others have run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

if TYPE_CHECKING:
    from callboard.log.seams.clock import Clock

PASS_MESSAGES: Final = 64
PASS_S: Final = 0.001
"""Yield to other tasks after this many buffered messages, and after this many seconds."""


class LoopPass:
    """That of one consumer, or reader."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.steps = 0
        """How many there were so far."""
        self._last_step = PASS_MESSAGES
        self._until = 0.0
        self._has_waited = False

    async def step(self) -> None:
        """A checkpoint for cancellation, and one that lets other tasks run unless they have run a moment ago."""
        self.steps += 1
        if self._has_waited:
            await trio.lowlevel.checkpoint_if_cancelled()
        elif self.steps < self._last_step and self._clock.monotonic() < self._until:
            await trio.lowlevel.checkpoint_if_cancelled()
            return
        else:
            await trio.lowlevel.checkpoint()
        self.begin()

    def waited(self) -> None:
        """Other tasks have run since the last step: the next one begins a pass."""
        self._has_waited = True

    def begin(self) -> None:
        """Other tasks have run."""
        self._has_waited = False
        self._last_step = self.steps + PASS_MESSAGES
        self._until = self._clock.monotonic() + PASS_S
