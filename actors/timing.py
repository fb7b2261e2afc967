"""The owner's end of timers: what an actor, or the handles of a client, keeps of its own, and says to the wheel.

An owner has `Timers` of its own, and a `Timer` for each thing that it waits for, which it arms with the next moment at
which it has something to do. A plain timer takes a *deadline*, in seconds of the monotonic clock; an `Instant` takes
seconds of the wall clock since 1970.

Arming neither waits nor fails. The wheel learns each timer's newest moment at its next turn, and only when it must: a
moment that lies behind the one that the wheel knows is sent when that one has come. When a moment has come, the
timer's flag is set, which wakes the owner's task.

Invariants
----------
TM4  An owner's flag is set for a moment that has come by the clock, whatever the wheel says, and `has_come` says so
     once for each arming.
TM6  An armed timer is known to the wheel, or is on its way there, with a moment that is not after its own; after a
     crash of the wheel it is on its way again.
TM7  Only an owner with such timers is among the wheel's peers.
TM8  No wait returns because the wheel has ended: a loop around it would never end. An actor waits to be cancelled with
     its runtime, which ends with the wheel; a client, which may outlive it, gets an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Self

import attrs
import trio

from callboard.actors.kernel import Began, Peer, Terminated
from callboard.actors.timers.commands import NEVER, Arm, Cancel, Due, WheelCommand

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from callboard.actors.kernel import ActorRef
    from callboard.log.seams.clock import Clock


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
    """Calls a function in place of waking a task: it must neither wait nor raise."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[[], None]) -> None:
        super().__init__()
        self._call = call

    def set(self) -> None:
        """Call it."""
        self._call()


@attrs.define(eq=False)
class WheelAddress:
    """Where owners find the wheel, and the clocks that it goes by."""

    clock: Clock
    ref: ActorRef[WheelCommand] = attrs.field(init=False)
    """Set before anything is armed."""


class Timer:
    """One thing that an owner waits for; timers may share a flag, when one task waits for all of them. `with timer:`
    cancels it.
    """

    __slots__ = ("_timers", "deadline", "flag", "known", "number")

    is_instant: ClassVar = False

    def __init__(self, timers: Timers, flag: Flag | None = None) -> None:
        self._timers = timers
        self.flag = Flag() if flag is None else flag
        self.deadline = NEVER
        """`NEVER` unless it is armed, or has come and the owner has not asked yet."""
        self.known = NEVER
        """The moment of the newest arming that was sent to the wheel, or is on its way."""
        self.number = timers.number()

    def arm(self, deadline: float) -> None:
        """Come at `deadline`, and at no other moment. `NEVER` cancels."""
        self.deadline = deadline
        if deadline < self.known:
            self.known = deadline
            self._timers.tell(self)
        elif deadline == NEVER:
            self.cancel()

    def cancel(self) -> None:
        """Do not come."""
        self.deadline = NEVER
        if self.known != NEVER:
            self._timers.tell(self)

    def has_come(self) -> bool:
        """Whether its moment has come; says so once (TM4)."""
        if self.now() >= self.deadline:
            self.cancel()
            return True
        return False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.cancel()

    async def wait(self) -> None:
        """Until its moment has come, also when it is armed anew meanwhile. When the wheel has ended: TM8."""
        while not self.has_come():
            if self._timers.has_ended:
                await self._timers.wait_in_vain()
            await self.flag.wait()

    def now(self) -> float:
        """What its clock says."""
        return self._timers.clock.monotonic()


class Instant(Timer):
    """The same by the wall clock."""

    __slots__ = ()

    is_instant: ClassVar = True

    def now(self) -> float:
        """What its clock says."""
        return self._timers.wall()


class Timers:
    """All timers of one owner."""

    __slots__ = ("_address", "_numbered", "_owner", "_peer", "clock", "has_ended", "known", "wait_in_vain")

    def __init__(
        self, wheel: WheelAddress, wait_in_vain: Callable[[], Awaitable[object]] = trio.sleep_forever
    ) -> None:
        self._address = wheel
        self.wait_in_vain = wait_in_vain
        """What a wait does when the wheel has ended. It never returns."""
        self._peer: Peer[Timer, WheelCommand] | None = None
        self._owner = self._numbered = 0
        self.clock = wheel.clock
        self.known: dict[int, Timer] = {}
        """What the wheel knows of, or is on its way to it, by number."""
        self.has_ended = False
        """The wheel has."""

    def timer(self, flag: Flag | None = None) -> Timer:
        """A timer by the monotonic clock."""
        return Timer(self, flag)

    def instant(self, flag: Flag | None = None) -> Instant:
        """A timer by the wall clock."""
        return Instant(self, flag)

    async def sleep(self, seconds: float) -> None:
        """Sleep, on a timer of its own."""
        await self.sleep_until(self.clock.monotonic() + seconds)

    async def sleep_until(self, deadline: float) -> None:
        """Sleep until a moment of the monotonic clock, on a timer of its own."""
        with Timer(self) as timer:
            timer.arm(deadline)
            await timer.wait()

    def wall(self) -> float:
        """Seconds since 1970."""
        return self.clock.wall_us() / 1_000_000

    # -- for timers

    def number(self) -> int:
        """A number for another timer."""
        self._numbered += 1
        return self._numbered

    def tell(self, timer: Timer) -> None:
        """The wheel has to know of the timer's moment."""
        peer = self._peer
        if peer is None:
            peer = self._peer = Peer(self._address.ref, self)
            self._owner = peer.number
        if not self.known:
            peer.open()
        self.known[timer.number] = timer
        peer.mark(timer)

    # -- to the wheel, and from it

    def compose(self, timer: Timer) -> WheelCommand:
        """What there is to say of the timer now."""
        if timer.known == NEVER or timer.deadline == NEVER:  # it has come meanwhile, or was cancelled
            timer.known = NEVER
            self._forget(timer)
            return Cancel(self._owner, timer.number)
        timer.known = timer.deadline
        return Arm(self._owner, timer.number, timer.deadline, timer.is_instant)

    def hear(self, message: Due | Began | Terminated) -> None:
        """The wheel says this."""
        match message:
            case Due(number):
                timer = self.known.get(number)
                if timer is not None:
                    self._due(timer)
            case Began():
                for timer in tuple(self.known.values()):
                    self.tell(timer)
            case Terminated():
                self.has_ended = True
                for timer in tuple(self.known.values()):
                    timer.flag.set()

    def _due(self, timer: Timer) -> None:
        timer.known = NEVER
        if timer.now() < timer.deadline < NEVER:
            timer.arm(timer.deadline)
            return
        self._forget(timer)
        if timer.deadline != NEVER:
            timer.flag.set()

    def _forget(self, timer: Timer) -> None:
        self.known.pop(timer.number, None)
        if not self.known and self._peer is not None:
            self._peer.close()
