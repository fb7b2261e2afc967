"""The files of `callboard simulate`: state, stored failures, traces; and what it asks the system about itself.

Whole files are replaced by rename, so that whoever reads one finds all of it or what was there before.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import sys
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from callboard.log.errors import InvalidArgument, StorageError
from callboard.log.limits import MIB

STATE_BYTES_MAX = 16 * MIB


def prepare_folder(path: str) -> None:
    """Make the folder, and those above it. Raises `StorageError`."""
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise StorageError(
            f"{path} cannot be made: {error.strerror}. Name another directory with --state.", error=error
        ) from error


def check_target(path: str) -> None:
    """Raise `StorageError` unless a file could be put there: the user named it, and it is written after long work."""
    folder = os.path.dirname(_target(path)) or "."
    if not os.access(folder, os.W_OK | os.X_OK):
        raise StorageError(f"{path} cannot be written: no file can be made in {folder}. Name another place.")


def _target(path: str) -> str:
    """The file that `path` means, links followed. A device or a pipe would be replaced by a file of that name."""
    target = os.path.realpath(path)
    try:
        mode = os.stat(path).st_mode
    except OSError:  # not there, or not to be reached: then writing says so
        mode = stat.S_IFREG
    if not path or path.endswith("/") or not stat.S_ISREG(mode):
        raise StorageError(f"{path!r} cannot be written: it is no plain file. Name another place.")
    return target


def write_whole(path: str, content: bytes) -> None:
    """Put a file in the place of what was there. Raises `StorageError`."""
    target = _target(path)
    beside = f"{target}.{os.getpid()}.new"
    try:
        with open(beside, "wb") as file:
            file.write(content)
        os.replace(beside, target)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise _unwritten(path, error) from error


def _unwritten(path: str, error: OSError) -> StorageError:
    return StorageError(
        f"{path} cannot be written: {error.strerror}. Free space, or name another place.", error=error
    )


def find_file(path: str) -> bytes | None:
    """A file's content, None when it is missing, unreadable or larger than a state ever is."""
    try:
        with open(path, "rb") as file:
            content = file.read(STATE_BYTES_MAX + 1)
    except OSError:
        return None
    return content if len(content) <= STATE_BYTES_MAX else None


def read_whole(path: str, bytes_max: int) -> bytes:
    """A file that the user named. Raises `InvalidArgument` when it cannot be read, or is too large."""
    try:
        with open(path, "rb") as file:
            content = file.read(bytes_max + 1)
    except OSError as error:
        raise InvalidArgument(
            f"{path} cannot be read: {error.strerror}. Name a file that a sweep wrote."
        ) from None
    if len(content) > bytes_max:
        raise InvalidArgument(f"{path} is larger than {bytes_max} bytes. Name a file that a sweep wrote.")
    return content


def copy_file(path: str, target: str) -> None:
    """Copy a file of ours to a place that the user named."""
    write_whole(target, read_whole(path, STATE_BYTES_MAX))


class TraceFile:
    """A trace on its way to a file, line by line. Raises `StorageError`."""

    def __init__(self, path: str) -> None:
        self._path = path
        try:
            self._file = open(path, "w", encoding="utf-8", errors="surrogatepass", newline="\n")  # noqa: SIM115
        except OSError as error:
            raise _unwritten(path, error) from error
        self._failed: OSError | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self._file.close()
        except OSError as failed:
            self._failed = self._failed or failed
        if self._failed is not None:
            raise _unwritten(self._path, self._failed) from self._failed

    def write(self, line: str) -> None:
        """Add a line. What cannot be written is told at the end: the run that is traced must not meet it."""
        if self._failed is None:
            try:
                self._file.write(line.replace("\n", "\\n") + "\n")
            except OSError as failed:
                self._failed = failed


def trace_lines(path: str) -> Iterator[str]:
    """The lines of a stored trace."""
    with open(path, encoding="utf-8", errors="surrogatepass", newline="\n") as file:
        for line in file:
            yield line.removesuffix("\n")


def remove_file(path: str) -> None:
    """Remove a file of ours."""
    os.unlink(path)


def cores() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def seconds_now() -> float:
    """Seconds on a clock that only goes forward."""
    return time.monotonic()


def code_fingerprint() -> str:
    """A digest of the source of every module of Callboard that is loaded."""
    digest = hashlib.blake2b(digest_size=12)
    for name in sorted(name for name in sys.modules if name.partition(".")[0] == "callboard"):
        path = getattr(sys.modules[name], "__file__", None)
        content = find_file(path) if path else None
        if content is not None:
            digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()
