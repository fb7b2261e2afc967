"""All groups' delivery states of one partition, and the records by which the shared delivery journal rebuilds them.

One journal serves all groups of a partition, so that a commit pays one extra sync however many groups there are. A
journal record (version 1) is one CBOR item:

======  ===================================================================================
kind    record
======  ===================================================================================
EVENTS  array [EVENTS, group id, the delivery events of one step], see `delivery.events`
OPEN    map: kind, group, durable, start (an offset), numbering, birth, since_us; what else it has is kept
CLOSE   map: kind, group
SENT    map: kind, numbers (ranges of them): these entries of the outbox are forwarded
======  ===================================================================================

A snapshot is the map {"groups": {group id: {"durable", "delivery", "numbering", "birth"}}, "named_end", "outbox"}; the
last but one is there when an offset above all that the groups still name was named once, the last when an ack has
published something (`outbox_entries`). In version 0 a record is a 5-byte prefix (group id u32, kind u8, little-endian)
and a body: the events, CBOR [durable, start offset], or nothing; a snapshot is {group id: [durable, delivery
snapshot]}.

A group that the catalog says to read the topic from its beginning is *implied*: it exists before its record does, so
that a consumer of a thousand partitions joins without a write in each. `opening_rules` say when the record is written,
with the time since when the group is open. Until then the group is *unwritten*, and a snapshot does not have it.

Where the journal lost records (`lost`), what follows may not fit. A group is *salvaged* from its first such event on:
what is settled stays settled, and nothing else is believed. Attempts and delays since are forgotten, all leases have
ended, and what was acked in the lost part is delivered again.

A journal counts dead letters and entries of the outbox, and the actor that takes them elsewhere publishes them under
these numbers; the targets remember the highest. So no number may be used for two things. Each group gets the id of a
*numbering* when it is opened, which no other opening has, and which is a part of who publishes (`source_ids`). Where
records are lost and the numbering is known, numbers go on above all that they can have given, which their sequences
tell (`above_lost`); where it is not known, another one begins. A copy of a journal that is older than what the targets
have taken tells nothing of that: so the numbers of each life of a partition begin at its instant (`begin_life`).

Everything read back is untrusted. A record that cannot have followed those before it raises `JournalInvalid` with the
group it is about, one that only a later version understands `FormatTooNew`; neither is damage.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import attrs
import cbor2

from callboard.actors.delivery.delivery import NO_FIELDS, Delivery
from callboard.actors.delivery.events import (
    EVENTS,
    AckEvent,
    DeathEvent,
    DeliveryEventInvalid,
    Event,
    ExpiryEvent,
    ForgetEvent,
    LeaseEvent,
    PublishEvent,
    SeekEvent,
    SkipEvent,
    VoidEvent,
    decode_events,
    load,
    parts_of,
    takes_steps,
)
from callboard.actors.delivery.intervals import NOTHING
from callboard.actors.delivery.pieces import decode_in_pieces, encode_in_pieces
from callboard.actors.delivery.receipts import Lease, OffsetRange, Settlement
from callboard.actors.delivery.snapshot import number, restore_in_steps, take_snapshot
from callboard.actors.partition.choice.distribution import DISTRIBUTIONS, Draw, Load
from callboard.actors.partition.choice.expiry_look import ExpiryLook
from callboard.actors.partition.choice.keys import KeyOrder
from callboard.actors.partition.commands import DeliverySettings, GroupStatistics, Ranges, Token
from callboard.actors.partition.companion_partitions.outbox_entries import (
    OutboxEntries,
    as_ranges,
    from_ranges,
)
from callboard.actors.partition.ownership import Ownership
from callboard.actors.partition.withheld import WithheldRecords
from callboard.log.errors import InvalidArgument, JournalInvalid
from callboard.log.format.fields import MUST, check_kind, unknown_fields
from callboard.log.format.stamps import Stamps
from callboard.log.plain import shown

RECORDS_VERSION: Final = 1
"""The form in which records are written; older ones are read."""
PREFIX: Final = struct.Struct("<IB")
OPEN: Final = 1
CLOSE: Final = 2
SENT: Final = 3
KINDS: Final = (EVENTS, OPEN, CLOSE)
OPEN_FIELDS: Final = ("kind", "group", "durable", "start", "numbering", "birth", "since_us")
CLOSE_FIELDS: Final = ("kind", "group")
GROUP_FIELDS: Final = ("durable", "delivery", "numbering", "birth")
SENT_FIELDS: Final = ("kind", "numbers")
SNAPSHOT_FIELDS: Final = ("groups", "named_end", "outbox")
GROUP_ID_END: Final = 2**32
DELAY_MAX_S: Final = 1e9
GONE_FROM: Final = 2**31
"""A journal that has lost more records than this has lost all: how many it had is unknown."""
GIVEN_PER_RECORD: Final = 2**24
"""More numbers, or ids of leases, than a record of the journal can give."""
GIVEN_BEFORE: Final = 2**53
"""More than was given that does not go by the number of records: by lives, which begin at their instant until the year
2255, and by older versions.
"""
NOBODY: Final[Any] = MappingProxyType({})
"""In place of the tables of a group that has no use for them yet, as most have: a runtime has one for each group and
partition."""
NOT_KNOWN: Final = DeliverySettings()
"""In place of settings that no member has told in this process."""
Stored = tuple[int, int, Any, dict[str, Any]]
"""Kind, group id, body (the events; or whether a group is durable, where it starts, its numbering, its birth, and since
when it is open), and fields not known here."""


@attrs.define(eq=False)
class GroupState:
    """One group in this partition: its settings and delivery state, and the consumers that wait for something ready."""

    group_id: int
    durable: bool
    delivery: Delivery
    settings: DeliverySettings | None = None
    """None until a member has opened the group in this process."""
    waiting: dict[int, Token] = attrs.field(factory=dict)
    """By consumer, the one that waits longest first."""
    notified: dict[int, float] = NOBODY
    """Consumers that were notified and have not fetched since: until when their fetch is waited for."""
    pending: dict[int, PendingLease] = NOBODY
    """By lease id: what no consumer has heard of yet."""
    fetching: dict[int, PendingLease] = NOBODY
    """By consumer, the last of its pending leases."""
    returning: dict[int, Token | None] = NOBODY
    """Consumers that get nothing until their last lease has come back; the token, when one waits for that."""
    birth: int = 0
    """Which group of this id it is; 0 for one that an older version opened."""
    opened_at: int = 0
    """The floor with which it was opened; 0 when a snapshot was read, which does not tell it."""
    unwritten_since_us: int | None = None
    """Since when it is open (0: nobody knows), while the journal does not tell of it; None when it does."""
    lost_records: int = 0
    dead_reported: int = 0
    """How many of its dead letters were reported."""
    expired_records: int = 0
    """Settled because their time to live was over."""
    filtered_records: int = 0
    """Settled because they are for another group only."""
    look: ExpiryLook | None = None
    """At what has expired; None until there is reason for one."""
    is_expired_full: bool = False
    """No room is left for what expires: nothing is leased until there is."""
    choice: KeyOrder | None = None
    """Of a group whose records are looked at before they are leased."""
    releases: list[Releases] = NOTHING
    """What is to be given back of consumers that have left, or are fenced."""
    ownership: Ownership | None = None
    """Of an exclusive group: the partition's owner."""
    withheld: dict[int, WithheldRecords] = NOBODY
    """By consumer: what it has given back because it waits for a message that the consumer holds."""
    handing_over: list[tuple[int, Token]] | None = None
    """By epoch: the askers that wait until only the owner has leases; None when no other consumer has any."""
    unknown_fields: Mapping[str, Any] = NO_FIELDS
    """What a later version knows of the group."""

    @property
    def visibility_timeout(self) -> float:
        """How long a lease lasts that begins now, in seconds."""
        return (self.settings or NOT_KNOWN).visibility_timeout

    def fetches(self, pending: PendingLease) -> None:
        """A consumer waits for the records of this lease."""
        if self.pending is NOBODY:
            self.pending, self.fetching = {}, {}
        self.pending[pending.lease.lease_id] = self.fetching[pending.lease.consumer] = pending

    def holds_back(self, consumer: int) -> None:
        """It gets nothing until its last lease has come back."""
        if self.returning is NOBODY:
            self.returning = {}
        self.returning.setdefault(consumer, None)

    def notifies(self, consumer: int, until: float) -> None:
        """Its fetch is waited for."""
        if self.notified is NOBODY:
            self.notified = {}
        self.notified[consumer] = until

    def opening(self) -> bytes:
        """The record of its opening, to be journalled before anything else of it."""
        since_us, self.unwritten_since_us = self.unwritten_since_us, None
        opened = {"kind": OPEN, "group": self.group_id, "durable": self.durable, "start": self.opened_at}
        since = {"since_us": since_us} if since_us else {}
        return cbor2.dumps(opened | besides(self.delivery.dead.numbering, self.birth) | since)

    def has_fetched(self, consumer: int) -> bool:
        """Its fetch is waited for no longer; whether it was."""
        return bool(self.notified) and self.notified.pop(consumer, None) is not None

    def withholds(self, ranges: Ranges, behind: tuple[int, int]) -> None:
        """These were given back by the consumer that holds the record `behind` which they wait, if it still does."""
        consumer = self.delivery.offsets.holder_of(*behind)
        if consumer is None:
            return
        if self.withheld is NOBODY:
            self.withheld = {}
        self.withheld.setdefault(consumer, WithheldRecords(consumer)).add(ranges, behind)

    def withheld_from(self, consumer: int) -> Sequence[OffsetRange] | None:
        """What is withheld from the consumer now; None for everything."""
        withheld = self.withheld.get(consumer)
        if withheld is None:
            return ()
        ranges = withheld.ranges(self.delivery)
        if not ranges:
            del self.withheld[consumer]
        return None if withheld.is_full else ranges

    def nack(
        self,
        lease_id: int,
        ranges: Ranges,
        delay_s: float | None,
        reason: str | None,
        now: float,
        chance: float,
    ) -> Settlement:
        """Another attempt after `delay_s` or, when that is None, after what the group's settings say of this attempt.

        What has failed for the last time that `max_deliveries` allows is a dead letter instead.

        Raises `InvalidArgument` for a reason that is no text, and for what is no delay.
        """
        nack, settings = self.delivery.nack, self.settings or NOT_KNOWN
        if reason is not None and not isinstance(reason, str):
            raise InvalidArgument(
                f"the reason of a nack is {type(reason).__name__}, not text. Nothing was settled."
            )
        if delay_s is not None and not 0 <= delay_s <= DELAY_MAX_S:
            raise InvalidArgument(f"a nack's delay is {shown(delay_s, 40)}, not seconds from 0 on.")
        limit = settings.max_deliveries
        if delay_s is not None and limit is None:
            return nack(lease_id, ranges, not_before=now + delay_s, reason=reason, now=now)
        accepted: list[OffsetRange] = []
        lost: list[OffsetRange] = []
        for attempt, failed in self.delivery.offsets.by_attempt(lease_id, ranges):
            if limit is not None and attempt >= limit and self.delivery.has_room_for(lease_id, failed):
                settled = self.delivery.reject(lease_id, failed, now, reason)
            else:
                wait_s = settings.wait_s(attempt, chance) if delay_s is None else delay_s
                settled = nack(lease_id, failed, not_before=now + wait_s, reason=reason, now=now)
            accepted += settled.accepted
            lost += settled.lost
        return Settlement(tuple(sorted(accepted)), tuple(sorted(lost)))

    def to_be_notified(self, now: float, visible_end: int, load: Load, draw: Draw) -> Iterator[int]:
        """Consumers that wait and would be leased something, in turn: one with a suspect record gets nothing else.

        Do not change which of them wait while you iterate this.
        """
        delivery, choice = self.delivery, self.choice
        turns = DISTRIBUTIONS["round-robin" if self.settings is None else self.settings.distribution]
        for consumer in turns(self.waiting, load, draw):
            if self.ownership is not None and consumer != self.ownership.owner:
                continue
            withheld = self.withheld_from(consumer) if self.withheld else ()
            if withheld is None:
                continue
            if delivery.attempt_limit is None and not withheld:
                yield consumer
                continue
            with delivery.offsets.without(withheld):
                if choice is None:
                    found = delivery.leasable_count(now, visible_end, 1, consumer)
                else:
                    found = choice.ready_count(now, 1, consumer)
            if found:
                yield consumer

    def is_held_by_others(self) -> bool:
        """Whether a member has leases that does not own the partition."""
        return self.ownership is not None and self.delivery.offsets.has_others(self.ownership.owner)

    def keep_pending(self, now: float) -> None:
        """A lease does not run out while its records are read: its consumer waits for them."""
        for lease_id in self.pending:
            lease = self.delivery.offsets.lease_of(lease_id)
            if lease is not None and lease.deadline <= now:
                self.delivery.extend(lease_id, now + self.visibility_timeout, now)

    def statistics(self, visible_end: int) -> GroupStatistics:
        """The group as its partition sees it."""
        delivery = self.delivery
        fenced = 0 if self.choice is None else self.choice.fenced
        return GroupStatistics(
            group_id=self.group_id,
            durable=self.durable,
            floor=delivery.offsets.floor,
            next_offset=delivery.offsets.next,
            ready=delivery.offsets.ready_count(visible_end) + delivery.offsets.passed.count - fenced,
            leased=delivery.offsets.leased,
            pending=delivery.offsets.pending_count(visible_end),
            redelivered=delivery.redelivered,
            expired=delivery.expired,
            waiting_consumers=len(self.waiting),
            lost_records=self.lost_records,
            expired_records=self.expired_records,
            filtered_records=self.filtered_records,
            dead_lettered=delivery.dead.total,
            dead=delivery.dead.count,
            is_dead_full=self.is_expired_full
            or delivery.is_full
            or delivery.dead.failed >= delivery.dead.limit,
            fenced=fenced,
            window_records=0 if self.choice is None else self.choice.known,
            window_bytes=0 if self.choice is None else self.choice.records.size_bytes,
            promoted=0 if self.choice is None else self.choice.promoted,
            is_window_full=self.choice is not None and self.choice.is_full,
            owner=None if self.ownership is None else self.ownership.owner,
            opened_at=self.opened_at,
        )

    def is_of_another(self, birth: int) -> bool:
        """Whether the group of this birth is another one, and the catalog has forgotten this one, which had its id."""
        return bool(birth and self.birth) and birth != self.birth

    def releases_some(self, most: int) -> tuple[bool, list[Token]]:
        """Give back up to `most` ranges. Returns whether there were any, and the tokens that waited for all of them."""
        released, done = 0, list[Token]()
        while self.releases and released < most:
            lease_ids, token = self.releases[0]
            released += self.delivery.release_some(lease_ids, most - released)
            if not lease_ids:
                done.append(token)
                del self.releases[0]
        return released > 0, done

    def stop_waiting(self) -> list[Token]:
        """Forget all that wait; returns their tokens."""
        tokens = [*self.waiting.values(), *(token for token in self.returning.values() if token is not None)]
        self.waiting, self.returning = {}, NOBODY
        return tokens


class Releases(NamedTuple):
    """Leases to be given back, some at a time."""

    lease_ids: list[int]
    """What is left of them, as `Delivery.release_some` takes them."""
    token: Token
    """Who waits for it."""


class PendingLease(NamedTuple):
    """A lease whose records its consumer waits for."""

    token: Token
    group: GroupState
    lease: Lease
    max_bytes: int
    """How much it wants of it, or one batch."""


class GroupStates:
    """The groups of one partition by id."""

    def __init__(
        self, wall_offset_s: float = 0.0, *, opened_us: int = 0, stamps: Stamps | None = None
    ) -> None:
        self._opened_us = opened_us
        self._stamps = Stamps() if stamps is None else stamps
        self.wall_offset_s = wall_offset_s
        """Wall time minus monotonic time when the partition was opened."""
        self.groups: dict[int, GroupState] = {}
        self.outbox = OutboxEntries()
        self.lost_sequences: list[tuple[int, int]] = []
        """First and last sequence of the records that the journal lost."""
        self.wrong_files: list[str] = []
        """Files of other logs that were found in the journal's folder, for people."""
        self._salvaged: set[int] = set()
        """Groups of whose events some did not fit, after a loss."""
        self._first_number = 0
        """Of this life, once it has begun."""
        self._unnumbered: set[int] = set()
        """Groups whose opening the journal lost."""
        self._version = RECORDS_VERSION
        self.salvaged_end = 0
        """One above the highest offset that what was not believed names: no record may get it again."""
        self._wall_offset_s = wall_offset_s
        self._unknown_fields: dict[str, Any] = {}

    def open(
        self, group_id: int, durable: bool, start: int, numbering: int = 0, birth: int = 0
    ) -> tuple[GroupState, bytes]:
        """Add a group whose floor is `start` and which begins `numbering`; returns it and the record to journal."""
        group = self.add(group_id, durable, start, numbering, birth)
        return group, group.opening()

    def add(
        self, group_id: int, durable: bool, start: int, numbering: int = 0, birth: int = 0, since_us: int = 0
    ) -> GroupState:
        """The same, for a record that is journalled later."""
        group = GroupState(group_id, durable, Delivery(start), opened_at=start, birth=birth)
        group.unwritten_since_us = since_us
        group.delivery.dead.numbering, group.delivery.dead.first = numbering, self._first_number
        self.groups[group_id] = group
        return group

    def close(self, group_id: int) -> bytes:
        """Forget a group; returns the record to journal."""
        del self.groups[group_id]
        return cbor2.dumps({"kind": CLOSE, "group": group_id})

    def forget_sent(self, numbers: Iterable[int]) -> bytes | None:
        """Forget entries of the outbox; returns the record to journal, or None when there are no such entries."""
        forgotten = self.outbox.forget(numbers)
        return cbor2.dumps({"kind": SENT, "numbers": as_ranges(forgotten)}) if forgotten else None

    def versioned(self, version: int) -> None:
        """What is replayed next is in the form of `version`."""
        self._version = version

    def lost(self, first: int, last: int) -> None:
        """The journal lost the records `first` to `last`: what is replayed next may not fit."""
        self.lost_sequences.append((first, last))

    def losses(self, directory: str) -> list[str]:
        """What the journal in `directory` lost, and what was in its place, for people."""
        lost = [
            f"{directory}: {f'records {first} to {last} are' if last < GONE_FROM else 'all that it said is'} lost"
            for first, last in self.lost_sequences
        ]
        return lost + self.wrong_files

    def replayed(self, numbering: int, sequence: int) -> None:
        """The replay is over, and the next record has this sequence. After a loss all leases end, and neither the
        receipt of a lost lease nor a number is given again; where nothing is known of the numbers, `numbering` begins.
        """
        if self.lost_sequences:
            for group in self.groups.values():
                group.delivery.void_all_leases()
                group.delivery.take_events()
            self.number_on(self.groups, numbering, sequence)

    def begin_life(self) -> None:
        """What there was is replayed: the numbers given from now on begin at this instant, in microseconds since 1970.

        The files may be an older copy that was put back: what was given after it was made was less than that,
        since no partition has given a number for every microsecond, and the targets may have taken it.
        """
        self._first_number = self.outbox.first_of_life = min(max(0, self._opened_us), GIVEN_BEFORE)
        for group in self.groups.values():
            group.delivery.dead.first = self._first_number

    def number_on(self, group_ids: Iterable[int], numbering: int, sequence: int) -> None:
        """Some of what records below `sequence` told of these groups, and of the outbox, is lost: ids of leases and
        numbers go on above all that they can have given. Where nothing is known of a numbering, this one begins.
        """
        if not self.outbox.next:
            self.outbox.begin_again(numbering)
        self.outbox.go_on_above(above_lost(sequence))
        for group_id in group_ids:
            delivery = self.groups[group_id].delivery
            delivery.go_on_above(above_lost(sequence))
            if group_id in self._unnumbered:
                delivery.dead.numbering = numbering
        self._unnumbered.clear()

    def written(self, wall_us: int) -> None:
        """What is replayed next was written at `wall_us`. If that is still to come, the clock was set back meanwhile:

        delays then run from the opening, or from when an earlier one has noticed it (`stamps`), so none gets longer
        than it was asked to be.
        """
        written_us = min(self._stamps.believed(wall_us, self._opened_us), self._opened_us)
        self._wall_offset_s = self.wall_offset_s + max(0, wall_us - written_us) / 1e6

    def parsed(self, record: bytes) -> Stored:
        """What one journal record says. Raises `JournalInvalid`, `FormatTooNew`."""
        try:
            kind, group_id, body, unknown = _record(record) if self._version else _record_of_version_0(record)
        except ValueError as error:
            raise _invalid(f"a record does not parse: {error}", None) from error
        if kind == EVENTS:
            try:
                body = decode_events(body, wall_offset_s=self._wall_offset_s)
            except DeliveryEventInvalid as error:
                raise _invalid(f"the events of group {group_id} do not parse: {error}", group_id) from error
        return kind, group_id, body, unknown

    def apply(self, record: bytes) -> None:
        """Replay one journal record. Raises `JournalInvalid`, `FormatTooNew`."""
        self.replay(*self.parsed(record))

    def apply_in_steps(self, record: bytes) -> Iterator[None] | None:
        """The same; steps that are still to be taken when a single event takes many, before anything else is asked."""
        kind, group_id, body, unknown = self.parsed(record)
        group = self.groups.get(group_id)
        if kind == EVENTS and group is not None and any(map(takes_steps, body)):
            return self._apply_events_in_steps(group_id, group.delivery, body)
        self.replay(kind, group_id, body, unknown)
        return None

    def _apply_events_in_steps(
        self, group_id: int, delivery: Delivery, events: list[Event]
    ) -> Iterator[None]:
        for event in events:
            if isinstance(event, VoidEvent) and group_id not in self._salvaged:
                yield from delivery.void_replayed()
            else:
                for part in parts_of(event):
                    self._apply_events(group_id, [part])
                    yield

    def replay(self, kind: int, group_id: int, body: Any, unknown: dict[str, Any]) -> None:
        """Replay what a record says. Raises `JournalInvalid`."""
        if kind == OPEN:
            if group_id not in self.groups:
                group = self.add(group_id, *body)
                group.unwritten_since_us, group.unknown_fields = None, unknown or NO_FIELDS
        elif kind == CLOSE:
            self.groups.pop(group_id, None)
        elif kind == SENT:
            self.outbox.forget(body)
        elif kind == EVENTS:
            self._apply_events(group_id, body)

    def _apply_events(self, group_id: int, events: list[Event]) -> None:
        group = self.groups.get(group_id)
        if group is None:
            if not self.lost_sequences:
                raise _invalid(f"events name group {group_id}, which was never opened", group_id)
            group = self.groups[group_id] = GroupState(group_id, True, Delivery(0))
            self._salvaged.add(group_id)
            self._unnumbered.add(group_id)
        for event in events:
            if isinstance(event, PublishEvent):
                self._publish(group, event)
                continue
            if isinstance(event, SeekEvent):
                self.salvaged_end = max(self.salvaged_end, group.delivery.offsets.next)
            if group_id in self._salvaged:
                self._salvage(group.delivery, event)
                continue
            try:
                group.delivery.apply(event)
            except DeliveryEventInvalid as error:
                if not self.lost_sequences:
                    words = f"the event {tuple(event)!r:.200} of group {group_id} does not fit: {error}"
                    raise _invalid(words, group_id) from error
                self._salvaged.add(group_id)
                self._salvage(group.delivery, event)

    def _publish(self, group: GroupState, event: PublishEvent) -> None:
        _, first, lease_id, start, stop = event
        try:
            self.outbox.add(first, group.group_id, lease_id, start, stop, group.delivery.dead.numbering)
        except ValueError as error:
            raise _invalid(
                f"the event {tuple(event)!r:.200} of group {group.group_id} does not fit: {error}",
                group.group_id,
            ) from error

    def _salvage(self, delivery: Delivery, event: Event) -> None:
        """Settle what the event settles; remember what it names, so that it is not given away again."""
        match event:
            case AckEvent():
                for start, stop in zip(event.ranges[::2], event.ranges[1::2], strict=True):
                    delivery.skip(start, stop)
            case SkipEvent():
                delivery.skip(event.start, event.stop)
            case DeathEvent():
                for start, stop in zip(event.attempts[::3], event.attempts[1::3], strict=True):
                    delivery.skip(start, stop)
                delivery.dead.believe(event)
            case ExpiryEvent():
                for start, stop in zip(event.ranges[::2], event.ranges[1::2], strict=True):
                    delivery.skip(start, stop)
                delivery.dead.believe(event)
            case ForgetEvent():
                delivery.forget_dead(event.below)
            case SeekEvent():
                delivery.seek(event.offset)
            case LeaseEvent():
                delivery.offsets.next_lease_id = max(delivery.offsets.next_lease_id, event.lease_id + 1)
        delivery.take_events()
        self.note_named([event])

    def note_named(self, events: list[Event]) -> None:
        """Remember the offsets in events that are not believed: they must not be given away again."""
        for event in events:
            if isinstance(event, LeaseEvent):
                self.salvaged_end = max(self.salvaged_end, event.attempts[-2])
            elif isinstance(event, PublishEvent):
                self.outbox.pass_over(event.number, event.stop - event.start)

    def snapshot(self, wall_offset_s: float) -> bytes:
        """Everything, as one CBOR map; `wall_offset_s` as for `GroupState.events_record`."""
        return b"".join(self.snapshot_in_pieces(wall_offset_s))

    def snapshot_in_pieces(self, wall_offset_s: float) -> Iterator[bytes]:
        """The same in pieces, each quickly made. What changes after this call does not touch them."""
        groups = {
            group.group_id: {
                "durable": group.durable,
                "delivery": take_snapshot(group.delivery, wall_offset_s),
                **besides(group.delivery.dead.numbering, group.birth),
                **group.unknown_fields,
            }
            for group in self.groups.values()
            if group.unwritten_since_us is None
        }
        named: dict[str, Any] = {"named_end": self.salvaged_end} if self.salvaged_end else {}
        if self.outbox.next:
            named |= {"outbox": self.outbox.snapshot(), MUST: ["outbox"]}
        return encode_in_pieces({"groups": groups, **named, **self._unknown_fields})

    def restore(self, data: bytes) -> None:
        """Replace everything by a snapshot. Raises `JournalInvalid`, `FormatTooNew`."""
        for _ in self.restore_in_steps(data):
            pass

    def restore_in_steps(self, data: bytes) -> Iterator[None]:
        """The same, yielding now and then; until its end ask for nothing else."""
        self.groups, self._unknown_fields = {}, {}
        self._unnumbered.clear()
        try:
            decoded: Any = yield from decode_in_pieces(data)
            if not self._version:
                decoded = {
                    "groups": {
                        group_id: {"durable": durable, "delivery": delivery}
                        for group_id, (durable, delivery) in decoded.items()
                    }
                }
            self._unknown_fields = unknown_fields(decoded, SNAPSHOT_FIELDS, "a snapshot")
            self.salvaged_end = number(decoded.get("named_end", 0))
            outbox = OutboxEntries.restore(decoded["outbox"]) if "outbox" in decoded else OutboxEntries()
            if "outbox" not in decoded:
                outbox.begin_again(self.outbox.numbering)
            outbox.pass_over(self.outbox.next, 0)
            self.outbox = outbox
            groups: dict[Any, Any] = decoded["groups"]
            for group_id, stored in groups.items():
                self.groups[_group_id(group_id)] = yield from self._restored(group_id, stored)
        except (DeliveryEventInvalid, ValueError, TypeError, KeyError, AttributeError) as error:
            raise _invalid(f"a snapshot does not parse: {error}", None) from error

    def _restored(self, group_id: int, stored: Any) -> Generator[None, None, GroupState]:
        unknown, delivery = unknown_fields(stored, GROUP_FIELDS, "a group's state"), Delivery(0)
        try:
            yield from restore_in_steps(delivery, stored["delivery"], self._wall_offset_s)
            delivery.dead.numbering, birth = (
                number(stored.get("numbering", 0)),
                number(stored.get("birth", 0)),
            )
        except DeliveryEventInvalid as error:
            raise _invalid(f"the state of group {group_id} makes no sense: {error}", group_id) from error
        durable = _flag(stored["durable"])
        return GroupState(group_id, durable, delivery, birth=birth, unknown_fields=unknown or NO_FIELDS)

    def named_end(self) -> int:
        """One above the highest offset that any group names."""
        return max(self.salvaged_end, *(group.delivery.offsets.next for group in self.groups.values()), 0)

    def unsettled_from(self, otherwise: int) -> int:
        """The lowest offset that a durable group has not settled, or whose record is a dead letter."""
        return min((g.delivery.oldest_needed() for g in self.groups.values() if g.durable), default=otherwise)

    def next_deadline(self) -> float | None:
        """The earliest monotonic time at which some group has something to expire or to hand out again."""
        deadlines = (group.delivery.offsets.next_deadline() for group in self.groups.values())
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def __iter__(self) -> Iterator[GroupState]:
        return iter(self.groups.values())


def besides(numbering: int, birth: int) -> dict[str, int]:
    """The fields of a group that one of an older version does not have."""
    return {name: found for name, found in (("numbering", numbering), ("birth", birth)) if found}


def above_lost(sequence: int) -> int:
    """Above all numbers, and ids of leases, that records below `sequence` can have given, be it behind another loss."""
    return GIVEN_BEFORE + sequence * GIVEN_PER_RECORD


def _record(record: bytes) -> Stored:
    """One record of version 1. Raises ValueError, `FormatTooNew`."""
    found = load(record)
    if type(found) is list and len(found) > 0:
        if not check_kind(found[0], (EVENTS,), "a record of the delivery journal"):
            return found[0], 0, None, {}
        if len(found) < 3:
            raise ValueError("it has too few items")
        return EVENTS, _group_id(found[1]), found[2], {}
    if type(found) is not dict:
        raise ValueError("it is neither an array nor a map")
    kind = found.get("kind")
    if not check_kind(kind, (OPEN, CLOSE, SENT), "a record of the delivery journal"):
        return int(found["kind"]), 0, None, {}
    if kind == SENT:
        unknown_fields(found, SENT_FIELDS, "what an outbox has sent")
        return SENT, 0, from_ranges(found.get("numbers")), {}
    if kind == CLOSE:
        unknown_fields(found, CLOSE_FIELDS, "the end of a group")
        return CLOSE, _group_id(found.get("group")), None, {}
    unknown = unknown_fields(found, OPEN_FIELDS, "the opening of a group")
    others = [number(found.get(name, 0)) for name in ("numbering", "birth", "since_us")]
    opened = _flag(found.get("durable")), number(found.get("start")), *others
    return OPEN, _group_id(found.get("group")), opened, unknown


def _record_of_version_0(record: bytes) -> Stored:
    if len(record) < PREFIX.size:
        raise ValueError(f"{len(record)} bytes have no prefix")
    group_id, kind = PREFIX.unpack_from(record)
    check_kind(kind, KINDS, "a record of the delivery journal")
    if kind == CLOSE:
        return kind, group_id, None, {}
    body = load(record[PREFIX.size :])
    if kind == EVENTS:
        return kind, group_id, body, {}
    if type(body) is not list or len(body) != 2:
        raise ValueError("the opening of a group has not two fields")
    return kind, group_id, (_flag(body[0]), number(body[1]), 0, 0, 0), {}


def _group_id(found: Any) -> int:
    if type(found) is not int or not 0 <= found < GROUP_ID_END:
        raise ValueError(f"{found!r:.40} is no group's id")
    return found


def _flag(found: Any) -> bool:
    if type(found) is not bool:
        raise ValueError(f"{found!r:.40} is not true or false")
    return found


def _invalid(what: str, group_id: int | None) -> JournalInvalid:
    return JournalInvalid(f"the delivery journal makes no sense: {what.rstrip('.')}", path="", group=group_id)
