"""A topic that is live, as the catalog knows it, and where its partitions are found."""

from __future__ import annotations

import attrs

from callboard.actors.catalog.commands import TopicStands
from callboard.actors.clients.port import PartitionPort
from callboard.actors.companions import Outbox
from callboard.actors.groups.commands import GroupTopic
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
    takes_delayed: bool = False
    outboxes: tuple[Outbox, ...] = ()
    """For what its acks publish, if they do."""
    outboxes_ready: int = 0
    outboxes_with_delays: int = 0
    said: TopicStands | None = None
    """What mirrors have heard of it last, which says what the fields above mean."""

    @property
    def all_ports(self) -> tuple[PartitionPort, ...]:
        """Those of its partitions, and of the partitions beside them."""
        return (*self.ports, *self.waiting, *(outbox.port for outbox in self.outboxes))

    def is_ready(self, outbox: Outbox, *, delays: bool) -> None:
        """Its group is open: it keeps what it is given, and what is delayed if it may."""
        ready = outbox.source.index + 1
        self.outboxes_ready = max(self.outboxes_ready, ready)
        if delays:
            self.outboxes_with_delays = max(self.outboxes_with_delays, ready)

    @property
    def path(self) -> str:
        """Above its partitions in the tree."""
        return self.ports[0].ref.path.rpartition("/")[0]

    def for_group(self) -> GroupTopic:
        """What a group that reads it is to know of it."""
        return GroupTopic(self.topic_id, self.name, self.path, len(self.ports))

    def stands(self, pending_bytes: int) -> TopicStands:
        """What mirrors are to know of it."""
        return TopicStands(
            self.topic_id,
            self.name,
            self.path,
            self.settings,
            pending_bytes,
            self.run,
            has_waiting=bool(self.waiting),
            takes_delayed=self.takes_delayed,
            has_outboxes=bool(self.outboxes),
            outboxes_ready=self.outboxes_ready,
            outboxes_with_delays=self.outboxes_with_delays,
        )
