"""What a coordinator is started with: the part of the catalog's directory that it uses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from callboard.actors.catalog.live_topic import LiveTopic
    from callboard.actors.kernel import ActorRef
    from callboard.actors.partition.port import PartitionPort
    from callboard.actors.timing import WheelAddress


class TopicDirectory(Protocol):
    """Live topics, and the actors that a coordinator speaks to besides its partitions."""

    wheel: WheelAddress
    catalog: ActorRef[Any]

    def by_id(self, topic_id: str) -> LiveTopic | None:
        """The topic, while it is live."""

    def is_live(self, port: PartitionPort) -> bool:
        """Whether the partition's topic was not deleted."""
