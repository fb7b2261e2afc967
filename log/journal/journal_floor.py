"""Floors: how far a journal was synced, kept outside its folder, for journals that nothing else knows of.

The floor of the journal in the folder `D` is the file `journals/D/end`: both slots of a `committed` file. Its owner
stores it with the first event, when the journal is opened and closed, and with each snapshot, after the sync. So a
journal whose folder is gone, or is an older copy, is known to lack records, as if its own `committed` file said so.

A floor also names a segment, behind the slots: the one in use when it was stored. Headers of these segments do not say
whose they are, so that an actor's folders may be moved. A folder that lacks the segment which its floor names, and has
one that another floor names, holds the other's journal; so does the folder of a journal that is bound to it, where no
segment is. A segment that no folder has says nothing: a repair may have replaced it.

A floor that cannot be read, or written, says nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import Final

import attrs

from callboard.log.errors import LogCorrupt, StorageError
from callboard.log.format.committed import (
    COMMITTED_BYTES,
    COMMITTED_SLOT_BYTES,
    Committed,
    decode_slot,
    encode_named,
    encode_slot,
    proven_ends,
)
from callboard.log.format.segment import SegmentHeader, identity_of
from callboard.log.journal.journal_disk import make_directory
from callboard.log.seams.disk import Incarnation
from callboard.log.segments.headers import read_headers
from callboard.log.segments.segment_file import regular_sizes
from callboard.log.segments.small_files import listed, read_whole, replace_whole

FLOORS: Final = "journals"
FLOOR_NAME: Final = "end"
DEPTH_MAX: Final = 8
"""How many folders deep logs are looked for."""


def floor_folder(directory: str) -> str:
    """The folder of the floor of the journal in `directory`."""
    return f"{FLOORS}/{directory}"


@attrs.frozen
class Floor:
    """What a floor says; zeros where it says nothing."""

    end: int = 0
    """The sequence below which every record of the journal was synced."""
    segment_id: int = 0
    """Of a segment of the journal."""


NO_FLOOR: Final = Floor()


async def read_floor(files: Incarnation, directory: str) -> Floor:
    """The floor of the journal in `directory`. Raises `FormatTooNew`."""
    stored: bytes | None = None
    with suppress(StorageError):
        stored = await read_whole(files, f"{floor_folder(directory)}/{FLOOR_NAME}")
    ends = proven_ends(stored) if stored else None
    if stored is None or ends is None or ends.is_foreign(directory):
        return NO_FLOOR
    named = stored[COMMITTED_BYTES : COMMITTED_BYTES + COMMITTED_SLOT_BYTES]
    segment = decode_slot(memoryview(named)) if len(named) == COMMITTED_SLOT_BYTES else None
    return Floor(ends.durable_end, 0 if segment is None else segment.durable_end)


async def store_floor(files: Incarnation, directory: str, floor: Floor) -> bool:
    """Store the floor of the journal in `directory`; whether the disk took it."""
    with suppress(StorageError):
        folder = floor_folder(directory)
        if not await files.list(folder):
            await make_directory(files, folder)
        data = encode_named(floor.end, directory) + encode_slot(floor.segment_id, floor.segment_id)
        await replace_whole(files, f"{folder}/{FLOOR_NAME}", data)
        return True
    return False


async def owner_of_journal(files: Incarnation, directory: str, floor: Floor = NO_FLOOR) -> str:
    """The folder of the journal that lies in `directory`, whose floor is `floor`: another one only if that is known.

    Raises `PlanFailed`, `FormatTooNew`.
    """
    if not (floor.segment_id or identity_of(directory)):
        return directory
    headers, _ = await read_headers(files, directory, regular_sizes(await listed(files, directory)))
    return await owner_of_segments(files, directory, headers.values(), floor)


def other_log_error(directory: str, owner: str) -> LogCorrupt:
    """The error for the folder of a journal that is not opened, because the log of `owner` lies there."""
    return LogCorrupt(
        f"the folder {directory} holds the log of {owner}. Nothing was changed. Run `callboard repair`: it moves"
        " folders back that lie in one another's places, and a copy to quarantine.",
        path=directory,
        offsets=None,
    )


async def owner_of_segments(
    files: Incarnation, directory: str, headers: Iterable[SegmentHeader | None], floor: Floor = NO_FLOOR
) -> str:
    """As `owner_of_journal`, by the headers of the segments in `directory`.

    Reads all floors where the segments are bound to no folder, and the one that this floor names is not there.
    """
    known = [header for header in headers if header is not None]
    ids = {header.segment_id for header in known}
    if not known or floor.segment_id in ids or any(header.identity for header in known):
        return directory
    return named_owner(ids, await named_segments(files)) or directory


async def named_segments(files: Incarnation) -> dict[int, str]:
    """The segments that floors name, by id, and whose they are. Raises `PlanFailed`, `FormatTooNew`."""
    owners: dict[int, str] = {}
    for directory in sorted(await floored_journals(files)):
        owners[(await read_floor(files, directory)).segment_id] = directory
    owners.pop(0, None)
    return owners


def named_owner(ids: Collection[int], owners: Mapping[int, str]) -> str | None:
    """The one journal to which the segments `ids` belong, as far as floors name them."""
    found = {owners[segment_id] for segment_id in ids if segment_id in owners}
    return found.pop() if len(found) == 1 else None


async def floored_journals(files: Incarnation) -> list[str]:
    """The folders of all journals that have a floor, as deep as logs are looked for."""
    found: list[str] = []
    pending = [FLOORS]
    while pending:
        folder = pending.pop()
        for entry in await listed(files, folder):
            if entry.is_directory and folder.count("/") < DEPTH_MAX:
                pending.append(f"{folder}/{entry.name}")
            elif entry.name == FLOOR_NAME and folder != FLOORS:
                found.append(folder.removeprefix(f"{FLOORS}/"))
    return found


def with_floor(ends: Committed | None, floor: int) -> Committed | None:
    """The ends that a journal's `committed` file names, raised to its floor."""
    if floor <= (0 if ends is None else ends.durable_end):
        return ends
    return Committed(floor, floor)
