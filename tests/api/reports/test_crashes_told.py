"""How crashes and other failures of users' code are logged: what becomes of the actor, and the traceback."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import trio

import callboard
from callboard.actors.kernel import events
from callboard.log import limits
from callboard.reports.crashes import WaitingCrashes
from callboard.reports.reporting import Reporter
from callboard.reports.tracebacks import traceback_lines

FRAMES = ("Traceback (most recent call last):", "LookupError: no table")
CRASH = events.IncarnationCrashed("user/a", 1, "LookupError: no table.", FRAMES, "shop.py:4 in load")
CAUSE = "LookupError: no table, at shop.py:4 in load"


@pytest.mark.parametrize(
    ("decision", "level", "line"),
    [
        (
            events.ActorRestarted("user/a", 2, "", 0.25),
            "WARNING",
            f"crashed ({CAUSE}). It is restarted in 0.25 s.",
        ),
        (
            events.ActorEnded("user/a", ""),
            "WARNING",
            f"crashed ({CAUSE}). It has ended and is not restarted.",
        ),
        (events.ActorStarted("user/a", 2), "WARNING", f"crashed ({CAUSE}) while it was to stop."),
        (CRASH, "WARNING", f"crashed ({CAUSE}) while it was to stop."),
        (
            events.ActorFailed("user/a", CRASH.cause),
            "ERROR",
            f"allows and stays down ({CAUSE}). Repair the cause",
        ),
        (
            events.Escalated("user", "user/a", CRASH.cause),
            "ERROR",
            "the supervisor 'user' gave up: user/a failed",
        ),
        (events.Escalated("", "user/a", CRASH.cause), "ERROR", "the root supervisor gave up: user/a failed"),
        (
            events.Escalated("user", "user/a", CRASH.cause, (("user/b", 3), ("user/c", 2), ("user/a", 1))),
            "ERROR",
            "'user' gave up: 'user/b' (3), 'user/c' (2) and 'user/a' (1) together failed more often than it allows",
        ),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else "",
)
def test_a_crash_is_one_line_with_what_becomes_of_the_actor(
    caplog: Any, decision: Any, level: str, line: str
) -> None:
    """Nothing is told before the supervisor has decided; then one line has cause, place and decision."""
    caplog.set_level(logging.DEBUG, logger="callboard")
    reporter = Reporter(lambda: 0.0)
    reporter.report(CRASH)
    assert caplog.records == []
    reporter.report(decision)
    (told,) = [record for record in caplog.records if record.levelno >= logging.INFO]
    assert told.levelname == level
    assert line in told.getMessage()
    assert CAUSE in told.getMessage()
    assert (told.callboard["place"], told.callboard["frames"]) == (CRASH.place, FRAMES)
    traced = [record.getMessage() for record in caplog.records if "Traceback" in record.getMessage()]
    assert len(traced) == 1


def test_a_crash_that_nobody_decides_about_is_told_at_the_end(caplog: Any) -> None:
    """Those that wait are bounded; closing tells the others."""
    reporter = Reporter(lambda: 0.0)
    reporter.report(CRASH)
    reporter.close()
    (record,) = caplog.records
    assert "while it was to stop" in record.getMessage()
    waiting = WaitingCrashes()
    crashes = [
        events.IncarnationCrashed(f"user/{number}", 1, "", ())
        for number in range(limits.CRASHES_WAITING_MAX + 1)
    ]
    assert [waiting.add(crash) for crash in crashes] == [None] * limits.CRASHES_WAITING_MAX + [crashes[0]]
    assert waiting.take_all() == crashes[1:]


def test_a_traceback_has_its_chain_and_begins_at_the_users_code() -> None:
    """Source lines, both exceptions and what joins them; what is deeper than the user's frame stays."""

    def load() -> None:
        try:
            {}["table"]
        except KeyError as error:
            raise LookupError("no such table") from error

    async def body() -> None:
        load()

    with pytest.raises(LookupError) as caught:
        trio.run(body)
    lines = traceback_lines(caught.value)
    text = "\n".join(lines)
    assert '{}["table"]' in text
    assert "KeyError: 'table'" in text
    assert "direct cause" in text
    assert lines[-1] == "LookupError: no such table"
    assert "in body" in text


def test_a_traceback_is_bounded() -> None:
    """Of one that is too long the beginning and the end are kept; a group has those of its members."""

    def fall(depth: int) -> None:
        fall_further(depth)

    def fall_further(depth: int) -> None:
        if depth:
            fall(depth - 1)
        raise ValueError("x" * 3000)

    with pytest.raises(ValueError, match="x") as caught:
        fall(100)
    text = "\n".join(traceback_lines(caught.value))
    assert len(text) < limits.TRACEBACK_BYTES + 100
    assert text.startswith("Traceback")
    assert "bytes are left out" in text
    assert text.endswith("x" * 2000)
    group = ExceptionGroup("two", [ValueError("one"), ExceptionGroup("more", [LookupError("other")])])
    assert {"ValueError: one", "LookupError: other"} <= {line.strip(" |") for line in traceback_lines(group)}


async def test_tracebacks_of_actors_and_subscribers_are_debug_records(tmp_path: Path, caplog: Any) -> None:
    """With the chain and source lines, and without frames of Callboard; one record for each warning."""
    caplog.set_level(logging.DEBUG, logger="callboard")
    crashed = trio.Event()

    async def worker(context: callboard.Context[Any]) -> None:
        try:
            {}["table"]
        except KeyError as error:
            raise LookupError("no such table") from error

    def hear(event: Any) -> None:
        if isinstance(event, callboard.events.ActorRestarted):
            crashed.set()
            raise RuntimeError("no such gauge")

    async with callboard.open_runtime(tmp_path / "data", on_event=hear) as runtime:
        await runtime.spawn(worker)
        await crashed.wait()
    texts = [record.getMessage() for record in caplog.records if record.levelno == logging.DEBUG]
    crash = next(text for text in texts if text.startswith("user/worker crashed at:"))
    assert "KeyError: 'table'" in crash
    assert "raise LookupError" in crash
    assert "incarnation.py" not in crash
    hook = next(text for text in texts if text.startswith("a subscriber to events raised at:"))
    assert 'raise RuntimeError("no such gauge")' in hook
    assert "events.py" not in hook
