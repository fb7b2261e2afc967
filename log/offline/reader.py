"""Read a partition without its lock, while its owner, perhaps in another process, continues to write.

The owner keeps a small `committed` file beside the segments; a reader never passes the visible end that it names.
Everything below that end stays where it is, or is found again in a segment that replaces the one it was in, until
retention removes it.

Invariants
----------
LR1  The directory is listed after the visible end was read. Whatever the owner abandoned before it moved the end is
     then superseded by a segment in the list, so frames that were never acknowledged are never served.
LR2  A segment ends where its successor begins, whatever follows in its file.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar

import attrs

from callboard.log.errors import InvalidArgument, LogCorrupt, OffsetOutOfRange, PlanFailed
from callboard.log.format.committed import (
    COMMITTED_NAME,
    FOREIGN,
    GONE,
    Committed,
    decode_committed,
    says_nothing,
)
from callboard.log.format.faults import CommittedInvalid, FaultReason, SegmentHeaderInvalid
from callboard.log.format.frame import FRAME_HEADER_BYTES
from callboard.log.format.frame_walk import CHUNK_BYTES, FrameWalk, run_walk_async
from callboard.log.format.index import SegmentIndex
from callboard.log.format.segment import SEGMENT_HEADER_BYTES
from callboard.log.format.stamps import Stamps
from callboard.log.limits import KIB, READ_BYTES_DEFAULT
from callboard.log.seams.disk import Close, Incarnation
from callboard.log.segments.headers import find_covered, read_headers
from callboard.log.segments.index_file import load_index
from callboard.log.segments.open_segment import OpenSegment, open_segment
from callboard.log.segments.placing import place_segments
from callboard.log.segments.reading import Reading, ReadRequest
from callboard.log.segments.segment_file import segment_path, segment_sizes
from callboard.log.segments.small_files import open_file, read_whole
from callboard.log.segments.time_search import TimeSearch, first_at

OPEN_SEGMENTS_MAX: Final = 4
"""Segments kept open between reads."""
COMMITTED_TRIES: Final = 3
"""A store into the committed file may be under way; it is over within microseconds."""
Found = TypeVar("Found")
AHEAD_BYTES: Final = 64 * KIB
"""Read beyond what was asked for: headers, and the rest of the last frame."""


@attrs.define
class SegmentCursor:
    """A segment open for reading, and where the last read of it ended."""

    opened: OpenSegment
    index: SegmentIndex | None
    offset: int
    position: int

    def start(self, offset: int) -> tuple[int, int]:
        """(position, least offset there) from which a walk meets `offset`."""
        best = SEGMENT_HEADER_BYTES, self.opened.header.base_offset
        if self.index is not None and offset < self.index.next_offset:
            found = self.index.find_offset(offset)
            if found[1] <= offset:
                best = found
        if best[1] <= self.offset <= offset:
            best = self.position, self.offset
        return best


@attrs.define(eq=False)
class LogReader:
    """Reads one partition directory. `open` makes one; one task uses it at a time."""

    _files: Incarnation
    directory: str
    _bases: list[int] = attrs.Factory(list)
    _is_own_segment: dict[int, bool] = attrs.Factory(dict)
    """Of the files seen so far: whether the header says what the name says. Others are no part of the log."""
    _names: dict[int, int] = attrs.Factory(dict)
    """Which name each segment has; nothing while names are believed."""
    _is_misplaced: bool = False
    """A file in a wrong place was met: all of them are placed by their headers from now on."""
    visible_end: int = 0
    """Records below this offset may be read, as of the last refresh."""
    _committed: Committed = attrs.Factory(partial(Committed, 0, 0))
    """What the file said then."""
    _cursors: OrderedDict[int, SegmentCursor] = attrs.Factory(OrderedDict)

    @classmethod
    async def open(cls, files: Incarnation, directory: str) -> LogReader:
        """A reader of the partition in `directory`. A directory that is missing or never written reads as empty."""
        reader = cls(files, directory)
        await reader.refresh()
        return reader

    @property
    def start_offset(self) -> int:
        """The first offset that was there at the last refresh; equal to `visible_end` when there is none."""
        return min(self._bases[0], self.visible_end) if self._bases else self.visible_end

    async def refresh(self) -> int:
        """Look how far the log may be read now; returns `visible_end`. Raises `StorageError`."""
        self._committed = await self._load_committed()
        end = self._committed.visible_end
        if end != self.visible_end or not self._bases:
            self.visible_end = end
            await self._list()
        return end

    async def read(
        self, offset: int, *, max_records: int = 1000, max_bytes: int = READ_BYTES_DEFAULT
    ) -> Reading:
        """Batches from `offset` on, at most `max_records`; empty at the visible end.

        At least one record is read, however large, when there is one. Offsets that hold no record are passed over
        and named in `lost`. Raises `OffsetOutOfRange` when retention has removed the offset, or when it lies beyond
        the visible end; `LogCorrupt` when a segment's header is damaged.
        """
        if max_records < 1 or max_bytes < 1:
            raise InvalidArgument("a read of nothing: max_records and max_bytes are at least 1.")
        if offset >= self.visible_end:
            await self.refresh()
        request = ReadRequest(offset, max_records, max_bytes)
        is_retry = False
        while True:
            was_misplaced = self._is_misplaced
            try:
                await self._read(request, is_retry=is_retry)
                return request.reading()
            except MovedError:
                # Rolled, forked or removed since the directory was listed: try again, once; and once more when it was
                # seen only now that a file is in a wrong place.
                await self._list()
                if is_retry and was_misplaced == self._is_misplaced:
                    return request.reading()
                is_retry = True

    async def offset_at(self, time_us: int, now_us: int | None = None) -> int:
        """The first offset appended at or after `time_us` (microseconds since 1970), else `visible_end`.

        With the time that it is now, stamps that are ahead of it count as of now, or as what follows them (`stamps`);
        without, all stamps count as they are.
        """
        await self.refresh()
        return await self._placed(partial(self._offset_at, time_us, now_us))

    async def _offset_at(self, time_us: int, now_us: int | None) -> int:
        search = TimeSearch(time_us)
        if now_us is not None:
            search.believed = partial(Stamps().believed, now_us=now_us)
        for base in tuple(self._bases):
            if base >= self.visible_end:
                break
            try:
                cursor = await self._cursor(base)
            except MovedError:
                if self._is_misplaced and not self._names:
                    raise
                continue
            index = cursor.index
            if index is not None and index.sealed and index.max_time_us < time_us:
                if index.records:
                    search.pass_over()
                continue
            if await first_at(
                self._files,
                cursor.opened.handle,
                cursor.opened.header.segment_id,
                base,
                (SEGMENT_HEADER_BYTES, base) if index is None else index.find_time(time_us),
                search,
                limit=await self._end_of(base),
            ):
                break
        return search.found(self.visible_end)

    async def close(self) -> None:
        """Close the files. A closed reader may be used again."""
        cursors = list(self._cursors.values())
        self._cursors.clear()
        if cursors:
            await self._files.submit([Close(cursor.opened.handle) for cursor in cursors])

    async def extents(self) -> list[tuple[int, int]]:
        """Each segment below the visible end: its first offset, and where it ends (LR2)."""
        return await self._placed(self._extents)

    async def _placed(self, look: Callable[[], Awaitable[Found]]) -> Found:
        """What `look` finds; once more when it met a file in a wrong place."""
        try:
            return await look()
        except MovedError:
            await self._list()
            return await look()

    async def _extents(self) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        base = self.start_offset
        while base < self.visible_end:
            end = await self._end_of(base)
            found.append((base, end))
            base = end
        return found

    # -- where things are ---------------------------------------------------------------------------------------

    async def _load_committed(self) -> Committed:
        path = f"{self.directory}/{COMMITTED_NAME}"
        data: bytes | None = None
        for _ in range(COMMITTED_TRIES):
            data = await read_whole(self._files, path)
            with suppress(CommittedInvalid):
                ends = decode_committed(data or b"")
                if ends.is_foreign(self.directory):
                    raise _unreadable(path, FOREIGN)
                return ends
        if not says_nothing(data or b""):
            raise _unreadable(path, "it is damaged")
        if data is None and await self._holds_records():
            raise _unreadable(path, GONE)
        return Committed(0, 0)  # a power loss may leave nothing but zeros in it

    async def _holds_records(self) -> bool:
        """Whether there are frames. A log without a committed file has none while it is made."""
        for base in segment_sizes(await self._files.list(self.directory)):
            if base:
                return True
            handle = self._files.handle(segment_path(self.directory, base))
            if await open_file(self._files, handle):
                data = await self._files.read(handle, SEGMENT_HEADER_BYTES, FRAME_HEADER_BYTES)
                await self._files.submit((Close(handle),))
                return any(data)
        return False

    async def _list(self) -> None:
        """List the segments (LR1), and forget the open files: some may have been replaced."""
        await self.close()
        sizes = segment_sizes(await self._files.list(self.directory))
        if self._is_misplaced or await self._begins_with_noise(next(iter(sizes), 0)):
            self._is_misplaced = True
            try:
                headers, _ = await read_headers(self._files, self.directory, sizes)
                placing = place_segments(self.directory, headers, self._committed)
                kept = [name for name in headers if name not in placing.refused]
                names = {placing.renamed.get(name, name): name for name in kept}
                found = {base: headers[name] for base, name in names.items()}
                paths = {base: segment_path(self.directory, name) for base, name in names.items()}
                covered = await find_covered(self._files, found, paths)
            except PlanFailed as error:
                if not isinstance(error.error, FileNotFoundError):
                    raise
            else:
                self._names = {base: name for base, name in names.items() if base not in covered}
                self._is_own_segment = dict.fromkeys(sorted(self._names), True)
                sizes = dict.fromkeys(self._is_own_segment, 0)
        self._bases = [base for base in sizes if self._is_own_segment.get(base, True)]

    async def _begins_with_noise(self, base: int) -> bool:
        """Whether the file with the lowest name, `base`, cannot be read, and retention has left the log to begin behind
        it: what cannot be read further on is met there.
        """
        if base >= (self._committed.begins_at(base) or 0):
            return False
        try:
            opened = await open_segment(self._files, segment_path(self.directory, base))
        except PlanFailed as error:
            if not isinstance(error.error, FileNotFoundError):
                raise
            return False  # retention has dropped it since
        except SegmentHeaderInvalid:
            return True
        await self._files.submit((Close(opened.handle),))
        return False

    async def _end_of(self, base: int) -> int:
        """Where a segment ends (LR2), by its successor's header; the last one at the visible end."""
        place = bisect_right(self._bases, base)
        while place < len(self._bases) and self._bases[place] < self.visible_end:
            successor = self._bases[place]
            if successor not in self._is_own_segment:
                was_misplaced = self._is_misplaced
                try:
                    await self._cursor(successor)
                except (LogCorrupt, MovedError):
                    if was_misplaced != self._is_misplaced:
                        raise
                    self._is_own_segment.setdefault(successor, True)
            if self._is_own_segment[successor]:
                return successor
            del self._bases[place]
        return self.visible_end

    async def _cursor(self, base: int) -> SegmentCursor:
        cursor = self._cursors.get(base)
        if cursor is not None:
            self._cursors.move_to_end(base)
            return cursor
        path = segment_path(self.directory, self._names.get(base, base))
        try:
            opened = await open_segment(self._files, path)
        except PlanFailed as error:
            if isinstance(error.error, FileNotFoundError):
                raise MovedError from error
            raise
        except SegmentHeaderInvalid as fault:
            if fault.reason is not FaultReason.FOREIGN and not self._is_misplaced:
                self._is_misplaced = True
                raise MovedError from fault
            raise LogCorrupt(
                f"the header of {path} is damaged ({fault}): none of its records can be read. Run `callboard verify`, "
                "then `callboard repair`.",
                path=path,
                offsets=(base, min([*self._bases[bisect_right(self._bases, base) :], self.visible_end]) - 1),
            ) from fault
        self._is_own_segment[base] = opened.header.base_offset == base
        if not self._is_own_segment[base]:
            self._is_misplaced = True
            await self._files.submit((Close(opened.handle),))
            raise MovedError
        segment_id = opened.header.segment_id
        index = await load_index(self._files, self.directory, base, segment_id)
        cursor = SegmentCursor(opened, index, base, SEGMENT_HEADER_BYTES)
        self._cursors[base] = cursor
        while len(self._cursors) > OPEN_SEGMENTS_MAX:
            _, old = self._cursors.popitem(last=False)
            await self._files.submit((Close(old.opened.handle),))
        return cursor

    # -- reading ------------------------------------------------------------------------------------------------

    async def _read(self, request: ReadRequest, *, is_retry: bool) -> None:
        if not self.start_offset <= request.offset <= self.visible_end:
            raise OffsetOutOfRange(
                f"offset {request.offset} is not in {self.directory}: it holds {self.start_offset} to "
                f"{self.visible_end}. Read from within, or from `start_offset`.",
                offset=request.offset,
                start=self.start_offset,
                end=self.visible_end,
            )
        while request.offset < self.visible_end and not request.is_fulfilled:
            base = self._bases[bisect_right(self._bases, request.offset) - 1]
            limit = await self._end_of(base)
            cursor = await self._cursor(base)
            await self._read_segment(cursor, request, limit, is_retry=is_retry)

    async def _read_segment(
        self, cursor: SegmentCursor, request: ReadRequest, limit: int, *, is_retry: bool
    ) -> None:
        """Walk one segment until the request is fulfilled or the segment ends."""
        position, expected = cursor.start(request.offset)
        chunk_bytes = min(request.size_bytes + AHEAD_BYTES, CHUNK_BYTES)
        walk = FrameWalk(
            cursor.opened.header.segment_id,
            expected,
            position=position,
            limit=limit,
            check_from=request.offset,
            visit=request.visit,
            visit_from=request.offset,
            resync=is_retry,
            chunk_bytes=chunk_bytes,
            first_bytes=chunk_bytes,
        )
        await run_walk_async(walk, partial(self._files.read, cursor.opened.handle))
        cursor.offset, cursor.position = walk.next_offset, walk.end
        if request.is_fulfilled:
            return
        if walk.next_offset < limit and not is_retry:
            raise MovedError
        request.lose(request.offset, limit - 1)


def _unreadable(path: str, why: str) -> LogCorrupt:
    return LogCorrupt(
        f"{path} is not believed: {why}. How far the partition may be read is not known. Open the directory for"
        " writing once, or run `callboard repair`: both rebuild the file.",
        path=path,
        offsets=None,
    )


class MovedError(Exception):
    """The directory has changed since it was listed. Raised and caught in this module only."""
