"""The folders of a topic's partitions: one table for what starts them, and for the tools that look at them at rest.

A topic with the id `I` has for each of its partitions N the folder `topics/I/N`, and, when it has delayed messages or
acks of it publish, the waiting partition `topics/I/delayed-N` and the outbox partition `topics/I/outbox-N`. Each of
them is a log with a delivery journal below.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Final

import attrs

from callboard.actors.catalog.commands import TopicRecord
from callboard.actors.catalog.state import CatalogState
from callboard.actors.companions import OUTBOX, outbox_folder, waiting_folder
from callboard.actors.names import label_of
from callboard.actors.partition.commands import OWN_GROUP
from callboard.actors.partition.spec import partition_directory
from callboard.log.format.segment import belongs_to
from callboard.log.seams.disk import Incarnation
from callboard.log.segments.headers import read_headers
from callboard.log.segments.segment_file import regular_sizes


@attrs.frozen
class FolderKind:
    """One of the partitions that a topic has for each of its own."""

    holds: str
    """What is in it besides what was published; "" for the partition itself."""
    name: Callable[[int], str]
    """The folder's name, by the partition's index."""
    is_used: Callable[[TopicRecord], bool]


FOLDER_KINDS: Final = (
    FolderKind("", str, lambda _: True),
    FolderKind("delayed", waiting_folder, attrgetter("delays")),
    FolderKind(OUTBOX, outbox_folder, attrgetter("outbox")),
)


@attrs.frozen
class PartitionFolder:
    """One folder of a partition that the catalog knows of."""

    topic: TopicRecord
    index: int
    holds: str
    directory: str

    @property
    def label(self) -> str:
        """How messages name it: `orders/2`, `orders/2 (delayed)`."""
        return label_of(self.topic.name, self.index, self.holds)

    @property
    def journal_directory(self) -> str:
        """Where its delivery journal is."""
        return f"{self.directory}/delivery"

    def joined(self, state: CatalogState) -> dict[int, bool]:
        """The groups whose state is in its delivery journal, and whether they are durable."""
        if self.holds:
            return {OWN_GROUP: True}
        topic_id = self.topic.topic_id
        return {
            each.group_id: each.settings.durable
            for each in state.groups.values()
            if topic_id in each.topic_ids
        }


def folders_of(topics: Iterable[TopicRecord]) -> list[PartitionFolder]:
    """The folders of all partitions of the topics."""
    return [
        PartitionFolder(topic, index, kind.holds, partition_directory(topic.topic_id, kind.name(index)))
        for topic in topics
        for kind in FOLDER_KINDS
        if kind.is_used(topic)
        for index in range(topic.settings.partitions)
    ]


async def unknown_folders(files: Incarnation, topics: Iterable[TopicRecord]) -> list[PartitionFolder]:
    """Logs of waiting and outbox partitions that lie in the folders of `topics`, and that the topics should not have.

    The catalog has lost that they were made, or it is an older copy. A copy of another log is none of them. Raises
    `PlanFailed`, `StorageError`.
    """
    found = []
    for topic in topics:
        kinds = [kind for kind in FOLDER_KINDS if not kind.is_used(topic)]
        if topic.deleting or not kinds:
            continue
        names = {entry.name for entry in await files.list(f"topics/{topic.topic_id}")}
        for kind in kinds:
            for index in range(topic.settings.partitions):
                directory = partition_directory(topic.topic_id, kind.name(index))
                if kind.name(index) in names and await _is_own_log(files, directory):
                    found.append(PartitionFolder(topic, index, kind.holds, directory))
    return found


async def _is_own_log(files: Incarnation, directory: str) -> bool:
    """Whether a segment in the folder says that it belongs there."""
    headers, _ = await read_headers(files, directory, regular_sizes(await files.list(directory)))
    return any(header is not None and belongs_to(header, directory) for header in headers.values())
