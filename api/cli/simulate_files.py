"""The files of `callboard simulate`: state, stored failures, traces; and what it asks the system about itself.

Whole files are replaced by rename, so that whoever reads one finds all of it or what was there before.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from callboard.log.errors import InvalidArgument, StorageError
from callboard.log.limits import MIB

__all__ = [
    "TraceFile",
    "code_fingerprint",
    "copy_file",
    "cores",
    "find_file",
    "prepare_folder",
    "read_whole",
    "remove_file",
    "seconds_now",
    "trace_lines",
    "write_whole",
]

STATE_BYTES_MAX = 16 * MIB


def prepare_folder(path: str) -> None:
    """Make the folder, and those above it. Raises `StorageError`."""
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise StorageError(
            f"{path} cannot be made: {error.strerror}. Name another directory with --state.", error=error
        ) from error


def write_whole(path: str, content: bytes) -> None:
    """Put a file in the place of what was there. Raises `StorageError`."""
    beside = f"{path}.{os.getpid()}.new"
    try:
        with open(beside, "wb") as file:
            file.write(content)
        os.replace(beside, path)
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror}. Free space.", error=error) from error


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
    """A trace on its way to a file, line by line."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "w", encoding="utf-8", errors="surrogatepass", newline="\n")  # noqa: SIM115 - see close
        self.lines = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._file.close()

    def write(self, line: str) -> None:
        """Add a line."""
        self._file.write(line.replace("\n", "\\n") + "\n")
        self.lines += 1


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
