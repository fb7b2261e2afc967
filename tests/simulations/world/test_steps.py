"""Faults between any two awaits of the program: power cuts, cancellations, pauses."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import trio

from callboard.simulations.faults import After, At, CancelTask, Fault, KillProcess, PauseTask, Plan, PowerCut
from callboard.simulations.world import Machine, Run, Settings, World, run


def run_under(main: Any, *faults: Fault, scheduler: str = "fifo", seed: int = 1) -> Run:
    """A run that must end well."""
    went = run(main, seed=seed, plan=Plan(faults), settings=Settings(scheduler=scheduler))
    if went.failure is not None:
        raise went.failure
    return went


@pytest.mark.parametrize("scheduler", ["fifo", "shuffle", "walk", "pct:3"])
def test_the_power_is_cut_before_each_step(scheduler: str) -> None:
    """Two tasks of six steps each: a cut before step n lets exactly n - 1 of their steps happen."""
    steps: list[int] = []
    counted: list[int] = []

    async def walk() -> None:
        for _ in range(5):
            steps.append(1)
            await trio.lowlevel.checkpoint()
        steps.append(1)

    async def boot(machine: Machine) -> None:
        if machine.number == 1:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(walk)
                nursery.start_soon(walk)

    async def main(world: World) -> None:
        steps.clear()
        await world.machine_until_done(boot)
        counted.append(len(steps))  # now: at the end of the run those who were stopped are cancelled

    for number in range(1, 13):
        assert run_under(main, PowerCut(After("await", number, "walk")), scheduler=scheduler).boots == 2
    assert run_under(main, PowerCut(After("await", 13, "walk")), scheduler=scheduler).boots == 1
    assert counted == list(range(13))


def test_a_step_of_callboards_own_tasks_is_none_of_the_program() -> None:
    """Only functions of the program count, whatever the runtime does meanwhile."""
    seen: list[str] = []

    async def main(world: World) -> None:
        async def boot(machine: Machine) -> None:
            async with machine.open_runtime() as runtime:
                topic = await runtime.create_topic("notes")
                for number in range(5):
                    await topic.publish(b"%d" % number)

        for about in ("boot", "topics/", "machine 1 "):
            world.probes.wait("await", 1, about, partial(seen.append, about))
        await world.machine_until_done(boot)

    run_under(main, KillProcess(After("await", 10_000)))
    assert sorted(seen) == ["boot", "machine 1 "]


def test_a_task_is_cancelled_out_of_any_of_its_awaits() -> None:
    """It alone: its nursery and its neighbour go on, and `finally` runs."""

    async def main(world: World) -> None:
        async def visit(name: str) -> None:
            try:
                for _ in range(4):
                    reached[name] += 1
                    await trio.sleep(1)
            finally:
                left.append(name)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(visit, "ann", name="visit of ann")
            nursery.start_soon(visit, "bob")

    ends = set()
    for number in range(1, 5):
        reached, left = {"ann": 0, "bob": 0}, []
        run_under(main, CancelTask(After("await", number, "visit of ann"), "visit of ann"))
        assert reached["bob"] == 4
        assert sorted(left) == ["ann", "bob"]
        ends.add(reached["ann"])
    assert ends == {1, 2, 3, 4}


def test_a_moment_cancels_a_task_that_waits() -> None:
    """Without a step: whichever task of that name there is, and one that is only begun later when there is none."""

    async def main(world: World) -> None:
        async def wait_long() -> None:
            await trio.sleep(100)

        await trio.sleep(2)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait_long)
        times.append(world.now)

    times: list[float] = []
    run_under(main, CancelTask(At(5.0), "wait_long"))
    run_under(main, CancelTask(At(1.0), "wait_long"))
    assert times == [5.0, 102.0]  # at 1 s there is none, and it makes no step before its end


def test_a_task_stands_still_while_time_goes_on() -> None:
    """What is not in time for its deadline is cancelled, as in a program whose machine is busy."""

    async def main(world: World) -> None:
        with trio.move_on_after(10) as limit:
            for _ in range(3):
                await trio.sleep(1)
        late.append((world.now, limit.cancelled_caught))

    late: list[tuple[float, bool]] = []
    run_under(main)
    run_under(main, PauseTask(After("await", 2), "main", for_s=20.0))
    assert late == [(3.0, False), (22.0, True)]


def test_the_history_tells_where_a_task_was() -> None:
    """The entry of a fault before a step names the line that would have gone on."""

    async def main(world: World) -> None:
        async def boot(machine: Machine) -> None:
            await trio.sleep(1)
            await trio.sleep(1)

        await world.machine_until_done(boot)

    went = run_under(main, PowerCut(After("await", 2, "boot")))
    (entry,) = went.history.of("fault")
    assert "(test_steps.py:" in entry.detail
    assert entry.detail.endswith(", in boot)")
