"""Where the delayed records of a topic wait: partitions of their own, beside those of the topic, known to this process.

Each partition of a topic with delayed records has a *waiting partition*: a log and a delivery journal of the same kind,
with one group, `WAITING`. What the group has not settled is pending. A record that is due is set aside, which gives it
a number, then published to the topic's partition under that number, then forgotten (`callboard.actors.forwarding`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import attrs

from callboard.actors.partition.commands import OWN_GROUP, DeliverySettings, OpenGroup
from callboard.actors.partition.port import PartitionPort
from callboard.actors.settings import TopicSettings
from callboard.log.limits import MESSAGE_BYTES_MAX, MIB

WAITING: Final = OWN_GROUP
"""The id of the only group of a waiting partition."""
DELAYED: Final = "delayed"
"""What a waiting partition holds."""
OPEN_WAITING: Final = OpenGroup(WAITING, durable=True, start="beginning", settings=DeliverySettings())
"""Opens that group."""
SEGMENT_BYTES: Final = 16 * MIB
SETTLED_AGE_S: Final = 1.0
"""A segment of which nothing is pending is deleted when it is so old."""


def waiting_folder(index: int) -> str:
    """The folder of a waiting partition, beside those of the topic's partitions; also its name in the tree."""
    return f"delayed-{index}"


def waiting_settings(topic: TopicSettings) -> TopicSettings:
    """The settings of a topic's waiting partitions, until their group is open: nothing is deleted before."""
    return TopicSettings(
        partitions=topic.partitions,
        segment_bytes=min(topic.segment_bytes, SEGMENT_BYTES),
        compression=topic.compression,
        max_message_bytes=MESSAGE_BYTES_MAX,
        priorities=topic.priorities,
    )


@attrs.define(eq=False)
class Waiting:
    """One waiting partition. It outlives the actor that moves its records."""

    port: PartitionPort
    target: PartitionPort
    """The topic's partition that its records go to."""
    settings: TopicSettings
    """From when its group is open."""
    pending: int = 0
    """Records that wait, as far as they were counted."""
    next_due_us: int | None = None
    """When the first of them is due, wall time; None when none waits, or they are not counted yet."""
    moved: int = 0
    cancelled: int = 0
    lost: int = 0
    """Records that could not be read when they were due, since this process opened the directory."""


class WaitingPartitions:
    """All waiting partitions of a runtime."""

    def __init__(self) -> None:
        self.run = 0
        """A number of this opening of the directory, once there is a waiting partition."""
        self._all: dict[PartitionPort, Waiting] = {}
        self._places: dict[tuple[str, int], Waiting] = {}
        """By topic id and partition."""

    def add(self, waiting: Waiting) -> None:
        """There is one more."""
        self._all[waiting.port] = self._places[waiting.port.topic_id, waiting.port.index] = waiting

    def remove(self, port: PartitionPort) -> None:
        """Its topic is deleted."""
        waiting = self._all.pop(port, None)
        if waiting is not None:
            del self._places[port.topic_id, port.index]

    def at(self, topic_id: str, partition: int) -> Waiting | None:
        """The waiting partition that stands beside a partition."""
        return self._places.get((topic_id, partition))

    def __iter__(self) -> Iterator[Waiting]:
        return iter(list(self._all.values()))
