"""SIGINT and SIGTERM at commands that go on: 130 or 143, no traceback, nobody left, and the directory is free."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}
SIGNALS = pytest.mark.parametrize("number", CODES, ids=lambda number: number.name)
HANDLER = """
import trio

async def handle(message):
    open("begun", "w").close()
    await trio.sleep_forever()
"""
STUBBORN = """
import trio

async def handle(message):
    open("begun", "w").close()
    with trio.CancelScope(shield=True):
        await trio.sleep_forever()
"""


def wait_for(running: Any, is_there: Callable[[], bool]) -> None:
    """Look again and again, as long as the command runs."""
    while not is_there():
        assert running.process.poll() is None, running.end()


def workers_of(running: Any) -> list[int]:
    """Children of any of its threads; not all are workers: while it is imported, trio asks `ldconfig` for a library."""
    with contextlib.suppress(OSError):
        listed = Path(f"/proc/{running.process.pid}/task").glob("*/children")
        children = [child for file in listed for child in file.read_text().split()]
        names = {child: Path(f"/proc/{child}/cmdline").read_bytes() for child in children}
        return [int(child) for child, name in names.items() if b"simulate-worker" in name]
    return []


def ended(running: Any, number: signal.Signals) -> Any:
    """Send the signal; it has to end with its code, and without a traceback."""
    found = running.end(number)
    assert found.code == CODES[number], found
    assert "Traceback" not in found.err
    return found


@SIGNALS
@pytest.mark.parametrize("options", [(), ("--group", "billing")])
def test_following_ends(orders: Any, number: signal.Signals, options: tuple[str, ...]) -> None:
    """With and without a group; what a durable group was given and did not ack comes again."""
    orders.run("publish", "orders", "one")
    running = orders.start("consume", "orders", "--follow", *options)
    assert b"one" in running.line()
    ended(running, number)
    assert b"orders" in orders.run("topic", "list").out


@SIGNALS
def test_publishing_what_is_typed_ends(orders: Any, number: signal.Signals) -> None:
    """What was published until then is stored."""
    running = orders.start("publish", "orders")
    running.type(b"needle\n")
    segments = list((orders.folder / "data" / "topics").glob("*/*/*.log"))
    assert segments
    wait_for(running, lambda: any(b"needle" in segment.read_bytes() for segment in segments))
    ended(running, number)
    assert b"needle" in orders.run("consume", "orders").out


@SIGNALS
def test_a_rehearsal_ends(
    orders: Any,
    number: signal.Signals,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Also while its handler runs; its directory goes with it."""
    (orders.folder / "app.py").write_text(HANDLER, encoding="utf-8")
    orders.run("publish", "orders", "one")
    orders.run("consume", "orders", "--group", "billing", "--durable", "--max", "1")
    temporary = tmp_path_factory.mktemp("temporary")
    monkeypatch.setenv("TMPDIR", str(temporary))
    running = orders.start("rehearse", "data", "--topic=orders", "--group=billing", "--handler=app:handle")
    wait_for(running, (orders.folder / "begun").exists)
    ended(running, number)
    assert not [path for path in temporary.iterdir() if path.is_dir()]


@SIGNALS
def test_another_signal_ends_what_does_not_end(orders: Any, number: signal.Signals) -> None:
    """A handler that lets itself not be cancelled would hold the command for ever."""
    (orders.folder / "app.py").write_text(STUBBORN, encoding="utf-8")
    orders.run("publish", "orders", "one")
    orders.run("consume", "orders", "--group", "billing", "--durable", "--max", "1")
    running = orders.start("rehearse", "data", "--topic=orders", "--group=billing", "--handler=app:handle")
    wait_for(running, (orders.folder / "begun").exists)
    while running.process.poll() is None:
        running.process.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            running.process.wait(0.2)
    assert running.end().code == -number


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
@SIGNALS
@pytest.mark.parametrize(
    "options",
    [
        ("publish-and-recover", "--seeds=1000000"),
        ("plain-actors", "--check-determinism", "--seeds=1000"),
        ("--exhaustive=3",),
        ("--prove=all",),
        ("--machines", "--seeds=1000000"),
    ],
    ids=lambda options: options[-1],
)
def test_a_search_ends_with_its_workers(
    command: Any, number: signal.Signals, options: tuple[str, ...]
) -> None:
    """Whatever it searches."""
    running = command.start("simulate", *options, "--jobs=1")
    wait_for(running, lambda: bool(workers_of(running)))
    workers = [os.pidfd_open(worker) for worker in workers_of(running)]
    ended(running, number)
    for worker in workers:
        select.select([worker], [], [])  # until it has ended
        os.close(worker)
