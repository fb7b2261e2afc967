"""The partitions that a read is about, of a recording or of a topic. Needs no Spark."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import attrs
import trio

from callboard.actors.partition.spec import partition_directory
from callboard.log.errors import InvalidArgument
from callboard.log.offline.reader import LogReader
from callboard.log.seams.disk import Incarnation
from callboard.offline import OfflineDirectory, is_recording, recording_at
from callboard.recordings.manifest import Manifest
from callboard.recordings.reader import EVER, Recording, Span, overlaps
from callboard.spark.files import absolute, split


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
    """Of the records' times. It spares partitions of a recording that lie outside; others are read in full."""
    appended: Span = EVER
    """Of append times. It spares the offsets before its beginning; what lies behind its end is read."""

    def takes(self, partition: int) -> bool:
        """Whether records of that partition are wanted."""
        return self.partitions is None or partition in self.partitions

    def check_partitions(self, count: int) -> None:
        """Raise `InvalidArgument` when one of `partitions` does not exist."""
        for partition in sorted(self.partitions or ()):
            if not 0 <= partition < count:
                raise InvalidArgument(
                    f"{self.path} has no partition {partition}. Its partitions are 0 to {count - 1}."
                )


@attrs.frozen(kw_only=True)
class PartitionLogs:
    """The partitions of a recording or a topic."""

    topic: str
    identity: str
    """A topic's id or a recording's digest: what has the same name later may be another."""
    root: str
    """The absolute folder that `directories` are below."""
    directories: tuple[str, ...]
    """By partition."""
    files: Incarnation
    recording: Recording | None = None

    def wanted(self, wanted: WantedRecords) -> Iterator[int]:
        """The partitions that may hold something wanted."""
        for partition in filter(wanted.takes, range(len(self.directories))):
            if self.recording is None or overlaps(self.recording.manifest.partitions[partition], wanted.span):
                yield partition

    @asynccontextmanager
    async def reader(self, partition: int) -> AsyncIterator[LogReader]:
        """Read a log. Raises `RecordingInvalid` when it lacks records, `StorageError`, `LogCorrupt`."""
        if self.recording is not None:
            reader = await self.recording.open_log(partition)
        else:
            reader = await LogReader.open(self.files, self.directories[partition])
        try:
            yield reader
        finally:
            await reader.close()


@asynccontextmanager
async def partition_logs(wanted: WantedRecords) -> AsyncIterator[PartitionLogs]:
    """The partitions of what `wanted` names.

    Raises `TopicNotFound`, `RecordingInvalid`, `StorageError`, `LogCorrupt`; `InvalidArgument` for a partition that
    does not exist, and for a topic that is not named.
    """
    if is_recording(wanted.path):
        async with recording_at(wanted.path) as recording:
            manifest = recording.manifest
            wanted.check_partitions(len(manifest.partitions))
            root, name = split(wanted.path)
            yield PartitionLogs(
                topic=wanted.topic or manifest.source.get("topic", name),
                identity=manifest.digest,
                root=root,
                directories=tuple(f"{name}/{partition}" for partition in range(len(manifest.partitions))),
                files=recording.files,
                recording=recording,
            )
        return
    if wanted.topic is None:
        raise InvalidArgument(
            f"{wanted.path} is no recording. To read a topic of a runtime's directory, name it: .option('topic', ...)."
        )
    async with OfflineDirectory(wanted.path) as offline:
        record = await offline.topic(wanted.topic)
        count = record.settings.partitions
        wanted.check_partitions(count)
        yield PartitionLogs(
            topic=wanted.topic,
            identity=str(record.topic_id),
            root=absolute(wanted.path),
            directories=tuple(partition_directory(record.topic_id, partition) for partition in range(count)),
            files=offline.files,
        )


def read_manifest(path: str) -> Manifest:
    """The manifest of the recording `path`, whose segments are there with the sizes that it names.

    To be called where no trio program runs. Raises `RecordingInvalid`, `FormatTooNew`, `InvalidArgument`.
    """

    async def read() -> Manifest:
        async with recording_at(path) as recording:
            return recording.manifest

    return trio.run(read)
