"""A standalone cluster of Spark on the loopback: a master and two workers of a core each, from PySpark's own classes.

The Python of the tasks has everything that the tests' own has, but for Callboard: whatever a job needs of it, the
job has to bring along.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import attrs

LOOPBACK: Final = "127.0.0.1"
PATIENCE_S: Final = 120
WORKERS: Final = 2
MASTER: Final = "org.apache.spark.deploy.master.Master"
SETTINGS: Final = (
    f"spark.cores.max {WORKERS}",
    "spark.executor.memory 512m",
    "spark.scheduler.minRegisteredResourcesRatio 1.0",
)
WORKER: Final = "org.apache.spark.deploy.worker.Worker"


@attrs.frozen
class SparkCluster:
    """Where it is, and what happened in it."""

    url: str
    folder: Path
    python: Path
    """Without Callboard."""

    @property
    def environment(self) -> dict[str, str]:
        """Of a driver: it waits for both workers, so that each gets tasks."""
        conf = self.folder / "conf"
        conf.mkdir(exist_ok=True)
        (conf / "spark-defaults.conf").write_text("\n".join(SETTINGS))
        drivers = {"PYSPARK_PYTHON": str(self.python), "PYSPARK_DRIVER_PYTHON": sys.executable}
        return environment() | drivers | {"SPARK_CONF_DIR": str(conf)}

    def finished_tasks(self) -> list[int]:
        """How many tasks each worker has finished so far."""
        return [
            sum(
                log.read_text(errors="replace").count(": Finished task ")
                for log in (self.folder / f"worker-{number}").glob("app-*/*/stderr")
            )
            for number in range(WORKERS)
        ]


@contextmanager
def spark_cluster(folder: Path) -> Iterator[SparkCluster]:
    """Start one; its files lie in `folder`."""
    python = _python_without_callboard(folder)
    bind = ("--host", LOOPBACK, "--port", "0", "--webui-port", "0")
    with ExitStack() as running:
        (url,) = running.enter_context(_daemon(r"Starting Spark master at (spark://\S+)", MASTER, *bind))
        for number in range(WORKERS):
            files = ("--work-dir", str(folder / f"worker-{number}"))
            size = ("--cores", "1", "--memory", "1g")
            running.enter_context(
                _daemon(r"Successfully registered with master ()", WORKER, *bind, *size, *files, url)
            )
        yield SparkCluster(url, folder, python)


@contextmanager
def _daemon(sign: str, *command: str) -> Iterator[Any]:
    """Run a class of Spark's until the block ends; it begins when a line of its log has matched `sign`."""
    import pyspark

    script = Path(pyspark.__path__[0]) / "bin" / "spark-class"
    process = subprocess.Popen(
        ["bash", str(script), *command],
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    lines: list[str] = []
    found: list[re.Match[str]] = []
    is_decided = threading.Event()

    def read() -> None:
        assert process.stderr is not None
        for line in process.stderr:
            lines.append(line)
            match = re.search(sign, line)
            if match is not None and not found:
                found.append(match)
                is_decided.set()
        is_decided.set()

    reader = threading.Thread(target=read)
    reader.start()
    try:
        is_decided.wait(PATIENCE_S)
        assert found, f"{command[0]} did not start:\n{''.join(lines[-30:])}"
        yield found[0].groups()
    finally:
        process.terminate()
        process.wait(PATIENCE_S)
        reader.join()
        if process.stderr is not None:
            process.stderr.close()


def environment() -> dict[str, str]:
    """This one's, and nothing that would have Spark elsewhere, or looking for names."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SPARK_", "PYTHON", "PYSPARK_"))
    }
    return kept | {"SPARK_LOCAL_IP": LOOPBACK, "SPARK_DAEMON_MEMORY": "256m"}


def _python_without_callboard(folder: Path) -> Path:
    """A virtual environment with all packages of this one, but for ours."""
    packages = folder / "packages"
    packages.mkdir()
    for place in map(Path, sys.path):
        if place.name == "site-packages":
            for entry in place.iterdir():
                link = packages / entry.name
                if entry.suffix != ".pth" and "callboard" not in entry.name and not link.exists():
                    link.symlink_to(entry)
    python = folder / "python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(python)], check=True)
    (site,) = python.glob("lib/python*/site-packages")
    (site / "packages.pth").write_text(f"{packages}\n")
    return python / "bin" / "python"
