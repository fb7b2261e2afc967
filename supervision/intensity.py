"""Restart intensity: how many restarts are allowed within a period. Pure: time is an argument."""

from __future__ import annotations

from collections import deque


class RestartWindow:
    """Restarts within the last `period_s` seconds; more than `intensity` of them are too many.

    Invariant W1: `admit` says yes at most `intensity` times within any window of `period_s` seconds.
    """

    __slots__ = ("_admitted", "_intensity", "_period_s")

    def __init__(self, intensity: float, period_s: float) -> None:
        self._intensity = intensity
        self._period_s = period_s
        self._admitted: deque[float] = deque()

    def admit(self, now: float) -> bool:
        """Whether one more restart is allowed at `now`; if so, it is counted."""
        admitted = self._admitted
        while admitted and now - admitted[0] > self._period_s:
            admitted.popleft()
        if len(admitted) >= self._intensity:
            return False
        admitted.append(now)
        return True

    def clear(self) -> None:
        """Forget all restarts."""
        self._admitted.clear()
