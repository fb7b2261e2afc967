"""Long random histories of a log and its journal, with verbs that fail and power lost at any verb, also in recovery.

What the exhaustive mode does for all short histories, this does for some long ones: the same operations, the same
ledger. A seed draws how harsh the disk is, when power is lost and what survives. An error that an operation raises ends
the process, as it ends an actor; the log is then opened again, until the disk lets it.
"""

from __future__ import annotations

from typing import Final, Literal

import trio

from callboard.log.errors import StaleIncarnation, StorageError
from callboard.simulations.disk.disk_faults import OBSERVED
from callboard.simulations.disk.memory_disk import MemoryDisk
from callboard.simulations.disk.survival import Survival
from callboard.simulations.entropy import SeededEntropy

from .ledger import Broken, LogPromises
from .life import HandClock, Life
from .operations import OPERATIONS

STEPS: Final = 30
RECOVERIES_MAX: Final = 100
"""Power losses and errors in a row, while recovering."""
ERRORS_MAX: Final = 3
"""The number of failures after which the disk heals."""


class HistoryWalk:
    """One history. `story` says what was done, `disk` has what is left."""

    def __init__(self, seed: int, steps: int = STEPS) -> None:
        self.story: list[str] = []
        self.disk = MemoryDisk()
        self.disk.instant = True
        self._entropy = entropy = SeededEntropy(seed)
        self._life = Life(self.disk, LogPromises(), HandClock(), seed=seed)
        self._steps = steps
        self._crash_odds = entropy.random() / 2
        self._fail_odds = max(0.0, entropy.random() - 0.5)
        self._odds = [
            entropy.random() if entropy.random() < 0.7 else float(entropy.integer(1)) for _ in range(4)
        ]
        self._zeros = entropy.random() < 0.5

    async def run(self) -> None:
        """Run the history. Raises `Broken`, or what the log raised."""
        await self._life.reopen()
        names = tuple(OPERATIONS)
        for _ in range(self._steps):
            if self._entropy.random() < self._crash_odds:
                self._arm("power fails")
            if self._entropy.random() < self._fail_odds:
                self._plant()
            name = names[int(self._entropy.random() * len(names))]
            self.story.append(name)
            try:
                await OPERATIONS[name](self._life)
            except StaleIncarnation:
                await self._recover()
            except StorageError as error:
                await self._recover(error)
            self.disk.power_on()
        self.disk.heal()
        await self._life.lose_power()

    def _arm(self, words: str) -> None:
        """Let power fail after some verbs."""
        entropy = self._entropy
        verbs = entropy.integer(4)
        applied, torn, trashed, names = self._odds
        survival = Survival(entropy.integer(30), applied, torn, trashed, names, self._zeros)
        self.disk.crash_after(
            verbs, survival.choosing(self.disk.damage_budget), answered=entropy.random() < 0.5
        )
        self.story.append(f"({words} after {verbs} verbs: {survival})")

    def _plant(self) -> None:
        """Let some verb fail soon."""
        entropy = self._entropy
        verb = OBSERVED[int(entropy.random() * len(OBSERVED))]
        error = ("EIO", "ENOSPC")[entropy.integer(1)]
        after, times, partial = entropy.integer(2), 1 + entropy.integer(1), entropy.integer(8)
        pages: Literal["kept", "reverted"] = "kept" if entropy.integer(1) else "reverted"
        self.disk.fail_next(verb, error, after=after, times=times, pages=pages, partial=partial)
        self.story.append(f"({verb} fails with {error} after {after}, {times} times)")

    async def _recover(self, error: StorageError | None = None) -> None:
        """Open again, even if the power or the disk fails repeatedly meanwhile."""
        errors = 0
        for _ in range(RECOVERIES_MAX):
            if error is not None:
                self.story.append(f"({type(error).__name__})")
                self.disk.kill()
                errors += 1
            self.disk.power_on()
            if errors >= ERRORS_MAX:
                self.disk.heal()
            if self._entropy.random() < 0.4:
                self._arm("power fails again")
            self.story.append("recover")
            error = None
            try:
                await self._life.reopen()
            except StaleIncarnation:
                continue
            except StorageError as raised:
                error = raised
                continue
            return
        raise Broken(f"no recovery ended in {RECOVERIES_MAX}")


def walk(seed: int, steps: int = STEPS) -> HistoryWalk:
    """Do the history of a seed; not from within a trio run. Raises what is wrong."""
    made = HistoryWalk(seed, steps)
    trio.run(made.run)
    return made
