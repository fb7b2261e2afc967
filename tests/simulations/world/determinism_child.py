"""A process that runs one seed of a small broker program and prints its whole trace.

The heap is perturbed first, and differently in every process: what depends on addresses shows.
"""

from __future__ import annotations

import os
import sys

import trio

from callboard.log.errors import CallboardError
from callboard.simulations.world import Machine, Settings, World, run


async def boot(machine: Machine) -> int:
    settled = 0
    async with machine.open_runtime() as runtime:
        topic = await runtime.create_topic("orders", partitions=2)

        async def publish(start: int) -> None:
            for number in range(start, 45, 3):
                try:
                    await topic.publish(
                        b"%d of life %d" % (number, machine.number), key=b"k%d" % (number % 5)
                    )
                except CallboardError as error:
                    machine.world.note("not published", number=number, why=type(error).__name__)

        async with trio.open_nursery() as nursery:
            for start in range(3):
                nursery.start_soon(publish, start)
        async with topic.subscribe("billing", visibility_timeout=5.0) as consumer:
            while (message := await consumer.get(timeout=20)) is not None:
                try:
                    await message.ack()
                    settled += 1
                except CallboardError as error:
                    machine.world.note("not acked", why=type(error).__name__)
    return settled


async def main(world: World) -> None:
    world.disk.latency_s = 0.0003

    async def trouble() -> None:
        for number in range(4):
            await trio.sleep(0.002 + 0.01 * world.entropy.random())
            if number == 2:
                world.cut_power(None, 1.0)
            elif world.machine is not None:
                world.machine.crash(f"topics/orders/{number % 2}", RuntimeError("planted"))

    world.spawn(trouble)
    world.note("settled", messages=await world.machine_until_done(boot))


def perturb() -> list[bytes]:
    """Junk of random sizes, a part of which is kept."""
    junk = [bytes(os.urandom(1)[0] * 7) for _ in range(int.from_bytes(os.urandom(2), "big"))]
    return junk[:: os.urandom(1)[0] % 5 + 2]


if __name__ == "__main__":
    kept = perturb()
    for seed in map(int, sys.argv[1:]):
        result = run(main, seed=seed, settings=Settings(trace="full"))
        print(
            f"seed {seed}, {result.scheduler}, {result.boots} boots, {result.failure!r}, {result.trace.digest}"
        )
        print("\n".join(result.trace.lines))
