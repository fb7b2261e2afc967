"""The real Clock."""

from __future__ import annotations

import time

import trio


class HostClock:
    """trio's clock for deadlines, the system's for dates."""

    __slots__ = ()

    monotonic = staticmethod(trio.current_time)
    """Seconds on trio's clock; only inside a trio run."""

    def wall_us(self) -> int:
        """Microseconds since 1970-01-01T00:00:00Z; may jump either way."""
        return time.time_ns() // 1000
