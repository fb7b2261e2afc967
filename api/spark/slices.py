"""Which segments a read takes, and reading one of them. Needs no Spark.

A slice is a segment, or the part of it that is wanted: the unit of one Spark task, planned once and then read anywhere
that has the files. It ends at the partition's visible end as it was when the read was planned, so a half-written batch
of a live topic is never seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import attrs

from callboard.log.errors import InvalidArgument, LogCorrupt
from callboard.log.format.columns import Columns
from callboard.log.format.faults import SegmentHeaderInvalid
from callboard.log.format.frame import FrameFields, FrameHeader, decode_body
from callboard.log.format.frame_walk import FrameWalk, run_walk
from callboard.log.format.segment import SEGMENT_HEADER_BYTES, decode_segment_header
from callboard.log.host.disk import HostDisk
from callboard.log.journal.journal_disk import segment_bases
from callboard.log.limits import MIB
from callboard.log.offline.reader import LogReader
from callboard.log.seams.disk import Incarnation
from callboard.log.segments.segment_file import segment_path
from callboard.offline import OfflineDirectory
from callboard.recordings.manifest import MANIFEST_NAME
from callboard.recordings.reader import open_recording
from callboard.spark.files import is_there, opened, split

CHUNK_BYTES: Final = 1 * MIB
Lost = Callable[[int, int], object]
"""Called with the first and the last offset of what is damaged."""


@attrs.frozen
class Slice:
    """The offsets `[start, stop)` of one segment."""

    topic: str
    partition: int
    path: str
    base_offset: int
    end_offset: int
    """Where the segment ends, or the partition when the read was planned."""
    start: int
    stop: int

    @property
    def label(self) -> str:
        """How messages name the partition."""
        return f"{self.topic}/{self.partition}"


@attrs.frozen(kw_only=True)
class Wanted:
    """What of a recording or a topic is to be read."""

    path: str
    topic: str | None = None
    """Needed for a runtime's directory; a recording has none, and this names its records."""
    partitions: frozenset[int] | None = None
    is_filtered: bool = False
    """Whether `partitions` come from a filter, which may name some that are not there."""
    start_offset: int = 0
    stop_offset: int | None = None

    def takes(self, partition: int) -> bool:
        """Whether records of that partition are wanted."""
        return self.partitions is None or partition in self.partitions


async def plan(wanted: Wanted) -> list[Slice]:
    """The slices of all segments that hold something wanted, by partition and offset.

    Raises `TopicNotFound`, `RecordingInvalid`, `StorageError`, `LogCorrupt`; `InvalidArgument` for a partition that is
    not there, and for a topic that is not named.
    """
    if is_there(f"{wanted.path}/{MANIFEST_NAME}"):
        folder, name = split(wanted.path)
        disk = HostDisk(folder, read_only=True)
        try:
            files = await disk.incarnate("spark")
            recording = await open_recording(files, name)
            _check_partitions(wanted, len(recording.manifest.partitions))
            topic = wanted.topic or recording.manifest.source.get("topic", name)
            return [
                piece
                for partition in range(len(recording.manifest.partitions))
                if wanted.takes(partition)
                for piece in await _of_partition(
                    files, folder, topic, partition, f"{name}/{partition}", wanted
                )
            ]
        finally:
            await disk.aclose()
    if wanted.topic is None:
        raise InvalidArgument(
            f"{wanted.path} is no recording. To read a topic of a runtime's directory, name it: .option('topic', ...)."
        )
    async with OfflineDirectory(wanted.path) as offline:
        record = await offline.topic(wanted.topic)
        _check_partitions(wanted, record.settings.partitions)
        root = "/".join(split(wanted.path))
        return [
            piece
            for partition in range(record.settings.partitions)
            if wanted.takes(partition)
            for piece in await _of_partition(
                offline.files, root, wanted.topic, partition, f"topics/{record.topic_id}/{partition}", wanted
            )
        ]


def _check_partitions(wanted: Wanted, count: int) -> None:
    for partition in () if wanted.is_filtered else sorted(wanted.partitions or ()):
        if not 0 <= partition < count:
            raise InvalidArgument(
                f"{wanted.path} has no partition {partition}. Its partitions are 0 to {count - 1}."
            )


async def _of_partition(
    files: Incarnation, root: str, topic: str, partition: int, directory: str, wanted: Wanted
) -> list[Slice]:
    reader = await LogReader.open(files, directory)
    await reader.close()
    bases = [base for base in await segment_bases(files, directory) if base < reader.visible_end]
    ends = [*bases[1:], reader.visible_end][: len(bases)]
    slices = []
    for base, end in zip(bases, ends, strict=True):
        start = max(base, wanted.start_offset)
        stop = end if wanted.stop_offset is None else min(end, wanted.stop_offset)
        if start < stop:
            path = f"{root}/{segment_path(directory, base)}"
            slices.append(Slice(topic, partition, path, base, end, start, stop))
    return slices


def read_slice(piece: Slice, lost: Lost | None = None) -> Iterator[Columns]:
    """The batches of a slice, in order; memory is bounded by the largest.

    What is damaged is named to `lost`; without it, `LogCorrupt` is raised. Raises `OffsetOutOfRange` when the segment
    is there no more, `StorageError`.
    """
    if lost is None:
        lost = _refuse(piece)
    with opened(piece.path) as file:
        try:
            header = decode_segment_header(file.read(0, SEGMENT_HEADER_BYTES))
        except SegmentHeaderInvalid:
            lost(piece.start, piece.stop - 1)
            return
        if header.base_offset != piece.base_offset:
            lost(piece.start, piece.stop - 1)
            return
        found: list[Columns] = []

        def visit(position: int, fields: FrameFields, body: memoryview) -> bool:
            del position
            found.append(decode_body(FrameHeader(*fields), body))
            return False

        walk = FrameWalk(
            header.segment_id,
            piece.base_offset,
            limit=piece.end_offset,
            check_from=piece.start,
            visit=visit,
            visit_from=piece.start,
            chunk_bytes=CHUNK_BYTES,
            first_bytes=CHUNK_BYTES,
        )
        offset, is_over = piece.start, False
        while not is_over and offset < piece.stop:
            is_over = run_walk(walk, file.read)
            for columns in found:
                if offset >= piece.stop:
                    break
                if columns.base_offset > offset:
                    lost(offset, min(columns.base_offset, piece.stop) - 1)
                following = min(columns.last_offset + 1, piece.stop)
                first = columns.index_at(max(offset, piece.start))
                last = columns.index_at(piece.stop)
                if first < last:
                    yield columns.select(first, last)
                offset = max(offset, following)
            found.clear()
        if offset < piece.stop:
            lost(offset, piece.stop - 1)


def _refuse(piece: Slice) -> Lost:
    def refuse(first: int, last: int) -> None:
        raise LogCorrupt(
            f"{piece.label}: offsets {first} to {last} are damaged or missing, in {piece.path}. Run `callboard verify`,"
            " then `callboard repair`, or read with .option('mode', 'permissive').",
            path=piece.path,
            offsets=(first, last),
        )

    return refuse
