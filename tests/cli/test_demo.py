"""The demo, whole, through the installed command: it kills a process of its own and its account balances."""

import csv
import gzip
import json
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

CALLBOARD = pathlib.Path(sys.executable).with_name("callboard")
TIMEOUT_S = 300


@pytest.fixture
def demo(tmp_path, forking):
    """Runs `callboard demo` with these arguments, away from the project's folder; returns the finished process."""

    def run(*arguments):
        command = [str(CALLBOARD), "demo", *map(str, arguments)]
        done = forking.run(command, cwd=tmp_path, timeout=TIMEOUT_S)
        return subprocess.CompletedProcess(
            command, done.returncode, done.stdout.decode(), done.stderr.decode()
        )

    return run


def _account(finished):
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return json.loads(finished.stdout)


def _check(summary, events):
    account = summary["account"]
    assert account["balanced"]
    assert account["problems"] == []
    assert account["events"] == account["acknowledged_publishes"] == events
    assert account["stored"] == events + account["stored_twice"] + account["redriven"]
    assert account["stored"] == account["handled"] + account["dead_lettered"]
    assert account["dead_lettered"] == account["redriven"] > 0
    assert account["dead_lettered"] == account["dead_rejected"] + account["dead_failed"]
    reasons = [name for name in account if name.startswith("redelivered_")]
    assert sum(account[name] for name in reasons) == account["redelivered"]
    assert account["delivered"] == account["stored"] + account["redelivered"]
    assert account["delayed"] > 0
    for counter in (
        "lost",
        "altered",
        "out_of_order",
        "delivered_after_acknowledgement",
        "delayed_early",
        "unsettled",
        "still_delayed",
        "still_dead",
    ):
        assert account[counter] == 0
    assert account["acknowledged"] + account["acknowledged_in_doubt"] == account["handled"]
    return account


def test_a_synthetic_day_balances(demo, tmp_path):
    """Messages are delayed, retried, given up and redriven, actors crash, a process is killed, and nothing is lost."""
    account = _check(_account(demo("--events", 1500, "--seed", 7, "--json")), 1500)
    assert account["redelivered_after_failure"] > 0
    assert account["dead_rejected"] >= 2
    assert account["dead_failed"] >= 1
    assert account["crashes"] > 0
    assert account["restarts"] > 0
    assert 750 < account["published_before_kill"] < 1500
    assert account["handled_ms_p99"] >= account["handled_ms_p50"] > 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("events", [2, 3, 5, 12])
def test_a_handful_of_events_balances_too(demo, events):
    """Where nothing is left in mid-flight, the child is killed when it has published what it was to."""
    account = _check(_account(demo("--events", events, "--json", "--quiet")), events)
    assert account["published_before_kill"] < events


def test_the_whole_recorded_log_balances(demo, nasa_log):
    """All 30,969 real requests, byte for byte."""
    summary = _account(demo("--input", nasa_log, "--json", "--quiet"))
    _check(summary, 30_969)
    assert summary["bad_lines"] == 0


def test_people_get_progress_and_a_table(demo):
    """Without --json: progress on standard error, the account as a table on standard output."""
    finished = demo("--events", 200, "--partitions", 2, "--workers", 3)
    assert finished.returncode == 0, finished.stderr
    killed = re.search(r"was killed after (\d+) of 100 publishes", finished.stderr)
    assert killed is not None
    assert 0 < int(killed[1]) < 100
    assert "The account balances." in finished.stdout
    assert "out of order within a key" in finished.stdout
    assert "dead letters delivered again" in finished.stderr
    assert max(map(len, finished.stdout.splitlines())) <= 80


def test_a_compressed_access_log_is_real_traffic_too(demo, tmp_path):
    """A gzip file in the common log format, one line of it broken."""
    lines = [
        f'h{n % 7}.net - - [01/Aug/1995:00:00:{n % 60:02} +0000] "GET /{n} HTTP/1.0" 200 1'
        for n in range(120)
    ]
    lines.insert(60, "broken")
    path = tmp_path / "access.log.gz"
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
    summary = _account(demo("--input", path, "--json", "--quiet"))
    _check(summary, 120)
    assert summary["bad_lines"] == 1
    assert summary["bad_lines_named"][0][0] == 61


def test_columns_are_named_by_options(demo, tmp_path):
    """A CSV file with columns of its own; the value column alone is published; a directory of one's own is kept."""
    path = tmp_path / "orders.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["happened", "customer", "order"])
        writer.writerows(
            [f"2024-05-01T10:00:{n % 60:02}", f"c{n % 5}", f'order "{n}", large'] for n in range(80)
        )
    directory = tmp_path / "work"
    options = ["--time-column=happened", "--key-column=customer", "--value-column=order", "--format=csv"]
    summary = _account(demo("--input", path, *options, "--directory", directory, "--json", "--quiet"))
    _check(summary, 80)
    assert (directory / "data").is_dir()
    shutil.rmtree(directory)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--input", "missing.log"], "there is no file missing.log"),
        (["--input", "."], "cannot be read"),
        (["--input", "binary"], "is not text"),
        (["--input", "empty"], "0 events"),
        (["--input", "words"], "not recognised"),
        (["--input", "torn.gz"], "cannot be read"),
        (["--input", "table.csv", "--key-column=user"], "no column 'user'"),
        (["--directory", "full"], "not empty"),
        (["--events", "1"], "--events"),
    ],
)
def test_mistakes_are_told_in_a_sentence(demo, tmp_path, arguments, words):
    """A file or directory that cannot be used ends the command with a message, not a traceback."""
    (tmp_path / "binary").write_bytes(b"\x00" * 100)
    (tmp_path / "empty").touch()
    (tmp_path / "words").write_text("hello\nworld\n")
    (tmp_path / "torn.gz").write_bytes(gzip.compress(b"time,host\n" + b"1,a\n" * 99)[:-12])
    (tmp_path / "table.csv").write_text("time,host\n1,a\n2,b\n")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    finished = demo(*arguments)
    assert finished.returncode not in (0, 3)
    assert words in finished.stderr
    assert "Traceback" not in finished.stderr
