"""Where the documentation lies."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def docs() -> Path:
    """The folder of the documentation."""
    return Path(__file__).resolve().parents[2] / "docs"
