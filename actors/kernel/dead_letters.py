"""Dead letters: the messages that no actor will handle, each with its reason.

A bounded ring: the latest are kept to look at, all are counted. (The dead-letter *topics* of the log are something
else: they hold records, durably.)
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Any

import attrs

from callboard.log.limits import DEAD_LETTERS_KEPT
from callboard.log.seams.clock import Clock


@attrs.frozen
class DeadLetter:
    """A message told to an actor that did not handle it, or not wholly."""

    wall_us: int
    path: str
    message: Any
    reason: str
    """"crashed" (in hand when the actor crashed), "stopped", "failed", "drop_oldest" or "drop_newest"."""


class DeadLetters:
    """The last `DEAD_LETTERS_KEPT` dead letters, and counters of all."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: deque[DeadLetter] = deque(maxlen=DEAD_LETTERS_KEPT)
        self._by_reason: Counter[str] = Counter()

    def add(self, path: str, message: Any, reason: str) -> None:
        """Record one."""
        self._by_reason[reason] += 1
        self._kept.append(DeadLetter(self._clock.wall_us(), path, message, reason))

    def recent(self) -> tuple[DeadLetter, ...]:
        """Those still kept, oldest first."""
        return tuple(self._kept)

    @property
    def by_reason(self) -> dict[str, int]:
        """How many there have been, per reason."""
        return dict(self._by_reason)

    @property
    def total(self) -> int:
        """How many there have been."""
        return self._by_reason.total()
