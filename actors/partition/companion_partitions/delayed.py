"""Where the delayed records of a topic wait: partitions of their own, beside those of the topic.

Each partition of a topic with delayed records has a *waiting partition*: a log and a delivery journal of the same kind,
with one group, `WAITING`. What the group has not settled is pending. A record that is due is set aside, which gives it
a number, then published to the topic's partition under that number, then forgotten (`callboard.actors.forwarding`).
"""

from __future__ import annotations

from typing import Final

from callboard.actors.partition.commands import OWN_GROUP, DeliverySettings, OpenGroup
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
