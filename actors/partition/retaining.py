"""Retention in a partition: drop what may go, then notify those that it concerns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import attrs

from callboard.actors import notices
from callboard.actors.delivery.receipts import OFFSET_END
from callboard.log.errors import StorageError

if TYPE_CHECKING:
    from callboard.actors.kernel import Context
    from callboard.actors.partition.core import PartitionCore
    from callboard.actors.partition.publishing.publishers import Publishers
    from callboard.actors.partition.spec import PartitionSpec
    from callboard.log.errors import TopicFull
    from callboard.log.partition.partition_log import PartitionLog
    from callboard.log.partition.retention import Summary


@attrs.frozen
class PublishersSummary:
    """The file `publishers` as a summary of a log."""

    publishers: Publishers
    log: PartitionLog

    @property
    def covered_end(self) -> int:
        """See `Summary`."""
        return self.publishers.covered_end

    async def cover(self, end: int) -> None:
        """See `Summary`."""
        del end
        await self.publishers.cover(self.log)


@attrs.frozen
class Retaining:
    """What dropping segments needs of its partition."""

    core: PartitionCore
    log: PartitionLog
    spec: PartitionSpec
    context: Context[Any]
    summaries: tuple[Summary, ...]
    """Besides what the log keeps itself. All that is made of records, and needed when they are gone, belongs here."""
    dropped: Callable[[], None]
    """Something else is the next that grows too old, or was found damaged."""

    async def make_room(self) -> TopicFull | None:
        """Between commits: drop what retention allows; the error for publishers when the topic stays full.

        Raises `StorageError` when the disk refuses, also to write a summary of what is to go.
        """
        log, settings = self.log, self.spec.latest_settings
        failure: StorageError | None = None
        self.core.retention.begin()
        floors = {group.group_id: group.delivery.offsets.floor for group in self.core.states}
        try:
            await log.retain(
                now_us=self.context.clock.wall_us(),
                unsettled_from=self.core.states.unsettled_from(log.next_offset),
                drop_unread=settings.drop_unread,
                summaries=self.summaries,
            )
        except StorageError as error:
            failure = error
        self._tell(floors)
        self.core.retention.end()
        if failure is not None:
            raise failure
        return self.spec.topic_full(log.size_bytes) if log.is_over_limit else None

    def _tell(self, floors: Mapping[int, int]) -> None:
        """The core where the log begins, groups what they have lost, all whether the topic is full. `floors`:
        those of the groups when retention judged what goes.
        """
        core, log, hand_over, context = self.core, self.log, self.spec.hand_over, self.context
        now = context.clock.monotonic()
        core.log_moved(log.start_offset, log.visible_end, log.durable_end, now)
        if log.is_over_limit != hand_over.is_full:
            hand_over.is_full = log.is_over_limit
            limit = self.spec.latest_settings.retention_bytes or 0
            context.emit(notices.PartitionFull(context.path, log.size_bytes, limit, hand_over.is_full))
        for group in core.states:
            if not core.retention.drops_unread(group):
                continue
            if floors.get(group.group_id, OFFSET_END) < log.start_offset:
                core.retention.drop_unread(group, now)
            else:
                core.retention.begin_behind_dropped(group, now)
        self.dropped()
