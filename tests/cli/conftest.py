"""Runs the installed `callboard` command as its users do, away from the project's folder."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

_SIZES = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR")
COMMAND = Path(sys.executable).with_name("callboard")
TIMEOUT_S = 120


@attrs.frozen
class Finished:
    """A command that has ended."""

    code: int
    out: bytes
    err: str

    @property
    def lines(self) -> list[bytes]:
        """Standard output by lines."""
        return self.out.splitlines()

    @property
    def json(self) -> Any:
        """Standard output as one JSON document."""
        return json.loads(self.out)

    @property
    def documents(self) -> list[Any]:
        """Standard output as JSON lines."""
        return [json.loads(line) for line in self.lines]


class Running:
    """A command that goes on; ended by the fixture if nobody else does."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    def type(self, data: bytes) -> None:
        """Write to its standard input."""
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def line(self) -> bytes:
        """The next line that it prints."""
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def end(self, number: signal.Signals | None = None) -> Finished:
        """Send a signal, if any, and wait for the end."""
        if number is not None:
            self.process.send_signal(number)
        out, err = self.process.communicate(timeout=TIMEOUT_S)
        return Finished(self.process.returncode, out, err.decode())


class CommandLine:
    """Runs commands in a folder."""

    def __init__(self, folder: Path, stack: contextlib.ExitStack, forking: Any) -> None:
        self.folder = folder
        self._stack = stack
        self._forking = forking

    def run(self, *arguments: str | bytes, stdin: bytes = b"", code: int | None = 0) -> Finished:
        """Run to the end; `code` is what it has to exit with. A traceback is never all right."""
        command = [str(COMMAND), *map(os.fsdecode, arguments)]
        done = self._forking.run(command, cwd=self.folder, stdin=stdin, timeout=TIMEOUT_S)
        found = Finished(done.returncode, done.stdout, done.stderr.decode())
        assert "Traceback" not in found.err, found.err
        assert code in (None, found.code), found
        return found

    def shell(self, script: str) -> Finished:
        """Run a line of bash with `callboard` in it; its exit code is that of the last part of a pipe to fail."""
        done = subprocess.run(
            ["bash", "-c", f'set -o pipefail; callboard() {{ "{COMMAND}" "$@"; }}; {script}'],
            cwd=self.folder,
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        found = Finished(done.returncode, done.stdout, done.stderr.decode())
        assert "Traceback" not in found.err, found.err
        return found

    def on_terminal(self, *arguments: str, columns: int = 80) -> str:
        """What a terminal of so many columns gets of a command, bars and all."""
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        process = subprocess.Popen(
            [COMMAND, *arguments],
            cwd=self.folder,
            env=os.environ | {"TERM": "xterm"},
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=theirs,
        )
        self._stack.callback(_put_away, process)
        os.close(theirs)
        found = b""
        with contextlib.suppress(OSError):  # a terminal that nobody has open any more
            while data := os.read(ours, 65_536):
                found += data
        os.close(ours)
        process.wait(TIMEOUT_S)
        return found.decode()

    def screen(self, *arguments: str) -> list[str]:
        """What such a terminal shows in the end: bars that were drawn again and again, and taken away, are gone."""
        lines, row = [""], 0
        for part in re.split(r"(\x1b\[[0-9;?]*[A-Za-z]|\r|\n)", self.on_terminal(*arguments)):
            if part == "\n":
                row += 1
                lines += [""] * (row == len(lines))
            elif part.startswith("\x1b") and part.endswith("A"):
                row -= int(part[2:-1] or 1)
            elif part == "\x1b[2K":
                lines[row] = ""
            elif not part.startswith(("\x1b", "\r")):
                lines[row] += part
        return [line.rstrip() for line in lines]

    def start(self, *arguments: str, stdin: int = subprocess.PIPE) -> Running:
        """Start a command that goes on."""
        process = subprocess.Popen(
            [COMMAND, *arguments],
            cwd=self.folder,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._stack.callback(_put_away, process)
        return Running(process)


def _put_away(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.kill()
    process.wait(TIMEOUT_S)
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


@pytest.fixture
def command(tmp_path: Path, forking: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[CommandLine]:
    """The command line, in an empty folder. What it prints does not depend on the terminal that the tests run in."""
    for name in _SIZES:
        monkeypatch.delenv(name, raising=False)
    with contextlib.ExitStack() as stack:
        yield CommandLine(tmp_path, stack, forking)


@pytest.fixture
def orders(command: CommandLine) -> CommandLine:
    """The command line, in a folder with a runtime's directory `data` and an empty topic `orders` of 2 partitions."""
    command.run("topic", "create", "orders", "partitions=2")
    return command
