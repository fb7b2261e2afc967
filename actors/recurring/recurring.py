"""The actor of recurring publishes: a task for each schedule, which sleeps until it is due, and publishes.

A schedule publishes as a source, whose sequence is the due instant: the partition knows which one was the last, and
takes none twice. So nothing has to be remembered anywhere else: a task begins by asking the partition.

Invariants
----------
F1  A firing is published when the wall clock has reached its due instant, never before.
F2  Firings of a schedule are published in order: one that cannot be stored holds up those behind it.
F3  A firing that was sent and not answered is sent again under the same number.
F4  A partition forgets a schedule when that has been removed: at once, or when the next incarnation serves another one
    there.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from callboard.actors.kernel import Actor, Batch
from callboard.actors.notices import ScheduleHeld, ScheduleMissed
from callboard.actors.partition import commands as c
from callboard.actors.partition.calls import PartitionCalls, Refusal
from callboard.actors.recurring.commands import RecurringCommand
from callboard.actors.recurring.spec import firings
from callboard.actors.retry_pauses import RetryPauses
from callboard.actors.timers.commands import LOOK_S, NEVER
from callboard.actors.timing import Timers
from callboard.log.errors import ActorStopped, CallboardError

if TYPE_CHECKING:
    from callboard.actors.partition.port import PartitionPort
    from callboard.actors.recurring.schedules import LiveSchedule, Schedules
    from callboard.actors.timing import WheelAddress


class Recurring(Actor[RecurringCommand]):
    """See the module."""

    defers_interrupts = True

    def __init__(self, schedules: Schedules, wheel: WheelAddress, refusal: Refusal) -> None:
        self._schedules = schedules
        self._timers = Timers(wheel)
        self._calls = PartitionCalls(self._timers, refusal)

    async def receive_batch(self, batch: Batch[RecurringCommand]) -> None:
        """Serve schedules that are opened."""
        opened = [self._schedules.get(message.schedule_id) for message, _ in batch]
        new = [live for live in opened if live is not None]
        for port in dict.fromkeys(live.port for live in new):
            self.context.start_task(self._forget_removed, port, name="removed schedules")
        for live in new:
            self.context.start_task(self._run, live, name=live.label)

    async def _run(self, live: LiveSchedule) -> None:
        """Serve one; after a failure anew, until it is removed, its topic is deleted, or the runtime closes."""
        pauses = RetryPauses()
        while not live.is_over:
            fired = live.fired
            try:
                await self._serve(live)
            except ActorStopped:
                return
            except CallboardError as error:
                if live.problem is None:
                    self.context.emit(ScheduleHeld(live.label, str(error)))
                live.problem = str(error)
            if live.fired > fired:
                pauses.worked()
            await self._timers.sleep(pauses.failed())
        await self._forget_removed(live.port)

    async def _forget_removed(self, port: PartitionPort) -> None:
        """F4. Asked once, with those that there are now: by the time of a repetition a later one could have fired."""
        with suppress(CallboardError):
            await port.ref.ask(c.Flush())  # what was sent for them is stored, or never will be
            await port.ref.ask(c.KeepSchedules(self._schedules.at(port)))

    async def _serve(self, live: LiveSchedule) -> None:
        calls, clock, position = self._calls, self.context.clock, live.position
        rule = live.rule()
        position.fired(await calls.ask(live.port, c.LastSequence(live.record.schedule_id)))
        timers = self._timers
        with timers.instant(live.flag) as instant, timers.timer(live.flag) as again:
            while not live.is_over:
                if position.is_ahead(clock.wall_us()):
                    position.set_back(await calls.ask(live.port, c.LastSequence(live.record.schedule_id)))
                passed_over = position.passed_over
                is_paused = live.record.is_paused
                dues = (
                    [] if is_paused else position.look(rule, round(clock.monotonic() * 1e6), clock.wall_us())
                )
                if position.passed_over > passed_over:
                    self.context.emit(ScheduleMissed(live.label, position.passed_over - passed_over))
                if dues:
                    await calls.store(live.port, firings(live.record, dues))
                    position.fired(dues[-1])
                    live.fired += len(dues)
                live.problem = None
                if not dues:
                    following = None if is_paused else position.next_us(rule)
                    instant.arm(NEVER if following is None else following / 1e6)
                    again.arm(clock.monotonic() + LOOK_S if following is not None else NEVER)
                    await live.flag.wait()
