"""Commands that only look: they need no right to write, and an unfinished or lost catalog is told in a sentence."""

from __future__ import annotations

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
LOOKING = (
    ("verify",),
    ("topic", "list"),
    ("peek", "orders"),
    ("consume", "orders"),
    ("repair", "--dry-run"),
)


@pytest.fixture
def published(orders: Any) -> Any:
    """A closed directory with three messages."""
    orders.run("publish", "orders", "a", "b", "c", "--partition", "0")
    return orders


@pytest.mark.parametrize("arguments", LOOKING, ids=" ".join)
def test_an_opening_that_was_killed_first_thing_is_no_damage(
    command: Any, arguments: tuple[str, ...]
) -> None:
    """A directory with an empty catalog and no topics is one without topics, for every command."""
    (command.folder / "data" / "catalog").mkdir(parents=True)
    names_a_topic = "orders" in arguments
    found = command.run(*arguments, code=1 if names_a_topic else 0)
    assert names_a_topic == ("TopicNotFound" in found.err)
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
            capture_output=True,
            timeout=120,
            check=False,
        )
    finally:
        for place in places:
            place.chmod(0o700 if place.is_dir() else 0o600)


@pytest.mark.parametrize("arguments", LOOKING, ids=" ".join)
def test_looking_needs_no_right_to_write(published: Any, arguments: tuple[str, ...]) -> None:
    """On files that may only be read, each command prints what it prints elsewhere, and changes nothing."""
    data = published.folder / "data"
    files = [path for path in data.rglob("*") if path.is_file()]
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in files}
    found = _run_without_writing(published.folder, *arguments)
    assert (0, b"") == (found.returncode, found.stderr)
    assert published.run(*arguments).out == found.stdout
    assert before == {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in files}
    assert sorted(files) == sorted(path for path in data.rglob("*") if path.is_file())


def test_writing_needs_the_right_to_write(published: Any) -> None:
    """The same files refuse a publisher, in a sentence: what the other tests stand on."""
    found = _run_without_writing(published.folder, "publish", "orders", "d")
    assert found.returncode == 1
    assert b"Permission denied" in found.stderr
    assert b"Traceback" not in found.stderr
