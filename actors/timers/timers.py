"""Timers: the slots that owners arm, and what the wheel's actor does with them at each turn.

An owner keeps a `Timer`, one slot, and arms it with the next moment at which it has something to do. Arming writes the
slot; when the moment has come, the actor sets the timer's flag. Neither waits, and nothing is sent. A plain timer takes
a *deadline*, in seconds of the monotonic clock; an `Instant` takes seconds of the wall clock since 1970.

`Timers` is shared by all owners and outlives the incarnations of the actor. The wheels are one incarnation's: `begin`
makes new ones for the slots that are armed.

Invariants
----------
T1  An armed timer is in the wheel of its clock, or among the changed ones, which the next turn puts there.
T2  The actor sleeps no longer than until the earliest armed moment, rounded up to a tick; and, while an instant is
    armed, no longer than `LOOK_S`.
T3  A timer's flag is set before the timer is forgotten: a crash in between makes it come twice, never not at all.
T4  An owner is told that its moment has come by the clock, not by the flag, and once for each arming.
T5  A turn sets no flag before its moment by the clock of the turn.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, Self

import attrs
import trio

from callboard.actors.timers.wheel import TICK_MAX, UNARMED, Slot, Wheel
from callboard.log.errors import InternalError

if TYPE_CHECKING:
    from collections.abc import Callable

    from callboard.log.seams.clock import Clock

NEVER: Final = math.inf
TICKS: Final = 1000
"""In a second."""
LOOK_S: Final = 60.0
"""While an instant is armed, the wall clock is looked at this often: it may have jumped."""


def tick_from(seconds: float) -> int:
    """The first tick that is not before this moment."""
    if seconds >= TICK_MAX / TICKS:
        return TICK_MAX + 1
    tick = math.ceil(seconds * TICKS)
    if tick / TICKS < seconds:
        return tick + 1
    return tick - 1 if (tick - 1) / TICKS >= seconds else tick


def tick_at(seconds: float) -> int:
    """The last tick that is not after this moment."""
    tick = tick_from(seconds)
    return tick if tick / TICKS <= seconds else tick - 1


class Flag:
    """Wakes one task: the wait that goes on, or the next one, passes. Setting it twice is setting it once."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = trio.Event()

    def set(self) -> None:
        """Have the task look."""
        self._event.set()

    async def wait(self) -> None:
        """Until it is set; then it is not set any more."""
        await self._event.wait()
        self._event = trio.Event()


class Callback(Flag):
    """Calls a function in place of waking a task. It runs in the wheel's task: it must neither wait nor raise."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[[], None]) -> None:
        super().__init__()
        self._call = call

    def set(self) -> None:
        """Call it."""
        self._call()


class Timer(Slot):
    """One owner's slot; timers may share a flag, when one task waits for all of them. `with timer:` cancels it."""

    __slots__ = ("_timers", "deadline", "flag")

    def __init__(self, timers: Timers, flag: Flag | None = None) -> None:
        super().__init__()
        self._timers = timers
        self.flag = Flag() if flag is None else flag
        self.deadline = NEVER
        """`NEVER` unless it is armed, or has come and the owner has not asked yet."""

    def arm(self, deadline: float) -> None:
        """Come at `deadline`, and at no other moment. `NEVER` cancels."""
        if deadline == NEVER:
            self.cancel()
            return
        timers = self._timers
        self.deadline = deadline
        timers.changed[self] = timers.armed[self] = None
        timers.arms += 1
        timers.wake_by(self._foreseen())

    def cancel(self) -> None:
        """Do not come."""
        self.deadline = NEVER
        if self in self._timers.armed:
            del self._timers.armed[self]
            self._timers.changed[self] = None

    def has_come(self) -> bool:
        """Whether its moment has come; says so once (T4)."""
        if self.now() >= self.deadline:
            self.cancel()
            return True
        if self not in self._timers.armed:
            self.arm(self.deadline)  # the flag was set too early: nothing is lost
        return False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.cancel()

    async def wait(self) -> None:
        """Until its moment has come, also when it is armed anew meanwhile, or there are no more turns."""
        while not (self.has_come() or self._timers.has_ended):
            await self.flag.wait()

    def now(self) -> float:
        """What its clock says."""
        return self._timers.clock.monotonic()

    def wheel_of(self, deadlines: Wheel[Timer], instants: Wheel[Timer]) -> Wheel[Timer]:
        """The one that follows its clock."""
        return deadlines

    def _foreseen(self) -> float:
        """When to look, by the monotonic clock."""
        return self.deadline


class Instant(Timer):
    """A slot by the wall clock."""

    __slots__ = ()

    def now(self) -> float:
        """What its clock says."""
        return self._timers.wall()

    def wheel_of(self, deadlines: Wheel[Timer], instants: Wheel[Timer]) -> Wheel[Timer]:
        """The one that follows its clock."""
        return instants

    def _foreseen(self) -> float:
        """When to look, by the monotonic clock."""
        return self._timers.foreseen(self.deadline)


@attrs.frozen
class TimerStatistics:
    """What the timers of a runtime have done so far."""

    armed: int = 0
    """How many wait now."""
    arms: int = 0
    """How many were armed so far."""
    came: int = 0
    """How many came so far."""
    wakes: int = 0
    """How often the task that waits for all of them has woken."""


class Timers:
    """All timers of one runtime, and the turns of the actor that watches them."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.armed: dict[Timer, None] = {}
        """Those that wait for their moment."""
        self.changed: dict[Timer, None] = {}
        """Armed or cancelled since the last turn."""
        self.wakes_at = NEVER
        """When the next turn is."""
        self.alarm = trio.CancelScope()
        """What ends the actor's sleep."""
        self.arms = self.came = self.wakes = 0
        self.has_ended = False
        self._deadlines: Wheel[Timer] = Wheel(0)
        self._instants: Wheel[Timer] = Wheel(0)

    def timer(self, flag: Flag | None = None) -> Timer:
        """A slot for an owner."""
        return Timer(self, flag)

    def instant(self, flag: Flag | None = None) -> Instant:
        """A slot for an owner, by the wall clock."""
        return Instant(self, flag)

    async def sleep(self, seconds: float) -> None:
        """Sleep, on a slot of its own."""
        await self.sleep_until(self.clock.monotonic() + seconds)

    async def sleep_until(self, deadline: float) -> None:
        """Sleep until a moment of the monotonic clock, on a slot of its own; no longer than the runtime is open."""
        with Timer(self) as timer:
            timer.arm(deadline)
            await timer.wait()

    def end(self) -> None:
        """There are no more turns: who waits goes on, and finds the runtime closed."""
        self.has_ended = True
        for timer in tuple(self.armed):
            timer.flag.set()

    def statistics(self) -> TimerStatistics:
        """What they have done so far."""
        return TimerStatistics(len(self.armed), self.arms, self.came, self.wakes)

    def wall(self) -> float:
        """Seconds since 1970."""
        return self.clock.wall_us() / 1_000_000

    def foreseen(self, instant: float) -> float:
        """When to look at the wall clock for this instant: when it comes unless that clock jumps, but soon."""
        return self.clock.monotonic() + min(instant - self.wall(), LOOK_S)

    def wake_by(self, moment: float) -> None:
        """Have the next turn no later than in the first tick from `moment` on (T2)."""
        if moment < self.wakes_at:
            self.wakes_at = self.alarm.deadline = tick_from(moment) / TICKS

    # -- for the actor

    def begin(self) -> None:
        """A new incarnation: new wheels, into which the next turn puts all that are armed."""
        self._deadlines = Wheel(tick_at(self.clock.monotonic()))
        self._instants = Wheel(tick_at(self.wall()))
        for timer in (*self.changed, *self.armed):
            timer.place = UNARMED
        self.changed = dict(self.armed)

    def turn(self) -> trio.CancelScope:
        """Put what changed into the wheels, and set the flags of what has come. Sleep in what is returned."""
        self.alarm = trio.CancelScope()
        self.wakes_at, self.wakes = NEVER, self.wakes + 1
        now, wall = tick_at(self.clock.monotonic()), tick_at(self.wall())
        if wall < self._instants.now:
            self._set_back(wall)
        changed, self.changed = self.changed, {}
        for timer in changed:
            wheel = timer.wheel_of(self._deadlines, self._instants)
            wheel.arm(timer, tick_from(timer.deadline))
        for wheel, tick in ((self._deadlines, now), (self._instants, wall)):
            for slot in wheel.advance(tick):
                if slot.tick > tick:
                    raise InternalError(f"a timer came {slot.tick - tick} ms too early", invariant="T5")
                self._come(slot)
        deadline, instant = self._deadlines.next_deadline(), self._instants.next_deadline()
        if deadline is not None:
            self.wake_by(deadline / TICKS)
        if instant is not None:
            self.wake_by(self.foreseen(instant / TICKS))
        return self.alarm

    def _come(self, timer: Timer) -> None:
        timer.flag.set()
        self.armed.pop(timer, None)
        self.came += 1

    def _set_back(self, wall: int) -> None:
        """The wall clock has jumped back, and a wheel cannot: its slots go into another."""
        self._instants = Wheel(wall)
        for timer in (*self.changed, *self.armed):
            if isinstance(timer, Instant):
                timer.place = UNARMED
                if timer in self.armed:
                    self.changed[timer] = None
