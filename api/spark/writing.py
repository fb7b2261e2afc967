"""Writing a recording with Spark: `frame.write.format("callboard").mode("append").save(path)`.

A task writes whole partitions into folders named after its attempt, so that an attempt that is repeated harms nothing.
The driver gives the folders of the attempts that counted their names, writes the manifest last, and renames the whole
into place. What fails leaves nothing behind.

With a column `partition`, rows of one partition must come to one task, one after the other: the frame is partitioned
and sorted by it. Without, each task writes the partition of its own number.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import attrs
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from callboard.log.errors import InvalidArgument
from callboard.log.format.compression import Compression
from callboard.log.limits import SEGMENT_BYTES_DEFAULT, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN
from callboard.recordings.encoder import Append, Begin, Output, PartitionEncoder
from callboard.recordings.key_count import KeyCount
from callboard.recordings.manifest import MANIFEST_NAME, PARTITIONS_MAX, Manifest, PartitionRow
from callboard.recordings.writer import UNFINISHED_SUFFIX
from callboard.spark import files
from callboard.spark.encoding import check_names, cut, to_columns, with_type, with_types
from callboard.spark.files import check_new, storage_errors
from callboard.spark.options import Options

WRITE_OPTIONS: Final = frozenset({"path", "partitions", "seed", "segmentBytes", "compression", "source"})


@attrs.frozen(kw_only=True)
class WriteOptions:
    """What `.option(...)` asks of a write."""

    path: str
    """Absolute."""
    is_placed: bool
    """Whether the column `partition` says where a row goes."""
    partitions: int | None = None
    """How many the recording has; without it, as many as rows or tasks need."""
    seed: str = ""
    segment_bytes: int = SEGMENT_BYTES_DEFAULT
    compression: Compression = Compression()
    source: Mapping[str, str] = attrs.field(factory=dict)

    @classmethod
    def parse(cls, options: Mapping[str, str], columns: Sequence[str], overwrite: bool) -> WriteOptions:
        """From Spark's options. Raises `InvalidArgument`, also when there is something at the path."""
        found = Options(options, WRITE_OPTIONS)
        path = files.absolute(found.path())
        if overwrite:
            raise InvalidArgument(
                f"a recording is never changed, and {path} would be. Nothing was written. Remove it yourself if you"
                " do not need it, and write with .mode('append')."
            )
        check_new(path)
        check_names(columns)
        partitions, segment_bytes = found.number("partitions"), found.number("segmentBytes")
        is_placed = "partition" in columns
        if partitions is not None and not is_placed:
            raise InvalidArgument(
                "option partitions needs a column `partition`; without one, each task writes a partition of its own."
            )
        if partitions is not None and not 1 <= partitions <= PARTITIONS_MAX:
            raise InvalidArgument(f"{partitions} partitions: a recording has 1 to {PARTITIONS_MAX}.")
        if segment_bytes is not None and not SEGMENT_BYTES_MIN <= segment_bytes <= SEGMENT_BYTES_MAX:
            raise InvalidArgument(
                f"segmentBytes is {segment_bytes}, not from {SEGMENT_BYTES_MIN} to {SEGMENT_BYTES_MAX}."
            )
        source = found.text("source")
        return cls(
            path=path,
            is_placed=is_placed,
            partitions=partitions,
            seed=found.text("seed") or "",
            segment_bytes=segment_bytes or SEGMENT_BYTES_DEFAULT,
            compression=Compression(found.text("compression") or "none"),
            source={"made_by": "spark"} if source is None else _texts(source),
        )

    @property
    def unfinished(self) -> str:
        """The folder in which it is made."""
        return self.path + UNFINISHED_SUFFIX


def _texts(source: str) -> dict[str, str]:
    try:
        found = json.loads(source)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not all(isinstance(text, str) for text in found.values()):
        raise InvalidArgument('option source: give texts by name, as JSON: \'{"made_by": "my job"}\'.')
    return found


@attrs.frozen
class WrittenPartition:
    """One partition that a task wrote."""

    folder: str
    """Its name, until the driver gives it the partition's."""
    row: PartitionRow
    """Of the manifest."""


@attrs.frozen
class Written(WriterCommitMessage):
    """What one task wrote, and the hashes of all its keys."""

    partitions: dict[int, WrittenPartition]
    hashes: list[int]


class RecordingTasks(DataSourceArrowWriter):
    """Writes one recording. Made before the tasks; `write` runs in each, then `commit` or `abort` once."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        with storage_errors(f"making {options.unfinished}"):
            files.remove(options.unfinished)
            files.make_folders(options.unfinished)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """The rows of one task. Raises `InvalidArgument` for rows that cannot be written, `StorageError`."""
        context = TaskContext.get()
        task, attempt = (0, 0) if context is None else (context.partitionId(), context.taskAttemptId())
        if self._options.is_placed:
            return write_placed(self._options, iterator, attempt)
        written, keys = write_partition(self._options, task, attempt, iterator)
        return Written({task: written}, keys.hashes)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Name the folders that count, write the manifest, and give the whole its name."""
        written = [message for message in messages if isinstance(message, Written)]
        try:
            with storage_errors(f"making {self._options.path}"):
                finish(self._options, written)
        except BaseException:
            files.remove(self._options.unfinished)
            raise

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Remove what the tasks wrote."""
        del messages
        files.remove(self._options.unfinished)


def write_placed(options: WriteOptions, batches: Iterable[pa.RecordBatch], attempt: int) -> Written:
    """In a task: the partitions that the rows name, one after the other."""
    keys = KeyCount()
    written: dict[int, WrittenPartition] = {}
    for partition, pieces in _by_partition(batches):
        most = options.partitions or PARTITIONS_MAX
        if partition is None or not 0 <= partition < most:
            raise InvalidArgument(
                f"a row is for partition {partition}, and there are 0 to {most - 1}. Correct the column."
            )
        if partition in written:
            raise _scattered(partition)
        written[partition], its_keys = write_partition(options, partition, attempt, pieces)
        keys.merge(its_keys)
    return Written(written, keys.hashes)


def _scattered(partition: int) -> InvalidArgument:
    return InvalidArgument(
        f"the rows of partition {partition} lie in several places. Nothing was written. Partition and sort them first:"
        " .repartition(n, 'partition').sortWithinPartitions('partition', 'timestamp')."
    )


def _by_partition(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int | None, Iterator[pa.RecordBatch]]]:
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


def _runs(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int | None, pa.RecordBatch]]:
    for batch in batches:
        ends = pc.run_end_encode(with_type(batch.column("partition"), "partition"))
        start = 0
        for stop, partition in zip(ends.run_ends.to_pylist(), ends.values.to_pylist(), strict=True):
            yield partition, batch.slice(start, stop - start)
            start = stop


def write_partition(
    options: WriteOptions, partition: int, attempt: int, pieces: Iterable[pa.RecordBatch]
) -> tuple[WrittenPartition, KeyCount]:
    """Write one partition into a folder of its own, and count its keys."""
    name = f"{partition}.{attempt}"
    encoder = PartitionEncoder(
        partition, seed=options.seed, segment_bytes=options.segment_bytes, compression=options.compression
    )
    path = f"{options.unfinished}/{name}"
    with storage_errors(f"writing partition {partition}"), files.NewFolder(path) as folder:
        for batch in cut(with_types(piece) for piece in pieces):
            _carry_out(folder, encoder.add(to_columns(batch)))
        _carry_out(folder, encoder.finish())
    return WrittenPartition(name, encoder.row), encoder.keys


def _carry_out(folder: files.NewFolder, outputs: Iterable[Output]) -> None:
    for output in outputs:
        if isinstance(output, Append):
            folder.append(output.buffers)
        else:
            folder.begin(output.name)
            if not isinstance(output, Begin):
                folder.append([output.data])


def finish(options: WriteOptions, written: Sequence[Written]) -> Manifest:
    """The recording of what the tasks wrote. Raises `InvalidArgument` when two wrote one partition."""
    keys = KeyCount()
    partitions: dict[int, WrittenPartition] = {}
    for each in written:
        for partition in each.partitions.keys() & partitions.keys():
            raise _scattered(partition)
        partitions |= each.partitions
        keys.merge(KeyCount(each.hashes))
    count = options.partitions or max(partitions, default=0) + 1
    if count > PARTITIONS_MAX:
        raise InvalidArgument(
            f"{count} tasks would make as many partitions, and a recording has at most {PARTITIONS_MAX}. Nothing was"
            " written. Use .coalesce(n), or a column `partition`."
        )
    for partition in range(count):
        if partition not in partitions:
            partitions[partition], _ = write_partition(options, partition, 0, ())
        folder = partitions[partition].folder
        files.rename(f"{options.unfinished}/{folder}", f"{options.unfinished}/{partition}")
    for name in files.names(options.unfinished):
        if not name.isdecimal():  # of an attempt that did not count
            files.remove(f"{options.unfinished}/{name}")
    manifest = Manifest(
        source=dict(options.source),
        keys=(keys.distinct, keys.is_exact),
        partitions=tuple(partitions[partition].row for partition in range(count)),
    )
    with files.NewFile(f"{options.unfinished}/{MANIFEST_NAME}") as file:
        file.append([manifest.encode()])
    files.sync_folder(options.unfinished)
    check_new(options.path)
    files.rename_durably(options.unfinished, options.path)
    return manifest
