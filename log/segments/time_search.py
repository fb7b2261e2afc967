"""The search for the first record of a log that was appended at or after a time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import attrs

from callboard.log.format.columns import Columns
from callboard.log.format.frame import FrameFields, FrameHeader, decode_body
from callboard.log.format.frame_walk import FrameWalk, run_walk_async
from callboard.log.limits import KIB
from callboard.log.seams.disk import Handle, Incarnation

TIME_CHUNK_BYTES: Final = 256 * KIB
"""Read at a time when a time is looked for."""


def as_stamped(stamp_us: int) -> int:
    """A stamp counts as it is."""
    return stamp_us


@attrs.define
class TimeSearch:
    """Looks for the first record appended at or after `time_us`, microseconds since 1970: one walk after the other.

    A stamp that a clock made which was ahead (`stamps`) says only that the record was appended before it was noticed,
    and before what follows: if those come at or after `time_us`, the search finds the first such record before them.
    """

    time_us: int
    believed: Callable[[int], int] = as_stamped
    """The time for which a stamp counts."""
    offset: int | None = None
    _ahead: int | None = None
    """The first of the records stamped ahead that came last."""

    def visit(self, position: int, fields: FrameFields, body: memoryview) -> bool:
        """For a walk: True when the frame has such a record, whose offset is `offset` then."""
        del position
        header = FrameHeader(*fields)
        if header.max_time_us < self.time_us:
            self.pass_over()
            return False
        return self.take(decode_body(header, body))

    def pass_over(self) -> None:
        """Records that come next were appended before, and so was what precedes them."""
        self._ahead = None

    def take(self, columns: Columns) -> bool:
        """Look at records that come next; as `visit`."""
        for place in range(columns.count):
            stamp_us = columns.append_time(place)
            believed_us = self.believed(stamp_us)
            if believed_us < self.time_us:
                self._ahead = None
            elif believed_us < stamp_us:
                self._ahead = columns.offset(place) if self._ahead is None else self._ahead
            else:
                self.offset = columns.offset(place) if self._ahead is None else self._ahead
                return True
        return False

    def found(self, end: int) -> int:
        """The offset, when all was looked at up to `end`."""
        if self.offset is not None:
            return self.offset
        return end if self._ahead is None else self._ahead


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
