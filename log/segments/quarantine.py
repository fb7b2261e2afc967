"""Bytes that recovery takes out of service are moved aside, never just dropped.

Each file in `quarantine/` is named after the partition, the offset at which its bytes would have begun, their position
in the segment, and the segment's id: `orders-2@00000000000000000123@4096@00c0ffee00c0ffee.torn`. People may look at
them, or delete them; Callboard only deletes those of a partition's lowest offsets when they exceed the limit.
"""

from __future__ import annotations

from itertools import chain, count
from typing import Final

from callboard.log.limits import MIB, QUARANTINE_BYTES_MAX
from callboard.log.seams.disk import (
    Close,
    Create,
    Handle,
    Incarnation,
    Link,
    MakeDirectory,
    Rename,
    Sync,
    SyncDirectory,
    Unlink,
    Verb,
    Write,
)

DIRECTORY: Final = "quarantine"
ASIDE: Final = ".aside"
"""Behind the name of what is in the place of `quarantine/` itself, until it is in there."""
COPY_BYTES: Final = 4 * MIB


class Quarantine:
    """One partition's share of `quarantine/`; `kept` lists what was put there in this life."""

    __slots__ = ("_files", "_prefix", "kept")

    def __init__(self, files: Incarnation, label: str) -> None:
        self._files = files
        self._prefix = label.replace("/", "-") + "@"
        self.kept: list[str] = []

    def path_for(self, offset: int, position: int, segment_id: int, suffix: str) -> str:
        """Where bytes go that would have begun at `offset`, at byte `position` of their segment."""
        return f"{DIRECTORY}/{self._prefix}{offset:020d}@{position}@{segment_id:016x}{suffix}"

    async def make_room(self, size_bytes: int) -> None:
        """Make the directory, and delete this partition's files of the lowest offsets so that `size_bytes` more fit."""
        entries = await self._files.list(DIRECTORY)
        own = [entry for entry in entries if entry.name.startswith(self._prefix) and not entry.is_directory]
        excess = sum(entry.size_bytes for entry in own) + size_bytes - QUARANTINE_BYTES_MAX
        verbs: list[Verb] = [MakeDirectory(DIRECTORY), SyncDirectory("")] if not entries else []
        for entry in own:
            if excess > 0:
                verbs.append(Unlink(f"{DIRECTORY}/{entry.name}"))
                excess -= entry.size_bytes
        if verbs:
            await self._files.submit(verbs)

    async def copy(
        self, source: Handle, offset: int, position: int, size_bytes: int, segment_id: int
    ) -> None:
        """Copy bytes out of a segment, at most the limit, unless they were copied before (recovery repeats)."""
        size_bytes = min(size_bytes, QUARANTINE_BYTES_MAX)
        path = self.path_for(offset, position, segment_id, ".torn")
        name = path.removeprefix(DIRECTORY + "/")
        for entry in await self._files.list(DIRECTORY):
            if entry.name == name and entry.size_bytes == size_bytes:
                return
        await self.make_room(size_bytes)
        await self._remove(path)
        target = self._files.handle(path)
        await self._files.submit((Create(target),))
        for start in range(0, size_bytes, COPY_BYTES):
            data = await self._files.read(source, position + start, min(COPY_BYTES, size_bytes - start))
            await self._files.submit((Write(target, start, (data,)),))
        await self._files.submit((Sync(target), Close(target), SyncDirectory(DIRECTORY)))
        self.kept.append(path)

    async def _remove(self, path: str) -> None:
        """Remove a shorter copy that an interrupted recovery left."""
        if any(f"{DIRECTORY}/{entry.name}" == path for entry in await self._files.list(DIRECTORY)):
            await self._files.submit((Unlink(path),))

    async def link_verbs(
        self, path: str, offset: int, position: int, size_bytes: int, segment_id: int
    ) -> tuple[Verb, ...]:
        """Verbs that give the segment at `path`, about to be replaced, a second name here."""
        link = self.path_for(offset, position, segment_id, ".log")
        await self.make_room(size_bytes)
        await self._remove(link)
        self.kept.append(link)
        return (Link(path, link), SyncDirectory(DIRECTORY))

    async def move_whole(self, path: str) -> str:
        """Move something of the wrong kind here as it is, a folder with all that is in it; returns where it is then."""
        if path == DIRECTORY:
            path = f"{DIRECTORY}{ASIDE}"
            await self._files.submit((Rename(DIRECTORY, path), SyncDirectory("")))
        await self.make_room(0)
        taken = {entry.name for entry in await self._files.list(DIRECTORY)}
        parent, _, name = path.rpartition("/")
        wanted = self._prefix + name
        free = next(
            each for each in chain([wanted], (f"{wanted}.{n}" for n in count(1))) if each not in taken
        )
        target = f"{DIRECTORY}/{free}"
        await self._files.submit((Rename(path, target), SyncDirectory(DIRECTORY), SyncDirectory(parent)))
        self.kept.append(target)
        return target

    async def move_verbs(self, path: str, offset: int, size_bytes: int, segment_id: int) -> tuple[Verb, ...]:
        """Verbs that take the segment at `path` out of service; sync its directory after them.

        The new name is durable before the old one goes: a power cut in between leaves both, not none.
        """
        return (*await self.link_verbs(path, offset, 0, size_bytes, segment_id), Unlink(path))
