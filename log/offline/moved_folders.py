"""Folders of partitions, of their delivery journals, or of actors' journals, that lie in one another's places.

The headers of their segments say whose they are; of actors' journals, floors do (`journal_floor`).

A folder is moved back whole, a partition's with the journal below it, when all of its segments that can be read name
the same other place, and that is empty or its folder is moved too: so a copy stays where it is. Folders that have
exchanged their places go by a name that is free, `MOVING` behind the place that one of them leaves. Broken off there,
the next repair goes on: such a folder belongs where its segments say. What lies in a folder that is moved is judged
after that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Final

from callboard.log.format.segment import TOPICS, UNBOUND, SegmentKind, identity_of, kind_of
from callboard.log.journal.journal_disk import make_directory
from callboard.log.journal.journal_floor import named_owner, named_segments, read_floor, segment_ids
from callboard.log.seams.disk import Incarnation, Rename, SyncDirectory
from callboard.log.segments.scanning import read_headers
from callboard.log.segments.segment_file import regular_sizes
from callboard.log.segments.small_files import listed

MOVING: Final = ".moving"
JOURNAL: Final = "/delivery"


async def misplaced_folders(files: Incarnation, logs: Collection[str]) -> dict[str, str]:
    """Which of the folders with `logs` are to be moved where. Raises `PlanFailed`, `FormatTooNew`."""
    actors = await _misplaced_journals(files, [each for each in logs if kind_of(each) is None])
    folders = [directory for directory in logs if kind_of(directory) is SegmentKind.LOG]
    named = await _named(files, folders)
    journals = await _named(files, [each for each in logs if each.startswith(TOPICS) and each not in folders])
    if not named and not journals:
        return actors
    places = await _places(files, folders)
    by_identity = {identity_of(place): place for place in places}
    moves: dict[str, str] = {}
    for folder, identity in named.items():
        place = by_identity.get(identity)
        if place is not None and await _identities(files, folder + JOURNAL) <= {identity_of(place + JOURNAL)}:
            moves[folder] = place
    moves = await _possible(files, moves)
    moving = {*moves, *moves.values()}
    by_identity = {identity_of(place + JOURNAL): place + JOURNAL for place in places if place not in moving}
    alone = {
        folder: by_identity[identity]
        for folder, identity in journals.items()
        if identity in by_identity and folder.rpartition("/")[0] not in moving
    }
    return moves | await _possible(files, alone) | actors


async def _misplaced_journals(files: Incarnation, journals: Collection[str]) -> dict[str, str]:
    """Which of these journals, of which no header says whose they are, lie in the place of another."""
    owners = await named_segments(files)
    moves: dict[str, str] = {}
    for folder in journals if owners else ():
        ids = await segment_ids(files, folder)
        place = named_owner(ids, owners)
        if place is None or place == folder or (await read_floor(files, folder)).segment_id in ids:
            continue
        if not place.startswith(f"{folder}/"):
            moves[folder] = place
    moves = {
        folder: place for folder, place in moves.items() if not any(each in moves for each in _above(folder))
    }
    return await _possible(files, moves)


def _above(folder: str) -> list[str]:
    """The folders above a folder."""
    parts = folder.split("/")
    return ["/".join(parts[:depth]) for depth in range(1, len(parts))]


async def _named(files: Incarnation, folders: Collection[str]) -> dict[str, int]:
    """Those whose segments all say that they belong to one other log, and to which."""
    named: dict[str, int] = {}
    for folder in folders:
        identities = await _identities(files, folder)
        if len(identities) == 1 and identities != {identity_of(folder)}:
            named[folder] = identities.pop()
    return named


async def _identities(files: Incarnation, directory: str) -> set[int]:
    """To which logs the segments in a folder belong, as far as they say so."""
    headers, _ = await read_headers(files, directory, regular_sizes(await listed(files, directory)))
    return {header.identity for header in headers.values() if header is not None} - {UNBOUND}


async def _places(files: Incarnation, folders: Collection[str]) -> list[str]:
    """Where folders of partitions may be: those that there are of any topic, in each topic."""
    names = {folder.rpartition("/")[2].removesuffix(MOVING) for folder in folders}
    topics = [entry.name for entry in await listed(files, TOPICS) if entry.is_directory]
    return [f"{TOPICS}/{topic}/{name}" for topic in topics for name in sorted(names)]


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
