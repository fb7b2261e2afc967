"""Errors for a log that cannot be opened: something else has the place of a file or a folder, or a plan failed."""

from __future__ import annotations

import errno
from collections.abc import Iterable

from callboard.log.errors import LogCorrupt, PlanFailed, StorageError
from callboard.log.seams.disk import Entry, Link, MakeDirectory, NotAFile, Rename
from callboard.log.seams.plans import NO_FOLDER, path_of
from callboard.log.segments.segment_file import base_offset_of


def wrong_kind(path: str, error: BaseException | None) -> LogCorrupt | None:
    """The error for something of the wrong kind in the place of a file or folder; None when `error` is about none."""
    if isinstance(error, NotAFile):
        words = f"{path} is a pipe, a socket or a device, and a file belongs there"
    elif isinstance(error, IsADirectoryError):
        return a_folder_at(path)
    elif isinstance(error, OSError) and error.errno in NO_FOLDER:
        words = f"{path}: {NO_FOLDER[error.errno]}"
    else:
        return None
    return _wrong(path, words)


def a_folder_at(path: str) -> LogCorrupt:
    """The error for a folder in the place of a file."""
    return _wrong(path, f"{path} is a folder, and a file belongs there")


def _wrong(path: str, words: str) -> LogCorrupt:
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


def check_segments(directory: str, entries: Iterable[Entry]) -> None:
    """Raise `LogCorrupt` when a folder has the name of a segment: passed over, it would cost that segment's records."""
    for entry in entries:
        if entry.is_directory and base_offset_of(entry.name) is not None:
            raise a_folder_at(f"{directory}/{entry.name}")


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
