"""The programs of this folder and the bugs for them."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def bugs() -> ModuleType:
    """`bugs.py`, which is a script as well."""
    spec = importlib.util.spec_from_file_location("users_bugs", Path(__file__).with_name("bugs.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
