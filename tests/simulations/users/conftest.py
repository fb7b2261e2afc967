"""The programs of this folder and the bugs for them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def bugs(script_of: Callable[[Path], ModuleType]) -> ModuleType:
    """`bugs.py`, which is a script as well."""
    return script_of(Path(__file__).with_name("bugs.py"))
