"""Where the payloads of acks that publish lie: companion partitions (`companions`), as this process knows them.

Each partition of a topic whose messages were acked with publishes has an *outbox partition*. An ack with publishes
first has its payloads stored there, synced; then the partition's own delivery journal acks and names them in one record
(`outbox_entries`), which is the commit. The forwarder publishes what is named, and settles it in the group. What no ack
names is settled too, once no ack can name it any more.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from callboard.actors.partition.port import PartitionPort
from callboard.actors.settings import TopicSettings


def outbox_folder(index: int) -> str:
    """The folder of an outbox partition, beside those of the topic's partitions; also its name in the tree."""
    return f"outbox-{index}"


@attrs.frozen(eq=False)
class Outbox:
    """One outbox partition."""

    port: PartitionPort
    source: PartitionPort
    """The partition whose acks publish."""
    settings: TopicSettings
    """From when its group is open."""


class Outboxes:
    """All outbox partitions of a runtime."""

    def __init__(self) -> None:
        self._all: dict[PartitionPort, Outbox] = {}
        self._ready: dict[PartitionPort, Outbox] = {}
        """By the partition whose acks publish."""
        self._for_delayed: set[PartitionPort] = set()
        """Those of which it is durable that acks may publish what is delayed: an older version would lose it."""

    def add(self, outbox: Outbox) -> None:
        """There is one more."""
        self._all[outbox.port] = outbox

    def remove(self, port: PartitionPort) -> Outbox | None:
        """Its topic is deleted."""
        outbox = self._all.pop(port, None)
        if outbox is not None:
            self._ready.pop(outbox.source, None)
            self._for_delayed.discard(outbox.source)
        return outbox

    def of(self, source: PartitionPort, *, delays: bool = False) -> Outbox | None:
        """The outbox of a partition, once it takes payloads: with `delays`, delayed ones too."""
        return self._ready.get(source) if source in self._for_delayed or not delays else None

    def is_ready(self, outbox: Outbox, *, delays: bool) -> None:
        """Its group is open: it keeps what it is given, and what is delayed if it may."""
        self._ready[outbox.source] = outbox
        if delays:
            self._for_delayed.add(outbox.source)

    def __iter__(self) -> Iterator[Outbox]:
        return iter(list(self._all.values()))
