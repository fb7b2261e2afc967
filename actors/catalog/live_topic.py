"""A topic that is live, and where its partitions are found."""

from __future__ import annotations

import attrs

from callboard.actors.partition.companion_partitions.outbox import Outbox
from callboard.actors.partition.port import PartitionPort
from callboard.actors.settings import TopicSettings


@attrs.define(eq=False)
class LiveTopic:
    """A topic whose partitions were started; each may still be recovering, or have failed."""

    name: str
    topic_id: str
    settings: TopicSettings
    ports: tuple[PartitionPort, ...]
    deleted: bool = False
    waiting: tuple[PartitionPort, ...] = ()
    """Of its waiting partitions, for delayed records, if it has some."""
    run: int = 0
    """A number of this opening of the directory, once it has waiting partitions."""
    takes_delayed: bool = False
    """Whether they are known to have their group, and so to keep what they are given."""
    outboxes: tuple[Outbox, ...] = ()
    """For what its acks publish, if they do."""

    @property
    def all_ports(self) -> tuple[PartitionPort, ...]:
        """Those of its partitions, and of the partitions beside them."""
        return (*self.ports, *self.waiting, *(outbox.port for outbox in self.outboxes))
