"""What the catalog's actor does for groups of patterns: it has them read the topics that match, and tells which."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from callboard.actors.catalog.patterns import found_topics, passed_over
from callboard.actors.notices import TopicFound
from callboard.log.errors import StorageError

if TYPE_CHECKING:
    from callboard.actors.catalog.directory import Directory
    from callboard.actors.catalog.state import CatalogState, Event, TopicRecord
    from callboard.actors.partition.port import PartitionPort


class FindsTopics:
    """See the module. The rest is the catalog's."""

    context: Any
    _directory: Directory
    _state: CatalogState

    if TYPE_CHECKING:

        async def _decide(self, decide: Callable[[CatalogState], list[Event]]) -> Any: ...
        def _operation_failed(self, what: str, error: StorageError) -> None: ...
        def _close_group_at(self, port: PartitionPort, group_id: int, name: str = "") -> Awaitable[None]: ...

    async def _find_topics_again(self) -> None:
        """Have groups of patterns read what they have to, wherever something has kept them from it."""
        try:
            if found_topics(self._state, self._state.topics.values()):
                await self._decide(lambda draft: found_topics(draft, draft.topics.values()))
        except StorageError as error:
            self._operation_failed("topics that match patterns", error)

    def _read_patterns(self) -> None:
        """Have groups of patterns read their topics as far as these run, and partitions forget those that do not."""
        for record in self._state.groups.values():
            if record.pattern is not None:
                for live in self._directory.read_topics(record):
                    for port in live.ports:
                        self.context.start_task(
                            self._close_group_at, port, record.group_id, record.name, name="groups"
                        )

    def _tell_found(self, topic: TopicRecord) -> None:
        for passed in passed_over(self._state, [topic]):
            self.context.emit(passed)
        for group in self._state.groups.values():
            if topic.topic_id in group.found:
                self.context.emit(TopicFound(group.name, topic.name))
