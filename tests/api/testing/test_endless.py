"""Simulated tests whose tasks do not end: they are told, with their lines, and the session goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio

from callboard.simulations.world import Settings, SimulationStuck, World, run

pytest_plugins = ["pytester"]

SETTINGS = Settings(still_ticks=500, virtual_limit_s=1_000.0)


@pytest.fixture(autouse=True)
def less_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few ticks until a run that was told to end is abandoned."""
    monkeypatch.setattr("callboard.simulations.world.driver.END_TICKS", 500)


async def swallows() -> None:
    """Goes on whatever ends it."""
    while True:
        try:
            await trio.sleep(1)
        except BaseException:  # noqa: BLE001 - the mistake that is meant
            pass


async def shields() -> None:
    """Goes on behind shields, each new one after the other."""
    while True:
        with trio.CancelScope(shield=True):
            try:
                await trio.sleep(1)
            except trio.Cancelled:
                pass


async def _in_the_body(world: World) -> None:
    with trio.move_on_after(3):
        await swallows()


async def _in_a_child(world: World) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(shields)
        await trio.sleep(1)
        nursery.cancel_scope.cancel()


async def _when_all_is_over(world: World) -> None:
    world.spawn(swallows)
    await trio.sleep(3)


async def _behind_shields_when_all_is_over(world: World) -> None:
    world.spawn(shields)
    await trio.sleep(3)


@pytest.mark.parametrize("main", [_in_the_body, _when_all_is_over, _behind_shields_when_all_is_over])
def test_who_swallows_what_ends_him_is_named(main: Callable[[World], Any]) -> None:
    """The run is abandoned, and the next one is as if nothing had been."""
    for _ in range(2):
        result = run(main, seed=0, settings=SETTINGS)
        assert isinstance(result.failure, SimulationStuck)
        assert result.failure.abandoned
        assert "test_endless.py:" in str(result.failure)
        assert "goes on all the same: it swallows trio.Cancelled" in str(result.failure)
        assert result.ticks < 5_000
        assert result.virtual_s == 3.0


def test_who_shields_himself_for_ever_is_named() -> None:
    """Here virtual time goes on, to its limit."""
    result = run(_in_a_child, seed=0, settings=SETTINGS)
    assert isinstance(result.failure, SimulationStuck)
    assert result.failure.abandoned
    assert "shields waits at test_endless.py:3" in str(result.failure)


def test_the_failure_of_the_test_comes_first() -> None:
    """What goes on afterwards is a note."""

    async def main(world: World) -> None:
        world.spawn(swallows)
        await trio.sleep(3)
        raise LookupError("mine")

    result = run(main, seed=0, settings=SETTINGS)
    assert isinstance(result.failure, LookupError)
    assert "goes on all the same" in result.failure.__notes__[0]


def test_a_session_goes_on(run_file: Any) -> None:
    """The test fails, once and without shrinking, and the next one passes; a body that yields is named as it is."""
    result = run_file("""
        import pytest
        from callboard.testing import trial

        @pytest.fixture(autouse=True)
        def less_patience(monkeypatch):
            less = trial.Settings
            monkeypatch.setattr(trial, "Settings", lambda **given: less(**{"still_ticks": 500, **given}))

        @simulate(seeds=1)
        async def test_swallows(world):
            async def service():
                while True:
                    try: await trio.sleep(1)
                    except trio.Cancelled: pass
            with trio.move_on_after(3):
                await service()

        @simulate(seeds=1)
        async def test_yields(world):
            while True:
                await trio.lowlevel.checkpoint()

        @simulate(seeds=1)
        async def test_passes(world):
            await trio.sleep(1)
    """)
    result.assert_outcomes(failed=2, passed=1)
    result.stdout.fnmatch_lines(
        [
            "*SimulationStuck*test_swallows at *test_it.py:18 goes on all the same*",
            "*Not made smaller: every attempt would have to be abandoned.*",
            "*SimulationStuck*Stepped most: test_yields at *test_it.py:*",
        ]
    )
