"""Fixtures for tests that run actors: virtual time, seeded chance, a small system."""

import random

import pytest
import trio

from callboard.supervision import ChildSpec, SupervisorSpec, open_system


class VirtualTime:
    """The Clock seam on trio's clock."""

    def monotonic(self):
        return trio.current_time()

    def wall_us(self):
        return round(trio.current_time() * 1e6)


class Chance(random.Random):
    """The Entropy seam, seeded."""

    def integer(self, bits):
        return self.getrandbits(bits)

    def bytes(self, count):
        return self.randbytes(count)


@pytest.fixture
def seams():
    """The seams of a system; its time is virtual in tests that take `autojump_clock`."""
    return {"clock": VirtualTime(), "entropy": Chance(7)}


@pytest.fixture
def stage(seams):
    """Make a system: keyword arguments name the actors and what starts them (or a dict for ChildSpec)."""

    def make(*, supervisor=None, disk=None, **actors):
        children = tuple(
            ChildSpec(name=name, **(start if isinstance(start, dict) else {"start": start}))
            for name, start in actors.items()
        )
        spec = SupervisorSpec(name="test", children=children, **(supervisor or {}))
        return open_system(spec, disk=disk, **seams)

    return make
