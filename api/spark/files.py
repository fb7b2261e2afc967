"""Files as Spark's tasks reach them: synchronously, in processes where no trio program runs."""

from __future__ import annotations

import os
import pathlib
import shutil
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from types import TracebackType
from typing import Final, Self

from callboard.log.errors import NO_SPACE, DiskFull, InvalidArgument, StorageError
from callboard.log.limits import MIB
from callboard.log.seams.disk import Buffer
from callboard.offline import is_ours

BUFFER_BYTES: Final = 1 * MIB
REMOVED_SUFFIX: Final = ".removed"


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
def opened(path: str) -> Iterator[OpenFile | None]:
    """Open a file; None when it is not there. Raises `StorageError`."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        yield None
        return
    except OSError as error:
        raise StorageError(f"{path} cannot be opened: {error.strerror}.", path=path) from error
    try:
        yield OpenFile(descriptor, path)
    finally:
        os.close(descriptor)


class NewFile:
    """A file that is written from its beginning to its end; when its block has ended it is synced."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "xb", buffering=BUFFER_BYTES)  # noqa: SIM115 - closed when the block ends

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._file:
            if kind is None:
                self._file.flush()
                os.fsync(self._file.fileno())

    def append(self, buffers: Iterable[Buffer]) -> None:
        """Write the buffers behind what is there."""
        self._file.writelines(buffers)


class NewFolder:
    """A folder in which one file after the other is written; when its block raises, it is removed with all of them."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._files = ExitStack()
        self._file: NewFile | None = None

    def __enter__(self) -> Self:
        os.mkdir(self._path)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self._files.__exit__(kind, error, traceback)
            if kind is None:
                sync_folder(self._path)
                return
        except BaseException:
            remove(self._path)
            raise
        remove(self._path)

    def begin(self, name: str) -> None:
        """Begin a file; the one before it is whole, and synced."""
        self._files.close()
        self._file = self._files.enter_context(NewFile(f"{self._path}/{name}"))

    def append(self, buffers: Iterable[Buffer]) -> None:
        """Write into the file begun last."""
        if self._file is not None:
            self._file.append(buffers)


@contextmanager
def storage_errors(what: str) -> Iterator[None]:
    """Errors of the operating system become ours, with what was to be done."""
    try:
        yield
    except OSError as error:
        where = "" if error.filename is None else f" ({error.filename})"
        is_full = error.errno in NO_SPACE
        advice = "Free space, or choose another place." if is_full else "Check the disk, and permissions."
        kind = DiskFull if is_full else StorageError
        raise kind(f"{what} failed: {error.strerror}{where}. Nothing was made. {advice}") from error


def absolute(path: str) -> str:
    """The path from the root, which does not depend on where a task runs."""
    return os.path.abspath(path)


def is_there(path: str) -> bool:
    """Whether a file or folder has that name."""
    return os.path.lexists(path)


def is_file(path: str) -> bool:
    """Whether a file, and no folder, has that name."""
    return os.path.isfile(path)


def size_of(path: str) -> int | None:
    """How many bytes a file has; None when there is no file of that name here."""
    return os.path.getsize(path) if os.path.isfile(path) else None


def split(path: str) -> tuple[str, str]:
    """The absolute folder of `path`, and its name there."""
    return os.path.split(absolute(path))


def check_new(path: str) -> None:
    """Raise `InvalidArgument` unless a recording could be made at `path`."""
    folder, _ = split(path)
    if is_there(path):
        raise InvalidArgument(f"{path} is there already. Nothing was written. Choose another name.")
    if is_ours(folder):
        raise InvalidArgument(
            f"{folder} is a recording or a runtime's directory, and {path} would be a stranger there. Nothing was"
            " written. Choose another place."
        )
    if not is_there(folder):
        raise InvalidArgument(
            f"There is no folder {folder} in which to make {path}. Make it, or choose another name."
        )


def make_folders(path: str) -> None:
    """Make a folder and its parents."""
    os.makedirs(path, exist_ok=True)


def remove(path: str) -> None:
    """Remove a folder with all that is in it, if it is there. Others may be writing there: they find it gone."""
    aside = path + REMOVED_SUFFIX
    shutil.rmtree(aside, ignore_errors=True)
    with suppress(OSError):
        os.rename(path, aside)
    shutil.rmtree(aside, ignore_errors=True)


def rename(source: str, target: str) -> None:
    """Rename a folder. That is durable only when the folder that holds it is synced."""
    os.rename(source, target)


def rename_durably(source: str, target: str) -> None:
    """Rename a folder, and sync the one that holds it."""
    rename(source, target)
    sync_folder(os.path.dirname(target))


def remove_file(path: str) -> None:
    """Remove a file, if it is there."""
    pathlib.Path(path).unlink(missing_ok=True)


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
