"""A tree of simulated files: names and content as POSIX has them, with the same errors.

Pure: no clock, no waiting, no faults. `inodes.py` has the vocabulary and what power loss does.
"""

from __future__ import annotations

import errno
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Final

import attrs

from .inodes import LENGTH, Choose, Garbage, Inode, MemoryDirectory, Node, Unsynced

WORDS: Final = {
    errno.EACCES: "Permission denied",
    errno.EDQUOT: "Disk quota exceeded",
    errno.EEXIST: "File exists",
    errno.EIO: "Input/output error",
    errno.EMFILE: "Too many open files",
    errno.EROFS: "Read-only file system",
    errno.EINVAL: "Invalid argument",
    errno.EISDIR: "Is a directory",
    errno.ENOENT: "No such file or directory",
    errno.ENOSPC: "No space left on device",
    errno.ENOTDIR: "Not a directory",
    errno.ENOTEMPTY: "Directory not empty",
    errno.EPERM: "Operation not permitted",
}


def failure(number: int, path: str) -> OSError:
    """The OSError (its right subclass) that the system would raise."""
    return OSError(number, WORDS.get(number, "Error"), path)


@attrs.frozen
class Fate:
    """What of one file's sectors, or of one directory's names, a power loss has kept."""

    path: str
    is_directory: bool
    unsynced: int
    kept: int
    spoiled: int

    @property
    def how(self) -> str:
        """In a word or two."""
        if self.spoiled:
            return "spoiled"
        return "kept" if self.kept == self.unsynced else "lost" if not self.kept else "kept in part"

    def what(self, topics: Mapping[str, str]) -> str:
        """The file, or the directory: a log by its folder, and a topic by its name."""
        parts = [topics.get(part, part) for part in self.path.split("/")]
        if self.is_directory:
            return f"names in {'/'.join(parts) or 'the root'}"
        return "/".join(parts[:-1] if parts[-1].partition(".")[0].isdigit() else parts)


@attrs.define(eq=False)
class FileTree:
    """Directories and files below one root."""

    root: MemoryDirectory = attrs.Factory(MemoryDirectory)
    fates: tuple[Fate, ...] = ()
    """What the last power loss made of each file and directory that was not synced."""

    # -- looking

    def node(self, path: str) -> Node:
        """The file or directory of that name. Raises FileNotFoundError or NotADirectoryError."""
        return self._find(path)[2] if path else self.root

    def inode(self, path: str) -> Inode:
        """The file of that name. Raises IsADirectoryError for a directory."""
        found = self.node(path)
        if isinstance(found, MemoryDirectory):
            raise failure(errno.EISDIR, path)
        return found

    def directory(self, path: str) -> MemoryDirectory:
        """The directory of that name. Raises NotADirectoryError for a file."""
        found = self.node(path)
        if isinstance(found, Inode):
            raise failure(errno.ENOTDIR, path)
        return found

    def _parent(self, path: str) -> tuple[MemoryDirectory, str]:
        *folders, name = path.split("/")
        place = self.root
        for folder in folders:
            found = place.volatile.get(folder)
            if type(found) is not MemoryDirectory:
                raise failure(errno.ENOENT if found is None else errno.ENOTDIR, path)
            place = found
        return place, name

    def _find(self, path: str) -> tuple[MemoryDirectory, str, Node]:
        """The folder, the name in it, and what has that name."""
        folder, name = self._parent(path)
        found = folder.volatile.get(name)
        if found is None:
            raise failure(errno.ENOENT, path)
        return folder, name, found

    def walk(self, *, durable: bool = False) -> Iterator[tuple[str, Node]]:
        """Every path and its node in a fixed order, folders before what is in them; the root is `""`."""
        waiting: list[tuple[str, Node]] = [("", self.root)]
        while waiting:
            path, node = waiting.pop()
            yield path, node
            if isinstance(node, MemoryDirectory):
                entries = node.durable if durable else node.volatile
                below = [
                    (f"{path}/{name}" if path else name, entries[name])
                    for name in sorted(entries, reverse=True)
                ]
                waiting += below

    def names(self, inode: Inode) -> list[str]:
        """Every path of a file: those that it has, and those that it would have after a power loss."""
        both = itertools.chain(self.walk(), self.walk(durable=True))
        return list(dict.fromkeys(path for path, node in both if node is inode))

    # -- changing

    def create(self, path: str) -> Inode:
        """A new, empty file. Raises FileExistsError."""
        folder, name = self._parent(path)
        if name in folder.volatile:
            raise failure(errno.EEXIST, path)
        made = Inode()
        folder.change({name: made})
        return made

    def create_missing(self, path: str) -> Inode:
        """The file of that name; a new one when there is none."""
        try:
            return self.inode(path)
        except FileNotFoundError:
            return self.create(path)

    def link(self, source: str, target: str) -> None:
        """A second name for a file."""
        from_folder, from_name = self._parent(source)
        to_folder, to_name = self._parent(target)
        found = from_folder.volatile.get(from_name)
        if found is None:
            raise failure(errno.ENOENT, source)
        if to_name in to_folder.volatile:
            raise failure(errno.EEXIST, target)
        if isinstance(found, MemoryDirectory):
            raise failure(errno.EPERM, source)
        to_folder.change({to_name: found})

    def unlink(self, path: str) -> None:
        """Remove a file's name."""
        folder, name, found = self._find(path)
        if isinstance(found, MemoryDirectory):
            raise failure(errno.EISDIR, path)
        folder.change({name: None})

    def rename(self, source: str, target: str) -> None:
        """Give another name, replacing a file, or an empty directory by a directory."""
        from_folder, from_name = self._parent(source)
        to_folder, to_name = self._parent(target)
        moved, replaced = from_folder.volatile.get(from_name), to_folder.volatile.get(to_name)
        if moved is None:
            raise failure(errno.ENOENT, source)
        if isinstance(moved, MemoryDirectory) and target.startswith(source + "/"):
            raise failure(errno.EINVAL, source)
        if replaced is not None:
            if replaced is moved:
                return  # POSIX: two names of one file both stay
            _check_replaceable(moved, replaced, target, inside=source.startswith(target + "/"))
        if from_folder is to_folder:
            from_folder.change({from_name: None, to_name: moved})
        else:
            to_folder.change({to_name: moved})
            from_folder.change({from_name: None})

    def make_directory(self, path: str) -> None:
        """A directory and the missing ones above it."""
        place = self.root
        components = path.split("/")
        for position, name in enumerate(components, 1):
            found = place.volatile.get(name)
            if found is None:
                found = MemoryDirectory()
                place.change({name: found})
            elif isinstance(found, Inode):
                raise failure(errno.EEXIST if position == len(components) else errno.ENOTDIR, path)
            place = found

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""
        folder, name, found = self._find(path)
        if isinstance(found, Inode):
            raise failure(errno.ENOTDIR, path)
        if found.volatile:
            raise failure(errno.ENOTEMPTY, path)
        folder.change({name: None})

    # -- copying and losing

    def clone(self) -> FileTree:
        """A copy of everything, including links and durable content."""
        return FileTree(self.root.clone({}))

    def lose_power(self, choose: Choose) -> Counter[str]:
        """Forget what was not synced, but for what `choose` keeps (M1). Returns what that came to, in words."""
        counts: Counter[str] = Counter()
        fates: list[Fate] = []
        done: set[int] = set()
        # The walk continues below a directory only when its names are lost: what has no name any more is not asked for.
        for path, node in self.walk():
            if id(node) in done:
                continue
            done.add(id(node))
            items = node.unsynced
            if isinstance(node, MemoryDirectory):
                kept = tuple(choose(Unsynced(path, True, items))) if items else ()
                _count_names(counts, items, kept)
            else:
                kept = (
                    tuple(choose(Unsynced(path, False, items, node, partial(self.names, node))))
                    if items
                    else ()
                )
                _count_sectors(counts, items, kept)
            if items:
                spoiled = sum(isinstance(item, Garbage) for item in kept)
                survived = len(set(items).intersection(kept))
                fates.append(Fate(path, isinstance(node, MemoryDirectory), len(items), survived, spoiled))
            node.lose_power(kept)
        self.fates = tuple(fates)
        return +counts


def _count_names(counts: Counter[str], items: tuple[int, ...], kept: tuple[int | Garbage, ...]) -> None:
    survived = len(set(items).intersection(kept))
    counts["names kept"] += survived
    counts["names lost"] += len(items) - survived


def _count_sectors(counts: Counter[str], items: tuple[int, ...], kept: tuple[int | Garbage, ...]) -> None:
    """What became of a file's dirty sectors, and whether it was torn, or is longer than what was saved of it."""
    if not items:
        return
    sectors = len(items) - (items[0] == LENGTH)
    trashed = len({item.sector for item in kept if isinstance(item, Garbage)})
    survived = len(set(items).intersection(kept))
    length_kept = LENGTH in kept
    applied = survived - length_kept
    lost = sectors - applied - trashed
    counts["sectors applied"] += applied
    counts["sectors trashed"] += trashed
    counts["sectors lost"] += lost
    counts["files torn"] += bool(applied and (lost or trashed))
    counts["lengths lost"] += items[0] == LENGTH and not length_kept
    counts["lengths alone"] += length_kept and lost > 0


def _check_replaceable(moved: Node, replaced: Node, target: str, *, inside: bool) -> None:
    if inside:
        raise failure(errno.ENOTEMPTY, target)
    if isinstance(moved, MemoryDirectory):
        if isinstance(replaced, Inode):
            raise failure(errno.ENOTDIR, target)
        if replaced.volatile:
            raise failure(errno.ENOTEMPTY, target)
    elif isinstance(replaced, MemoryDirectory):
        raise failure(errno.EISDIR, target)
