"""What a partition actor is started with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs

from callboard.actors.names import label_of
from callboard.actors.partition.commands import DeliverySettings, OpenGroup
from callboard.actors.partition.hand_over import HandOver
from callboard.actors.settings import GroupSettings, Start, TopicSettings
from callboard.actors.timing import WheelAddress
from callboard.log.errors import TopicFull
from callboard.log.format.compression import Compression
from callboard.log.limits import WAITING_CACHE_BYTES, Limits
from callboard.log.partition.retention import LogSettings
from callboard.log.seams.disk import Entry
from callboard.log.segments.small_files import holds_log


def partition_directory(topic_id: str, index: int | str) -> str:
    """Where a partition's files are, below the disk's root: also what its disk knows it by."""
    return f"topics/{topic_id}/{index}"


TURNS: Final = "openings"
"""The path of the actor that gives partitions their turns to open."""
FOR_LOGS: Final = {
    field.name: field.name.removesuffix("_s")
    for field in attrs.fields(LogSettings)
    if field.name.removesuffix("_s") in attrs.fields_dict(TopicSettings)
}
"""Which of a topic's settings its logs need: by their names there, which end in the unit."""


def log_settings(settings: TopicSettings, limits: Limits) -> LogSettings:
    """The part of a topic's settings that its logs need."""
    given = {name: getattr(settings, ours) for name, ours in FOR_LOGS.items()}
    given["compression"] = Compression(settings.compression)
    return LogSettings(**given, segment_bytes_max=limits.segment_bytes)


SHARED: Final = [
    field.name for field in attrs.fields(DeliverySettings) if field.name in attrs.fields_dict(GroupSettings)
]
"""What partitions need to know of a group's settings as they are."""


class GroupOpenings:
    """How partitions open one group, with the settings that it has now."""

    def __init__(self, group_id: int, birth: int, settings: GroupSettings) -> None:
        self.settings = settings
        self.version = 0
        """How often they were altered in this process."""
        self._group_id = group_id
        self._birth = birth
        self._delivery_settings: DeliverySettings | None = None
        self._last: OpenGroup | None = None

    def alter(self, settings: GroupSettings, version: int) -> None:
        """The group has these settings from now on."""
        self.settings, self.version, self._delivery_settings = settings, version, None

    def opening(self, start: Start) -> OpenGroup:
        """How partitions of a topic open the group, which begins there.

        The same object for all of them, until the settings are altered: each keeps it.
        """
        settings, last = self.delivery_settings(), self._last
        if last is None or last.settings is not settings or last.start != start:
            is_implied = start == "beginning"
            last = OpenGroup(
                self._group_id, self.settings.durable, start, settings, self._birth, is_implied=is_implied
            )
            self._last = last
        return last

    def delivery_settings(self) -> DeliverySettings:
        """What partitions have to know of the settings: the same object for all, until they are altered."""
        if self._delivery_settings is None:
            self._delivery_settings = self._for_partitions(self.settings)
        return self._delivery_settings

    def _for_partitions(self, settings: GroupSettings) -> DeliverySettings:
        given = {name: getattr(settings, name) for name in SHARED}
        if isinstance(settings.retry, (int, float)):
            given["retry"] = (settings.retry,)
        return DeliverySettings(
            version=self.version,
            is_exclusive=settings.mode == "exclusive",
            keeps_expired=settings.dead_letter_expired,
            **given,
        )


@attrs.frozen
class ReadingGroups:
    """The groups that read a topic when it is launched. Those that begin at its beginning are open in its partitions at
    once; what a durable group has not settled is kept, and what expires is a dead letter, also where the journal has
    lost that there is such a group. Groups that come later, and go, say so in messages.
    """

    openings: tuple[OpenGroup, ...] = ()
    """How to open those that are durable, or are implied."""
    keep_expired: frozenset[int] = frozenset()
    """By id: those that keep what expires as dead letters."""


@attrs.frozen(eq=False)
class PartitionSpec:
    """Which partition an actor is, and where its files are. What is altered later comes in messages."""

    topic: str
    topic_id: str
    index: int
    settings: TopicSettings
    wheel: WheelAddress
    """Of the runtime."""
    holds: str = ""
    """What is in it besides what was published; "" for a partition of the topic itself."""
    is_made: bool = False
    """Its folder and that of its delivery journal were made before: when one is not there, it is gone."""
    router: str = ""
    """The path of the actor that hears of dead letters, which is started when there is something for it; "" for
    partitions that keep none of users' groups.
    """
    forwarder: str = ""
    """The same of what forwards from outboxes; "" for partitions that have none."""
    hand_over: HandOver = attrs.field(factory=HandOver)
    """What its incarnations hand on to each other."""
    groups: ReadingGroups = ReadingGroups()
    """What is known of its groups when it is launched."""
    folder: str = ""
    """The last part of its directory, when that is not its index."""

    def begun(self) -> PartitionSpec:
        """As an incarnation begins with it, by what earlier ones have handed on."""
        is_made = self.is_made or self.hand_over.has_files
        return attrs.evolve(self, settings=self.latest_settings, is_made=is_made)

    @property
    def latest_settings(self) -> TopicSettings:
        """What the partition was altered to last, or began with."""
        return self.hand_over.altered or self.settings

    @property
    def label(self) -> str:
        """How messages name the partition, for example `orders/2`."""
        return label_of(self.topic, self.index, self.holds)

    @property
    def directory(self) -> str:
        """Where the partition's files are, below the disk's root."""
        return partition_directory(self.topic_id, self.folder or self.index)

    @property
    def journal_directory(self) -> str:
        """Where its delivery journal is."""
        return f"{self.directory}/delivery"

    def lacks(self, entries: Sequence[Entry]) -> bool:
        """Whether a log that was made in the folder with these entries is gone."""
        return self.is_made and not holds_log(entries)

    def log_limits(self, limits: Limits) -> Limits:
        """The limits of its log: delayed messages are not read soon, so fewer of the latest are kept in memory."""
        if self.holds != "delayed":
            return limits
        return attrs.evolve(limits, tail_cache_bytes=min(limits.tail_cache_bytes, WAITING_CACHE_BYTES))

    def topic_full(self, size_bytes: int) -> TopicFull:
        """The error for publishers when retention cannot make room."""
        return TopicFull(
            f"partition {self.label} holds {size_bytes} bytes, its retention_bytes are"
            f" {self.latest_settings.retention_bytes}, and a durable group has not settled its oldest messages. Nothing"
            " was stored. Consume them, delete the group, raise retention_bytes, or set drop_unread=True.",
            topic=self.topic,
            partition=self.index,
        )
