"""Which segments a read takes. Needs no Spark.

A slice is a segment, or the part of it that is wanted: the unit of one Spark task, planned once and then read anywhere
that has the files (`slice_reading`). It ends at the partition's visible end as it was when the read was planned, so a
half-written batch of a live topic is never seen. A `Division` cuts slices into more tasks, at offsets, whatever lies
there.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import attrs
import trio

from callboard.actors.partition.spec import partition_directory
from callboard.log.errors import (
    InvalidArgument,
)
from callboard.log.limits import READ_TASKS_MAX
from callboard.log.offline.reader import LogReader
from callboard.log.seams.disk import Incarnation
from callboard.log.segments.segment_file import segment_path
from callboard.offline import OfflineDirectory, is_recording, recording_at
from callboard.recordings.manifest import Manifest
from callboard.recordings.reader import EVER, Recording, Span, overlaps
from callboard.spark.files import absolute, split


@attrs.frozen
class Slice:
    """The offsets `[start, stop)` of one segment."""

    topic: str
    partition: int
    root: str
    """The absolute folder that `directory` is below."""
    directory: str
    """The partition's."""
    base_offset: int
    end_offset: int
    """Where the segment ends, or the partition when the read was planned."""
    start: int
    stop: int
    is_recorded: bool
    """Whether it is part of a recording, which never changes."""

    @property
    def label(self) -> str:
        """How messages name the partition."""
        return f"{self.topic}/{self.partition}"

    @property
    def path(self) -> str:
        """The segment's file."""
        return f"{self.root}/{segment_path(self.directory, self.base_offset)}"


@attrs.frozen
class Division:
    """Into how many tasks a read is divided, beyond one for each segment."""

    records_max: int | None = None
    """A task reads at most this many records."""
    tasks_min: int = 1
    """At least this many tasks, when there are as many records."""

    def divide(self, slices: Sequence[Slice]) -> list[Slice]:
        """The slices cut into parts of about the same length. Raises `InvalidArgument` when they are too many."""
        if self.records_max is not None:
            slices = _cut(slices, [-(-(each.stop - each.start) // self.records_max) for each in slices])
        if len(slices) < self.tasks_min:
            total = sum(each.stop - each.start for each in slices)
            wanted = min(self.tasks_min, total)
            slices = _cut(slices, [-(-(each.stop - each.start) * wanted // total) for each in slices])
        return list(slices)


def _cut(slices: Sequence[Slice], parts: Sequence[int]) -> list[Slice]:
    """Each slice in this many parts."""
    if sum(parts) > READ_TASKS_MAX:
        raise InvalidArgument(
            f"the read would be {sum(parts):,} tasks, and {READ_TASKS_MAX:,} are the most. Raise"
            " maxRecordsPerPartition, or lower minPartitions."
        )
    return [
        attrs.evolve(
            piece,
            start=piece.start + (piece.stop - piece.start) * part // count,
            stop=piece.start + (piece.stop - piece.start) * (part + 1) // count,
        )
        for piece, count in zip(slices, parts, strict=True)
        for part in range(count)
    ]


@attrs.frozen(kw_only=True)
class WantedRecords:
    """What of a recording or a topic is to be read."""

    path: str
    topic: str | None = None
    """Needed for a runtime's directory; a recording has none, and this names its records."""
    partitions: frozenset[int] | None = None
    start_offset: int = 0
    stop_offset: int | None = None
    span: Span = EVER
    """Of the records' times. Partitions of a recording that lie outside are passed over; others are read in full."""
    appended: Span = EVER
    """Of append times: offsets before its beginning are passed over; what lies behind its end is read."""

    def takes(self, partition: int) -> bool:
        """Whether records of that partition are wanted."""
        return self.partitions is None or partition in self.partitions

    def check_partitions(self, count: int) -> None:
        """Raise `InvalidArgument` when one of `partitions` is not there."""
        for partition in sorted(self.partitions or ()):
            if not 0 <= partition < count:
                raise InvalidArgument(
                    f"{self.path} has no partition {partition}. Its partitions are 0 to {count - 1}."
                )


@attrs.frozen
class SliceOrigin:
    """A recording or a topic whose partitions are to be read."""

    files: Incarnation
    root: str
    topic: str
    identity: str
    """A topic's id or a recording's digest: what has the same name later may be another."""
    directories: tuple[str, ...]
    """Of the partitions, below `root`."""
    recording: Recording | None = None

    async def open_log(self, partition: int) -> LogReader:
        """A partition's log. Raises `RecordingInvalid` when it lacks records, `StorageError`, `LogCorrupt`."""
        if self.recording is not None:
            return await self.recording.open_log(partition)
        return await LogReader.open(self.files, self.directories[partition])


@asynccontextmanager
async def origin_of(wanted: WantedRecords) -> AsyncIterator[SliceOrigin]:
    """What `wanted` names.

    Raises `TopicNotFound`, `RecordingInvalid`, `StorageError`, `LogCorrupt`; `InvalidArgument` for a partition that is
    not there, and for a topic that is not named.
    """
    if is_recording(wanted.path):
        async with recording_at(wanted.path) as recording:
            partitions = range(len(recording.manifest.partitions))
            wanted.check_partitions(len(partitions))
            root, name = split(wanted.path)
            topic = wanted.topic or recording.manifest.source.get("topic", name)
            directories = tuple(f"{name}/{partition}" for partition in partitions)
            yield SliceOrigin(recording.files, root, topic, recording.manifest.digest, directories, recording)
        return
    if wanted.topic is None:
        raise InvalidArgument(
            f"{wanted.path} is no recording. To read a topic of a runtime's directory, name it: .option('topic', ...)."
        )
    async with OfflineDirectory(wanted.path) as offline:
        record = await offline.topic(wanted.topic)
        wanted.check_partitions(record.settings.partitions)
        partitions = range(record.settings.partitions)
        directories = tuple(partition_directory(record.topic_id, partition) for partition in partitions)
        yield SliceOrigin(
            offline.files, absolute(wanted.path), wanted.topic, str(record.topic_id), directories
        )


def read_manifest(path: str) -> Manifest:
    """The manifest of the recording `path`, whose segments are there with the sizes that it names.

    To be called where no trio program runs. Raises `RecordingInvalid`, `FormatTooNew`, `InvalidArgument`.
    """

    async def read() -> Manifest:
        async with recording_at(path) as recording:
            return recording.manifest

    return trio.run(read)


async def plan(wanted: WantedRecords) -> list[Slice]:
    """The slices of all segments that hold something wanted, by partition and offset. Raises as `origin_of`."""
    async with origin_of(wanted) as origin:
        slices: list[Slice] = []
        for partition in range(len(origin.directories)):
            row = None if origin.recording is None else origin.recording.manifest.partitions[partition]
            if wanted.takes(partition) and (row is None or overlaps(row, wanted.span)):
                slices += await _of_partition(origin, partition, wanted)
        return slices


async def _of_partition(origin: SliceOrigin, partition: int, wanted: WantedRecords) -> list[Slice]:
    reader = await origin.open_log(partition)
    is_recorded, directory = origin.recording is not None, origin.directories[partition]
    try:
        least = wanted.start_offset
        if wanted.appended.from_us is not None:
            least = max(least, await reader.offset_at(wanted.appended.from_us))
        slices = []
        for base, end in await reader.extents():
            start = max(base, least)
            stop = end if wanted.stop_offset is None else min(end, wanted.stop_offset)
            if start < stop:
                slices.append(
                    Slice(
                        origin.topic, partition, origin.root, directory, base, end, start, stop, is_recorded
                    )
                )
        return slices
    finally:
        await reader.close()
