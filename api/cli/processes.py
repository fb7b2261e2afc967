"""Child processes of the command line: a second `callboard`, which can be watched and killed."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence

import trio

from callboard.log.limits import KIB

_LINE_BYTES_MAX = 64 * KIB
_ERRORS_KEPT_BYTES = 16 * KIB


class ChildProcess:
    """A running child `callboard`. Its standard input stays open until this process ends, so that it notices."""

    def __init__(self, process: trio.Process, line_bytes_max: int = _LINE_BYTES_MAX) -> None:
        self._process = process
        self._line_bytes_max = line_bytes_max
        self._pending = b""
        self._errors = b""

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def errors(self) -> str:
        """The end of what it wrote to standard error; complete after it has ended."""
        return self._errors.decode("utf-8", "replace")

    async def read_line(self) -> str | None:
        """The next line of its standard output, None at the end."""
        stdout = self._process.stdout
        if stdout is None:
            return None
        while b"\n" not in self._pending:
            data = await stdout.receive_some(_LINE_BYTES_MAX)
            if not data or len(self._pending) > self._line_bytes_max:
                return None
            self._pending += data
        line, _, self._pending = self._pending.partition(b"\n")
        return line.decode("utf-8", "replace")

    async def write_line(self, line: str) -> None:
        """Write a line to its standard input. Raises `trio.BrokenResourceError` when it has ended."""
        if self._process.stdin is not None:
            await self._process.stdin.send_all(line.encode() + b"\n")

    async def keep_errors(self) -> None:
        """Read its standard error to the end, keeping the last of it."""
        if self._process.stderr is not None:
            async for data in self._process.stderr:
                self._errors = (self._errors + data)[-_ERRORS_KEPT_BYTES:]

    async def kill(self) -> int:
        """Kill it at once with SIGKILL; returns its exit status."""
        if self._process.returncode is not None:
            return self._process.returncode
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGKILL)
        return await self._process.wait()


async def spawn_callboard(
    nursery: trio.Nursery,
    arguments: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    line_bytes_max: int = _LINE_BYTES_MAX,
) -> ChildProcess:
    """Run `callboard` with these arguments. Kill it, or wait for it, before the nursery can end.

    `environment` is added to ours. `read_line` takes a line longer than `line_bytes_max` for the end.
    """
    command = [sys.executable, "-P", "-m", "callboard", *arguments]
    process = await trio.lowlevel.open_process(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **(environment or {})},
    )
    child = ChildProcess(process, line_bytes_max)
    nursery.start_soon(child.keep_errors)
    return child


async def wait_for_parent_to_go() -> None:
    """Return when standard input ends, which means that the parent process has ended."""
    async with trio.lowlevel.FdStream(0) as stream:
        async for _ in stream:
            pass


def live_as_long_as_parent() -> None:
    """Leave Ctrl-C to the process that spawned us, and end when it is gone, even in the midst of endless work.

    A terminal sends Ctrl-C to parent and child alike, and the child would take it for a failure of what it runs.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_standard_input, daemon=True).start()


def end_after_computing(seconds: float) -> None:
    """Say where the process is, and end it, when it has computed for so long from now on; 0 for never.

    Processor time counts, so that on a busy machine long work is not taken for endless work.
    """
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    faulthandler.register(signal.SIGPROF, file=sys.stderr, all_threads=False, chain=True)
    signal.setitimer(signal.ITIMER_PROF, seconds)


def _end_with_standard_input() -> None:
    hangup = select.poll()
    hangup.register(0, 0)  # no data is waited for, only the end, which cannot be left out
    hangup.poll()
    os._exit(1)
