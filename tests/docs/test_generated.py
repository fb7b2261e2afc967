"""Pages that are made from the code are what the code would make today."""

from __future__ import annotations

import importlib.util
from pathlib import Path


def test_generated_pages_have_not_drifted(docs: Path) -> None:
    """Every page in docs/generate.py lies in the repository as it would be written now."""
    spec = importlib.util.spec_from_file_location("docs_generate", docs / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    stale = [name for name, make in generate.PAGES.items() if make() != _content(docs / name)]
    assert stale == [], "run: python docs/generate.py"


def _content(page: Path) -> str:
    return page.read_text(encoding="utf-8") if page.exists() else ""
