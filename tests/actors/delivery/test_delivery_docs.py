"""The page on delivery shows the rules that the code has; `test_delivery_model` holds the code to its transitions."""

from __future__ import annotations

import re
from pathlib import Path

from callboard.actors.delivery.events import FIELDS

PAGE = (Path(__file__).parents[3] / "docs" / "principles" / "delivery.md").read_text(encoding="utf-8")


def table(*heads: str) -> list[list[str]]:
    """The rows of the table on the page that has these heads, without their backquotes."""
    rows = PAGE.split(f"| {' | '.join(heads)} |\n", 1)[1].split("\n\n", 1)[0].splitlines()[1:]
    return [[cell.strip().strip("`") for cell in row.strip("|").split("|")] for row in rows]


STATES = table("state", "meaning")
TRANSITIONS = table("from", "call", "to", "attempt counts", "event", "when")
EVENTS = table("event", "call", "fields")


def test_the_transitions_name_only_known_states() -> None:
    """Every transition runs between states that are described, and nothing leaves settled."""
    before, after = {row[0] for row in TRANSITIONS}, {row[2] for row in TRANSITIONS}
    assert before | after == {row[0] for row in STATES}
    assert "settled" not in before


def test_the_diagram_shows_the_transitions() -> None:
    """There is one arrow per pair of states, with every call that leads from the one to the other."""
    arrows = re.findall(r"^    (\w+) --> (\w+): (.+)$", PAGE, re.MULTILINE)
    shown = [
        (before, call, after) for before, after, calls in arrows for call in re.split(", |,<br/>", calls)
    ]
    assert sorted(shown) == sorted({(row[0], row[1], row[2]) for row in TRANSITIONS})


def test_every_event_is_described() -> None:
    """The journal's events, their fields and the calls that make them are those of the code and of the transitions."""
    assert {row[0]: row[2] for row in EVENTS} == {kind: ", ".join(names) for kind, names in FIELDS.items()}
    moves_nothing = {("F", "forget"), ("K", "seek"), ("O", "publish"), ("t", "note"), ("n", "name")}
    assert {(row[0], row[1]) for row in EVENTS} - moves_nothing == {
        (row[4], row[1]) for row in TRANSITIONS if row[4]
    }
