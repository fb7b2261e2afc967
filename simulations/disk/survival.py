"""What a power cut leaves of that which was not synced, drawn from a seed.

Each file and each directory draws on its own, from the seed and its path: so taking away one file, or one write to
another, changes nothing for the rest, and a failing plan can be shrunk.

| drawn | for | decides |
|---|---|---|
| `torn` | a file | whether each of its sectors has a fate of its own, or all of them one |
| `applied` | a sector, or all of a file's | whether it reached the disk |
| `trashed` | a sector that did | whether it holds garbage instead |
| `names` | a change of a directory | whether it reached the disk; in half of them none does after one that did not |
| `zeros` | the length of a file | whether a file may be longer than what was saved of it, with zeros in between |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import attrs

from callboard.simulations.entropy import SeededEntropy

from .damage_budget import DamageBudget
from .inodes import LENGTH, SECTOR_BYTES, Choose, Garbage, Inode, Unsynced


def _check_probability(_: Any, attribute: attrs.Attribute[float], value: float) -> None:
    if not 0.0 <= value <= 1.0:
        raise ValueError(f"{attribute.name} is a probability, between 0 and 1, not {value!r}")


@attrs.frozen
class Survival:
    """The odds at a power cut; see the module's docstring. Zero everywhere: nothing survives that was not synced."""

    seed: int = 0
    applied: float = attrs.field(default=0.0, validator=_check_probability)
    torn: float = attrs.field(default=0.0, validator=_check_probability)
    trashed: float = attrs.field(default=0.0, validator=_check_probability)
    names: float = attrs.field(default=0.0, validator=_check_probability)
    zeros: bool = True

    def choosing(self, damage_budget: DamageBudget | None = None) -> Choose:
        """A `Choose` for `MemoryDisk.crash`. `damage_budget`, the disk's, bounds the garbage."""
        budget = DamageBudget() if damage_budget is None else damage_budget
        source = SeededEntropy(self.seed)

        def choose(unsynced: Unsynced) -> Iterable[int | Garbage]:
            entropy = source.fork(unsynced.path)
            if unsynced.is_directory:
                return self._names(unsynced, entropy)
            return self._sectors(unsynced, entropy, budget)

        return choose

    def _names(self, unsynced: Unsynced, entropy: SeededEntropy) -> list[int]:
        in_order = entropy.random() < 0.5
        kept: list[int] = []
        for item in unsynced.items:
            if entropy.random() < self.names:
                kept.append(item)
            elif in_order:
                break
        return kept

    def _sectors(
        self, unsynced: Unsynced, entropy: SeededEntropy, budget: DamageBudget
    ) -> list[int | Garbage]:
        torn = entropy.random() < self.torn
        whole = entropy.random() < self.applied
        kept = [item for item in unsynced.items if (entropy.random() < self.applied if torn else whole)]
        if not self.zeros:
            kept = _without_zeros(unsynced, kept)
        fates: list[int | Garbage] = []
        for item in kept:
            if item != LENGTH and unsynced.inode is not None and entropy.random() < self.trashed:
                fates.append(garbage(unsynced.names, unsynced.inode, item, entropy, budget))
            else:
                fates.append(item)
        return fates


def garbage(
    names: Callable[[], list[str]],
    inode: Inode,
    sector: int,
    entropy: SeededEntropy,
    damage_budget: DamageBudget,
) -> Garbage:
    """Neither the old bytes nor the new: noise, zeros, or the new ones up to some byte only."""
    old, new = inode.sector(sector)
    start, end = damage_budget.span(old, new)
    if damage_budget.beyond and any(old):
        damage_budget.note("trashed", names(), sector * SECTOR_BYTES, sector * SECTOR_BYTES + len(old))
    length = end - start
    match entropy.integer(2):
        case 0 | 1:
            spoiled = entropy.bytes(length)
        case 2:
            spoiled = bytes(length)
        case _:
            cut = start + int(entropy.random() * length)
            spoiled = new[start:cut] + old[cut:end]
    return Garbage(sector, old[:start] + spoiled + new[end:])


def _without_zeros(unsynced: Unsynced, kept: list[int]) -> list[int]:
    """The length is written after the bytes that it covers: it is kept only when all of them are."""
    if not unsynced.items or unsynced.items[0] != LENGTH or unsynced.inode is None:
        return kept
    first_new = unsynced.inode.durable.length // SECTOR_BYTES
    new = [item for item in unsynced.items if item >= first_new]
    sectors = [item for item in kept if item != LENGTH]
    complete = set(new).issubset(sectors) and bool(new or LENGTH in kept)
    return [LENGTH, *sectors] if complete else sectors
