"""Reading a partition: from memory, from the page cache without waiting, from the disk.

Sealed segments are opened when they are read, and a few are kept open. Their indexes are loaded, or built, on
first use. A read that meets bytes that are no valid frame scans the segment once, notes what is damaged, and goes
on behind it: the offsets lost are named, the others are served. So it is with a file that is missing, unless retention
has removed it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from operator import attrgetter
from typing import Final

import attrs
import trio

from callboard.log.errors import LogCorrupt, PlanFailed
from callboard.log.format.columns import NO_TIME, Columns
from callboard.log.format.frame_walk import EVERYTHING, FrameWalk, run_walk_async, run_walk_cached
from callboard.log.format.index import SegmentIndex
from callboard.log.limits import KIB
from callboard.log.partition.tail_cache import TailCache
from callboard.log.seams.disk import Close, Incarnation, Open, Verb
from callboard.log.segments.reading import Reading, ReadRequest
from callboard.log.segments.segment_scan import index_stored, scan_stored
from callboard.log.segments.segments import Damage, SegmentList, StoredSegment
from callboard.log.segments.time_search import TimeSearch, first_at

CHUNK_BYTES: Final = 256 * KIB
"""Read at a time, unless a frame is larger."""
HOT_CHUNK_BYTES: Final = 64 * KIB


@attrs.define(eq=False)
class LogReads:
    """The reading half of a partition log."""

    _files: Incarnation
    _segments: SegmentList
    _tail: TailCache
    _open_segments: int = attrs.field(kw_only=True)
    _is_recovered: bool = attrs.field(kw_only=True)
    """Before that, a file that is missing says nothing: recovery may be moving it."""
    _frame: Columns | None = None
    """The last frame of which a read wanted a part only: the next part is cut from it. No larger than the tail."""
    _opening: trio.Lock = attrs.Factory(trio.Lock)
    _uses: int = 0
    _closing: list[StoredSegment] = attrs.Factory(list)
    """Dropped by retention while they are read."""

    # -- without waiting ----------------------------------------------------------------------------------------

    def read_cached(
        self, offset: int, durable_end: int, *, max_records: int, max_bytes: int
    ) -> list[Columns] | None:
        """What the page cache holds from `offset` on; None when the disk has to be asked."""
        request = ReadRequest(offset, max_records, max_bytes)
        if self._take_again(request) and request.batches:
            return request.batches
        segment, _ = self._segments.holding(offset)
        if not segment.is_open or not segment.is_indexed or segment.index is None:
            return None
        if not segment.base_offset <= offset < segment.end_offset:
            return None
        limit = min(durable_end, segment.end_offset)
        walk = self._walk(
            segment, request, segment.index, *segment.index.find_offset(offset), limit, HOT_CHUNK_BYTES
        )
        run_walk_cached(walk, partial(self._files.read_cached, segment.file.handle))
        self._keep(request)
        return request.batches if request.batches and not request.lost else None

    def _take_again(self, request: ReadRequest) -> bool:
        """Take from the frame that is kept; False when that does not hold the offset."""
        columns = self._frame
        if columns is None or not columns.base_offset <= request.offset <= columns.last_offset:
            return False
        request.take(columns)
        if request.offset > columns.last_offset:
            self._frame = None  # a reader in order is past it
        return True

    def _keep(self, request: ReadRequest) -> None:
        """Keep the frame that was cut, for the next read."""
        if request.cut is not None and request.cut.size_bytes <= self._tail.limit_bytes:
            self._frame = request.cut

    @staticmethod
    def _walk(
        segment: StoredSegment,
        request: ReadRequest,
        index: SegmentIndex,
        position: int,
        expected: int,
        limit: int,
        chunk_bytes: int,
    ) -> FrameWalk:
        """A walk for `request` that ends where no valid frame follows.

        It begins with the bytes that the index says are needed, at most a chunk, or the first frames when these are
        longer.
        """
        least, needed = index.bytes_between(expected, min(request.offset + request.records, limit))
        chunk_bytes = max(chunk_bytes, least)
        return FrameWalk(
            segment.segment_id,
            expected,
            position=position,
            file_end=segment.file.position,
            limit=limit,
            # Elsewhere than in a damaged segment a header that holds is enough to be passed over.
            check_from=EVERYTHING if segment.damages else request.offset,
            visit=request.visit,
            visit_from=request.offset,
            resync=False,
            chunk_bytes=chunk_bytes,
            first_bytes=needed or chunk_bytes,
        )

    # -- from the disk --------------------------------------------------------------------------------------------

    async def read(
        self, offset: int, visible_end: int, durable_end: int, *, max_records: int, max_bytes: int
    ) -> Reading:
        """The batches from `offset` on; offsets that hold no record are named, and passed."""
        request = ReadRequest(offset, max_records, max_bytes)
        while request.offset < visible_end and not request.is_fulfilled:
            tail = self._tail.read(request.offset, max_records=request.records, max_bytes=request.size_bytes)
            if tail is not None:
                for columns in tail:
                    request.take(columns)
                break
            if self._take_again(request):
                continue
            segment, following = self._segments.holding(request.offset)
            if request.offset < segment.base_offset:
                request.drop(segment.base_offset)
            elif request.offset >= segment.end_offset:
                end = visible_end if following is None else min(following.base_offset, visible_end)
                request.lose(request.offset, end - 1)
            elif request.offset >= durable_end:
                break  # synced since this read began, and no longer in memory: the next read finds it
            else:
                await self._read_segment(segment, request, durable_end)
        self._keep(request)
        await self.close_dropped()
        return request.reading()

    async def _read_segment(self, segment: StoredSegment, request: ReadRequest, durable_end: int) -> None:
        """Walk through one segment until the request is fulfilled or the segment ends."""
        segment.readers += 1
        try:
            limit = min(durable_end, segment.end_offset)
            if not await self._open(segment):
                if segment.is_dropped:
                    request.drop(limit)
                else:
                    request.lose(request.offset, limit - 1)
                return
            index = await index_stored(self._files, segment)
            position, expected = index.find_offset(request.offset)
            is_scanned = False
            while True:
                walk = self._walk(segment, request, index, position, expected, limit, CHUNK_BYTES)
                await run_walk_async(walk, partial(self._files.read, segment.file.handle))
                if request.is_fulfilled:
                    return
                if walk.next_offset >= limit:
                    # What is still wanted lies in damage before the first frame that the index names.
                    request.lose(request.offset, limit - 1)
                    return
                damage = segment.damage_at(walk.end)
                if damage is not None:
                    if damage.last_offset >= damage.first_offset:
                        request.lose(damage.first_offset, damage.last_offset)
                    position, expected = damage.end, max(walk.next_offset, damage.last_offset + 1)
                    continue
                if is_scanned:
                    raise LogCorrupt(
                        f"{segment.file.path} cannot be read at byte {walk.end}, offset {walk.next_offset}. "
                        "Run `callboard verify`, then `callboard repair`.",
                        path=segment.file.path,
                        offsets=(walk.next_offset, walk.next_offset),
                    )
                # The damage has not been surveyed yet, and which entries of the index lead nowhere.
                kept = index if segment is self._segments.active else None
                await scan_stored(self._files, segment, limit=limit, kept=kept)
                is_scanned = True
                position, expected = (segment.index or index).find_offset(request.offset)
        finally:
            segment.readers -= 1

    # -- by time --------------------------------------------------------------------------------------------------

    async def offset_at(self, search: TimeSearch, visible_end: int, durable_end: int) -> int:
        """The first offset that `search` finds, else `visible_end`."""
        for segment in tuple(self._segments):
            newest_us = await self.newest_time(segment)
            if newest_us < search.time_us:
                if newest_us != NO_TIME:
                    search.pass_over()
                continue
            segment.readers += 1
            try:
                if not await self._open(segment):
                    continue
                is_found = await first_at(
                    self._files,
                    segment.file.handle,
                    segment.segment_id,
                    segment.base_offset,
                    (await index_stored(self._files, segment)).find_time(search.time_us),
                    search,
                    limit=min(durable_end, segment.end_offset),
                    file_end=segment.file.position,
                )
            finally:
                segment.readers -= 1
            if is_found:
                break
        else:
            for columns in self._tail.from_offset(durable_end):
                if search.take(columns):
                    break
        return search.found(visible_end)

    async def newest_time(self, segment: StoredSegment) -> int:
        """The latest append time of the records in `segment`, in microseconds; without its file, when it was begun."""
        if segment.newest_us is not None:
            return segment.newest_us
        segment.readers += 1
        try:
            if not await self._open(segment):
                return segment.created_us
            newest_us = (await index_stored(self._files, segment)).max_time_us
        finally:
            segment.readers -= 1
        if segment is not self._segments.active:
            segment.newest_us = newest_us
        return newest_us

    # -- open files -----------------------------------------------------------------------------------------------

    async def _open(self, segment: StoredSegment) -> bool:
        """Open the segment, and close the one least lately read when too many are open; False when its file is gone."""
        self._uses += 1
        segment.last_used = self._uses
        if segment.is_open:
            return True
        async with self._opening:
            if segment.is_open:
                return True
            try:
                await self._files.submit([*self.close_idle(1), Open(segment.file.handle)])
            except PlanFailed as error:
                if not self._is_recovered or not isinstance(error.error, FileNotFoundError):
                    raise
                if not segment.is_dropped:
                    first, last = segment.base_offset, segment.end_offset - 1
                    segment.damages = (Damage(segment.file.path, 0, 0, first, last, "the file is missing"),)
                return False
            segment.is_open = True
            return True

    def close_idle(self, opening: int) -> list[Verb]:
        """Verbs, to be run first, that close what was not read lately, so that `opening` more may be opened."""
        idle = [other for other in tuple(self._segments)[:-1] if other.is_open and not other.readers]
        idle.sort(key=attrgetter("last_used"))
        closing: list[Verb] = []
        for other in idle[: max(0, len(idle) + opening - self._open_segments)]:
            closing.append(Close(other.file.handle))
            # A reader that comes before these verbs have run opens a handle of its own.
            other.file.handle = self._files.handle(other.file.path)
            other.is_open = other.is_indexed = False
            other.index = None
        return closing

    async def close_dropped(self, segments: Sequence[StoredSegment] = ()) -> None:
        """Close `segments`, which are dropped, and those dropped earlier; the ones being read are closed later."""
        closing = self.forget(segments)
        if closing:
            await self._files.submit(closing)

    def forget(self, segments: Sequence[StoredSegment]) -> list[Verb]:
        """As `close_dropped`: the verbs."""
        dropped = self._closing + [segment for segment in segments if segment.is_open]
        self._closing = [segment for segment in dropped if segment.readers]
        return [Close(segment.file.handle) for segment in dropped if not segment.readers]
