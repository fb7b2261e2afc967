"""Calls that reach around the seams are refused by name, or controlled."""

from __future__ import annotations

import _thread
import builtins
import concurrent.futures
import configparser
import gzip
import importlib
import inspect
import io
import linecache
import logging
import multiprocessing
import os
import random
import secrets
import shelve
import shutil
import socket
import sqlite3
import subprocess
import tempfile
import threading
import time
import traceback
import uuid
import warnings
import zoneinfo
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from callboard.simulations.world import EscapedDeterminism, Settings, World, run
from callboard.simulations.world.escapes import EscapeMode


def run_calling(
    call: Callable[[], object], escapes: EscapeMode, seed: int = 1
) -> tuple[object, BaseException | None]:
    """What the call returned in a run, and the run's failure."""
    returned: list[object] = []

    async def main(world: World) -> None:
        await trio.sleep(2)
        returned.append(call())

    failure = run(main, seed=seed, settings=Settings(escapes=escapes)).failure
    return (returned[0] if returned else None), failure


@pytest.mark.parametrize(
    "call",
    [
        lambda: time.time(),
        lambda: time.monotonic(),
        lambda: time.__dict__["sleep"](0),
        lambda: os.urandom(4),
        lambda: random.random(),
        lambda: random.shuffle([1, 2]),
        lambda: uuid.uuid4(),
        lambda: threading.Thread(target=print).start(),
        lambda: subprocess.run(["true"], check=True),
        lambda: os.system("true"),
        lambda: socket.socketpair(),
        lambda: socket.create_connection(("127.0.0.1", 9)),
        lambda: time.localtime(),
        lambda: time.localtime(None),
        lambda: time.strftime("%Y"),
        lambda: secrets.choice("ab"),
        lambda: time.process_time(),
        lambda: multiprocessing.get_context("fork").Process(target=print).start(),
    ],
)
def test_an_escape_is_refused_with_its_place(call: Callable[[], object]) -> None:
    """The error names the function and the line that called it."""
    _, failure = run_calling(call, "refuse")
    assert isinstance(failure, EscapedDeterminism)
    assert __file__ in failure.where
    assert failure.call in str(failure)


@pytest.mark.parametrize("mode", ["refuse", "control"])
def test_a_thread_or_process_by_way_of_trio_is_refused(mode: EscapeMode) -> None:
    """Also when trio has an idle thread of an earlier run at hand, so that none has to be started."""

    async def in_thread(world: World) -> None:
        await trio.to_thread.run_sync(print)

    async def in_process(world: World) -> None:
        await trio.run_process(["true"])

    async def real() -> None:
        await trio.to_thread.run_sync(int)

    trio.run(real)
    for main in (in_thread, in_process):
        failure = run(main, seed=1, settings=Settings(escapes=mode)).failure
        assert isinstance(failure, EscapedDeterminism), failure
        assert __file__ in failure.where


def send_a_datagram() -> None:
    """To nobody."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"", ("127.0.0.1", 9))


@pytest.mark.parametrize(
    "call",
    [
        lambda folder: open(folder / "x", "w"),  # noqa: SIM115
        lambda folder: open(folder / "x", mode="ab"),  # noqa: SIM115
        lambda folder: (folder / "x").write_text("x"),
        lambda folder: os.open(folder / "x", os.O_CREAT | os.O_WRONLY),
        lambda folder: os.open(folder / "x", os.O_RDONLY),
        lambda folder: tempfile.NamedTemporaryFile(dir=folder),  # noqa: SIM115
        lambda folder: tempfile.mkdtemp(dir=folder),
        lambda folder: (folder / "x").mkdir(),
        lambda folder: os.makedirs(folder / "x" / "y"),
        lambda folder: os.rename(folder / "here", folder / "there"),
        lambda folder: (folder / "here").unlink(),
        lambda folder: shutil.rmtree(folder),
        lambda folder: shutil.copy(folder / "here", folder / "there"),
        lambda folder: gzip.open(folder / "x", "w"),  # noqa: SIM115
        lambda folder: shelve.open(str(folder / "x")),  # noqa: SIM115
        lambda folder: sqlite3.connect(folder / "x"),
        lambda folder: open(folder / "here"),  # noqa: SIM115
        lambda folder: (folder / "here").read_bytes(),
        lambda folder: list(folder.iterdir()),
        lambda folder: configparser.ConfigParser().read(folder / "here"),
        lambda folder: os.stat(folder / "here"),
        lambda folder: os.path.exists(folder / "nowhere"),
        lambda folder: (folder / "here").is_file(),
        lambda folder: (folder / "here").resolve(),
        lambda folder: os.access(folder, os.W_OK),
        lambda folder: (folder / "here").touch(),
        lambda folder: (folder / "here").chmod(0o600),
        lambda folder: send_a_datagram(),
        lambda folder: os.popen("true"),
        lambda folder: os.pipe(),
        lambda folder: _thread.start_new_thread(print, ()),
        lambda folder: concurrent.futures.ThreadPoolExecutor().submit(print),
    ],
)
def test_files_sockets_threads_and_processes_are_refused(
    call: Callable[[Path], object], tmp_path: Path
) -> None:
    """Whichever module does it, the error names the line that asked for it, and the folder is as before."""
    (tmp_path / "here").write_text("[section]")
    _, failure = run_calling(lambda: call(tmp_path), "refuse")
    assert isinstance(failure, EscapedDeterminism), failure
    assert __file__ in failure.where
    assert [path.name for path in tmp_path.iterdir()] == ["here"]


def test_files_may_be_read_on_request(tmp_path: Path) -> None:
    """With the rest controlled, what a file contains is taken as given; changes are refused all the same."""
    (tmp_path / "here").write_text("words")
    assert run_calling((tmp_path / "here").read_text, "control") == ("words", None)
    assert run_calling(lambda: os.listdir(tmp_path), "control") == (["here"], None)
    assert run_calling((tmp_path / "here").is_file, "control") == (True, None)
    assert run_calling((tmp_path / "there").lstat, "control")[1].__class__ is FileNotFoundError

    def change(mode: str) -> object:
        return open(tmp_path / "there", mode)

    for mode in ("w", "a", "r+", "x"):
        _, failure = run_calling(partial(change, mode), "control")
        assert isinstance(failure, EscapedDeterminism)
    assert (tmp_path / "here").read_text() == "words"


def test_a_task_that_is_an_escape_is_refused_by_its_name() -> None:
    """Where no line of the program is left in the stack, the task is named."""

    async def main(world: World) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.to_thread.run_sync, print)

    failure = run(main, seed=1).failure
    assert isinstance(failure, EscapedDeterminism)
    assert failure.where.startswith("by the task trio.")


def test_errors_logs_imports_and_time_zones_work_as_usual(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Python and its tools read and write for themselves is no escape: modules, source lines, logs, zones."""
    (tmp_path / "imported_in_a_run.py").write_text(
        "import time, pathlib\nWORDS = pathlib.Path(__file__).read_text()\nnow = time.time()\n"
    )
    handler = logging.FileHandler(tmp_path / "log.txt", delay=True)
    logger = logging.getLogger("a simulated program")
    logger.addHandler(handler)

    def everything() -> object:
        module = importlib.import_module("imported_in_a_run")
        logger.warning("it is %s", "there")
        try:
            raise ValueError("told")
        except ValueError:
            told = traceback.format_exc()
        linecache.clearcache()
        source = inspect.getsource(test_errors_logs_imports_and_time_zones_work_as_usual)
        warnings.warn_explicit("beware", UserWarning, __file__, 1)
        with open(os.devnull, "w") as nowhere:
            nowhere.write("x")
        memory = sqlite3.connect(":memory:").execute("select 1").fetchone()
        assert os.path.exists(os.devnull)
        zone = str(zoneinfo.ZoneInfo("Europe/Berlin"))
        return module.WORDS[:11], "raise ValueError" in told, "no escape" in source, memory, zone

    monkeypatch.syspath_prepend(tmp_path)
    with pytest.warns(UserWarning, match="beware"):
        returned, failure = run_calling(everything, "refuse")
    handler.close()
    logger.removeHandler(handler)
    assert failure is None, "".join(traceback.format_exception(failure))
    assert returned == ("import time", True, True, (1,), "Europe/Berlin")
    assert (tmp_path / "log.txt").read_text() == "it is there\n"


def test_a_time_that_is_given_is_no_escape() -> None:
    """Only who asks for the time now reads a clock."""
    returned, failure = run_calling(
        lambda: (time.gmtime(0).tm_year, time.strftime("%Y", time.gmtime(0))), "refuse"
    )
    assert failure is None
    assert returned == (1970, "1970")


def test_the_calendar_is_controlled_too() -> None:
    """What is formatted is the time of the world."""
    returned, failure = run_calling(lambda: (time.gmtime().tm_year, time.strftime("%Y")), "control")
    assert failure is None
    assert returned == (2023, "2023")


def test_controlled_calls_follow_the_seed_and_virtual_time() -> None:
    """The same for the same seed, others for another; time is the world's."""

    def draw() -> object:
        return (
            os.urandom(8),
            random.random(),
            random.choice("abcdefgh"),
            uuid.uuid4(),
            time.time(),
            time.monotonic(),
        )

    first, failure = run_calling(draw, "control")
    assert failure is None
    assert run_calling(draw, "control")[0] == first
    assert run_calling(draw, "control", seed=2)[0] != first
    assert isinstance(first, tuple)
    assert first[-1] == 2.0


def test_threads_are_refused_even_when_the_rest_is_controlled() -> None:
    """Nobody can decide when a thread runs."""
    _, failure = run_calling(lambda: threading.Thread(target=print).start(), "control")
    assert isinstance(failure, EscapedDeterminism)


def test_everything_is_as_before_after_a_run() -> None:
    """All that was replaced is put back, in modules and in classes, whether the run failed or not."""
    owners: list[Any] = [
        builtins,
        io,
        os,
        time,
        random,
        secrets,
        uuid,
        socket,
        subprocess,
        sqlite3,
        threading,
    ]
    owners += [_thread, socket.socket, subprocess.Popen, threading.Thread, tempfile, shutil]
    before = [dict(vars(owner)) for owner in owners]
    run_calling(lambda: time.time(), "refuse")
    run_calling(lambda: open("/nowhere/at/all", "w"), "control")  # noqa: SIM115
    run_calling(lambda: None, "refuse")
    assert [dict(vars(owner)) for owner in owners] == before
    _, failure = run_calling(lambda: time.time(), "ignore")
    assert failure is None
