"""How quick the caller of a consumer is: the quicker, the more is leased ahead for it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from callboard.actors.settings import GroupSettings
    from callboard.log.limits import Limits
    from callboard.log.seams.clock import Clock

QUICK_S: Final = 0.1
"""A caller is quick that takes less time for what it was given, and less than an eighth of the visibility timeout."""
UNITS_MAX: Final = 1_000_000
"""A caller that says nothing else can use as many units as there is room for."""


class CallerPace:
    """Measures how fast the caller of a consumer takes messages.

    A *unit* is what the caller takes at a time, a message or a batch.
    """

    def __init__(self, clock: Clock, limits: Limits) -> None:
        self._clock = clock
        self._limits = limits
        self.units = 1
        """How many units one lease covers."""
        self.units_max = UNITS_MAX
        """How many the caller can use at the most."""
        self.ahead = 1
        """How many partitions are asked at a time for batches."""
        self._fetched_at: float | None = None
        self._given_at: float | None = None
        """When the last batch was handed over."""
        self._took_s = math.inf
        """How long the caller was busy with a batch, the last time."""

    def fetched(self, now: float) -> None:
        """Something was fetched for it."""
        self._fetched_at = now

    def asks_again(self, unit: int, settings: GroupSettings) -> None:
        """What was fetched is taken: more the next time if that was quick, a single unit if not."""
        if self._fetched_at is not None:
            taken_s, self._fetched_at = self._clock.monotonic() - self._fetched_at, None
            if unit > 1:
                taken_s = max(taken_s, self._took_s)
            is_quick = taken_s < quick_s(settings)
            self.units = 2 * self.units if is_quick else 1
            self.ahead = min(2 * self.ahead, self._limits.leased_batches) if is_quick and unit > 1 else 1
        most = self._limits.prefetch
        if unit > 1:
            most = max(1, min(self._limits.leased_batches, settings.max_in_flight // 4 // unit))
        self.units = min(self.units, most)

    def batch_given(self) -> None:
        """A batch was handed over."""
        self._given_at = self._clock.monotonic()

    def batch_wanted(self, settings: GroupSettings) -> bool:
        """The caller wants the next batch; whether it was quick with the last one."""
        if self._given_at is not None:
            self._took_s = self._clock.monotonic() - self._given_at
        return self._took_s < quick_s(settings)


def quick_s(settings: GroupSettings) -> float:
    """How long a quick caller takes at most."""
    return min(QUICK_S, settings.visibility_timeout / 8)
