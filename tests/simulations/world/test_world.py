"""The world: machines, holds, limits, and what a run tells of itself."""

from __future__ import annotations

import math
from typing import Any

import pytest
import trio

from callboard.simulations.violations import Violation
from callboard.simulations.world import (
    LiveAsyncGenerator,
    Machine,
    Settings,
    SimulationStuck,
    World,
    run,
)


async def nothing(world: World) -> None:
    """A main that does nothing."""


def test_a_run_tells_how_it_went() -> None:
    """Virtual time, ticks, boots and the scheduler are there; no failure."""

    async def main(world: World) -> None:
        await trio.sleep(3600)

    result = run(main, seed=1, settings=Settings(scheduler="walk"))
    assert result.failure is None
    assert result.virtual_s == 3600
    assert (result.boots, result.scheduler, result.seed) == (0, "walk", 1)


def test_what_main_raises_is_told_not_raised() -> None:
    """The failure is the exception itself."""

    async def main(world: World) -> None:
        raise KeyError("x")

    assert isinstance(run(main, seed=1).failure, KeyError)


def test_a_task_of_the_world_that_fails_fails_the_run() -> None:
    """Nothing is swallowed."""

    async def broken() -> None:
        raise KeyError("x")

    async def main(world: World) -> None:
        world.spawn(broken)
        await trio.sleep_forever()

    failure = run(main, seed=1).failure
    assert isinstance(failure, KeyError)


def test_time_is_virtual_and_a_day_costs_nothing() -> None:
    """Trio's clock, the world's and the machine's wall clock agree."""
    seen = []

    async def main(world: World) -> None:
        wall = world.clock.wall_us()
        await trio.sleep(86_400)
        seen.append((trio.current_time(), world.now, world.clock.wall_us() - wall))

    run(main, seed=1)
    assert seen == [(86_400.0, 86_400.0, 86_400 * 10**6)]


def test_deadlines_that_tie_keep_their_order() -> None:
    """Whoever set it first wakes first under the plain scheduler."""
    order: list[int] = []

    async def sleeper(number: int) -> None:
        await trio.sleep_until(5)
        order.append(number)

    async def main(world: World) -> None:
        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(sleeper, number)

    run(main, seed=1, settings=Settings(scheduler="fifo"))
    assert order == sorted(order)


def test_what_a_boot_raises_ends_the_run() -> None:
    """With that exception."""

    async def boot(machine: Machine) -> None:
        raise KeyError("boot")

    async def main(world: World) -> None:
        await world.machine_until_done(boot)

    assert isinstance(run(main, seed=1).failure, KeyError)


def test_a_violation_comes_out_of_groups() -> None:
    """Nurseries wrap it; the run unwraps it."""

    async def main(world: World) -> None:
        async with trio.open_nursery() as outer, trio.open_nursery() as inner:
            outer.start_soon(trio.sleep_forever)
            inner.start_soon(trio.sleep_forever)
            world.always(False, "no")

    assert isinstance(run(main, seed=1).failure, Violation)


def test_a_run_in_which_everybody_waits_ends() -> None:
    """With words, not with a hang."""

    async def main(world: World) -> None:
        await trio.sleep_forever()

    assert isinstance(run(main, seed=1).failure, SimulationStuck)


def test_a_machine_in_which_everybody_waits_ends_the_run() -> None:
    """The boot's tasks are no exception."""

    async def boot(machine: Machine) -> None:
        await trio.Event().wait()

    async def main(world: World) -> None:
        await world.machine_until_done(boot)

    assert isinstance(run(main, seed=1).failure, SimulationStuck)


def test_virtual_time_and_ticks_have_limits() -> None:
    """Whatever ticks for ever, in time or without it, is ended."""

    async def sleeps(world: World) -> None:
        while True:  # noqa: ASYNC110 - nothing else takes virtual time
            await trio.sleep(1)

    async def spins(world: World) -> None:
        while True:
            await trio.lowlevel.checkpoint()

    late = run(sleeps, seed=1, settings=Settings(virtual_limit_s=100)).failure
    busy = run(spins, seed=1, settings=Settings(tick_limit=500)).failure
    assert isinstance(late, SimulationStuck)
    assert "virtual seconds" in str(late)
    assert isinstance(busy, SimulationStuck)
    assert "ticks" in str(busy)


def test_a_shielded_wait_cannot_hang_the_simulator() -> None:
    """Nothing can end it but the simulator's own way out, which says so."""

    async def main(world: World) -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep_forever()

    failure = run(main, seed=1).failure
    assert isinstance(failure, SimulationStuck)
    assert run(nothing, seed=1).failure is None


async def worker(log: list[float], count: int) -> None:
    """Takes a step of a virtual second, this many times."""
    for _ in range(count):
        await trio.sleep(1)
        log.append(trio.current_time())


@pytest.mark.parametrize("scheduler", ["fifo", "walk", "pct:3"])
def test_a_held_task_waits_until_it_is_released(scheduler: str) -> None:
    """Virtual time goes on without it."""
    log: list[float] = []

    async def main(world: World) -> None:
        async def pause() -> None:
            await trio.sleep(1.5)
            world.scheduler.hold("a")
            await trio.sleep(5)
            world.scheduler.release("a")

        world.spawn(pause)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker, log, 3, name="a: helper")

    run(main, seed=1, settings=Settings(scheduler=scheduler))
    assert log == [1.0, 6.5, 7.5]


def test_a_slowed_task_steps_later() -> None:
    """Each of its steps by the delay; others are as fast as ever."""
    slow: list[float] = []
    fast: list[float] = []

    async def main(world: World) -> None:
        world.scheduler.slow("a", 0.25)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker, slow, 2, name="a")
            nursery.start_soon(worker, fast, 2, name="ab")

    run(main, seed=1)
    assert fast == [1.0, 2.0]
    assert slow == [1.5, 2.75]


def test_a_schedule_can_be_replayed() -> None:
    """The tape of a run, given to another, gives the same trace."""

    async def hop(log: list[int], number: int) -> None:
        for _ in range(5):
            await trio.lowlevel.checkpoint()
            log.append(number)

    def main_with(log: list[int]) -> Any:
        async def main(world: World) -> None:
            async with trio.open_nursery() as nursery:
                for number in range(4):
                    nursery.start_soon(hop, log, number)

        return main

    first: list[int] = []
    again: list[int] = []
    settings = Settings(scheduler="pct:3", record_schedule=True)
    recorded = run(main_with(first), seed=5, settings=settings)
    assert recorded.tape is not None
    assert recorded.tape.choices
    replayed = run(main_with(again), seed=99, tape=recorded.tape, settings=Settings(record_schedule=True))
    assert first == again
    assert replayed.tape == recorded.tape
    assert replayed.trace.digest == recorded.trace.digest


def test_live_async_generators_fail_the_run_by_name() -> None:
    """When they end would be up to the garbage collector."""

    async def leaking() -> Any:
        yield 1

    generators = []

    async def main(world: World) -> None:
        generator = leaking()
        generators.append(generator)
        await generator.__anext__()

    failure = run(main, seed=1).failure
    assert isinstance(failure, LiveAsyncGenerator)
    assert "leaking" in str(failure)


def test_probes_call_those_who_wait() -> None:
    """At the count-th passing about the subject, synchronously."""
    calls: list[str] = []

    async def main(world: World) -> None:
        world.probes.wait("p", 2, "orders", lambda: calls.append("now"))
        for about in ("x", "orders/1", "billing", "orders/2", "orders/3"):
            world.probe("p", about)
            calls.append(about)

    result = run(main, seed=1)
    assert calls == ["x", "orders/1", "billing", "now", "orders/2", "orders/3"]
    assert result.probes["p"] == 5


def test_a_sometimes_point_that_was_never_met_is_known() -> None:
    """Its count is zero, which is not the same as being unknown."""

    async def main(world: World) -> None:
        world.sometimes("it rains", False)
        world.sometimes("it shines")

    probes = run(main, seed=1).probes
    assert probes["sometimes: it shines"] == 1
    assert "sometimes: it rains" in probes


def test_trace_modes_agree_on_what_happened() -> None:
    """Off says nothing, a digest is short, a full trace has lines in virtual time."""

    async def main(world: World) -> None:
        await trio.sleep(1)
        world.note("hello", answer=42)

    full = run(main, seed=1, settings=Settings(trace="full"))
    off = run(main, seed=1, settings=Settings(trace="off"))
    assert any("hello answer=42" in line for line in full.trace.lines)
    assert all(math.isfinite(float(line.split()[0])) for line in full.trace.lines)
    assert off.trace.digest == ""
    assert off.trace.lines == []


def test_simulations_do_not_nest() -> None:
    """A second one inside says so."""

    async def main(world: World) -> None:
        run(nothing, seed=1)

    assert "one after the other" in str(run(main, seed=1).failure)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_interruptions_pass_from_wherever_they_struck(kind: type[BaseException]) -> None:
    """Ctrl-C and exits are nobody's outcome: they come out alone, not in the groups of nurseries."""

    async def struck() -> None:
        raise kind

    async def in_a_task(world: World) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(struck)

    async def in_a_task_of_the_world(world: World) -> None:
        world.spawn(struck)
        await trio.sleep(1)

    async def in_main(world: World) -> None:
        raise kind

    for main in (in_main, in_a_task, in_a_task_of_the_world):
        with pytest.raises(kind):
            run(main, seed=1)


def test_a_group_of_one_that_somebody_raised_keeps_its_traceback() -> None:
    """The exception inside was never raised, so only the group knows the line."""

    async def main(world: World) -> None:
        raise ExceptionGroup("mine", [ValueError("one")])

    failure = run(main, seed=1).failure
    assert isinstance(failure, ExceptionGroup)
    assert failure.__traceback__ is not None


def test_slow_by_nothing_is_not_slow() -> None:
    """Virtual time goes on."""

    async def main(world: World) -> None:
        world.scheduler.slow("worker", 0.0)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep, 1, name="worker")

    result = run(main, seed=1)
    assert result.failure is None
    assert result.virtual_s == 1.0


def test_a_run_whose_time_stands_still_is_ended() -> None:
    """Somebody who only yields keeps time from going on; the run is ended long before its last tick, and names him."""
    settings = Settings(still_ticks=500)

    async def yields() -> None:
        while True:
            await trio.lowlevel.checkpoint()

    async def hardly_waits() -> None:
        while True:  # noqa: ASYNC110 - time goes on too slowly for anybody to notice
            await trio.sleep(1e-9)

    def spinning(async_fn: Any) -> Any:
        async def spins(world: World) -> None:
            await trio.sleep(1)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.sleep, 60, name="sleeper")
                nursery.start_soon(async_fn, name="spinner")

        return spins

    async def goes_on(world: World) -> None:
        for _ in range(20):
            for _ in range(100):
                await trio.lowlevel.checkpoint()
            await trio.sleep(0.1)

    for async_fn in (yields, hardly_waits):
        stuck = run(spinning(async_fn), seed=1, settings=settings)
        assert isinstance(stuck.failure, SimulationStuck)
        assert "stood still" in str(stuck.failure)
        assert "Stepped most: spinner" in str(stuck.failure)
        assert "sleeper" not in str(stuck.failure)
        assert stuck.ticks < 2_000
    assert run(goes_on, seed=1, settings=settings).failure is None


def test_a_run_whose_history_is_full_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded, whatever a test notes."""
    monkeypatch.setattr("callboard.simulations.history.recorder.ENTRIES_MAX", 50)

    async def notes(world: World) -> None:
        while True:
            world.note("again")
            await trio.sleep(0.1)

    result = run(notes, seed=1)
    assert isinstance(result.failure, SimulationStuck)
    assert "history is full" in str(result.failure)
    assert len(result.history) <= 50
