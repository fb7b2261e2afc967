"""What an actor has done so far, as numbers.

The rate decays by itself: it is computed when messages arrive and when it is read, so an idle actor costs nothing.
"""

from __future__ import annotations

from math import exp
from typing import Final

import attrs

RATE_WINDOW_S: Final = 5.0
"""Time constant of the rate: a message this long ago weighs 1/e of a message now."""


class Rate:
    """Events per second, exponentially weighted. Pure: time is an argument."""

    __slots__ = ("_at", "_rate")

    def __init__(self, now: float) -> None:
        self._at = now
        self._rate = 0.0

    def note(self, count: int, now: float) -> None:
        """`count` events happened at `now` (seconds, never earlier than before)."""
        self._rate = self.read(now) + count / RATE_WINDOW_S
        self._at = now

    def read(self, now: float) -> float:
        """The rate at `now`."""
        elapsed = now - self._at
        return self._rate * exp(-elapsed / RATE_WINDOW_S) if elapsed > 0 else self._rate


@attrs.frozen(kw_only=True)
class ActorStatistics:
    """A snapshot of one actor. Counters cover all its incarnations."""

    path: str
    state: str
    """new, starting, running, waiting (for a restart), stopping, failed or stopped."""
    incarnation: int
    """Number of the current or last incarnation; 0 before the first."""
    restarts: int
    mailbox_depth: int
    mailbox_capacity: int
    received: int
    """Messages taken out of the mailbox."""
    rate_per_s: float
    """Messages taken per second, an average that decays with `RATE_WINDOW_S`."""
    dropped: int
    """Messages that the full mailbox's policy dropped."""
    late_replies: int
    """Answers that came after the asker had stopped waiting."""
    dead_letters: int
    """Messages that went to the dead letters, including dropped ones."""
    last_failure: str | None
    started_at_us: int | None
    """Wall time at which the current incarnation began."""
