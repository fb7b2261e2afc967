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
        self._handed = 0
        self._until = 0.0

    async def step(self, *, others_have_run: bool = False) -> bool:
        """A checkpoint for cancellation, and one that lets other tasks run unless they have run a moment ago.

        Returns whether another pass begins.
        """
        self._handed += 1
        if others_have_run:
            await trio.lowlevel.checkpoint_if_cancelled()
        elif self._handed < PASS_MESSAGES and self._clock.monotonic() < self._until:
            await trio.lowlevel.checkpoint_if_cancelled()
            return False
        else:
            await trio.lowlevel.checkpoint()
        self.begin()
        return True

    def begin(self) -> None:
        """Other tasks have run."""
        self._handed = 0
        self._until = self._clock.monotonic() + PASS_S
