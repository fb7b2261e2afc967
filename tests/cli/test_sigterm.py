"""SIGTERM at any moment of a command with a directory of its own: it exits with 143, and leaves nothing."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from callboard.cli.files import temporary_directory
from tests.cli.conftest import COMMAND

LONG = {"demo": ("--events", "50000"), "bench": ("--seconds", "60")}


def directories(folder: Path) -> list[Path]:
    """What a command has made in a folder; Python's `tempfile` tries it with a file of its own before."""
    return [path for path in folder.iterdir() if path.is_dir()]


def at_once(_: Path) -> bool:
    """Before the command can know of anything."""
    return True


def with_a_directory(folder: Path) -> bool:
    """As soon as it has made its directory."""
    return bool(directories(folder))


def with_a_runtime(folder: Path) -> bool:
    """When a runtime has made its files there."""
    return any(folder.glob("*/**/catalog"))


@pytest.mark.parametrize("moment", [at_once, with_a_directory, with_a_runtime])
@pytest.mark.parametrize("name", LONG)
def test_a_command_that_is_terminated_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, moment: Callable[[Path], bool]
) -> None:
    """No directory, and no traceback."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    running = subprocess.Popen([COMMAND, name, *LONG[name]], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while not moment(tmp_path):
        assert running.poll() is None
    running.send_signal(signal.SIGTERM)
    _, told = running.communicate(timeout=60)
    # Until Python has begun to run the command, the signal has its usual effect.
    assert running.returncode in ((143, -signal.SIGTERM) if moment is at_once else (143,))
    assert b"Traceback" not in told
    assert directories(tmp_path) == []


def test_a_signal_right_after_the_directory_was_made_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What ends the command between the making of its directory and its first use removes it."""
    make = os.mkdir

    def make_and_end(path: str, mode: int = 0o777) -> None:
        make(path, mode)
        raise SystemExit(143)

    monkeypatch.setattr(os, "mkdir", make_and_end)
    with pytest.raises(SystemExit), temporary_directory(keep=False, parent=str(tmp_path)):
        pass
    assert directories(tmp_path) == []
