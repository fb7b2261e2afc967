"""What the actors of this room are asked, and hear from partitions and the catalog."""

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


@attrs.frozen
class SweepBegins:
    """A notice of the forwarder to its clients: it settles payloads of an outbox that no ack has named, below `end`.

    A client with open acks there answers with `OpenAcks`. What an ack stores that begins later lies at `end` or behind.
    """

    topic_id: str
    partition: int
    end: int


@attrs.frozen
class OutboxUnserved:
    """A notice of the forwarder to its clients: it serves an outbox no longer, or begins anew with it."""

    topic_id: str
    partition: int


@attrs.frozen
class OpenAcks:
    """A notice of a client to the forwarder: which acks with publishes are open, and have ended, in one outbox.

    An ack is *open* from before its payloads are stored until the partition was asked to name them.
    """

    client: int
    topic_id: str
    partition: int
    start: int | None
    """What open acks have stored, or will, lies here or behind; None: none is open."""
    has_ended: bool
    """Some have ended since the last notice."""
    is_unnamed: bool
    """There may be payloads among theirs that no ack has named."""
    refused: int
    """How many of these were refused because the outbox was full."""


@attrs.frozen
class HearOpenAcks(Question[None]):
    """Answered once all that clients had said of their open acks before was heard."""


@attrs.frozen
class OutboxCounts:
    """What was done with what acks of one partition have published, since the directory was opened."""

    topic_id: str
    partition: int
    pending: int = 0
    """Messages that acks have published and that are not forwarded yet."""
    forwarded: int = 0
    held: int = 0
    """Partitions that do not take what is for them now."""
    refused: int = 0
    """Acks that were refused because the outbox was full."""
    dropped: int = 0
    """Messages whose topic was deleted."""
    lost: int = 0
    """Messages whose payload could not be read."""
    discarded: int = 0
    """Payloads that no ack has named."""


@attrs.frozen
class CountOutboxes(Question[Sequence[OutboxCounts]]):
    """Answered with those of all outboxes of which something was heard."""


RouterCommand = DeadLettersWait | RouteGroup | SourcesEnded | CountForwarded
ForwarderCommand = OutboxOpened | PublishesWait | SourcesEnded | OpenAcks | HearOpenAcks | CountOutboxes


@attrs.frozen
class CancelDelayed(Question[Sequence[int]]):
    """Cancel pending records. Answered, once that is synced, with the ids that were pending until then."""

    topic_id: str
    partition: int
    delayed_ids: Sequence[int]


@attrs.frozen
class ListDelayed(Question[Sequence[tuple[int, int]]]):
    """Answered with what is pending, in the order of ids: (delayed id, wall time when it is due in microseconds)."""

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


@attrs.frozen
class DelayedCounts:
    """What is counted of one waiting partition; what has ended, since the directory was opened."""

    pending: int = 0
    """Records that wait, as far as they were counted."""
    next_due_us: int | None = None
    """When the first of them is due, wall time; None when none waits, or they are not counted yet."""
    moved: int = 0
    cancelled: int = 0
    lost: int = 0
    """Records that could not be read when they were due."""


@attrs.frozen
class CountAllDelayed(Question[Mapping[tuple[str, int], DelayedCounts]]):
    """Answered at once, by topic id and partition."""


@attrs.frozen
class CountsAtCrash:
    """A notice of each actor of this room when it has crashed: what it would have answered of its counts.

    One that has failed for good answers no more.
    """

    counts: Forwarded | Sequence[OutboxCounts] | Mapping[tuple[str, int], DelayedCounts]


DelayedForwarderCommand = WaitingOpened | DelayedQuestion | CountAllDelayed
