"""The partition actor: one partition's log, and every group's delivery state in it.

Follow one message. `receive_batch` drains the mailbox. A publish goes into the sequencer; the committer takes it out,
writes and syncs it, answers the publisher with its offset and calls `visible_advanced`, which sets the flags of waiting
consumers. A consumer's `Fetch` leases ready records (`leasing.py`), the committer journals the lease, the records are
handed over. The consumer's `Settle` changes the delivery state at once and is answered when the journal has it.

The loop itself never waits for the disk: what needs it goes to the committer, or to a task of this incarnation. Its
parts share a `Room`: `Leasing`, the `Desk` for rarer questions, the alarm, and the committer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trio

from callboard.actors.kernel import Actor, Batch, Reply
from callboard.actors.notices import JournalSalvaged, PartitionStuck, UnreadDropped
from callboard.actors.partition import commands as c
from callboard.actors.partition.alarm import run_alarm, upkeep_due
from callboard.actors.partition.committer import Committer
from callboard.actors.partition.desk import Desk
from callboard.actors.partition.group_states import RECORDS_VERSION, Group, GroupStates, invalid_journal
from callboard.actors.partition.leasing import Leasing
from callboard.actors.partition.sequencer import Sequencer
from callboard.actors.partition.shared_state import Placement, Room, answer, wall_offset
from callboard.actors.settings import TopicSettings
from callboard.log.errors import (
    ActorCrashed,
    CallboardError,
    InternalError,
    InvalidArgument,
    JournalInvalid,
    LogCorrupt,
    StorageError,
    TopicFull,
)
from callboard.log.format.compression import Compression
from callboard.log.journal.journal import Journal
from callboard.log.limits import Limits
from callboard.log.offline.repair import repair_journal
from callboard.log.partition.log_settings import LogSettings
from callboard.log.partition.partition_log import PartitionLog
from callboard.log.seams.disk import Incarnation

Handler = Callable[[Any, Reply | None], None]


def log_settings(settings: TopicSettings, limits: Limits) -> LogSettings:
    """The part of a topic's settings that its logs need."""
    return LogSettings(
        segment_bytes=settings.segment_bytes,
        segment_age_s=settings.segment_age,
        retention_age_s=settings.retention_age,
        retention_bytes=settings.retention_bytes,
        compression=Compression(settings.compression),
        segment_bytes_max=limits.segment_bytes,
    )


class Partition(Actor[c.PartitionCommand]):
    """See the module. A new instance per incarnation; `Placement` and its port outlive it."""

    defers_interrupts = True

    def __init__(self, placement: Placement) -> None:
        self._place = placement
        self._port = placement.port
        self._sequencer = Sequencer()
        self._journal: Journal
        self._journal_damages: tuple[str, ...] = ()
        self._room: Room | None = None
        self._handlers: dict[type, Handler] = {}
        self._alarm = trio.CancelScope()

    # -- life

    async def started(self) -> None:
        """Recover log and journal, decide what becomes of the leases, start the committer."""
        context = self.context
        self._port.state = "recovering"
        self._sequencer.limits = context.limits
        room = self._room = await self._recovered()
        leasing, desk = Leasing(room), Desk(room)
        self._handlers = {
            c.PublishOne: self._sequencer.add_one,
            c.PublishMany: self._sequencer.add_many,
            c.Fetch: leasing.fetch,
            c.Settle: leasing.settle,
            c.ReleaseConsumer: leasing.release_consumer,
            c.Read: desk.read,
            c.OffsetAt: desk.offset_at,
            c.OpenGroup: desk.open_group,
            c.CloseGroup: desk.close_group,
            c.Flush: self._flush,
            c.Alter: self._alter,
            c.Describe: self._describe,
        }
        leasing.recover()
        context.start_task(room.committer.run, name="committer")
        context.start_task(room.committer.watch, self._stuck_changed, name="watchdog")
        self._alarm = context.start_task(run_alarm, room, name="alarm")
        self._port.state = "running"
        self._port.opened_before = True
        self._port.sleepers.wake(self._place.index)
        room.committer.maintain()

    async def _recovered(self) -> Room:
        place, context = self._place, self.context
        if context.disk is None:
            raise InternalError("a partition was started in a system without a disk", invariant="P0")
        files = await context.disk.incarnate(place.directory)
        states = await self._replayed(files)
        log = await PartitionLog.open(
            files,
            place.directory,
            log_settings(place.settings, context.limits),
            label=self._port.label,
            clock=context.clock,
            entropy=context.entropy,
            named_end=states.named_end(),
            limits=context.limits,
        )
        committer = Committer(
            files=files,
            log=log,
            journal=self._journal,
            sequencer=self._sequencer,
            clock=context.clock,
            port=self._port,
            owner=self,
            limits=context.limits,
        )
        return Room(place, context, states, log, committer)

    async def _replayed(self, files: Incarnation) -> GroupStates:
        """Open the journal; a damaged one is repaired, and what it still says of settled messages is kept."""
        damage: LogCorrupt | None = None
        try:
            states = await self._open_journal(files)
        except LogCorrupt as error:
            damage = error
            await repair_journal(files, self._place.journal_directory)
            states = await self._open_journal(files)
        if states.lost_sequences:
            states.replayed()
            lost = [
                f"delivery journal: records {first} to {last} are lost"
                for first, last in states.lost_sequences
            ]
            self._journal_damages = tuple(lost)
            self.context.emit(JournalSalvaged(self.context.path, str(damage or "; ".join(lost))))
            try:
                await self._journal.heal(states.snapshot(wall_offset(self.context.clock)))
            except StorageError:
                self._journal.needs_healing = True  # with the next records
        return states

    async def _open_journal(self, files: Incarnation) -> GroupStates:
        clock = self.context.clock
        states = GroupStates(wall_offset(clock), opened_us=clock.wall_us())
        try:
            self._journal = await Journal.open(
                files,
                self._place.journal_directory,
                clock=clock,
                entropy=self.context.entropy,
                restore=states.restore,
                apply=states.apply,
                version=RECORDS_VERSION,
                versioned=states.versioned,
                written=states.written,
                lost=states.lost,
                proven_end=self._port.journal_end,
                limits=self.context.limits,
            )
        except JournalInvalid as error:
            raise invalid_journal(self._port.label, self._place.journal_directory, error) from error
        return states

    @property
    def _shared(self) -> Room:
        if self._room is None:
            raise InternalError("a partition was used before it had started", invariant="P0")
        return self._room

    async def stopping(self) -> None:
        """Write what waits, close the files. Whoever waits looks again, and hears that nothing more will come."""
        self._port.state = "stopping"
        self._alarm.cancel()
        if self._room is not None:
            self._room.wake_all()
            await self._room.committer.closed()
            await self._room.log.close()
            await self._journal.close()

    def crashed(self, error: BaseException) -> None:
        """Tell everybody who waits that the outcome is unknown."""
        self._port.state = "restarting"
        if self._room is None:
            return
        self._room.wake_all()
        self._room.committer.abandon(
            ActorCrashed(
                f"partition {self._port.label} crashed with this in hand ({type(error).__name__}: {error})."
                " It may or may not have happened; look, or repeat it if repeating is harmless.",
                path=self.context.path,
            )
        )

    def _stuck_changed(self, stuck: bool) -> None:
        if self._port.state in ("running", "stuck"):
            self._port.state = "stuck" if stuck else "running"
        if stuck:
            self._port.budget.interrupt()
        self.context.emit(PartitionStuck(self.context.path, stuck))

    # -- the loop

    async def receive_batch(self, batch: Batch[c.PartitionCommand]) -> None:
        """Apply everything that waits, in order, without waiting for anything."""
        handlers = self._handlers
        for message, reply in batch:
            handlers[type(message)](message, reply)
        if self._sequencer.records:
            self._shared.committer.kick()

    def _flush(self, _: c.Flush, reply: Reply | None) -> None:
        def done(error: CallboardError | None) -> None:
            answer(reply, None, error)

        self._shared.committer.flush(done)

    # -- what the committer calls

    def visible_advanced(self) -> None:
        """Wake whoever found nothing to do. New records may be the first that grow too old."""
        room = self._shared
        room.wake_all()
        if self._place.settings.ages:
            room.arm(upkeep_due(room))

    def delivery_snapshot(self) -> bytes:
        """The delivery state as it stands in memory."""
        room = self._shared
        return room.states.snapshot(room.wall_offset())

    async def make_room(self) -> TopicFull | None:
        """Between commits: drop what retention allows; the error for publishers when the topic stays full."""
        room, settings = self._shared, self._place.settings
        await room.log.retain(
            now_us=room.clock.wall_us(),
            unsettled_from=room.states.unsettled_from(room.log.next_offset),
            drop_unread=settings.drop_unread,
        )
        for group in room.states:
            if group.delivery.floor < room.log.start_offset:
                self._drop_unread(group, room.log.start_offset)
        if not room.log.over_limit():
            return None
        return TopicFull(
            f"partition {self._port.label} holds {room.log.size_bytes} bytes, its retention_bytes are"
            f" {settings.retention_bytes}, and a durable group has not settled its oldest messages. Nothing was stored."
            " Consume them, delete the group, raise retention_bytes, or set drop_unread=True.",
            topic=self._place.topic,
            partition=self._place.index,
        )

    def _drop_unread(self, group: Group, start: int) -> None:
        """Retention has dropped what `group` had not settled: count it, and tell."""
        dropped = group.delivery.skip(0, start)
        group.lost_records += dropped
        self._shared.lost_records += dropped
        self._shared.journal_events(group, sync=False, urgent=False)
        self.context.emit(UnreadDropped(self.context.path, group.group_id, dropped))

    def _alter(self, message: c.Alter, reply: Reply | None) -> None:
        if message.settings.partitions != self._place.settings.partitions:
            answer(reply, None, InvalidArgument("partitions cannot be changed once a topic exists"))
            return
        room = self._shared
        self._place.settings = message.settings
        room.log.alter(log_settings(message.settings, self.context.limits))
        room.committer.maintain()
        room.arm(room.clock.monotonic())
        answer(reply, None, None)

    def _describe(self, _: c.Describe, reply: Reply | None) -> None:
        room = self._shared
        log, committer = room.log, room.committer
        groups = tuple(_group_statistics(group, log.visible_end) for group in room.states)
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
            commits=committer.commits,
            failed_commits=committer.failed_commits,
            heals=committer.heals,
            lost_records=room.lost_records,
            history_bytes=self._journal.history_bytes,
            dropped_history_bytes=self._journal.dropped_history_bytes,
            gaps=tuple(str(gap) for gap in log.gaps),
            damages=(*map(str, log.damages), *self._journal_damages),
            groups=groups,
        )
        answer(reply, statistics, None)


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
        lost_records=group.lost_records,
    )
