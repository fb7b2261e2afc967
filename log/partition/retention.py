"""Which segments may go: pure decisions over what is known of each.

Only whole sealed segments are dropped, oldest first. One goes when it is too old, or while the partition is too large;
it stays while a durable group has not settled all of it, unless unread records may be dropped: then they are counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import attrs

__all__ = ["Retention", "SealedSegment", "blocks_publishing", "choose_droppable"]

MICROSECONDS = 1_000_000


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


def blocks_publishing(
    *, size_bytes: int, retention_bytes: int | None, first_end: int, unsettled_from: int, drop_unread: bool
) -> bool:
    """Whether the size limit is reached and unsettled records keep the oldest segment (it ends at `first_end`)."""
    if retention_bytes is None or drop_unread or size_bytes < retention_bytes:
        return False
    return first_end > unsettled_from
