"""What a coordinator understands, and what it says to the consumers of its group: frozen data.

Vocabulary
----------
*Place*: a partition, as (topic id, index).
*Activity*: how much a consumer has fetched, and how much of it is in flight: numbers that change with all that it
fetches and settles.
"""

from __future__ import annotations

from typing import Final

import attrs

from callboard.actors.kernel import Question
from callboard.actors.settings import GroupSettings

Place = tuple[str, int]
Activity = tuple[int, int]


@attrs.frozen
class Joined:
    """The answer to a consumer that joined, or joined again."""

    group_id: int
    generation: int
    settings: GroupSettings
    topic_ids: tuple[str, ...] | None = None
    """What a group of a pattern reads; None when its consumers name their topics."""
    settled: frozenset[Place] = frozenset()
    """Partitions that have nothing for the group yet."""
    version: int = 0
    """Of the settings: how often they were altered in this process."""


@attrs.frozen
class Join(Question[Joined]):
    """A consumer joins with a topic. Answered with `Joined` once the topic's partitions know the group, or have been
    asked to for some time. In a group of a pattern it joins with all that match, and `topic_id` is None.
    """

    consumer: int
    topic_id: str | None
    name: str | None = None
    number: int = 0
    """Of the peer by which the consumer hears of its group."""


@attrs.frozen
class Leave(Question[None]):
    """A consumer leaves. Answered with None when its leases are released, or have been asked to be for some time."""

    consumer: int


@attrs.frozen
class Fence(Question[None]):
    """Let a member begin a new generation: it loses its leases, and joins again. Answered with None when all partitions
    know; those that have failed do not have to.
    """

    consumer: int


@attrs.frozen
class Departed:
    """A notice of a consumer: it has gone, and does not wait for its leases to be released."""

    consumer: int


@attrs.frozen
class Acted:
    """A notice of a consumer, which was asked for (`ShowActivity`)."""

    consumer: int
    activity: Activity | None
    """None while it is alive for certain."""


@attrs.frozen
class GroupTopic:
    """A topic that a group reads, and that runs."""

    topic_id: str
    name: str
    path: str
    """Above its partitions in the tree; the names there are their indexes."""
    partitions: int


@attrs.frozen
class GroupDecided:
    """A notice of the catalog, and anew to each incarnation: what it has decided about the group."""

    settings: GroupSettings
    """With which partitions open the group."""
    version: int
    """How often they were altered in this process."""
    topics: tuple[GroupTopic, ...] = ()
    """What it reads, as far as it runs."""
    is_of_pattern: bool = False
    """Its consumers do not name their topics: each reads all of these."""
    found: frozenset[str] = frozenset()
    """By id, of a group of a pattern: those that came after the group."""


@attrs.frozen
class TellMembers(Question[None]):
    """Every partition knows the settings of the group, or will when it runs: have the members know.

    Answered when they do.
    """


@attrs.frozen
class MemberInfo:
    """A member of the group."""

    consumer: int
    name: str | None
    generation: int
    topics: tuple[str, ...]
    """The names of those that it reads."""
    assigned: tuple[tuple[str, int], ...]
    """In an exclusive group: the partitions that it has by now, as (topic, partition)."""


@attrs.frozen
class MembersInfo:
    """The members of a group by id, and what is counted of them since the directory was opened."""

    members: tuple[MemberInfo, ...] = ()
    rebalances: int = 0
    forced_handovers: int = 0
    stalled_members: int = 0


@attrs.frozen
class ListMembers(Question[MembersInfo]):
    """Answered at once."""


CoordinatorCommand = Join | Leave | Fence | TellMembers | ListMembers | GroupDecided | Departed | Acted


@attrs.frozen
class Assigned:
    """To a member of an exclusive group: it may read these partitions, and no others."""

    places: frozenset[Place]
    handed_over: frozenset[Place]
    """Those of them that it has by now: no other consumer has leases there."""


@attrs.frozen
class HandedOver:
    """To a member of an exclusive group: it has this partition now."""

    place: Place


@attrs.frozen
class TakenAway:
    """To a member of an exclusive group: whatever it has leased in this partition is its own no more."""

    place: Place


@attrs.frozen
class Fenced:
    """To a member: it begins this generation; what it leased as an earlier one is not its own any more."""

    generation: int


@attrs.frozen
class SettingsAltered:
    """To members: the group has these settings, and its partitions know."""

    settings: GroupSettings
    version: int
    """How often they were altered in this process."""


@attrs.frozen
class TopicsRead:
    """To members of a group of a pattern: it reads these topics now."""

    topic_ids: tuple[str, ...]


@attrs.frozen
class LookAgain:
    """To members: a topic that some of them read may be deleted."""


@attrs.frozen
class ShowActivity:
    """To a member: what has it done?"""


NOTICES: Final = (
    *(Assigned, HandedOver, TakenAway, Fenced, SettingsAltered, TopicsRead, LookAgain, ShowActivity),
)
"""What a coordinator says to consumers."""
