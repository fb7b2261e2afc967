"""`callboard workload`: what goes wrong is told in one message, and the jobs run in one process with a session."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from callboard.cli import exits

PROFILE: dict[str, Any] = {
    "format": "callboard-profile",
    "version": 1,
    "events": 8,
    "start_us": 1_000_000_000,
    "span_us": 7_000_000,
    "time_step_us": 1_000_000,
    "bucket_us": 1_000_000,
    "bucket_counts": [1] * 8,
    "sub_buckets": [[[1, 1]]] * 8,
    "burst": [[1, 8]],
    "arrival_log2_us": [[20, 7]],
    "key_top": [],
    "key_tail": {"keys": 0, "events": 0},
    "keyless": 8,
    "key_bytes": [],
    "gap_log2_us": [],
    "session_idle_us": 1_800_000_000,
    "session_events": [],
    "session_log2_us": [],
    "value_bin_bytes": 16,
    "value_bytes": [[2, 8]],
    "value_total_bytes": 300,
    "partitions": 1,
    "recording": None,
}
"""An event a second, without keys."""
COMMAND = str(Path(sys.executable).with_name("callboard"))


def test_the_jobs_are_listed(command: Any) -> None:
    """The group names its jobs without starting Spark."""
    assert {b"import", b"profile", b"rescale", b"generate", b"compare", b"analyse", b"pipeline"} <= {
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


@pytest.mark.usefixtures("spark_packages")
def test_a_name_that_is_taken_is_refused_before_spark_starts(command: Any) -> None:
    """So is a file that is not there: where there is no Java, the message is of the name and not of Java."""
    (command.folder / "a.log").write_bytes(b"x\n")
    (command.folder / "r").mkdir()
    (command.folder / "p.json").write_text(json.dumps(PROFILE))
    for arguments, words in (
        (["import", "a.log", "--out", "r"], "is there already"),
        (["import", "b.log", "--out", "new"], "no traffic to read at b.log"),
        (["generate", "p.json", "--out", "r"], "is there already"),
    ):
        done = subprocess.run(
            [COMMAND, "workload", *arguments],
            cwd=command.folder,
            env={"PATH": str(command.folder), "HOME": str(command.folder)},
            capture_output=True,
            check=False,
        )
        assert done.returncode == exits.USAGE
        assert words in " ".join(done.stderr.decode().split())
        assert b"Java" not in done.stderr


def test_places_are_checked_before_spark_starts(command: Any) -> None:
    """A profile that could not be written is refused before any work."""
    found = command.run("workload", "profile", "r", "--out", "no/such/folder.json", code=exits.FAILED)
    assert "cannot be written" in found.err
    found = command.run("workload", "profile", "r", "--out", "p", "--report", "p", code=exits.USAGE)
    assert "Name two" in found.err


@pytest.mark.usefixtures("one_java")
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
    assert (info["id"], info["keys"], info["partitions"]) == (made["digest"], 9, 2)
    rescaled = command.run(
        "workload", "rescale", "r", "--out", "s", "--scale", "2.5", "--values", "scrub", *job
    ).json
    assert (rescaled["out"], rescaled["records"] in range(120, 181)) == ("s", True)
    info = command.run("recording", "info", "s", "--json").json
    assert (info["id"], info["keys"], info["source"]["scale"]) == (
        rescaled["digest"],
        rescaled["keys"],
        "5/2",
    )
    assert b"GET" not in command.run("recording", "head", "s").out


@pytest.mark.usefixtures("one_java")
def test_a_log_with_the_newest_line_first_is_told_and_the_window_that_it_needs(command: Any) -> None:
    """A program's log, whose lines begin with a time. With that window all lines are records."""
    lines = [f"2026-05-{day:02d} 12:00:00,250 INFO job{day % 3} ended" for day in range(20, 0, -1)]
    (command.folder / "a.log").write_text("\n".join(lines))
    job = ("workload", "import", "a.log", "--key-column", "2", "--master", "local[1]", "--json")
    first = command.run(*job, "--out", "r")
    assert (first.json["records"], first.json["too_late"], first.json["format"]) == (1, 19, "timed")
    assert "19 lines of 20 are earlier" in " ".join(first.err.split())
    window_s = str(19 * 86_400)
    assert f"--window {window_s}" in " ".join(first.err.split())
    again = command.run(*job, "--out", "s", "--window", window_s)
    assert (again.json["records"], again.json["late"], again.err) == (20, 19, "")
    assert command.run("recording", "info", "s", "--json").json["keys"] == 3


@pytest.mark.usefixtures("one_java")
def test_a_profile_of_a_few_seconds_is_reported_as_poor(command: Any) -> None:
    """What is generated from it has other queues."""
    (command.folder / "a.log").write_text(
        "".join(f"2026-05-01 12:00:0{number // 400} x\n" for number in range(1_200))
    )
    job = ("--master", "local[1]", "--json")
    command.run("workload", "import", "a.log", "--out", "r", *job)
    measured = command.run("workload", "profile", "r", "--out", "p.json", *job)
    assert measured.json["events"] == 1_200
    assert "r is known in 3 buckets only" in " ".join(measured.err.split())


@pytest.mark.usefixtures("one_java")
def test_the_records_may_lie_within_an_object(command: Any) -> None:
    """As in GeoJSON; a member that is not there is named."""
    features = [{"properties": {"time": second, "id": f"q{second}"}} for second in range(5)]
    (command.folder / "a.json").write_text(
        json.dumps({"type": "FeatureCollection", "features": features, "x": [1]})
    )
    columns = ("--time-column", "properties.time", "--key-column", "properties.id", "--master", "local[1]")
    job = ("workload", "import", "a.json", *columns)
    made = command.run(*job, "--records", "features", "--out", "r", "--json").json
    assert (made["lines"], made["records"], made["bad"]) == (5, 5, 0)
    refused = command.run(*job, "--records", "feature", "--out", "s", code=exits.USAGE)
    assert "a.json holds no JSON object with an array 'feature'" in " ".join(refused.err.split())


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


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--scale", "0"), "--scale is '0', and is to be a number above 0"),
        (("--scale", "200000"), "at most 100,000 times"),
        (("--partitions", "0"), "a recording has 1 to"),
        (("--shift", "-1"), "--shift"),
        (("--values", "hide"), "'keep', 'scrub'"),
        ((), "r is no recording"),
    ],
)
@pytest.mark.usefixtures("spark_packages")
def test_a_rescaling_that_cannot_be_is_refused_before_spark_starts(
    command: Any, options: tuple[str, ...], words: str
) -> None:
    """In one message, and nothing is written."""
    found = command.run("workload", "rescale", "r", "--out", "s", *options, code=None)
    assert found.code in (exits.USAGE, exits.FAILED)
    assert words in " ".join(found.err.split())
    assert not list(command.folder.iterdir())
    (command.folder / "s").mkdir()
    found = command.run("workload", "rescale", "r", "--out", "s", code=exits.USAGE)
    assert "s is there already" in " ".join(found.err.split())


def test_profiles_are_compared_without_spark(command: Any) -> None:
    """Two profiles need no Java; the exit code says whether they are alike, and JSON says how far they are apart."""
    (command.folder / "a.json").write_text(json.dumps(PROFILE))
    same = command.run("workload", "compare", "a.json", "a.json", "--json").json
    assert (same["is_alike"], {each["distance"] for each in same["distances"]}) == (True, {0.0, None})
    other = PROFILE | {"value_bytes": [[9, 8]], "value_total_bytes": 8 * 150}
    (command.folder / "b.json").write_text(json.dumps(other))
    arguments = ("workload", "compare", "a.json", "b.json")
    found = command.run(*arguments, "--json", "--report", "c.html", code=exits.DIFFERENT).json
    assert found["verdict"].startswith("Different in value bytes: a distance is above 0.1. Alike in rate")
    assert [each["name"] for each in found["distances"] if each["verdict"] == "different"] == ["value_bytes"]
    assert (command.folder / "c.html").read_bytes().count(b"<svg") == 14
    shown = command.run(*arguments, code=exits.DIFFERENT)
    assert b"Different in value bytes" in shown.out
    assert command.run(*arguments, "--ignore", "value_bytes", "--json").json["is_alike"]
    assert command.run(*arguments, "--threshold", "1", "--json").json["is_alike"]


def test_what_cannot_be_compared_is_refused(command: Any) -> None:
    """Missing and wrong files, an empty recording, and a report in the place of a profile end with one message."""
    (command.folder / "a.json").write_text(json.dumps(PROFILE))
    (command.folder / "log").write_text("no profile")
    lists = {name: [] for name, value in PROFILE.items() if isinstance(value, list)}
    numbers = dict.fromkeys(("events", "start_us", "span_us", "keyless", "value_total_bytes"), 0)
    empty = PROFILE | lists | numbers | {"key_tail": {"keys": 0, "events": 0}}
    (command.folder / "empty.json").write_text(json.dumps(empty))
    for other, words in (
        (("missing.json",), "missing.json cannot be read: No such file"),
        (("log",), "not JSON"),
        (("empty.json",), "second recording holds no events"),
        (("a.json", "--report", "a.json"), "report would replace a.json"),
        (("a.json", "--threshold", "2"), "0<=x<=1"),
        (("a.json", "--threshold", "nan"), "not a finite number"),
        (("a.json", "--ignore", "speed"), "speed"),
    ):
        found = command.run("workload", "compare", "a.json", *other, code=exits.USAGE)
        assert words in found.err


@pytest.mark.usefixtures("one_java")
def test_a_recording_is_compared_with_its_profile_and_deliveries_are_analysed(orders: Any) -> None:
    """Both jobs run from the command line on what other commands made."""
    lines = b"".join(b"%d\n" % number for number in range(40))
    orders.run("publish", "orders", stdin=lines)
    orders.run("consume", "orders", "--group", "billing", "--durable", "--max", "30")
    orders.run("record", "--topic", "orders", "--out", "r")
    job = ("--master", "local[1]", "--json")
    done = orders.run("workload", "profile", "r", "--out", "p.json", "--bucket", "1", *job)
    assert done.err == "", "what Spark says by itself is not for standard error"
    found = orders.run("workload", "compare", "r", "p.json", "--bucket", "1", *job).json
    assert {each["distance"] for each in found["distances"]} <= {0.0, None}
    assert found["is_alike"]
    assert (found["rows"], found["queues"]) == ([], [])
    assert "Name recordings" in found["notes"][-1]
    same = orders.run("workload", "compare", "r", "r", "--report", "c.html", *job).json
    assert [len(same["rows"]), len(same["queues"])] == [10, 6]
    assert {each["verdict"] for each in (*same["rows"], *same["queues"])} <= {"alike", "not judged"}
    assert same["is_alike"]
    assert b"8 workers, order per key, 80 % load" in (orders.folder / "c.html").read_bytes()
    analysed = orders.run("workload", "analyse", "data", "--out", "a.json", "--report", "a.html", *job).json
    assert analysed == json.loads((orders.folder / "a.json").read_bytes())
    (billing,) = analysed["topics"]
    assert (billing["topic"], billing["group"], billing["redelivered"]) == ("orders", "billing", 0)
    assert (billing["records"]["acked"], billing["records"]["pending"]) == (30, 10)
    assert (orders.folder / "a.html").read_bytes().count(b"<svg") == 5
    table = orders.run("workload", "analyse", "data", "--group", "billing", "--master", "local[1]")
    assert b"orders/1" in table.out


@pytest.mark.usefixtures("one_java")
def test_what_cannot_be_analysed_is_refused(orders: Any) -> None:
    """A folder that is none, or no runtime's, is told before Spark starts; so is a place that cannot be written."""
    for arguments, code, words in (
        (("nowhere",), exits.FAILED, "there is no directory nowhere"),
        ((".",), exits.FAILED, "holds no topics"),
        (("data", "--out", "no/such/file"), exits.FAILED, "cannot be written"),
        (("data", "--out", "x", "--report", "x"), exits.USAGE, "Name two"),
    ):
        assert words in orders.run("workload", "analyse", *arguments, code=code).err
    for arguments, words in (
        (("--topic", "order"), "Did you mean 'orders'"),
        (("--group", "bill"), "no group 'bill'"),
    ):
        found = orders.run(
            "workload", "analyse", "data", *arguments, "--master", "local[1]", code=exits.FAILED
        )
        assert words in found.err


@pytest.mark.usefixtures("spark_and_java")
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, exits.INTERRUPTED), (signal.SIGTERM, exits.TERMINATED)]
)
def test_a_job_that_is_interrupted_while_it_writes_leaves_nothing(
    command: Any, number: signal.Signals, code: int
) -> None:
    """Neither a recording, nor the beginning of one, nor a traceback."""
    (command.folder / "p.json").write_text(json.dumps(PROFILE))
    # 800,000 events: writing them takes seconds, and the signal comes some hundredths after the first.
    running = command.start("workload", "generate", "p.json", "--out", "r", "--scale", "100000")
    while not list(command.folder.glob("r.unfinished/*/*.log")):
        with pytest.raises(subprocess.TimeoutExpired):  # it has not ended
            running.process.wait(timeout=0.01)
    running.process.send_signal(number)
    _, told = running.process.communicate(timeout=120)
    assert running.process.returncode == code
    assert b"Traceback" not in told, told
    assert [path.name for path in command.folder.iterdir()] == ["p.json"]
