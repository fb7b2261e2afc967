"""Where the payloads of acks that publish lie: partitions of their own, beside those they belong to, as this process
knows them.

Each partition of a topic whose messages were acked with publishes has an *outbox partition*: a log and a delivery
journal of the same kind, with one group, number 0. An ack with publishes first has its payloads stored there, synced;
then the partition's own delivery journal acks and names them in one record (`outbox_entries`), which is the commit. The
forwarder publishes what is named, and settles it in the group. What no ack names is settled too, once no ack can name
it any more.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import attrs

from callboard.actors.partition.commands import OWN_GROUP, DeliverySettings, OpenGroup
from callboard.actors.partition.port import PartitionPort
from callboard.actors.settings import TopicSettings
from callboard.log.limits import MESSAGE_BYTES_MAX, MIB

OUTBOX: Final = OWN_GROUP
"""The id of the only group of an outbox partition."""
OPEN_OUTBOX: Final = OpenGroup(OUTBOX, durable=True, start="beginning", settings=DeliverySettings())
"""Opens that group."""
SEGMENT_BYTES: Final = 16 * MIB
SETTLED_AGE_S: Final = 1.0
"""A segment of which nothing is to be forwarded is deleted when it is so old."""


def outbox_folder(index: int) -> str:
    """The folder of an outbox partition, beside those of the topic's partitions; also its name in the tree."""
    return f"outbox-{index}"


def outbox_settings(topic: TopicSettings) -> TopicSettings:
    """The settings of a topic's outbox partitions, until their group is open: nothing is deleted before."""
    return TopicSettings(
        partitions=topic.partitions,
        segment_bytes=min(topic.segment_bytes, SEGMENT_BYTES),
        compression=topic.compression,
        max_message_bytes=MESSAGE_BYTES_MAX,
    )


@attrs.define(eq=False)
class Outbox:
    """One outbox partition."""

    port: PartitionPort
    source: PartitionPort
    """The partition whose acks publish."""
    settings: TopicSettings
    """From when its group is open."""
    takes_delayed: bool = False
    """Whether it is durable that acks may publish what is delayed: an older version would lose it."""


class Outboxes:
    """All outbox partitions of a runtime."""

    def __init__(self) -> None:
        self._all: dict[PartitionPort, Outbox] = {}
        self._ready: dict[PartitionPort, Outbox] = {}
        """By the partition whose acks publish."""

    def add(self, outbox: Outbox) -> None:
        """There is one more."""
        self._all[outbox.port] = outbox

    def remove(self, port: PartitionPort) -> Outbox | None:
        """Its topic is deleted."""
        outbox = self._all.pop(port, None)
        if outbox is not None:
            self._ready.pop(outbox.source, None)
        return outbox

    def of(self, source: PartitionPort) -> Outbox | None:
        """The outbox of a partition, once it takes payloads."""
        return self._ready.get(source)

    def is_ready(self, outbox: Outbox) -> None:
        """Its group is open: it keeps what it is given."""
        self._ready[outbox.source] = outbox

    def __iter__(self) -> Iterator[Outbox]:
        return iter(list(self._all.values()))
