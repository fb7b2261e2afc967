"""Dropping segments: one name after the other, oldest first, each durable before the next.

At every crash point the segments left continue one another: a later one is never gone while an earlier one is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from callboard.log.errors import PlanFailed
from callboard.log.partition.log_reads import LogReads
from callboard.log.partition.log_settings import LogSettings
from callboard.log.partition.retention import (
    Retention,
    SealedSegment,
    blocks_publishing,
    choose_droppable,
    count_dropped,
)
from callboard.log.seams.disk import Incarnation, SyncDirectory, Unlink, Verb
from callboard.log.segments.segment_file import INDEX_SUFFIX, base_offset_of, index_path
from callboard.log.segments.segments import SegmentList, StoredSegment

__all__ = ["Retirement"]

MICROSECONDS: Final = 1_000_000


class Retirement:
    """The retention of one partition log; `SegmentList` is shared with it."""

    def __init__(self, files: Incarnation, directory: str, segments: SegmentList, reads: LogReads) -> None:
        self._files = files
        self._directory = directory
        self._segments = segments
        self._reads = reads
        self._unsettled_from = 0
        self._drop_unread = False

    async def retain(
        self, settings: LogSettings, *, now_us: int, unsettled_from: int, drop_unread: bool
    ) -> Retention:
        """Drop what `settings` allow. Raises `PlanFailed`; what was dropped until then is gone."""
        self._unsettled_from, self._drop_unread = unsettled_from, drop_unread
        droppable = await self._droppable(settings, now_us)
        if droppable:
            segments = [self._segments[place] for place in range(len(droppable))]
            gone, failure = await self._unlink(segments)
            self._segments.drop_first(gone)
            closing = self._reads.forget(segments[:gone])
            if closing:
                await self._files.submit(closing)
            if failure is not None:
                raise failure
        records, unread = count_dropped(droppable, unsettled_from)
        return Retention(len(droppable), records, unread, self._segments[0].base_offset)

    async def _droppable(self, settings: LogSettings, now_us: int) -> list[SealedSegment]:
        """The oldest sealed segments, as far as they may go."""
        oldest: list[SealedSegment] = []
        if settings.retention_age_s is None and settings.retention_bytes is None:
            return oldest
        rest_bytes = self._segments.size_bytes
        for segment in tuple(self._segments)[:-1]:
            newest_us = 0
            if settings.retention_age_s is not None:
                newest_us = await self._reads.newest_time(segment)
            oldest.append(
                SealedSegment(segment.base_offset, segment.end_offset, segment.size_bytes, newest_us)
            )
            rest_bytes -= segment.size_bytes
            count = choose_droppable(
                oldest,
                active_bytes=rest_bytes,
                now_us=now_us,
                retention_age_s=settings.retention_age_s,
                retention_bytes=settings.retention_bytes,
                unsettled_from=self._unsettled_from,
                drop_unread=self._drop_unread,
            )
            if count < len(oldest):
                return oldest[:count]
        return oldest

    async def _unlink(self, dropped: Sequence[StoredSegment]) -> tuple[int, PlanFailed | None]:
        """Unlink the segments; returns how many are gone, and the failure that stopped it."""
        entries = await self._files.list(self._directory)
        indexes = {base_offset_of(entry.name, INDEX_SUFFIX) for entry in entries}
        for count, segment in enumerate(dropped):
            plan: list[Verb] = [Unlink(segment.file.path), SyncDirectory(self._directory)]
            if segment.base_offset in indexes:
                plan.insert(0, Unlink(index_path(self._directory, segment.base_offset)))
            try:
                await self._files.submit(plan)
            except PlanFailed as failed:
                is_gone = type(failed.verb) is SyncDirectory
                return count + is_gone, failed
        return len(dropped), None

    def over_limit(self, settings: LogSettings) -> bool:
        """Whether unsettled records keep the oldest segment, as far as `retain` was told."""
        return blocks_publishing(
            size_bytes=self._segments.size_bytes,
            retention_bytes=settings.retention_bytes,
            first_end=self._segments[0].end_offset,
            unsettled_from=self._unsettled_from,
            drop_unread=self._drop_unread,
        )

    def next_due(self, settings: LogSettings, now_us: int) -> float | None:
        """Seconds until the oldest sealed segment may be too old; None when that is never."""
        if settings.retention_age_s is None or len(self._segments) == 1:
            return None
        sealed_us = self._segments[1].created_us
        return max(0.0, (sealed_us - now_us) / MICROSECONDS + settings.retention_age_s)
