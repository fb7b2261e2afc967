"""When a child is restarted, and which siblings with it: the tables of supervision, backoff and intensity.

All pure: time, the attempt and the random number are arguments.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from typing import Final, Literal

import attrs

from callboard.log.errors import join_problems
from callboard.log.limits import BACKOFF_S_MAX, BACKOFF_S_MIN
from callboard.log.plain import make_plain, number, shown

Strategy = Literal["one_for_one", "one_for_all", "rest_for_one"]
Restart = Literal["permanent", "transient", "temporary"]

STRATEGIES: Final[dict[str, str]] = {
    "one_for_one": "Only the child that crashed is restarted. For children that do not depend on each other.",
    "one_for_all": "All children are stopped, last first, and started again. For children that share a fate.",
    "rest_for_one": "The child and those started after it are stopped, last first, and started again. "
    "For children that build on earlier ones.",
}
"""Which siblings are restarted with a crashed child. The table in the guide is generated from this."""

RESTARTS: Final[dict[tuple[str, str], bool]] = {
    ("permanent", "finished"): True,
    ("permanent", "crashed"): True,
    ("permanent", "killed"): True,
    ("transient", "finished"): False,
    ("transient", "crashed"): True,
    ("transient", "killed"): True,
    ("temporary", "finished"): False,
    ("temporary", "crashed"): False,
    ("temporary", "killed"): False,
}
"""(restart, how it ended) -> start it again? The table in the guide is generated from this."""

RESTART_KINDS: Final = tuple(dict.fromkeys(restart for restart, _ in RESTARTS))


def restarted_with(strategy: Strategy, position: int, count: int) -> range:
    """Positions, of `count` children in start order, that are restarted with the one at `position`, itself included."""
    match strategy:
        case "one_for_one":
            return range(position, position + 1)
        case "one_for_all":
            return range(count)
        case "rest_for_one":
            return range(position, count)


class RestartWindow:
    """Restarts within the last `period_s` seconds; more than `intensity` of them are too many.

    Invariant W1: `admit` says yes at most `intensity` times within any window of `period_s` seconds.
    Each restart is counted with the name of the child that needed it.
    """

    __slots__ = ("_admitted", "_intensity", "_period_s")

    def __init__(self, intensity: float, period_s: float) -> None:
        self._intensity = intensity
        self._period_s = period_s
        self._admitted: deque[tuple[float, str]] = deque()

    def admit(self, now: float, name: str) -> bool:
        """Whether one more restart, of the child `name`, is allowed at `now`; if so, it is counted."""
        admitted = self._admitted
        while admitted and now - admitted[0][0] > self._period_s:
            admitted.popleft()
        if len(admitted) >= self._intensity:
            return False
        admitted.append((now, name))
        return True

    def by_name(self) -> Counter[str]:
        """The restarts that were in the window at the last `admit`, by child."""
        return Counter(name for _, name in self._admitted)

    def clear(self) -> None:
        self._admitted.clear()


def is_number(value: object) -> bool:
    """Whether it is a finite number."""
    found = number(value)
    try:
        return found is not None and math.isfinite(found)
    except OverflowError:
        return False


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
        make_plain(self, "initial", "maximum", "factor", "jitter")
        problems = [
            f"{name} must be a finite number, not {shown(value)}"
            for name, value in attrs.asdict(self, recurse=False).items()
            if not is_number(value)
        ]
        if not problems:
            rules = (
                (
                    self.initial == 0 or self.initial >= BACKOFF_S_MIN,
                    f"initial must be 0 or at least {BACKOFF_S_MIN:g} s, not {self.initial}",
                ),
                (self.maximum <= BACKOFF_S_MAX, f"maximum must be at most {BACKOFF_S_MAX:g} s"),
                (self.maximum >= self.initial, "maximum must not be below initial"),
                (self.factor >= 1, f"factor must be at least 1, not {self.factor}"),
                (0 <= self.jitter <= 1, f"jitter must lie in 0..1, not {self.jitter}"),
            )
            problems = [problem for holds, problem in rules if not holds]
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
        if self.factor == 1:
            return attempts * self.initial * (1 - self.jitter)
        growing = min(attempts, math.ceil(math.log(self.maximum / self.initial) / math.log(self.factor)))
        total = self.initial * math.expm1(growing * math.log(self.factor)) / (self.factor - 1)
        return (total + (attempts - growing) * self.maximum) * (1 - self.jitter)


IMMEDIATE = Backoff(initial=0, maximum=0, jitter=0)
"""Restart without a delay."""
DEFAULT_BACKOFF = Backoff()
"""The backoff of a child whose specification names none."""
