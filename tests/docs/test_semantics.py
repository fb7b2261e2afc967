"""The page of questions names what is there, and its table of combinations is what the broker takes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import trio

import callboard
from callboard.actors.settings import GroupMode, Ordering
from callboard.simulations.scenarios import SCENARIOS

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/principles/semantics.md"


async def combinations(directory: Path) -> list[str]:
    """The rows of the table: every combination is tried."""
    rows = ["| mode | ordering | topic with priorities | |", "|---|---|---|---|"]
    async with callboard.open_runtime(directory) as runtime:
        for has_priorities in (False, True):
            topic = await runtime.create_topic(f"topic-{has_priorities}", priorities=has_priorities)
            for mode in get_args(GroupMode):
                for ordering in get_args(Ordering):
                    try:
                        name = f"{mode}-{ordering}-{has_priorities}"
                        async with topic.subscribe(name, mode=mode, ordering=ordering):
                            found = "taken"
                    except callboard.CallboardError:
                        found = "refused"
                    rows.append(f"| {mode} | {ordering} | {'yes' if has_priorities else 'no'} | {found} |")
    return rows


def test_the_table_of_combinations_is_what_the_broker_takes(tmp_path: Path) -> None:
    """Each combination of mode, order and priorities is taken or refused as the page says."""
    rows = trio.run(combinations, tmp_path / "data")
    _, _, rest = PAGE.read_text("utf-8").partition("<!-- combinations -->\n")
    assert rest.partition("<!-- end of combinations -->")[0].split("\n")[:-1] == rows


def test_what_holds_an_answer_exists() -> None:
    """Every scenario and file of tests that the page names exists."""
    cells = re.findall(r"\| ((?:`[^`]+`(?:, )?)+) \|$", PAGE.read_text("utf-8"), re.MULTILINE)
    held = [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]
    assert held
    missing = [name for name in held if not ((ROOT / name).exists() if "/" in name else name in SCENARIOS)]
    assert missing == []
