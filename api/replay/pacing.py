"""When a record is due. Pure: the time comes in as an argument.

Vocabulary
----------
position   microseconds on the replay's own time line: recorded time since the beginning of the first pass; each pass
           follows the one before it. Positions never fall. At a fixed rate, a second for each record
due        the monotonic time at which a record is to be handed over; at the highest speed everything is due at once
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import attrs

from callboard.log.errors import InvalidArgument

NUMBER_US: Final = 1_000_000
"""From the position of a record to that of the next, in a replay at a fixed rate: the rate is its speed."""
MAX_SPEED: Final = math.inf
"""As fast as possible."""
SPEED_MIN: Final = 1e-6
"""A second then takes eleven days."""
SPEED_MAX: Final = 1e9
"""A finite speed is at most this."""


def check_speed(speed: float | str) -> float:
    """`speed` as a number, `MAX_SPEED` for "max". Raises `InvalidArgument` for anything that is no pace."""
    if speed == "max":
        return MAX_SPEED
    try:
        number = math.nan if isinstance(speed, bool) else float(speed)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if number == MAX_SPEED and not isinstance(speed, str):
        return number
    if not SPEED_MIN <= number <= SPEED_MAX:
        raise InvalidArgument(
            f"the speed is {speed!r:.40}. Nothing was written. Give a number from {SPEED_MIN} to {SPEED_MAX:.0f} (1: as"
            " recorded), or 'max'."
        )
    return number


def check_rate(rate: float | str) -> float:
    """`rate` as a number. Raises `InvalidArgument` for anything that is no number of records per second."""
    try:
        number = math.nan if isinstance(rate, bool) else float(rate)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not SPEED_MIN <= number <= SPEED_MAX:
        raise InvalidArgument(
            f"the rate is {rate!r:.40}. Nothing was written. Give records per second, from {SPEED_MIN} to"
            f" {SPEED_MAX:.0f}."
        )
    return number


@attrs.frozen
class TimeLine:
    """Recorded times as positions. A pass lasts `period_us`, from `first_us` on."""

    first_us: int
    period_us: int

    def origin(self, number: int) -> int:
        """What is added to a recorded time in pass `number` to get its position."""
        return number * self.period_us - self.first_us


@attrs.frozen
class Pace:
    """Due times: the record at position `origin_us` is due at `began`, monotonic seconds."""

    speed: float
    began: float
    origin_us: int

    def due(self, position_us: int) -> float:
        """When the record at this position is due."""
        return self.began + (position_us - self.origin_us) / (1e6 * self.speed)


def due_count(positions: Sequence[int], start: int, pace: Pace, now: float) -> int:
    """How many records from `start` on are due at `now`, at least the first; positions do not fall."""
    if pace.speed == MAX_SPEED:
        return len(positions) - start
    low, high = start + 1, len(positions)
    while low < high:
        middle = (low + high) // 2
        if pace.due(positions[middle]) <= now:
            low = middle + 1
        else:
            high = middle
    return low - start
