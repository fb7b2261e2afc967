"""The page on delivery shows the rules that the code has."""

from __future__ import annotations

from pathlib import Path

from callboard.actors.delivery.rules import filled

PAGE = Path(__file__).parents[3] / "docs" / "principles" / "delivery.md"


def test_the_page_has_not_drifted() -> None:
    """The tables and the diagram in the page are what the data generates."""
    page = PAGE.read_text(encoding="utf-8")
    assert filled(page) == page
