"""Small files beside segments: read as a whole, replaced as a whole."""

from __future__ import annotations

import errno
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
    MakeDirectory,
    NotAFile,
    Open,
    Rename,
    Sync,
    SyncDirectory,
    Unlink,
    Verb,
    Write,
)
from callboard.log.seams.plans import NO_FOLDER, path_of
from callboard.log.segments.segment_file import base_offset_of


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


def wrong_kind(path: str, error: BaseException | None) -> LogCorrupt | None:
    """The error for something of the wrong kind in the place of a file or folder; None when `error` is about none."""
    if isinstance(error, NotAFile):
        words = f"{path} is a pipe, a socket or a device, and a file belongs there"
    elif isinstance(error, IsADirectoryError):
        words = f"{path} is a folder, and a file belongs there"
    elif isinstance(error, OSError) and error.errno in NO_FOLDER:
        words = f"{path}: {NO_FOLDER[error.errno]}"
    else:
        return None
    return LogCorrupt(
        f"{words}. Nothing was changed. Put back what belongs there if you have it, or run `callboard repair`: it moves"
        " what is there to quarantine.",
        path=path,
        offsets=None,
    )


def wrong_kind_met(error: PlanFailed) -> LogCorrupt | None:
    """As `wrong_kind`, for a plan that failed."""
    cause = error.error
    if isinstance(error.verb, MakeDirectory) and isinstance(cause, FileExistsError):
        cause = NotADirectoryError(errno.ENOTDIR, cause.strerror)
    return wrong_kind(subject_of(error), cause)


def subject_of(error: PlanFailed) -> str:
    """The path that the failed verb was about."""
    verb = error.verb
    return verb.target if isinstance(verb, Rename | Link) else path_of(verb)


def opening_error(log: str, error: PlanFailed) -> StorageError:
    """The error for a log that cannot be opened because a plan failed: for users, to whom plans mean nothing."""
    if (wrong := wrong_kind_met(error)) is not None:
        return wrong
    path, cause = subject_of(error), error.error
    return StorageError(f"{log} cannot be opened: {path}: {cause.strerror or cause}.", path=path, error=cause)


def holds_log(entries: Iterable[Entry]) -> bool:
    """Whether a folder with these entries holds anything of a log: without that, nothing says that there was one."""
    return any(
        entry.is_file and (entry.name == COMMITTED_NAME or base_offset_of(entry.name) is not None)
        for entry in entries
    )


async def read_whole(files: Incarnation, path: str) -> bytes | None:
    """As `open_file`; returns the file's bytes, None when it is missing."""
    handle = files.handle(path)
    if not await open_file(files, handle):
        return None
    try:
        return await files.read(handle, 0, await files.size(handle))
    finally:
        await files.submit((Close(handle),))


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
