"""What owners of timers and the wheel say to each other; the only module of this room that others import.

An owner is a peer of the wheel (`callboard.actors.kernel.peer`), and named by its peer's number. It numbers its timers
itself. It says `Arm` and `Cancel`, the newest of each timer only, and hears `Due` (`callboard.actors.timing`).

The wheel's clock has *ticks*: a moment is rounded up to the first tick that is not before it.
"""

from __future__ import annotations

import math
from typing import Final

import attrs

from callboard.actors.kernel import Question

WHEEL: Final = "timer-wheel"
"""The wheel's name in the tree, directly below the root."""
NEVER: Final = math.inf
TICKS: Final = 1000
"""In a second."""
TICK_MAX: Final = (1 << 54) - 1
"""570,000 years of milliseconds. What lies beyond never comes."""
LOOK_S: Final = 60.0
"""While an instant is armed, the wall clock is looked at this often: it may have jumped."""


@attrs.frozen
class Arm:
    """The owner's timer is due at this moment, and at no other."""

    owner: int
    timer: int
    at: float
    """Seconds of the monotonic clock or, for an instant, of the wall clock since 1970."""
    is_instant: bool = False


@attrs.frozen
class Cancel:
    """The owner's timer does not come."""

    owner: int
    timer: int


@attrs.frozen
class Due:
    """To an owner: the moment that the wheel knows of this timer has come, and it knows of none now."""

    timer: int


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


@attrs.frozen
class CountTimers(Question[TimerStatistics]):
    """Answered with what the timers have done."""


WheelCommand = Arm | Cancel | CountTimers


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
