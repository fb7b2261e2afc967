"""Two processes on one directory: the second is refused, told who has it, and changes nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import callboard

CHILD = Path(__file__).with_name("hold_child.py")


@contextmanager
def child(directory: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process that tries to hold the directory, and what it said of it."""
    command = [sys.executable, str(CHILD), str(directory)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


def content(directory: Path) -> dict[str, bytes]:
    """Every file but the lock's."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name != "lock"
    }


async def test_the_second_process_is_told_who_has_the_directory(tmp_path: Path) -> None:
    """`DirectoryLocked` names the holder; nothing was written; the holder goes on."""
    async with callboard.open_runtime(tmp_path / "data") as runtime:
        topic = await runtime.create_topic("orders")
        await topic.publish(b"first")
        before = content(tmp_path / "data")
        with child(tmp_path / "data") as (process, said):
            assert said == f"locked by {os.getpid()}"
            assert process.wait() == 0
        assert content(tmp_path / "data") == before
        assert (await topic.publish(b"second")).offset == 1


async def test_a_killed_process_lets_go_of_the_directory(tmp_path: Path) -> None:
    """While it lives the directory is refused here; the moment it is dead, it opens."""
    with child(tmp_path / "data") as (process, said):
        assert said == "open"
        with pytest.raises(callboard.DirectoryLocked) as caught:
            async with callboard.open_runtime(tmp_path / "data"):
                pass
        assert caught.value.holder["pid"] == process.pid
        assert str(process.pid) in str(caught.value)
        process.kill()
        process.wait()
        async with callboard.open_runtime(tmp_path / "data") as runtime:
            records = [record.value async for record in runtime.topic("orders").read()]
            assert records == [b"by the child"]


async def test_one_process_opens_a_directory_once(tmp_path: Path) -> None:
    """The same refusal within a process, also by another path to the same directory."""
    (tmp_path / "link").symlink_to(tmp_path / "data")
    async with callboard.open_runtime(tmp_path / "data") as runtime:
        for path in (tmp_path / "data", tmp_path / "link"):
            with pytest.raises(callboard.DirectoryLocked):
                async with callboard.open_runtime(path):
                    pass
        await runtime.create_topic("orders")
    async with callboard.open_runtime(tmp_path / "link") as runtime:
        runtime.topic("orders")
