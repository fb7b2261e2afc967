"""The story of a failure, in words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from callboard.simulations.faults import At, Plan, PowerCut
from callboard.simulations.history import History
from callboard.simulations.search.story import LINES_MAX, tell
from callboard.simulations.violations import Violation

COMMAND = "callboard simulate --repro x.failure"


def publish(history: History, count: int) -> None:
    """Publishes of messages 0 to `count` - 1, each stored."""
    history.booted(1)
    for number in range(count):
        history.message(b"%d" % number)
        history.record(1, "publish", "p0", number, "orders", 0, ids=(number,), detail="all")
        history.record(
            1, "published", "p0", number, "orders", 0, ids=(number,), offsets=(number,), detail="all"
        )


def test_a_short_history_is_told_whole(made: Callable[..., Any]) -> None:
    """Title, faults with their effects, every entry, and one command."""
    run = made(
        ValueError("no"), seed=9, plan=Plan((PowerCut(At(1.5)),)), hits={0: 1}, tell=lambda h: publish(h, 3)
    )
    text = tell(run, COMMAND, "shop").text()
    assert text.splitlines()[0] == "shop, seed 9: broken promise: raised: ValueError"
    assert "power" in text
    assert "(once)" in text
    assert "machine 1 booted" in text
    assert "message 2" in text
    assert text.endswith(COMMAND)
    assert "left out" not in text


def test_of_a_long_history_what_concerns_the_failure_is_told(made: Callable[..., Any]) -> None:
    """Entries about the same message, and machines; what is left out is counted; the divergence is marked."""

    def history_of(history: History) -> None:
        publish(history, 500)
        history.ended(1, "power cut")
        history.booted(2)
        history.record(
            2, "delivered", "c0", 900, "orders", 0, "billing", ids=(250,), offsets=(250,), attempts=(1,)
        )

    run = made(tell=history_of)
    first = run.history.entries[-1]
    run.failure = Violation("settled stays settled", "message 250 came again", first)
    story = tell(run, COMMAND, "shop")
    told = [line for line in story.lines if line.number >= 0]
    assert [line.words for line in told if "message" in line.words] == [
        line.words for line in told if "250" in line.words
    ]
    assert any("power of machine 1 was cut" in line.words and line.is_fault for line in told)
    assert [line.number for line in told if line.is_divergence] == [first.number]
    left_out = sum(int(line.words.split()[0]) for line in story.lines if line.number < 0)
    assert left_out + len(told) == len(run.history.entries)
    assert ">>" in story.text()


def test_a_story_has_an_end(made: Callable[..., Any]) -> None:
    """Of a thousand restarts the closest ones are told."""

    def history_of(history: History) -> None:
        for machine in range(1, 1_000):
            history.booted(machine)
            history.ended(machine, "power cut")

    story = tell(made(KeyError("x"), tell=history_of), COMMAND, "shop")
    assert len([line for line in story.lines if line.number >= 0]) == LINES_MAX
    assert story.lines[-1].number == 1_997
