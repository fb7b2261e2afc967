"""Reading one slice. Needs no Spark.

A task that begins within a segment finds its place by the segment's index, and trusts it as long as valid frames
follow each other from there without a gap. Otherwise it walks the segment from its beginning, as if there were no
index. So the same damage is named, however a segment is divided.

A recording never changes. The segment of a topic may be replaced between planning and reading, or removed by
retention: what is not found where the plan says is looked for once more, as every reader of the log does.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import closing

import trio

from callboard.log.errors import (
    FormatTooNew,
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
from callboard.log.offline.reader import LogReader
from callboard.log.segments.index_file import decode_stored
from callboard.log.segments.reading import Reading
from callboard.log.segments.segment_file import index_path
from callboard.offline import files_below
from callboard.spark.files import is_there, opened, size_of
from callboard.spark.segment_frames import CHUNK_BYTES, segment_frames
from callboard.spark.slices import Slice

Lost = Callable[[int, int], object]
"""Called with the first and the last offset of what is damaged, or was removed."""


def read_slice(piece: Slice, lost: Lost | None = None, removed: Lost | None = None) -> Iterator[Columns]:
    """The batches of a slice, in order; memory is bounded by the largest, and `CHUNK_BYTES` of the file.

    Calls `lost` with what is damaged, and `removed` with what retention has removed since the read was planned;
    without them, it raises `LogCorrupt` and `OffsetOutOfRange`. Raises `RecordingInvalid` when a
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
        yield from _from_log(piece, offset, lost, removed)


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
    """Where the index has a frame at or below the slice's start: its position and offset. None when it has none.

    The index is not checked against the segment: the frame may lie elsewhere.
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


def _from_log(piece: Slice, offset: int, lost: Lost, removed: Lost | None) -> Iterator[Columns]:
    """The rest of a topic's slice, from where the log has it by now."""
    while offset < piece.stop:
        try:
            reading = trio.run(_read_log, piece, offset)
        except OffsetOutOfRange as error:
            if removed is None:
                raise _gone(piece, offset, error) from error
            first_left = _first_left(piece, offset, error)
            removed(offset, first_left - 1)
            offset = first_left
            continue
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


async def _read_log(piece: Slice, offset: int) -> Reading:
    """What the log has from `offset` on. Raises `OffsetOutOfRange` when retention removed it, or all of the topic."""
    if not is_there(f"{piece.root}/{piece.directory}"):
        raise OffsetOutOfRange(
            f"{piece.label}: its folder is gone.", offset=offset, start=piece.stop, end=piece.stop
        )
    async with files_below(piece.root) as files:
        try:
            reader = await LogReader.open(files, piece.directory)
            try:
                return await reader.read(offset, max_records=piece.stop - offset, max_bytes=CHUNK_BYTES)
            finally:
                await reader.close()
        except LogCorrupt as damage:
            if damage.offsets is None:
                raise
            # The header of a segment is damaged: none of its records can be read.
            last = damage.offsets[1]
            return Reading([], last + 1, ((offset, last),))


def _first_left(piece: Slice, offset: int, error: OffsetOutOfRange) -> int:
    """The first offset behind `offset` that the log still has, or the slice's end."""
    start = error.fields.get("start")
    return min(start, piece.stop) if isinstance(start, int) and start > offset else piece.stop


def _gone(piece: Slice, offset: int, error: OffsetOutOfRange) -> OffsetOutOfRange:
    return OffsetOutOfRange(
        f"{piece.label}: offset {offset} no longer exists: retention removed it after the read was planned, or the"
        f" topic was deleted ({piece.path}). Load again, or read what is left with"
        " .option('failOnDataLoss', 'false').",
        offset=offset,
        **{name: error.fields.get(name) for name in ("start", "end")},
    )


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
