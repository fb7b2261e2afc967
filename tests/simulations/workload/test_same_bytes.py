"""The same profile, scaling and seed give the same bytes, on one core and on several.

Every run is a process of its own, since a process has one session of Spark.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from callboard.offline import recording_at
from tests.simulations.workload.values import json_orders, learned, log_lines

BYTES = "83ff135198284aee81170e8e426868658a575d26263edb871b56af26984c8a52"
"""SHA-256 of the names and contents of all files of the recording that `generate_alone.py` makes."""
BYTES_BY_FIELD = "10cba5d35890aee2c7063024fd4fce2b897baffc14de956edb2c826275518a4f"
"""The same with values by field."""


def generated(folder: Path, profiles: Sequence[str], master: str, shuffles: int) -> list[str]:
    """Generate from each profile, check every byte against the manifests, and hash all files."""
    places = []
    for number, profile in enumerate(profiles):
        (folder / f"{number}.json").write_text(profile)
        places.append((folder / f"{number}.json", folder / f"{number}"))
    done = subprocess.run(
        [
            sys.executable,
            Path(__file__).with_name("generate_alone.py"),
            master,
            str(shuffles),
            *chain(*places),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [digest_of(out) for _, out in places]


def digest_of(out: Path) -> str:
    """A whole recording's digest, over all files."""
    assert not faults(out)
    state = hashlib.sha256()
    for path in sorted(out.rglob("*")):
        if path.is_file():
            state.update(path.relative_to(out).as_posix().encode() + path.read_bytes())
    return state.hexdigest()


def faults(path: Path) -> list[Any]:
    """What is wrong with a recording."""

    async def work() -> list[Any]:
        async with recording_at(str(path)) as recording:
            return await recording.faults()

    return trio.run(work)


def by_field(profile: str) -> str:
    """The profile, and what values look like."""
    values = attrs.asdict(learned(log_lines(100) + json_orders(100)))
    return json.dumps(json.loads(profile) | {"values": values})


@pytest.mark.parametrize(("master", "shuffles"), [("local[1]", 1), ("local[3]", 9)])
@pytest.mark.usefixtures("one_java")
def test_any_number_of_executors_gives_the_same_bytes(
    small_profile: dict[str, Any],
    small_dependence: dict[str, Any],
    tmp_path: Path,
    master: str,
    shuffles: int,
) -> None:
    """And any number of shuffle partitions."""
    profile = json.dumps({**small_profile, "dependence": small_dependence})
    profiles = (profile, by_field(profile))
    assert generated(tmp_path, profiles, master, shuffles) == [BYTES, BYTES_BY_FIELD]
