"""The list of planted bugs, read by the module that plants them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def planting(script_of: Callable[[Path], ModuleType]) -> ModuleType:
    """`planting.py`, which scripts import that have not imported the product."""
    return script_of(Path(__file__).with_name("planting.py"))
