"""How long a partition keeps its records: the settings, what may go by them, and how it goes.

Only whole sealed segments are dropped, oldest first. One goes when it is too old, or while the partition is too large;
it stays while a durable group has not settled all of it, unless unread records may be dropped.

Some things are made of the records and outlive them: which deduplication ids were used, what a group has settled, what
was found damaged. Each is a *summary*: at opening it is read from a file of its own, and from the records behind what
that file covers. So a segment stays until every summary covers it. A summary that does not is written first (`cover`),
and so holds retention up only while the disk refuses that.

Names go one after the other, each durable before the next. So at every crash point the segments left continue one
another: a later one is never gone while an earlier one is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import attrs

from callboard.log.errors import PlanFailed, StorageError, join_problems
from callboard.log.format.compression import NONE, Compression
from callboard.log.limits import SEGMENT_BYTES_DEFAULT, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN
from callboard.log.seams.disk import Incarnation, SyncDirectory, Unlink, Verb
from callboard.log.segments.segment_file import index_path
from callboard.log.segments.segments import StoredSegment

MICROSECONDS: Final = 1_000_000
SEGMENTS_WITHIN_RETENTION: Final = 4
"""A size limit is kept to about a quarter: only whole sealed segments can be dropped."""


class Summary(Protocol):
    """What is made of a log's records and needed when they are gone. The same task writes it and drops segments."""

    @property
    def covered_end(self) -> int:
        """All that it takes from records below this offset is synced; `OFFSET_MAX` when it lacks nothing."""
        ...

    async def cover(self, end: int) -> None:
        """Write and sync, so that `covered_end` is at least `end`. Raises `StorageError`."""
        ...


async def cover_all(summaries: Sequence[Summary], end: int) -> tuple[int, StorageError | None]:
    """Have every summary cover the log up to `end`; returns up to where all of them do, and what kept one from it."""
    covered, failure = end, None
    for summary in summaries:
        if summary.covered_end < end:
            try:
                await summary.cover(end)
            except StorageError as error:
                failure = failure or error
        covered = min(covered, summary.covered_end)
    return covered, failure


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


async def unlink_segments(
    files: Incarnation, dropped: Sequence[StoredSegment]
) -> tuple[int, PlanFailed | None]:
    """Unlink the segments; returns how many are gone, and the failure that stopped it."""
    directory = dropped[0].file.directory
    there = {f"{directory}/{entry.name}" for entry in await files.list(directory)}
    for count, segment in enumerate(dropped):
        paths = index_path(directory, segment.base_offset), segment.file.path
        plan: list[Verb] = [*(Unlink(path) for path in paths if path in there), SyncDirectory(directory)]
        segment.is_dropped = True
        try:
            await files.submit(plan)
        except PlanFailed as failed:
            segment.is_dropped = is_gone = type(failed.verb) is SyncDirectory
            return count + is_gone, failed
    return len(dropped), None
