"""Timers and the actor that watches them: when they come, through jumps of clocks and crashes."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Any

import attrs
import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

import callboard
from callboard.actors.kernel import Terminated
from callboard.actors.timers.commands import (
    NEVER,
    TICKS,
    CountTimers,
    Due,
    TimerStatistics,
    tick_at,
    tick_from,
)
from callboard.actors.timers.timer_wheel import TimerCounts, TimerWheel
from callboard.actors.timing import Callback, Timer, Timers, WheelAddress
from callboard.simulations.clock import VirtualClock
from callboard.simulations.entropy import SeededEntropy
from callboard.supervision import ChildSpec, SupervisorSpec, System, open_system

DAY_S = 86_400.0


@attrs.define
class Bench:
    """The actor, and what came when."""

    clock: VirtualClock
    timers: Timers
    system: System
    nursery: trio.Nursery
    came: list[tuple[str, float]] = attrs.Factory(list)

    def watch(self, name: str, timer: Timer) -> Timer:
        """Note each time at which it comes."""

        async def note() -> None:
            while True:
                await timer.wait()
                self.came.append((name, round(trio.current_time(), 6)))

        self.nursery.start_soon(note)
        return timer

    def crash(self) -> None:
        """Have the wheel's actor crash."""
        assert self.system.actor("timer-wheel").crash(RuntimeError("a drill"))

    def hear(self, message: object) -> None:
        """What the wheel would say to the owner."""
        self.timers.hear(message)

    async def counts(self) -> TimerStatistics:
        """What the wheel tells of itself."""
        return await self.system.actor("timer-wheel").ask(CountTimers())


async def on_bench(test: Callable[[Bench], Awaitable[None]]) -> None:
    """Run `test` beside the actor."""
    clock = VirtualClock()
    address, counts = WheelAddress(clock), TimerCounts()
    wheel = ChildSpec(name="timer-wheel", start=lambda: TimerWheel(counts))
    spec = SupervisorSpec(name="root", children=(wheel,))
    async with open_system(spec, clock=clock, entropy=SeededEntropy(1)) as system:
        address.ref, timers = system.actor("timer-wheel"), Timers(address)
        async with trio.open_nursery() as nursery:
            await test(Bench(clock, timers, system, nursery))
            nursery.cancel_scope.cancel()


@given(st.floats(0, 1e11), st.integers(0, 3000))
def test_ticks_surround_a_moment(seconds: float, steps: int) -> None:
    """The next tick is never early and less than two late; the last tick is never ahead; a tick's own moment is it."""
    for _ in range(steps % 5):
        seconds = math.nextafter(seconds, math.inf)
    assert seconds <= tick_from(seconds) / TICKS < seconds + 2 / TICKS + seconds * 1e-15
    assert tick_at(seconds) / TICKS <= seconds
    assert tick_from(seconds) - tick_at(seconds) in (0, 1)
    assert steps == tick_from(steps / TICKS) == tick_at(steps / TICKS)


async def test_a_timer_comes_at_its_deadline(autojump_clock: Any) -> None:
    """At the millisecond that is not before it; in order; one that has passed comes at once."""

    async def test(bench: Bench) -> None:
        for name, deadline in (("b", 2.5), ("far", 40 * 365 * DAY_S), ("a", 0.0001), ("past", -1.0)):
            bench.watch(name, bench.timers.timer()).arm(deadline)
        await trio.sleep(41 * 365 * DAY_S)
        assert [("past", 0.0), ("a", 0.001), ("b", 2.5), ("far", 40 * 365 * DAY_S)] == bench.came
        assert 0 == (await bench.counts()).armed == len(bench.timers.known)

    await on_bench(test)


async def test_the_last_arming_counts(autojump_clock: Any) -> None:
    """Earlier, later, cancelled, and armed again: a timer comes once for each arming that was not overwritten."""

    async def test(bench: Bench) -> None:
        timer = bench.watch("it", bench.timers.timer())
        for deadline in (50.0, 5.0, 20.0, 10.0):
            timer.arm(deadline)
            await trio.sleep(1.0)
        await trio.sleep(10.0)
        timer.arm(30.0)
        timer.cancel()
        await trio.sleep(40.0)
        timer.arm(NEVER)
        timer.arm(60.0)
        await trio.sleep(10.0)
        assert [("it", 10.0), ("it", 60.0)] == bench.came

    await on_bench(test)


async def test_arming_ten_thousand_times_is_one_message(autojump_clock: Any) -> None:
    """A timer that is armed ten thousand times costs one message, and one turn when it comes; between nothing runs."""

    async def test(bench: Bench) -> None:
        timer = bench.watch("it", bench.timers.timer())
        wakes = (await bench.counts()).wakes
        for number in range(10_000):
            timer.arm(1000.0 + number)
        await trio.sleep(20_000.0)
        assert [("it", 10_999.0)] == bench.came
        counts = await bench.counts()
        assert (1, 1, 0) == (counts.arms, counts.came, len(bench.timers.known))
        assert counts.wakes - wakes <= 2

    await on_bench(test)


async def test_ten_thousand_owners_cost_one_sleeping_task(autojump_clock: Any) -> None:
    """However many are armed, one task of the program has a deadline."""

    async def test(bench: Bench) -> None:
        for number in range(10_000):
            bench.timers.timer().arm(10.0 + number / 7)
        await trio.sleep(1.0)
        assert (await bench.counts()).armed == 10_000
        assert trio.lowlevel.current_statistics().seconds_to_next_deadline == pytest.approx(9.0)
        sleeping = trio.lowlevel.current_statistics().tasks_living
        await trio.sleep(5000.0)
        assert (0, sleeping) == (
            (await bench.counts()).armed,
            trio.lowlevel.current_statistics().tasks_living,
        )

    await on_bench(test)


async def test_slots_survive_a_crash(autojump_clock: Any) -> None:
    """What was armed before, while the actor is away, and after comes in time, or as soon as it is back."""

    async def test(bench: Bench) -> None:
        for name, deadline in (("a", 1.0), ("b", 1.04), ("c", 3.0), ("gone", 4.0)):
            bench.watch(name, bench.timers.timer()).arm(deadline)
        gone = next(timer for timer in bench.timers.known.values() if timer.deadline == 4.0)
        await trio.sleep(1.02)
        bench.crash()
        await trio.sleep(0.001)
        bench.watch("d", bench.timers.timer()).arm(2.0)
        gone.cancel()
        await trio.sleep(10.0)
        names, times = zip(*bench.came, strict=True)
        assert (("a", "b", "d", "c"), 1.0, 2.0, 3.0) == (names, times[0], times[2], times[3])
        assert 1.04 <= times[1] < 1.12

    await on_bench(test)


async def test_a_wheel_that_is_early_is_not_believed(autojump_clock: Any) -> None:
    """The owner looks at the clock, and the timer stays armed."""

    async def test(bench: Bench) -> None:
        timer = bench.watch("it", bench.timers.timer())
        timer.arm(5.0)
        await trio.sleep(1.0)
        bench.hear(Due(timer.number))
        await trio.sleep(1.0)
        assert (bench.came, (await bench.counts()).armed) == ([], 1)
        await trio.sleep(10.0)
        assert [("it", 5.0)] == bench.came

    await on_bench(test)


async def test_a_timer_may_call_a_function(autojump_clock: Any) -> None:
    """Once, at its deadline; a call that came too early is none, and a cancelled one never comes."""

    async def test(bench: Bench) -> None:
        came: list[float] = []

        def note() -> None:
            if timer.has_come():
                came.append(round(trio.current_time(), 6))

        timer = bench.timers.timer(Callback(note))
        timer.arm(1.0)
        timer.flag.set()
        bench.hear(Due(timer.number))
        cancelled = bench.timers.timer(Callback(lambda: came.append(-1.0)))
        cancelled.arm(0.5)
        cancelled.cancel()
        await trio.sleep(5)
        assert [1.0] == came

    await on_bench(test)


async def test_jumps_of_the_wall_clock_do_not_concern_deadlines(autojump_clock: Any) -> None:
    """They neither come early nor stand still, whatever the wall clock does."""

    async def test(bench: Bench) -> None:
        bench.watch("it", bench.timers.timer()).arm(100.0)
        for shift in (DAY_S, -3 * DAY_S, 400 * DAY_S):
            await trio.sleep(10.0)
            bench.clock.shift(shift)
        await trio.sleep(100.0)
        assert [("it", 100.0)] == bench.came

    await on_bench(test)


@pytest.mark.parametrize(
    ("shift", "comes"), [(0.0, 3600.0), (3000.0, 600.0), (DAY_S, 120.0), (-DAY_S, 3600.0 + DAY_S)]
)
async def test_instants_follow_the_wall_clock(autojump_clock: Any, shift: float, comes: float) -> None:
    """However it jumps they come when it says so, and within a minute when it has jumped past them."""

    async def test(bench: Bench) -> None:
        timer = bench.watch("it", bench.timers.instant())
        timer.arm(bench.timers.wall() + 3600.0)
        await trio.sleep(90.0)
        bench.clock.shift(shift)
        await trio.sleep(2 * DAY_S)
        assert bench.came == [("it", pytest.approx(comes, abs=0.002))]

    await on_bench(test)


async def test_an_instant_waits_anew_when_the_clock_jumps_back_and_forth(autojump_clock: Any) -> None:
    """A jump back after the wheel has followed the clock ahead loses nobody who waits or is armed then."""

    async def test(bench: Bench) -> None:
        start = bench.timers.wall()
        bench.watch("early", bench.timers.instant()).arm(start + 100.0)
        bench.watch("late", bench.timers.instant()).arm(start + 5000.0)
        await trio.sleep(1.0)
        bench.clock.shift(2000.0)
        await trio.sleep(70.0)
        bench.clock.shift(-2000.0)
        bench.watch("new", bench.timers.instant()).arm(start + 1000.0)
        await trio.sleep(6000.0)
        assert [("early", 60.0), ("new", 1000.0), ("late", 5000.0)] == bench.came

    await on_bench(test)


async def test_the_wall_clock_is_looked_at_only_while_an_instant_waits(autojump_clock: Any) -> None:
    """Once a minute, and not at all when there is none."""

    async def test(bench: Bench) -> None:
        timer = bench.timers.instant()
        timer.arm(bench.timers.wall() + 3600.0)
        await trio.sleep(1.0)
        wakes = (await bench.counts()).wakes
        await trio.sleep(1800.0)
        assert 28 <= (await bench.counts()).wakes - wakes <= 31
        timer.cancel()
        await trio.sleep(100.0)
        wakes = (await bench.counts()).wakes
        await trio.sleep(DAY_S)
        assert wakes == (await bench.counts()).wakes

    await on_bench(test)


async def test_a_sleep_that_is_cancelled_leaves_no_slot(autojump_clock: Any) -> None:
    """Nor does one that has ended."""

    async def test(bench: Bench) -> None:
        began = trio.current_time()
        await bench.timers.sleep(2.0)
        assert began + 2.0 == trio.current_time()
        with trio.move_on_after(1.0):
            await bench.timers.sleep(100.0)
        assert 0 == (await bench.counts()).armed == len(bench.timers.known)

    await on_bench(test)


async def test_an_idle_runtime_has_one_sleeping_task(autojump_clock: Any, in_memory: Any) -> None:
    """With groups that may expire and segments that grow old, the earliest deadline is the wheel's."""
    async with in_memory.open() as runtime:
        for number in range(5):
            topic = await runtime.create_topic(f"topic-{number}", partitions=3, segment_age=DAY_S)
            await topic.publish_batch([b"x"] * 10)
            async with topic.subscribe(f"group-{number}"):
                pass
        await trio.sleep(10.0)
        timers = (await runtime.stats()).timers
        assert timers.armed >= 10
        await trio.testing.wait_all_tasks_blocked()
        alarm_s = trio.lowlevel.current_statistics().seconds_to_next_deadline
        wheel = runtime._session.system.actor("timer-wheel")._cell.incarnation._actor
        assert alarm_s == pytest.approx(wheel._wakes_at - trio.current_time())


async def test_a_wheel_that_crashes_costs_nobody_anything(autojump_clock: Any, in_memory: Any) -> None:
    """Leases run out and delays end although it crashes while they wait; after too many crashes the runtime ends."""
    with pytest.raises(callboard.RestartLimitReached):
        async with in_memory.open() as runtime:
            topic = await runtime.create_topic("orders")
            await topic.publish(b"one")
            async with topic.subscribe("group", visibility_timeout=9.0) as consumer:
                message = await anext(aiter(consumer))
                await message.nack(delay=5.0)
                for _ in range(3):
                    runtime.crash("timer-wheel", RuntimeError("a drill"))
                    await trio.sleep(1.0)
                began = trio.current_time()
                message = await anext(aiter(consumer))
                assert (message.value, 2) == (b"one", message.attempt)
                assert 1.9 <= trio.current_time() - began <= 2.1
                await message.ack()
                for _ in range(9):
                    runtime.crash("timer-wheel", RuntimeError("a drill"))
                    await trio.sleep(0.1)


async def test_no_wait_returns_because_the_wheel_has_ended(autojump_clock: Any) -> None:
    """An actor's wait goes on until it is cancelled, and a client's ends with an error: no loop around it spins."""

    async def refuse() -> None:
        raise callboard.RuntimeClosed("the runtime is closing")

    async def test(bench: Bench) -> None:
        timer, handles = bench.watch("it", bench.timers.timer()), Timers(bench.timers._address, refuse)
        timer.arm(500.0)
        bench.hear(Terminated("timer-wheel"))
        handles.hear(Terminated("timer-wheel"))
        with pytest.raises(callboard.RuntimeClosed):
            await handles.sleep(500.0)
        with trio.move_on_after(400.0) as scope:
            await bench.timers.sleep(500.0)
        assert scope.cancelled_caught
        assert bench.came == []

    await on_bench(test)


async def test_an_owner_that_crashes_arms_anew(autojump_clock: Any, in_memory: Any) -> None:
    """Its next incarnation is an owner of its own; of the one before nothing stays armed, and no deadline is lost."""
    async with in_memory.open() as runtime:
        topic = await runtime.create_topic("orders", segment_age=DAY_S)
        await topic.publish(b"one")
        async with topic.subscribe("group", visibility_timeout=9.0) as consumer:
            message = await anext(aiter(consumer))
            await message.nack(delay=5.0)
            await trio.sleep(0.5)
            armed = (await runtime.stats()).timers.armed
            for _ in range(3):
                runtime.crash("topics/orders/0", RuntimeError("a drill"))
                await trio.sleep(1.0)
            assert armed == (await runtime.stats()).timers.armed
            began = trio.current_time()
            message = await anext(aiter(consumer))
            assert (message.value, 2) == (b"one", message.attempt)
            assert 1.4 <= trio.current_time() - began <= 6.0
            await message.ack()


async def test_statistics_outlive_a_crash_of_the_wheel(autojump_clock: Any, in_memory: Any) -> None:
    """What the timers have done is counted over all incarnations."""
    async with in_memory.open() as runtime:
        await runtime.create_topic("orders", segment_age=DAY_S)
        await (runtime.topic("orders")).publish(b"one")
        await trio.sleep(1.0)
        before = (await runtime.stats()).timers
        runtime.crash("timer-wheel", RuntimeError("a drill"))
        await trio.sleep(1.0)
        after = (await runtime.stats()).timers
        assert after.armed == before.armed
        assert after.arms > before.arms
        assert after.wakes > before.wakes
