"""`callboard workload`: what goes wrong is told in one message, and the jobs run in one process with a session."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from callboard.cli import exits

COMMAND = str(Path(sys.executable).with_name("callboard"))


def test_the_jobs_are_listed(command: Any) -> None:
    """The group names its jobs without starting Spark."""
    assert {b"import", b"profile", b"generate"} <= {
        line.split()[0] for line in command.run("workload", "--help").lines if line.strip()
    }


@pytest.mark.usefixtures("spark_packages")
def test_without_java_the_command_says_what_to_install(command: Any) -> None:
    """A job without a Java ends at once, with advice, and writes nothing."""
    (command.folder / "a.log").write_bytes(b"x\n")
    environment = {"PATH": str(command.folder), "HOME": str(command.folder)}
    for more, advice in (({}, "Install Java 17"), ({"JAVA_HOME": "/nowhere"}, "Correct or unset JAVA_HOME")):
        done = subprocess.run(
            [COMMAND, "workload", "import", "a.log", "--out", "r"],
            cwd=command.folder,
            env=environment | more,
            capture_output=True,
            check=False,
        )
        assert done.returncode == exits.USAGE
        assert advice in done.stderr.decode()
        assert "Traceback" not in done.stderr.decode()
    assert [path.name for path in command.folder.iterdir()] == ["a.log"]


def test_places_are_checked_before_spark_starts(command: Any) -> None:
    """A profile that could not be written is refused before any work."""
    found = command.run("workload", "profile", "r", "--out", "no/such/folder.json", code=exits.FAILED)
    assert "cannot be written" in found.err
    found = command.run("workload", "profile", "r", "--out", "p", "--report", "p", code=exits.USAGE)
    assert "Name two" in found.err


@pytest.mark.usefixtures("spark_packages")
def test_a_log_becomes_a_recording_a_profile_and_a_larger_recording(command: Any) -> None:
    """The jobs run from the command line, one after the other, and say what they did as JSON."""
    lines = [
        b'h%d - - [01/Aug/1995:00:00:%02d +0000] "GET / HTTP/1.0" 200 7' % (second % 3, second)
        for second in range(60)
    ]
    (command.folder / "a.log").write_bytes(b"\n".join([*lines, b"broken"]))
    job = ("--master", "local[1]", "--json")
    imported = command.run("workload", "import", "a.log", "--out", "r", "--partitions", "2", *job).json
    assert (imported["records"], imported["bad"], imported["kept_aside"]) == (60, 1, "r.bad.jsonl")
    assert json.loads((command.folder / "r.bad.jsonl").read_bytes())["text"] == "broken"
    info = command.run("recording", "info", "r", "--json").json
    assert info["records"] == 60
    measured = command.run("workload", "profile", "r", "--out", "p.json", "--report", "p.html", *job).json
    assert (measured["events"], measured["recording"]) == (60, imported["digest"])
    assert json.loads((command.folder / "p.json").read_bytes())["key_top"] == [20, 20, 20]
    assert b"<svg" in (command.folder / "p.html").read_bytes()
    scaled = ("--scale", "3", "--seed", "7", "--event", "silence@00:00:30,for=10")
    made = command.run("workload", "generate", "p.json", "--out", "g", *scaled, *job).json
    assert made["records"] == 3 * 50
    info = command.run("recording", "info", "g", "--json").json
    assert (info["id"], info["keys"], info["partitions"]) == (made["digest"], 3, 2)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--scale", "0"), "--scale is '0', and is to be a number above 0"),
        (("--scale", "-1"), "--scale is '-1'"),
        (("--scale", "nan"), "--scale is 'nan'"),
        (("--burst", "2/3"), "whole number, or 1/2"),
        (("--weight", "x"), "--weight is 'x'"),
        ((), "p.json cannot be read"),
    ],
)
def test_a_generation_that_cannot_be_is_refused_before_spark_starts(
    command: Any, options: tuple[str, ...], words: str
) -> None:
    """In one message, and nothing is written."""
    found = command.run("workload", "generate", "p.json", "--out", "g", *options, code=exits.USAGE)
    assert words in " ".join(found.err.split())
    assert not list(command.folder.iterdir())
