"""The list of planted bugs, read by the module that plants them."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def planting() -> ModuleType:
    """`planting.py`, which scripts import that have not imported the product."""
    path = Path(__file__).with_name("planting.py")
    spec = importlib.util.spec_from_file_location("planting", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
