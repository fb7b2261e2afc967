"""What a disk remembers: files and directories, each with what is durable and what is only in the page cache.

Vocabulary. An *inode* is a file's content under any number of names. *Volatile* is what reads see; *durable* is what
power loss leaves. A *sector* is 512 bytes. A sector is *dirty* when it was written since the last sync. A file's length
is one more thing that may be lost, so the pseudo sector `LENGTH` stands for it. A *change* is one operation on a
directory's names: a rename within a directory is one change, and one across two directories is a change in each.
*Garbage* is what a sector holds when power failed while it was written and neither the old nor the new is left.

Invariants
----------
M1  A power loss leaves each file with its durable content plus those dirty sectors, and perhaps the length, that were
    chosen (or garbage in their place); and each directory with its durable names plus the chosen changes, in the order
    in which they were made.
M2  A sync moves dirty sectors and the length to durable. Sectors that a failed sync has marked clean stay behind: no
    later sync moves them unless they are written again (what ext4 and XFS do).
M4  The stored prefix of a content is never longer than its length.

Dirty sectors whose durable and volatile bytes are equal are not offered for choosing: whichever survives, the file is
the same. So megabytes of zeros written over zeros cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import attrs

from callboard.log.seams.disk import Buffer

SECTOR_BYTES: Final = 512
LENGTH: Final = -1
"""The pseudo sector that stands for a file's changed length."""


@attrs.frozen
class Garbage:
    """What a sector of a file is left with, in place of the old and of the new bytes."""

    sector: int
    data: bytes


@attrs.frozen
class Unsynced:
    """What of one file or directory power loss may take.

    `items` are a file's dirty sectors in ascending order, after `LENGTH` if that changed; or the numbers, from 0, of a
    directory's changes, in the order in which they were made. `inode` is the file, to look at; `names` finds its paths.
    """

    path: str
    is_directory: bool
    items: tuple[int, ...]
    inode: Inode | None = attrs.field(default=None, eq=False, repr=False)
    names: Callable[[], list[str]] = attrs.field(default=list[str], eq=False, repr=False)


Choose = Callable[[Unsynced], Iterable[int | Garbage]]
"""Says which of the items survive a power loss, and which sectors are left with garbage."""


def lose_unsynced(_: Unsynced) -> Iterable[int]:
    """The simplest power loss: nothing unsynced survives."""
    return ()


def keep_unsynced(unsynced: Unsynced) -> Iterable[int]:
    """A power loss after the system has written everything."""
    return unsynced.items


@attrs.define(eq=False)
class Content:
    """The bytes of a file: a stored prefix, and a length.

    Files are zeroed ahead by megabytes: what lies between the two reads as zeros and costs nothing to keep, copy or
    compare.
    """

    stored: bytearray = attrs.Factory(bytearray)
    length: int = 0

    def __len__(self) -> int:
        return self.length

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Content):
            return NotImplemented
        return self.length == other.length and self.stored.rstrip(b"\0") == other.stored.rstrip(b"\0")

    def __bytes__(self) -> bytes:
        return self.read(0, self.length)

    def copy(self) -> Content:
        """One that changes on its own."""
        return Content(self.stored[:], self.length)

    def read(self, start: int, stop: int) -> bytes:
        """The bytes from `start` to `stop`, or to the end."""
        stop = min(stop, self.length)
        piece = bytes(self.stored[start:stop])
        return piece.ljust(stop - start, b"\0")

    def write(self, offset: int, data: Buffer) -> None:
        """Put `data` at `offset`; a gap before it reads as zeros."""
        stored = self.stored
        end = offset + len(data)
        if offset > len(stored):
            stored += bytes(offset - len(stored))
        stored[offset:end] = data
        if end > self.length:
            self.length = end

    def zero(self, start: int, stop: int) -> None:
        """Put zeros from `start` to `stop`."""
        stored = self.stored
        if stop >= len(stored):
            del stored[start:]
        else:
            stored[start:stop] = bytes(stop - start)
        if stop > self.length:
            self.length = stop

    def resize(self, length: int) -> None:
        """Cut, or extend with zeros."""
        del self.stored[length:]
        self.length = length

    def take(self, other: Content, start: int, stop: int) -> None:
        """Put there what `other` has from `start` to `stop`; neither length changes, and nothing past one moves."""
        stop = min(stop, self.length, other.length)
        if start >= stop:
            return
        piece = other.stored[start:stop]
        if piece:
            self.write(start, piece)
        if start + len(piece) < stop:
            self.zero(start + len(piece), stop)


@attrs.define(eq=False)
class Inode:
    """A file's content."""

    durable: Content = attrs.Factory(Content)
    volatile: Content = attrs.Factory(Content)
    _dirty: list[tuple[int, int]] = attrs.Factory(list)

    def clone(self, memo: dict[int, Node]) -> Inode:
        """A copy, the same for every name of the file."""
        twin = memo.get(id(self))
        if twin is None:
            twin = memo[id(self)] = Inode(self.durable.copy(), self.volatile.copy(), self._dirty[:])
        return twin  # type: ignore[return-value]

    @property
    def dirty_sectors(self) -> list[int]:
        """The sectors written since the last sync whose durable bytes are others, ascending."""
        limit = -(-max(len(self.volatile.stored), len(self.durable.stored)) // SECTOR_BYTES)
        ranges = ((first, min(end, limit)) for first, end in self._dirty)
        return [
            sector
            for sector in sorted({at for pair in ranges for at in range(*pair)})
            if self._differs(sector)
        ]

    def _differs(self, sector: int) -> bool:
        start = sector * SECTOR_BYTES
        stop = min(start + SECTOR_BYTES, self.volatile.length)
        new, old = self.volatile.stored[start:stop], self.durable.stored[start:stop]
        return new != old and new.ljust(SECTOR_BYTES, b"\0") != old.ljust(SECTOR_BYTES, b"\0")

    @property
    def settled(self) -> bytearray:
        """The durable bytes that reads see, too: those that are in both."""
        return self.durable.stored[: len(self.volatile.stored)]

    @property
    def unsynced(self) -> tuple[int, ...]:
        """`LENGTH`, if it changed, and the dirty sectors."""
        sectors = self.dirty_sectors if self._dirty else []
        return (LENGTH, *sectors) if self.volatile.length != self.durable.length else tuple(sectors)

    def write(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        """Put `data` at `offset`; a gap before it reads as zeros."""
        if not len(data):
            return
        size = self.volatile.length
        if offset > size:
            self._touch(size, offset)
        self.volatile.write(offset, data)
        self._touch(offset, offset + len(data))

    def zero(self, offset: int, length: int) -> None:
        """Write zeros."""
        if not length:
            return
        size = self.volatile.length
        self.volatile.zero(offset, offset + length)
        self._touch(min(size, offset), offset + length)

    def truncate(self, length: int) -> None:
        """Cut the file, or extend it with zeros."""
        size = self.volatile.length
        self.volatile.resize(length)
        if length < size:
            last = -(-length // SECTOR_BYTES)
            self._dirty = [(first, min(end, last)) for first, end in self._dirty if first < last]
        else:
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
        """Make everything durable except sectors that a failed sync has marked clean (M2)."""
        self.durable.resize(self.volatile.length)
        for first, end in self._dirty:
            self.durable.take(self.volatile, first * SECTOR_BYTES, end * SECTOR_BYTES)
        self._dirty.clear()

    def fail_sync(self, *, reverted: bool) -> bool:
        """A sync that failed: dirty sectors are marked clean unsaved. Reads see them still, or the old ones.

        Returns whether any were dropped.
        """
        dropped = bool(self._dirty)
        if reverted:
            for first, end in self._dirty:
                start, stop = first * SECTOR_BYTES, min(end * SECTOR_BYTES, self.volatile.length)
                if start < stop:
                    self.volatile.zero(start, stop)
                    self.volatile.take(self.durable, start, stop)
        self._dirty.clear()
        return dropped

    def sector(self, number: int) -> tuple[bytes, bytes]:
        """The durable and the volatile bytes of a sector, each filled up with zeros to the volatile one's length."""
        start = number * SECTOR_BYTES
        new = self.volatile.read(start, start + SECTOR_BYTES)
        return self.durable.read(start, start + len(new)).ljust(len(new), b"\0"), new

    def lose_power(self, kept: Iterable[int | Garbage]) -> None:
        """Keep the durable content and the `kept` items of `unsynced` (M1)."""
        sectors = list(kept)
        if LENGTH in sectors:
            self.durable.resize(self.volatile.length)
        for item in sectors:
            if isinstance(item, Garbage):
                self._trash(item)
            elif item != LENGTH:
                self.durable.take(self.volatile, item * SECTOR_BYTES, (item + 1) * SECTOR_BYTES)
        self.volatile = self.durable.copy()
        self._dirty.clear()

    def _trash(self, garbage: Garbage) -> None:
        start = garbage.sector * SECTOR_BYTES
        data = garbage.data[: max(0, self.durable.length - start)]
        if data:
            self.durable.write(start, data)


@attrs.define(eq=False)
class MemoryDirectory:
    """The names in a directory."""

    durable: dict[str, Node] = attrs.Factory(dict)
    volatile: dict[str, Node] = attrs.Factory(dict)
    changes: list[dict[str, Node | None]] = attrs.Factory(list)

    def clone(self, memo: dict[int, Node]) -> MemoryDirectory:
        """A copy of it and of all below it, links kept."""
        twin = memo.get(id(self))
        if twin is None:
            twin = memo[id(self)] = made = MemoryDirectory()
            made.durable = {name: node.clone(memo) for name, node in self.durable.items()}
            made.volatile = {name: node.clone(memo) for name, node in self.volatile.items()}
            made.changes = [
                {name: None if node is None else node.clone(memo) for name, node in names.items()}
                for names in self.changes
            ]
        return twin  # type: ignore[return-value]

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

    def lose_power(self, kept: Iterable[int | Garbage]) -> None:
        """Keep the durable names and the `kept` changes (M1)."""
        for number in sorted(item for item in kept if isinstance(item, int)):
            _apply(self.durable, self.changes[number])
        self.changes.clear()
        self.volatile = dict(self.durable)


Node = Inode | MemoryDirectory


def _apply(entries: dict[str, Node], names: dict[str, Node | None]) -> None:
    for name, node in names.items():
        if node is None:
            entries.pop(name, None)
        else:
            entries[name] = node
