"""Operations: what publishers, consumers and committers do, one draw of 32 bits each. The hot part of a drive."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from typing import Final

from callboard.actors.delivery.receipts import OffsetRange
from callboard.actors.partition.commands import Extend, Fetch, Level, PublishMany, PublishOne, Settle
from callboard.log.format.columns import Columns
from callboard.simulations.machines.partition_model import (
    ACKED,
    LEASED,
    NACKED,
    RELEASED,
    ConsumerLease,
    GroupModel,
    PartitionModel,
    Waiting,
)
from callboard.simulations.machines.strikes import Strike
from callboard.simulations.machines.tree import Tree

BURSTS: Final = (1, 2, 4, 8, 12, 16, 24, 32)
"""Inputs of one sort that come together."""
BACKLOG_MAX: Final = 500
READ_MAX: Final = 1 << 30
DELAYS_S: Final = (0.0, None, 0.5, 20.0)
BATCHES: Final = (1, 1, 1, 1, 2, 3, 8, 40)
OPERATIONS: Final = (
    ("publish", 16),
    ("publish_many", 8),
    ("fetch", 8),
    ("ack", 14),
    ("nack", 3),
    ("release", 2),
    ("extend", 4),
    ("forget", 1),
    ("commit", 3),
    ("unrest", 2),
)
"""Operations and their usual share; a seed triples some and leaves some out."""
STRIKE_CODE: Final = 14
RAN_OUT_CODE: Final = 15
CODES: Final = {name: code for code, (name, _) in enumerate(OPERATIONS)} | {
    "strike": STRIKE_CODE,
    "ran out": RAN_OUT_CODE,
}
"""What stands in the last four bits of a line of the trace."""
MESSAGES: Final = tuple(
    PublishOne(b"value", key, None, level, 5)
    for level in (Level.ALL, Level.LEADER, Level.LEADER, Level.NONE)
    for key in (None, b"key")
)
MANY: Final = tuple(
    PublishMany(Columns.build([b"value"] * count), level, 5 * count)
    for level in (Level.ALL, Level.LEADER)
    for count in (2, 5, 20)
)


class FastpathOperations(ABC):
    """What all operations work on. Each returns how many inputs it gave to state machines."""

    partitions: list[PartitionModel]
    pairs: list[tuple[PartitionModel, GroupModel]]
    """Every group of every partition."""
    tree: Tree
    consumers: int
    is_orderly: bool
    """Whether consumers always settle in the order in which they got things."""
    is_dark: bool
    now: float
    due: float
    """When the next thing happens by itself, or earlier."""
    wall_offset_s: float
    trace: list[int]
    triggers: dict[str, list[tuple[int, int, Strike]]]
    """By probe, the strikes that wait for it: index in the plan, passings left, strike."""

    @abstractmethod
    def passing(self, probe: str, subject: str) -> None:
        """A probe is passed: whatever waits for it strikes."""

    def publish(self, bits: int) -> int:
        """Some records, one at a time."""
        partition = self.partitions[bits % len(self.partitions)]
        if not partition.is_up:
            return 0
        burst = BURSTS[bits >> 8 & 7]
        publish_one, message = partition.core.publish_one, MESSAGES[bits >> 4 & 7]
        for _ in range(burst):
            publish_one(message, Waiting(partition))
        self.trace.append(burst << 8)
        if "publish" in self.triggers:
            for _ in range(burst):
                self.passing("publish", partition.path)
        return burst

    def publish_many(self, bits: int) -> int:
        """A batch, unless consumers are far behind."""
        partition = self.partitions[bits % len(self.partitions)]
        if not partition.is_up or partition.visible_end - partition.groups[0].delivery.floor > BACKLOG_MAX:
            return 0
        partition.core.publish_many(MANY[(bits >> 4) % len(MANY)], Waiting(partition))
        self.trace.append(1)
        return 1

    def fetch(self, bits: int) -> int:
        """A consumer asks for records, and asks again while there are any."""
        pairs = self.pairs
        partition, group = pairs[bits % len(pairs)]
        if not partition.is_up:
            return 0
        return self.fetch_from(partition, group, bits >> 4, BATCHES[bits >> 8 & 7], BURSTS[bits >> 11 & 7])

    def fetch_from(
        self, partition: PartitionModel, group: GroupModel, consumer: int, max_records: int, burst: int
    ) -> int:
        """So many fetches of so many records each, while there are any."""
        now, fetch, group_id = self.now, partition.core.fetch, group.group_id
        pending, trace, is_watched = partition.pending, self.trace, "deliver" in self.triggers
        done = 0
        while done < burst:
            done += 1
            lease = fetch(
                Fetch(group_id, (consumer + done - 1) % self.consumers, max_records, READ_MAX), partition, now
            )
            if lease is None:
                break
            pending.append((LEASED, group, lease))
            trace.append(2 | lease[0] << 8)
            if is_watched:
                self.passing("deliver", partition.path)
                if not partition.is_up:
                    return done
        partition.perform(now)
        if partition.due < self.due:
            self.due = partition.due
        return done

    def ack(self, bits: int) -> int:
        """Done with some. Mostly the oldest first, and all that was handed over together."""
        pairs = self.pairs
        partition, group = pairs[bits % len(pairs)]
        leased = group.leased
        if not leased or not partition.is_up:
            return self.fetch(bits)
        now, settle, ledger, group_id = self.now, partition.core.settle, group.ledger, group.group_id
        pending, trace, is_watched = partition.pending, self.trace, "ack" in self.triggers
        is_orderly = self.is_orderly or bits & 0xE000
        burst = min(BURSTS[bits >> 10 & 7], len(leased))
        for done in range(burst):
            if is_orderly:
                lease_id, ranges, _ = leased.popleft()
            else:
                lease_id, ranges = self._some_of(leased, bits + (done << 4))
            accepted, lost = settle(Settle(group_id, "ack", lease_id, ranges), partition, now)  # type: ignore[misc]
            if lost:
                ledger.refused(lease_id, lost, now)
            ledger.asks_to_settle(lease_id, ranges)
            if accepted:
                pending.append((ACKED, group, accepted))
            trace.append(3 | lease_id << 8)
            if is_watched:
                self.passing("ack", partition.path)
                if not partition.is_up:
                    return done + 1
        return burst

    def _some_of(self, leased: deque[ConsumerLease], bits: int) -> tuple[int, tuple[OffsetRange, ...]]:
        """Any lease, or its first offset only, taken out of it."""
        index = (bits >> 4) % len(leased)
        lease_id, ranges, consumer = leased[index]
        del leased[index]
        start, stop = ranges[0]
        if bits & 0x1000 and (len(ranges) > 1 or stop - start > 1):
            rest = ((start + 1, stop), *ranges[1:]) if stop - start > 1 else ranges[1:]
            leased.appendleft((lease_id, rest, consumer))
            ranges = ((start, start + 1),)
        return lease_id, ranges

    def _leased(self, bits: int) -> tuple[PartitionModel, GroupModel, int, tuple[OffsetRange, ...]] | None:
        """Something that a consumer has leased, taken out of what it will settle."""
        partition, group = self.pairs[bits % len(self.pairs)]
        if not group.leased or not partition.is_up:
            return None
        return partition, group, *self._some_of(group.leased, bits)

    def nack(self, bits: int) -> int:
        """Not now: another attempt, perhaps later, perhaps when the group's settings say."""
        lease = self._leased(bits)
        if lease is None:
            return 0
        partition, group, lease_id, ranges = lease
        is_held = group.delivery.lease_of(lease_id) is not None
        accepted = self._settle(partition, group, "nack", lease_id, ranges, DELAYS_S[bits >> 8 & 3])
        if accepted:
            # A late nack counts no attempt: it was counted when the lease ran out.
            partition.pending.append((NACKED if is_held else RELEASED, group, accepted))
        self.trace.append(4 | lease_id << 8)
        if "nack" in self.triggers:
            self.passing("nack", partition.path)
        return 1

    def release(self, bits: int) -> int:
        """Unhandled: as if it had never been leased."""
        lease = self._leased(bits)
        if lease is None:
            return 0
        partition, group, lease_id, ranges = lease
        accepted = self._settle(partition, group, "release", lease_id, ranges, None)
        if accepted:
            partition.pending.append((RELEASED, group, accepted))
        self.trace.append(5 | lease_id << 8)
        return 1

    def _settle(
        self,
        partition: PartitionModel,
        group: GroupModel,
        verb: str,
        lease_id: int,
        ranges: tuple[OffsetRange, ...],
        delay_s: float | None,
    ) -> tuple[OffsetRange, ...]:
        now = self.now
        chance = (lease_id & 7) / 8
        settlement = partition.core.settle(
            Settle(group.group_id, verb, lease_id, ranges, delay_s), partition, now, chance
        )
        partition.perform(now)
        if partition.due < self.due:
            self.due = partition.due
        if settlement is None:
            return ()
        if settlement.lost:
            group.ledger.refused(lease_id, settlement.lost, now)
        group.ledger.asks(lease_id, ranges)
        return settlement.accepted

    def extend(self, bits: int) -> int:
        """More time, or less."""
        partition, group = self.pairs[bits % len(self.pairs)]
        leased = group.leased
        if not leased or not partition.is_up:
            return 0
        lease_id = leased[(bits >> 4) % len(leased)][0]
        seconds = group.timeout_s * (0.25, 0.5, 1.0, 4.0)[bits >> 12 & 3]
        kept = partition.core.extend(Extend(group.group_id, lease_id, seconds), None, self.now)
        partition.perform(self.now)
        if kept:
            group.ledger.extended(lease_id, self.now + seconds)
            if partition.due < self.due:
                self.due = partition.due
        self.trace.append(6 | kept << 4 | lease_id << 8)
        return 1

    def forget(self, bits: int) -> int:
        """A consumer never settles what it has leased."""
        return 0 if self._leased(bits) is None else 1

    def commit(self, bits: int) -> int:
        """Write what waits."""
        partition = self.partitions[bits % len(self.partitions)]
        if not partition.is_up or self.now < partition.paused_until:
            return 0
        self.trace.append(8 | partition.visible_end << 8)
        return partition.commit(self.now, self.wall_offset_s)

    def unrest(self, bits: int) -> int:
        """Something happens to another member of the supervisor."""
        if self.is_dark or (self.tree.strategy != "one_for_one" and bits & 0x700):
            return 0
        self.trace.append(9 | bits << 8)
        before = self.tree.events
        done = self.tree.unrest(self.now, bits)
        if self.tree.wake_at(self.now) < self.due:
            self.due = self.tree.wake_at(self.now)
        return max(done, self.tree.events - before)
