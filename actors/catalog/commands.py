"""What the catalog understands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from callboard.actors.kernel import Question
from callboard.actors.recurring.commands import ScheduleStands, TopicSchedules
from callboard.actors.recurring.spec import ScheduleRecord, ScheduleSpec
from callboard.actors.settings import GroupSettings, Start, TopicSettings
from callboard.actors.topic_patterns import TopicPattern


@attrs.frozen(eq=False)
class CreateTopic(Question[str]):
    """Answered with its id, once its partitions run."""

    name: str
    given: Mapping[str, Any]


@attrs.frozen(eq=False)
class AlterTopic(Question[str]):
    """Answered with its id."""

    name: str
    given: Mapping[str, Any]


@attrs.frozen(eq=False)
class DeleteTopic(Question[None]):
    """Answered with None once its files are gone."""

    name: str


@attrs.frozen(eq=False)
class EnableDelays(Question[str]):
    """Have partitions of the topic in which delayed records wait. Answered with its id once they take some."""

    name: str


@attrs.frozen(eq=False)
class EnableOutbox(Question[str]):
    """Have partitions beside those of the topic for what its acks publish. Answered with its id once they take
    something, also delayed messages if asked.
    """

    name: str
    delays: bool = False


@attrs.frozen(eq=False)
class IsTopic(Question[bool]):
    """Answered at once with whether there is a topic with that id, which is not being deleted."""

    topic_id: str


@attrs.frozen(eq=False)
class AddSchedule(Question[int]):
    """Have a topic publish something again and again. Answered with its id, also when it is there already.

    Raises `TopicNotFound`, `ScheduleExists` for one of that name with other settings.
    """

    name: str
    """Of the topic."""
    topic_id: str
    spec: ScheduleSpec


@attrs.frozen(eq=False)
class RemoveSchedule(Question[None]):
    """Answered with None. Raises `TopicNotFound`, `ScheduleNotFound`."""

    name: str
    topic_id: str
    schedule: str


@attrs.frozen(eq=False)
class PauseSchedule(Question[None]):
    """Have it rest, or go on from now. Answered with None. Raises as `RemoveSchedule` does."""

    name: str
    topic_id: str
    schedule: str
    is_paused: bool


@attrs.frozen(eq=False)
class ConsumerAdmission:
    """The group that a consumer may join, and the consumer's id, which no other was or will be given."""

    group_id: int
    consumer: int


@attrs.frozen(eq=False)
class EnsureGroup(Question[ConsumerAdmission]):
    """A new consumer wants to join with topics, or with all that match a pattern."""

    name: str
    topics: Sequence[str]
    given: Mapping[str, Any]
    pattern: TopicPattern | None = None


@attrs.frozen(eq=False)
class AlterGroup(Question[GroupSettings]):
    """Answered with the group's `GroupSettings`. Unknown names raise `GroupNotFound`."""

    name: str
    given: Mapping[str, Any]


@attrs.frozen(eq=False)
class SeekGroup(Question[dict[tuple[str, int], int]]):
    """Have a group go on elsewhere in some partitions. Answered, once all of that is synced, with the offsets by
    (topic, partition).

    Raises `GroupNotFound`, `OffsetOutOfRange`, and what keeps a partition from it, which it names.
    """

    name: str
    to: Start | None
    """An offset, which has to be one of the partition's or the next one; the nearest to a time or an end otherwise.
    None: where the group began."""
    topic: str | None = None
    """Only in this topic."""
    partition: int | None = None


@attrs.frozen(eq=False)
class GroupIdle(Question[None]):
    """A coordinator tells: no member since that wall time, or members again (None)."""

    group_id: int
    since_us: int | None
    noticed_us: int | None = None
    """When it was noticed that this time is ahead."""


@attrs.frozen(eq=False)
class DeleteGroup(Question[None]):
    """Answered with None once every partition has forgotten it. Unknown names raise `GroupNotFound`.

    Raises `DeadLettersKept` while partitions keep dead letters of it, unless those may be dropped.
    """

    name: str
    drop_dead_letters: bool = False


@attrs.frozen(eq=False)
class EndGroup(Question[int | None]):
    """A coordinator tells that the group has expired, or is ephemeral and without members; it has none until this is
    answered. Answered as `DeleteGroup`, also when the group has gone before. A durable group does not end when it
    expires after another time by now, or partitions keep dead letters of it: answered with how many those are.
    """

    group_id: int
    expired_after: float | None = None
    """Seconds; of a durable group."""


@attrs.frozen
class TopicRecord:
    """A topic as the catalog knows it."""

    name: str
    topic_id: str
    settings: TopicSettings
    unknown_settings: dict[str, Any] = attrs.field(factory=dict)
    """Settings of a later version."""
    deleting: bool = False
    delays: bool = False
    """Whether it has waiting partitions for delayed records."""
    outbox: bool = False
    """Whether it has outbox partitions for what acks publish."""
    outbox_delays: bool = False
    """Whether some of that may be delayed."""
    takes_dead_letters: bool = False
    """Whether a group has ever named it for its dead letters: no pattern matches it that does not ask for them."""
    schedules: tuple[ScheduleRecord, ...] = ()
    made: frozenset[str] = frozenset()
    """Which of its folders were made, by what they hold."""
    unknown_fields: dict[str, Any] = attrs.field(factory=dict)
    """What else a later version knows of the topic."""


@attrs.frozen
class GroupRecord:
    """A consumer group as the catalog knows it. `idle_since_us` is None while it has members."""

    name: str
    group_id: int
    settings: GroupSettings
    unknown_settings: dict[str, Any] = attrs.field(factory=dict)
    topic_ids: tuple[str, ...] = ()
    idle_since_us: int | None = None
    idle_noticed: tuple[int, int] | None = None
    """An instant since which it was idle that was ahead of the time, and when that was noticed."""
    pattern: TopicPattern | None = None
    """Which topics it reads, when they are not named by its consumers."""
    found: frozenset[str] = frozenset()
    """Ids of the topics among them that came after the group: they are read from their beginning."""
    birth: int = 0
    """When it was made, in microseconds since 1970, which no other group of its id has; 0: unknown."""
    unknown_fields: dict[str, Any] = attrs.field(factory=dict)

    @property
    def lets_go_of_dead_letters(self) -> bool:
        """Whether it stops reading a topic that becomes one for dead letters."""
        return self.pattern is not None and not self.pattern.dead_letters

    def start_in(self, topic_id: str) -> Start:
        """Where it begins in a topic."""
        return "beginning" if topic_id in self.found else self.settings.start

    def without(self, topic_id: str) -> GroupRecord:
        """The group, not reading that topic any more."""
        rest = tuple(other for other in self.topic_ids if other != topic_id)
        return attrs.evolve(self, topic_ids=rest, found=self.found - {topic_id})


@attrs.frozen(eq=False)
class ListGroups(Question[tuple[GroupRecord, ...]]):
    """Answered at once with a tuple of `GroupRecord`s."""


@attrs.frozen(eq=False)
class ListTopics(Question[tuple[TopicRecord, ...]]):
    """Answered at once with a tuple of `TopicRecord`s, also of topics that are being deleted."""


@attrs.frozen
class FollowCatalog:
    """A notice of a mirror that is opened while the catalog runs: it is to hear of all that there is."""

    mirror: int
    """The number of its peer."""


CatalogOperation = (
    CreateTopic
    | AlterTopic
    | DeleteTopic
    | EnableDelays
    | EnableOutbox
    | AddSchedule
    | RemoveSchedule
    | PauseSchedule
    | EnsureGroup
    | AlterGroup
    | SeekGroup
    | GroupIdle
    | EndGroup
    | DeleteGroup
)
"""What is carried out beside the catalog's loop."""
CatalogCommand = CatalogOperation | IsTopic | ListGroups | ListTopics | FollowCatalog


CATALOG: Final = "catalog"
"""The catalog's name in the tree, directly below the root."""
ROUTER: Final = "dead-letters"
"""The dead-letter router's name in the tree, directly below the root."""
FORWARDER: Final = "outbox"
"""The same of what forwards from outboxes."""
DELAYED_FORWARDER: Final = "scheduler"
"""The same of what forwards delayed messages when they are due."""


@attrs.frozen
class TopicStands:
    """A notice to mirrors: the topic is live, and this is how it stands. Said again when anything of it is another."""

    topic_id: str
    name: str
    path: str
    """Above its partitions in the tree; the names there are those of the folders."""
    settings: TopicSettings
    pending_bytes: int
    """The credit of each client at each partition."""
    run: int = 0
    """A number of this opening of the directory, if there are waiting partitions."""
    has_waiting: bool = False
    """There are waiting partitions, for delayed records."""
    takes_delayed: bool = False
    """They are known to have their group, and so to keep what they are given."""
    has_outboxes: bool = False
    """There are outbox partitions, for what its acks publish."""
    outboxes_ready: int = 0
    """How many partitions, from the first one on, have outboxes with their group, which so keep what they are given."""
    outboxes_with_delays: int = 0
    """How many of them durably let acks publish what is delayed: an older version would lose it."""


@attrs.frozen
class TopicDeleted:
    """A notice to mirrors: a topic is deleted. Its partitions are about to be stopped."""

    topic_id: str


@attrs.frozen
class PartitionStands:
    """A notice to mirrors: what a partition has said of its state. Nothing was heard of one that is not named yet."""

    path: str
    state: str
    failure: BaseException | None = attrs.field(default=None, eq=False)
    """What it failed with for good."""


@attrs.frozen
class GroupStands:
    """A notice to mirrors: the group's coordinator was started, and these are its settings now."""

    group_id: int
    name: str
    path: str
    """Of the coordinator."""
    settings: GroupSettings


@attrs.frozen
class GroupEnded:
    """A notice to mirrors: the group is gone. Its coordinator is about to be stopped."""

    group_id: int


@attrs.frozen
class CatalogStatistics:
    """What the catalog has lost, and is not acknowledged with `callboard repair --accept`."""

    damages: tuple[str, ...] = ()
    """What was damaged, and which records of the catalog's journal it cost."""
    lost_records: int = 0
    """How many records of its journal are lost."""
    missing: tuple[str, ...] = ()
    """Topics and groups by id whose names and settings are lost, as far as something tells of them; at most 100."""


@attrs.frozen
class CatalogStands:
    """A notice to mirrors, which have heard of all that there is: nothing else is there any more."""

    topic_ids: frozenset[str]
    group_ids: frozenset[int]
    losses: CatalogStatistics


MirrorNotice = (
    TopicStands
    | TopicDeleted
    | PartitionStands
    | GroupStands
    | GroupEnded
    | TopicSchedules
    | ScheduleStands
    | CatalogStands
)
"""What mirrors hear (`mirror`)."""


@attrs.frozen
class SourcesEnded:
    """A notice to the dead-letter router and to the forwarder: a topic or a group has ended."""


@attrs.frozen
class OutboxOpened:
    """A notice to the forwarder: the partition has an outbox."""

    topic_id: str
    partition: int


@attrs.frozen
class WaitingOpened:
    """A notice to the delayed forwarder: the partition has a waiting partition, for what is delayed."""

    topic_id: str
    partition: int


@attrs.frozen
class RouteGroup:
    """A notice to the dead-letter router: the group names a topic for dead letters, maybe another one than before."""

    group_id: int
    topic_ids: tuple[str, ...]
    """Of the topics that it reads."""
