"""What a partition actor understands: frozen data without live objects.

What a partition shares with others in its process it has from its specification (`spec`), not from commands.

Those of the hot paths are named tuples, made in 0.3 us where a frozen attrs class takes 1.2. A command that is asked
names the type of its answer (`Question`): a named tuple does so in a class of its own, below that of its fields.

Vocabulary
----------
*Level*: how far a record has gone when its publisher hears of it. NONE and LEADER: handed to the operating system
(survives the process, not a power cut); ALL: synced.
*Token*: stands for the asker; the partition's core never looks into it. In production it is the asker's `Reply`.
*Notice*: the deferred answer to a `WaitForReady` or `WaitForVisible`: it is worth asking again. Never a lease, since
its asker may be gone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import Enum, IntEnum, auto
from typing import Any, Final, Literal, NamedTuple

import attrs

from callboard.actors.delivery.dead_letters import StoredLetter
from callboard.actors.delivery.receipts import OffsetRange, Settlement
from callboard.actors.kernel import Question
from callboard.actors.settings import TopicSettings
from callboard.log.errors import CallboardError, StorageError
from callboard.log.format.columns import Columns

Ranges = Sequence[tuple[int, int]]
Token = Any


class Level(IntEnum):
    """Acknowledgement levels of a publish, weakest first."""

    NONE = 0
    LEADER = 1
    ALL = 2


JITTER: Final = 0.1
"""The part of a backoff that chance may take off, so that what failed together is not tried again together."""
Acks = Literal["none", "leader", "all"]
"""What the return of a publish means: not waited for; with the operating system; synced."""
LEVELS: Final = {"none": Level.NONE, "leader": Level.LEADER, "all": Level.ALL}


class PublishOne(NamedTuple):
    """Append one record. Answered with its offset; told, not asked, at level NONE."""

    value: bytes
    key: bytes | None
    attributes: Mapping[str, Any] | None
    """What else it carries, by the names of `Columns.build`."""
    level: Level
    size_bytes: int
    """What it took of the client's credit; the partition returns that when the commit has ended."""
    client: int = 0
    """The number of the account (`account`) that it is of."""


class Guard(NamedTuple):
    """What is checked when the commit that takes a publish is staged: that nothing in it is stored twice.

    Records whose producer and sequence, or whose deduplication id, the log has already are not appended again.
    """

    expected_offset: int | None = None
    """Append only if this is the next offset; else it raises `OffsetMismatch`. A duplicate is a duplicate all the
    same."""
    rises: bool = False
    """For sources: sequences only rise, and what lies between them was never to be published. Otherwise each record has
    the next one, from 0 on."""


class PublishMany(NamedTuple):
    """Append a batch whose columns the publisher built. Answered with its first offset; with a `guard`,
    with `Offsets`.
    """

    columns: Columns
    level: Level
    size_bytes: int
    """As in `PublishOne`."""
    guard: Guard | None = None
    """With one, the publisher waits (a level above NONE). Raises `ProducerFenced`, `SequenceOutOfOrder`,
    `OffsetMismatch`; then nothing of the batch is stored."""
    client: int = 0
    """As in `PublishOne`."""


@attrs.frozen
class OpenAccount:
    """A client has opened an account, and hears the partition's state (`StateChanged`)."""

    client: int


@attrs.frozen
class Wanted:
    """A task of a client waits for the partition. While it waits for its turn to open, it comes before others then."""


class ClientNews(Enum):
    """What a client has news of, for the partition: the marks that stand for these two messages."""

    JOINED = auto()
    WANTED = auto()


class OpeningStage(Enum):
    """How far a partition is that opens."""

    WAITS = auto()
    NEEDED = auto()
    """It waits, and so does a task for it."""
    BEGUN = auto()
    HOLDS = auto()
    """It has begun, and may hold the memory that it needs."""
    ENDED = auto()


@attrs.frozen
class OpeningStands:
    """A notice of a partition to the giver of turns: how far it is with opening."""

    partition: int
    """The number of its peer."""
    topic_id: str
    stage: OpeningStage
    size_bytes: int = 0
    """The memory that it needs, once it knows."""
    is_overdue: bool = False
    """It takes long, and does not count any more."""


@attrs.frozen
class TurnBegins:
    """A notice of the giver of turns to a partition: it may open."""


@attrs.frozen
class MemoryHeld:
    """A notice of the giver of turns to a partition: it may hold the memory that it needs."""


@attrs.frozen
class WindowStands:
    """A notice of a partition to the giver of turns: the memory that its record windows may take, and need."""

    partition: int
    """The number of its peer."""
    allowance_bytes: int
    """What they may take."""
    wanted_bytes: int
    """What that is to be; 0: it is enough."""


@attrs.frozen
class WindowGranted:
    """A notice of the giver of turns to a partition that wanted more memory: its record windows may take this much."""

    allowance_bytes: int


@attrs.frozen
class WindowNeeded:
    """A notice of the giver of turns to a partition: it is to give back so much of that memory, if it can."""

    size_bytes: int


GiverCommand = OpeningStands | WindowStands
"""What the giver of turns understands."""


@attrs.frozen
class FilesOpened:
    """To the directory: log and journal are open; whether all files are made, or some wait for space on the disk."""

    has_all: bool


@attrs.frozen
class OpeningWaits:
    """To the directory: the partition cannot be opened, or all its files made, until there is space on the disk."""

    lack: StorageError


@attrs.frozen
class StateChanged:
    """To clients: the partition is in this state now."""

    state: str


class Returned(NamedTuple):
    """To a client: commits with its publishes have ended."""

    size_bytes: int
    """Credit that it has again."""
    unawaited: int = 0
    """Records among them that it does not await."""
    unawaited_bytes: int = 0
    """The credit of those."""
    error: CallboardError | None = None
    """What they failed with; None when they are stored."""


@attrs.frozen
class LeasesEnded:
    """To clients: leases of a group have ended without having run out. Each notice says all that there is to know."""

    group_id: int
    first_lease: int
    """Those with lower ids: the group was sought elsewhere after they were given. 0: none."""
    start_offset: int
    """Those of lower offsets, as far as they lie there: retention has dropped what the group had not settled. 0: none.
    """


class Offsets(NamedTuple):
    """The answer to a guarded publish."""

    offsets: tuple[int | None, ...]
    """Of every record; None for a duplicate whose original lies so far back that its offset is not known."""
    duplicates: tuple[int, ...] = ()
    """Which records, by their place in the publish, were not stored, as the log has them already; it rises."""


@attrs.frozen
class BeginProducer(Question[tuple[int, int]]):
    """Begin another life of a producer, which fences those before it. Answered with its epoch, and the next sequence,
    once all that was published before has been stored or has failed.
    """

    producer_id: int
    owner: int = 0
    """Who begins: one number for all lives of one producer in this process."""
    epoch: int | None = None
    """The life that goes on in this one, if there is one: it raises `ProducerFenced` when another's is later."""


@attrs.frozen
class ProducerChanges:
    """A notice of a producer: it was entered (True) or left (False), by id, in this order. While one is entered, the
    partition remembers which life of the name began last.
    """

    changes: tuple[tuple[int, bool], ...]


@attrs.frozen
class ForgetProducer(Question[None]):
    """A producer will publish no more: its id may be forgotten. After a crash it may be known again."""

    producer_id: int


@attrs.frozen
class KeepSchedules(Question[None]):
    """Forget all schedules but these: they publish no more. Leave out none that still does. Answered with None."""

    schedule_ids: frozenset[int]


@attrs.frozen
class LastSequence(Question[int | None]):
    """Answered with the last sequence of a producer that the log has, for all that is known; None without one."""

    producer_id: int


@attrs.frozen
class ListSources(Question[tuple[int, ...]]):
    """Answered with the ids of all sources that the partition knows."""


@attrs.frozen
class ForgetSources(Question[None]):
    """Sources that have ended are forgotten. After a crash they may be known again.

    Tell it when all that they have sent is stored or has failed: after a `Flush`.
    """

    producer_ids: Sequence[int]


@attrs.frozen
class Flush(Question[None]):
    """Answered once everything sent before is durable (or has failed)."""

    acks_only: bool = False
    """Only have the acks that are not awaited synced. Answered at once: each of them has an answer of its own."""


class Fetch(NamedTuple):
    """Lease what is ready, for the group's visibility timeout. Answered with `LeasedRecords`, or None when nothing is.

    Raises `ConsumerFenced` for a generation that is over.
    """

    group_id: int
    consumer: int
    max_records: int
    max_bytes: int
    generation: int = 1
    """The consumer's generation as a member."""
    name: str | None = None
    """Its display name: dead letters tell in which consumers a message failed."""


class WaitForReady(NamedTuple):
    """Answered with a notice when something is ready for this consumer of the group."""

    group_id: int
    consumer: int


class _Ack(NamedTuple):
    group_id: int
    lease_id: int
    ranges: Ranges
    lazy: bool = False
    """The journal may wait a little for company."""
    again: bool = False
    """The partition crashed with it in hand, and may have acked then: nothing is lost that is settled."""


class Ack(_Ack, Question[Settlement]):
    """Leased ranges are handled. Answered with a `Settlement` after the journal's sync."""

    __slots__ = ()


class _Nack(NamedTuple):
    group_id: int
    lease_id: int
    ranges: Ranges
    delay_s: float | None = None
    """How long to wait with the next attempt; None: as the group's settings say."""
    reason: str | None = None
    again: bool = False
    """The partition crashed with it in hand: nothing is reported as lost."""


class Nack(_Nack, Question[Settlement]):
    """Leased ranges have failed: they are delivered again, or are dead letters. Answered with a `Settlement` when
    journalled.
    """

    __slots__ = ()


class _RejectLeased(NamedTuple):
    group_id: int
    lease_id: int
    ranges: Ranges
    reason: str | None = None
    again: bool = False
    """As in `Ack`."""


class RejectLeased(_RejectLeased, Question[Settlement]):
    """Leased ranges can never be handled: they are dead letters. Answered with a `Settlement` after the journal's sync.
    Raises `DeadLettersFull`.
    """

    __slots__ = ()


class _Release(NamedTuple):
    group_id: int
    lease_id: int
    ranges: Ranges
    again: bool = False
    """As in `Nack`."""
    behind: tuple[int, int] | None = None
    """Lease id and offset of the message that they wait for in their consumer: it is leased none of them meanwhile."""


class Release(_Release, Question[Settlement]):
    """Give leased ranges back unhandled; the attempt does not count. Answered with a `Settlement` when journalled."""

    __slots__ = ()


SettleCommand = Ack | Nack | RejectLeased | Release


@attrs.frozen
class SettleUnawaited:
    """A notice of a consumer: what it has settled, in this order, since it said so last. It awaits no answer, and has
    forgotten them. Taken before what waits in the mailbox, and before a lease runs out.

    What is sent again, because its sender was cancelled while it waited for the answer, is taken twice, which is once.
    """

    settlements: Sequence[SettleCommand]


class _AckAndPublish(NamedTuple):
    group_id: int
    parts: Sequence[tuple[int, Ranges]]
    """By lease id."""
    start: int
    stop: int
    again: bool = False
    """The partition crashed with it in hand: if it has named these payloads then, nothing is lost."""


class AckAndPublish(_AckAndPublish, Question[Settlement]):
    """Ack leased ranges, all or nothing, and publish the payloads `[start, stop)` of the partition's outbox with that.
    Answered with a `Settlement` after the journal's sync: when anything is lost, nothing was acked or published.

    Raises `OutboxFull`.
    """

    __slots__ = ()


class OutboxEntry(NamedTuple):
    """A payload that an ack has named."""

    number: int
    """Of the partition's entries, in the order of the commits."""
    offset: int
    """Where the payload is in the outbox partition."""
    group_id: int
    lease_id: int
    """Whose ack, and by which receipt: the payload says the same."""
    numbering: int = 0
    """Which numbering the number is of."""


@attrs.frozen
class ListOutbox(Question[Sequence[OutboxEntry]]):
    """Answered, once synced, with the entries of the outbox whose numbers are above `after`, or with all of them when
    that is a number of another numbering.
    """

    after: int
    numbering: int


@attrs.frozen
class ForgetOutbox(Question[None]):
    """These entries of the outbox are forwarded. Answered when journalled. Those of another numbering are gone."""

    numbers: Sequence[int]
    numbering: int


class _Extend(NamedTuple):
    group_id: int
    lease_id: int
    seconds: float


class Extend(_Extend, Question[bool]):
    """Move the deadline of a lease to this many seconds from now. Answered with whether the lease is still there."""

    __slots__ = ()


@attrs.frozen
class DeadLettersWait:
    """A notice to the dead-letter router: the partition keeps dead letters of a group. Said once until `ListDead`."""

    topic_id: str
    partition: int
    group_id: int


@attrs.frozen
class PublishesWait:
    """A notice to the forwarder: how many messages the partition's acks have published that are not forwarded yet."""

    topic_id: str
    partition: int
    entries: int
    has_new: bool
    """Some may have come since the last notice."""


@attrs.frozen
class ListDead(Question[list[StoredLetter]]):
    """Answered with the dead letters of a group (`dead_letters.StoredLetter`), once they are synced: those with numbers
    above `above`, the first `limit` of them.
    """

    group_id: int
    limit: int | None = None
    above: int = -1


@attrs.frozen
class CountDead(Question[int]):
    """Answered at once with how many dead letters of a group the partition keeps: none of one it does not know."""

    group_id: int


@attrs.frozen
class ForgetDead(Question[int]):
    """Forget the dead letters of a group with numbers below `below`, unless that is a number of another numbering.
    Answered with how many, once that is synced.
    """

    group_id: int
    below: int
    numbering: int


@attrs.frozen
class Numberings:
    """Under which numberings a partition counts what others take elsewhere."""

    dead: Sequence[tuple[int, int]]
    """By group id, of its dead letters."""
    outbox: int


@attrs.frozen
class ListNumberings(Question[Numberings]):
    """Answered with a `Numberings`."""


@attrs.frozen
class DeliverySettings:
    """What a partition needs to know of a group's settings; durations in seconds."""

    visibility_timeout: float = 30.0
    backoff: float = 1.0
    max_backoff: float = 60.0
    version: int = 0
    """How often they were altered since the runtime was opened: an older version never replaces a later one."""
    ordering: str = "none"
    """"none", "key" or "partition"; a group keeps what it was opened with."""
    max_deliveries: int | None = None
    """Failures after which a message is a dead letter."""
    priority_window: int = 100_000
    """Unsettled records among which the highest priority is first, in a topic with priorities."""
    starvation_after: float | None = None
    """What has waited this long is first; None: never."""
    is_exclusive: bool = False
    """Each partition is leased to its owner alone; a group keeps what it was opened with."""
    retry: Sequence[float] | None = None
    """After the first failure, the second, ..., and all later ones; instead of a backoff."""
    keeps_expired: bool = False
    """A message that expires unhandled is a dead letter."""
    distribution: str = "round-robin"
    """Which waiting consumer is notified of a message: one of `distribution.DISTRIBUTIONS`."""
    paused: bool = False
    """Nothing is leased."""

    def wait_s(self, attempt: int, chance: float) -> float:
        """How long a message waits that failed for the `attempt`-th time; `chance`, 0 to 1, shortens a backoff."""
        if self.retry is not None:
            return self.retry[min(attempt, len(self.retry)) - 1]
        longest = min(self.max_backoff, self.backoff * 2.0 ** min(attempt - 1, 60))
        return longest * (1 - JITTER * chance)


OWN_GROUP: Final = 0
"""The id of the only group of a partition whose messages a part of the broker takes; those of users count from 1.

Retention drops nothing that it has not settled. What its log begins behind without that, since files are gone, is not
settled before the consumer that takes its messages has counted it.
"""


class GroupOpened(NamedTuple):
    """The answer to `OpenGroup`."""

    floor: int
    """All below is settled for the group."""
    has_unsettled: bool
    """Whether something visible is not: a consumer that joins has nothing to fetch otherwise."""


@attrs.frozen
class OpenGroup(Question[GroupOpened]):
    """Make sure that the group's delivery state exists, with these settings."""

    group_id: int
    durable: bool
    start: str | int | datetime
    settings: DeliverySettings = DeliverySettings()
    birth: int = 0
    """Tells the group from another one that had the same id; 0: unknown."""
    is_implied: bool = False
    """The catalog knows that the group reads the topic from its beginning: nothing has to be stored here yet."""


@attrs.frozen
class AlterDelivery(Question[None]):
    """New settings of a group: they hold for what is leased and nacked from now on. Answered with None.

    Also a notice of the catalog, anew to each incarnation.
    """

    group_id: int
    settings: DeliverySettings


@attrs.frozen
class CloseGroup(Question[None]):
    """Forget the group's delivery state. Answered when durable."""

    group_id: int
    name: str = ""
    """For reports of what goes with it."""


@attrs.frozen
class ReleaseConsumer(Question[None]):
    """Release every lease of a consumer that left. Answered when journalled."""

    group_id: int
    consumer: int


@attrs.frozen
class RemainingMembers:
    """A notice of a coordinator: members have left while the partition had failed, and these are the group's consumers
    now. What others have leased is released.
    """

    group_id: int
    consumers: Sequence[int]


@attrs.frozen
class AssignPartition(Question[bool]):
    """In an exclusive group: from now on only `consumer` is leased anything here, or none is. A decision of an earlier
    epoch has no effect. Answered with True once no other consumer has leases, with False when a later decision came.
    """

    group_id: int
    consumer: int | None
    epoch: int
    is_forced: bool = False
    """Release what others have leased, at once."""


@attrs.frozen
class FenceConsumer(Question[None]):
    """From now on a member is known by `generation`: what it leased as an earlier one is released, and its receipts are
    void. Answered when journalled.
    """

    group_id: int
    consumer: int
    generation: int


class _Read(NamedTuple):
    offset: int
    max_records: int
    max_bytes: int


class Read(_Read, Question[tuple[Sequence[Columns], int, int] | None]):
    """Records from `offset` on, without a group. Answered with (batches, next offset, how many offsets in between were
    dropped by retention), or None at the visible end.
    """

    __slots__ = ()


class WaitForVisible(NamedTuple):
    """Answered with a notice when there is a record at or past `offset`."""

    offset: int


@attrs.frozen
class OffsetAt(Question[int]):
    """The first offset appended at or after a wall time. Answered with an offset."""

    time_us: int


@attrs.frozen
class Alter(Question[None]):
    """New settings of the topic. Answered with None. Also a notice of the catalog, anew to each incarnation."""

    settings: TopicSettings


@attrs.frozen
class GroupStatistics:
    """A group's delivery state in one partition."""

    group_id: int
    """The number of the group, as in `GroupInfo`."""
    durable: bool
    """Whether it outlives its last consumer."""
    floor: int
    """All before this offset is settled."""
    next_offset: int
    """The first offset that was never leased."""
    ready: int
    """Messages that may be leased now."""
    leased: int
    """Messages that consumers have."""
    pending: int
    """Messages that are not settled: the lag."""
    redelivered: int
    """Deliveries of messages that had been delivered before, since the group began."""
    expired: int
    """Messages whose lease ran out, since the group began."""
    waiting_consumers: int
    """Consumers that wait for messages of this partition."""
    lost_records: int = 0
    """Settled without delivery since the partition started: dropped by retention, or not there any more."""
    expired_records: int = 0
    """Settled without delivery since the partition started: their time to live was over."""
    filtered_records: int = 0
    """Settled without delivery since the partition started: they were redriven to another group."""
    fenced: int = 0
    """With order per key: known to wait for an earlier record of their key."""
    window_records: int = 0
    """Unsettled records in the group's record window."""
    window_bytes: int = 0
    """What these records take in memory."""
    dead_lettered: int = 0
    """Messages that were rejected, or failed too often, since the group began."""
    dead: int = 0
    """Those of them that the partition keeps."""
    is_dead_full: bool = False
    """There is no room for more of them: messages that failed before are not delivered, nothing can be rejected."""
    is_window_full: bool = False
    """No further record is looked at until some in the window are settled."""
    owner: int | None = None
    """In an exclusive group: the consumer that owns the partition."""
    promoted: int = 0
    """Deliveries that `starvation_after` put before messages of a higher priority, since the partition started or the
    group was sought elsewhere."""
    opened_at: int = 0
    """The floor with which it was opened; 0 when that was before the last snapshot of the delivery journal."""
    is_paused: bool = False
    """The partition leases nothing to the group until it is resumed."""


@attrs.frozen
class PartitionStatistics:
    """One partition as its actor sees it; zeros where it did not answer."""

    topic: str
    """The topic."""
    partition: int
    """The partition."""
    state: str
    """`running`, `full` (the disk, or `retention_bytes`: publishes are refused), `stuck` (the disk does not answer),
    `starting`, `recovering`, `restarting`, `stopping` or `failed`."""
    start_offset: int = 0
    """The first offset that is kept."""
    next_offset: int = 0
    """The offset of the next record that is published."""
    visible_end: int = 0
    """One above the last offset that can be read."""
    durable_end: int = 0
    """One above the last offset that is synced."""
    size_bytes: int = 0
    """The bytes of its segments."""
    segments: int = 0
    """How many segments it has."""
    pending_records: int = 0
    """Records that wait for a commit."""
    pending_bytes: int = 0
    """Their bytes."""
    commits: int = 0
    """Commits since the partition started."""
    failed_commits: int = 0
    """Those of them in which the log or the delivery journal failed."""
    heals: int = 0
    """How often log and delivery journal began anew after a failure, since the partition started."""
    lost_records: int = 0
    """Damaged or missing, until they are acknowledged; each counts once, however many groups had to do with it."""
    history_bytes: int = 0
    """Of the delivery journal: what only tells of the past."""
    dropped_history_bytes: int = 0
    """What was removed of it since the partition was opened because there was too much of it."""
    cancelled_records: int = 0
    """Never written: their publishers had all given up waiting before a commit took them."""
    duplicates: int = 0
    """Records that were not stored again, by their producer or deduplication id, since the partition started."""
    producers: int = 0
    """Producers that the partition knows."""
    dedup_ids: int = 0
    """Deduplication ids that it holds."""
    dedup_forgotten: int = 0
    """Those it had to forget before their window had passed, since it started, because there were too many."""
    outbox: int = 0
    """Messages that acks have published and that are not forwarded yet."""
    dropped_dead_letters: int = 0
    """Dead letters that it kept of groups, and that went with the groups since it started."""
    stamps_ahead: int = 0
    """Times that were later than now, and count as now when they were first seen, since the directory was opened."""
    is_recovery_owed: bool = False
    """The disk was too full for recovery: records behind the proven end are in no number here until it has space."""
    gaps: tuple[str, ...] = ()
    """Offsets that hold no record and never will, in words."""
    damages: tuple[str, ...] = ()
    """What is damaged, in words, until it is acknowledged with `callboard repair --accept`."""
    groups: tuple[GroupStatistics, ...] = ()
    """The delivery state of each group."""


@attrs.frozen
class Describe(Question[PartitionStatistics]):
    """Answered with `PartitionStatistics`."""


@attrs.frozen
class ListUnsettled(Question[list[OffsetRange]]):
    """Answered with the ranges of visible offsets, from `start` on and before `stop`, that a group has not settled."""

    group_id: int
    start: int = 0
    stop: int | None = None
    """None: to the end."""


class Holder(NamedTuple):
    """What a consumer has leased in one partition: how many messages, and for how long it has its oldest lease."""

    consumer: int
    leased: int
    age_s: float


@attrs.frozen
class ListHolders(Question[Sequence[Holder]]):
    """Answered with what each consumer of a group has leased: `Holder`s, by consumer."""

    group_id: int


@attrs.frozen
class NoticeStamps(Question[tuple[tuple[int, int], ...]]):
    """These stamps of records are ahead of the clock. Answered with what the partition has noticed of such stamps,
    these included: each, and as of when it counts.
    """

    stamps_us: tuple[int, ...]


@attrs.frozen
class SettleOffsets(Question[None]):
    """Settle offsets for a group without delivering them, except what a consumer has. Answered when synced."""

    group_id: int
    ranges: Ranges


@attrs.frozen
class SeekOffset(Question[int]):
    """Have the group go on from an offset. Answered with it when synced.

    Raises `OffsetOutOfRange` for one before the first or after the next, unless the nearest of these will do.
    """

    group_id: int
    offset: int
    takes_nearest: bool = False


@attrs.frozen
class SetAside(Question[list[StoredLetter]]):
    """Settle offsets that no consumer has, and keep them as dead letters in this order, as far as there is room.
    Answered when synced, with all dead letters of the group. What is settled already stays as it is.
    """

    group_id: int
    offsets: Sequence[int]


PartitionCommand = (
    PublishOne
    | PublishMany
    | BeginProducer
    | ProducerChanges
    | ForgetProducer
    | KeepSchedules
    | LastSequence
    | ListSources
    | ForgetSources
    | Flush
    | Fetch
    | WaitForReady
    | Ack
    | Nack
    | RejectLeased
    | Release
    | SettleUnawaited
    | AckAndPublish
    | ListOutbox
    | ForgetOutbox
    | Extend
    | ListDead
    | CountDead
    | ForgetDead
    | ListNumberings
    | ListUnsettled
    | ListHolders
    | NoticeStamps
    | SettleOffsets
    | SetAside
    | SeekOffset
    | OpenGroup
    | AlterDelivery
    | CloseGroup
    | ReleaseConsumer
    | RemainingMembers
    | AssignPartition
    | FenceConsumer
    | Read
    | WaitForVisible
    | OffsetAt
    | Alter
    | Describe
    | OpenAccount
    | Wanted
)


class LeasedRecords(NamedTuple):
    """A lease's records on their way to a consumer. `ranges` are (first, end, attempt), in the order of `batches`."""

    lease_id: int
    deadline: float
    ranges: tuple[tuple[int, int, int], ...]
    batches: list[Columns]
    is_part: bool = False
    """Some of what was leased first is not in it."""
