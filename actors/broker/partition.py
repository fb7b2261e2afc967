"""The partition actor: one partition's log, and every group's delivery state in it.

Follow one message. `receive_batch` drains the mailbox. A publish goes into the sequencer (`_publish_one`,
`_publish_many`); the committer takes it out, writes and syncs it, answers the publisher with its offset and calls
`visible_advanced`, which sets the flags of waiting consumers. A consumer's `Fetch` leases ready records (`_fetch`); the
lease is journalled by the committer, and only then are the records handed over (`_hand_over`). The consumer's `Settle`
(`_settle`) changes the delivery state at once and is answered when the committer has synced the journal.

The loop itself never waits for the disk: what needs it goes to the committer, or to a task of this incarnation.

Invariants
----------
P1  Nothing at or past the log's visible end is leased or read.
P2  A lease's event is handed to the operating system before its records are handed over.
P3  Deliveries in memory are the truth of this run; every mutation's events go into the journal at once, in order.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any

import attrs
import trio

from callboard.actors import Actor, Batch, Reply
from callboard.actors.broker import commands as c
from callboard.actors.broker.committer import Committer
from callboard.actors.broker.delivery import Grant
from callboard.actors.broker.group_states import Group, GroupStates
from callboard.actors.broker.notices import PartitionStuck
from callboard.actors.broker.port import PartitionPort
from callboard.actors.broker.sequencer import Sequencer
from callboard.actors.broker.settings import TopicSettings
from callboard.log.errors import (
    ActorCrashed,
    CallboardError,
    GroupNotFound,
    InternalError,
    InvalidArgument,
    OffsetOutOfRange,
    StorageError,
    TopicFull,
)
from callboard.log.format.columns import Columns
from callboard.log.format.compression import Compression
from callboard.log.journal import Journal
from callboard.log.partition_log import LogSettings, PartitionLog


def log_settings(settings: TopicSettings) -> LogSettings:
    """The part of a topic's settings that its logs need."""
    return LogSettings(
        segment_bytes=settings.segment_bytes,
        segment_age_s=settings.segment_age,
        retention_age_s=settings.retention_age,
        retention_bytes=settings.retention_bytes,
        compression=Compression(settings.compression),
    )


@attrs.define(eq=False)
class Placement:
    """Which partition an actor is, and where its files are. Shared by all incarnations."""

    topic: str
    topic_id: str
    index: int
    settings: TopicSettings
    port: PartitionPort

    @property
    def directory(self) -> str:
        return f"topics/{self.topic_id}/{self.index}"


LEASE_RENEWED_S = 30.0
"""For leases of a group that has not fetched from this partition in this run: how long a restart renews them."""


class Partition(Actor[c.PartitionCommand]):
    """See the module. A new instance per incarnation; `Placement` and its port outlive it."""

    def __init__(self, placement: Placement) -> None:
        self._place = placement
        self._port = placement.port
        self._states = GroupStates()
        self._sequencer = Sequencer()
        self._readers: list[c.Flag] = []
        self._log: PartitionLog
        self._journal: Journal
        self._committer: Committer | None = None
        self._armed_until = float("inf")
        self._rearm = trio.Event()
        self._lost_records = 0
        self._handlers: dict[type, Callable[[Any, Reply | None], None]] = {
            c.PublishOne: self._sequencer.add_one,
            c.PublishMany: self._sequencer.add_many,
            c.Fetch: self._fetch,
            c.Settle: self._settle,
            c.Read: self._read,
            c.Flush: self._flush,
            c.OpenGroup: self._open_group,
            c.CloseGroup: self._close_group,
            c.ReleaseConsumer: self._release_consumer,
            c.OffsetAt: self._offset_at,
            c.Alter: self._alter,
            c.Describe: self._describe,
        }

    # -- life

    async def started(self) -> None:
        """Recover log and journal, decide what becomes of the leases, start the committer."""
        place, context = self._place, self.context
        if context.disk is None:
            raise InternalError("a partition was started in a system without a disk", invariant="P1")
        self._port.state = "recovering"
        self._states = GroupStates(self._wall_offset())
        files = await context.disk.incarnate(place.directory)
        self._journal = await Journal.open(
            files,
            f"{place.directory}/delivery",
            clock=context.clock,
            entropy=context.entropy,
            restore=self._states.restore,
            apply=self._states.apply,
        )
        self._log = await PartitionLog.open(
            files,
            place.directory,
            log_settings(place.settings),
            label=self._port.label,
            clock=context.clock,
            entropy=context.entropy,
            named_end=self._states.named_end(),
        )
        self._committer = Committer(
            files=files,
            log=self._log,
            journal=self._journal,
            sequencer=self._sequencer,
            clock=context.clock,
            port=self._port,
            owner=self,
        )
        self._recover_leases()
        context.start_task(self._committer.run, name="committer")
        context.start_task(self._committer.watch, self._stuck_changed, name="watchdog")
        context.start_task(self._alarm, name="alarm")
        self._port.state = "running"
        self._port.opened_before = True
        for flag in self._port.wakes:
            flag.set(place.index)
        self._port.wakes.clear()
        self._committer.maintain()

    def _recover_leases(self) -> None:
        now = self.context.clock.monotonic()
        for group in self._states:
            if self._port.opened_before:
                timeout = self._port.visibility_timeouts.get(group.group_id, LEASE_RENEWED_S)
                group.delivery.renew_all(now, timeout)
            else:
                group.delivery.void_all_leases()
            group.delivery.skip(0, self._log.start_offset)
        for group_id, grant in self._port.orphans:
            orphaned = self._states.groups.get(group_id)
            if orphaned is not None:
                orphaned.delivery.release(grant.lease_id, [row[:2] for row in grant.ranges], now)
        self._port.orphans.clear()
        for group in self._states:
            self._journal_events(group, sync=False, urgent=False)

    async def stopping(self) -> None:
        """Write what waits, close the files."""
        self._port.state = "closed"
        if self._committer is not None:
            await self._committer.drained()
            await self._log.close()
            await self._journal.close()

    def crashed(self, error: BaseException) -> None:
        """Tell everybody who waits that the outcome is unknown."""
        if self._port.state != "closed":
            self._port.state = "restarting"
        self.visible_advanced()
        crash = ActorCrashed(
            f"partition {self._port.label} crashed with this in hand ({type(error).__name__}: {error})."
            " It may or may not have happened; look, or repeat it if repeating is harmless.",
            path=self.context.path,
        )
        if self._committer is not None:
            self._committer.abandon(crash)

    def _stuck_changed(self, stuck: bool) -> None:
        self._port.state = "stuck" if stuck else "running"
        self.context.emit(PartitionStuck(self.context.path, stuck))

    # -- the loop

    async def receive_batch(self, batch: Batch[c.PartitionCommand]) -> None:
        """Apply everything that waits, in order, without waiting for anything."""
        handlers = self._handlers
        for envelope in batch:
            message = envelope.message
            handlers[type(message)](message, envelope.reply)
        if self._sequencer.records and self._committer is not None:
            self._committer.kick()

    def _flush(self, _: c.Flush, reply: Reply | None) -> None:
        self._record(None, partial(_answer, reply, None), sync=True)

    def _record(
        self,
        data: bytes | None,
        done: Callable[[CallboardError | None], None] | None,
        *,
        sync: bool,
        urgent: bool = True,
    ) -> None:
        if self._committer is None:
            raise InternalError("a partition took a message before it had started", invariant="P3")
        self._committer.record(data, done, sync=sync, urgent=urgent)

    def _journal_events(
        self,
        group: Group,
        done: Callable[[CallboardError | None], None] | None = None,
        *,
        sync: bool,
        urgent: bool = True,
    ) -> None:
        """Journal what just changed in `group` (P3)."""
        record = group.events_record(self._wall_offset())
        if record is not None or done is not None:
            self._record(record, done, sync=sync, urgent=urgent)

    def _wall_offset(self) -> float:
        clock = self.context.clock
        return clock.wall_us() / 1e6 - clock.monotonic()

    def visible_advanced(self) -> None:
        """Called by the committer: wake whoever found nothing to do."""
        index = self._place.index
        for group in self._states:
            self._wake(group)
        for flag in self._readers:
            flag.set(index)
        self._readers.clear()

    def _wake(self, group: Group) -> None:
        if group.waiters:
            for flag in group.waiters.values():
                flag.set(self._place.index)
            group.waiters.clear()

    def delivery_snapshot(self) -> bytes:
        """Called by the committer."""
        return self._states.snapshot(self._wall_offset())

    # -- leasing

    def _fetch(self, message: c.Fetch, reply: Reply | None) -> None:
        group = self._group(message.group_id, reply)
        if group is None or reply is None:
            return
        now = self.context.clock.monotonic()
        deadline = now + message.visibility_timeout
        grant = group.delivery.lease(
            now=now,
            deadline=deadline,
            consumer=message.consumer,
            max_records=message.max_records,
            visible_end=self._log.visible_end,
        )
        if grant is None:
            group.waiters[message.consumer] = message.flag
            reply.answer(None)
            self._arm(group.delivery.next_deadline())
            return
        self._port.visibility_timeouts[group.group_id] = message.visibility_timeout
        self._arm(deadline)
        self._journal_events(group, partial(self._hand_over, group, grant, message, reply), sync=False)

    def _hand_over(
        self, group: Group, grant: Grant, message: c.Fetch, reply: Reply, error: CallboardError | None
    ) -> None:
        """The lease is journalled (P2): read the records and answer."""
        if isinstance(error, ActorCrashed):
            self._port.orphans.append((group.group_id, grant))
            reply.fail(error.again())
            return
        if error is not None or reply.done:
            self._take_back(group, grant)
            if error is not None:
                reply.fail(error.again())
            return
        batches: list[Columns] = []
        for start, stop, _ in grant.ranges:
            hot = self._read_hot(start, stop, message.max_bytes)
            if hot is None:
                self.context.start_task(self._hand_over_cold, group, grant, message, reply, name="cold read")
                return
            batches.extend(hot)
        self._answer_fetch(group, grant, batches, reply)

    def _read_hot(self, start: int, stop: int, max_bytes: int) -> list[Columns] | None:
        found: list[Columns] = []
        while start < stop:
            batches = self._log.read_hot(start, max_records=stop - start, max_bytes=max_bytes)
            if batches is None:
                return None
            if not batches:
                break
            found.extend(_below(stop, batches))
            start = batches[-1].last_offset + 1
        return found

    async def _hand_over_cold(self, group: Group, grant: Grant, message: c.Fetch, reply: Reply) -> None:
        batches: list[Columns] = []
        try:
            for start, stop, _ in grant.ranges:
                while start < stop:
                    reading = await self._log.read(
                        start, max_records=stop - start, max_bytes=message.max_bytes
                    )
                    batches.extend(_below(stop, reading.batches))
                    if reading.next_offset <= start:
                        break
                    start = reading.next_offset
        except StorageError as error:
            self._take_back(group, grant)
            reply.fail(error)
            return
        self._answer_fetch(group, grant, batches, reply)

    def _answer_fetch(self, group: Group, grant: Grant, batches: list[Columns], reply: Reply) -> None:
        if reply.done:
            self._take_back(group, grant)
            return
        present = sum([batch.count for batch in batches])
        if present != grant.size:
            batches = self._settle_missing(group, grant, batches)
            held = group.delivery.grant_of(grant.lease_id)
            grant = grant._replace(ranges=()) if held is None else held
        reply.answer(c.Handed(grant.lease_id, grant.deadline, grant.ranges, batches))

    def _settle_missing(self, group: Group, grant: Grant, batches: list[Columns]) -> list[Columns]:
        """Offsets in the grant at which the log holds nothing (gaps, damage, retention) settle the floor."""
        trimmed = []
        for start, stop, _ in grant.ranges:
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
        self._journal_events(group, sync=False, urgent=False)
        return trimmed

    def _skip(self, group: Group, start: int, stop: int) -> None:
        group.delivery.skip(start, stop)
        group.lost_records += stop - start
        self._lost_records += stop - start

    def _take_back(self, group: Group, grant: Grant) -> None:
        """Nobody took the records: release them without counting an attempt."""
        ranges = [(start, stop) for start, stop, _ in grant.ranges]
        group.delivery.release(grant.lease_id, ranges, self.context.clock.monotonic())
        self._journal_events(group, sync=False, urgent=False)
        self._wake(group)

    # -- settling

    def _settle(self, message: c.Settle, reply: Reply | None) -> None:
        group = self._group(message.group_id, reply)
        if group is None:
            return
        delivery, now = group.delivery, self.context.clock.monotonic()
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
            self._journal_events(group, sync=False, urgent=False)
            _answer(reply, kept, None)
            return
        waits = reply is not None
        self._journal_events(
            group,
            partial(_answer, reply, settlement) if waits else None,
            sync=message.verb == "ack",
            urgent=waits and not message.lazy,
        )
        if message.verb in ("nack", "release"):
            if message.seconds <= 0:
                self._wake(group)
            self._arm(delivery.next_deadline())

    def _release_consumer(self, message: c.ReleaseConsumer, reply: Reply | None) -> None:
        group = self._states.groups.get(message.group_id)
        if group is not None:
            group.waiters.pop(message.consumer, None)
            group.delivery.release_consumer(message.consumer)
            self._journal_events(group, sync=False)
            self._wake(group)
        self._record(None, partial(_answer, reply, None), sync=False)

    # -- time

    def _arm(self, deadline: float | None) -> None:
        """Make sure that the alarm rings at `deadline`, or earlier."""
        if deadline is not None and deadline < self._armed_until:
            self._armed_until = deadline
            self._rearm.set()

    async def _alarm(self) -> None:
        """Sleep until something is due: leases that run out, delayed redeliveries. Nothing ticks."""
        while True:
            self._armed_until = self._next_due()
            with trio.move_on_at(self._armed_until):
                await self._rearm.wait()
            self._rearm = trio.Event()
            now = self.context.clock.monotonic()
            for group in self._states:
                due = group.delivery.next_deadline()
                if due is not None and due <= now:
                    group.delivery.expire(now)
                    self._journal_events(group, sync=False)
                    self._wake(group)
            if self._committer is not None and self._log.next_due(self.context.clock.wall_us()) == 0.0:
                self._committer.maintain()

    def _next_due(self) -> float:
        now = self.context.clock.monotonic()
        due = self._states.next_deadline()
        aged = self._log.next_due(self.context.clock.wall_us())
        upkeep = float("inf") if aged is None else now + max(aged, 1.0)
        return upkeep if due is None else min(due, upkeep)

    # -- groups

    def _group(self, group_id: int, reply: Reply | None) -> Group | None:
        group = self._states.groups.get(group_id)
        if group is None and reply is not None:
            reply.fail(
                GroupNotFound(
                    f"partition {self._port.label} knows no group with id {group_id}: it was deleted or expired."
                    " Subscribe again.",
                    group=group_id,
                )
            )
        return group

    def _open_group(self, message: c.OpenGroup, reply: Reply | None) -> None:
        group = self._states.groups.get(message.group_id)
        if group is not None:
            _answer(reply, group.delivery.floor, None)
        elif isinstance(message.start, datetime):
            self.context.start_task(self._open_group_at, message, message.start, reply, name="open group")
        else:
            self._open_group_from(message, self._start_offset(message.start), reply)

    def _start_offset(self, start: str | int) -> int:
        if start == "beginning":
            return self._log.start_offset
        if start == "end":
            return self._log.visible_end
        return min(max(int(start), self._log.start_offset), self._log.visible_end)

    async def _open_group_at(self, message: c.OpenGroup, instant: datetime, reply: Reply | None) -> None:
        start = await self._log.offset_at(round(instant.timestamp() * 1e6))
        self._open_group_from(message, start, reply)

    def _open_group_from(self, message: c.OpenGroup, start: int, reply: Reply | None) -> None:
        group = self._states.groups.get(message.group_id)
        if group is None:
            group, record = self._states.open(message.group_id, message.durable, start)
            self._record(record, None, sync=True)
        self._record(None, partial(_answer, reply, group.delivery.floor), sync=True)

    def _close_group(self, message: c.CloseGroup, reply: Reply | None) -> None:
        group = self._states.groups.get(message.group_id)
        if group is not None:
            self._wake(group)
        self._record(self._states.close(message.group_id), partial(_answer, reply, None), sync=True)

    # -- reading without a group

    def _read(self, message: c.Read, reply: Reply | None) -> None:
        if reply is None:
            return
        log = self._log
        if message.offset >= log.visible_end:
            if message.flag is not None:
                self._readers.append(message.flag)
            reply.answer(None)
            return
        if message.offset >= log.start_offset:
            hot = log.read_hot(message.offset, max_records=message.max_records, max_bytes=message.max_bytes)
            if hot:
                reply.answer((hot, hot[-1].last_offset + 1))
                return
        self.context.start_task(self._read_cold, message, reply, name="cold read")

    async def _read_cold(self, message: c.Read, reply: Reply) -> None:
        try:
            reading = await self._log.read(
                max(message.offset, self._log.start_offset),
                max_records=message.max_records,
                max_bytes=message.max_bytes,
            )
        except (StorageError, OffsetOutOfRange) as error:
            reply.fail(error)
        else:
            reply.answer((reading.batches, reading.next_offset))

    def _offset_at(self, message: c.OffsetAt, reply: Reply | None) -> None:
        self.context.start_task(self._offset_at_cold, message, reply, name="time index")

    async def _offset_at_cold(self, message: c.OffsetAt, reply: Reply | None) -> None:
        try:
            _answer(reply, await self._log.offset_at(message.time_us), None)
        except StorageError as error:
            _answer(reply, None, error)

    # -- upkeep

    async def make_room(self) -> TopicFull | None:
        """Called by the committer between commits: drop what retention allows (design: delivery, retention)."""
        settings = self._place.settings
        await self._log.retain(
            now_us=self.context.clock.wall_us(),
            unsettled_from=self._states.unsettled_from(self._log.next_offset),
            drop_unread=settings.drop_unread,
        )
        for group in self._states:
            if group.delivery.floor < self._log.start_offset:
                group.lost_records += self._log.start_offset - group.delivery.floor
                group.delivery.skip(0, self._log.start_offset)
                self._journal_events(group, sync=False, urgent=False)
        if not self._log.over_limit():
            return None
        return TopicFull(
            f"partition {self._port.label} holds {self._log.size_bytes} bytes, its retention_bytes are"
            f" {settings.retention_bytes}, and a durable group has not settled its oldest messages. Nothing was stored."
            " Consume them, delete the group, raise retention_bytes, or set drop_unread=True.",
            topic=self._place.topic,
            partition=self._place.index,
        )

    def _alter(self, message: c.Alter, reply: Reply | None) -> None:
        if message.settings.partitions != self._place.settings.partitions:
            _answer(reply, None, InvalidArgument("partitions cannot be changed once a topic exists"))
            return
        self._place.settings = message.settings
        self._log.alter(log_settings(message.settings))
        if self._committer is not None:
            self._committer.maintain()
        self._arm(self.context.clock.monotonic())
        _answer(reply, None, None)

    def _describe(self, _: c.Describe, reply: Reply | None) -> None:
        log, committer = self._log, self._committer
        groups = tuple(_group_statistics(group, log.visible_end) for group in self._states)
        statistics = c.PartitionStatistics(
            topic=self._place.topic,
            partition=self._place.index,
            state="full" if log.over_limit() else self._port.state,
            start_offset=log.start_offset,
            next_offset=log.next_offset,
            visible_end=log.visible_end,
            durable_end=log.durable_end,
            size_bytes=log.size_bytes,
            segments=log.segment_count,
            pending_records=self._sequencer.records,
            pending_bytes=self._sequencer.size_bytes,
            commits=committer.commits if committer else 0,
            failed_commits=committer.failed_commits if committer else 0,
            heals=committer.heals if committer else 0,
            lost_records=self._lost_records,
            gaps=tuple(str(gap) for gap in log.gaps),
            damages=tuple(str(damage) for damage in log.damages),
            groups=groups,
        )
        _answer(reply, statistics, None)


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


def _group_statistics(group: Group, visible_end: int) -> c.GroupStatistics:
    delivery = group.delivery
    return c.GroupStatistics(
        group_id=group.group_id,
        durable=group.durable,
        floor=delivery.floor,
        next_offset=delivery.next,
        ready=delivery.ready_count(visible_end),
        leased=delivery.leased,
        pending=delivery.pending_count(visible_end),
        redelivered=delivery.redelivered,
        expired=delivery.expired,
        waiting_consumers=len(group.waiters),
    )


def _answer(reply: Reply | None, value: object, error: CallboardError | None) -> None:
    if reply is None:
        return
    if error is None:
        reply.answer(value)
    else:
        reply.fail(error)
