"""What the cores of one partition hand on to each other within a process: what the journal may not say.

A lease that no sync covers is given back when a failed sync takes it out of the journal. What its consumer nacked or
released is nacked and released again: consumers were answered, or did not wait, and do not ask again. What ran out runs
out again: the attempt counts, and a late ack too.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import Any, Final, NamedTuple

import attrs

from callboard.actors.delivery.events import ReleaseEvent
from callboard.actors.delivery.receipts import Lease, OffsetRange, merged
from callboard.actors.partition.commands import OWN_GROUP, DeliverySettings, OpenGroup, Ranges
from callboard.actors.partition.group_state import GroupState, PendingLease
from callboard.actors.partition.ownership import Ownership
from callboard.log.format.stamps import Stamps

EXTENDED_SIFT_AT: Final = 64
UNSYNCED_MAX: Final = 1024
"""Leases, and what failed or was released of them, that no sync of the journal covers, from which on the next commit
syncs."""


class Nacked(NamedTuple):
    """A nack as it was made; the parameters of `GroupState.nack`."""

    lease_id: int
    ranges: Ranges
    delay_s: float | None
    reason: str | None
    now: float
    chance: float

    def fail_again(self, group: GroupState) -> None:
        """Make it once more; what the receipt has no longer is not affected."""
        group.nack(*self)


class RanOut(NamedTuple):
    """What a lease held when it ran out; the parameters of `Delivery.run_out_again`."""

    lease_id: int
    ranges: Ranges
    now: float

    def fail_again(self, group: GroupState) -> None:
        """Let it run out once more, if it is held."""
        group.delivery.run_out_again(*self)


@attrs.define(eq=False)
class Carried:
    """What the cores of one partition hand on to each other within a process."""

    settings: dict[int, DeliverySettings] = attrs.field(factory=dict)
    """By group id."""
    extended: dict[tuple[int, int], float] = attrs.field(factory=dict)
    """By group's and lease's id: until when, if a renewal would end it earlier than its consumer knows."""
    kept_until: dict[int, float] = attrs.field(factory=dict)
    """By group's id: until when leases may last that were given before its visibility timeout was made shorter."""
    fences: dict[tuple[int, int], int] = attrs.field(factory=dict)
    """By group's and consumer's id: the generation that its fetches must not be below."""
    owners: dict[int, Ownership] = attrs.field(factory=dict)
    """By group's id: the partition's owner, of exclusive groups."""
    first_leases: dict[int, int] = attrs.field(factory=dict)
    """By group's id: the first lease that this process can have given."""
    first_sought: dict[int, int] = attrs.field(factory=dict)
    """By group's id, of those that were sought elsewhere: the first lease since then."""
    dropped_below: dict[int, int] = attrs.field(factory=dict)
    """By group's id, of those of which retention has dropped unread records: the first offset that it has left."""
    released: list[tuple[int, int, Sequence[OffsetRange]]] = attrs.field(factory=list)
    """By group's and lease's id: what of a lease was given back, or never handed over, and no sync of the journal
    covers. A consumer that releases without waiting does not ask again."""
    unsynced: dict[int, dict[int, Lease]] = attrs.field(factory=dict)
    """By group's and lease's id: the leases that consumers know of and that no sync of the journal covers, as given."""
    failed: list[tuple[int, Nacked | RanOut]] = attrs.field(factory=list)
    """By group's id: the attempts that have failed, of which no sync of the journal tells. A consumer that nacks does
    not ask again."""
    unsynced_count: int = 0
    next_leases: dict[int, int] = attrs.field(factory=dict)
    """By group's id: the first lease that this process has not given. The journal may have lost leases, if a sync of it
    failed and the core ended before it was whole again; their ids are not given to others."""
    has_expiries: bool = False
    """A record is known that has a time to live."""
    readers: dict[int, OpenGroup] = attrs.field(factory=dict)
    """By id: the groups that read the partition, to be opened where the journal does not tell of them: implied ones,
    of which it need not, and durable ones, which it has lost."""
    has_begun: bool = False
    """Its first core has: groups come and go by messages from then on."""
    keep_expired: set[int] = attrs.field(factory=set)
    """By id: the groups that keep what expires as dead letters, until their settings are known."""
    stamps: Stamps = attrs.field(factory=Stamps)
    """What a clock that was ahead has left."""
    names: dict[tuple[int, int], str] = attrs.field(factory=dict)
    """By group's and consumer's id: the names of members that have leased something."""
    _released_before: int = 0
    """How many of these were given back before the journal's last commit ended."""
    _failed_before: int = 0
    """How many of these failed before the journal's last commit ended."""
    sift_at: int = EXTENDED_SIFT_AT

    def set(self, group_id: int, settings: DeliverySettings, now: float) -> DeliverySettings:
        """A group has these settings, unless later ones are known; returns the latest."""
        known = self.settings.get(group_id)
        if known is None or settings.version >= known.version:
            if known is not None and settings.visibility_timeout < known.visibility_timeout:
                until = now + known.visibility_timeout
                self.kept_until[group_id] = max(until, self.kept_until.get(group_id, until))
            known = self.settings[group_id] = settings
        return known

    def begin_with(self, readers: Iterable[OpenGroup], keep_expired: Iterable[int]) -> None:
        """The partition is started: these groups read it. Later incarnations have heard of more, and of fewer."""
        if not self.has_begun:
            self.has_begun = True
            self.readers = {message.group_id: message for message in readers}
            self.keep_expired = {*keep_expired}

    def opened(self, message: OpenGroup) -> None:
        """A group reads the partition."""
        if (message.durable or message.is_implied) and message.group_id != OWN_GROUP:
            self.readers[message.group_id] = message

    def lost_readers(self, groups: Container[int]) -> list[OpenGroup]:
        """How to open those that read the partition and are not among the `groups` of its journal."""
        return [message for group_id, message in self.readers.items() if group_id not in groups]

    def ended(self, groups: Iterable[GroupState]) -> None:
        """A core is given up: what was not handed over is released, what consumers have is theirs."""
        for group in groups:
            self.released += [
                (group.group_id, lease_id, [row[:2] for row in pending.lease.ranges])
                for lease_id, pending in group.pending.items()
            ]
            failures = self._failures_of(group)
            for lease_id, lease in self.unsynced.get(group.group_id, {}).items():
                failed = [span for failure in failures.get(lease_id, ()) for span in failure.ranges]
                claimed = group.delivery.offsets.claimed(lease, failed)
                self.unsynced[group.group_id][lease_id] = lease._replace(ranges=claimed)
            self.next_leases[group.group_id] = group.delivery.offsets.next_lease_id

    def resume(self, group: GroupState, now: float) -> None:
        """Give consumers back the leases that the journal lost, with what they may have acked since: they ask again.

        What has failed of them fails again where the journal lost that, since a later lease builds on it.
        """
        delivery, deadline = group.delivery, now + self.lease_s(group.group_id, now)
        failures = self._failures_of(group)
        for lease_id in [known for known in failures if known < delivery.offsets.next_lease_id]:
            for failure in failures.pop(lease_id):
                failure.fail_again(group)
        for lease in self.unsynced.get(group.group_id, {}).values():
            if lease.lease_id >= delivery.offsets.next_lease_id:
                if (name := self.names.get((group.group_id, lease.consumer))) is not None:
                    delivery.name_consumer(lease.consumer, name)
                delivery.resume(lease, deadline=deadline, now=now)
                for failure in failures.get(lease.lease_id, ()):
                    failure.fail_again(group)
        delivery.offsets.next_lease_id = max(
            delivery.offsets.next_lease_id, self.next_leases.get(group.group_id, 0)
        )

    def _failures_of(self, group: GroupState) -> dict[int, list[Nacked | RanOut]]:
        """By lease, in the order in which they happened."""
        found: dict[int, list[Nacked | RanOut]] = {}
        for group_id, failure in self.failed:
            if group_id == group.group_id:
                found.setdefault(failure.lease_id, []).append(failure)
        return found

    def begun(self, groups: Container[int]) -> None:
        """A core begins: its journal tells of these groups, and of none of what was given back."""
        self.released = [row for row in self.released if row[0] in groups]
        self.failed = [row for row in self.failed if row[0] in groups]
        self._released_before = self._failed_before = 0

    def has_released(self, group: GroupState, since: int) -> None:
        """The group's delivery has given back what its events from this one on tell."""
        for event in group.delivery.events[since:]:
            if isinstance(event, ReleaseEvent):
                ranges = list(zip(event.ranges[::2], event.ranges[1::2], strict=True))
                self.released.append((group.group_id, event.lease_id, ranges))

    def has_run_out(self, group: GroupState, leases: Iterable[Lease], now: float) -> None:
        """These leases have ended, with what they held."""
        self.failed += [
            (group.group_id, RanOut(lease.lease_id, merged(lease.ranges), now)) for lease in leases
        ]

    def journalled(self, leases: Iterable[PendingLease], *, synced: bool) -> bool:
        """A commit of the journal has ended, with these leases. It tells of all that failed or was released before the
        one before it ended; they need not be remembered if it was synced. Returns whether the next one has to sync.
        """
        if synced:
            del self.failed[: self._failed_before]
            del self.released[: self._released_before]
        self._failed_before, self._released_before = len(self.failed), len(self.released)
        if synced:
            self.unsynced.clear()
            self.unsynced_count = 0
            return False
        for pending in leases:
            self.unsynced.setdefault(pending.group.group_id, {})[pending.lease.lease_id] = pending.lease
            self.unsynced_count += 1
        return self.unsynced_count + len(self.failed) + len(self.released) >= UNSYNCED_MAX

    def forget(self, group_id: int) -> None:
        """The group is closed."""
        by_group: tuple[dict[int, Any], ...] = (self.settings, self.kept_until, self.first_leases)
        by_group += (
            self.first_sought,
            self.dropped_below,
            self.owners,
            self.unsynced,
            self.next_leases,
            self.readers,
        )
        for rows in by_group:
            rows.pop(group_id, None)
        self.keep_expired.discard(group_id)
        keyed: tuple[dict[tuple[int, int], Any], ...] = (self.fences, self.names)
        for known in keyed:
            for key in [key for key in known if key[0] == group_id]:
                del known[key]

    def lease_s(self, group_id: int, now: float) -> float:
        """How long leases of the group last when they are renewed now: never less than their consumers know."""
        settings = self.settings.get(group_id) or DeliverySettings()
        return max(settings.visibility_timeout, self.kept_until.get(group_id, now) - now)

    def extend(self, key: tuple[int, int], deadline: float, now: float) -> None:
        """A lease lasts until `deadline`, whatever a renewal makes of it."""
        if len(self.extended) >= self.sift_at:
            self.extended = {key: until for key, until in self.extended.items() if until > now}
            self.sift_at = max(EXTENDED_SIFT_AT, 2 * len(self.extended))
        self.extended[key] = deadline
