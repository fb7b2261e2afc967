"""Calls that reach around the seams are refused by name, or controlled."""

from __future__ import annotations

import multiprocessing
import os
import random
import secrets
import socket
import subprocess
import threading
import time
import uuid
from collections.abc import Callable

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
    """The calls are put back, also when the run failed."""
    before = time.time, os.urandom, random.random, threading.Thread.start
    run_calling(lambda: time.time(), "refuse")
    assert (time.time, os.urandom, random.random, threading.Thread.start) == before
    _, failure = run_calling(lambda: time.time(), "ignore")
    assert failure is None
