"""Recordings as Spark's jobs read and write them, what they keep beside them, and what their tasks' errors say."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from callboard.log import errors
from callboard.log.errors import CallboardError, InvalidArgument, StorageError
from callboard.recordings.manifest import PARTITIONS_MAX, Manifest
from callboard.recordings.writer import UNFINISHED_SUFFIX
from callboard.spark import register
from callboard.spark.files import absolute, remove
from callboard.spark.partition_logs import read_manifest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS: Final = "partition,offset,timestamp,key,value"
"""Of `recording_rows`."""


def check_partitions(partitions: int) -> None:
    """Raise `InvalidArgument` for a number of partitions that no recording has."""
    if not 1 <= partitions <= PARTITIONS_MAX:
        raise InvalidArgument(
            f"{partitions} partitions: a recording has 1 to {PARTITIONS_MAX}. Correct --partitions."
        )


def write_recording(
    rows: DataFrame,
    out: str,
    *,
    partitions: int,
    source: Mapping[str, str],
    order: Iterable[str] = (),
    time: str = "timestamp",
    seed: str = "",
) -> Manifest:
    """Write `rows` as the recording `out`, a folder that is not there yet.

    The columns are `partition` (0 to `partitions` - 1), `timestamp` (microseconds since 1970), `key`, `value`, perhaps
    others of a recording, `time` and those that `order` names: within a partition rows lie in the order of `time`, then
    of these. `seed` distinguishes recordings of the same rows. Raises `InvalidArgument` and `StorageError`; then
    nothing of the recording is left.
    """
    from callboard.spark.arrow import FIELDS

    check_partitions(partitions)
    register(rows.sparkSession)
    tasks = int(rows.sparkSession.sparkContext.defaultParallelism)
    placed = rows.repartition(min(partitions, tasks), "partition")
    sorted_rows = placed.sortWithinPartitions("partition", time, *order)
    with told_errors():
        kept = sorted_rows.select(*[name for name in FIELDS if name in rows.columns])
        writer = kept.write.format("callboard").mode("append").option("partitions", str(partitions))
        writer.option("source", json.dumps(dict(source))).option("seed", seed)
        try:
            writer.save(absolute(out))
        except KeyboardInterrupt:  # Spark has not heard of it, and its tasks go on for a while
            remove(absolute(out) + UNFINISHED_SUFFIX)
            raise
    return read_manifest(out)


def recording_rows(session: SparkSession, path: str) -> tuple[DataFrame, Manifest]:
    """The rows of a recording, a task for each segment, and its manifest.

    Raises `RecordingInvalid`, `FormatTooNew`, `InvalidArgument`.
    """

    manifest = read_manifest(path)
    register(session)
    reader = session.read.format("callboard").option("columns", COLUMNS)
    return reader.load(absolute(path)), manifest


class BadLinesFile:
    """A file beside a recording. It is there, when its block ends, if it was written and is to be kept."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._unfinished = path + UNFINISHED_SUFFIX
        self._is_kept = False
        self._is_written = False

    def __enter__(self) -> BadLinesFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, traceback: object) -> None:
        if not self._is_written:
            return
        if kind is None and self._is_kept:
            os.replace(self._unfinished, self._path)
        else:
            with contextlib.suppress(OSError):
                os.unlink(self._unfinished)

    def write(self, lines: Iterable[bytes]) -> None:
        """Write all lines. Raises `StorageError`."""
        try:
            with open(self._unfinished, "wb") as file:
                self._is_written = True
                file.writelines(lines)
        except OSError as error:
            raise StorageError(
                f"{self._path} cannot be written: {error.strerror}. Free space, or choose another place.",
                error=error,
            ) from error

    def keep(self) -> None:
        """The recording is whole: keep the lines."""
        self._is_kept = True


# -- errors of tasks

_OURS = re.compile(r"callboard\.log\.errors\.(\w+): (.+)")
_UNREAD = re.compile(r"FAILED_READ_FILE\S* Encountered error while reading file (\S+?)\.? ")
_NO_SPACE = "No space left on device"


@contextlib.contextmanager
def told_errors() -> Iterator[None]:
    """What failed in a task or in Spark becomes an error of ours: its own if it was one, else a `StorageError`."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except (Py4JJavaError, PySparkException) as error:
        text = str(error)
        ours = _OURS.search(text)
        kind = getattr(errors, ours[1], None) if ours is not None else None
        if ours is not None and isinstance(kind, type) and issubclass(kind, CallboardError):
            raise kind(ours[2]) from error
        unread = _UNREAD.search(text)
        if unread is not None:
            raise InvalidArgument(
                f"{unquote(unread[1]).removeprefix('file:')} cannot be read: it is not what its name or its --format"
                " says, or it is damaged. Check the file."
            ) from error
        if _NO_SPACE in text:
            raise StorageError(
                "a task could not write: no space is left. Nothing of the result is left. Free space, also where"
                " Spark keeps its temporary files (spark.local.dir).",
                error=error,
            ) from error
        raise StorageError(
            f"the Spark job failed: {_gist(text) or type(error).__name__}. Under spark-submit, Spark's log says more."
        ) from error


def _gist(text: str) -> str:
    """Of a Python traceback the error, else the first lines."""
    _, _, traceback = text.rpartition("Traceback (most recent call last):\n")
    raised = [line for line in traceback.splitlines() if line.strip() and not line.startswith(" ")]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " ".join(raised[:1] if traceback != text and raised else lines[:2])[:500]
