"""The disk as an engine of commits: what the participants of one commit staged becomes one plan, in their order.

Nothing above this module assumes files. Another engine, a replicated log say, could write the same values as one
transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple, Protocol

from callboard.log.errors import PlanFailed
from callboard.log.seams.disk import Incarnation, Verb

__all__ = ["DiskEngine", "Failure", "Staged"]


class Staged(Protocol):
    """What a participant stages for the disk."""

    @property
    def verbs(self) -> Sequence[Verb]: ...


class Failure(NamedTuple):
    """Where a commit failed: everything before stands, nothing behind was tried."""

    at: int
    """The place of the value that failed."""
    error: PlanFailed


class DiskEngine:
    """Writes the values of one commit in one plan."""

    def __init__(self, files: Incarnation) -> None:
        self._files = files

    @property
    def waiting_since(self) -> float | None:
        """Since when the oldest plan has been in flight (monotonic seconds); None when there is none."""
        return self._files.in_flight_since

    async def write(self, values: Sequence[Staged]) -> Failure | None:
        """Write the values in order; None when all of them are written."""
        plan: list[Verb] = []
        for value in values:
            plan += value.verbs
        try:
            await self._submit(plan)
        except PlanFailed as error:
            ends = accumulate(len(value.verbs) for value in values)
            at = next((at for at, end in enumerate(ends) if error.index < end), len(values) - 1)
            return Failure(at, error)
        return None

    async def _submit(self, plan: list[Verb]) -> None:
        await self._files.submit(plan)
