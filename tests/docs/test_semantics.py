"""The page of questions names what is there, and its table of combinations is what the broker takes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest
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


FEATURES = {
    "order per key and per partition": ("../how-to/share-work-in-a-group.md", "order-per-key"),
    "exclusive groups": ("../how-to/own-partitions.md", "exclusive"),
    "members that come and go": ("control-plane.md", "topics-and-groups"),
    "groups of several topics": ("../how-to/share-work-in-a-group.md", "several-topics"),
    "groups of patterns": ("../how-to/share-work-in-a-group.md", "pattern-groups"),
    "seek and reset": ("../how-to/drive-a-group.md", "sought-groups"),
    "pause and resume": ("../how-to/pause.md", "paused-groups"),
    "drain": ("../how-to/settle-by-hand.md", "drained-consumers"),
    "delays": ("delays.md", "delayed-messages"),
    "recurring publishes": ("recurring.md", "recurring-publishes"),
    "times to live": ("expiry.md", "expiring-messages"),
    "priorities": ("record-window.md", "what-comes-first"),
    "timers": ("timers.md", "every-feature"),
    "failing messages": ("failing.md", "failing-messages"),
    "dead letters and redriving": ("failing.md", "forwarded-letters"),
    "publishing once": ("publishing-once.md", "published-once"),
    "acks that publish": ("outbox.md", "acked-and-published"),
    "work": ("../how-to/handle-messages.md", "handlers"),
    "retention": ("../how-to/keep-and-drop.md", "retention-against-readers"),
}
"""What delivery offers: the page that tells what happens when, and the scenario that holds it to that."""


@pytest.mark.parametrize("feature", FEATURES)
def test_each_feature_of_delivery_has_a_row(feature: str) -> None:
    """One row of the page names both."""
    page, scenario = FEATURES[feature]
    assert (PAGE.parent / page).is_file()
    rows = [row for row in PAGE.read_text("utf-8").splitlines() if row.startswith("| ")]
    held = [row.split(" | ")[-1] for row in rows if f"({page})" in row or f"({page}#" in row]
    assert any(f"`{scenario}`" in cell for cell in held), (page, scenario)


ELSEWHERE = {
    *("actor-programs", "plain-actors", "supervisor-trees"),  # actors without a broker
    *(
        "damage-at-rest",
        "damaged-files",
        "damaged-middle",
        "smuggled-frames",
        "step-by-step",
        "stored-index",
    ),  # the log
    *(
        "many-groups",
        "parts-of-batches",
        "rare-calls",
        "rare-disks",
        "rare-moments",
        "rare-waits",
        "recorded-day",
        "recorded-traffic",
    ),  # all at once
}
"""Scenarios about something that this page does not answer."""


def test_each_scenario_of_delivery_is_named() -> None:
    """A scenario holds an answer of the page, or is about something else."""
    named = set(re.findall(r"`([\w-]+)`", PAGE.read_text("utf-8")))
    assert sorted(set(SCENARIOS) - named - ELSEWHERE) == []
    assert sorted(ELSEWHERE & named) == []
    assert set(SCENARIOS) >= ELSEWHERE


def test_what_holds_an_answer_exists() -> None:
    """Every scenario and file of tests that the page names exists."""
    cells = re.findall(r"\| ((?:`[^`]+`(?:, )?)+) \|$", PAGE.read_text("utf-8"), re.MULTILINE)
    held = [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]
    assert held
    missing = [name for name in held if not ((ROOT / name).exists() if "/" in name else name in SCENARIOS)]
    assert missing == []
