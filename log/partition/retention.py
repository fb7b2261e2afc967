"""How long a partition keeps its records: the settings, what may go by them, and how it goes.

Only whole sealed segments are dropped, oldest first. One goes when it is too old, or while the partition is too large;
it stays while a durable group has not settled all of it, unless unread records may be dropped: then they are counted.

Names go one after the other, each durable before the next. So at every crash point the segments left continue one
another: a later one is never gone while an earlier one is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import attrs

from callboard.log.errors import PlanFailed, join_problems
from callboard.log.format.compression import NONE, Compression
from callboard.log.limits import SEGMENT_BYTES_DEFAULT, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN
from callboard.log.partition.log_reads import LogReads
from callboard.log.seams.disk import Incarnation, SyncDirectory, Unlink, Verb
from callboard.log.segments.segment_file import INDEX_SUFFIX, base_offset_of, index_path
from callboard.log.segments.segments import SegmentList, StoredSegment

__all__ = ["LogSettings", "Retention", "Retirement", "SealedSegment", "choose_droppable", "count_dropped"]

MICROSECONDS: Final = 1_000_000
SEGMENTS_WITHIN_RETENTION: Final = 4
"""A size limit is kept to about a quarter: only whole sealed segments can be dropped."""


@attrs.frozen(kw_only=True)
class LogSettings:
    """Sizes in bytes, ages in seconds; None: no limit. Raises `ConfigurationError` naming all problems."""

    segment_bytes: int = SEGMENT_BYTES_DEFAULT
    segment_age_s: float | None = None
    retention_age_s: float | None = None
    retention_bytes: int | None = None
    compression: Compression = NONE
    segment_bytes_max: int = SEGMENT_BYTES_MAX
    """A segment is sealed at this size, whatever the others say: a limit of the run (`Limits.segment_bytes`)."""
    roll_bytes: int = attrs.field(init=False)
    """The size at which a segment is sealed."""
    roll_age_s: float | None = attrs.field(init=False)
    """The age at which a segment is sealed: records must be in a sealed segment to expire."""

    @roll_bytes.default
    def _roll_bytes(self) -> int:
        roll_bytes = min(self.segment_bytes, self.segment_bytes_max)
        if self.retention_bytes is None:
            return roll_bytes
        quarter = max(SEGMENT_BYTES_MIN, self.retention_bytes // SEGMENTS_WITHIN_RETENTION)
        return min(roll_bytes, quarter)

    @roll_age_s.default
    def _roll_age_s(self) -> float | None:
        return self.retention_age_s if self.segment_age_s is None else self.segment_age_s

    def __attrs_post_init__(self) -> None:
        problems = []
        if not SEGMENT_BYTES_MIN <= self.segment_bytes <= SEGMENT_BYTES_MAX:
            problems.append(
                f"segment_bytes {self.segment_bytes} is outside {SEGMENT_BYTES_MIN} to {SEGMENT_BYTES_MAX}"
            )
        for name in ("segment_age_s", "retention_age_s", "retention_bytes"):
            limit = getattr(self, name)
            if limit is not None and limit <= 0:
                problems.append(f"{name} {limit} is not above 0")
        if problems:
            raise join_problems("log settings", problems)


@attrs.frozen
class SealedSegment:
    """What retention looks at."""

    base_offset: int
    end_offset: int
    size_bytes: int
    max_time_us: int
    """Latest append time of its records."""


@attrs.frozen
class Retention:
    """What one pass dropped."""

    dropped_segments: int
    dropped_records: int
    unread_dropped: int
    """Of these, records that some durable group had not settled."""
    start_offset: int


def choose_droppable(
    sealed: Sequence[SealedSegment],
    *,
    active_bytes: int,
    now_us: int,
    retention_age_s: float | None,
    retention_bytes: int | None,
    unsettled_from: int,
    drop_unread: bool,
) -> int:
    """How many of the oldest sealed segments go. `unsettled_from` is the lowest floor of the durable groups."""
    total = active_bytes + sum(segment.size_bytes for segment in sealed)
    count = 0
    for segment in sealed:
        too_old = (
            retention_age_s is not None and now_us - segment.max_time_us > retention_age_s * MICROSECONDS
        )
        too_large = retention_bytes is not None and total > retention_bytes
        if not (too_old or too_large):
            break
        if segment.end_offset > unsettled_from and not drop_unread:
            break
        total -= segment.size_bytes
        count += 1
    return count


def count_dropped(dropped: Iterable[SealedSegment], unsettled_from: int) -> tuple[int, int]:
    """(records dropped, of these unsettled)."""
    records = unread = 0
    for segment in dropped:
        records += segment.end_offset - segment.base_offset
        unread += max(0, segment.end_offset - max(segment.base_offset, unsettled_from))
    return records, unread


class Retirement:
    """The retention of one partition log; `SegmentList` is shared with it."""

    def __init__(self, files: Incarnation, directory: str, segments: SegmentList, reads: LogReads) -> None:
        self._files = files
        self._directory = directory
        self._segments = segments
        self._reads = reads

    async def retain(
        self, settings: LogSettings, *, now_us: int, unsettled_from: int, drop_unread: bool
    ) -> Retention:
        """Drop what `settings` allow. Raises `PlanFailed`; what was dropped until then is gone."""
        droppable = await self._droppable(settings, now_us, unsettled_from, drop_unread)
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

    async def _droppable(
        self, settings: LogSettings, now_us: int, unsettled_from: int, drop_unread: bool
    ) -> list[SealedSegment]:
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
                unsettled_from=unsettled_from,
                drop_unread=drop_unread,
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

    def next_due(self, settings: LogSettings, now_us: int) -> float | None:
        """Seconds until the oldest sealed segment may be too old; None when that is never."""
        if settings.retention_age_s is None or len(self._segments) == 1:
            return None
        sealed_us = self._segments[1].created_us
        return max(0.0, (sealed_us - now_us) / MICROSECONDS + settings.retention_age_s)
