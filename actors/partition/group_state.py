"""The state of one group in one partition: its delivery, its settings, and the consumers that wait or hold leases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import attrs

from callboard.actors.delivery.delivery import NO_FIELDS, Delivery
from callboard.actors.delivery.intervals import NOTHING
from callboard.actors.delivery.receipts import Lease, OffsetRange, Settlement
from callboard.actors.partition.choice.distribution import DISTRIBUTIONS, Draw, Load
from callboard.actors.partition.choice.expiry_look import ExpiryLook
from callboard.actors.partition.choice.keys import KeyOrder
from callboard.actors.partition.commands import DeliverySettings, GroupStatistics, Ranges, Token
from callboard.actors.partition.ownership import Ownership
from callboard.actors.partition.withheld import WithheldRecords
from callboard.log.errors import InvalidArgument
from callboard.log.plain import shown

DELAY_MAX_S: Final = 1e9
NO_ENTRIES: Final[Any] = MappingProxyType({})
"""In place of the tables of a group that has no use for them yet, as most have: a runtime has one for each group and
partition."""
NOT_KNOWN: Final = DeliverySettings()
"""In place of settings that no member has brought in this process."""


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
    notified: dict[int, float] = NO_ENTRIES
    """Consumers that were notified and have not fetched since: until when their fetch is waited for."""
    pending: dict[int, PendingLease] = NO_ENTRIES
    """By lease id: what no consumer has heard of yet."""
    fetching: dict[int, PendingLease] = NO_ENTRIES
    """By consumer, the last of its pending leases."""
    returning: dict[int, Token | None] = NO_ENTRIES
    """Consumers that get nothing until their last lease has come back; the token, when one waits for that."""
    birth: int = 0
    """Which group of this id it is; 0 for one that an older version opened."""
    opened_at: int = 0
    """The floor with which it was opened; 0 when a snapshot was read, which does not tell it."""
    unwritten_since_us: int | None = None
    """Since when it is open (0: unknown), while the journal does not tell of it; None when it does."""
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
    withheld: dict[int, WithheldRecords] = NO_ENTRIES
    """By consumer: what it has given back because it waits for a message that the consumer holds."""
    handing_over: list[tuple[int, Token]] | None = None
    """By epoch: the askers that wait until only the owner has leases; None when no other consumer has any."""
    unknown_fields: Mapping[str, Any] = NO_FIELDS
    """What a later version knows of the group."""

    @property
    def is_paused(self) -> bool:
        """Whether nothing is leased until the group is resumed."""
        return self.settings is not None and self.settings.paused

    @property
    def visibility_timeout(self) -> float:
        """How long a lease lasts that begins now, in seconds."""
        return (self.settings or NOT_KNOWN).visibility_timeout

    def fetches(self, pending: PendingLease) -> None:
        """A consumer waits for the records of this lease."""
        if self.pending is NO_ENTRIES:
            self.pending, self.fetching = {}, {}
        self.pending[pending.lease.lease_id] = self.fetching[pending.lease.consumer] = pending

    def holds_back(self, consumer: int) -> None:
        """It gets nothing until its last lease has come back."""
        if self.returning is NO_ENTRIES:
            self.returning = {}
        self.returning.setdefault(consumer, None)

    def notifies(self, consumer: int, until: float) -> None:
        """Its fetch is waited for."""
        if self.notified is NO_ENTRIES:
            self.notified = {}
        self.notified[consumer] = until

    def has_fetched(self, consumer: int) -> bool:
        """Its fetch is waited for no longer; whether it was."""
        return bool(self.notified) and self.notified.pop(consumer, None) is not None

    def withholds(self, ranges: Ranges, behind: tuple[int, int]) -> None:
        """These were given back by the consumer that holds the record `behind` which they wait, if it still does."""
        consumer = self.delivery.offsets.holder_of(*behind)
        if consumer is None:
            return
        if self.withheld is NO_ENTRIES:
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
            is_paused=self.is_paused,
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
        self.waiting, self.returning = {}, NO_ENTRIES
        return tokens


class Releases(NamedTuple):
    """Leases to be given back, some at a time."""

    lease_ids: list[int]
    """What is left of them, as `Delivery.release_some` takes them."""
    token: Token
    """Of the asker that waits until all of them are given back."""


class PendingLease(NamedTuple):
    """A lease whose records its consumer waits for."""

    token: Token
    group: GroupState
    lease: Lease
    max_bytes: int
    """How much it wants of it, or one batch."""
