"""A topic that is live: where its partitions are found, and what they start with."""

from __future__ import annotations

import attrs

from callboard.actors.partition.commands import DeliverySettings
from callboard.actors.partition.companion_partitions.outbox import Outbox
from callboard.actors.partition.port import PartitionPort
from callboard.actors.partition.spec import PartitionSpec
from callboard.actors.settings import TopicSettings


@attrs.define(eq=False)
class LiveTopic:
    """A topic whose partitions were started; each may still be recovering, or have failed."""

    name: str
    topic_id: str
    settings: TopicSettings
    ports: tuple[PartitionPort, ...]
    partitions: tuple[PartitionSpec, ...] = ()
    beside: list[PartitionSpec] = attrs.field(factory=list)
    """Of its waiting partitions and its outboxes."""
    deleted: bool = False
    waiting: tuple[PartitionPort, ...] = ()
    """Of its waiting partitions, for delayed records, if it has some."""
    run: int = 0
    """A number of this opening of the directory, once it has waiting partitions."""
    takes_delayed: bool = False
    """Whether they are known to have their group, and so to keep what they are given."""
    outboxes: tuple[Outbox, ...] = ()
    """For what its acks publish, if they do."""
    is_noting: bool = False
    """A client waits for its folders to be made, and says so in the catalog."""

    @property
    def all_ports(self) -> tuple[PartitionPort, ...]:
        """Those of its partitions, and of the partitions beside them."""
        return (*self.ports, *self.waiting, *(outbox.port for outbox in self.outboxes))

    @property
    def all_partitions(self) -> tuple[PartitionSpec, ...]:
        """What all of these start with."""
        return (*self.partitions, *self.beside)

    def alter(self, settings: TopicSettings) -> None:
        """Partitions that start from now on start with these settings; those that run must be sent them."""
        self.settings = settings
        for spec in self.partitions:
            spec.settings = settings

    def alter_delivery(self, group_id: int, settings: DeliverySettings | None) -> None:
        """The same for the settings of a group; None: it has ended."""
        for spec in self.partitions:
            spec.groups = spec.groups.with_settings(group_id, settings)
