"""Pages that are made from the code are what the code would make today."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType


def test_generated_pages_have_not_drifted(docs: Path, script_of: Callable[[Path], ModuleType]) -> None:
    """Every page in docs/generate.py lies in the repository as it would be written now."""
    generate = script_of(docs / "generate.py")
    stale = [name for name, make in generate.PAGES.items() if make() != _content(docs / name)]
    assert stale == [], "run: python docs/generate.py"


def _content(page: Path) -> str:
    return page.read_text(encoding="utf-8") if page.exists() else ""
