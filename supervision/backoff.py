"""Backoff: how long to wait before a restart. Pure: the attempt and the random number are arguments."""

from __future__ import annotations

import math

import attrs

from callboard.log.errors import join_problems
from callboard.log.limits import BACKOFF_S_MAX, BACKOFF_S_MIN


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


@attrs.frozen(kw_only=True)
class Backoff:
    """Exponential backoff with jitter.

    The n-th restart in a row waits `initial * factor ** (n - 1)` seconds, at most `maximum`, less a random
    share of up to `jitter` of it. After a child has run for its supervisor's `period`, its next delay is the first.
    """

    initial: float = 0.05
    maximum: float = 2.0
    factor: float = 2.0
    jitter: float = 0.1

    def __attrs_post_init__(self) -> None:
        problems = backoff_problems(self)
        if problems:
            raise join_problems("Backoff", problems)

    def longest(self, attempt: int) -> float:
        """Seconds before restart number `attempt` (from 1), without jitter."""
        if self.initial == 0:
            return 0.0
        growth = (attempt - 1) * math.log(self.factor)
        if growth > math.log(self.maximum / self.initial):
            return self.maximum
        return min(self.maximum, self.initial * math.exp(growth))

    def delay(self, attempt: int, chance: float) -> float:
        """Seconds before restart number `attempt` (from 1); `chance` in [0, 1) is the random number."""
        return self.longest(attempt) * (1 - self.jitter * chance)

    def least(self, attempts: int) -> float:
        """The shortest time in which `attempts` restarts in a row can happen."""
        if self.initial == 0:
            return 0.0
        growing = min(attempts, self._growing())
        if self.factor == 1:
            total = growing * self.initial
        else:
            total = self.initial * math.expm1(growing * math.log(self.factor)) / (self.factor - 1)
        return (total + (attempts - growing) * self.maximum) * (1 - self.jitter)

    def _growing(self) -> float:
        """How many delays are shorter than the maximum."""
        if self.factor == 1:
            return math.inf
        return math.ceil(math.log(self.maximum / self.initial) / math.log(self.factor))


def backoff_problems(backoff: Backoff) -> list[str]:
    """What is wrong with `backoff`; empty when nothing is."""
    wrong = [
        f"{name} must be a finite number, not {value!r}"
        for name, value in attrs.asdict(backoff).items()
        if not _number(value)
    ]
    if wrong:
        return wrong
    rules = (
        (
            backoff.initial == 0 or backoff.initial >= BACKOFF_S_MIN,
            f"initial must be 0 or at least {BACKOFF_S_MIN:g} s, not {backoff.initial}",
        ),
        (backoff.maximum <= BACKOFF_S_MAX, f"maximum must be at most {BACKOFF_S_MAX:g} s"),
        (backoff.maximum >= backoff.initial, "maximum must not be below initial"),
        (backoff.factor >= 1, f"factor must be at least 1, not {backoff.factor}"),
        (0 <= backoff.jitter <= 1, f"jitter must lie in 0..1, not {backoff.jitter}"),
    )
    return [problem for holds, problem in rules if not holds]


IMMEDIATE = Backoff(initial=0, maximum=0, jitter=0)
"""Restart without a delay."""
DEFAULT_BACKOFF = Backoff()
"""The backoff of a child whose specification names none."""
