"""Long random histories of a log and its journal, with power lost at any verb, also while recovering.

What the exhaustive mode does for all short histories, this does for some long ones: the same operations, the same
ledger. A seed draws how harsh the disk is, when power is lost and what survives.
"""

from __future__ import annotations

from typing import Final

import trio

from callboard.log.errors import StaleIncarnation
from callboard.simulations.disk.memory_disk import MemoryDisk
from callboard.simulations.disk.survival import Survival
from callboard.simulations.entropy import SeededEntropy

from .ledger import Broken, Ledger
from .life import HandClock, Life
from .operations import OPERATIONS

__all__ = ["Walk", "walk"]

STEPS: Final = 30
RECOVERIES_MAX: Final = 100
"""Power losses in a row, while recovering from one."""


class Walk:
    """One history. `story` says what was done, `disk` has what is left."""

    def __init__(self, seed: int, steps: int = STEPS) -> None:
        self.story: list[str] = []
        self.disk = MemoryDisk()
        self.disk.instant = True
        self._entropy = entropy = SeededEntropy(seed)
        self._life = Life(self.disk, Ledger(), HandClock(), seed=seed)
        self._steps = steps
        self._crash_odds = entropy.random() / 2
        self._odds = [
            entropy.random() if entropy.random() < 0.7 else float(entropy.integer(1)) for _ in range(4)
        ]
        self._zeros = entropy.random() < 0.5

    async def run(self) -> None:
        """Do all of it. Raises what is wrong: `Broken`, or what the log raised."""
        await self._life.reopen()
        names = tuple(OPERATIONS)
        for _ in range(self._steps):
            if self._entropy.random() < self._crash_odds:
                self._arm("power fails")
            name = names[int(self._entropy.random() * len(names))]
            self.story.append(name)
            try:
                await OPERATIONS[name](self._life)
            except StaleIncarnation:
                await self._recover()
            self.disk.power_on()
        self._life.lose_power()
        await self._life.reopen()

    def _arm(self, words: str) -> None:
        """Let power fail after some verbs."""
        entropy = self._entropy
        verbs = entropy.integer(4)
        applied, torn, trashed, names = self._odds
        survival = Survival(entropy.integer(30), applied, torn, trashed, names, self._zeros)
        self.disk.crash_after(verbs, survival.choosing(self.disk.atlas), answered=entropy.random() < 0.5)
        self.story.append(f"({words} after {verbs} verbs: {survival})")

    async def _recover(self) -> None:
        """Open again, however often power fails meanwhile."""
        for _ in range(RECOVERIES_MAX):
            self.disk.power_on()
            self.disk.heal()
            if self._entropy.random() < 0.4:
                self._arm("power fails again")
            self.story.append("recover")
            try:
                await self._life.reopen()
            except StaleIncarnation:
                continue
            return
        raise Broken(f"no recovery ended in {RECOVERIES_MAX}")


def walk(seed: int, steps: int = STEPS) -> Walk:
    """Do the history of a seed; not from within a trio run. Raises what is wrong."""
    made = Walk(seed, steps)
    trio.run(made.run)
    return made
