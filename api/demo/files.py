"""Files of the demo: lines read from traffic, and records that survive SIGKILL."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import itertools
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, BinaryIO, Final, cast

import zstandard

from callboard.log.errors import InvalidArgument, StorageError
from callboard.log.limits import KIB, MIB
from callboard.traffic.event import LINE_BYTES_MAX
from callboard.traffic.json_arrays import elements
from callboard.traffic.reading import Tally, bare_line
from callboard.traffic.unpacking import UNPACKED_BYTES_MAX, ZSTD_FED_BYTES, unpacked_zstd

RECORD_LINE_BYTES_MAX = 1 * MIB
BLANK_LINES_MAX = 20
"""An array begins behind no more of them."""
_SNIFF_BYTES = 8 * KIB


class _ZstdFile(io.RawIOBase):
    """What a file of Zstandard frames holds, unpacked as it is read; one that ends within a frame is an error."""

    def __init__(self, raw: BinaryIO) -> None:
        self._pieces = unpacked_zstd(iter(partial(raw.read, ZSTD_FED_BYTES), b""))
        self._unpacked = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._unpacked:
            self._unpacked = next(self._pieces, b"")
        count = min(len(buffer), len(self._unpacked))
        buffer[:count], self._unpacked = self._unpacked[:count], self._unpacked[count:]
        return count


_UNPACKERS: Final[tuple[tuple[bytes, Callable[[BinaryIO], Any]], ...]] = (
    (b"\x1f\x8b", lambda raw: gzip.GzipFile(fileobj=raw)),
    (b"BZh", bz2.BZ2File),
    (b"\x28\xb5\x2f\xfd", _ZstdFile),
)
"""By the first bytes of a file: gzip, bzip2 and Zstandard, each unpacked as it is read."""
_UNREADABLE = (OSError, EOFError, zlib.error, zstandard.ZstdError)


def read_lines(path: str, *, line_bytes_max: int) -> Iterator[bytes]:
    """The lines of a text file, plain or packed (gzip, bzip2, Zstandard), with their line ends.

    A line longer than `line_bytes_max` is cut to its first `line_bytes_max + 1` bytes.
    Raises `InvalidArgument` for a file that is missing, unreadable or binary, `StorageError` when reading fails.
    """
    yield from _line_starts(_pieces(path, line_bytes_max + 1))


def read_traffic(path: str, tally: Tally | None = None) -> Iterator[bytes]:
    """The lines of a file of traffic as `read_lines` gives them; of a file that holds one JSON array its elements.

    `tally` hears which of both.
    """
    pieces = _pieces(path, LINE_BYTES_MAX + 1)
    before: list[bytes] = []
    for piece in pieces:
        before.append(piece)
        if text := bare_line(piece).strip():
            if not text.startswith(b"["):
                break
            if tally is not None:
                tally.unit = "element"
            yield from elements(itertools.chain(before, pieces))
            return
        if len(before) > BLANK_LINES_MAX:
            break
    yield from _line_starts(itertools.chain(before, pieces))


def _line_starts(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The first piece of each line."""
    is_start = True
    for piece in pieces:
        if is_start:
            yield piece
        is_start = piece.endswith(b"\n")


def _pieces(path: str, size_max: int) -> Iterator[bytes]:
    """The text of a file, cut behind its line ends and where a piece would be larger. Raises as `read_lines`."""
    with _opened(path) as stream:
        unpacked_bytes = 0
        try:
            while piece := stream.readline(size_max):
                unpacked_bytes += len(piece)
                if unpacked_bytes > UNPACKED_BYTES_MAX:
                    raise InvalidArgument(f"{path} holds more than {UNPACKED_BYTES_MAX} bytes. Split it.")
                yield piece
        except _UNREADABLE as error:
            raise StorageError(f"{path} could not be read to its end: {error}. Check the file.") from error


@contextlib.contextmanager
def _opened(path: str) -> Iterator[BinaryIO]:
    with contextlib.ExitStack() as stack:
        try:
            raw = cast(io.BufferedReader, stack.enter_context(open(path, "rb", buffering=256 * KIB)))
            head = raw.peek(_SNIFF_BYTES)[:_SNIFF_BYTES] if raw.seekable() else b""
            stream: BinaryIO = raw
            unpack = next((unpack for magic, unpack in _UNPACKERS if head.startswith(magic)), None)
            if unpack is not None:
                unpacked = stack.enter_context(unpack(raw))
                buffered = io.BufferedReader(cast("io.RawIOBase", unpacked), 256 * KIB)
                head = buffered.peek(_SNIFF_BYTES)[:_SNIFF_BYTES]
                stream = cast(BinaryIO, buffered)
        except FileNotFoundError:
            raise InvalidArgument(f"there is no file {path}. Check the name.") from None
        except _UNREADABLE as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise InvalidArgument(f"{path} cannot be read: {reason}. Name a readable text file.") from None
        if b"\0" in head:
            raise InvalidArgument(
                f"{path} is not text: it holds zero bytes. Name a log, CSV, TSV or JSON file."
            )
        yield stream


class RecordFile:
    """Lines appended one by one, each written to the operating system at once, so that it survives the process."""

    def __init__(self, path: str) -> None:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115 - closed by `close`

    def write(self, line: str) -> None:
        """Append a line."""
        self._file.write(line.encode("ascii") + b"\n")

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_record_lines(path: str) -> Iterator[str]:
    """The whole lines of a `RecordFile`; a last one without its end was torn by a kill and is left out."""
    for line in read_lines(path, line_bytes_max=RECORD_LINE_BYTES_MAX):
        if line.endswith(b"\n"):
            yield line[:-1].decode("ascii", "replace")
