"""The command line's own files: working directories, reports, and the state, stored failures and traces of simulations.

Whole files are replaced by rename, so that a reader finds all of it or what was there before. Nothing else in
the command line opens a file. Logs are reached through the runtime, never from here.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pathlib
import secrets
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Self

from callboard.log.errors import InvalidArgument, StorageError
from callboard.log.host.lock import LOCK_NAME
from callboard.log.host.verbs import RWF_DSYNC
from callboard.log.limits import MIB

STATE_BYTES_MAX = 16 * MIB


def is_unused(path: str) -> bool:
    """Whether a runtime could begin there: nothing has that name, or an empty folder, or one where it began in vain."""
    if not os.path.lexists(path):
        return True
    try:
        return os.path.isdir(path) and set(os.listdir(path)) <= {LOCK_NAME}
    except OSError:
        return False


def empty_directory(path: str) -> str:
    """`path` as a directory, made when it is missing. Raises `InvalidArgument` when it is not empty."""
    directory = pathlib.Path(path)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        occupied = next(directory.iterdir(), None) is not None
    except OSError as error:
        raise InvalidArgument(f"{path} cannot be used: {error.strerror}. Name another directory.") from None
    if occupied:
        raise InvalidArgument(f"{path} is not empty. Name a new or empty directory.")
    return str(directory)


@contextlib.contextmanager
def temporary_directory(*, keep: bool, parent: str | None = None) -> Iterator[str]:
    """A new directory (below `parent`, or in the system's folder for them), removed at the end unless `keep`.

    Raises `InvalidArgument` where none can be made.
    """
    where = parent or tempfile.gettempdir()
    # Named before it is made: a signal may end the command as soon as it is there.
    path = os.path.join(where, f"callboard-{secrets.token_hex(8)}")
    try:
        try:
            os.mkdir(path, 0o700)
        except OSError as error:
            raise InvalidArgument(
                f"no directory can be made in {where}: {error.strerror}. Name another directory."
            ) from None
        yield path
    finally:
        if not keep:
            shutil.rmtree(path, ignore_errors=True)


# -- of simulations: state, stored failures, traces, and what it asks the system about itself


def prepare_folder(path: str) -> None:
    """Make the folder, and those above it. Raises `StorageError`."""
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise StorageError(
            f"{path} cannot be made: {error.strerror}. Name another directory with --state.", error=error
        ) from error


def new_folder(path: str) -> str:
    """Make a folder that is not there yet; its absolute path. Raises `InvalidArgument`, `StorageError`."""
    if not path or "\0" in path or os.path.lexists(path):
        raise InvalidArgument(
            f"{path!r:.200} is there already, or is no name. Nothing was made. Name another."
        )
    try:
        os.mkdir(path)
    except OSError as error:
        raise StorageError(
            f"{path} cannot be made: {error.strerror}. Make the folder above it, or name another.",
            error=error,
        ) from error
    return os.path.abspath(path)


def is_folder(path: str) -> bool:
    """Whether there is a folder of that name."""
    return os.path.isdir(path)


def check_target(path: str) -> None:
    """Raise `StorageError` unless a file could be put there: the user named it, and it is written after long work."""
    folder = os.path.dirname(_target(path)) or "."
    if not os.path.isdir(folder):
        raise StorageError(
            f"{path} cannot be written: there is no folder {folder}. Make it, or name another place."
        )
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
        return read_whole(path, STATE_BYTES_MAX)
    except InvalidArgument:
        return None


def read_whole(path: str, bytes_max: int) -> bytes:
    """A file that the user named. Raises `InvalidArgument` when it cannot be read, or is too large."""
    try:
        with open(path, "rb") as file:
            content = file.read(bytes_max + 1)
    except OSError as error:
        raise InvalidArgument(
            f"{path} cannot be read: {error.strerror}. Name another file, or correct its permissions."
        ) from None
    if len(content) > bytes_max:
        raise InvalidArgument(f"{path} is larger than {bytes_max} bytes. Name another file.")
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
        """Add a line. What cannot be written is reported at the end: the run that is traced must not meet it."""
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
    os.unlink(path)


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def seconds_now() -> float:
    """Seconds on a clock that only goes forward."""
    return time.monotonic()


def working_folder() -> str:
    """The folder in which the command was called."""
    return os.getcwd()


def code_fingerprint(packages: Iterable[str] = ()) -> str:
    """A digest of the source of every module of Callboard that is loaded, and of those that lie beside `packages`."""
    roots = {"callboard", *packages}
    files = [getattr(sys.modules.get(package), "__file__", None) for package in packages]
    folders = tuple(f"{os.path.dirname(file)}{os.sep}" for file in files if file)
    digest = hashlib.blake2b(digest_size=12)
    for name in sorted(sys.modules):
        path = getattr(sys.modules[name], "__file__", None)
        if name.partition(".")[0] not in roots and not (folders and (path or "").startswith(folders)):
            continue
        content = find_file(path) if path else None
        if content is not None:
            digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


# -- of benchmarks


class BareFile:
    """The baseline of benchmarks: synced writes, by the call that Callboard makes too, and nothing else.

    That is one `pwritev` with RWF_DSYNC where the system has it, else a `pwrite` and an `fdatasync`.
    """

    _REGION_BYTES = 64 * MIB

    def __init__(self, folder: str) -> None:
        self._path = os.path.join(folder, "bare")

    def rate(self, size_bytes: int, seconds: float, *, overwrite: bool = False) -> float:
        """Synced writes of `size_bytes` per second, appended or into a preallocated file."""
        data = os.urandom(size_bytes)
        descriptor = os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            if overwrite:
                for at in range(0, self._REGION_BYTES, MIB):
                    os.pwrite(descriptor, bytes(MIB), at)
                os.fsync(descriptor)
            done = offset = 0
            start = time.perf_counter()
            while time.perf_counter() - start < seconds:
                if RWF_DSYNC:
                    os.pwritev(descriptor, (data,), offset, RWF_DSYNC)
                else:
                    os.pwrite(descriptor, data, offset)
                    os.fdatasync(descriptor)
                done += 1
                offset += len(data)
                if overwrite and offset + len(data) > self._REGION_BYTES:
                    offset = 0
            return done / (time.perf_counter() - start)
        finally:
            os.close(descriptor)
            os.unlink(self._path)
