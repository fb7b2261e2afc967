"""The Spark session of a job: one that is there (`spark-submit`, a notebook, a test), else a local one of our own."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from callboard.log.errors import InvalidArgument
from callboard.simulations.workload.shipping import shipped

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER: Final = "local[*]"
SHUFFLES_A_CORE: Final = 4
"""On this machine; Spark's usual 200 cost more than a small job itself."""
_LOOPBACK: Final = "127.0.0.1"


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
    builder = SparkSession.builder.appName("callboard workload")
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if master is not None or not submitted:
        builder = builder.master(master or MASTER)
    if not submitted:
        if (master or MASTER).startswith("local"):
            os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
            for name in ("spark.driver.bindAddress", "spark.driver.host"):
                builder = builder.config(name, _LOOPBACK)
            shuffles = SHUFFLES_A_CORE * (os.cpu_count() or 1)
            builder = builder.config("spark.sql.shuffle.partitions", shuffles)
        builder = builder.config("spark.driver.memory", memory).config("spark.ui.enabled", "false")
    for name, value in _SETTINGS.items():
        builder = builder.config(name, value)
    interrupts = signal.getsignal(signal.SIGINT)
    try:
        session = builder.getOrCreate()
    except (PySparkException, Py4JError, RuntimeError) as error:
        raise InvalidArgument(
            f"Spark could not be started at {master or MASTER}: {_reason(error):.200}. Check"
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


def _reason(error: Exception) -> str:
    """One line of it: the exception of Java, where there is one."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return next((line[2:] for line in lines if line.startswith(": ")), lines[0]).rstrip(".")


_SETTINGS: Final = {
    "spark.log.level": "FATAL",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
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
