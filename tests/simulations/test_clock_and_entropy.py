"""The seeded entropy and the virtual clock."""

from __future__ import annotations

import trio
import trio.testing

from callboard.simulations.clock import START_US, VirtualClock
from callboard.simulations.entropy import SeededEntropy


def test_one_seed_fixes_all_draws() -> None:
    """The same seed draws the same, another seed something else."""

    def draws(seed: int) -> tuple[float, int, bytes]:
        entropy = SeededEntropy(seed)
        return entropy.random(), entropy.integer(64), entropy.bytes(8)

    assert draws(1) == draws(1) != draws(2)


def test_forks_do_not_disturb_each_other() -> None:
    """A fork depends on the seed and its name only, not on what was drawn before."""
    one, two = SeededEntropy(7), SeededEntropy(7)
    one.random()
    assert one.fork("disk").integer(64) == two.fork("disk").integer(64) != two.fork("net").integer(64)


async def test_the_wall_clock_follows_trio(autojump_clock: trio.testing.MockClock) -> None:
    """An hour of trio's time is an hour on the wall, from the chosen date on."""
    clock = VirtualClock()
    assert clock.wall_us() == START_US
    await trio.sleep(3600)
    assert clock.wall_us() == START_US + 3_600_000_000
    assert clock.monotonic() == trio.current_time()


async def test_the_wall_clock_jumps(autojump_clock: trio.testing.MockClock) -> None:
    """The date can be set either way, while the monotonic clock stays."""
    clock = VirtualClock(start_us=1_000_000)
    clock.wall_us()
    await trio.sleep(1)
    before = clock.monotonic()
    clock.shift(-0.5)
    assert clock.wall_us() == 1_500_000
    clock.set_wall_us(5)
    await trio.sleep(1)
    assert clock.wall_us() == 1_000_005
    assert clock.monotonic() == before + 1


def test_a_clock_goes_on_in_the_next_run() -> None:
    """Carried into another trio run, the wall clock continues where it was last looked at."""
    clock = VirtualClock()

    async def sleep() -> int:
        clock.wall_us()
        await trio.sleep(10)
        return clock.wall_us()

    first = trio.run(sleep, clock=trio.testing.MockClock(autojump_threshold=0))
    second = trio.run(sleep, clock=trio.testing.MockClock(autojump_threshold=0))
    assert (first, second) == (START_US + 10_000_000, START_US + 20_000_000)
