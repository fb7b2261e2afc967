"""How an open runtime finds the outboxes of its partitions, and the topics that acks publish to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from callboard.actors.catalog.commands import EnableOutbox
from callboard.log.errors import InvalidArgument, TopicNotFound
from callboard.log.plain import shown, text
from callboard.publishing.delaying import DelayedPublisher
from callboard.publishing.publisher import publisher_of
from callboard.topic import Topic

if TYPE_CHECKING:
    from callboard.actors.catalog.directory import Directory, LiveTopic
    from callboard.actors.partition.beside.outbox import Outbox
    from callboard.actors.partition.port import PartitionPort


class ReachesOutboxes:
    """The part of the runtime that only acks with publishes use."""

    _directory: Directory

    if TYPE_CHECKING:

        def check_open(self) -> None: ...
        def _live(self, name: str) -> LiveTopic: ...
        async def ask_catalog(self, command: Any) -> Any: ...

    def live_topic(self, topic: object) -> LiveTopic:
        """A topic, by name or itself: for other modules of the package. Raises `TopicNotFound`, `InvalidArgument`."""
        self.check_open()
        if isinstance(topic, Topic):
            live = self._directory.by_id(topic.topic_id)
            if live is None or live.deleted or live.publisher is not topic.publisher:
                raise TopicNotFound(
                    f"topic {topic.name!r} was deleted, or is another runtime's. Nothing was written.",
                    topic=topic.name,
                )
            return live
        if text(topic) is None:
            raise InvalidArgument(
                f"{shown(topic, 80)} is no topic, nor the name of one. Nothing was written."
            )
        live = self._live(topic)  # type: ignore[arg-type]
        publisher_of(live)
        return live

    def delaying(self, live: LiveTopic) -> DelayedPublisher:
        """What publishes delayed messages to a topic: for other modules of the package."""
        return DelayedPublisher(self, publisher_of(live))  # type: ignore[arg-type]

    async def outbox(self, source: PartitionPort, *, delays: bool = False) -> Outbox:
        """The outbox of a partition, made if need be, and one that takes delayed messages if asked.

        For other modules of the package. Raises `TopicNotFound`, and what keeps it from being made.
        """
        found = self._directory.outboxes.of(source)
        is_ready = found is not None and (found.takes_delayed or not delays)
        if not is_ready and not source.is_deleted:
            await self.ask_catalog(EnableOutbox(source.topic, delays))
            found = self._directory.outboxes.of(source)
        if found is None:
            raise TopicNotFound(f"topic {source.topic!r} was deleted.", topic=source.topic)
        return found
