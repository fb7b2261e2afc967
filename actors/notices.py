"""What the broker puts into the system's event log, beside the kernel's own events."""

from __future__ import annotations

import attrs

from callboard.actors.kernel import events


@attrs.frozen
class GroupExpired:
    """A durable group had no member for its `group_expiry` and was forgotten: retention no longer waits for it."""

    group: str
    after_s: float


@attrs.frozen
class GroupPaused:
    """A group was paused (`paused`), or resumed: its consumers get messages again."""

    group: str
    paused: bool


@attrs.frozen
class TopicWritable:
    """A topic was made read-only, or takes messages again (`writable`)."""

    topic: str
    writable: bool


@attrs.frozen
class GroupKept:
    """A durable group had no member for its `group_expiry`, and does not expire: its partitions keep dead letters.

    It expires when they were forwarded or forgotten, and is deleted with them on request.
    """

    group: str
    after_s: float
    records: int
    """Dead letters."""


@attrs.frozen
class CatalogDamaged:
    """The catalog has lost records, and that is not acknowledged yet: reported at each opening."""

    path: str
    damage: str
    missing: tuple[str, ...]
    """Topics and groups by id that are not known any more, as far as anything tells of them."""


@attrs.frozen
class CatalogHeld:
    """The catalog's journal is to be written anew before anything is changed, and the disk is full."""

    path: str
    cause: str


@attrs.frozen
class CatalogUnmaintained:
    """The catalog's journal could not be shortened, or its reserve not be filled; changes go on."""

    path: str
    cause: str


@attrs.frozen
class TopicFound:
    """A group of a pattern reads a topic from now on that matches, and was created after the group."""

    group: str
    topic: str


@attrs.frozen
class TopicPassedOver:
    """A topic matches the pattern of a group, and the group does not read it; `cause` says why."""

    group: str
    topic: str
    cause: str


@attrs.frozen
class LeaseReleaseFailed:
    """A leaving consumer's leases could not be released; they run out by themselves."""

    group: str
    cause: str


@attrs.frozen
class MemberStalled:
    """A member of an exclusive group did nothing while messages waited: others have its partitions now."""

    group: str
    consumer: int
    name: str | None
    session_timeout: float


@attrs.frozen
class HandOverForced:
    """In an exclusive group, a member did not let go of a partition that another is to have: its leases there ended."""

    group: str
    topic: str
    partition: int
    consumer: int
    rebalance_timeout: float


@attrs.frozen
class HandlerFailed(events.CarriesException):
    """A handler of `Topic.work` failed with a message; `outcome` says what becomes of it, `frames` where it was.

    `exception` is what it raised (None: its lease was lost), for those that subscribe to events. It takes no part in
    comparisons, is not logged, and `runtime.events()` does not keep it.
    """

    group: str
    topic: str
    partition: int
    offset: int
    attempt: int
    cause: str
    frames: tuple[str, ...] = attrs.field(default=(), repr=False)
    place: str | None = None
    """The innermost frame of the user's code, as `shop.py:41 in deep`."""
    max_deliveries: int | None = None
    """Attempts that the group allows."""
    outcome: str = ""


@attrs.frozen
class RequestFailed:
    """A request to the control socket met a bug in Callboard: it was refused, and the socket serves on."""

    path: str
    """The socket's actor."""
    verb: str
    cause: str
    place: str | None = None
    frames: tuple[str, ...] = attrs.field(default=(), repr=False)
    """As in `IncarnationCrashed`."""


@attrs.frozen
class WorkHindered:
    """`Topic.work` met acks that could not be settled, a partition that cannot be read, a deleted topic; it goes on.

    `outcome` says what becomes of the messages.
    """

    group: str
    cause: str
    outcome: str = ""


@attrs.frozen
class UnreadDropped:
    """Retention dropped records that a group had not settled: it is ephemeral, or `drop_unread` is set."""

    path: str
    group_id: int
    records: int


@attrs.frozen
class DeadLettered:
    """Messages were given up: rejected, or failed too often. The partition, or the group's topic, has them."""

    path: str
    group_id: int
    records: int
    reason: str | None
    """Of the last one."""


@attrs.frozen
class DeadLettersDropped:
    """A group was deleted, or has ended, and its dead letters that a partition kept went with it."""

    path: str
    group: str
    """Its id, where its name is not known any more: the partition did not run when the group was deleted."""
    records: int


@attrs.frozen
class PartitionStuck:
    """The disk has not finished a partition's plan for too long (`stuck`), or has at last."""

    path: str
    stuck: bool


@attrs.frozen
class PartitionFull:
    """A partition has reached `retention_bytes` with messages that a group has not settled, or has room again."""

    path: str
    size_bytes: int
    retention_bytes: int
    full: bool


@attrs.frozen
class PartitionLacksSpace:
    """The disk is too full for a partition's records, which are refused (`lacking`), or takes them again."""

    path: str
    cause: str
    lacking: bool


@attrs.frozen
class OpeningOverdue:
    """A partition has been recovering for this long. Its users wait; others do not."""

    path: str
    after_s: float


@attrs.frozen
class OpeningLacksSpace:
    """The disk is too full for what recovering a partition must write; only what is proven is served until then."""

    path: str
    cause: str


@attrs.frozen
class OperationFailed:
    """The catalog could not carry out something that no caller waits for; it is tried again at the next opening."""

    subject: str
    cause: str


@attrs.frozen
class DamageFound:
    """A partition has lost something: reported when it is found (`is_new`), and at each opening until
    `callboard repair --accept`.

    No offset is lost when `last_offset` is below `first_offset`; `damage` says it in words.
    """

    path: str
    file: str
    first_offset: int
    last_offset: int
    damage: str
    is_new: bool


@attrs.frozen
class JournalSalvaged:
    """A delivery journal was damaged, and was repaired: messages whose acks it lost are delivered again."""

    path: str
    damage: str


@attrs.frozen
class DeadLettersHeld:
    """Dead letters of a partition cannot be forwarded to a topic now: they stay where they are, and are tried again."""

    topic: str
    partition: str
    cause: str


@attrs.frozen
class DelayedHeld:
    """Delayed records of a partition cannot be moved to their topic, or not be read, now: they wait, and are tried
    again.
    """

    partition: str
    cause: str


@attrs.frozen
class DelayedLost:
    """Delayed records that waited are damaged or missing: they will not come to their topic."""

    partition: str
    records: int


@attrs.frozen
class OutboxHeld:
    """What acks of a partition have published cannot be brought to another one now, or not be read: it stays where it
    is, and is tried again.
    """

    partition: str
    target: str
    cause: str


@attrs.frozen
class ScheduleHeld:
    """A firing of a schedule (topic/name) cannot be published now: it waits, as do those behind it, and is tried
    again.
    """

    schedule: str
    cause: str


@attrs.frozen
class OutboxDropped:
    """Acks of a partition have published messages to a topic that was deleted since, or theirs was: they are gone."""

    partition: str
    topic_id: str
    records: int


@attrs.frozen
class OutboxLost:
    """Messages that acks of a partition have published are damaged or missing: they will not come to their topics."""

    partition: str
    records: int


@attrs.frozen
class ScheduleMissed:
    """Firings of a schedule (topic/name) were missed and are skipped, as its setting `missed` says."""

    schedule: str
    firings: int
    """Of a cron expression as far as they were counted: `MISSED_COUNTED_MAX` at a time."""


@attrs.frozen
class ProducerForgotten:
    """A partition knows nothing more of a producer: should it repeat an old record, that is stored again."""

    path: str
    producer_id: int
    reason: str


@attrs.frozen
class ClockWasAhead:
    """A time that was written down is later than now by more than an hour: the clock was wrong then, or is now. It
    counts as now, when it was first seen. Told once of a partition; `stamps_ahead` in its statistics counts them.
    """

    path: str
    stamp_us: int
    """The first such time, in microseconds since 1970."""
    now_us: int


@attrs.frozen
class PublishersLost:
    """The record of who has published what was damaged, and was made anew from the log that is left. A record that
    retention has dropped would be taken for a new one.
    """

    path: str
    damage: str
