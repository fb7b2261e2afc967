"""The jobs on a real standalone cluster, whose workers know nothing of Callboard."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import callboard
from callboard.simulations.workload.shipping import write_package

pytestmark = pytest.mark.slow

COMMAND = str(Path(sys.executable).with_name("callboard"))

OWN_SESSION = """
from pyspark.sql import SparkSession
from callboard.cli import main

with SparkSession.builder.getOrCreate():
    main()
"""
"""A program that starts Spark before Callboard does, which then ships nothing."""


@pytest.fixture(scope="module")
def cluster(spark_and_java: None, script_of: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One for all tests of the module."""
    script = script_of(Path(__file__).with_name("spark_cluster.py"))
    with script.spark_cluster(tmp_path_factory.mktemp("cluster")) as found:
        yield found


@pytest.fixture
def profile_path(small_profile_text: str, tmp_path: Path) -> str:
    """A small profile, as a file."""
    path = tmp_path / "profile.json"
    path.write_text(small_profile_text)
    return str(path)


def run(environment: dict[str, str], *command: str) -> dict[str, Any]:
    """What a job says as JSON."""
    done = subprocess.run(command, env=environment, capture_output=True, check=False, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout[done.stdout.index("{") :])


def bytes_of(recording: Path) -> dict[str, bytes]:
    """Each file of a recording."""
    return {
        str(path.relative_to(recording)): path.read_bytes()
        for path in sorted(recording.rglob("*"))
        if path.is_file()
    }


def generate(profile_path: str, out: Path) -> tuple[str, ...]:
    """The arguments of a job that makes 160,000 records, which are divided among tasks."""
    size = ("--scale", "20000", "--partitions", "4", "--seed", "7")
    return ("workload", "generate", profile_path, "--out", str(out), *size, "--json")


@pytest.fixture
def on_one_core(cluster: Any, profile_path: str, tmp_path: Path) -> dict[str, bytes]:
    """What one core makes, without a cluster."""
    alone = {name: value for name, value in cluster.environment.items() if not name.startswith("PYSPARK_")}
    said = run(alone, COMMAND, *generate(profile_path, tmp_path / "core"), "--master", "local[1]")
    assert said["records"] == 160_000
    return bytes_of(tmp_path / "core")


def test_the_workers_do_not_have_callboard(cluster: Any) -> None:
    """Else the tests below would not show that jobs bring it along."""
    done = subprocess.run([cluster.python, "-c", "import callboard"], capture_output=True, check=False)
    assert b"No module named 'callboard'" in done.stderr


def test_a_cluster_makes_the_bytes_that_one_core_makes(
    cluster: Any, profile_path: str, tmp_path: Path, on_one_core: dict[str, bytes]
) -> None:
    """By a change of the master alone; with spark-submit; in a session of one's own. Both workers take part."""
    import pyspark

    submit = (str(Path(pyspark.__path__[0]) / "bin" / "spark-submit"), "--master", cluster.url)
    program = str(Path(callboard.__path__[0]) / "__main__.py")
    own, package = tmp_path / "own.py", str(tmp_path / "callboard.zip")
    own.write_text(OWN_SESSION)
    write_package(package)
    for name, command in {
        "command": (COMMAND, *generate(profile_path, tmp_path / "command"), "--master", cluster.url),
        "submit": (*submit, program, *generate(profile_path, tmp_path / "submit")),
        "own": (*submit, "--py-files", package, str(own), *generate(profile_path, tmp_path / "own")),
    }.items():
        before = cluster.finished_tasks()
        assert run(cluster.environment, *command)["records"] == 160_000
        assert bytes_of(tmp_path / name) == on_one_core, name
        did = [now - earlier for now, earlier in zip(cluster.finished_tasks(), before, strict=True)]
        assert min(did) > 0, (name, did)
