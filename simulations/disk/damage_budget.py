"""The damage budget: which damage a run may be given while a guarantee is checked.

The log promises: what was acknowledged at `all` survives power loss, failing verbs and full disks, unaltered. It does
not promise to survive a disk that loses what it has confirmed. It promises then to say so: which offsets are lost.

So there are two modes.

| | promised: every acknowledged record must be there | beyond: every lost offset must be named |
|---|---|---|
| power loss | any part of what was not synced is lost or torn | the same |
| garbage at power loss | in the bytes being written (*powersafe overwrite*) | in the whole sector around them |
| rot | only in what can be made again: indexes, quarantined bytes | in any durable byte |
| misdirected writes | none | any |
| failing verbs, short and slow ones, full disks | any | any |

A file with several names, such as a segment that recovery has linked into quarantine before it takes its place, can be
made again only when that holds for each of its names, those included that a power loss would bring back.

*Powersafe overwrite* is SQLite's word: a power cut may spoil the bytes that were being written, but not their
neighbours in the sector. Frames are not aligned to sectors, so a disk without it may spoil an acknowledged record by
writing the next one; that is damage beyond the promise, and has to be reported like any other.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import attrs

REDUNDANT_SUFFIXES: Final = (".index", ".index.new")
REDUNDANT_FOLDERS: Final = ("quarantine",)


@attrs.frozen
class DiskDamage:
    """Durable bytes that were damaged: `[start, end)` of a file."""

    kind: str
    path: str
    start: int
    end: int


@attrs.define(eq=False)
class DamageBudget:
    """What may be damaged, and what was. One per disk."""

    beyond: bool = False
    damages: list[DiskDamage] = attrs.field(factory=list)
    """Damage to durable bytes that cannot be made again, in the order in which it was done; only in `beyond` mode."""

    def may_spoil(self, names: Iterable[str]) -> bool:
        """Whether durable bytes of the file that has these names may be damaged."""
        return self.beyond or all(map(self.is_redundant, names))

    def is_redundant(self, path: str) -> bool:
        """Whether everything in a file can be made again from others, so that damage costs nothing."""
        *folders, name = path.split("/")
        return name.endswith(REDUNDANT_SUFFIXES) or not set(REDUNDANT_FOLDERS).isdisjoint(folders)

    def note(self, kind: str, names: Iterable[str], start: int, end: int) -> None:
        """Something durable was damaged in the file that has these names."""
        self.damages += [DiskDamage(kind, path, start, end) for path in names if not self.is_redundant(path)]

    def renamed(self, source: str, target: str) -> None:
        """Damage goes with the file, or with all in a directory; it is known by the earlier name as well."""
        for damage in tuple(self.damages):
            if damage.path == source or damage.path.startswith(f"{source}/"):
                self.note(damage.kind, [target + damage.path.removeprefix(source)], damage.start, damage.end)

    def span(self, old: bytes, new: bytes) -> tuple[int, int]:
        """Which bytes of a sector may hold garbage after power was lost while `new` was written over `old`."""
        if self.beyond:
            return 0, len(new)
        differing = [at for at, (before, after) in enumerate(zip(old, new, strict=True)) if before != after]
        return (differing[0], differing[-1] + 1) if differing else (0, 0)
