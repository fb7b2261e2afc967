"""The bugs that are planted to measure the simulator: each fits the code, and what found one still finds it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[3]


def test_each_mutation_fits_the_code(planting: ModuleType) -> None:
    """The text that a mutation replaces is in its file exactly once, and what comes of it compiles."""
    planted = planting.mutations()
    assert len({mutation.name for mutation in planted}) == len(planted) >= 40
    for mutation in planted:
        source = (ROOT / mutation.file).read_text("utf-8")
        compile(planting.mutated(mutation, source), mutation.file, "exec")


def test_what_was_found_is_planted(planting: ModuleType) -> None:
    """What was measured last names no bug that is not in the list."""
    assert set(planting.caught()) <= {mutation.name for mutation in planting.mutations()}


def test_the_seeds_that_found_some_still_do() -> None:
    """Of one in eight: each stored seed breaks a promise with its bug planted, and none without."""
    _check("--every=8")


@pytest.mark.slow
@pytest.mark.parametrize("third", range(3))
def test_the_seeds_that_found_them_still_do(third: int) -> None:
    """The same of all, in three parts."""
    _check("--every=3", f"--first={third}")


def _check(*options: str) -> None:
    checked = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("measure.py")), "--check", *options],
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout[-4_000:] + checked.stderr[-2_000:]
