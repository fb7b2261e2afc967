"""When nothing is disturbed: what is promised to happen at once, or within moments, is demanded only then.

Disturbed are: a fault that strikes or lasts, an actor that is down or starts, a machine that ends or boots, a partition
that lacks space or does not get an answer of its disk. Faults stop disks, actors and processes for as long as they
like.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from typing import Final

import attrs

from callboard.simulations.history.entry import HistoryEntry
from callboard.simulations.history.recorder import History

SPACE_S: Final = 5.5
"""A recovery for which the disk was too full is tried again after this many seconds, and as long as it was too full."""
ENDINGS: Final = ("power cut", "killed", "closed")
"""A machine's end."""
DISTURBING: Final = (
    "ActorEnded",
    "ActorFailed",
    "ActorRestarted",
    "ActorStarted",
    "ActorStopped",
    "Escalated",
    "IncarnationCrashed",
    "OpeningLacksSpace",
    "OpeningOverdue",
    "PartitionStuck",
    "booted",
    "fault",
    "fault lasts",
    "healed",
    "note",
    *ENDINGS,
)
"""Kinds of entries after which it takes a while until all is as it should be."""


class Calm:
    """The quiet times of a run."""

    def __init__(self, history: History) -> None:
        disturbed = _Disturbed({entry.topic for entry in history.of("publish")})
        self._times: list[float] = []
        self._numbers: list[int] = []
        self._since: list[float] = []
        for entry in history.of(*DISTURBING):
            disturbed.see(entry)
            self._times.append(entry.time)
            self._numbers.append(entry.number)
            self._since.append(disturbed.until)

    def since(self, time: float) -> float:
        """Since when, at `time`, nothing was disturbed. Later than `time` while something is."""
        index = bisect_right(self._times, time)
        return self._since[index - 1] if index else 0.0

    def lasts(self, begin: HistoryEntry, time: float) -> bool:
        """Whether nothing was disturbed from an entry on until `time`, not even in its own instant behind it."""
        index = bisect_right(self._times, time)
        return not index or (self._since[index - 1] <= begin.time and self._numbers[index - 1] < begin.number)


@attrs.define(eq=False)
class _Disturbed:
    """Follows what disturbs."""

    topics: set[str]
    """Topics that clients publish to: their partitions come back when a runtime is opened."""
    quiet_from: float = 0.0
    lasts_until: float = 0.0
    """When the last fault that was begun ends."""
    is_healed: bool = False
    short_since: float = math.inf
    """Since when a partition lacked space to be recovered."""
    down: dict[str, None] = attrs.Factory(dict)
    """Actors that crashed and have not started again."""
    partitions: dict[str, None] = attrs.Factory(dict)
    """Paths of actors that have started."""

    @property
    def until(self) -> float:
        """Until when something is disturbed, for all that is known."""
        return math.inf if self.down else self.quiet_from

    def see(self, entry: HistoryEntry) -> None:
        """One entry more."""
        until = entry.time
        match entry.kind:
            case "fault lasts":
                until = entry.until
                self.lasts_until = max(self.lasts_until, until)
            case "ActorRestarted":
                until += entry.until
            case "OpeningLacksSpace":
                self.short_since = min(self.short_since, until)
            case "IncarnationCrashed":
                self.down[entry.who] = None
            case "ActorStarted" | "ActorStopped":
                self.partitions[entry.who] = None
                self.down.pop(entry.who, None)
            case "ActorEnded" if entry.who in self.partitions and self._is_used(entry.who):
                self.down[entry.who] = None
            case "booted":
                self.down = {path: None for path in self.partitions if self._is_used(path)}
                if self.short_since < math.inf:
                    self.quiet_from, self.short_since = max(until, self.lasts_until), math.inf
            case "healed":
                self.is_healed = True
                if self.quiet_from == math.inf:
                    self.quiet_from = until
        if self.short_since < math.inf:
            until = until + (until - self.short_since) + SPACE_S if self.is_healed else math.inf
        self.quiet_from = max(self.quiet_from, until)

    def _is_used(self, path: str) -> bool:
        return any(path.startswith(f"topics/{topic}/") for topic in self.topics)
