"""Leasing: who gets which records of a partition, and what becomes of them.

A `Fetch` leases ready records at once. The lease is journalled by the committer, and only then (P2) are the records
read and handed over, from memory if they are hot, else in a task of the incarnation. What does not fit into the bytes
that were asked for is released again. A `Settle` changes the delivery state at once and is answered when the committer
has journalled it, for acks when that is synced.

Invariants
----------
P1  Nothing at or past the log's visible end is leased.
P2  A lease's event is handed to the operating system before its records are handed over; it is synced, and the records
    with it, when they were not yet: an offset that a consumer knows is never given to another record.
"""

from __future__ import annotations

from functools import partial

from callboard.actors.delivery.delivery import Grant
from callboard.actors.kernel import Reply
from callboard.actors.partition import commands as c
from callboard.actors.partition.group_states import Group
from callboard.actors.partition.shared_state import Room, answer
from callboard.log.errors import ActorCrashed, CallboardError, StorageError
from callboard.log.format.columns import Columns

LEASE_RENEWED_S = 30.0
"""For leases of a group that has not fetched from this partition in this run: how long a restart renews them."""


class Leasing:
    """The leasing part of one incarnation of a partition."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._under_way: dict[tuple[int, int], Reply] = {}
        """By group and consumer: the fetch whose lease was not handed over yet."""

    def recover(self) -> None:
        """Leases outlive the actor, but not the process: consumers died with it."""
        now, port = self._room.clock.monotonic(), self._room.port
        for group in self._room.states:
            if port.opened_before:
                timeout = port.visibility_timeouts.get(group.group_id, LEASE_RENEWED_S)
                group.delivery.renew_all(now, timeout)
                for (group_id, lease_id), deadline in port.extended.items():
                    if group_id == group.group_id and deadline > now + timeout:
                        group.delivery.extend(lease_id, deadline, now)
            else:
                group.delivery.void_all_leases()
            group.delivery.skip(0, self._room.log.start_offset)
        for group_id, grant in self._room.port.orphans:
            orphaned = self._room.states.groups.get(group_id)
            if orphaned is not None:
                orphaned.delivery.release(grant.lease_id, [row[:2] for row in grant.ranges], now)
        self._room.port.orphans.clear()
        for group in self._room.states:
            self._room.journal_events(group, sync=False, urgent=False)

    def fetch(self, message: c.Fetch, reply: Reply | None) -> None:
        """Lease what is ready; when nothing is, remember whom to wake."""
        group = self._room.group(message.group_id, reply)
        if group is None or reply is None:
            return
        place = group.group_id, message.consumer
        if (earlier := self._under_way.get(place)) is not None and earlier.done:
            # Its consumer was cancelled. What it leased comes back, and first: later records wait for that.
            group.waiters[message.consumer] = message.flag
            reply.answer(None)
            return
        now = self._room.clock.monotonic()
        deadline = now + message.visibility_timeout
        grant = group.delivery.lease(
            now=now,
            deadline=deadline,
            consumer=message.consumer,
            max_records=message.max_records,
            visible_end=self._room.log.visible_end,
        )
        if grant is None:
            group.waiters[message.consumer] = message.flag
            reply.answer(None)
            self._room.arm(group.delivery.next_deadline())
            return
        timeouts = self._room.port.visibility_timeouts
        timeouts[group.group_id] = max(message.visibility_timeout, timeouts.get(group.group_id, 0.0))
        self._room.arm(deadline)
        self._under_way[place] = reply
        unsynced = grant.ranges[-1][1] > self._room.log.durable_end
        self._room.journal_events(
            group, partial(self._hand_over, group, grant, message, reply), sync=unsynced
        )

    def _hand_over(
        self, group: Group, grant: Grant, message: c.Fetch, reply: Reply, error: CallboardError | None
    ) -> None:
        """The lease is journalled (P2): read the records and answer."""
        if isinstance(error, ActorCrashed):
            self._room.port.orphans.append((group.group_id, grant))
            reply.fail(error.again())
            return
        if error is not None or reply.done:
            self._take_back(group, grant, message.consumer)
            if error is not None:
                reply.fail(error.again())
            return
        hand = _Hand(grant, message.max_bytes)
        try:
            if self._is_read_hot(hand):
                self._answer_fetch(group, hand, message.consumer, reply)
            else:
                self._room.start_task(
                    self._hand_over_cold, group, hand, message.consumer, reply, name="cold read"
                )
        except BaseException:
            # As for a cold read: the next incarnation releases what nobody has heard of.
            self._room.port.orphans.append((group.group_id, grant))
            raise

    def _is_read_hot(self, hand: _Hand) -> bool:
        """Read what is in memory; False when something is not, or cannot be read: a cold read gets on, or says why."""
        while (wanted := hand.wanted(self._room.log.start_offset)) is not None:
            start, stop, room = wanted
            try:
                hot = self._room.log.read_hot(start, max_records=stop - start, max_bytes=room)
            except StorageError:
                return False
            if hot is None:
                return False
            hand.take(hot, hot[-1].last_offset + 1 if hot else stop)
        return True

    async def _hand_over_cold(self, group: Group, hand: _Hand, consumer: int, reply: Reply) -> None:
        try:
            while (wanted := hand.wanted(self._room.log.start_offset)) is not None:
                start, stop, room = wanted
                reading = await self._room.log.read(start, max_records=stop - start, max_bytes=room)
                hand.take(reading.batches, reading.next_offset if reading.next_offset > start else stop)
        except StorageError as error:
            self._take_back(group, hand.grant, consumer)
            reply.fail(error)
            return
        except BaseException:
            # The incarnation ends: the next one releases what nobody has heard of.
            self._room.port.orphans.append((group.group_id, hand.grant))
            raise
        self._answer_fetch(group, hand, consumer, reply)

    def _answer_fetch(self, group: Group, hand: _Hand, consumer: int, reply: Reply) -> None:
        grant, batches, delivery = hand.grant, hand.batches, group.delivery
        if reply.done:
            self._take_back(group, grant, consumer)
            return
        self._under_way.pop((group.group_id, consumer), None)
        rest = hand.rest()
        if rest:
            delivery.release(grant.lease_id, rest, self._room.clock.monotonic())
        released = sum([stop - start for start, stop in rest])
        present = sum([batch.count for batch in batches])
        if present + released != grant.size:
            batches = self._settle_missing(group, hand)
        if rest or batches is not hand.batches:
            self._room.journal_events(group, sync=False, urgent=False)
            self._room.wake(group)
            held = delivery.grant_of(grant.lease_id)
            if held is None:  # the lease ran out while the records were read, or there are none
                grant, batches = grant._replace(ranges=()), []
            else:
                grant = held
        reply.answer(c.Handed(grant.lease_id, grant.deadline, grant.ranges, batches))

    def _settle_missing(self, group: Group, hand: _Hand) -> list[Columns]:
        """Offsets in the grant at which the log holds nothing (gaps, damage, retention) settle the floor."""
        trimmed: list[Columns] = []
        batches = hand.batches
        for start, stop in hand.done():
            at = start
            for batch in batches:
                first = batch.base_offset
                if not start <= first < stop:
                    continue
                trimmed.append(batch)
                if first > at:
                    self._skip(group, at, first)
                at = batch.last_offset + 1
            if at < stop:
                self._skip(group, at, stop)
        return trimmed

    def _skip(self, group: Group, start: int, stop: int) -> None:
        group.delivery.skip(start, stop)
        group.lost_records += stop - start
        self._room.lost_records += stop - start

    def _take_back(self, group: Group, grant: Grant, consumer: int) -> None:
        """Nobody took the records: release them without counting an attempt."""
        self._under_way.pop((group.group_id, consumer), None)
        ranges = [(start, stop) for start, stop, _ in grant.ranges]
        group.delivery.release(grant.lease_id, ranges, self._room.clock.monotonic())
        self._room.journal_events(group, sync=False, urgent=False)
        self._room.wake(group)

    # -- settling

    def settle(self, message: c.Settle, reply: Reply | None) -> None:
        """Settle or extend; the asker hears when it is journalled."""
        group = self._room.group(message.group_id, reply)
        if group is None:
            return
        delivery, now = group.delivery, self._room.clock.monotonic()
        if message.verb == "ack":
            settlement = delivery.ack(message.lease_id, message.ranges, now)
        elif message.verb == "nack":
            settlement = delivery.nack(
                message.lease_id,
                message.ranges,
                not_before=now + message.seconds,
                reason=message.reason,
                now=now,
            )
        elif message.verb == "release":
            settlement = delivery.release(message.lease_id, message.ranges, now)
        else:
            kept = delivery.extend(message.lease_id, now + message.seconds, now)
            if kept:
                self._promise(message, now)
            answer(reply, kept, None)
            return
        waits = reply is not None
        self._room.journal_events(
            group,
            partial(answer, reply, settlement) if waits else None,
            sync=message.verb == "ack",
            urgent=waits and not message.lazy,
        )
        if message.verb in ("nack", "release"):
            if message.seconds <= 0:
                self._room.wake(group)
            self._room.arm(delivery.next_deadline())

    def _promise(self, message: c.Settle, now: float) -> None:
        """A lease was extended: a restarted actor must not end it earlier."""
        deadline, port = now + message.seconds, self._room.port
        self._room.arm(deadline)
        if message.seconds > port.visibility_timeouts.get(message.group_id, LEASE_RENEWED_S):
            port.extend(message.group_id, message.lease_id, deadline, now)
        elif port.extended:
            port.extended.pop((message.group_id, message.lease_id), None)

    def release_consumer(self, message: c.ReleaseConsumer, reply: Reply | None) -> None:
        """Release all that a leaving consumer holds."""
        group = self._room.states.groups.get(message.group_id)
        if group is not None:
            group.waiters.pop(message.consumer, None)
            if group.delivery.release_consumer(message.consumer):
                self._room.journal_events(group, sync=False)
                self._room.wake(group)
        self._room.record(None, partial(answer, reply, None), sync=False)


class _Hand:
    """What a grant's reading has found so far, within the bytes asked for (but at least one batch)."""

    def __init__(self, grant: Grant, max_bytes: int) -> None:
        self.grant = grant
        self.batches: list[Columns] = []
        self._left_bytes = max_bytes
        self._range = 0
        self._at = grant.ranges[0][0]

    def wanted(self, log_start: int) -> tuple[int, int, int] | None:
        """(from, to, bytes) of the next read; None when there is nothing left to read, or no room for it.

        What lies below `log_start` was dropped by retention since it was leased, and is passed.
        """
        self._pass(log_start)
        while self._range < len(self.grant.ranges) and self._at >= self.grant.ranges[self._range][1]:
            self._range += 1
            if self._range < len(self.grant.ranges):
                self._at = self.grant.ranges[self._range][0]
                self._pass(log_start)
        if self._range == len(self.grant.ranges) or (self.batches and self._left_bytes <= 0):
            return None
        return self._at, self.grant.ranges[self._range][1], max(self._left_bytes, 1)

    def _pass(self, log_start: int) -> None:
        if self._range < len(self.grant.ranges):
            self._at = max(self._at, min(log_start, self.grant.ranges[self._range][1]))

    def take(self, batches: list[Columns], next_offset: int) -> None:
        """A read from `wanted` found `batches`, and the next one starts at `next_offset`."""
        stop = self.grant.ranges[self._range][1]
        found = _below(stop, batches)
        self._left_bytes -= sum([columns.size_bytes for columns in found])
        self.batches += found
        self._at = min(next_offset, stop)

    def rest(self) -> list[tuple[int, int]]:
        """What of the grant was not read."""
        rows = self.grant.ranges[self._range :]
        return [
            (max(start, self._at) if place == 0 else start, stop)
            for place, (start, stop, _) in enumerate(rows)
        ]

    def done(self) -> list[tuple[int, int]]:
        """What of the grant was read, whether anything was found there or not."""
        rows = [(start, stop) for start, stop, _ in self.grant.ranges[: self._range]]
        if self._range < len(self.grant.ranges) and self._at > self.grant.ranges[self._range][0]:
            rows.append((self.grant.ranges[self._range][0], self._at))
        return rows


def _below(stop: int, batches: list[Columns]) -> list[Columns]:
    """What of `batches` lies below offset `stop`: a read that passes damage may go on behind what was leased."""
    if not batches or batches[-1].last_offset < stop:
        return batches
    cut = []
    for columns in batches:
        count = sum([offset < stop for offset in columns.offset_list()])
        if count:
            cut.append(columns.select(0, count))
    return cut
