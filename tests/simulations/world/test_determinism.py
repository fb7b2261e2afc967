"""The determinism contract: one seed, one trace, byte for byte, in any process and with any release of trio."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import trio

CHILD = Path(__file__).with_name("determinism_child.py")
SEEDS = ["0", "1", "2", "3", "4", "5", "6", "7"]
OLDEST = "0.25.0"
BETWEEN = "0.29.0"


def trace_of(hash_seed: str, packages: Path | None = None) -> str:
    """What a fresh process prints; `packages`: a folder whose packages hide the installed ones."""
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    if packages is not None:
        environment["PYTHONPATH"] = os.pathsep.join(
            filter(None, [str(packages), environment.get("PYTHONPATH", "")])
        )
    done = subprocess.run(
        [sys.executable, "-W", "error", str(CHILD), *SEEDS],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def check_same(one: str, other: str) -> None:
    """Like `==`, with the first line in which they differ."""
    for first, second in zip(one.splitlines(), other.splitlines(), strict=False):
        assert first == second
    assert one == other


@pytest.fixture(scope="module")
def reference() -> str:
    """The trace in a process of its own."""
    return trace_of("1")


def test_two_processes_give_the_same_trace(reference: str) -> None:
    """With different hash seeds and different heaps; and the trace is one of a run in which things happened."""
    check_same(reference, trace_of("2"))
    assert "2 boots" in reference
    assert "IncarnationCrashed" in reference
    assert len(reference.splitlines()) > 5_000
    digests = {line.rsplit(" ", 1)[1] for line in reference.splitlines() if line.startswith("seed ")}
    assert len(digests) == len(SEEDS)


@pytest.mark.parametrize("release", [OLDEST, BETWEEN])
def test_older_releases_of_trio_give_the_same_trace(
    release: str, reference: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The private parts of trio that the simulator stands on are the same in all releases that we support."""
    packages = tmp_path_factory.mktemp(f"trio-{release}")
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(packages)]
    done = subprocess.run(
        [*command, f"trio=={release}"], capture_output=True, text=True, check=False, timeout=240
    )
    if done.returncode and "CI" not in os.environ:
        pytest.skip(f"trio {release} cannot be installed here: {done.stderr[-200:]}")
    assert done.returncode == 0, done.stderr
    assert release != trio.__version__
    check_same(reference, trace_of("3", packages))
