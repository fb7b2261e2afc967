"""What the catalog says of one group: to its coordinator in notices, and to partitions that are to open it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from callboard.actors.groups.commands import GroupDecided, GroupTopic
from callboard.actors.partition.spec import GroupOpenings
from callboard.actors.standing import StandingNotices

if TYPE_CHECKING:
    from collections.abc import Iterable

    from callboard.actors.catalog.commands import GroupRecord
    from callboard.actors.kernel import ActorRef
    from callboard.actors.partition.commands import DeliverySettings, OpenGroup
    from callboard.actors.settings import GroupSettings


class GroupNews:
    """See the module. It outlives incarnations of the catalog, which alone writes it."""

    def __init__(self, record: GroupRecord) -> None:
        self._openings = GroupOpenings(record.group_id, record.birth, record.settings)
        is_of_pattern = record.pattern is not None
        self.decided = GroupDecided(record.settings, 0, (), is_of_pattern, record.found)
        self.known = record.settings
        """The settings that every member and partition has, or will have when it runs."""
        self.is_expiry_reported = False
        """It was reported that the group expires; storing that may take several attempts."""
        self._notices = StandingNotices[GroupDecided]()
        self._notices.stand(None, self.decided)

    @property
    def settings(self) -> GroupSettings:
        """With which partitions open the group."""
        return self._openings.settings

    def begin(self, coordinator: ActorRef[Any]) -> None:
        """The group's coordinator is started."""
        self._notices.begin(coordinator)

    def opening(self, record: GroupRecord, topic_id: str) -> OpenGroup:
        """How partitions of a topic open the group."""
        return self._openings.opening(record.start_in(topic_id))

    def alter(self, settings: GroupSettings) -> DeliverySettings:
        """The group has these settings from now on. Returns what its partitions are to know of them."""
        version = self._openings.version + 1
        self._openings.alter(settings, version)
        self._decide(attrs.evolve(self.decided, settings=settings, version=version))
        return self._openings.delivery_settings()

    def read(self, topics: Iterable[GroupTopic], found: frozenset[str]) -> None:
        """The group reads these topics from now on, which run."""
        self._decide(attrs.evolve(self.decided, topics=tuple(topics), found=found))

    def _decide(self, decided: GroupDecided) -> None:
        if decided != self.decided:
            self.decided = decided
            self._notices.stand(None, decided)
