"""The Spark session of a job: one that is there (`spark-submit`, a notebook, a test), else a local one of our own."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import IO, TYPE_CHECKING, Final

from callboard.log.errors import InvalidArgument
from callboard.simulations.workload.shipping import shipped

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER: Final = "local[*]"
SHUFFLES_A_CORE: Final = 4
"""On this machine; Spark's usual 200 cost more than a small job itself."""
_LOOPBACK: Final = "127.0.0.1"
_SAID_BYTES: Final = 65_536
"""Of what Java wrote before it ended, this many are looked at."""


@contextlib.contextmanager
def open_session(master: str | None = None, *, memory: str = "1g") -> Iterator[SparkSession]:
    """A session for the body. One that is already active is used as it is, and left running.

    `master` is Spark's master URL; without one, all cores of this machine. The workers of a cluster get Callboard's
    code from here. Raises `InvalidArgument` when PySpark or Java is missing, or when the session cannot be started.
    """
    check_spark()
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    settings = {"spark.app.name": "callboard workload"}
    if master is not None or not submitted:
        settings["spark.master"] = master or MASTER
    if not submitted:
        if (master or MASTER).startswith("local"):
            os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
            settings |= dict.fromkeys(("spark.driver.bindAddress", "spark.driver.host"), _LOOPBACK)
            settings["spark.sql.shuffle.partitions"] = str(SHUFFLES_A_CORE * (os.cpu_count() or 1))
        settings |= {"spark.driver.memory": memory, "spark.ui.enabled": "false"}
    settings |= _SETTINGS
    interrupts = signal.getsignal(signal.SIGINT)
    with tempfile.TemporaryFile() as said:
        try:
            if not submitted:
                _start_java(settings, said)
            session = SparkSession.builder.config(map=settings).getOrCreate()
        except (PySparkException, Py4JError, RuntimeError) as error:
            raise InvalidArgument(
                f"Spark could not be started at {master or MASTER}: {_reason(error, said):.200}. Check"
                " --master, and that `java -version` says 17 or later."
            ) from error
    # Spark takes Ctrl-C for itself, and trio leaves a handler alone that is not Python's own.
    with contextlib.suppress(ValueError):  # in another thread Spark takes nothing
        signal.signal(signal.SIGINT, interrupts)
    session.sparkContext.setLogLevel("FATAL")
    is_local = session.sparkContext.master.startswith("local")
    try:
        with contextlib.nullcontext() if is_local else shipped(session):
            yield session
    finally:
        session.stop()


def _start_java(settings: Mapping[str, str], said: IO[bytes]) -> None:
    """Start Spark's Java, unless one is running. What it writes to standard error goes to a file that is not read
    once Spark is there: errors of jobs come as exceptions, and the rest would tear a progress bar.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is None:
        conf = SparkConf()
        conf.setAll(list(settings.items()))
        # Spark's own hook for this ("capturing stdout/stderr"), in the way in which it calls it itself.
        gateway = launch_gateway(conf, {"stderr": said})
        SparkContext._ensure_initialized(gateway=gateway, conf=conf)


def _reason(error: Exception, said: IO[bytes]) -> str:
    """One line: the exception of Java, where there is one, or what Java said when it ended."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    found = next((line[2:] for line in lines if line.startswith(": ")), None)
    if found is None:
        said.seek(0)
        spoken = [
            line for line in said.read(_SAID_BYTES).decode(errors="replace").splitlines() if line.strip()
        ]
        errors = [line for line in spoken if "ERROR" in line or "Exception" in line or "rror:" in line]
        found = (errors or spoken[-1:] or lines)[0]
    return found.strip().rstrip(".")


_SETTINGS: Final = {
    "spark.log.level": "FATAL",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    # A job that lists files takes longer than listing some hundred.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000",
    # Each file counts as this many bytes more when Spark divides them. With Spark's 4 MiB a few hundred small files
    # become several tasks for each core, and each task costs more than all that it reads.
    "spark.sql.files.openCostInBytes": "262144",
}


def check_packages() -> None:
    """Raise `InvalidArgument` unless PySpark is there."""
    if find_spec("pyspark") is None or find_spec("pyarrow") is None:
        raise InvalidArgument(
            "PySpark is not installed, and this job runs on Spark. Install it: pip install 'callboard[spark]'."
        )


def check_spark() -> None:
    """Raise `InvalidArgument` unless PySpark and a Java to run it are there."""
    check_packages()
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return
    home = os.environ.get("JAVA_HOME")
    if home and not os.access(os.path.join(home, "bin", "java"), os.X_OK):
        raise InvalidArgument(
            f"There is no Java at JAVA_HOME ({home}), and Spark needs one. Correct or unset JAVA_HOME."
        )
    if not home and shutil.which("java") is None:
        raise InvalidArgument(
            "There is no Java, and Spark needs one. Install Java 17 or later (Debian: openjdk-17-jre-headless), or"
            " name its folder in JAVA_HOME."
        )
