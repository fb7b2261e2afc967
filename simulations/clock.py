"""A wall clock over trio's clock: virtual when that one is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import trio

START_US: Final = 1_700_000_000_000_000
"""2023-11-14T22:13:20Z: a date that no test depends on."""


class VirtualClock:
    """Time that passes as trio's does, beginning at a chosen date.

    A clock that is carried into another run continues where it was last looked at.
    """

    __slots__ = ("_anchor", "_base_us", "_run", "_seen_us", "jumps", "monotonic")

    def __init__(self, start_us: int = START_US, monotonic: Callable[[], float] = trio.current_time) -> None:
        self.monotonic = monotonic
        """Seconds on trio's clock; only inside a trio run."""
        self._base_us = self._seen_us = start_us
        self._anchor = 0.0
        self._run: object = None
        self.jumps: list[tuple[int, int]] = []
        """What it showed before it jumped, and then."""

    def wall_us(self) -> int:
        """Microseconds since 1970-01-01T00:00:00Z."""
        now = self.monotonic()
        run = trio.lowlevel.current_trio_token()
        if self._run is not run:
            self._run, self._anchor, self._base_us = run, now, self._seen_us
        self._seen_us = self._base_us + round((now - self._anchor) * 1_000_000)
        return self._seen_us

    def set_wall_us(self, wall_us: int) -> None:
        """Let the wall clock jump to an instant, either way; the monotonic clock does not notice."""
        self.jumps.append((self.wall_us(), wall_us))
        self._run, self._anchor = trio.lowlevel.current_trio_token(), self.monotonic()
        self._base_us = self._seen_us = wall_us

    def shift(self, seconds: float) -> None:
        """Let the wall clock jump by `seconds`, either way."""
        self.set_wall_us(self.wall_us() + round(seconds * 1_000_000))
