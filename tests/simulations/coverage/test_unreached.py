"""The list of what a sweep need not reach: each branch in it is in the code. measure.py tells of those reached."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def branches(script_of: Callable[[Path], ModuleType]) -> ModuleType:
    """`branches.py`, which a script imports that is no part of the package."""
    return script_of(Path(__file__).with_name("branches.py"))


def test_what_need_not_be_reached_is_in_the_code(branches: ModuleType) -> None:
    """Files and branches, each with a reason."""
    unreached = branches.load_unreached()
    assert unreached.branches
    for file, reason in unreached.files.items():
        assert reason
        assert (branches.ROOT / file).exists()
    gone = [name for name in unreached.branches if not branches.source(name.partition(" ")[0]).has(name)]
    assert gone == []
    assert all(unreached.branches.values())
