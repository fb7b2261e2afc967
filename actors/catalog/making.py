"""Noting which folders of a topic are there: from then on the catalog knows that one which is not there is gone.

A topic is decided on before its folders are made, and a crash in between leaves it without them. So its being in the
catalog is no evidence that they ever were there. What is to be noted costs no sync of its own: it is journalled with
the next decision, or at closing.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import islice

from callboard.actors.catalog import state
from callboard.actors.catalog.commands import TopicRecord
from callboard.actors.catalog.directory import Directory, LiveTopic
from callboard.actors.catalog.state import CatalogState
from callboard.log.errors import ActorStopped, StorageError
from callboard.log.journal.journal import Journal

NOTED_AT_ONCE = 100
"""Topics of which one decision notes something, at most."""


class MadeFolders:
    """What one incarnation of the catalog has to note."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._made: dict[str, frozenset[str]] = {}
        """By topic id: which folders are there."""
        self._awaited: set[str] = set()
        """By topic id: those for whose folders a task waits."""
        self._noting: dict[str, frozenset[str]] = {}

    def must_wait(self, live: LiveTopic, record: TopicRecord) -> bool:
        """Whether to `wait` for some of the topic's partitions."""
        if live.topic_id in self._awaited or {port.holds for port in live.all_ports} <= record.made:
            return False
        self._awaited.add(live.topic_id)
        return True

    async def wait(self, live: LiveTopic) -> None:
        """Wait for the topic's partitions: what is there then is to be noted."""
        try:
            with suppress(ActorStopped):
                self._made[live.topic_id] = await self._directory.made(live)
        finally:
            self._awaited.discard(live.topic_id)

    def records(self, found: CatalogState) -> list[bytes]:
        """What is to be journalled beside a decision that makes this state, which has it then."""
        records = []
        for topic_id, made in islice(self._made.items(), NOTED_AT_ONCE):
            self._noting[topic_id] = made
            record = found.topics.get(topic_id)
            if record is not None and not record.deleting and not made <= record.made:
                event = state.TOPIC_MADE, topic_id, sorted(made)
                found.apply(event)
                records.append(state.encode(event))
        return records

    def noted(self) -> None:
        """What `records` returned last is journalled."""
        for topic_id, made in self._noting.items():
            if self._made.get(topic_id) == made:
                del self._made[topic_id]
        self._noting.clear()

    async def close(self, journal: Journal, found: CatalogState) -> None:
        """The journal is about to be closed: journal what no decision has taken along, unless the disk refuses."""
        records = [] if journal.needs_healing else self.records(found)
        if records:
            with suppress(StorageError):
                await journal.append(records)
