"""Small files beside segments: read as a whole, replaced as a whole."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from callboard.log.errors import LogCorrupt, PlanFailed, StorageError
from callboard.log.format.committed import COMMITTED_COPY_AT, COMMITTED_NAME, Committed, encode_slot
from callboard.log.seams.disk import (
    Close,
    Create,
    Entry,
    Handle,
    Incarnation,
    Link,
    Open,
    Rename,
    Sync,
    SyncDirectory,
    Unlink,
    Verb,
    Write,
)
from callboard.log.seams.plans import path_of
from callboard.log.segments.segment_file import base_offset_of


async def open_file(files: Incarnation, handle: Handle) -> bool:
    """Open the file; False when it is missing. Raises `PlanFailed`, `LogCorrupt` when a folder is in its place."""
    try:
        await files.submit((Open(handle),))
    except PlanFailed as error:
        if isinstance(error.error, FileNotFoundError):
            return False
        if isinstance(error.error, IsADirectoryError):
            raise folder_for_file(handle.path) from error
        raise
    return True


def folder_for_file(path: str) -> LogCorrupt:
    """The error for a folder that is in the place of a file of a log."""
    return LogCorrupt(
        f"{path} is a folder, and a file belongs there: what the file said cannot be read. Nothing was changed. Run"
        " `callboard repair`: it moves the folder to quarantine.",
        path=path,
        offsets=None,
    )


def opening_error(log: str, error: PlanFailed) -> StorageError:
    """The error for a log that cannot be opened because a plan failed: for users, to whom plans mean nothing."""
    verb, cause = error.verb, error.error
    path = verb.target if isinstance(verb, Rename | Link) else path_of(verb)
    if isinstance(cause, IsADirectoryError):
        return folder_for_file(path)
    return StorageError(f"{log} cannot be opened: {path}: {cause.strerror or cause}.", path=path, error=cause)


def holds_log(entries: Iterable[Entry]) -> bool:
    """Whether a folder with these entries holds anything of a log: without that, nothing says that there was one."""
    return any(
        not entry.is_directory and (entry.name == COMMITTED_NAME or base_offset_of(entry.name) is not None)
        for entry in entries
    )


async def read_whole(files: Incarnation, path: str) -> bytes | None:
    """The file's bytes; None when it is missing. Raises `PlanFailed`, `LogCorrupt` when a folder is in its place."""
    handle = files.handle(path)
    if not await open_file(files, handle):
        return None
    data = await files.read(handle, 0, await files.size(handle))
    await files.submit((Close(handle),))
    return data


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


async def store_copy(files: Incarnation, path: str, ends: Committed) -> None:
    """Sync the slots of a `committed` file, which hold `ends`, then write its copy: one of both is always whole.

    The slots must not be stored into meanwhile. A disk that refuses is no error: the file says no less than before.
    """
    handle, copy = files.handle(path), encode_slot(ends.visible_end, ends.durable_end)
    write = Write(handle, COMMITTED_COPY_AT, (copy,))
    try:
        await files.submit((Open(handle), Sync(handle), write, Sync(handle), Close(handle)))
    except PlanFailed:
        with suppress(PlanFailed):
            await files.submit((Close(handle),))


async def sync_slots(files: Incarnation, path: str, slots: bytes | None) -> None:
    """Sync the slots of a `committed` file: these `slots`, or what is stored into them. Raises `PlanFailed`."""
    handle = files.handle(path)
    verbs: list[Verb] = [] if slots is None else [Write(handle, 0, (slots,))]
    try:
        await files.submit((Open(handle), *verbs, Sync(handle), Close(handle)))
    except PlanFailed:
        with suppress(PlanFailed):
            await files.submit((Close(handle),))
        raise
