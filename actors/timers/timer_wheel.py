"""The timer-wheel actor: one task that sleeps until the earliest moment that any owner has armed.

Nothing of it outlives an incarnation but its counts. The next one says that it has begun, and owners arm again.
"""

from __future__ import annotations

from typing import assert_never

import attrs
import trio

from callboard.actors.kernel import Actor, Batch, notify
from callboard.actors.timers.armed_timers import ArmedTimers, foreseen
from callboard.actors.timers.commands import (
    NEVER,
    TICKS,
    Arm,
    Cancel,
    CountTimers,
    Due,
    TimerStatistics,
    WheelCommand,
    tick_from,
)


@attrs.define
class TimerCounts:
    """What one incarnation hands on to the next."""

    arms: int = 0
    came: int = 0
    wakes: int = 0


class TimerWheel(Actor[WheelCommand]):
    """The actor that sleeps until the earliest moment that any owner has armed, and sends each owner what is due."""

    defers_interrupts = True

    def __init__(self, counts: TimerCounts) -> None:
        self._counts = counts
        self._armed: ArmedTimers
        self._wakes_at = NEVER
        """Until when the task sleeps."""
        self._alarm = trio.CancelScope()
        """What ends its sleep."""

    async def started(self) -> None:
        """Begin with nothing armed."""
        self._armed = ArmedTimers(*self._now())
        self.context.start_task(self._keep_time, name="timers")

    async def receive_batch(self, batch: Batch[WheelCommand]) -> None:
        """Arm and cancel what owners say, and sleep no longer than until the earliest of it."""
        armed, counts, (now, wall) = self._armed, self._counts, self._now()
        first = NEVER
        for message, reply in batch:
            match message:
                case Arm(at=at):
                    armed.arm(message)
                    counts.arms += 1
                    moment = foreseen(at, now, wall) if message.is_instant else at
                    if moment < first:
                        first = moment
                case Cancel():
                    armed.cancel(message)
                case CountTimers():
                    if reply is not None:
                        reply.answer(TimerStatistics(len(armed), counts.arms, counts.came, counts.wakes))
                case _:
                    assert_never(message)
        self._wake_by(first)

    async def _keep_time(self) -> None:
        while True:
            with self._turn():
                await trio.sleep_forever()

    def _turn(self) -> trio.CancelScope:
        """Tell owners what has come. Sleep in what is returned."""
        self._alarm, self._wakes_at = trio.CancelScope(), NEVER
        self._counts.wakes += 1
        now = self._now()
        for owner, timer in self._armed.take_due(*now):
            self._counts.came += 1
            notify(self.context.ref, owner, Due(timer))
        self._wake_by(self._armed.next_look(*now))
        return self._alarm

    def _wake_by(self, moment: float) -> None:
        """Have the next turn no later than in the first tick from `moment` on."""
        if moment < self._wakes_at:
            self._wakes_at = self._alarm.deadline = tick_from(moment) / TICKS

    def _now(self) -> tuple[float, float]:
        """What the two clocks say."""
        clock = self.context.clock
        return clock.monotonic(), clock.wall_us() / 1_000_000
