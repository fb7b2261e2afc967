"""Floors: how far a journal was synced, kept outside its folder, for journals that nothing else knows of.

The floor of the journal in the folder `D` is the file `journals/D/end`: both slots of a `committed` file. Its owner
stores it with the first event, when the journal is opened and closed, and with each snapshot, after the sync. So a
journal whose folder is gone, or is an older copy, is known to lack records, as if its own `committed` file said so.
A floor that cannot be read, or written, says nothing.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from callboard.log.errors import StorageError
from callboard.log.format.committed import Committed, encode_named, proven_ends
from callboard.log.journal.journal_disk import make_directory
from callboard.log.seams.disk import Incarnation
from callboard.log.segments.small_files import read_whole, replace_whole

FLOORS: Final = "journals"
FLOOR_NAME: Final = "end"


def floor_folder(directory: str) -> str:
    """The folder of the floor of the journal in `directory`."""
    return f"{FLOORS}/{directory}"


async def read_floor(files: Incarnation, directory: str) -> int:
    """The sequence below which every record of the journal in `directory` was synced; 0 when that is not known.

    Raises `FormatTooNew`.
    """
    stored: bytes | None = None
    with suppress(StorageError):
        stored = await read_whole(files, f"{floor_folder(directory)}/{FLOOR_NAME}")
    ends = proven_ends(stored) if stored else None
    return 0 if ends is None or ends.is_foreign(directory) else ends.durable_end


async def store_floor(files: Incarnation, directory: str, end: int) -> bool:
    """Store that the journal in `directory` was synced up to `end`; whether the disk took it."""
    with suppress(StorageError):
        folder = floor_folder(directory)
        if not await files.list(folder):
            await make_directory(files, folder)
        await replace_whole(files, f"{folder}/{FLOOR_NAME}", encode_named(end, directory))
        return True
    return False


async def floored_journals(files: Incarnation, depth: int) -> list[str]:
    """The folders of all journals that have a floor, at most `depth` folders deep."""
    found: list[str] = []
    pending = [FLOORS]
    while pending:
        folder = pending.pop()
        for entry in await files.list(folder):
            if entry.is_directory and folder.count("/") < depth:
                pending.append(f"{folder}/{entry.name}")
            elif entry.name == FLOOR_NAME and folder != FLOORS:
                found.append(folder.removeprefix(f"{FLOORS}/"))
    return found


def raised(ends: Committed | None, floor: int) -> Committed | None:
    """What a journal's `committed` file says, given its floor."""
    if floor <= (0 if ends is None else ends.durable_end):
        return ends
    return Committed(floor, floor)
