"""What groups read: the catalog has those of patterns read the topics that match, and says which."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from callboard.actors.catalog.patterns import found_topics, passed_over
from callboard.actors.notices import OperationFailed, TopicFound
from callboard.log.errors import StorageError

if TYPE_CHECKING:
    from callboard.actors.catalog.commands import TopicRecord
    from callboard.actors.catalog.decisions import Decisions
    from callboard.actors.catalog.directory import Directory
    from callboard.actors.catalog.partition_groups import PartitionGroups
    from callboard.actors.kernel import Context


class PatternReaders:
    """Makes groups of patterns read each topic that matches, and reports which topics they read."""

    def __init__(
        self, context: Context[Any], directory: Directory, decisions: Decisions, groups: PartitionGroups
    ) -> None:
        self._context = context
        self._directory = directory
        self._decisions = decisions
        self._groups = groups

    async def find_again(self) -> None:
        """Have groups of patterns read what they have to, wherever something has kept them from it."""
        try:
            if found_topics(self._decisions.state, self._decisions.state.topics.values()):
                await self._decisions.decide(lambda draft: found_topics(draft, draft.topics.values()))
        except StorageError as error:
            self._context.emit(OperationFailed("topics that match patterns", str(error)))

    def read(self, *topic_ids: str) -> None:
        """Have groups of patterns, and those that read these topics, read their topics as far as these run; partitions
        of others forget them.
        """
        changed = frozenset(topic_ids)
        for record in self._decisions.state.groups.values():
            if record.pattern is not None or not changed.isdisjoint(record.topic_ids):
                for live in self._directory.read_topics(record):
                    for port in live.ports:
                        self._context.start_task(
                            self._groups.close_at, port, record.group_id, record.name, name="groups"
                        )

    def tell_found(self, topic: TopicRecord) -> None:
        """Say which groups read a topic that was made, and which do not although it matches."""
        for passed in passed_over(self._decisions.state, [topic]):
            self._context.emit(passed)
        for group in self._decisions.state.groups.values():
            if topic.topic_id in group.found:
                self._context.emit(TopicFound(group.name, topic.name))
