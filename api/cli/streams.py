"""Standard input and output for trio, and checks of a directory before a command opens it.

Neither stream is made non-blocking, because the terminal or another process may share it. Where possible, the system is
asked whether a read or write would block; plain files never block for long. So timers run and Ctrl-C works whatever the
pipe does, without a thread that cannot be interrupted.

Vocabulary: a *line* ends with a newline, or with carriage return and newline; neither belongs to it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Final

import trio

from callboard.cli.output import output_failed
from callboard.log.errors import InvalidArgument, StorageError
from callboard.log.limits import KIB, MIB

READ_BYTES: Final = 256 * KIB
WRITE_BYTES: Final = 4 * KIB
"""A writable pipe accepts this many bytes without blocking (PIPE_BUF)."""
GATHER_BYTES: Final = 1 * MIB
LINGER_S: Final = 0.01
"""How long a batch that is not full waits for more lines."""


class LineReader:
    """The lines of standard input, as many at a time as have arrived."""

    def __init__(self, *, line_bytes_max: int) -> None:
        if sys.stdin is None:
            raise InvalidArgument("standard input is closed. Give values as arguments, or a pipe.")
        self._descriptor = sys.stdin.fileno()
        self._line_bytes_max = line_bytes_max
        self._rest = bytearray()
        self._searched = 0
        self._lines: list[bytes] = []
        self._at_end = False
        self.bytes_read = 0
        self.number = 0
        """How many lines were returned."""

    async def next_lines(self, count: int) -> list[bytes]:
        """One to `count` lines; none at the end.

        Raises `InvalidArgument` for a line that is too long to be kept, after the lines before it were returned.
        """
        while not self._lines and not self._at_end:
            await self._receive()
        enough = self.bytes_read + GATHER_BYTES
        with trio.move_on_after(LINGER_S):
            while len(self._lines) < count and not self._at_end and self.bytes_read < enough:
                await self._receive()
        lines, self._lines = self._lines[:count], self._lines[count:]
        if not lines and self._is_too_long:
            raise InvalidArgument(
                f"line {self.number + 1} of standard input is longer than {self._line_bytes_max} bytes. It and what"
                " follows was not published."
            )
        self.number += len(lines)
        return lines

    @property
    def _is_too_long(self) -> bool:
        return len(self._rest) > self._line_bytes_max + 2

    async def _receive(self) -> None:
        await _readable(self._descriptor)
        try:
            data = os.read(self._descriptor, READ_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            raise StorageError(
                f"standard input cannot be read: {error.strerror}. What follows was not published.",
                error=error,
            ) from error
        self.bytes_read += len(data)
        if not data:
            self._at_end = True
            if self._rest:
                self._lines.append(bytes(self._rest))
                self._rest.clear()
            return
        self._split(data)

    def _split(self, data: bytes) -> None:
        self._rest += data
        end = self._rest.rfind(b"\n", self._searched)
        self._searched = len(self._rest)
        if end >= 0:
            whole = bytes(self._rest[:end])
            del self._rest[: end + 1]
            self._searched = len(self._rest)
            lines = whole.split(b"\n")
            self._lines += [line.removesuffix(b"\r") for line in lines] if b"\r" in whole else lines
        self._at_end = self._is_too_long


async def _readable(descriptor: int) -> None:
    try:
        await trio.lowlevel.wait_readable(descriptor)
    except PermissionError:  # epoll knows no plain files
        await trio.lowlevel.checkpoint()


async def write_out(data: bytes) -> None:
    """Write all of it to standard output. Raises `BrokenPipeError` when the reader has closed it, `StorageError`."""
    if sys.stdout is None:
        raise StorageError("standard output is closed. Nothing was printed.")
    sys.stdout.flush()
    descriptor = sys.stdout.fileno()
    view = memoryview(data)
    try:
        while view:
            size = WRITE_BYTES
            try:
                await trio.lowlevel.wait_writable(descriptor)
            except PermissionError:  # epoll knows no plain files
                await trio.lowlevel.checkpoint()
                size = len(view)
            try:
                view = view[os.write(descriptor, view[:size]) :]
            except BlockingIOError:
                continue
    except BrokenPipeError:
        raise
    except OSError as error:
        raise output_failed(error) from error


def drop_standard_output() -> None:
    """Discard buffered output from now on, because its reader has closed the pipe."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)


def input_lines() -> Iterator[bytes]:
    """The lines of standard input as they arrive, for a process that does nothing else meanwhile."""
    if sys.stdin is not None:
        yield from sys.stdin.buffer


def is_interactive() -> bool:
    """Whether a person types on standard input."""
    return sys.stdin is not None and sys.stdin.isatty()


def check_directory(path: str) -> str:
    """`path`, if it can name a directory. Nothing is created."""
    if not path or "\0" in path:
        raise InvalidArgument(f"{path!r} is no name of a directory. Nothing was written.")
    return path
