"""What a coordinator is started with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import attrs

from callboard.actors.groups.commands import GroupDecided
from callboard.actors.groups.membership import Membership

if TYPE_CHECKING:
    from callboard.actors.catalog.live_topic import LiveTopic
    from callboard.actors.kernel import ActorRef
    from callboard.actors.partition.port import PartitionPort
    from callboard.actors.timing import WheelAddress


class TopicDirectory(Protocol):
    """The part of the catalog's directory that a coordinator uses: live topics, and the actors that it speaks to
    besides their partitions.
    """

    wheel: WheelAddress
    catalog: ActorRef[Any]

    def by_id(self, topic_id: str) -> LiveTopic | None:
        """The topic, while it is live."""

    def is_live(self, port: PartitionPort) -> bool:
        """Whether the partition's topic was not deleted."""


@attrs.frozen(eq=False)
class CoordinatorSpec:
    """Which group a coordinator is of."""

    name: str
    group_id: int
    birth: int
    """Which group it is of those that have had its id; 0: unknown."""
    decided: GroupDecided
    """What the catalog had decided when the first incarnation was started."""
    directory: TopicDirectory
    idle_since_us: int | None = None
    """Since when the group had no members then."""
    idle_noticed: tuple[int, int] | None = None
    """An instant since which the group was idle, and when it was noticed that it is ahead; later than that instant: how
    much of the grace was used, added to it."""
    membership: Membership = attrs.field(init=False)
    """What its incarnations hand on to each other: only they write it."""

    @membership.default
    def _new_membership(self) -> Membership:
        return Membership(self.group_id, self.birth, self.decided)
