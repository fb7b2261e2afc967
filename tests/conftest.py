"""For all tests: Hypothesis measures no time, since a busy machine is no failure; and a small system of actors."""

from __future__ import annotations

import hypothesis
import pytest

from callboard.simulations.clock import VirtualClock
from callboard.simulations.entropy import SeededEntropy
from callboard.supervision import ChildSpec, SupervisorSpec, open_system

hypothesis.settings.register_profile("callboard", deadline=None, print_blob=True)
hypothesis.settings.load_profile("callboard")


@pytest.fixture
def seams():
    """The seams of a system without a disk; its time is virtual in tests that take `autojump_clock`."""
    return {"clock": VirtualClock(), "entropy": SeededEntropy(7)}


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
