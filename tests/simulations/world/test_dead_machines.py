"""Dead machines: what a power cut leaves standing, and how that ends with the run."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from callboard.simulations.violations import Violation
from callboard.simulations.world import LiveAsyncGenerator, Machine, Settings, World, run


def test_a_power_cut_runs_no_finally() -> None:
    """Not of tasks that wait, nor of those that can run; the next boot comes after the down time."""
    ran: list[str] = []
    boots: list[tuple[int, float]] = []

    async def waits() -> None:
        try:
            await trio.sleep_forever()
        finally:
            ran.append("finally")

    async def works() -> None:
        try:
            while True:  # noqa: ASYNC110 - it is to be found running
                await trio.sleep(0.5)
        finally:
            ran.append("finally of one that could run")

    async def boot(machine: Machine) -> str:
        boots.append((machine.number, machine.world.now))
        if machine.number > 2:
            return "done"
        async with trio.open_nursery() as nursery:
            nursery.start_soon(waits)
            nursery.start_soon(works)
            try:
                await trio.sleep(10)
            finally:
                ran.append("finally of boot")
        return "never"

    async def main(world: World) -> None:
        async def cut() -> None:
            for _ in range(2):
                await trio.sleep(4)
                world.cut_power(None, 2.0)

        world.spawn(cut)
        assert await world.machine_until_done(boot) == "done"
        assert ran == []

    result = run(main, seed=3, settings=Settings(scheduler="shuffle"))
    assert result.failure is None
    assert boots == [(1, 0.0), (2, 6.0), (3, 10.0)]
    assert result.boots == 3


def test_what_a_dead_machine_still_does_is_not_in_the_history() -> None:
    """The task that was running goes on to its next await: what it records there is ignored."""

    async def boot(machine: Machine) -> None:
        if machine.number == 1:
            machine.world.cut_power(None, 1.0)
            machine.world.history.record(machine.number, "after death")
            await trio.sleep(1)
            machine.world.history.record(machine.number, "long after death")

    async def main(world: World) -> None:
        await world.machine_until_done(boot)

    kinds = [entry.kind for entry in run(main, seed=1).history.entries]
    assert kinds == ["healed", "booted", "power cut", "booted", "closed"]


@pytest.mark.parametrize("scheduler", ["fifo", "shuffle", "walk", "pct:3"])
def test_when_a_run_is_over_its_dead_machines_leave_the_disk_alone(scheduler: str) -> None:
    """Nobody opens or writes anything, and what they shield keeps the run from ending only as long as it can end."""
    done: list[str] = []
    seen: list[tuple[int, dict[str, bytes]]] = []

    async def saves() -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(10)
            done.append("saved")

    async def hangs() -> None:
        with trio.CancelScope(shield=True):
            await trio.Event().wait()

    async def boot(machine: Machine) -> None:
        async with machine.open_runtime() as runtime:
            topic = await runtime.create_topic("orders", partitions=2)
            await topic.publish(b"one")
            if machine.number < 3:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(saves)
                    nursery.start_soon(hangs)
                    for _ in range(machine.number):
                        await topic.publish(b"two")
                    machine.world.cut_power(None, 1.0)
                    await topic.publish(b"three")

    async def main(world: World) -> None:
        await world.machine_until_done(boot)
        seen.append((world.disk.verbs_executed, world.disk.files()))

    result = run(main, seed=4, settings=Settings(scheduler=scheduler))
    assert result.failure is None
    assert result.boots == 3
    assert seen == [(result.disk.verbs_executed, result.disk.files())]
    assert done == ["saved", "saved"]


@pytest.mark.parametrize("scheduler", ["fifo", "shuffle", "walk", "pct:3"])
@pytest.mark.parametrize("moment_s", [0.05, 1.0, 2.0, 3.0, 4.0])
def test_a_machine_may_lose_power_while_its_runtime_opens_or_closes(scheduler: str, moment_s: float) -> None:
    """When the run is over, what waited for the tree of actors leaves it in order."""

    async def boot(machine: Machine) -> None:
        machine.world.disk.latency_s = 0.2 if machine.number == 1 else 0.0
        async with machine.open_runtime() as runtime:
            topic = await runtime.create_topic("orders", partitions=2)
            await topic.publish(b"one")

    async def main(world: World) -> None:
        async def cut() -> None:
            await trio.sleep(moment_s)
            assert world.cut_power(None, 1.0)

        world.spawn(cut)
        await world.machine_until_done(boot)

    result = run(main, seed=4, settings=Settings(scheduler=scheduler))
    assert result.failure is None
    assert result.boots == 2


def test_a_dead_machine_may_leave_its_async_generators_as_they_stand() -> None:
    """A power cut within an async context manager is no mistake of the program; what the living leave is."""

    @asynccontextmanager
    async def line() -> AsyncIterator[str]:
        try:
            yield "open"
        finally:
            await trio.lowlevel.checkpoint()

    async def boot(machine: Machine) -> None:
        async with line():
            if machine.number == 1:
                machine.world.cut_power(None, 1.0)
                await trio.sleep(1)

    async def main(world: World) -> None:
        await world.machine_until_done(boot)

    async def leaving(world: World) -> None:
        await main(world)
        kept.append(line())
        await kept[0].__aenter__()

    kept: list[Any] = []
    assert run(main, seed=1).failure is None
    failure = run(leaving, seed=1).failure
    assert isinstance(failure, LiveAsyncGenerator)
    assert str(failure).count("line") == 1


@pytest.mark.parametrize("never", ["shielded", "shielded in the end", "about to be", "ticking"])
def test_a_wait_that_a_dead_machine_shields_keeps_no_run_from_ending(never: str) -> None:
    """Whether it waited already when the power was cut or began to when the run was over."""

    async def waits() -> None:
        with trio.CancelScope(shield=True):
            while never == "ticking":  # noqa: ASYNC110 - for ever
                await trio.sleep(1)
            await trio.sleep_forever()

    async def boot(machine: Machine) -> None:
        if machine.number > 1:
            return
        async with trio.open_nursery() as nursery:
            if never != "shielded in the end":
                nursery.start_soon(waits)
            if never in ("shielded", "ticking"):
                await trio.sleep(1)
            try:
                machine.world.cut_power(None, 1.0)
                await trio.sleep(1)
            finally:
                machine.world.broken(Violation("always", "after death"))
                if never == "shielded in the end":
                    await waits()

    async def main(world: World) -> None:
        await world.machine_until_done(boot)

    for scheduler in ("fifo", "shuffle", "walk", "pct:3"):
        result = run(main, seed=1, settings=Settings(scheduler=scheduler))
        assert result.failure is None
        assert result.boots == 2
