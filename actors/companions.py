"""Companion partitions: what lies beside the partitions of a topic, and where.

A companion is a log and a delivery journal of the same kind as its partition, with one group of the broker's own
(`OWN_GROUP`). What the group has settled is not needed any more. There are two:

Waiting partitions, where the delayed records of a topic wait. What the group has not settled is pending. A record that
is due is set aside, which gives it a number, then published to the topic's partition under that number, then forgotten
(`callboard.actors.forwarding`).

Outbox partitions, where the payloads of acks that publish lie. An ack with publishes first has its payloads stored
there, synced; then the partition's own delivery journal acks and names them in one record
(`callboard.actors.partition.outbox.entries`), which is the commit. The forwarder publishes what is named, and settles
it in the group. What no ack names is settled too, once no ack can name it any more.
"""

from __future__ import annotations

from typing import Final

import attrs

from callboard.actors.clients.port import PartitionPort
from callboard.actors.partition.commands import OWN_GROUP, DeliverySettings, OpenGroup
from callboard.actors.settings import TopicSettings
from callboard.log.limits import MESSAGE_BYTES_MAX, MIB

DELAYED: Final = "delayed"
"""What a waiting partition holds."""
OUTBOX: Final = "outbox"
"""What an outbox partition holds."""
OPEN_OWN_GROUP: Final = OpenGroup(OWN_GROUP, durable=True, start="beginning", settings=DeliverySettings())
"""Opens the group of a companion."""
SEGMENT_BYTES: Final = 16 * MIB
SETTLED_AGE_S: Final = 1.0
"""A segment of which the group has settled everything is deleted when it is this old."""


def companion_settings(topic: TopicSettings, *, priorities: bool = False) -> TopicSettings:
    """The settings of a topic's companions, until their group is open: nothing is deleted before."""
    return TopicSettings(
        partitions=topic.partitions,
        segment_bytes=min(topic.segment_bytes, SEGMENT_BYTES),
        compression=topic.compression,
        max_message_bytes=MESSAGE_BYTES_MAX,
        priorities=priorities,
    )


def waiting_settings(topic: TopicSettings) -> TopicSettings:
    """The settings of a topic's waiting partitions: what waits keeps its priority."""
    return companion_settings(topic, priorities=topic.priorities)


def waiting_folder(index: int) -> str:
    """The folder of a waiting partition, beside those of the topic's partitions; also its name in the tree."""
    return f"delayed-{index}"


def outbox_folder(index: int) -> str:
    """The folder of an outbox partition, beside those of the topic's partitions; also its name in the tree."""
    return f"outbox-{index}"


@attrs.frozen(eq=False)
class Outbox:
    """One outbox partition."""

    port: PartitionPort
    source: PartitionPort
    """The partition whose acks publish."""
