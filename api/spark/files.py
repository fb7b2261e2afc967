"""Files as Spark's tasks reach them: synchronously, in processes where no trio program runs."""

from __future__ import annotations

import os
import pathlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from callboard.log.errors import NO_SPACE, DiskFull, OffsetOutOfRange, StorageError
from callboard.log.seams.disk import Buffer


class OpenFile:
    """A file that is read from any position."""

    def __init__(self, descriptor: int, path: str) -> None:
        self._descriptor = descriptor
        self._path = path

    def read(self, position: int, length: int) -> bytes:
        """Up to `length` bytes; none at the end. Raises `StorageError`."""
        try:
            return os.pread(self._descriptor, length, position)
        except OSError as error:
            raise StorageError(
                f"{self._path} could not be read: {error.strerror}. Check the disk.", path=self._path
            ) from error


@contextmanager
def opened(path: str) -> Iterator[OpenFile]:
    """Open a segment. Raises `OffsetOutOfRange` when retention has removed it, `StorageError`."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise OffsetOutOfRange(
            f"{path} is there no more: retention removed it after the read was planned, or the topic was deleted. Load"
            " again, and read what is left.",
            path=path,
        ) from error
    except OSError as error:
        raise StorageError(f"{path} cannot be opened: {error.strerror}.", path=path) from error
    try:
        yield OpenFile(descriptor, path)
    finally:
        os.close(descriptor)


class NewFile:
    """A file that is written from its beginning to its end, and synced."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)

    def append(self, buffers: list[Buffer]) -> None:
        """Write the buffers behind what is there."""
        data = memoryview(b"".join(buffers))
        while data:
            data = data[os.write(self._descriptor, data) :]

    def close(self) -> None:
        """Sync and close it."""
        try:
            os.fsync(self._descriptor)
        finally:
            os.close(self._descriptor)


@contextmanager
def told(what: str) -> Iterator[None]:
    """Errors of the operating system become ours, with what was to be done."""
    try:
        yield
    except OSError as error:
        kind = DiskFull if error.errno in NO_SPACE else StorageError
        raise kind(f"{what} failed: {error.strerror} ({error.filename}). Nothing was made.") from error


def is_there(path: str) -> bool:
    """Whether a file or folder has that name."""
    return os.path.lexists(path)


def split(path: str) -> tuple[str, str]:
    """The absolute folder of `path`, and its name there."""
    return os.path.split(os.path.abspath(path))


def make_folders(path: str) -> None:
    """Make a folder and its parents."""
    os.makedirs(path, exist_ok=True)


def remove(path: str) -> None:
    """Remove a folder with all that is in it, if it is there."""
    shutil.rmtree(path, ignore_errors=True)


def rename(source: str, target: str) -> None:
    """Rename a folder, durably."""
    os.rename(source, target)
    sync_folder(os.path.dirname(target))


def sync_folder(path: str) -> None:
    """Make the names in a folder survive a power loss."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def names(path: str) -> list[str]:
    """The names in a folder, sorted."""
    return sorted(os.listdir(path))


def write_text(path: str, text: str) -> None:
    """Write a small file."""
    pathlib.Path(path).write_text(text, encoding="utf-8")
