"""What a disk remembers: files and directories, each with what is durable and what is only in the page cache.

Vocabulary. An *inode* is a file's content under any number of names. *Volatile* is what reads see; *durable* is what
power loss leaves. A *sector* is 512 bytes. A sector is *dirty* when it was written since the last sync. A file's length
is one more thing that may be lost, so the pseudo sector `LENGTH` stands for it. A *change* is one operation on a
directory's names: a rename within a directory is one change, and one across two directories is a change in each.

Invariants
----------
M1  A power loss leaves each file with its durable content plus those dirty sectors, and perhaps the length, that were
    chosen; and each directory with its durable names plus the chosen changes, in the order in which they were made.
M2  A sync moves dirty sectors and the length to durable. Sectors that a failed sync has marked clean stay behind: no
    later sync moves them unless they are written again (what ext4 and XFS do).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Final

import attrs

__all__ = [
    "LENGTH",
    "SECTOR_BYTES",
    "Choose",
    "Directory",
    "Inode",
    "Node",
    "Unsynced",
    "keep_unsynced",
    "lose_unsynced",
]

SECTOR_BYTES: Final = 512
LENGTH: Final = -1
"""The pseudo sector that stands for a file's changed length."""


@attrs.frozen
class Unsynced:
    """What of one file or directory power loss may take.

    `items` are a file's dirty sectors in ascending order, after `LENGTH` if that changed; or the numbers, from 0, of a
    directory's changes, in the order in which they were made.
    """

    path: str
    is_directory: bool
    items: tuple[int, ...]


Choose = Callable[[Unsynced], Iterable[int]]
"""Says which of the items survive a power loss."""


def lose_unsynced(_: Unsynced) -> Iterable[int]:
    """Power loss at its plainest: nothing survives that was not synced."""
    return ()


def keep_unsynced(unsynced: Unsynced) -> Iterable[int]:
    """Power loss after the system happened to write everything."""
    return unsynced.items


class Inode:
    """A file's content."""

    __slots__ = ("_dirty", "durable", "volatile")

    def __init__(self) -> None:
        self.durable = bytearray()
        self.volatile = bytearray()
        self._dirty: list[tuple[int, int]] = []

    def __deepcopy__(self, memo: dict[int, object]) -> Inode:
        twin = Inode()
        twin.durable, twin.volatile, twin._dirty = self.durable[:], self.volatile[:], self._dirty[:]
        memo[id(self)] = twin
        return twin

    @property
    def dirty_sectors(self) -> list[int]:
        """The sectors written since the last sync, ascending."""
        return sorted({sector for first, end in self._dirty for sector in range(first, end)})

    @property
    def unsynced(self) -> tuple[int, ...]:
        """`LENGTH`, if it changed, and the dirty sectors."""
        sectors = self.dirty_sectors
        return (LENGTH, *sectors) if len(self.volatile) != len(self.durable) else tuple(sectors)

    def write(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        """Put `data` at `offset`; a gap before it reads as zeros."""
        size = len(self.volatile)
        if offset > size and len(data):
            self.truncate(offset)
        end = offset + len(data)
        self.volatile[offset:end] = data
        self._touch(offset, end)

    def truncate(self, length: int) -> None:
        """Cut, or extend with zeros."""
        size = len(self.volatile)
        if length < size:
            del self.volatile[length:]
            last = -(-length // SECTOR_BYTES)
            self._dirty = [(first, min(end, last)) for first, end in self._dirty if first < last]
        else:
            self.volatile += bytes(length - size)
            self._touch(size, length)

    def _touch(self, start: int, end: int) -> None:
        if end <= start:
            return
        first, last = start // SECTOR_BYTES, -(-end // SECTOR_BYTES)
        if self._dirty and self._dirty[-1][0] <= first <= self._dirty[-1][1]:
            # The usual case: a file that is written from front to back.
            first, last = self._dirty[-1][0], max(last, self._dirty[-1][1])
            self._dirty[-1] = (first, last)
        else:
            self._dirty.append((first, last))

    def sync(self) -> None:
        """Make all of it durable, but for sectors that a failed sync has marked clean (M2)."""
        self._set_durable_length()
        for first, end in self._dirty:
            self._persist(first, end)
        self._dirty.clear()

    def _set_durable_length(self) -> None:
        length = len(self.volatile)
        if len(self.durable) > length:
            del self.durable[length:]
        else:
            self.durable += bytes(length - len(self.durable))

    def _persist(self, first: int, end: int) -> None:
        start, stop = first * SECTOR_BYTES, min(end * SECTOR_BYTES, len(self.durable))
        if start < stop:
            piece = self.volatile[start:stop]
            self.durable[start : start + len(piece)] = piece

    def fail_sync(self, *, reverted: bool) -> None:
        """A sync that failed: dirty sectors are marked clean unsaved. Reads see them still, or the old ones."""
        if reverted:
            for sector in self.dirty_sectors:
                start = sector * SECTOR_BYTES
                stop = min(start + SECTOR_BYTES, len(self.volatile))
                self.volatile[start:stop] = self.durable[start:stop].ljust(stop - start, b"\0")
        self._dirty.clear()

    def lose_power(self, kept: Iterable[int]) -> None:
        """Keep the durable content and the `kept` items of `unsynced` (M1)."""
        for item in sorted(kept):
            if item == LENGTH:
                self._set_durable_length()
            else:
                self._persist(item, item + 1)
        self.volatile = self.durable[:]
        self._dirty.clear()


class Directory:
    """The names in a directory."""

    __slots__ = ("changes", "durable", "volatile")

    def __init__(self) -> None:
        self.durable: dict[str, Node] = {}
        self.volatile: dict[str, Node] = {}
        self.changes: list[dict[str, Node | None]] = []

    def __deepcopy__(self, memo: dict[int, object]) -> Directory:
        twin = Directory()
        memo[id(self)] = twin
        twin.durable = copy.deepcopy(self.durable, memo)
        twin.volatile = copy.deepcopy(self.volatile, memo)
        twin.changes = copy.deepcopy(self.changes, memo)
        return twin

    @property
    def unsynced(self) -> tuple[int, ...]:
        """The numbers of the changes since the last sync."""
        return tuple(range(len(self.changes)))

    def change(self, names: dict[str, Node | None]) -> None:
        """Set names, and remove those that are None, in one change."""
        self.changes.append(names)
        _apply(self.volatile, names)

    def sync(self) -> None:
        """Make all names durable."""
        for names in self.changes:
            _apply(self.durable, names)
        self.changes.clear()

    def lose_power(self, kept: Iterable[int]) -> None:
        """Keep the durable names and the `kept` changes (M1)."""
        for number in sorted(kept):
            _apply(self.durable, self.changes[number])
        self.changes.clear()
        self.volatile = dict(self.durable)


Node = Inode | Directory


def _apply(entries: dict[str, Node], names: dict[str, Node | None]) -> None:
    for name, node in names.items():
        if node is None:
            entries.pop(name, None)
        else:
            entries[name] = node
