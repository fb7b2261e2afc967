"""SIGTERM over the whole tree of commands: each one is sent it in a test, or there is a reason why not.

The tree is walked, so a new command has to be named here.
"""

from __future__ import annotations

import re
import signal
from pathlib import Path
from typing import Any

import pytest

from callboard.cli.command_line import HIDDEN
from tests.cli.test_bad_arguments import COMMANDS
from tests.cli.test_dead_letters import returns  # noqa: F401 (a fixture)

HERE = Path(__file__).parent
TESTED = {
    "bench": "test_sigterm.py::test_a_command_that_is_terminated_leaves_nothing",
    "consume": "test_signals.py::test_following_ends",
    "dead-letters redrive": "test_every_command_ends.py::test_a_slow_redrive_ends",
    "demo": "test_sigterm.py::test_a_command_that_is_terminated_leaves_nothing",
    "publish": "test_signals.py::test_publishing_what_is_typed_ends",
    "rehearse": "test_signals.py::test_a_rehearsal_ends",
    "repair": "test_maintenance.py::test_a_repair_that_is_terminated_is_done_by_the_next",
    "replay": "test_replay.py::test_it_is_interrupted_and_continued",
    "simulate": "test_signals.py::test_a_search_ends_with_its_workers",
    "workload generate": "test_workload.py::test_a_job_that_is_interrupted_while_it_writes_leaves_nothing",
}
"""Each command that goes on until it is ended, or for long, and where it is ended."""
REASONS = {
    "asks the runtime, or opens it, for one answer or one change; the way is that of `dead-letters redrive`": (
        *("dead-letters count", "dead-letters list", "dead-letters purge"),
        *("delayed cancel", "delayed count", "delayed list"),
        *(
            "group alter",
            "group delete",
            "group describe",
            "group list",
            "group pause",
            "group reset",
            "group resume",
            "group seek",
        ),
        *(
            "schedule add",
            "schedule list",
            "schedule next",
            "schedule pause",
            "schedule remove",
            "schedule resume",
        ),
        *("stats", "topic alter", "topic create", "topic delete", "topic describe", "topic list", "tree"),
    ),
    "reads files, in trio as `consume` does, and writes nothing": (
        *("peek", "recording head", "recording info", "recording verify", "verify"),
    ),
    "makes a folder that gets its name when it is whole; cancelled or killed before, tests/api/recordings tell": (
        *("record", "recording cut", "recording merge"),
    ),
    "computes in a world in memory, in the process of the command, and writes nothing": ("simulate replay",),
    "is a job on Spark, which ends as `workload generate` does": (
        *(
            "workload analyse",
            "workload compare",
            "workload import",
            "workload pipeline",
            "workload profile",
            "workload rescale",
        ),
    ),
}
"""Why a command needs no test of its own."""


def test_each_command_is_ended_in_a_test_or_has_a_reason() -> None:
    """None is missing, none is named twice, and none is named that is not there."""
    excused = [name for names in REASONS.values() for name in names]
    assert sorted([*TESTED, *excused]) == sorted(COMMANDS)
    assert HIDDEN == {"demo-child", "simulate-worker"}, "ended by the tests of `demo` and `simulate`"


@pytest.mark.parametrize("name", TESTED)
def test_the_test_is_there(name: str) -> None:
    """It sends the signal, or takes it as a parameter, to the command."""
    file, _, function = TESTED[name].partition("::")
    text = (HERE / file).read_text(encoding="utf-8")
    assert "SIGTERM" in text
    assert re.search(rf"^(async )?def {function}\(", text, re.MULTILINE)
    assert all(f'"{word}"' in text for word in name.split())


def test_a_slow_redrive_ends(returns: Any) -> None:  # noqa: F811
    """What it has redriven stays so, and the next redrive does the rest."""
    before = len(returns.run("consume", "orders").lines)
    running = returns.start("dead-letters", "redrive", "returns", "--rate", "0.001")
    while len(returns.run("consume", "orders").lines) == before:
        assert running.process.poll() is None, running.end()
    found = running.end(signal.SIGTERM)
    assert (found.code, "Traceback" in found.err) == (143, False)
    assert returns.run("dead-letters", "redrive", "returns", "--json").json["messages"] == 2
    assert len(returns.run("consume", "orders").lines) == before + 3
