"""How the golden directories were made: `python tests/golden/generate.py MODULE [NAME...]` writes a module's anew.

Each story (`stories_records_1.py`) is run in a process of its own, since some end by SIGKILL. It says itself what was
promised to its users: the records that were acknowledged and, for some groups, what is left to be delivered. Then the
directory is packed, and copies of it are opened to note what is found; that has to agree with what was promised.

Run a module with the code that it was written for only, or the directories are no longer those of old; what a later
version writes gets stories of its own. The directories without `records-1` in their names were made by code before
record version 1, whose stories ran on nothing else and are gone; their files of JSON tell each story in words.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

import test_golden_directories as golden
import trio
import trio.testing
from story import BEGIN, STORIES, Story, golden_us

LINE_CHARACTERS = 150


def run_story(name: str, directory: Path) -> None:
    """The child's part."""
    tell = Story(directory)

    async def run() -> str:
        await STORIES[name](tell)
        return tell.told()

    (directory.parent / "told").write_text(trio.run(run))


def run_command(directory: Path) -> golden.Command:
    """`callboard` as a process."""

    def run(*arguments: str) -> tuple[int, bytes]:
        command = Path(sys.executable).with_name("callboard")
        done = subprocess.run(
            [command, *arguments, "--directory", str(directory)], stdout=subprocess.PIPE, check=False
        )
        return done.returncode, done.stdout

    return run


def make(name: str) -> None:
    """Run a story, pack what it leaves, note what is found in copies of it."""
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / "data"
        directory.mkdir()
        child = subprocess.run(
            [sys.executable, __file__, "--tell", sys.argv[1], name, str(directory)], check=False
        )
        assert child.returncode in (0, -signal.SIGKILL), child
        told = json.loads((Path(folder) / "told").read_text())
        has_socket = (directory / "control.sock").exists()
        (directory / "control.sock").unlink(missing_ok=True)
        lock = directory / "lock"
        if lock.exists() and lock.stat().st_size:
            lock.write_text(json.dumps({**json.loads(lock.read_text()), "host": "old", "directory": "data"}))
        pack(name, directory)
    note(name, told, has_socket)


def pack(name: str, directory: Path) -> None:
    """An archive that tells nothing of who made it, and when."""

    def plainly(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        entry.mtime = golden_us(BEGIN) // 1_000_000
        return entry

    with tarfile.open(golden.DIRECTORIES / f"{name}.tar.xz", "w:xz", preset=9) as archive:
        archive.add(directory, "data", filter=plainly)


def note(name: str, told: dict[str, Any], has_socket: bool) -> None:
    """Open copies of what was packed, and write down what is found."""
    lines = [line.strip() for line in (STORIES[name].__doc__ or "").splitlines()]
    found: dict[str, Any] = {"story": " ".join(lines), "left_us": told["left_us"], "has_socket": has_socket}
    with tempfile.TemporaryDirectory() as folder:
        directory = golden.unpack(name, Path(folder))
        found["verify"] = golden.verified(run_command(directory))
        found["offline"] = golden.read_offline(run_command(directory))
        found.update(trio.run(lambda: golden.look(directory, told["left_us"], None, control=False)))
        found["later"] = trio.run(golden.look_later, directory, told["left_us"], None)
        shutil.rmtree(directory)
    check(name, told, found)
    text = written(found)
    (golden.DIRECTORIES / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    print(name, len(text), (golden.DIRECTORIES / f"{name}.tar.xz").stat().st_size, found["verify"]["code"])


def check(name: str, told: dict[str, Any], found: dict[str, Any]) -> None:
    """What was promised is there."""
    missing = []
    for topic, partitions in told["records"].items():
        for index, records in partitions.items():
            there = {record[0]: record[1] for record in found["topics"][topic]["records"][index]}
            missing += [(topic, index, *record) for record in records if there.get(record[0]) != record[1]]
    assert not missing, (name, missing)
    for place, expected in told["delivers"].items():
        assert found["deliveries"][place] == sorted(expected), (place, found["deliveries"][place], expected)


def written(found: Any, indent: str = "") -> str:
    """JSON with what is short on one line."""
    line = json.dumps(found, ensure_ascii=False)
    if len(line) <= LINE_CHARACTERS or not isinstance(found, dict | list):
        return line
    inner = indent + " "
    if isinstance(found, dict):
        parts = [f"{inner}{json.dumps(key)}: {written(value, inner)}" for key, value in found.items()]
        return "{\n" + ",\n".join(parts) + f"\n{indent}}}"
    if all(isinstance(item, int) for item in found):
        return line
    return "[\n" + ",\n".join(inner + written(item, inner) for item in found) + f"\n{indent}]"


if __name__ == "__main__":
    if sys.argv[1:2] == ["--tell"]:
        import_module(sys.argv[2])
        run_story(sys.argv[3], Path(sys.argv[4]))
    else:
        golden.DIRECTORIES.mkdir(exist_ok=True)
        import_module(sys.argv[1])
        for wanted in sys.argv[2:] or STORIES:
            make(wanted)
