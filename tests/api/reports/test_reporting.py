"""What a runtime on a real directory tells to `logging`."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

import callboard
from callboard.actors import notices
from callboard.actors.kernel import events
from callboard.reports.floods import KINDS_MAX, Floods
from callboard.reports.lines import LINES
from callboard.reports.reporting import Reporter
from callboard.supervision import Backoff, ChildSpec


def told(caplog: Any, level: int) -> list[str]:
    """The lines of a level."""
    return [record.getMessage() for record in caplog.records if record.levelno == level]


async def test_a_worker_that_crashes_is_told_of(tmp_path: Path, caplog: Any) -> None:
    """Each crash is a warning with path and cause; giving up is an error that says what to do; frames are for debug."""
    caplog.set_level(logging.DEBUG, logger="callboard")
    failed = trio.Event()

    async def migration(context: callboard.Context) -> None:
        raise LookupError("there is no such table")

    def hear(event: Any) -> None:
        if isinstance(event, events.ActorFailed):
            failed.set()

    async with callboard.open_runtime(tmp_path / "data", on_event=hear) as runtime:
        spec = ChildSpec(
            name="migration",
            start=migration,
            significant=False,
            intensity=2,
            backoff=Backoff(initial=0.001, maximum=0.001),
        )
        await runtime.spawn(spec)
        await failed.wait()
    warnings = [line for line in told(caplog, logging.WARNING) if line.startswith("user/migration crashed")]
    assert len(warnings) == 2  # the third is told by the error
    assert all("It is restarted in 0.00" in line for line in warnings)
    assert "LookupError: there is no such table" in warnings[0]
    (error,) = told(caplog, logging.ERROR)
    assert "runtime.restart('user/migration')" in error
    assert "LookupError: there is no such table, at test_reporting.py:" in error
    record = next(each for each in caplog.records if each.levelno == logging.ERROR)
    assert record.name == "callboard.actors"
    assert record.callboard["event"] == "ActorFailed"
    assert record.callboard["path"] == "user/migration"


async def test_damage_is_a_warning_once(tmp_path: Path, caplog: Any) -> None:
    """A damaged segment is told with its path and offsets when it is found, and is no news at the next opening."""
    caplog.set_level(logging.INFO, logger="callboard")
    async with callboard.open_runtime(tmp_path / "data") as runtime:
        topic = await runtime.create_topic("orders")
        for value in (b"one", b"two", b"three"):
            await topic.publish(value)
    (segment,) = (tmp_path / "data" / "topics").glob("*/0/*.log")
    stored = bytearray(segment.read_bytes())
    at = stored.index(b"two")
    stored[at] ^= 1
    segment.write_bytes(stored)
    for opening in range(2):
        caplog.clear()
        async with callboard.open_runtime(tmp_path / "data") as runtime:
            assert [record.offset async for record in runtime.topic("orders").read()] == [0, 2]
        warnings, notes = (
            [line for line in told(caplog, level) if "damaged" in line]
            for level in (logging.WARNING, logging.INFO)
        )
        (line,) = notes if opening else warnings
        assert segment.name in line
        assert "offsets 1 to 1 are lost" in line
        assert not (warnings if opening else notes)


async def test_nothing_is_told_from_a_simulation(autojump_clock: Any, world: Any, caplog: Any) -> None:
    """A runtime on a disk of its own making keeps its events to itself."""
    caplog.set_level(logging.DEBUG, logger="callboard")
    async with world.open() as runtime:
        await runtime.create_topic("orders")
        runtime.crash("topics/orders/0", RuntimeError("a drill"))
        await trio.sleep(1.0)
    assert caplog.records == []


EXAMPLES: dict[Any, Any] = {
    "stamp_us": 7_200_000_000,
    "now_us": 0,
    "after_s": 1.5,
    "producer_id": 7,
    "delay_s": 1.5,
    "rebalance_timeout": 1.5,
    "session_timeout": 1.5,
    "frames": ("a.py:1 in a",),
    "damages": ("offset 3",),
    "restarts": (("user/a", 2), ("user/b", 1)),
}


@pytest.mark.parametrize(
    "key",
    [key for key in LINES if not isinstance(key, tuple) or key[0] is not events.IncarnationCrashed],
    ids=str,
)
def test_every_line_can_be_written(key: Any, caplog: Any) -> None:
    """Each event that is reported has the fields that its line names, and says nothing of those that it lacks."""
    caplog.set_level(logging.DEBUG, logger="callboard")
    kind, *flags = key if isinstance(key, tuple) else (key,)
    names = [field.name for field in attrs.fields(kind)]
    values = {name: EXAMPLES.get(name, f"<{name}>") for name in names}
    if flags:
        values[names[-1]] = flags[0]
    Reporter(lambda: 0.0).report(kind(**values))
    record = caplog.records[0]
    assert record.name == f"callboard.{LINES[key].logger}"
    assert "{" not in record.getMessage()
    lacking = values | {field.name: None for field in attrs.fields(kind) if "None" in str(field.type)}
    Reporter(lambda: 0.0).report(kind(**lacking))
    assert "None" not in caplog.records[-1].getMessage()


def test_every_notice_is_told() -> None:
    """Whatever the broker puts into the event log for people has a line."""
    kinds = {kind for kind in vars(notices).values() if isinstance(kind, type) and attrs.has(kind)}
    lines = {key[0] if isinstance(key, tuple) else key for key in LINES}
    assert kinds == {kind for kind in lines if kind.__module__ == notices.__name__}


def test_what_spark_logs_in_a_job_goes_nowhere() -> None:
    """Neither the root's own records nor those of py4j's loggers; others are seen."""
    code = (
        "import logging; from callboard.reports.reporting import mute_spark; mute_spark();"
        "logging.error('of the root'); logging.getLogger('py4j.clientserver').error('of py4j');"
        "logging.getLogger('callboard.groups').warning('of ours')"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ["WARNING:callboard.groups:of ours"] == told.stderr.splitlines()


def test_a_flood_is_told_in_few_lines(caplog: Any) -> None:
    """Five lines of one event at one place a minute; the next one says how many were left out, or closing does."""
    now = 0.0
    reporter = Reporter(lambda: now)
    for _ in range(100):
        reporter.report(events.ActorFailed(path="user/a", cause="no table"))
    reporter.report(events.ActorFailed(path="user/b", cause="no table"))
    assert [record.callboard["path"] for record in caplog.records] == ["user/a"] * 5 + ["user/b"]
    caplog.clear()
    now = 59.9
    reporter.report(events.ActorFailed(path="user/a", cause="no table"))
    assert caplog.records == []
    now = 60.0
    for _ in range(8):
        reporter.report(events.ActorFailed(path="user/a", cause="no table"))
    assert [record.callboard["left_out"] for record in caplog.records] == [96, 0, 0, 0, 0]
    assert "96 more such lines" in caplog.records[0].getMessage()
    caplog.clear()
    reporter.close()
    assert [record.getMessage() for record in caplog.records] == [
        "3 lines like the ones before were left out: 3 of user/a"
    ]


def test_counting_has_a_bound() -> None:
    """Each place counts for itself, and the one heard of longest ago is forgotten; what it left out is not."""
    floods = Floods()
    answers = [floods.admit(("crash", 0), 0.0) for _ in range(7)]
    assert answers == [0, 0, 0, 0, 0, None, None]
    assert all(floods.admit(("crash", place), 0.0) == 0 for place in range(1, KINDS_MAX))
    assert floods.admit(("crash", 0), 0.0) is None
    assert [floods.admit(("crash", place), 0.0) for place in range(KINDS_MAX, 2 * KINDS_MAX)] == [
        0
    ] * KINDS_MAX
    assert floods.left_out() == {None: 3}
    assert floods.admit(("crash", 0), 0.0) == 0


SILENT = {
    "ActorStarted": "the usual course",
    "CarriesException": "what events are made of",
    "UndeliveredMessage": "kept to be looked at; MessageDropped tells of full mailboxes",
    "Logged": "what holds an event in the log",
}
"""Events of the kernel that no line tells of, and why."""


def test_each_event_of_the_kernel_has_a_line_or_a_reason() -> None:
    """So that a new one is not silent unawares."""
    told = {key[0] if isinstance(key, tuple) else key for key in LINES}
    kinds = {kind for kind in vars(events).values() if isinstance(kind, type) and attrs.has(kind)}
    assert {kind.__name__ for kind in kinds - told} == set(SILENT)
