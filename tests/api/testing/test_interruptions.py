"""Ctrl-C in a simulated test is Ctrl-C, not one more failure to be shrunk."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]

PRESSED = """
import os
import signal
import trio
import callboard
from callboard.testing import simulate

runs = []

def press():
    runs.append(1)
    if len(runs) == 3:
        os.kill(os.getpid(), signal.SIGINT)

@simulate(seeds=9)
async def test_body(world):
    press()
    await trio.sleep(1)

@simulate(seeds=9)
async def test_nursery(world):
    async def child():
        press()
        await trio.sleep(1)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(child)
        nursery.start_soon(trio.sleep, 1)

@simulate(seeds=9)
async def test_actor(world):
    class Slow(callboard.Actor[str]):
        async def receive(self, message):
            press()
            await trio.sleep(1)

    async def life(machine):
        async with machine.open_runtime() as runtime:
            await (await runtime.spawn(Slow, name="slow")).ask("hello")

    await world.machine_until_done(life)

def test_afterwards():
    print("afterwards it went on")
"""


@pytest.mark.parametrize("name", ["body", "nursery", "actor"])
def test_ctrl_c_ends_the_session(pytester: pytest.Pytester, name: str) -> None:
    """Wherever the run is, under the third seed: pytest stops there and names the place, and no test comes after."""
    pytester.makepyfile(test_it=PRESSED)
    options = ("-s", "-p", "no:cacheprovider", f"test_it.py::test_{name}", "test_it.py::test_afterwards")
    result = pytester.runpytest_subprocess(*options)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(["*test_it.py:*: KeyboardInterrupt"])
    result.stdout.no_fnmatch_line("*afterwards it went on*")
    result.stdout.no_fnmatch_line("*NotRepeatable*")
