"""Rate: how many messages an actor takes per second."""

from __future__ import annotations

from math import exp
from typing import Final

RATE_WINDOW_S: Final = 5.0
"""Time constant of the rate: a message this long ago weighs 1/e of a message now."""


class Rate:
    """Messages taken per second, exponentially weighted. Pure: time is an argument.

    It is computed when messages were taken and when it is read, so an idle actor costs nothing.
    """

    __slots__ = ("_at", "_rate")

    def __init__(self, now: float) -> None:
        self._at = now
        self._rate = 0.0

    def note(self, count: int, now: float) -> None:
        """`count` messages were taken at `now` (seconds, never earlier than before)."""
        self._rate = self._rate * exp((self._at - now) / RATE_WINDOW_S) + count / RATE_WINDOW_S
        self._at = now

    def read(self, now: float) -> float:
        return self._rate * exp(min(0.0, self._at - now) / RATE_WINDOW_S)
