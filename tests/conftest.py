"""For all tests: Hypothesis measures no time, since a busy machine is no failure; and a small system of actors."""

from __future__ import annotations

import os
import pathlib

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


@pytest.fixture(scope="session")
def nasa_log() -> pathlib.Path:
    """The recorded web server log; without it, a failure in CI and a loud skip elsewhere."""
    root = pathlib.Path(__file__).parents[1]
    directory = pathlib.Path(os.environ.get("CALLBOARD_TRAFFIC_DIR", root / "../shared/data"))
    path = directory / "nasa-http" / "nasa_19950801.tsv"
    if path.is_file():
        return path
    message = f"RECORDED TRAFFIC IS MISSING: {path} (set CALLBOARD_TRAFFIC_DIR)"
    if os.environ.get("CI") == "true":
        pytest.fail(message)
    pytest.skip(message)
