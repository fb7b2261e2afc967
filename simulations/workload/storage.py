"""Recordings that Spark's tasks write and read, on a file system that all of them share.

A task writes whole partitions into folders named after its attempt, so that an attempt that is repeated harms nothing.
The driver gives the folders of the attempts that counted their names, writes the manifest last, and renames the whole
into place. What fails leaves nothing behind.

Rows are cut into batches by number and size alone, and segments take their ids from partition and offset: the same rows
in the same order give the same bytes, however many tasks there are.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO, Final
from urllib.parse import unquote

import attrs

from callboard.log import errors
from callboard.log.errors import CallboardError, InvalidArgument, RecordingInvalid, StorageError
from callboard.log.format.columns import Columns
from callboard.log.format.faults import FormatFault
from callboard.log.format.frame import FRAME_HEADER_BYTES, decode_frame, decode_header
from callboard.log.format.segment import SEGMENT_HEADER_BYTES, decode_segment_header
from callboard.log.limits import MIB
from callboard.recordings.encoder import Append, Begin, Output, PartitionEncoder, times_of
from callboard.recordings.key_count import KeyCount
from callboard.recordings.manifest import (
    MANIFEST_BYTES_MAX,
    MANIFEST_NAME,
    PARTITIONS_MAX,
    Manifest,
    PartitionRow,
    SegmentRow,
    decode_manifest,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

UNFINISHED_SUFFIX: Final = ".unfinished"
BATCH_RECORDS: Final = 4_096
BATCH_BYTES: Final = 1 * MIB
ROW_SCHEMA: Final = "topic string, partition int, offset bigint, timestamp bigint, key binary, value binary"
"""The columns of `recording_rows`."""
_RESULT_SCHEMA: Final = "partition int, folder string, row string, hashes array<decimal(20,0)>"


# -- writing


def check_new(out: str) -> None:
    """Raise `InvalidArgument` unless a recording could be made at `out`."""
    folder = os.path.dirname(os.path.abspath(out))
    if os.path.lexists(out):
        raise InvalidArgument(f"{out} is there already. Nothing was written. Choose another name.")
    if not os.path.isdir(folder):
        raise InvalidArgument(
            f"There is no folder {folder} in which to make {out}. Make it, or choose another name."
        )


def write_recording(
    rows: DataFrame, out: str, *, partitions: int, source: Mapping[str, str], order: Iterable[str] = ()
) -> Manifest:
    """Write `rows` as the recording `out`, a folder that is not there yet.

    The columns are `partition` (0 to `partitions` - 1), `timestamp` (microseconds since 1970), `key`, `value`, and
    those that `order` names: within a partition rows lie in the order of `timestamp`, then of these. Raises
    `InvalidArgument` and `StorageError`; then nothing of the recording is left.
    """
    if not 1 <= partitions <= PARTITIONS_MAX:
        raise InvalidArgument(
            f"{partitions} partitions: a recording has 1 to {PARTITIONS_MAX}. Correct --partitions."
        )
    check_new(out)
    unfinished = os.path.abspath(out) + UNFINISHED_SUFFIX
    try:
        shutil.rmtree(unfinished, ignore_errors=True)
        os.mkdir(unfinished)
        with told_errors():
            sorted_rows = rows.repartition(min(partitions, _tasks(rows)), "partition").sortWithinPartitions(
                "partition", "timestamp", *order
            )
            written = (
                sorted_rows.select("partition", "timestamp", "key", "value")
                .mapInArrow(partial(_write_rows, unfinished), _RESULT_SCHEMA)
                .collect()
            )
        manifest = _finish(unfinished, partitions, written, source)
        os.rename(unfinished, out)
    except OSError as error:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise StorageError(
            f"{out} cannot be written: {error.strerror}. Nothing of it is left. Free space, or choose another place.",
            error=error,
        ) from error
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    return manifest


def _tasks(rows: DataFrame) -> int:
    return int(rows.sparkSession.sparkContext.defaultParallelism)


def _write_rows(unfinished: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a task: the partitions of sorted rows, one after the other, each into a folder of its own."""
    import pyarrow as pa
    from pyspark import TaskContext

    context = TaskContext.get()
    attempt = context.taskAttemptId() if context is not None else 0
    found: list[dict[str, Any]] = []
    for partition, pieces in _by_partition(batches):
        folder = f"{partition}.{attempt}"
        encoder = PartitionEncoder(partition)
        with _Folder(f"{unfinished}/{folder}") as place:
            for times, keys, values in _cut(pieces):
                columns = Columns.build(values, keys, event_times=times)
                columns.append_time_us = times[0]
                place.carry_out(encoder.add(columns))
            place.carry_out(encoder.finish())
        found.append(
            {
                "partition": partition,
                "folder": folder,
                "row": json.dumps(attrs.asdict(encoder.row)),
                "hashes": encoder.keys.hashes,
            }
        )
    names = ("partition", "folder", "row", "hashes")
    types = (pa.int32(), pa.string(), pa.string(), pa.list_(pa.decimal128(20, 0)))
    schema = pa.schema(list(zip(names, types, strict=True)))
    yield pa.RecordBatch.from_pylist(found, schema=schema)


def _by_partition(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, Iterator[pa.RecordBatch]]]:
    """The runs of equal `partition`, each to be used up before the next."""
    pieces = _runs(batches)
    following = next(pieces, None)
    while following is not None:
        partition = following[0]

        def run() -> Iterator[pa.RecordBatch]:
            nonlocal following
            while following is not None and following[0] == partition:  # noqa: B023 - used up before it changes
                yield following[1]
                following = next(pieces, None)

        yield partition, run()


def _runs(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    for batch in batches:
        partitions = batch.column("partition").to_pylist()
        start = 0
        for stop in range(1, len(partitions) + 1):
            if stop == len(partitions) or partitions[stop] != partitions[start]:
                yield partitions[start], batch.slice(start, stop - start)
                start = stop


def _cut(
    pieces: Iterable[pa.RecordBatch],
) -> Iterator[tuple[list[int], list[bytes | None], list[bytes | None]]]:
    """Batches of `BATCH_RECORDS`, or fewer when they reach `BATCH_BYTES`, wherever Arrow's batches end."""
    times: list[int] = []
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    size_bytes = 0
    for piece in pieces:
        columns = (piece.column(name).to_pylist() for name in ("timestamp", "key", "value"))
        for time, key, value in zip(*columns, strict=True):
            times.append(time)
            keys.append(key)
            values.append(value)
            size_bytes += len(key or b"") + len(value or b"")
            if len(times) >= BATCH_RECORDS or size_bytes >= BATCH_BYTES:
                yield times, keys, values
                times, keys, values, size_bytes = [], [], [], 0
    if times:
        yield times, keys, values


class _Folder:
    """Carries out what an encoder says, and syncs; removes the folder when its block raises."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file: BinaryIO | None = None

    def __enter__(self) -> _Folder:
        os.mkdir(self._path)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, traceback: object) -> None:
        self._close()
        if kind is None:
            _sync_folder(self._path)
        else:
            shutil.rmtree(self._path, ignore_errors=True)

    def carry_out(self, outputs: list[Output]) -> None:
        """In order."""
        for output in outputs:
            if isinstance(output, Append):
                if self._file is not None:
                    self._file.writelines(output.buffers)
                continue
            self._close()
            file = open(f"{self._path}/{output.name}", "xb")  # noqa: SIM115 - closed by `_close`
            self._file = file
            if not isinstance(output, Begin):
                file.write(output.data)

    def _close(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            with file:
                file.flush()
                os.fsync(file.fileno())


def _finish(unfinished: str, partitions: int, written: list[Any], source: Mapping[str, str]) -> Manifest:
    """Name the folders that count, remove the others, and write the manifest."""
    keys = KeyCount()
    found: dict[int, PartitionRow] = {}
    for each in written:
        fields = json.loads(each["row"])
        segments = tuple(SegmentRow(**segment) for segment in fields.pop("segments"))
        found[each["partition"]] = PartitionRow(segments=segments, **fields)
        keys.merge(KeyCount(map(int, each["hashes"])))
        os.rename(f"{unfinished}/{each['folder']}", f"{unfinished}/{each['partition']}")
    for partition in range(partitions):
        if partition not in found:
            encoder = PartitionEncoder(partition)
            with _Folder(f"{unfinished}/{partition}") as place:
                place.carry_out(encoder.finish())
            found[partition] = encoder.row
    for name in os.listdir(unfinished):
        if not name.isdecimal():
            shutil.rmtree(f"{unfinished}/{name}", ignore_errors=True)
    manifest = Manifest(
        source=dict(source),
        keys=(keys.distinct, keys.is_exact),
        partitions=tuple(found[partition] for partition in range(partitions)),
    )
    with open(f"{unfinished}/{MANIFEST_NAME}", "xb") as file:
        file.write(manifest.encode())
        file.flush()
        os.fsync(file.fileno())
    _sync_folder(unfinished)
    return manifest


def _sync_folder(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def absolute(path: str) -> str:
    """The path from the root, which does not depend on where a task runs."""
    return os.path.abspath(path)


def is_there(path: str) -> bool:
    """Whether there is a file or a folder of exactly this name."""
    return os.path.exists(path)


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


# -- reading


def read_manifest(path: str) -> Manifest:
    """The manifest of the recording `path`, whose segments are there with the sizes that it names.

    Raises `RecordingInvalid` and `FormatTooNew`.
    """
    name = f"{path}/{MANIFEST_NAME}"
    try:
        with open(name, "rb") as file:
            manifest = decode_manifest(file.read(MANIFEST_BYTES_MAX + 1), name)
    except OSError as error:
        raise RecordingInvalid(
            f"{path} is no recording: its {MANIFEST_NAME} cannot be read ({error.strerror}). Name the folder of a"
            " recording.",
            path=path,
        ) from None
    for index, partition in enumerate(manifest.partitions):
        for segment in partition.segments:
            file_name = f"{path}/{index}/{segment.name}"
            try:
                size_bytes = os.stat(file_name).st_size
            except OSError as error:
                raise _damaged(path, f"{file_name} cannot be read: {error.strerror}") from None
            if size_bytes != segment.size_bytes:
                raise _damaged(path, f"{file_name} has {size_bytes} bytes, not {segment.size_bytes}")
    return manifest


def recording_rows(session: SparkSession, path: str) -> tuple[DataFrame, Manifest]:
    """The rows of a recording, a task for each segment, and its manifest. `topic` is null."""
    path = os.path.abspath(path)
    manifest = read_manifest(path)
    segments = [
        (index, segment.base_offset, segment.records, f"{path}/{index}/{segment.name}")
        for index, partition in enumerate(manifest.partitions)
        for segment in partition.segments
    ]
    listed = session.createDataFrame(segments, "partition int, base bigint, records bigint, path string")
    placed = listed.repartitionByRange(max(1, len(segments)), "partition", "base")
    return placed.mapInArrow(_read_segments, ROW_SCHEMA), manifest


def _read_segments(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    types = [pa.string(), pa.int32(), pa.int64(), pa.int64(), pa.binary(), pa.binary()]
    names = ["topic", "partition", "offset", "timestamp", "key", "value"]
    schema = pa.schema(list(zip(names, types, strict=True)))
    for batch in batches:
        for segment in batch.to_pylist():
            for columns in _frames(segment["path"], segment["base"], segment["records"]):
                count = columns.count
                yield pa.record_batch(
                    [
                        pa.nulls(count, pa.string()),
                        pa.array([segment["partition"]] * count, pa.int32()),
                        pa.array(range(columns.base_offset, columns.base_offset + count), pa.int64()),
                        pa.array(times_of(columns), pa.int64()),
                        pa.array(columns.key_list(), pa.binary()),
                        pa.array(columns.value_list(), pa.binary()),
                    ],
                    schema=schema,
                )


def _frames(path: str, base: int, records: int) -> Iterator[Columns]:
    """The frames of a segment, one in memory at a time. A recording has no gaps: what does not follow is damage."""
    offset = base
    with open(path, "rb") as file:
        try:
            header = decode_segment_header(file.read(SEGMENT_HEADER_BYTES))
            while head := file.read(FRAME_HEADER_BYTES):
                frame = decode_header(head, 0, header.segment_id)
                _, columns = decode_frame(head + file.read(frame.body_bytes), 0, header.segment_id)
                if columns.base_offset != offset or columns.offset_deltas is not None:
                    raise _damaged(path, f"offset {columns.base_offset} where {offset} is due")
                offset += columns.count
                yield columns
        except FormatFault as error:
            raise _damaged(path, f"the frame at offset {offset}: {error}") from None
    if offset != base + records:
        raise _damaged(path, f"it ends at offset {offset}, not {base + records}")


def _damaged(path: str, why: str) -> RecordingInvalid:
    return RecordingInvalid(
        f"recording {path} is not whole: {why}. Take another copy of it, or make it again.", path=path
    )


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
        lines = [line for line in text.splitlines() if line.strip()] or [type(error).__name__]
        raise StorageError(
            f"the Spark job failed: {' '.join(lines[:2])[:500]}. Spark's log says more."
        ) from error
