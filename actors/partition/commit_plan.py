"""The disk as an engine of commits: what the participants of one commit staged becomes one plan, in their order.

Nothing above this module assumes files. Another engine, a replicated log say, could write the same values as one
transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import accumulate
from typing import NamedTuple, Protocol

from callboard.log.errors import PlanFailed
from callboard.log.seams.disk import Flight, Incarnation, Verb

__all__ = ["DiskEngine", "CommitFailure", "Staged"]


class Staged(Protocol):
    """What a participant stages for the disk."""

    @property
    def verbs(self) -> Sequence[Verb]: ...


class CommitFailure(NamedTuple):
    """Where a commit failed: everything before stands, nothing behind was tried."""

    at: int
    """The place of the value that failed."""
    error: PlanFailed


class DiskEngine:
    """Writes the values of one commit in one plan."""

    def __init__(self, files: Incarnation) -> None:
        self._files = files
        self._flight: Flight | None = None

    @property
    def waiting_since(self) -> float | None:
        """Since when the oldest plan has been in flight (monotonic seconds); None when there is none."""
        return self._files.in_flight_since

    def start(self, values: Sequence[Staged]) -> bool:
        """Start writing the values, if that is possible now; True when all of them are written already.

        Otherwise `write` them next, or call `end`.
        """
        flight = self._files.start(
            values[0].verbs if len(values) == 1 else [verb for value in values for verb in value.verbs]
        )
        if flight is not None and flight.has_landed:
            return True
        self._flight = flight
        return False

    async def end(self) -> None:
        """Wait for what was started, and will not be written by `write` any more. Cannot be cancelled."""
        flight, self._flight = self._flight, None
        if flight is not None:
            with suppress(PlanFailed):
                await self._files.landed(flight)

    async def write(self, values: Sequence[Staged]) -> CommitFailure | None:
        """Write the values in order; None when all of them are written."""
        flight, self._flight = self._flight, None
        try:
            if flight is not None:
                await self._files.landed(flight)
            else:
                await self._files.submit([verb for value in values for verb in value.verbs])
        except PlanFailed as error:
            ends = accumulate(len(value.verbs) for value in values)
            at = next((at for at, end in enumerate(ends) if error.index < end), len(values) - 1)
            return CommitFailure(at, error)
        return None
