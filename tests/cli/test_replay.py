"""`callboard replay`, as it is typed."""

from __future__ import annotations

import json
import shutil
import signal
from typing import Any

import pytest

RECORDS = 600


@pytest.fixture
def day(command: Any) -> Any:
    """A recording `day` of two partitions: 600 records in ten minutes, fifty users."""
    lines = [
        json.dumps(
            {
                "value": f"line {number}",
                "key": f"user-{number % 50}",
                "headers": {"n": str(number)},
                "timestamp": f"2026-11-21T00:{number // 60:02}:{number % 60:02}+00:00",
            }
        )
        for number in range(RECORDS)
    ]
    command.run("topic", "create", "web", "partitions=2", "-d", "source")
    command.run("publish", "web", "--json-lines", "-d", "source", stdin="\n".join(lines).encode())
    command.run("record", "source", "--topic", "web", "--out", "day")
    shutil.rmtree(command.folder / "source")
    return command


def held(command: Any, topic: str = "web") -> list[dict[str, Any]]:
    """What the topic in `data` holds."""
    (partitions,) = [
        row["partitions"]
        for row in command.run("topic", "list", "-d", "data", "--json").json
        if row["name"] == topic
    ]
    found: list[dict[str, Any]] = []
    for index in range(partitions):
        arguments = ("peek", topic, "-d", "data", "--max", "100000", "--json", "--partition", str(index))
        found += command.run(*arguments).documents
    return found


def test_a_recording_is_replayed_whole(day: Any) -> None:
    """With keys, headers and times, in partitions as it was; the second time there is nothing to do."""
    arguments = ("replay", "day", "--into", "data", "--topic", "web", "--speed", "max")
    report = day.run(*arguments, "--json").json
    assert (report["records"], report["is_resumed"], report["is_raw"]) == (RECORDS, False, True)
    records = held(day)
    assert sorted(record["value"] for record in records) == sorted(f"line {n}" for n in range(RECORDS))
    assert all(record["value"] == f"line {record['headers']['n']}" for record in records)
    assert all(record["timestamp"].startswith("2026-11-21T00:") for record in records)
    again = day.run(*arguments)
    assert "nothing was left to do" in again.err
    assert len(held(day)) == RECORDS


@pytest.mark.parametrize("names", [[], ["lock"]])
def test_a_folder_where_nothing_began_will_do(day: Any, names: list[str]) -> None:
    """Such as one that is left when the disk is full."""
    (day.folder / "data").mkdir()
    for name in names:
        (day.folder / "data" / name).touch()
    day.run("replay", "day", "--into", "data", "--topic", "web", "--speed", "max")
    assert len(held(day)) == RECORDS


def test_a_fast_pace_is_kept_and_its_error_told(day: Any) -> None:
    """Ten minutes in half a second."""
    arguments = ("replay", "day", "--into", "data", "--topic", "web", "--speed", "1200")
    report = day.run(*arguments, "--json").json
    assert report["records"] == report["lateness"]["records"] == RECORDS
    assert report["elapsed_s"] >= 599 / 1200
    out = day.run(*arguments[:-1], "600", "--passes", "2").out.decode()
    assert "lateness p50, p99, worst" in out
    assert "drift over the run" in out
    assert "held up by the log" in out


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_it_is_interrupted_and_continued(day: Any, number: signal.Signals, code: int) -> None:
    """By Ctrl-C, or as services are ended; another speed is the same replay."""
    running = day.start("replay", "day", "--into", "data", "--topic", "web", "--speed", "60")
    while not day.run("consume", "web", "-d", "data", code=None).lines:
        assert running.process.poll() is None
    found = running.end(number)
    assert found.code == code
    assert "The same command continues there" in found.err
    stored = len(held(day))
    assert 0 < stored < RECORDS
    report = day.run("replay", "day", "--into", "data", "--topic", "web", "--speed", "max", "--json").json
    assert (report["records"], report["is_resumed"]) == (RECORDS - stored, True)
    assert len({record["value"] for record in held(day)}) == len(held(day)) == RECORDS


def test_parts_are_replayed_by_time_and_key(day: Any) -> None:
    """Into a topic with other partitions."""
    day.run(
        *("replay", "day", "partitions=5", "--into", "data", "--topic", "web", "--speed", "max"),
        *(
            "--from",
            "2026-11-21T00:01:00",
            "--to",
            "2026-11-21T00:02:00",
            "--key",
            "user-1*",
            "--keys",
            "user-2",
        ),
    )
    records = held(day)
    wanted = {f"line {n}" for n in range(60, 120) if n % 50 in (1, 2, *range(10, 20))}
    assert {record["value"] for record in records} == wanted
    assert len({record["partition"] for record in records}) > 2


def test_a_part_of_the_keys_is_replayed_at_a_fixed_rate(day: Any) -> None:
    """Half of the keys with all of their records, in the order of time."""
    into = ("replay", "day", "--into", "data", "--topic", "web")
    report = day.run(*into, "--rate", "10000", "--fraction", "1/2", "--json").json
    records = held(day)
    keys = {record["key"] for record in records}
    assert len(records) == report["records"] == 12 * len(keys)
    assert 10 < len(keys) < 40
    assert "exclude each other" in day.run(*into, "--rate", "9", "--speed", "2", code=2).err
    assert "records per second" in day.run(*into, "--rate", "0", code=2).err
    assert "above 0 and at most 1" in day.run(*into, "--fraction", "2", code=2).err


@pytest.mark.parametrize("speed", ["0", "-1", "nan", "inf", "1e-300", "fast"])
def test_a_speed_that_is_no_pace_is_refused(day: Any, speed: str) -> None:
    """And nothing is made."""
    found = day.run("replay", "day", "--into", "data", "--topic", "web", "--speed", speed, code=2)
    assert "Nothing was written" in found.err
    assert [path.name for path in day.folder.iterdir()] == ["day"]


def test_what_is_no_sound_recording_is_refused(day: Any) -> None:
    """A missing segment, another digest, a newer version, none at all; no directory is made."""
    arguments = ("--into", "data", "--topic", "web", "--speed", "max")
    whole = day.folder / "day"
    for name, damage in {
        "missing": lambda folder: next(folder.glob("1/*.log")).unlink(),
        "digest": lambda folder: _flip(next(folder.glob("1/*.log"))),
        "version": lambda folder: _replace(folder / "recording.json", '"version": 1', '"version": 9'),
        "no recording": lambda folder: (folder / "recording.json").unlink(),
    }.items():
        shutil.copytree(whole, day.folder / name)
        damage(day.folder / name)
        found = day.run("replay", name, *arguments, code=1)
        assert found.err.startswith("callboard: ")
        assert not (day.folder / "data").exists(), name
    found = day.run("replay", "nowhere", *arguments, code=None)
    assert found.code
    assert not (day.folder / "data").exists()


def _flip(path: Any) -> None:
    data = bytearray(path.read_bytes())
    data[-500] ^= 1
    path.write_bytes(data)


def _replace(path: Any, old: str, new: str) -> None:
    path.write_text(path.read_text().replace(old, new, 1))


def test_wrong_settings_and_topics_are_refused(day: Any) -> None:
    """Before anything is made, or changed."""
    arguments = ("--into", "data", "--topic", "web", "--speed", "max")
    assert "allows 4" in day.run("replay", "day", "max_message_bytes=4", *arguments, code=2).err
    assert "partition" in day.run("replay", "day", "partition=4", *arguments, code=2).err
    assert "exclude" in day.run("replay", "day", *arguments, "--loop", "--passes", "2", code=2).err
    assert not (day.folder / "data").exists()
    day.run("topic", "create", "web", "partitions=3", "-d", "data")
    found = day.run("replay", "day", "partitions=4", *arguments, code=1)
    assert "TopicExists" in found.err
    assert held(day) == []


def test_a_recording_is_replayed_in_the_simulator(day: Any) -> None:
    """Ten minutes at their own pace, with faults; the same seed is the same run."""
    plan = {"callboard_plan": 1, "faults": [{"kind": "PowerCut", "when": {"at": 100.0}}]}
    (day.folder / "plan.json").write_text(json.dumps(plan))
    arguments = ("simulate", "replay", "day", "--faults", "plan.json", "--digest", "--json")
    found, again = (day.run(*arguments).json for _ in range(2))
    assert (found["records"], found["lives"], found["failure"]) == (RECORDS, 2, None)
    assert found["virtual_s"] > 599
    assert found == again
    shown = day.run("simulate", "replay", "day", "--random-faults", "--speed", "max", "--partitions", "3")
    assert b"600 as recorded, once each" in shown.out
    assert [path.name for path in day.folder.iterdir() if path.is_dir()] == ["day"]


def test_faults_aim_at_the_recorded_topic_and_idle_ones_are_told(day: Any) -> None:
    """One at the topic's partition hits; one at a topic that is not there, and one after the end, are listed."""
    faults = [
        {"kind": "CrashActor", "when": {"at": 100.0}, "path": "topics/web/1"},
        {"kind": "CrashActor", "when": {"at": 200.0}, "path": "topics/replayed/1"},
        {"kind": "PowerCut", "when": {"at": 99_000.0}},
    ]
    (day.folder / "plan.json").write_text(json.dumps({"callboard_plan": 1, "faults": faults}))
    found = day.run("simulate", "replay", "day", "--faults", "plan.json", "--json").json
    assert (found["topic"], found["faults"], found["failure"]) == ("web", {"CrashActor": 1}, None)
    assert ["topics/replayed/1" in found["idle"][0], "its time never came" in found["idle"][1]] == [
        True,
        True,
    ]
    told = day.run("simulate", "replay", "day", "--faults", "plan.json").err
    assert told.count("without effect: ") == 2


def test_what_the_simulator_cannot_replay_is_refused(day: Any) -> None:
    """A wrong speed, no recording, a damaged one, a plan that is none, two plans."""
    (day.folder / "plan.json").write_text("{}")
    simulate = ("simulate", "replay")
    assert "speed" in day.run(*simulate, "day", "--speed", "nan", code=2).err
    assert "no recording" in day.run(*simulate, "nowhere", code=1).err
    assert "callboard_plan" in day.run(*simulate, "day", "--faults", "plan.json", code=2).err
    assert "exclude" in day.run(*simulate, "day", "--faults", "plan.json", "--random-faults", code=2).err
    _flip(next((day.folder / "day").glob("1/*.log")))
    assert "not those that the manifest names" in day.run(*simulate, "day", code=1).err
