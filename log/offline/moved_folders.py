"""Folders of logs that lie in one another's places: of partitions, of delivery journals, the catalog, actors' journals.

The headers of their segments say whose they are; of actors' journals, floors do (`journal_floor`).

A folder is moved back whole, a partition's with the journal below it, when all of its segments that can be read name
the same other place, and that is empty or its folder is moved too: so a copy stays where it is. A journal that was in
its own place below a partition's folder that is moved is moved back after that. Folders that have
exchanged their places go by a name that is free, `MOVING` behind the place that one of them leaves. Broken off there,
the next repair goes on: such a folder belongs where its segments say. What lies in a folder that is moved is judged
after that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Final

from callboard.log.format.segment import CATALOG, TOPICS, UNBOUND, identity_of
from callboard.log.journal.journal_disk import make_directory
from callboard.log.journal.journal_floor import named_owner, named_segments, read_floor
from callboard.log.offline.wrong_kinds import PARTITION_KINDS
from callboard.log.seams.disk import Incarnation, Rename, SyncDirectory
from callboard.log.segments.headers import read_headers
from callboard.log.segments.segment_file import regular_sizes
from callboard.log.segments.small_files import listed

MOVING: Final = ".moving"
JOURNAL: Final = "/delivery"


async def misplaced_folders(files: Incarnation, logs: Collection[str]) -> dict[str, str]:
    """Which of the folders with `logs` are to be moved where. Raises `PlanFailed`, `FormatTooNew`."""
    wanted: dict[str, str] = {}
    looking = _FolderOwners(files)
    for folder in logs:
        place = await looking.owner_of(folder)
        if place is not None and place != folder and not place.startswith(f"{folder}/"):
            wanted[folder] = place
    if not wanted:
        return {}
    # What lies in a folder that is moved, or is to be moved into one, waits until that is done.
    moves = await _possible(files, _apart(wanted, {*wanted, *wanted.values()}))
    moving = {*moves, *moves.values()}
    left = {folder: place for folder, place in wanted.items() if moving.isdisjoint((folder, place))}
    return moves | await _possible(files, _apart(left, moving))


async def owner_of_folder(files: Incarnation, folder: str) -> str | None:
    """The folder of the log that lies in `folder`, when all its segments say so or a floor does; else None."""
    return await _FolderOwners(files).owner_of(folder)


class _FolderOwners:
    """Finds out to which logs the segments in folders belong; the places that there may be are looked for once."""

    def __init__(self, files: Incarnation) -> None:
        self._files = files
        self._by_identity: dict[int, str] | None = None
        self._by_segment: dict[int, str] | None = None

    async def owner_of(self, folder: str) -> str | None:
        """See `owner_of_folder`. Raises `PlanFailed`, `FormatTooNew`."""
        files = self._files
        headers, _ = await read_headers(files, folder, regular_sizes(await listed(files, folder)))
        known = [header for header in headers.values() if header is not None]
        identities = {header.identity for header in known} - {UNBOUND}
        if identities:
            if len(identities) > 1 or identities == {identity_of(folder)}:
                return None
            if self._by_identity is None:
                self._by_identity = {identity_of(place): place for place in await _places(files)}
            return self._by_identity.get(identities.pop())
        if self._by_segment is None:
            self._by_segment = await named_segments(files)
        ids = {header.segment_id for header in known}
        owner = named_owner(ids, self._by_segment)
        if owner is None or (await read_floor(files, folder)).segment_id in ids:
            return None
        return owner


def _apart(moves: dict[str, str], folders: Collection[str]) -> dict[str, str]:
    """Those that move nothing from below one of the folders, or to there."""
    return {
        folder: place
        for folder, place in moves.items()
        if not (_is_below(folder, folders) or _is_below(place, folders))
    }


def _is_below(path: str, folders: Collection[str]) -> bool:
    """Whether the path lies below one of the folders."""
    parts = path.split("/")
    return any("/".join(parts[:depth]) in folders for depth in range(1, len(parts)))


async def _places(files: Incarnation) -> list[str]:
    """Where logs that are bound to their folders may be: the catalog, and in each topic what any topic has.

    The last partition of a topic may be what is missing, so one more is looked for.
    """
    topics = [entry.name for entry in await listed(files, TOPICS) if entry.is_directory]
    names = {
        entry.name.removesuffix(MOVING)
        for topic in topics
        for entry in await listed(files, f"{TOPICS}/{topic}")
        if entry.is_directory
    }
    indexes = [
        int(name)
        for name in (each.rpartition("-")[2] for each in names)
        if name.isdecimal() and len(name) < 10
    ]
    names |= {f"{kind}{index}" for index in range(max(indexes, default=-1) + 2) for kind in PARTITION_KINDS}
    folders = [f"{TOPICS}/{topic}/{name}" for topic in topics for name in sorted(names)]
    return [CATALOG, *folders, *(folder + JOURNAL for folder in folders)]


async def _possible(files: Incarnation, moves: dict[str, str]) -> dict[str, str]:
    """The moves whose target is free, or is moved away too."""
    while True:
        wanted = Counter(moves.values())
        kept = {
            folder: place
            for folder, place in moves.items()
            if wanted[place] == 1 and (place in moves or not await listed(files, place))
        }
        if kept == moves:
            return kept
        moves = kept


async def move_back(files: Incarnation, moves: dict[str, str]) -> None:
    """Move the folders, durably, one after the other. Raises `PlanFailed`."""
    pending = dict(moves)
    while pending:
        folder = next((folder for folder, place in pending.items() if place not in pending), None)
        if folder is None:
            folder, place = next(iter(pending.items()))
            pending[folder + MOVING] = place
            target = folder + MOVING
            del pending[folder]
        else:
            target = pending.pop(folder)
        left, reached = folder.rpartition("/")[0], target.rpartition("/")[0]
        if not await files.list(reached):
            await make_directory(files, reached)
        # The new name is durable before the old one goes.
        await files.submit((Rename(folder, target), SyncDirectory(reached), SyncDirectory(left)))
