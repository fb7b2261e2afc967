"""What a simulated run costs: seeds per second of scenarios with all their checks, an idle virtual day, the trace.

    python benchmarks/simulation.py [--seconds S]

Rates are per second of processor time of one core, so that other programs on the machine count less, but for the one
that says otherwise.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import trio

from callboard.simulations.faults import After, CrashActor, Plan, PowerCut, Survival
from callboard.simulations.scenarios import SCENARIOS, run_scenario
from callboard.simulations.scenarios.actor_workload import ActorTraffic
from callboard.simulations.scenarios.traffic import Traffic
from callboard.simulations.world import Machine, Settings, World, run

BROKER = Traffic(
    messages=200,
    partitions=2,
    publishers=4,
    batch=5,
    styles=("one by one", "batches"),
    consumers=1,
    pause_s=0.01,
)
CUT = Plan(
    (
        PowerCut(
            After("publish", 25), Survival(seed=1, applied=0.5, torn=0.5, trashed=0.0, names=0.5, zeros=True)
        ),
    )
)
CRASH = Plan((CrashActor(After("ask", 100), "team-0/worker-3"),))
DAY_S = 86_400.0


def rate(name: str, call: Callable[[int], Any], seconds: float, aim: str) -> None:
    """Call with rising seeds for so long, and print how many per processor second."""
    call(0)
    count, ticks = 0, 0
    started = time.process_time()
    while time.process_time() - started < seconds:
        count += 1
        done = call(count)
        if done.failure is not None:
            raise done.failure
        ticks += done.ticks
    spent = time.process_time() - started
    print(
        f"{name:54} {count / spent:8.1f} /s   ({1000 * spent / count:.1f} ms, {ticks // count} ticks; {aim})"
    )


def broker(settings: Settings) -> Callable[[int], Any]:
    """200 messages, two groups, a power cut in the middle and recovery; all promises checked."""
    scenario = SCENARIOS["publish-and-recover"]
    return lambda seed: run_scenario(scenario, seed, plan=CUT, workload=BROKER, settings=settings)


def actors(settings: Settings) -> Callable[[int], Any]:
    """Ten actors, 200 questions, one crash; all promises checked."""
    scenario = SCENARIOS["plain-actors"]
    return lambda seed: run_scenario(scenario, seed, plan=CRASH, workload=ActorTraffic(), settings=settings)


def _runs_in(seconds: float) -> int:
    """How many broker runs this process does in so much wall time, without a trace."""
    call = broker(Settings(trace="off"))
    call(0)
    count, end = 0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        count += 1
        call(count)
    return count


def on_all_cores(seconds: float) -> None:
    """As a sweep does it: a process for each core, counted by the clock on the wall."""
    cores = os.cpu_count() or 1
    with ProcessPoolExecutor(cores) as pool:
        done = sum(pool.map(_runs_in, [seconds] * cores))
    print(f"{f'broker on {cores} cores, by wall time':54} {done / seconds:8.1f} /s    (at least 12, aim 25)")


def idle_day() -> None:
    """A runtime with a topic and a group, left alone for a virtual day."""

    async def boot(machine: Machine) -> None:
        async with machine.open_runtime() as runtime:
            topic = await runtime.create_topic("orders", partitions=4)
            async with topic.subscribe("billing") as consumer:
                with trio.move_on_after(DAY_S):
                    await consumer.get()

    async def main(world: World) -> None:
        await world.machine_until_done(boot)

    started = time.process_time()
    done = run(main, seed=1)
    if done.failure is not None:
        raise done.failure
    spent = time.process_time() - started
    print(
        f"{'an idle virtual day, four partitions and a group':54} {spent:8.3f} s    ({done.ticks} ticks; under 10 s)"
    )


def recorded_day() -> None:
    """The whole recorded (or made) day without faults."""
    started = time.process_time()
    done = run_scenario(SCENARIOS["recorded-day"], 1, plan=Plan(()))
    if done.failure is not None:
        raise done.failure
    spent = time.process_time() - started
    print(f"{'the recorded day, 30,969 events to two groups':54} {spent:8.1f} s    ({done.ticks} ticks)")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="processor seconds per measure")
    parser.add_argument("--day", action="store_true", help="replay the recorded day as well")
    seconds = parser.parse_args().seconds
    rate("plain actors: 10, 200 questions, 1 crash", actors(Settings()), seconds, "at least 60, aim 110")
    for mode in ("off", "digest", "full"):
        aim = "at least 12, aim 25" if mode == "digest" else "the cost of tracing"
        name = f"broker: 200 messages, 2 groups, power cut; trace {mode}"
        rate(name, broker(Settings(trace=mode)), seconds, aim)
    on_all_cores(seconds)
    idle_day()
    if parser.parse_args().day:
        recorded_day()


if __name__ == "__main__":
    main()
