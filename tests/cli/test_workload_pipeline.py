"""`callboard workload pipeline`: from traffic to a tested load, with an account that balances."""

from __future__ import annotations

import json
from typing import Any

import pytest

from callboard.cli import exits

JOB = ("--master", "local[2]", "--json")


@pytest.mark.usefixtures("spark_and_java")
def test_a_synthetic_day_becomes_a_load_that_is_accounted_for(command: Any) -> None:
    """Every number follows from the first; what was made can be looked into by other commands."""
    made = ("--events", "2000", "--scale", "3", "--partitions", "2", "--seed", "7")
    done = command.run("workload", "pipeline", "--out", "load", *made, *JOB, code=None)
    found = done.json
    counts = ["lines", "imported", "generated", "replayed", "delivered", "simulated", "lost_by_the_disk"]
    lost = found["lost_by_the_disk"]
    assert [found[name] for name in counts] == [2_000, 2_000, 6_000, 6_000, 6_000, 6_000 - lost, lost]
    assert (found["is_balanced"], found["failure"]) == (True, None)
    # Whether a generated day is alike is what comparing judges: the exit code says it.
    assert done.code == (exits.OK if found["is_alike"] else exits.DIFFERENT)
    assert found["verdict"].startswith("Alike" if found["is_alike"] else "Different in")
    assert sum(found["faults"].values()) > 0
    folder = command.folder / "load"
    assert (folder / "traffic.log").read_bytes().count(b"\n") == 2_000
    assert json.loads((folder / "profile.json").read_bytes())["events"] == 2_000
    for page in ("profile.html", "comparison.html"):
        assert b"<svg" in (folder / page).read_bytes()
    assert command.run("recording", "verify", "load/generated", "--json").json["is_sound"]
    replayed = command.run("recording", "info", "load/generated", "--json").json
    assert (replayed["id"], replayed["payload_bytes"]) == (found["digest"], found["delivered_bytes"])


@pytest.mark.usefixtures("spark_and_java")
def test_a_folder_that_is_there_is_not_touched(command: Any) -> None:
    """Nor is anything made for a scale that is none."""
    (command.folder / "load").mkdir()
    found = command.run("workload", "pipeline", "--out", "load", code=exits.USAGE)
    assert "is there already" in found.err
    found = command.run("workload", "pipeline", "--out", "other", "--scale", "nan", code=exits.USAGE)
    assert "--scale is 'nan'" in " ".join(found.err.split())
    assert [path.name for path in command.folder.iterdir()] == ["load"]
