"""Small files beside segments: read as a whole, replaced as a whole."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from callboard.log.errors import PlanFailed
from callboard.log.format.committed import COMMITTED_COPY_AT, COMMITTED_NAME, Committed, encode_slot
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


async def open_file(files: Incarnation, handle: Handle) -> bool:
    """Open the file; False when it is missing. Raises `PlanFailed`."""
    try:
        await files.submit((Open(handle),))
    except PlanFailed as error:
        if isinstance(error.error, FileNotFoundError):
            return False
        raise
    return True


def holds_log(entries: Iterable[Entry]) -> bool:
    """Whether a folder with these entries holds anything of a log: without that, nothing tells that there was one."""
    return any(
        not entry.is_directory and (entry.name == COMMITTED_NAME or base_offset_of(entry.name) is not None)
        for entry in entries
    )


async def read_whole(files: Incarnation, path: str) -> bytes | None:
    """The file's bytes; None when it is missing. Raises `PlanFailed`."""
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
