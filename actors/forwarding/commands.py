"""What the actors of this room are asked, and hear from partitions and the catalog; its only door."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from callboard.actors.catalog.commands import OutboxOpened, RouteGroup, SourcesEnded, WaitingOpened
from callboard.actors.kernel import Question
from callboard.actors.partition.commands import DeadLettersWait, PublishesWait


@attrs.frozen
class Forwarded:
    """What the router has forwarded, by the name of the topic it went to."""

    counts: Mapping[str, int] = attrs.Factory(dict)
    """Dead letters, since the directory was opened."""
    held: Mapping[str, str] = attrs.Factory(dict)
    """Of a topic that takes none now: why."""


@attrs.frozen
class CountForwarded(Question[Forwarded]):
    """Answered with what was forwarded."""


RouterCommand = DeadLettersWait | RouteGroup | SourcesEnded | CountForwarded
ForwarderCommand = OutboxOpened | PublishesWait | SourcesEnded


@attrs.frozen
class CancelDelayed(Question[Sequence[int]]):
    """Cancel pending records. Answered, once that is synced, with the ids that were pending until then."""

    topic_id: str
    partition: int
    schedule_ids: Sequence[int]


@attrs.frozen
class ListDelayed(Question[Sequence[tuple[int, int]]]):
    """Answered with what is pending, in the order of ids: (schedule id, wall time when it is due in microseconds)."""

    topic_id: str
    partition: int
    after: int
    """The ids that are asked for are above this."""
    limit: int


@attrs.frozen
class CountDelayed(Question[int]):
    """Answered with how many are pending."""

    topic_id: str
    partition: int


DelayedQuestion = CancelDelayed | ListDelayed | CountDelayed
SchedulerCommand = WaitingOpened | DelayedQuestion
