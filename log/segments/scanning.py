"""Looking through segments: any file of frames, or a stored segment whose index and damages are wanted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final

import attrs

from callboard.log.format.faults import FaultReason, SegmentHeaderInvalid
from callboard.log.format.frame import LAST_OFFSET, FrameFields
from callboard.log.format.frame_walk import (
    BEYOND_ALL,
    CHUNK_BYTES,
    EVERYTHING,
    FIRST_BYTES,
    FrameWalk,
    Visit,
    run_walk_async,
)
from callboard.log.format.index import SegmentIndex
from callboard.log.format.segment import (
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    belongs_to,
    decode_segment_header,
)
from callboard.log.limits import KIB
from callboard.log.seams.disk import Close, Handle, Incarnation, Open
from callboard.log.segments.index_file import new_index, trusted_index
from callboard.log.segments.placing import passed_over
from callboard.log.segments.reading import TimeSearch
from callboard.log.segments.segment_file import segment_path
from callboard.log.segments.segments import Damage, StoredSegment
from callboard.log.segments.small_files import open_file

TIME_CHUNK_BYTES: Final = 256 * KIB
"""Read at a time when a time is looked for."""


@attrs.frozen
class OpenSegment:
    """A segment open for reading."""

    handle: Handle
    header: SegmentHeader
    size_bytes: int


async def open_segment(files: Incarnation, path: str) -> OpenSegment:
    """Open the segment at `path` and read its header.

    Raises `PlanFailed` (missing, refused), `SegmentHeaderInvalid` (a segment of another log, too), `FormatTooNew`; the
    file is closed then. When it is cancelled, the file stays open until its incarnation ends.
    """
    handle = files.handle(path)
    await files.submit((Open(handle),))
    try:
        header = decode_segment_header(await files.read(handle, 0, SEGMENT_HEADER_BYTES))
        if not belongs_to(header, path.rpartition("/")[0]):
            raise SegmentHeaderInvalid(FaultReason.FOREIGN, "the segment belongs to another log")
        return OpenSegment(handle, header, await files.size(handle))
    except BaseException:
        await files.submit((Close(handle),))
        raise


def is_blank(head: bytes, size_bytes: int) -> bool:
    """Whether a file of that size which begins with `head` holds nothing."""
    return size_bytes <= SEGMENT_HEADER_BYTES and not any(head)


async def frames_end(files: Incarnation, path: str, header: SegmentHeader) -> int:
    """One above the last offset of the frames in the segment with this header, or its base offset, also when the file
    is gone. Raises `PlanFailed`.
    """
    end = header.base_offset
    handle = files.handle(path)
    if not await open_file(files, handle):
        return end

    def visit(position: int, fields: FrameFields, body: memoryview) -> bool:
        nonlocal end
        del position, body
        end = max(end, fields[LAST_OFFSET] + 1)
        return False

    try:
        await scan_file(files, OpenSegment(handle, header, await files.size(handle)), visit=visit)
    finally:
        await files.submit((Close(handle),))
    return end


async def find_covered(
    files: Incarnation, headers: Mapping[int, SegmentHeader | None], paths: Mapping[int, str]
) -> set[int]:
    """The files of a partition, by base offset, that have nothing but a name, and no place in the log.

    No offset is used twice: what the segment before holds from that name on is in the log, and the file is not.
    `paths` are those of all files by base offset, whatever their names. Raises `PlanFailed`.
    """
    found = passed_over(headers)
    before: SegmentHeader | None = None
    end: int | None = None
    for base in sorted(headers):
        header = headers[base]
        if header is not None:
            before, end = header, None
        elif before is not None and base not in found:
            if end is None:
                end = await frames_end(files, paths[before.base_offset], before)
            if end > base:
                found.add(base)
    return found


async def read_headers(
    files: Incarnation, directory: str, sizes: Mapping[int, int]
) -> tuple[dict[int, SegmentHeader | None], list[int]]:
    """What the headers of the files of these `sizes` say, None where they cannot be read; and which files are blank.

    All are named by the offset in their name. Raises `PlanFailed`, `FormatTooNew`.
    """
    headers: dict[int, SegmentHeader | None] = {}
    blanks: list[int] = []
    for name, size_bytes in sizes.items():
        handle = files.handle(segment_path(directory, name))
        await files.submit((Open(handle),))
        try:
            data = await files.read(handle, 0, SEGMENT_HEADER_BYTES)
            if is_blank(data, size_bytes):
                blanks.append(name)
                continue
            headers[name] = None
            headers[name] = decode_segment_header(data)
        except SegmentHeaderInvalid:
            pass
        finally:
            await files.submit((Close(handle),))
    return headers, blanks


async def holds_another(files: Incarnation, directory: str, sizes: Mapping[int, int]) -> bool:
    """Whether there are segments in a folder, all can be read, and all belong to other logs."""
    headers, _ = await read_headers(files, directory, sizes)
    known = [header for header in headers.values() if header is not None]
    return len(known) == len(headers) > 0 and not any(belongs_to(header, directory) for header in known)


async def scan_file(
    files: Incarnation,
    segment: OpenSegment,
    *,
    visit: Visit | None = None,
    resync: bool = True,
    progress: Callable[[int], None] | None = None,
    chunk_bytes: int = CHUNK_BYTES,
    between_chunks: Callable[[], Awaitable[None]] | None = None,
) -> FrameWalk:
    """Walk through the whole segment, checking every byte. `progress` is called with the bytes of each chunk.

    Other tasks run between two chunks, and what is visited in one is visited in one step. `between_chunks` is awaited
    after each.
    """

    async def pread(position: int, length: int) -> bytes:
        data = await files.read(segment.handle, position, length)
        if progress is not None:
            progress(len(data))
        return data

    header = segment.header
    walk = FrameWalk(
        header.segment_id,
        header.base_offset,
        file_end=segment.size_bytes,
        visit=visit,
        resync=resync,
        chunk_bytes=chunk_bytes,
        # A search for the next frame reads to the end.
        first_bytes=chunk_bytes if resync else FIRST_BYTES,
    )
    if between_chunks is None:
        return await run_walk_async(walk, pread)
    while (need := walk.need) is not None:
        walk.feed(await pread(need.position, need.length))
        await between_chunks()
    return walk


async def ensure_open(files: Incarnation, segment: StoredSegment) -> None:
    """Open the segment's file unless it is."""
    if not segment.is_open:
        await files.submit((Open(segment.file.handle),))
        segment.is_open = True


async def scan_from(
    files: Incarnation,
    segment: StoredSegment,
    index: SegmentIndex,
    *,
    check_bodies: bool = True,
    limit: int = BEYOND_ALL,
    visit: Visit | None = None,
    visit_from: int = EVERYTHING,
) -> FrameWalk:
    """Walk through the file from where `index` ends to its position, and note the frames found in `index`."""
    walk = FrameWalk(
        segment.segment_id,
        index.next_offset,
        position=index.end_position,
        file_end=segment.file.position,
        index=index,
        limit=limit,
        check_from=EVERYTHING if check_bodies else BEYOND_ALL,
        visit=visit,
        visit_from=visit_from,
    )
    return await run_walk_async(walk, partial(files.read, segment.file.handle))


def damages_of(path: str, scan: FrameWalk, limit: int = BEYOND_ALL) -> list[Damage]:
    """The damage below offset `limit` that a walk over the file at `path` has found."""
    return [
        Damage(path, found.start, found.end, found.first_offset_lost, min(found.last_offset_lost, limit - 1))
        for found in scan.damages
        if found.first_offset_lost < limit
    ]


async def scan_stored(
    files: Incarnation, segment: StoredSegment, *, limit: int, kept: SegmentIndex | None = None
) -> int:
    """Check every frame below offset `limit`: set the segment's damages and its index.

    An index to be `kept` gets the entries that the check found, and the segment's stays as it is. Returns where the
    frames end, `limit` at most.
    """
    await ensure_open(files, segment)
    index = new_index(segment.segment_id, segment.base_offset)
    end = segment.file.position
    scan = await scan_from(files, segment, index, limit=limit)
    path = segment.file.path
    damages = damages_of(path, scan, limit)
    if scan.next_offset < limit:
        damages.append(Damage(path, scan.end, end, scan.next_offset, limit - 1))
    segment.damages = tuple(damages)
    if kept is not None:
        kept.replace(index)
    else:
        if index.next_offset > limit:
            index.cut(limit)
        segment.index, segment.is_indexed = index, True
    return min(scan.next_offset, limit)


async def index_stored(files: Incarnation, segment: StoredSegment) -> SegmentIndex:
    """The index of a sealed segment: in memory, else stored, continued by a scan where it ends too early."""
    if segment.index is not None and segment.is_indexed:
        return segment.index
    await ensure_open(files, segment)
    index = await trusted_index(files, segment, segment.end_offset)
    if index.next_offset < segment.end_offset:
        scan = await scan_from(files, segment, index, check_bodies=False, limit=segment.end_offset)
        if scan.damages:
            # The index begins, or goes on, behind them: no walk would come upon them, so they are named here.
            await scan_stored(files, segment, limit=segment.end_offset, kept=index)
        if index.next_offset > segment.end_offset:
            index.cut(segment.end_offset)
    segment.index, segment.is_indexed = index, True
    return index


async def first_at(
    files: Incarnation,
    handle: Handle,
    segment_id: int,
    base_offset: int,
    start: tuple[int, int],
    search: TimeSearch,
    *,
    limit: int,
    file_end: int | None = None,
) -> bool:
    """Have `search` look at the records below `limit`; returns whether it has found one.

    `start` is what an index finds for its time: what lies between `base_offset` and there was appended before.
    """
    position, expected = start
    if expected > base_offset:
        search.pass_over()
    walk = FrameWalk(
        segment_id,
        expected,
        position=position,
        file_end=file_end,
        limit=limit,
        visit=search.visit,
        chunk_bytes=TIME_CHUNK_BYTES,
    )
    await run_walk_async(walk, partial(files.read, handle))
    return search.offset is not None
