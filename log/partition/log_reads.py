"""Reading a partition: from memory, from the page cache without waiting, from the disk.

Sealed segments are opened when they are read, and a few are kept open. Their indexes are loaded, or built, on
first use. A read that meets bytes that are no valid frame scans the segment once, notes what is damaged, and goes
on behind it: the offsets lost are named, the others are served.
"""

from __future__ import annotations

from typing import Final

import trio

from callboard.log.errors import InternalError, LogCorrupt
from callboard.log.format.columns import Columns
from callboard.log.format.frame import FrameHeader, seed_of
from callboard.log.limits import KIB
from callboard.log.partition.tail_cache import TailCache
from callboard.log.seams.disk import Close, Incarnation, Open, Verb
from callboard.log.segments.reading import Outcome, Reading, Wish, walk
from callboard.log.segments.scanning import index_stored, scan_stored
from callboard.log.segments.segment_walk import FrameReader
from callboard.log.segments.segments import SegmentList, StoredSegment, position_of_offset, position_of_time

__all__ = ["LogReads"]

CHUNK_BYTES: Final = 256 * KIB
"""Read at a time, unless a frame is larger."""
HOT_CHUNK_BYTES: Final = 64 * KIB


class LogReads:
    """The reading half of a partition log."""

    def __init__(
        self, files: Incarnation, segments: SegmentList, tail: TailCache, *, open_segments: int
    ) -> None:
        self._files = files
        self._open_segments = open_segments
        self._segments = segments
        self._tail = tail
        self._opening = trio.Lock()
        self._uses = 0
        self._closing: list[StoredSegment] = []
        """Dropped by retention while somebody reads them."""

    # -- without waiting ----------------------------------------------------------------------------------------

    def read_hot(
        self, offset: int, visible_end: int, durable_end: int, *, max_records: int, max_bytes: int
    ) -> list[Columns] | None:
        """What memory and page cache hold from `offset` on; None when the disk has to be asked."""
        if offset >= visible_end:
            return []
        found = self._tail.read(offset, max_records=max_records, max_bytes=max_bytes)
        if found is not None:
            return found
        segment, _ = self._segments.holding(offset)
        if not segment.is_open or not segment.is_indexed or segment.index is None:
            return None
        if not segment.base_offset <= offset < segment.end_offset:
            return None
        wish = self._wish(segment, offset, durable_end, max_records, max_bytes)
        end = segment.file.position
        length = min(HOT_CHUNK_BYTES, end - wish.position)
        while length > 0:
            at = wish.position
            data = self._files.read_cached(segment.file.handle, wish.position, length)
            if data is None:
                break
            outcome = walk(memoryview(data), seed_of(segment.segment_id), wish)
            if outcome is not Outcome.MORE:
                break
            if len(data) < length or wish.batches:
                break
            tried, length = length, min(max(HOT_CHUNK_BYTES, wish.needed_bytes), end - wish.position)
            if wish.position == at and length <= tried:
                break  # a frame that reaches beyond the segment's end: damage, which `read` passes
        return wish.batches if wish.batches and not wish.lost else None

    @staticmethod
    def _wish(segment: StoredSegment, offset: int, durable_end: int, records: int, size: int) -> Wish:
        """A wish placed at the frame that the index names for `offset`."""
        if segment.index is None:
            raise InternalError(f"{segment!r} is read without an index", invariant="L4")
        wish = Wish(offset, records, size, limit=min(durable_end, segment.end_offset))
        wish.position, wish.expected = position_of_offset(segment.index, offset)
        return wish

    # -- from the disk --------------------------------------------------------------------------------------------

    async def read(
        self, offset: int, visible_end: int, durable_end: int, *, max_records: int, max_bytes: int
    ) -> Reading:
        """The batches from `offset` on; offsets that hold no record are named, and passed."""
        wish = Wish(offset, max_records, max_bytes)
        while wish.offset < visible_end and not wish.is_fulfilled:
            tail = self._tail.read(wish.offset, max_records=wish.records, max_bytes=wish.size_bytes)
            if tail is not None:
                for columns in tail:
                    wish.take(columns)
                break
            segment, following = self._segments.holding(wish.offset)
            if wish.offset < segment.base_offset:
                wish.lose(wish.offset, segment.base_offset - 1)
            elif wish.offset >= segment.end_offset:
                end = visible_end if following is None else min(following.base_offset, visible_end)
                wish.lose(wish.offset, end - 1)
            else:
                await self._read_segment(segment, wish, durable_end)
        await self._close_dropped()
        return wish.reading()

    async def _read_segment(self, segment: StoredSegment, wish: Wish, durable_end: int) -> None:
        """Walk through one segment until the wish is fulfilled or the segment ends."""
        segment.readers += 1
        try:
            await self._open(segment)
            index = await index_stored(self._files, segment)
            wish.limit = min(durable_end, segment.end_offset)
            wish.position, wish.expected = position_of_offset(index, wish.offset)
            seed = seed_of(segment.segment_id)
            length = CHUNK_BYTES
            while True:
                end = segment.file.position
                length = min(length, max(0, end - wish.position))
                data = await self._files.read(segment.file.handle, wish.position, length)
                outcome = walk(memoryview(data), seed, wish)
                if outcome is Outcome.DONE:
                    return
                is_whole = len(data) == length and wish.position + wish.needed_bytes <= end
                if outcome is Outcome.MORE and is_whole:
                    length = max(CHUNK_BYTES, wish.needed_bytes)
                else:
                    await self._pass_damage(segment, wish)
                    length = CHUNK_BYTES
        finally:
            segment.readers -= 1

    async def _pass_damage(self, segment: StoredSegment, wish: Wish) -> None:
        """No valid frame lies at the wish's position: find out how far the damage goes, and pass it."""
        damage = segment.damage_at(wish.position, wish.expected)
        if damage is None:
            keep_index = segment is self._segments.active
            await scan_stored(self._files, segment, limit=wish.limit, keep_index=keep_index)
            damage = segment.damage_at(wish.position, wish.expected)
        if damage is not None:
            if damage.last_offset >= damage.first_offset:
                wish.lose(damage.first_offset, damage.last_offset)
            wish.position = damage.end
            wish.expected = max(wish.expected, damage.last_offset + 1)
            return
        position, expected = wish.position, wish.expected
        if segment.index is not None:
            # The stored index may have been wrong; it was rebuilt, so the walk begins anew where it says.
            wish.position, wish.expected = position_of_offset(segment.index, wish.offset)
        if (wish.position, wish.expected) == (position, expected) or wish.restarted:
            raise LogCorrupt(
                f"{segment.file.path} cannot be read at byte {position}, offset {expected}. "
                "Run `callboard verify`, then `callboard repair`.",
                path=segment.file.path,
                offsets=(expected, expected),
            )
        wish.restarted = True

    # -- by time --------------------------------------------------------------------------------------------------

    async def offset_at(self, time_us: int, visible_end: int, durable_end: int) -> int:
        """The first offset whose append time is at or after `time_us`, else `visible_end`."""
        for segment in tuple(self._segments):
            if await self.newest_time(segment) < time_us:
                continue
            segment.readers += 1
            try:
                await self._open(segment)
                found = await self._first_at(segment, time_us, min(durable_end, segment.end_offset))
            finally:
                segment.readers -= 1
            if found is not None:
                return found
        for columns in self._tail.from_offset(durable_end):
            if columns.append_time_us >= time_us:
                return columns.base_offset
        return visible_end

    async def newest_time(self, segment: StoredSegment) -> int:
        """The latest append time of the records in `segment`, in microseconds."""
        if segment.newest_us is not None:
            return segment.newest_us
        segment.readers += 1
        try:
            await self._open(segment)
            newest_us = (await index_stored(self._files, segment)).max_time_us
        finally:
            segment.readers -= 1
        if segment is not self._segments.active:
            segment.newest_us = newest_us
        return newest_us

    async def _first_at(self, segment: StoredSegment, time_us: int, limit: int) -> int | None:
        """The first offset at or after `time_us`, below `limit`."""
        position, expected = position_of_time(await index_stored(self._files, segment), time_us)
        reader = FrameReader(self._files, segment.file.handle, segment.segment_id)
        is_scanned = False
        while expected < limit:
            damage = segment.damage_at(position, expected)
            if damage is not None:
                position, expected = damage.end, max(expected, damage.last_offset + 1)
                continue
            found = await reader.valid(position)
            if found is None:
                if is_scanned:
                    return None
                keep_index = segment is self._segments.active
                await scan_stored(self._files, segment, limit=limit, keep_index=keep_index)
                is_scanned = True
                position, expected = position_of_time(await index_stored(self._files, segment), time_us)
                continue
            header, columns = found
            if header.max_time_us >= time_us:
                return first_in_frame(header, columns, time_us)
            position, expected = position + header.frame_bytes, header.last_offset + 1
        return None

    # -- open files -----------------------------------------------------------------------------------------------

    async def _open(self, segment: StoredSegment) -> None:
        """Open the segment, and close the one least lately read when too many are open."""
        self._uses += 1
        segment.last_used = self._uses
        if segment.is_open:
            return
        async with self._opening:
            if segment.is_open:
                return
            await self._files.submit([*self.close_idle(1), Open(segment.file.handle)])
            segment.is_open = True

    def close_idle(self, opening: int) -> list[Verb]:
        """Verbs, to be run first, that close what was not read lately, so that `opening` more may be opened."""
        idle = [other for other in tuple(self._segments)[:-1] if other.is_open and not other.readers]
        idle.sort(key=last_used)
        closing: list[Verb] = []
        for other in idle[: max(0, len(idle) + opening - self._open_segments)]:
            closing.append(Close(other.file.handle))
            # A reader that comes before these verbs have run opens a handle of its own.
            other.file.handle = self._files.handle(other.file.path)
            other.is_open = other.is_indexed = False
            other.index = None
        return closing

    def forget(self, segments: list[StoredSegment]) -> list[Verb]:
        """Verbs that close dropped segments; those being read are closed later."""
        self._closing += [segment for segment in segments if segment.is_open]
        return self._closable()

    def _closable(self) -> list[Verb]:
        idle = [segment for segment in self._closing if not segment.readers]
        self._closing = [segment for segment in self._closing if segment.readers]
        return [Close(segment.file.handle) for segment in idle]

    async def _close_dropped(self) -> None:
        if self._closing:
            verbs = self._closable()
            if verbs:
                await self._files.submit(verbs)


def last_used(segment: StoredSegment) -> int:
    return segment.last_used


def first_in_frame(header: FrameHeader, columns: Columns, time_us: int) -> int:
    """The first offset of a frame whose append time is at or after `time_us`; there is one."""
    if columns.append_times is None or header.base_time_us >= time_us:
        return columns.offset(0)
    for place in range(columns.count):
        if columns.append_times[place] >= time_us:
            return columns.offset(place)
    return columns.last_offset
