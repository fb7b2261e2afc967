"""When nothing goes wrong: from when on, before some moment, no fault was left and nothing crashed or came back.

A part of what is promised holds at once, or within moments, only then: faults stop disks, actors and processes for as
long as they like.
"""

from __future__ import annotations

import math
from bisect import bisect_right

from callboard.simulations.history.recorder import History

UNREST = (
    "ActorFailed",
    "ActorRestarted",
    "ActorStarted",
    "Escalated",
    "IncarnationCrashed",
    "PartitionStuck",
    "booted",
    "closed",
    "fault",
    "killed",
    "note",
    "power cut",
)
"""Kinds of entries after which it takes a while until all is as it should be."""

SLOW_S = 1.0
"""What a slow disk has begun before it was healed takes so much longer at most."""


class Calm:
    """The quiet times of a run."""

    def __init__(self, history: History) -> None:
        healed = history.of("healed")
        self._from = healed[0].time if healed else math.inf
        if self._from > 0:
            self._from += SLOW_S
        self._unrest = [entry.time for entry in history.of(*UNREST)]

    def since(self, time: float) -> float:
        """From when on, until `time`, nothing went wrong; infinite when something may still go wrong then."""
        if time < self._from:
            return math.inf
        index = bisect_right(self._unrest, time)
        return max(self._from, self._unrest[index - 1] if index else 0.0)
