"""Small files beside segments: read as a whole, replaced as a whole; and what is in a folder."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from callboard.log.errors import PlanFailed, StorageError
from callboard.log.format.committed import COMMITTED_NAME
from callboard.log.seams.disk import (
    Close,
    Create,
    Entry,
    Handle,
    Incarnation,
    Open,
    Rename,
    Sync,
    SyncDirectory,
    Unlink,
    Verb,
    Write,
)
from callboard.log.segments.segment_file import base_offset_of
from callboard.log.segments.wrong_kind import wrong_kind, wrong_kind_met


async def open_file(files: Incarnation, handle: Handle) -> bool:
    """Open the file; False when it is missing, also with its folder.

    Raises `PlanFailed`, `LogCorrupt` when something else is in its place.
    """
    try:
        await files.submit((Open(handle),))
    except PlanFailed as error:
        if isinstance(error.error, FileNotFoundError | NotADirectoryError):
            return False
        if (wrong := wrong_kind_met(error)) is not None:
            raise wrong from error
        raise
    return True


async def read_whole(files: Incarnation, path: str) -> bytes | None:
    """As `open_file`; returns the file's bytes, None when it is missing."""
    handle = files.handle(path)
    if not await open_file(files, handle):
        return None
    try:
        return await files.read(handle, 0, await files.size(handle))
    finally:
        await files.submit((Close(handle),))


async def entries_of(files: Incarnation, folder: str) -> list[Entry]:
    """What is in a folder, nothing when it is missing. Raises `StorageError`, of the first place that is no folder."""
    try:
        return await files.list(folder)
    except StorageError:
        if folder:
            await entries_of(files, folder.rpartition("/")[0])
        raise


async def listed(files: Incarnation, folder: str) -> list[Entry]:
    """What is in a folder; nothing where it is none: what has its place is reported by `wrong_kinds`."""
    try:
        return await files.list(folder)
    except StorageError as error:
        if wrong_kind(folder, error.__cause__) is None:
            raise
        return []


async def replace_whole(files: Incarnation, path: str, data: bytes) -> None:
    """Give the file these bytes, durably: a crash leaves the old ones or the new ones. Raises `PlanFailed`."""
    directory, _, name = path.rpartition("/")
    new = f"{path}.new"
    names = {entry.name for entry in await files.list(directory)}
    handle = files.handle(new)
    verbs: list[Verb] = [Unlink(new)] if f"{name}.new" in names else []
    verbs += [Create(handle), Write(handle, 0, (data,)), Sync(handle), Close(handle)]
    try:
        await files.submit((*verbs, Rename(new, path), SyncDirectory(directory)))
    except PlanFailed:
        with suppress(PlanFailed):
            await files.submit((Close(handle),))
        raise


def holds_log(entries: Iterable[Entry]) -> bool:
    """Whether a folder with these entries holds anything of a log: without that, nothing says that there was one."""
    return any(
        entry.is_file and (entry.name == COMMITTED_NAME or base_offset_of(entry.name) is not None)
        for entry in entries
    )
