"""The same profile, scaling and seed give the same bytes, on one core, on several, and on a cluster.

Every run is a process of its own, since a process has one session of Spark.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import trio

from callboard.offline import recording_at

BYTES = "84832c8aca00f33a44cfaadec24b49abb66451aa012c1340e9103b930574b24f"
"""SHA-256 of the names and contents of all files of the recording that `generate_alone.py` makes."""
WORKERS = 2


def generated(folder: Path, profile: str, master: str, shuffles: int) -> str:
    """Generate, check every byte against the manifest, and hash all files."""
    (folder / "profile.json").write_text(profile)
    out = folder / "out"
    done = subprocess.run(
        [
            sys.executable,
            Path(__file__).with_name("generate_alone.py"),
            master,
            str(shuffles),
            folder / "profile.json",
            out,
        ],
        env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
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


@pytest.mark.parametrize(("master", "shuffles"), [("local[1]", 1), ("local[3]", 9)])
@pytest.mark.usefixtures("java")
def test_any_number_of_executors_gives_the_same_bytes(
    small_profile_text: str, tmp_path: Path, master: str, shuffles: int
) -> None:
    """And any number of shuffle partitions."""
    assert generated(tmp_path, small_profile_text, master, shuffles) == BYTES


@contextmanager
def spark_class(folder: Path, name: str, *arguments: str, until: str) -> Iterator[str]:
    """A process of PySpark's own distribution, once its log has a line that matches; what its first group found."""
    import pyspark

    home = Path(pyspark.__file__).parent
    environment = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_HOME": str(home)}
    environment |= {"SPARK_WORKER_DIR": str(folder), "SPARK_LOCAL_DIRS": str(folder)}
    command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *arguments]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, bufsize=1
    ) as process:
        try:
            assert process.stderr is not None
            told = []
            for line in process.stderr:
                told.append(line)
                found = re.search(until, line)
                if found is not None:
                    Thread(target=process.stderr.read, daemon=True).start()  # else a full pipe would stop it
                    yield found[1]
                    return
            raise AssertionError("".join(told)[-3000:])
        finally:
            process.terminate()


@pytest.mark.usefixtures("java")
def test_a_cluster_gives_the_same_bytes(small_profile_text: str, tmp_path: Path) -> None:
    """A real one: a master and two workers on the loopback device, told by nothing but the master's URL."""
    at = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    with ExitStack() as stack:
        place = tmp_path / "master"
        place.mkdir()
        url = stack.enter_context(
            spark_class(place, "master.Master", *at, until=r"Starting Spark master at (spark://\S+)")
        )
        for number in range(WORKERS):
            place = tmp_path / f"worker-{number}"
            place.mkdir()
            stack.enter_context(
                spark_class(
                    place,
                    "worker.Worker",
                    url,
                    *at,
                    "-c",
                    "1",
                    "-m",
                    "1g",
                    until=r"(Successfully registered)",
                )
            )
        assert generated(tmp_path, small_profile_text, url, 4) == BYTES
        applications = [
            path for number in range(WORKERS) for path in (tmp_path / f"worker-{number}").glob("app-*")
        ]
        assert len(applications) == WORKERS
