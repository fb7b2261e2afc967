"""Commands that only look: they need no right to write, and an unfinished or lost catalog is told in a sentence."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

COMMAND = Path(sys.executable).with_name("callboard")
WITHOUT_PRIVILEGES = """
import ctypes, os, sys
if os.geteuid() == 0:  # permissions bind root too, once these two capabilities are gone
    for CAP_DAC in (1, 2):
        assert ctypes.CDLL(None).prctl(24, CAP_DAC, 0, 0, 0) == 0
os.execv(sys.argv[1], sys.argv[1:])
"""
DYING = """
import os, signal
import callboard, trio

async def main():
    async with callboard.open_runtime("data") as runtime:
        orders = runtime.topic("orders")
        for value in (b"a", b"b", b"c"):
            await orders.publish(value, partition=0)
        async with orders.subscribe("kitchen", durable=True, start="beginning") as consumer:
            await (await consumer.get()).ack()
            # Neither comes before the process dies, on a slow machine either; both are due while most commands look.
            await orders.schedule("tick", value=b"tock", every=1.0, missed="all", partition=0)
            await orders.publish(b"later", delay=1.0, partition=0)
            os.kill(os.getpid(), signal.SIGKILL)

trio.run(main)
"""
HOLDING = """
import callboard, trio

async def main():
    async with callboard.open_runtime("data"):
        print("open", flush=True)
        await trio.sleep_forever()

trio.run(main)
"""
LOOKING = (
    ("verify",),
    ("topic", "list"),
    ("peek", "orders"),
    ("consume", "orders"),
    ("repair", "--dry-run"),
    ("stats",),
    ("topic", "describe", "orders"),
    ("group", "list"),
    ("group", "describe", "kitchen"),
    ("dead-letters", "list", "orders"),
    ("dead-letters", "count", "orders"),
    ("schedule", "list"),
    ("schedule", "next", "orders", "tick"),
    ("delayed", "list", "orders"),
    ("delayed", "count", "orders"),
)


@pytest.fixture
def published(orders: Any) -> Any:
    """A closed directory with three messages, one of them settled; a firing that was missed; and one that is due.

    What is due was put there by a process that died: one that closes, or opens the directory, publishes it.
    """
    done = subprocess.run(
        [sys.executable, "-c", DYING], cwd=orders.folder, timeout=120, check=False, capture_output=True
    )
    assert (9, b"") == (-done.returncode, done.stderr)
    return orders


@pytest.mark.parametrize("arguments", LOOKING, ids=" ".join)
def test_an_opening_that_was_killed_first_thing_is_no_damage(
    command: Any, arguments: tuple[str, ...]
) -> None:
    """A directory with an empty catalog and no topics is one without topics, for every command."""
    (command.folder / "data" / "catalog").mkdir(parents=True)
    is_named = {"orders": "TopicNotFound", "kitchen": "GroupNotFound"}
    expected = [error for name, error in is_named.items() if name in arguments]
    found = command.run(*arguments, code=1 if expected else 0)
    assert expected == [error for error in is_named.values() if error in found.err]
    command.run("repair")


@pytest.mark.parametrize("is_there", [True, False], ids=["empty", "missing"])
def test_a_lost_catalog_beside_topics_is_damage(published: Any, is_there: bool) -> None:
    """Files of topics without a catalog: verify names that, and what to do about it; nothing ends in a traceback."""
    catalog = published.folder / "data" / "catalog"
    shutil.rmtree(catalog)
    if is_there:
        catalog.mkdir()
    found = published.run("verify", code=4).out.decode()
    assert "catalog is missing" in found
    assert "from a copy" in found
    for arguments in LOOKING[1:]:
        published.run(*arguments, code=None)


def _run_without_writing(folder: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Run a command that may write nothing below `folder`, root or not."""
    data = folder / "data"
    places = [data, *data.rglob("*")]
    for place in places:
        place.chmod(0o500 if place.is_dir() else 0o400)
    try:
        return subprocess.run(
            [sys.executable, "-c", WITHOUT_PRIVILEGES, COMMAND, *arguments],
            cwd=folder,
            env=os.environ | {"COLUMNS": "240"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=120,
            check=False,
        )
    finally:
        for place in places:
            place.chmod(0o700 if place.is_dir() else 0o600)


def test_looking_needs_no_right_to_write(published: Any) -> None:
    """On files that may only be read, each command prints what it prints elsewhere, and changes nothing.

    So nothing is published either: no firing that was missed, and no message that is due.
    """
    data = published.folder / "data"
    files = [path for path in data.rglob("*") if path.is_file()]
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in files}
    for arguments in LOOKING:
        found = _run_without_writing(published.folder, *arguments)
        elsewhere = published.run(*arguments)
        assert (arguments, 0, elsewhere.err) == (arguments, found.returncode, found.stderr.decode())
        assert _without_digits(elsewhere.out) == _without_digits(found.stdout)
    assert before == {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in files}
    assert sorted(files) == sorted(path for path in data.rglob("*") if path.is_file())
    assert published.run("peek", "orders").lines == [b"a", b"b", b"c"]


def _without_digits(printed: bytes) -> bytes:
    """What a schedule has next moves on from one look to the other."""
    return re.sub(rb"[0-9]", b"0", printed)


def test_looking_needs_no_lock(published: Any) -> None:
    """While another process has the directory open, without control, each command looks at it all the same."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDING], cwd=published.folder, stdout=subprocess.PIPE
    ) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"open\n"
            for arguments in LOOKING:
                published.run(*arguments)
            published.run("publish", "orders", "d", code=5)
        finally:
            holder.kill()


def test_writing_needs_the_right_to_write(published: Any) -> None:
    """The same files refuse a publisher, in a sentence: what the other tests stand on."""
    found = _run_without_writing(published.folder, "publish", "orders", "d")
    assert found.returncode == 1
    assert b"Permission denied" in found.stderr
    assert b"Traceback" not in found.stderr
