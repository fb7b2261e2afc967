"""What timers cost: `python benchmarks/timers.py [--owners N]`.

    arms        10,000 owners arm a timer each, in any order, beside the actor that watches them: arms per second, how
                many messages and turns it took, and the same with a trio sleep for each arming
    wheel       the same without an actor: arming, cancelling and coming, straight in the wheel
    lateness    owners that are armed for random moments of a second: how long after their moment they are woken
    memory      a million deadlines in the owners' own arrays, 100 for each of 10,000 owners; and a million slots

Numbers of a shared machine vary by some 30 %: compare within one run only.
"""

from __future__ import annotations

import argparse
import gc
import pathlib
import random
import statistics
import time
from array import array

import trio

from callboard.actors.timers.commands import CountTimers
from callboard.actors.timers.timer_wheel import TimerCounts, TimerWheel
from callboard.actors.timers.wheel import Slot, Wheel
from callboard.actors.timing import Timer, Timers, WheelAddress
from callboard.supervision import ChildSpec, SupervisorSpec, open_system

ARMS = 1_000_000
SLEEPS = 20_000
DEADLINES = 1_000_000


class Wall:
    """The Clock seam."""

    def monotonic(self) -> float:
        """trio's own."""
        return trio.current_time()

    def wall_us(self) -> int:
        """From the system clock."""
        return time.time_ns() // 1000


class Chance(random.Random):
    """The Entropy seam."""

    def integer(self, bits: int) -> int:
        """Random bits."""
        return self.getrandbits(bits)

    def bytes(self, count: int) -> bytes:
        """Random bytes."""
        return self.randbytes(count)


def resident_bytes() -> int:
    """What the kernel says this process holds."""
    gc.collect()
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * 4096


async def arms(address: WheelAddress, owners: int) -> None:
    """Arm timers for some time within a minute, in bursts, as partitions do between two turns of other tasks."""
    drawn = random.Random(1)
    slots = [Timers(address).timer() for _ in range(owners)]
    order = [(drawn.choice(slots), 0.01 + 60.0 * drawn.random()) for _ in range(ARMS)]
    before = await address.ref.ask(CountTimers())
    now, began = trio.current_time(), time.perf_counter()
    for burst in range(0, ARMS, 1000):
        for slot, delay in order[burst : burst + 1000]:
            slot.arm(now + delay)
        await trio.lowlevel.checkpoint()
    after = await address.ref.ask(CountTimers())  # all were taken
    took = time.perf_counter() - began
    messages, turns = after.arms - before.arms, after.wakes - before.wakes
    print(
        f"arms      {ARMS / took:>12,.0f} /s   {owners:,} owners, {messages:,} messages, {turns} turns of the actor"
    )
    for slot in slots:
        slot.cancel()
    async with trio.open_nursery() as nursery:
        began = time.perf_counter()
        for _, delay in order[:SLEEPS]:
            nursery.start_soon(trio.sleep, delay)
        await trio.lowlevel.checkpoint()
        took = time.perf_counter() - began
        print(f"sleeps    {SLEEPS / took:>12,.0f} /s   a task and a trio sleep for each")
        nursery.cancel_scope.cancel()


def wheel(owners: int) -> None:
    """What the wheel's own steps cost."""
    drawn = random.Random(2)
    wheel: Wheel[Slot] = Wheel(0)
    slots = [Slot() for _ in range(owners)]
    order = [(drawn.choice(slots), drawn.randrange(1, 60_000)) for _ in range(ARMS)]
    began = time.perf_counter()
    for slot, tick in order:
        wheel.arm(slot, tick)
    took = time.perf_counter() - began
    print(f"wheel     {ARMS / took:>12,.0f} /s   armed")
    came, began = 0, time.perf_counter()
    while (next_tick := wheel.next_deadline()) is not None:
        came += sum(1 for _ in wheel.advance(next_tick))
    took = time.perf_counter() - began
    print(f"          {came / took:>12,.0f} /s   came, each in its own millisecond")
    for slot in slots:
        wheel.arm(slot, 10**6 + drawn.randrange(1, 60_000))
    began = time.perf_counter()
    for slot in slots:
        wheel.cancel(slot)
    print(f"          {owners / (time.perf_counter() - began):>12,.0f} /s   cancelled")


async def lateness(address: WheelAddress, owners: int) -> None:
    """How late owners are woken."""
    late: list[float] = []

    async def wait(timer: Timer, deadline: float) -> None:
        timer.arm(deadline)
        await timer.wait()
        late.append(trio.current_time() - deadline)

    drawn = random.Random(3)
    async with trio.open_nursery() as nursery:
        now = trio.current_time()
        for _ in range(owners):
            nursery.start_soon(wait, Timers(address).timer(), now + 1.0 + drawn.random())
    late.sort()
    quantiles = statistics.quantiles(late, n=100)
    words = f"median {quantiles[49] * 1e3:.2f}, 99 % {quantiles[98] * 1e3:.2f}, most {late[-1] * 1e3:.2f}"
    print(f"lateness  in ms: least {late[0] * 1e3:.2f}, {words}   {owners:,} owners within a second")


async def memory(address: WheelAddress, owners: int) -> None:
    """What a million deadlines keep."""
    drawn, before = random.Random(4), resident_bytes()
    kept = [
        array("d", sorted(60 * drawn.random() for _ in range(DEADLINES // owners))) for _ in range(owners)
    ]
    slots = [Timers(address).timer() for _ in range(owners)]
    for slot, deadlines in zip(slots, kept, strict=True):
        slot.arm(trio.current_time() + 1000.0 + deadlines[0])
    await address.ref.ask(CountTimers())  # the actor has put all into its wheel
    size = resident_bytes() - before
    print(f"memory    {size / 1e6:>8.1f} MB   {DEADLINES:,} deadlines of {owners:,} owners")
    before = resident_bytes()
    wheel: Wheel[Slot] = Wheel(0)
    many = [Slot() for _ in range(DEADLINES)]
    for slot in many:
        wheel.arm(slot, drawn.randrange(1, 10**9))
    print(f"          {(resident_bytes() - before) / 1e6:>8.1f} MB   {DEADLINES:,} slots, one for each")
    for timer in slots:
        timer.cancel()


async def main(owners: int) -> None:
    """All parts, in turn."""
    address = WheelAddress(Wall())
    spec = SupervisorSpec(
        name="root", children=(ChildSpec(name="timer-wheel", start=lambda: TimerWheel(TimerCounts())),)
    )
    async with open_system(spec, clock=address.clock, entropy=Chance(1)) as system:
        address.ref = system.actor("timer-wheel")
        await memory(address, owners)
        await arms(address, owners)
        wheel(owners)
        await lateness(address, owners)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--owners", type=int, default=10_000)
    trio.run(main, parser.parse_args().owners)
