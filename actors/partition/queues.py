"""What waits for the next commit: the sequencer has what is to be appended, the journal queue the rest. Pure.

What arrives while a commit is in flight forms the next one (group commit), so the busier the partition, the larger its
commits and the fewer its syncs. Single records that stand next to each other become one frame; a publisher's batch,
whose columns it has built itself, stays a frame of its own. The order of arrival is the order of offsets.

Invariants
----------
QU1  Records leave in the order in which they came, each exactly once; but for those that are dropped because every
     publisher that waited for them has given up. Records that are not awaited (level NONE) are never dropped.
QU2  Appends are durable when any record in them wants level ALL; the whole commit then waits for the sync.
QU3  Every token that came in goes out with exactly one `Appends`, or was dropped with its record.
QU4  The sizes of all `Appends` that left and of what waits add up to the sizes of all that came, also by client.
QU5  A flush leaves with the last of the records that came before it, or with the next `Appends` when they have left.
QU6  Guarded parts (`Guard`) leave like all others; `admission` decides then what of them is stored, and its answer.
QU7  What changed in deliveries leaves the journal queue in order, and an answer with the changes that it tells of.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final, NamedTuple

import attrs

from callboard.actors.delivery.events import Event, GroupEvents
from callboard.actors.partition.commands import (
    BeginProducer,
    Guard,
    Level,
    PublishMany,
    PublishOne,
    Token,
)
from callboard.actors.partition.group_records import opening_record
from callboard.actors.partition.group_state import GroupState, PendingLease
from callboard.log.errors import CallboardError
from callboard.log.format.columns import Columns
from callboard.log.limits import USUAL, Limits

GATHER_S: Final = 0.001
"""Records that are not awaited are written when the first has waited this long, or enough bytes have come."""
LINGER_S: Final = 0.01
"""How long settlements that are not awaited may wait for company."""
NEVER: Final = float("inf")
NO_RECORDS: Final = 0, 0
"""Their number, and their bytes."""


@attrs.define(eq=False)
class NextWrite:
    """When there is next something to write, in monotonic seconds. Its owner keeps `at` right."""

    at: float = NEVER


@attrs.define(eq=False)
class Singles:
    """Neighbouring single records of one client on their way into one frame."""

    guard: ClassVar[None] = None
    client: int = 0
    messages: list[PublishOne] = attrs.field(factory=list)
    tokens: list[Token | None] = attrs.field(factory=list)
    level: Level = Level.NONE
    size_bytes: int = 0
    unawaited: int = 0
    """Records without an asker."""

    @property
    def unawaited_bytes(self) -> int:
        """The size of those, before any were dropped."""
        if self.unawaited == len(self.messages):
            return self.size_bytes
        pairs = zip(self.messages, self.tokens, strict=True)
        return sum([message.size_bytes for message, token in pairs if token is None])

    def columns(self) -> Columns:
        """The records as one frame."""
        if len(self.messages) == 1:
            value, key, given, _, _, _ = self.messages[0]
            if given is None:
                return Columns.of_one(value, key)
        values, keys, attributes, _, _, _ = zip(*self.messages, strict=True)
        names = dict.fromkeys(name for given in attributes if given for name in given)
        others: dict[str, Any] = {
            name: [given.get(name) if given else None for given in attributes] for name in names
        }
        return Columns.build(values, keys, **others)

    def drop(self, is_abandoned: Callable[[Token], bool]) -> int:
        """Leave out the records whose publishers gave up; returns how many."""
        kept = [
            (message, token)
            for message, token in zip(self.messages, self.tokens, strict=True)
            if token is None or not is_abandoned(token)
        ]
        dropped = len(self.messages) - len(kept)
        if dropped:
            self.messages = [message for message, _ in kept]
            self.tokens = [token for _, token in kept]
            self.level = max([message.level for message in self.messages], default=Level.NONE)
        return dropped


@attrs.define(eq=False)
class PublishedBatch:
    """A publisher's own batch."""

    source: Columns
    level: Level
    size_bytes: int
    tokens: list[Token | None]
    """The publisher's."""
    guard: Guard | BeginProducer | None = None
    client: int = 0
    unawaited: int = 0
    """Records without an asker: all, or none."""

    @property
    def unawaited_bytes(self) -> int:
        """The size of those."""
        return self.size_bytes if self.unawaited else 0

    def columns(self) -> Columns:
        """The records as the publisher made them."""
        return self.source

    def drop(self, is_abandoned: Callable[[Token], bool]) -> int:
        """Leave out the batch when its publisher gave up; returns how many records that are."""
        if self.unawaited or not is_abandoned(self.tokens[0]):
            return 0
        self.tokens = []
        return self.source.count


class Decided(NamedTuple):
    """What a guarded publisher is answered when the commit ends."""

    token: Token
    answer: object
    refusal: CallboardError | None


@attrs.define(eq=False)
class Appends:
    """What one commit appends to the log, and which askers hear afterwards."""

    parts: Sequence[Singles | PublishedBatch]
    batches: list[Columns]
    durable: bool
    records: int
    size_bytes: int
    """Of what was taken from the queue, dropped records included."""
    cancelled: int = 0
    """Records dropped on the way."""
    has_ttls: bool = False
    """Whether some record has a time to live of its own."""
    flushes: Sequence[Token] = ()
    """Who waits for everything up to here to be durable."""
    is_guarded: bool = False
    """Whether some part is guarded."""
    decided: list[Decided] = attrs.Factory(list)
    """What was decided of the guarded parts; their tokens are here then, and no longer in `parts`."""
    sizes: dict[int, int] = attrs.Factory(dict)
    """What is to be returned to each client, by its number: `size_bytes` together."""
    unawaited: dict[int, tuple[int, int]] = attrs.Factory(dict)
    """Records without an asker, and their bytes, of each client that has some."""


class Sequencer:
    """The queue of appends between the partition's mailbox and its commits.

    `is_abandoned` tells whether an asker has given up.
    """

    def __init__(self, limits: Limits = USUAL, is_abandoned: Callable[[Token], bool] | None = None) -> None:
        self._commit_bytes = limits.commit_bytes
        self._frame_records = limits.frame_records
        self._gather_bytes = limits.gather_bytes
        self._sift_bytes = limits.cancelled_sift_bytes
        self.due = NextWrite()
        """At once when an asker waits for what is queued; `NEVER` when nothing is."""
        self._is_abandoned = is_abandoned
        self._parts: deque[Singles | PublishedBatch] = deque()
        self._singles: Singles | None = None
        self._is_awaited = False
        self._since = 0.0
        self._flushes: list[tuple[int, Token]] = []
        """Who waits for all records up to a number, counted from the start."""
        self._taken = 0
        """Records that left, or were dropped."""
        self.records = 0
        self.size_bytes = 0
        self.guarded = 0
        """Guarded parts that wait."""
        self.cancelled = 0
        """Records dropped since the start."""

    def add_one(self, message: PublishOne, token: Token | None, now: float = 0.0) -> None:
        """Queue one record."""
        _, _, _, level, size, client = message
        singles = self._singles
        if singles is None or singles.client != client:
            singles = self._singles = Singles(client)
            self._parts.append(singles)
        messages = singles.messages
        messages.append(message)
        singles.tokens.append(token)
        if token is None:
            singles.unawaited += 1
        singles.size_bytes = frame_bytes = singles.size_bytes + size
        if level > singles.level:
            singles.level = level
            self._is_awaited = True
            self.due.at = 0.0
        elif not self.records:
            self._begins(now)
        self.size_bytes += size
        self.records += 1
        if self.size_bytes >= self._gather_bytes:
            self.due.at = 0.0
        if frame_bytes >= self._commit_bytes or len(messages) >= self._frame_records:
            self._singles = None

    def add_many(self, message: PublishMany, token: Token | None, now: float = 0.0) -> None:
        """Queue a publisher's batch."""
        columns, level, size, guard, client = message
        self._singles = None
        unawaited = columns.count if token is None else 0
        self._parts.append(PublishedBatch(columns, level, size, [token], guard, client, unawaited))
        if guard is not None:
            self.guarded += 1
        if level > Level.NONE:
            self._is_awaited = True
            self.due.at = 0.0
        elif not self.records:
            self._begins(now)
        self.records += columns.count
        self.size_bytes += size
        if self.size_bytes >= self._gather_bytes:
            self.due.at = 0.0

    def add_begin(self, message: BeginProducer, token: Token | None, now: float = 0.0) -> None:
        """Queue a publisher that begins to publish: a guarded part without records."""
        self._singles = None
        self._parts.append(PublishedBatch(Columns.build([]), Level.ALL, 0, [token], message))
        self.guarded += 1
        self._is_awaited = True
        self.due.at = 0.0

    def _begins(self, now: float) -> None:
        """The first of the records that wait is not awaited."""
        self._since = now
        self.due.at = min(self.due.at, now + GATHER_S)

    @property
    def is_flushing(self) -> bool:
        """Whether an asker waits for a flush, or to begin publishing."""
        return bool(self._flushes) or self.guarded > 0

    def guarded_batches(self) -> list[Columns]:
        """The guarded batches that wait."""
        return [part.columns() for part in self._parts if part.guard is not None]

    def add_flush(self, token: Token) -> None:
        """Queue an asker that waits for all that is queued now, or was taken before, to be durable."""
        self._flushes.append((self._taken + self.records, token))
        self.due.at = 0.0

    def put_back(self, flushes: Sequence[Token]) -> None:
        """These were not durable after all: they leave with the next appends."""
        self._flushes = [*((0, token) for token in flushes), *self._flushes]
        self.due.at = 0.0

    def take(self) -> Appends | None:
        """The next commit's appends, oldest first, up to `Limits.commit_bytes`; None when nothing waits.

        When much waits, records of askers that have given up are dropped, so there may be no batches in what is
        returned.
        """
        waiting = self._parts
        if not waiting and not self._flushes:
            self.due.at = NEVER
            return None
        is_abandoned = self._is_abandoned if self.size_bytes >= self._sift_bytes else None
        parts: list[Singles | PublishedBatch] = []
        batches: list[Columns] = []
        size = records = cancelled = 0
        sizes: dict[int, int] = {}
        unawaited: dict[int, tuple[int, int]] = {}
        durable = has_ttls = False
        while waiting and (not parts or size + waiting[0].size_bytes <= self._commit_bytes):
            part = waiting.popleft()
            size += part.size_bytes
            sizes[part.client] = sizes.get(part.client, 0) + part.size_bytes
            if part.unawaited:
                count, of_these = unawaited.get(part.client, NO_RECORDS)
                unawaited[part.client] = count + part.unawaited, of_these + part.unawaited_bytes
            if is_abandoned is not None:
                cancelled += part.drop(is_abandoned)
                if not part.tokens:
                    continue
            columns = part.columns()
            parts.append(part)
            batches.append(columns)
            records += columns.count
            durable = durable or part.level is Level.ALL
            has_ttls = has_ttls or columns.ttls is not None
        self._taken += records + cancelled
        self.records -= records + cancelled
        self.cancelled += cancelled
        self.size_bytes -= size
        appends = Appends(
            parts, batches, durable, records, size, cancelled, has_ttls, sizes=sizes, unawaited=unawaited
        )
        if self.guarded:
            appends.is_guarded = any(part.guard is not None for part in parts)
            self.guarded = sum(part.guard is not None for part in waiting)
        if self._flushes:
            appends.flushes = [token for upto, token in self._flushes if upto <= self._taken]
            self._flushes = [flush for flush in self._flushes if flush[0] > self._taken]
            appends.durable = durable or bool(appends.flushes)
        if waiting:
            self._is_awaited = any(part.level > Level.NONE for part in waiting)
            is_due = self._is_awaited or self._flushes or self.size_bytes >= self._gather_bytes
            self.due.at = 0.0 if is_due else self._since + GATHER_S
        else:
            self._singles, self._is_awaited, self.due.at = None, False, NEVER
        return appends


class JournalWork(NamedTuple):
    """What one commit writes to the delivery journal, and what follows when it is written."""

    entries: list[bytes | GroupEvents]
    answers: list[tuple[Token, object]]
    leases: list[PendingLease]
    sync: bool


class JournalQueue:
    """The queue of what one commit after the other writes to the delivery journal, and of the askers that wait for
    that.

    Whoever adds something keeps `due` right.
    """

    def __init__(self) -> None:
        self.due = NextWrite()
        self.changed: dict[int, GroupState] = {}
        """Groups whose deliveries have events to be journalled, by id."""
        self.entries: list[bytes | GroupEvents] = []
        """What comes before them."""
        self.answers: list[tuple[Token, object]] = []
        self.leases: list[PendingLease] = []
        self.must_sync = False
        self.is_healthy = True
        """Whether the journal takes records; else it has to be healed first."""
        self._lazy_acks: list[tuple[Token, object]] = []
        """Acks that are not awaited, and that no sync covers yet."""
        self._lazy_until = NEVER
        """When such acks are to be synced."""

    def answer(self, token: Token, value: object, *, must_sync: bool) -> None:
        """Answer behind what was journalled before."""
        self.must_sync = self.must_sync or must_sync
        self.due.at = 0.0
        if token is not None:
            self.answers.append((token, value))

    def answer_lazily(self, token: Token, value: object, now: float) -> None:
        """Answer when a sync covers what was journalled before, after a linger at the latest."""
        if not self._lazy_acks:
            self._lazy_until = now + LINGER_S
        self._lazy_acks.append((token, value))
        if now + LINGER_S < self.due.at:
            self.due.at = now + LINGER_S

    def sync_lazy(self) -> None:
        """The next commit syncs what waits to be answered lazily."""
        if self._lazy_acks:
            self.must_sync = True
            self.due.at = 0.0

    def close(self, group: GroupState) -> None:
        """Nothing of the group may follow what is journalled next."""
        events = group.delivery.take_events()
        if self.changed.pop(group.group_id, None) is not None and events:
            self._add(group, events)

    def open(self, group: GroupState) -> None:
        """Have the journal tell of the group, if it does not."""
        if group.unwritten_since_us is not None:
            self.entries.append(opening_record(group))
            self.due.at = 0.0

    def _add(self, group: GroupState, events: list[Event]) -> None:
        if group.unwritten_since_us is not None:
            self.entries.append(opening_record(group))
        self.entries.append(GroupEvents(group.group_id, events))

    def take(self, now: float = NEVER) -> JournalWork | None:
        """What waits for the journal; None when that is nothing.

        Lazy acks are written with the rest, and answered by the first commit that syncs: one that is awaited,
        or the first after their linger.
        """
        sync = self.must_sync
        if self._lazy_acks and (sync or now >= self._lazy_until):
            sync = True
            self.answers += self._lazy_acks
            self._lazy_acks, self._lazy_until = [], NEVER
        self.due.at = self._lazy_until
        if not (self.changed or self.answers or self.leases or self.entries):
            return None
        for group in self.changed.values():
            events = group.delivery.take_events()
            if events:
                self._add(group, events)
        work = JournalWork(self.entries, self.answers, self.leases, sync)
        self.changed = {}
        self.entries, self.answers, self.leases, self.must_sync = [], [], [], False
        return work

    @property
    def has_work(self) -> bool:
        """Whether `take` would find something."""
        return bool(self.changed or self.answers or self.leases or self.entries or self._lazy_acks)

    @property
    def has_events(self) -> bool:
        """Whether memory is ahead of the journal."""
        return bool(self.changed or self.entries)

    def put_back(self, work: JournalWork) -> None:
        """`work` was not written after all: it goes first into the next commit."""
        self.entries[:0] = work.entries
        self.answers[:0] = work.answers
        self.leases[:0] = work.leases
        self.must_sync = self.must_sync or work.sync
        self.due.at = 0.0
