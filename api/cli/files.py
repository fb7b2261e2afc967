"""The command line's own files: lines read from traffic, records that survive SIGKILL, working directories.

Nothing else in the command line opens a file. Logs are reached through the runtime, never from here.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import pathlib
import shutil
import tempfile
import time
import zlib
from collections.abc import Iterator
from typing import BinaryIO, cast

from callboard.log.errors import InvalidArgument, StorageError
from callboard.log.limits import GIB, KIB

UNPACKED_BYTES_MAX = 64 * GIB
"""A compressed file that unpacks to more than this is refused."""
RECORD_LINE_BYTES_MAX = 1024 * KIB
_SNIFF_BYTES = 8 * KIB
_GZIP_MAGIC = b"\x1f\x8b"


def read_lines(path: str, *, line_bytes_max: int) -> Iterator[bytes]:
    """The lines of a text file, gzip or plain, with their line ends.

    A line longer than `line_bytes_max` is cut to its first `line_bytes_max + 1` bytes.
    Raises `InvalidArgument` for a file that is missing, unreadable or binary, `StorageError` when reading fails.
    """
    with _opened(path) as stream:
        unpacked_bytes = 0
        try:
            while line := stream.readline(line_bytes_max + 1):
                unpacked_bytes += len(line)
                yield line
                while not line.endswith(b"\n") and (line := stream.readline(line_bytes_max + 1)):
                    unpacked_bytes += len(line)
                    _check_unpacked(path, unpacked_bytes)
                _check_unpacked(path, unpacked_bytes)
        except (OSError, EOFError, zlib.error) as error:
            raise StorageError(f"{path} could not be read to its end: {error}. Check the file.") from error


@contextlib.contextmanager
def _opened(path: str) -> Iterator[BinaryIO]:
    with contextlib.ExitStack() as stack:
        try:
            raw = cast(io.BufferedReader, stack.enter_context(open(path, "rb", buffering=256 * KIB)))
            head = raw.peek(_SNIFF_BYTES)[:_SNIFF_BYTES] if raw.seekable() else b""
            stream: BinaryIO = raw
            if head.startswith(_GZIP_MAGIC):
                unpacked = stack.enter_context(gzip.GzipFile(fileobj=raw))
                buffered = io.BufferedReader(cast("io.RawIOBase", unpacked), 256 * KIB)
                head = buffered.peek(_SNIFF_BYTES)[:_SNIFF_BYTES]
                stream = cast(BinaryIO, buffered)
        except FileNotFoundError:
            raise InvalidArgument(f"There is no file {path}. Check the name.") from None
        except (OSError, EOFError, zlib.error) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise InvalidArgument(f"{path} cannot be read: {reason}. Name a readable text file.") from None
        if b"\0" in head:
            raise InvalidArgument(
                f"{path} is not text: it holds zero bytes. Name a log, CSV, TSV or JSON file."
            )
        yield stream


def _check_unpacked(path: str, unpacked_bytes: int) -> None:
    if unpacked_bytes > UNPACKED_BYTES_MAX:
        raise InvalidArgument(f"{path} holds more than {UNPACKED_BYTES_MAX} bytes. Split it.")


class RecordFile:
    """Lines appended one by one, each written to the operating system at once, so that it survives the process."""

    def __init__(self, path: str) -> None:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115 - closed by `close`

    def write(self, line: str) -> None:
        """Append one line, without its end."""
        self._file.write(line.encode("ascii") + b"\n")

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_record_lines(path: str) -> Iterator[str]:
    """The whole lines of a `RecordFile`; a last one without its end was torn by a kill and is left out."""
    for line in read_lines(path, line_bytes_max=RECORD_LINE_BYTES_MAX):
        if line.endswith(b"\n"):
            yield line[:-1].decode("ascii", "replace")


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
    try:
        path = tempfile.mkdtemp(prefix="callboard-", dir=parent)
    except OSError as error:
        where = parent or tempfile.gettempdir()
        raise InvalidArgument(
            f"no directory can be made in {where}: {error.strerror}. Name another directory."
        ) from None
    try:
        yield path
    finally:
        if not keep:
            shutil.rmtree(path, ignore_errors=True)


class BareFile:
    """The baseline of benchmarks: write, fdatasync, and nothing else."""

    _REGION_BYTES = 64 * 1024 * KIB

    def __init__(self, folder: str) -> None:
        self._path = os.path.join(folder, "bare")

    def rate(self, size_bytes: int, seconds: float, *, overwrite: bool = False) -> float:
        """Synced writes of `size_bytes` per second, appended or into a preallocated file."""
        data = os.urandom(size_bytes)
        descriptor = os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            if overwrite:
                for at in range(0, self._REGION_BYTES, 1024 * KIB):
                    os.pwrite(descriptor, bytes(1024 * KIB), at)
                os.fsync(descriptor)
            return self._timed(descriptor, data, seconds, self._REGION_BYTES if overwrite else None)
        finally:
            os.close(descriptor)
            os.unlink(self._path)

    def _timed(self, descriptor: int, data: bytes, seconds: float, wrap_bytes: int | None) -> float:
        done = offset = 0
        start = time.perf_counter()
        while time.perf_counter() - start < seconds:
            os.pwrite(descriptor, data, offset)
            os.fdatasync(descriptor)
            done += 1
            offset += len(data)
            if wrap_bytes is not None and offset + len(data) > wrap_bytes:
                offset = 0
        return done / (time.perf_counter() - start)
