"""Which segments a read takes, and reading one of them. Needs no Spark.

A slice is a segment, or the part of it that is wanted: the unit of one Spark task, planned once and then read anywhere
that has the files. It ends at the partition's visible end as it was when the read was planned, so a half-written batch
of a live topic is never seen. A `Division` cuts slices into more tasks, at offsets, whatever lies there.

A task that begins within a segment finds its place by the segment's index, and believes it as long as valid frames
follow each other from there without a gap. Otherwise it walks the segment from its beginning, as if there were no
index: so what is damaged is named alike, however a segment is divided.

A recording never changes. The segment of a topic may be replaced between planning and reading, or removed by
retention: what is not found where the plan says is looked for once more, as every reader of the log does.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Generator, Iterator, Sequence
from contextlib import asynccontextmanager, closing

import attrs
import trio

from callboard.actors.partition.spec import partition_directory
from callboard.log.errors import (
    FormatTooNew,
    InvalidArgument,
    LogCorrupt,
    OffsetOutOfRange,
    RecordingInvalid,
    StorageError,
)
from callboard.log.format.columns import Columns
from callboard.log.format.faults import IndexInvalid, SegmentHeaderInvalid
from callboard.log.format.frame import FRAME_HEADER_BYTES
from callboard.log.format.index import ENTRY_BYTES, INDEX_HEADER_BYTES
from callboard.log.format.segment import (
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    belongs_to,
    decode_segment_header,
)
from callboard.log.limits import READ_TASKS_MAX
from callboard.log.offline.reader import LogReader
from callboard.log.seams.disk import Incarnation
from callboard.log.segments.index_file import decode_stored
from callboard.log.segments.reading import Reading
from callboard.log.segments.segment_file import index_path, segment_path
from callboard.offline import OfflineDirectory, files_below, is_recording, recording_at
from callboard.recordings.manifest import Manifest
from callboard.recordings.reader import EVER, Recording, Span, overlaps
from callboard.spark.files import absolute, is_there, opened, size_of, split
from callboard.spark.segment_frames import CHUNK_BYTES, segment_frames

Lost = Callable[[int, int], object]
"""Called with the first and the last offset of what is damaged, or was removed."""


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


# -- reading one slice -------------------------------------------------------------------------------------------------


def read_slice(piece: Slice, lost: Lost | None = None, removed: Lost | None = None) -> Iterator[Columns]:
    """The batches of a slice, in order; memory is bounded by the largest, and `CHUNK_BYTES` of the file.

    What is damaged is named to `lost`; without it, `LogCorrupt` is raised. What retention has removed since the read
    was planned is named to `removed`; without it, `OffsetOutOfRange` is raised. Raises `RecordingInvalid` when a
    recording lacks the segment, `StorageError`.
    """
    lost = lost or _refuse(piece)
    offset = piece.start
    with closing(_frames(piece)) as frames:
        for columns in frames:
            if columns.base_offset > offset:
                lost(offset, min(columns.base_offset, piece.stop) - 1)
            part = _between(columns, offset, piece.stop)
            offset = max(offset, columns.last_offset + 1)
            if part.count:
                yield part
            if offset >= piece.stop:
                return
    if piece.is_recorded:
        lost(offset, piece.stop - 1)
    else:
        yield from _moved(piece, offset, lost, removed)


def _between(columns: Columns, start: int, stop: int) -> Columns:
    first, last = columns.index_at(start), columns.index_at(stop)
    return columns if (first, last) == (0, columns.count) else columns.select(first, max(first, last))


def _frames(piece: Slice) -> Generator[Columns, None, None]:
    """The batches in the segment's file from `start` on; none when it is not the file that was planned."""
    with opened(piece.path) as file:
        if file is None:
            if piece.is_recorded:
                raise RecordingInvalid(
                    f"{piece.path} is missing: the recording is not whole. Take another copy of it, or make it again.",
                    path=piece.path,
                )
            return
        try:
            header = decode_segment_header(file.read(0, SEGMENT_HEADER_BYTES))
        except SegmentHeaderInvalid:
            return
        if header.base_offset != piece.base_offset or not belongs_to(header, piece.directory):
            return
        offset, stop = piece.start, piece.end_offset
        if offset > piece.base_offset and (place := _indexed_place(piece, header)) is not None:
            for _, columns in segment_frames(file, header, start=offset, stop=stop, place=place):
                if columns.base_offset > offset:
                    break
                yield columns
                offset = columns.last_offset + 1
        if offset < piece.stop:
            for _, columns in segment_frames(file, header, start=offset, stop=stop):
                yield columns


def _indexed_place(piece: Slice, header: SegmentHeader) -> tuple[int, int] | None:
    """Where the index has a frame at or below the slice's start: its position and offset. None when it says nothing.

    Nothing vouches for it: the frame may not be there.
    """
    size_bytes = size_of(piece.path) or 0
    try:
        with opened(f"{piece.root}/{index_path(piece.directory, piece.base_offset)}") as file:
            if file is None:
                return None
            data = file.read(0, INDEX_HEADER_BYTES + ENTRY_BYTES * (size_bytes // FRAME_HEADER_BYTES))
        position, offset = decode_stored(data, header.segment_id).find_offset(piece.start)
    except (IndexInvalid, FormatTooNew, StorageError):
        return None
    return (position, offset) if offset <= piece.start and position < size_bytes else None


def _moved(piece: Slice, offset: int, lost: Lost, removed: Lost | None) -> Iterator[Columns]:
    """The rest of a topic's slice, from where the log has it by now."""
    while offset < piece.stop:
        try:
            reading = trio.run(_read_again, piece, offset)
        except LogCorrupt as damage:
            if damage.offsets is None:
                raise
            # A segment whose header is damaged: none of its records can be read.
            reading = Reading([], damage.offsets[1] + 1, ((offset, damage.offsets[1]),))
        except OffsetOutOfRange as error:
            if removed is not None:
                start = error.fields.get("start")
                begin = min(start, piece.stop) if isinstance(start, int) and start > offset else piece.stop
                removed(offset, begin - 1)
                offset = begin
                continue
            raise OffsetOutOfRange(
                f"{piece.label}: offset {offset} is there no more: retention removed it after the read was planned, or"
                f" the topic was deleted ({piece.path}). Load again, or read what is left with"
                " .option('failOnDataLoss', 'false').",
                offset=offset,
                **{name: error.fields.get(name) for name in ("start", "end")},
            ) from error
        for first, last in reading.lost:
            if first < piece.stop:
                lost(first, min(last, piece.stop - 1))
        for columns in reading.batches:
            part = _between(columns, offset, piece.stop)
            if part.count:
                yield part
        if reading.next_offset <= offset:
            lost(offset, piece.stop - 1)
            return
        offset = reading.next_offset


async def _read_again(piece: Slice, offset: int) -> Reading:
    if not is_there(f"{piece.root}/{piece.directory}"):
        raise OffsetOutOfRange(
            f"{piece.label}: its folder is gone.", offset=offset, start=piece.stop, end=piece.stop
        )
    async with files_below(piece.root) as files:
        reader = await LogReader.open(files, piece.directory)
        try:
            return await reader.read(offset, max_records=piece.stop - offset, max_bytes=CHUNK_BYTES)
        finally:
            await reader.close()


def _refuse(piece: Slice) -> Lost:
    def refuse(first: int, last: int) -> None:
        what = f"{piece.label}: offsets {first} to {last} are damaged or missing, in {piece.path}."
        if piece.is_recorded:
            advice = "Take another copy of the recording"
        else:
            advice = "Run `callboard verify`, then `callboard repair`; what it gives up stays missing"
        raise LogCorrupt(
            f"{what} {advice}, or read what is left with .option('mode', 'permissive').",
            path=piece.path,
            offsets=(first, last),
        )

    return refuse
