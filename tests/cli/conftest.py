"""Runs the installed `callboard` command as its users do, away from the project's folder."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import signal
import socket
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import attrs
import pytest

_SIZES = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR")
COMMAND = Path(sys.executable).with_name("callboard")
PYTHONPATH = os.environ.get("PYTHONPATH")
TIMEOUT_S = 120
FRESH = bool(os.environ.get("CALLBOARD_FRESH_COMMANDS"))
"""Have every command import all it needs, as users' commands do; else `run` forks those that end by themselves."""


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


class CommandServer:
    """Forks a process for each command that is run: most of a short command's time is what it imports."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.settimeout(TIMEOUT_S)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, Path(__file__).with_name("command_server.py"), str(theirs.fileno())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

    def run(self, arguments: Sequence[str | bytes], folder: Path, stdin: bytes) -> Finished:
        """Run a command to its end."""
        request = {
            "argv": [str(COMMAND), *map(os.fsdecode, arguments)],
            "folder": str(folder),
            "environment": dict(os.environ),
        }
        (its_in, our_in), (our_out, its_out), (our_err, its_err) = os.pipe(), os.pipe(), os.pipe()
        try:
            socket.send_fds(self._control, [json.dumps(request).encode()], [its_in, its_out, its_err])
        finally:
            for theirs in (its_in, its_out, its_err):
                os.close(theirs)
        with ThreadPoolExecutor(3) as threads:
            threads.submit(_write_all, our_in, stdin)
            out, err = threads.submit(_read_all, our_out), threads.submit(_read_all, our_err)
            try:
                code = int(self._control.recv(100))
            except TimeoutError:
                self.close()
                raise
        return Finished(code, out.result(), err.result().decode())

    def close(self) -> None:
        """End the server, and a command that does not end."""
        self._control.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        _put_away(self._process)


def _read_all(number: int) -> bytes:
    with open(number, "rb") as stream:
        return stream.read()


def _write_all(number: int, data: bytes) -> None:
    with contextlib.suppress(BrokenPipeError), open(number, "wb", buffering=0) as stream:
        view = memoryview(data)
        while view:
            view = view[stream.write(view) :]


class CommandLine:
    """Runs commands in a folder."""

    def __init__(self, folder: Path, stack: contextlib.ExitStack, server: CommandServer) -> None:
        self.folder = folder
        self._stack = stack
        self._server = server

    def run(self, *arguments: str | bytes, stdin: bytes = b"", code: int | None = 0) -> Finished:
        """Run to the end; `code` is what it has to exit with. A traceback is never all right."""
        if FRESH or os.environ.get("PYTHONPATH") != PYTHONPATH:
            done = subprocess.run(
                [COMMAND, *arguments],
                cwd=self.folder,
                input=stdin,
                capture_output=True,
                timeout=TIMEOUT_S,
                check=False,
            )
            found = Finished(done.returncode, done.stdout, done.stderr.decode())
        else:
            found = self._server.run(arguments, self.folder, stdin)
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
        environment = {name: value for name, value in os.environ.items() if name not in _SIZES}
        process = subprocess.Popen(
            [COMMAND, *arguments],
            cwd=self.folder,
            env=environment | {"TERM": "xterm"},
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


@pytest.fixture(scope="session")
def command_server() -> Iterator[CommandServer]:
    """Forks the commands of all tests of the process."""
    server = CommandServer()
    yield server
    server.close()


@pytest.fixture
def command(tmp_path: Path, command_server: CommandServer) -> Iterator[CommandLine]:
    """The command line, in an empty folder."""
    with contextlib.ExitStack() as stack:
        yield CommandLine(tmp_path, stack, command_server)


@pytest.fixture
def orders(command: CommandLine) -> CommandLine:
    """The command line, in a folder with a runtime's directory `data` and an empty topic `orders` of 2 partitions."""
    command.run("topic", "create", "orders", "partitions=2")
    return command
