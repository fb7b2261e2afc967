"""Where the delayed records of a topic wait: companion partitions (`companions`).

Each partition of a topic with delayed records has a *waiting partition*. What its group has not settled is pending. A
record that is due is set aside, which gives it a number, then published to the topic's partition under that number,
then forgotten (`callboard.actors.forwarding`).
"""

from __future__ import annotations

from typing import Final

from callboard.actors.partition.companion_partitions.companions import companion_settings
from callboard.actors.settings import TopicSettings

DELAYED: Final = "delayed"
"""What a waiting partition holds."""


def waiting_folder(index: int) -> str:
    """The folder of a waiting partition, beside those of the topic's partitions; also its name in the tree."""
    return f"delayed-{index}"


def waiting_settings(topic: TopicSettings) -> TopicSettings:
    """The settings of a topic's waiting partitions: what waits keeps its priority."""
    return companion_settings(topic, priorities=topic.priorities)
