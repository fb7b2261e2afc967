"""What companion partitions have in common: a group of the broker's own, and settings that follow from the topic's.

A companion lies beside a partition of a topic: a log and a delivery journal of the same kind, with one group
(`OWN_GROUP`). What the group has settled is not needed any more.
"""

from __future__ import annotations

from typing import Final

from callboard.actors.partition.commands import OWN_GROUP, DeliverySettings, OpenGroup
from callboard.actors.settings import TopicSettings
from callboard.log.limits import MESSAGE_BYTES_MAX, MIB

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
