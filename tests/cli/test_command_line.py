"""What holds for all commands: help, exit codes, errors, looking at a running runtime."""

from __future__ import annotations

import os
import pathlib
import pty
import signal
import subprocess
import sys
from typing import Any

import pytest

from callboard.cli import exits
from callboard.cli.command_line import COMMANDS, HIDDEN
from callboard.cli.errors import code_of
from callboard.log import errors


def test_help_names_every_command(command: Any) -> None:
    """--help lists what there is and every command explains itself."""
    text = command.run("--help").out.decode()
    for name in set(COMMANDS) - HIDDEN:
        assert name in text
        assert command.run(name, "-h").out.startswith(b"Usage: callboard " + name.encode())
    assert b"callboard" in command.run("--version").out


def test_exit_codes_have_one_meaning_each() -> None:
    """Every constant has a meaning, and none shares its number."""
    codes = [value for name, value in vars(exits).items() if name.isupper() and isinstance(value, int)]
    assert sorted(codes) == sorted(exits.MEANINGS)


def test_errors_have_the_documented_codes() -> None:
    """The caller's mistakes are 2, damage 4, the lock 5, everything else 1."""
    expected = {
        errors.InvalidArgument: exits.USAGE,
        errors.ConfigurationError: exits.USAGE,
        errors.LogCorrupt: exits.DAMAGED,
        errors.DirectoryLocked: exits.LOCKED,
        errors.TopicNotFound: exits.FAILED,
        errors.DiskFull: exits.FAILED,
    }
    assert {kind: code_of(kind("x")) for kind in expected} == expected


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nosuch",), "`callboard --help`"),
        (("topic",), "Usage: callboard topic"),
        (("topic", "nosuch"), "`callboard topic --help`"),
        (("publish",), "`callboard publish --help`"),
        (("stats", "--no"), "`callboard stats --help`"),
    ],
)
def test_what_is_not_understood_is_a_usage_error(
    command: Any, arguments: tuple[str, ...], words: str
) -> None:
    """Exit code 2, one line that says where to read on, or the help of a group; nothing is written."""
    assert words in command.run(*arguments, code=2).err
    assert list(command.folder.iterdir()) == []


def test_a_running_runtime_is_looked_at_through_its_socket(orders: Any) -> None:
    """tree, stats and describe are answered by the process that has the directory open."""
    orders.run("publish", "orders", "a", "--partition", "0")
    running = orders.start("consume", "orders", "--group", "g", "-f")
    assert running.line() == b"a\n"
    assert oct((orders.folder / "data" / "control.sock").stat().st_mode & 0o777) == "0o600"
    text = orders.run("tree").out.decode()
    for part in ("runtime", "topics", "orders", "catalog", "groups", "running"):
        assert part in text
    assert orders.run("tree", "--json").json["name"] == "runtime"
    happened = orders.run("tree", "--json", "--events").json["events"]
    assert {"ActorStarted"} <= {event["kind"] for event in happened}
    assert b"ActorStarted" in orders.run("tree", "--events").out
    stats = orders.run("stats", "--json").json
    assert [group["name"] for group in stats["groups"]] == ["g"]
    assert b"orders/0" in orders.run("stats").out
    assert orders.run("topic", "describe", "orders", "--json").json["groups"][0]["members"] == 1
    unknown = orders.run("topic", "describe", "nosuch", code=1)
    assert "TopicNotFound" in unknown.err
    assert running.end(signal.SIGINT).code == 130
    assert not (orders.folder / "data" / "control.sock").exists()


def test_a_socket_that_a_killed_process_left_is_no_obstacle(orders: Any) -> None:
    """stats opens the directory itself then, tree says that nobody listens, and the next runtime listens anew."""
    orders.run("publish", "orders", "a")
    for _ in range(2):
        running = orders.start("consume", "orders", "--group", "g", "-f")
        assert running.line() == b"a\n"
        orders.run("tree")
        running.end(signal.SIGKILL)
        assert (orders.folder / "data" / "control.sock").is_socket()
        assert orders.run("stats", "--json").json["partitions"]
        assert "no runtime listens" in orders.run("tree", code=1).err


def test_a_deleting_person_is_asked(orders: Any) -> None:
    """On a terminal, `topic delete` asks first; no means no."""
    ours, theirs = pty.openpty()
    try:
        running = orders.start("topic", "delete", "orders", stdin=theirs)
        os.write(ours, b"n\n")
        done = running.end()
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.code == 1
    assert "Nothing was deleted" in done.err
    assert len(orders.run("topic", "list", "--json").json) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--only", "nothing"], "The lines are"),
        (["--in", "missing"], "missing"),
        (["--size", "300000"], "--size"),
    ],
)
def test_a_bench_that_cannot_be_is_refused(command: Any, arguments: list[str], words: str) -> None:
    """A line that does not exist, a folder that is missing, a value too large for a batch of 1,000."""
    told = command.run("bench", *arguments, code=2).err
    assert words in told
    assert "Traceback" not in told


@pytest.mark.parametrize("arguments", ["--help", "publish --help", "group seek --help", "--version"])
def test_help_that_cannot_be_printed_is_one_line(command: Any, arguments: str) -> None:
    """As every result that the disk has no room for."""
    found = command.shell(f"callboard {arguments} > /dev/full")
    assert found.code == exits.FAILED
    assert "standard output cannot be written" in found.err
    assert len(found.err.splitlines()) == 1


def test_no_summary_of_a_command_is_cut(command: Any) -> None:
    """A list of commands has the first sentence of each, whole, at 80 columns."""
    groups = ["", "dead-letters", "delayed", "group", "recording", "schedule", "topic", "workload"]
    for group in groups:
        lines = command.run(*group.split(), "--help").out.decode().splitlines()
        summaries = lines[lines.index("Commands:") + 1 :]
        assert [line for line in summaries if line.endswith("...")] == []
        assert max(map(len, summaries)) <= 80


def test_only_takes_the_names_in_the_table(command: Any) -> None:
    """What `bench` lists as its lines is what it prints."""
    refused = command.run("bench", "--only", "nothing", code=2)
    assert "consume in 1s with acks" in refused.err
    assert "end to end at 1,000 msg/s" in refused.err


def test_help_is_there_without_docstrings(tmp_path: pathlib.Path) -> None:
    """`python -OO` drops docstrings, and the help of commands, and of those below them, is read from their source."""
    for words, told in (
        ([], "Measure publishing"),
        (["topic"], "Create"),
        (["topic", "create"], "Create a topic."),
    ):
        done = subprocess.run(
            [sys.executable, "-OO", "-P", "-m", "callboard", *words, "--help"],
            cwd=tmp_path,
            capture_output=True,
            timeout=120,
            check=False,
            text=True,
        )
        assert (done.returncode, told in done.stdout) == (0, True), done.stderr[-2000:]
