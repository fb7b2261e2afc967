"""A task that never waits is interrupted at its line, and so is a workload that is drawn without end."""

from __future__ import annotations

import signal
from typing import Any

import attrs
import pytest
import trio

import callboard
from callboard.simulations.world import Run, Settings, SimulationStuck, World, computing, run

BRIEF = Settings(computing_limit_s=0.1, trace="off")


def stuck(main: Any, **settings: Any) -> Run:
    """A run that is ended because of what it computes."""
    found = run(main, seed=0, settings=attrs.evolve(BRIEF, **settings))
    assert isinstance(found.failure, SimulationStuck), found.failure
    assert found.failure.computes
    assert f"is at {__file__}:" in str(found.failure)
    return found


class Endless(callboard.Actor[str]):
    async def receive(self, message: str) -> None:
        while True:
            pass


@pytest.mark.parametrize("watched", [False, True])
def test_a_body_that_never_waits_is_ended(watched: bool) -> None:
    """Named by its function and the line where it is."""

    async def body(world: World) -> None:
        while True:
            pass

    assert "body computes without ever waiting" in str(stuck(body, watched=watched).failure)


def test_a_task_that_catches_it_is_ended_all_the_same() -> None:
    """An `except Exception` around the loop, and more loops after it."""

    async def body(world: World) -> None:
        async def task() -> None:
            while True:
                try:
                    while True:
                        pass
                except Exception:  # noqa: BLE001 - what programs do
                    continue

        async with trio.open_nursery() as nursery:
            nursery.start_soon(task)
            nursery.start_soon(trio.sleep_forever)

    stuck(body)


def test_an_actor_that_never_waits_is_ended() -> None:
    """Its supervisor restarts it, and the run fails."""

    async def body(world: World) -> None:
        async def life(machine: Any) -> None:
            async with machine.open_runtime() as runtime:
                endless = await runtime.spawn(Endless, name="endless")
                await endless.tell("go")
                await trio.sleep_forever()

        await world.machine_until_done(life)

    assert "user/endless computes" in str(stuck(body).failure)


def test_many_short_steps_are_no_long_one() -> None:
    """The limit is for one step; the timer is gone after the run."""

    async def body(world: World) -> None:
        for _ in range(200):
            for _ in range(20_000):
                pass
            await trio.lowlevel.checkpoint()

    assert run(body, seed=0, settings=BRIEF).failure is None
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGVTALRM) is signal.SIG_DFL


def test_looking_adds_no_tick_to_a_run() -> None:
    """However often a run was looked at, it has as many ticks: the timer's signals do not wake trio."""

    async def body(world: World) -> None:
        for _ in range(300):
            sum(range(20_000))
            await trio.sleep(1.0)

    often = Settings(computing_limit_s=0.01, trace="off")
    ticks = {run(body, seed=0, settings=settings).ticks for settings in (often, often, Settings(trace="off"))}
    assert len(ticks) == 1


def test_a_workload_without_end_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the line, also when the function catches the error."""
    monkeypatch.setattr(computing, "LIMIT_S", 0.1)

    def draw(catches: bool) -> None:
        while True:
            try:
                while True:
                    pass
            except Exception:
                if not catches:
                    raise

    for catches in (False, True):
        with pytest.raises(computing.EndlessWorkload, match=r"^its draw computes without end"):
            with computing.limited_drawing("its draw"):
                draw(catches)
