"""The Clock seam: the only way in which the runtime reads the time.

*Monotonic* time (float seconds, arbitrary origin) decides deadlines within one run. *Wall* time (integer
microseconds since the Unix epoch) stamps records and survives restarts. Sleeping is trio's own
(`trio.sleep_until` against `monotonic`), so a virtual trio clock moves both.
"""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Monotonic and wall time."""

    def monotonic(self) -> float:
        """Seconds on the clock that `trio.sleep_until` uses."""
        ...

    def wall_us(self) -> int:
        """Microseconds since 1970-01-01T00:00:00Z; may jump forwards or backwards."""
        ...


def wall_offset(clock: Clock) -> float:
    """Wall time minus monotonic time, in seconds."""
    return clock.wall_us() / 1e6 - clock.monotonic()
