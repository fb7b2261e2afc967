"""The driver: stands between trio's loop and a scheduler, and keeps back tasks that must not run.

Theory of operation
-------------------
At each tick trio hands over all runnable tasks. The driver takes out those of dead machines (until the run is torn
down), those that are paused or slowed by a fault (until released or due), and lets the scheduler order, and thin out,
the rest. trio's own tasks always run, first. What is taken out is kept here and put back on trio's queue in its time;
while it is here trio sees no runnable task and lets virtual time jump, at most to what is due next.

Invariants
----------
W1  A task of a dead machine is never stepped before the run is torn down: no `finally` of a cut process runs.
W2  Every task that was taken out is in exactly one place: frozen, parked under one hold, or waiting for its due time.
W3  Between two steps nothing here depends on more than the order of creation of tasks, virtual time, and the scheduler.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextvars import ContextVar
from heapq import heappop, heappush
from typing import Any, Final, Protocol

import attrs
import trio

from callboard.simulations.world.schedulers import TaskScheduler
from callboard.simulations.world.tape import FIFO, Decision, Tape
from callboard.simulations.world.trace import Trace, clean
from callboard.simulations.world.trio_hooks import (
    NEVER,
    TickingClock,
    put_back,
    put_back_all,
    task_number,
    task_numbers,
)

PATIENCE_S: Final = 10.0
"""For how long, in virtual seconds, those of a run that is over may take their time."""
STILL_S: Final = 0.001
"""A smaller step of virtual time counts as standing still."""
SAMPLE_TICKS: Final = 2_000
"""Scheduler ticks before the end of a run that gets nowhere, in which it is counted which task spins."""
SPINNERS_TOLD: Final = 5
END_TICKS: Final = 50_000
"""This many scheduler ticks after a run was asked to end it is asked again, and then abandoned."""


class TaskOwner(Protocol):
    """What tasks belong to: a machine, or the world outside of machines."""

    dead: bool


MEMBER: Final[ContextVar[TaskOwner | None]] = ContextVar("callboard_simulation_member", default=None)
"""Inherited by child tasks. None in trio's own."""


@attrs.define
class _DriverHold:
    delay_s: float | None
    """None: until released."""
    only_main: bool
    told: Callable[[], None] | None
    """Called each time that a task is kept from being stepped."""
    parked: list[Any] = attrs.field(factory=list)

    def covers(self, prefix: str, name: str) -> bool:
        return name == prefix or (not self.only_main and name.startswith(f"{prefix}:"))


class StepWatch(Protocol):
    """Hears of the steps of the program under test (see `steps`)."""

    @property
    def is_awaited(self) -> bool:
        """Whether anybody wants to hear of steps."""
        ...

    def is_due(self, task: Any) -> bool:
        """Whether some fault comes before the step of `task`, if that is the next one."""
        ...

    def passed(self, task: Any) -> float:
        """The task is about to be stepped. Returns for how long it must wait before that."""
        ...

    def woke(self) -> None:
        """Virtual time has gone on because no task could run."""
        ...


class Driver(TickingClock):
    """Decides, per tick, which tasks are stepped.

    `ended(why, waits)` is called when the run cannot or must not continue; `waits`: because of what tasks wait for. It
    is called again, and raises in trio's loop, when tasks go on although they were asked to end. `told(task)` says in
    words which task that is, and its line. `pass_time(seconds)` lets the clock go on.
    """

    def __init__(
        self,
        scheduler: TaskScheduler,
        trace: Trace,
        *,
        record: bool,
        virtual_limit_s: float,
        tick_limit: int,
        still_ticks: int,
        ended: Callable[[str, bool], None],
        told: Callable[[Any], str] = lambda task: clean(task.name),
        pass_time: Callable[[float], None] = lambda _: None,
    ) -> None:
        self.scheduler = scheduler
        self.steps: StepWatch | None = None
        """Notified of steps, in a run in which faults may wait for one."""
        self.ticks = 0
        self.reached_s = 0.0
        """The limit of virtual time, once nothing happens until then."""
        self._trace = trace
        self._traced = trace.on
        self._tape: list[Decision] | None = [] if record else None
        self._virtual_limit_s = virtual_limit_s
        self._tick_limit = tick_limit
        self._still_ticks = still_ticks
        self._still_since_s = 0.0
        self._still_since_ticks = 0
        self._alarm_at = 0
        self._spinners: Counter[Any] = Counter()
        self._set_alarm()
        self._hears = ended
        self._told = told
        self._pass = pass_time
        self._torn_down = False
        self._hurry: Callable[[], bool] = lambda: False
        self._patient_until = 0.0
        self._anyone_dead = False
        self._frozen: list[Any] = []
        self._holds: dict[str, _DriverHold] = {}
        self._slowed: list[tuple[float, int, Any]] = []
        self._sleeping: list[tuple[float, int, list[Any]]] = []
        self._passed: set[Any] = set()
        self._sequence = 0

    @property
    def tape(self) -> Tape | None:
        """The decisions taken so far, if they are recorded."""
        return None if self._tape is None else Tape(tuple(self._tape)).trimmed()

    @property
    def starves(self) -> bool:
        """Whether the scheduler keeps some actor back."""
        return self.scheduler.name.startswith("starve:")

    # -- what faults ask for

    def freeze_dead(self) -> None:
        """Step no task of a dead machine any more (W1)."""
        self._anyone_dead = True

    def hold(self, prefix: str, *, told: Callable[[], None] | None = None) -> None:
        """Step no task named `prefix`, or beginning with `prefix:`, until `release`.

        `told` is called whenever one would have been stepped otherwise, outside of all tasks.
        """
        self._set(prefix, _DriverHold(None, False, told))

    def slow(
        self,
        prefix: str,
        delay_s: float,
        *,
        mailbox_only: bool = False,
        told: Callable[[], None] | None = None,
    ) -> None:
        """Step such tasks `delay_s` later than they could, until `release`; `mailbox_only`: only the main task.

        No delay is none: a task put off to this very moment would be put off for ever.
        """
        if delay_s <= 0:
            self.release(prefix)
        else:
            self._set(prefix, _DriverHold(delay_s, mailbox_only, told))

    def _set(self, prefix: str, hold: _DriverHold) -> None:
        earlier = self._holds.get(prefix)
        if earlier is not None:
            hold.parked = earlier.parked
        self._holds[prefix] = hold

    def release(self, prefix: str) -> None:
        """End one hold or slowness."""
        hold = self._holds.pop(prefix, None)
        if hold is not None:
            for task in hold.parked:
                put_back(task)

    def release_all(self) -> None:
        """End all holds and slowness."""
        for prefix in tuple(self._holds):
            self.release(prefix)

    def end(self, why: str) -> None:
        """End the run because it makes no progress."""
        if not self._torn_down:
            self._ended(why, False)

    def _ended(self, why: str, waits: bool) -> None:
        """Say that the run must end. From here on its tasks have `END_TICKS`, then as many without shields."""
        self._hears(why, waits)
        self._give_end_ticks()

    def _give_end_ticks(self) -> None:
        self._tick_limit = self.ticks + END_TICKS
        self._set_alarm()

    def going_on(self) -> str:
        """The tasks that were stepped most in the last ticks, with lines, in words; empty if that was not counted."""
        # A task that ended meanwhile is at no line. Of a tie the oldest is named.
        most = sorted(self._spinners.items(), key=lambda item: (-item[1], task_number(item[0])))
        return ", ".join(dict.fromkeys(self._told(task) for task, _ in most[:SPINNERS_TOLD]))

    def tear_down(self, hurry: Callable[[], bool]) -> None:
        """The run is over: everybody runs, to his end.

        When all wait for ever, or for longer than `PATIENCE_S`, `hurry()` is called; it returns whether that helps.
        """
        self._torn_down = True
        self._hurry = hurry
        self._give_end_ticks()
        self._patient_until = self._trace.now() + PATIENCE_S
        self.release_all()
        for task in self._frozen:
            put_back(task)
        self._frozen.clear()
        while self._slowed:
            put_back(heappop(self._slowed)[2])
        while self._sleeping:
            self._wake_first()

    async def sleep(self, seconds: float) -> None:
        """Let virtual time pass, whatever is cancelled meanwhile. Cheaper than a shielded `trio.sleep`."""
        if seconds <= 0 or self._torn_down:
            await trio.lowlevel.cancel_shielded_checkpoint()
            return
        self._sequence += 1
        sleeper = [trio.lowlevel.current_task()]
        heappush(self._sleeping, (self._trace.now() + seconds, self._sequence, sleeper))
        await trio.lowlevel.wait_task_rescheduled(_not_to_be_aborted)

    async def rest(self, seconds: float) -> None:
        """As `trio.sleep`, without the cancel scope and the exception by which that ends."""
        if seconds <= 0 or self._torn_down:
            await trio.sleep(seconds)
            return
        self._sequence += 1
        sleeper = [trio.lowlevel.current_task()]
        heappush(self._sleeping, (self._trace.now() + seconds, self._sequence, sleeper))

        def abort(_: object) -> trio.lowlevel.Abort:
            sleeper.clear()
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    def pass_time(self, seconds: float) -> None:
        """Let virtual time go on while tasks can run: the loop is busy."""
        if not self._torn_down:
            self._pass(seconds)

    # -- what the clock asks

    def next_due(self) -> float:
        """When the first slowed or sleeping task is due."""
        while self._sleeping and not self._sleeping[0][2]:
            heappop(self._sleeping)
        slowed = self._slowed[0][0] if self._slowed else NEVER
        return min(slowed, self._sleeping[0][0]) if self._sleeping else slowed

    def arrived(self, now: float) -> None:
        """Virtual time has gone on: let those run that are due."""
        if now - self._still_since_s >= STILL_S:
            self._still_since_s, self._still_since_ticks = now, self.ticks
            self._set_alarm()
        while self._slowed and self._slowed[0][0] <= now:
            task = heappop(self._slowed)[2]
            self._passed.add(task)
            put_back(task)
        while self._sleeping and self._sleeping[0][0] <= now:
            self._wake_first()

    def woke(self) -> None:
        """A jump of virtual time is done."""
        if self.steps is not None and not self._torn_down:
            self.steps.woke()

    def _wake_first(self) -> None:
        for task in heappop(self._sleeping)[2]:  # no task, when it was cancelled meanwhile
            trio.lowlevel.reschedule(task)

    def stuck(self, now: float) -> None:
        """Every task waits, and no deadline will wake one."""
        if self._hurry():
            return
        self._ended(
            "every task waits for something that never happens: nothing runs, and no deadline is set", True
        )

    def late(self, until: float) -> bool:
        """Whether virtual time has reached its limit."""
        if self._torn_down:
            return until > self._patient_until and self._hurry()
        if until <= self._virtual_limit_s:
            return False
        self.reached_s = self._virtual_limit_s
        self._ended(f"the run did not end within {self._virtual_limit_s:,.15g} virtual seconds", True)
        return True

    # -- what trio's loop asks

    def decide(self, batch: list[Any]) -> None:
        """Order and thin out `batch`, which is in order of creation and is stepped from its end."""
        self.ticks += 1
        runnable = len(batch)
        if not runnable:  # virtual time has jumped
            return
        if self.ticks >= self._alarm_at:
            self._alarm(batch)
        if self._torn_down:
            batch.reverse()
            return
        if runnable == 1 and not self._holds:  # most ticks by far, and nothing to decide
            self._only(batch)
            return
        ours, system = self._steppable(batch)
        if len(ours) > 1:
            decision = self._decision(task_numbers(ours), ours)
            if decision != FIFO:
                ours = self._picked(decision, ours)
        if ours:
            if self.steps is not None and self.steps.is_awaited:
                ours = self._watched(self.steps, ours)
            if self._traced:
                self._trace.step(task_numbers(ours))
        if len(ours) > 1:
            ours.reverse()
        batch[:] = ours
        if system:
            batch += system

    def _only(self, batch: list[Any]) -> None:
        task = batch[0]
        member = task.context.get(MEMBER)
        if member is None:
            return
        if member.dead:
            self._frozen.append(task)
            batch.clear()
        elif self.steps is not None and self.steps.is_awaited and not self._watched(self.steps, batch):
            batch.clear()
        elif self._traced:
            self._trace.step([task_number(task)])

    def _watched(self, steps: StepWatch, tasks: list[Any]) -> list[Any]:
        """Those of `tasks` that may still be stepped, after faults have come before the steps of some."""
        delays: list[float] = []
        for at, task in enumerate(tasks):
            if at and steps.is_due(
                task
            ):  # those before it are stepped first, and the others in the next tick
                put_back_all(tasks[at:])
                break
            was_delayed = task in self._passed
            self._passed.discard(task)
            delays.append(0.0 if was_delayed or task.context[MEMBER].dead else steps.passed(task))
        left = []
        for task, delay_s in zip(tasks, delays, strict=False):
            if task.context[MEMBER].dead:
                self._frozen.append(task)
            elif delay_s > 0:
                self._sequence += 1
                heappush(self._slowed, (self._trace.now() + delay_s, self._sequence, task))
            else:
                left.append(task)
        return left

    def _steppable(self, batch: list[Any]) -> tuple[list[Any], list[Any]]:
        """The tasks that may be stepped, and trio's own."""
        if not (self._anyone_dead or self._holds):
            ours = [task for task in batch if task.context.get(MEMBER) is not None]
            if len(ours) == len(batch):
                return ours, []
            return ours, [task for task in batch if task.context.get(MEMBER) is None]
        ours, system = [], []
        for task in batch:
            member = task.context.get(MEMBER)
            if member is None:
                system.append(task)
            elif member.dead:
                self._frozen.append(task)
            elif not (self._holds and self._held_back(task)):
                ours.append(task)
        return ours, system

    def _set_alarm(self) -> None:
        """Look from some ticks before the end on."""
        end = min(self._tick_limit, self._still_since_ticks + self._still_ticks)
        self._alarm_at = max(self.ticks + 1, end - min(SAMPLE_TICKS, self._still_ticks // 2))
        self._spinners.clear()

    def _alarm(self, batch: list[Any]) -> None:
        """In the last ticks before the end count which tasks are stepped, then end the run as one that gets nowhere."""
        self._spinners.update(task for task in batch if task.context.get(MEMBER) is not None)
        still_for = self.ticks - self._still_since_ticks
        if self.ticks >= self._tick_limit:
            why = f"the run did not end within {self.ticks:,} scheduler ticks"
        elif still_for >= self._still_ticks and not self._torn_down:
            why = f"virtual time has stood still for {still_for:,} scheduler ticks"
        else:
            return
        self._still_since_ticks = self.ticks
        self._ended(f"{why}: a task never waits. Stepped most: {self.going_on()}", False)

    def _decision(self, numbers: list[int], tasks: list[Any]) -> Decision:
        scheduler = self.scheduler
        labels = [clean(task.name) for task in tasks] if scheduler.looks_at_labels else ()
        decision = scheduler.decide(numbers, labels)
        if self._tape is not None:
            self._tape.append(decision)
        return decision

    @staticmethod
    def _picked(decision: Decision, tasks: list[Any]) -> list[Any]:
        """The tasks to step now; the others wait for the next tick."""
        if len(decision) == 1:
            picked = tasks.pop(decision[0])
            put_back_all(tasks)
            return [picked]
        if len(decision) < len(tasks):
            chosen = set(decision)
            put_back_all([task for position, task in enumerate(tasks) if position not in chosen])
        return [tasks[position] for position in decision]

    def _held_back(self, task: Any) -> bool:
        if task in self._passed:
            self._passed.discard(task)
            return False
        name = task.name
        for prefix, hold in self._holds.items():
            if hold.covers(prefix, name):
                if hold.told is not None:
                    hold.told()
                if hold.delay_s is None:
                    hold.parked.append(task)
                else:
                    self._sequence += 1
                    heappush(self._slowed, (self._trace.now() + hold.delay_s, self._sequence, task))
                return True
        return False


def _not_to_be_aborted(_: Any) -> trio.lowlevel.Abort:
    return trio.lowlevel.Abort.FAILED
