"""Dead letters: the messages that no actor will handle, each with its reason.

The latest are kept, and all are counted. (Dead-letter *topics* are something else: they store records durably.)
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Any

import attrs

from callboard.log.limits import DEAD_LETTERS_KEPT
from callboard.log.seams.clock import Clock


@attrs.frozen
class DeadLetter:
    """A message that was told to an actor and was not handled, or not completely."""

    wall_us: int
    path: str
    message: Any
    reason: str
    """"crashed" (the actor crashed while handling it), "stopped", "failed", "drop_oldest" or "drop_newest"."""


class DeadLetters:
    """The last `DEAD_LETTERS_KEPT` dead letters, and counters of all."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: deque[DeadLetter] = deque(maxlen=DEAD_LETTERS_KEPT)
        self._by_reason: Counter[str] = Counter()

    def add(self, path: str, message: Any, reason: str) -> None:
        """Add a dead letter."""
        self._by_reason[reason] += 1
        self._kept.append(DeadLetter(self._clock.wall_us(), path, message, reason))

    def recent(self) -> tuple[DeadLetter, ...]:
        """The dead letters that are kept, oldest first."""
        return tuple(self._kept)

    @property
    def by_reason(self) -> dict[str, int]:
        """The number of all dead letters, by reason."""
        return dict(self._by_reason)

    @property
    def total(self) -> int:
        """The number of all dead letters."""
        return self._by_reason.total()
