"""What is read for the target partitions, on its way to their senders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Protocol

import trio

from callboard.replay.sources import Timed

Batches = Sequence[tuple[int, Timed]]
"""Records that follow, by target partition."""


class Reads(Protocol):
    """Reads a recording for some target partitions: a `ReplayLane` or a `Merger`."""

    passed_over: int
    """Records that it read and left out, because they were published before."""

    async def next(self) -> Batches | None:
        """The next records; None when there are no more."""

    async def aclose(self) -> None:
        """Close the files."""


class ReplayFeed:
    """Sends what a reader finds to the senders. The first records are read before the clock starts."""

    def __init__(self, targets: Sequence[int], reader: Reads) -> None:
        self.targets = targets
        self.reader = reader
        self._primed: Batches | None = None

    async def prime(self) -> int | None:
        """Read the first records; their first position."""
        self._primed = await self.reader.next()
        return None if self._primed is None else min(timed.positions[0] for _, timed in self._primed)

    async def run(self, outlets: Mapping[int, trio.MemorySendChannel[Timed]]) -> None:
        """Send everything, each target partition's through its outlet, then close those."""
        batches, self._primed = self._primed, None
        try:
            with suppress(trio.BrokenResourceError):  # a sender failed, and says why
                while batches is not None:
                    for index, timed in batches:
                        await outlets[index].send(timed)
                    batches = await self.reader.next()
        finally:
            for outlet in outlets.values():
                outlet.close()
