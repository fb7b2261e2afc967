"""The timer-wheel actor: one task that sleeps until the earliest moment that anybody has armed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from callboard.actors.kernel import Actor

if TYPE_CHECKING:
    from callboard.actors.timers.timers import Timers


class TimerWheel(Actor[None]):
    """The actor. It has no messages: owners write their slots, which outlive it (`timers`)."""

    defers_interrupts = True

    def __init__(self, timers: Timers) -> None:
        self._timers = timers

    async def started(self) -> None:
        """Begin with the slots that are armed."""
        self._timers.begin()
        self.context.start_task(self._keep_time, name="timers")

    async def _keep_time(self) -> None:
        while True:
            with self._timers.turn():
                await trio.sleep_forever()
