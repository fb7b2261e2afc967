"""What a run changes in trio's loop is not to be felt by what uses trio's public ways in."""

from __future__ import annotations

from typing import Any

import trio

from callboard.simulations.world import World, run


def test_what_is_to_run_soon_runs_before_time_goes_on() -> None:
    """Nobody can run, so the kernel is asked before the clock jumps."""
    called: list[float] = []

    async def main(world: World) -> None:
        token = trio.lowlevel.current_trio_token()
        token.run_sync_soon(lambda: called.append(world.now))
        await trio.sleep(5)

    assert run(main, seed=1).failure is None
    assert called == [0.0]


def test_what_is_to_run_soon_runs_while_somebody_is_always_busy() -> None:
    """The kernel is asked now and then, whoever is runnable."""
    called: list[bool] = []

    async def main(world: World) -> None:
        trio.lowlevel.current_trio_token().run_sync_soon(lambda: called.append(True))
        for _ in range(100):
            if called:
                return
            await trio.lowlevel.checkpoint()

    assert run(main, seed=1).failure is None
    assert called == [True]


def test_instruments_are_called() -> None:
    """trio's own table of them is replaced for a run, with the same ways in."""

    class Counting(trio.abc.Instrument):
        """Counts steps."""

        steps = 0

        def before_task_step(self, task: Any) -> None:
            """One more."""
            self.steps += 1

    counting = Counting()
    seen: list[int] = []

    async def main(world: World) -> None:
        trio.lowlevel.add_instrument(counting)
        for _ in range(3):
            await trio.lowlevel.checkpoint()
        seen.append(counting.steps)
        trio.lowlevel.remove_instrument(counting)
        await trio.lowlevel.checkpoint()

    assert run(main, seed=1).failure is None
    assert seen == [3]
    assert counting.steps == 3
