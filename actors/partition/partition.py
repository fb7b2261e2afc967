"""The partition actor: the thin shell around a partition's core (`core`), one partition's log and its delivery journal.

The loop drains the mailbox, feeds each command to the core with the time, and carries out the effects. It never waits
for the disk: what is written goes through the committer, what must be read from disk goes to a task of its own.

Invariants
----------
PA0  It runs in a system that has a disk.
PA1  A command that makes the core raise fails its sender, with an error that is not asked again. Unless it was refused
     before anything changed (`REFUSALS`), it also ends the incarnation, once: the next one rebuilds the state from the
     journal.
PA2  The bytes of every append are returned to the client that published it once: when its commit, or the incarnation,
     has ended.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime
from operator import attrgetter
from typing import TypeVar, assert_never

import attrs
import trio

from callboard.actors import notices
from callboard.actors.kernel import Actor, Batch, Reply, notify, notify_all, watch_marks
from callboard.actors.kernel.failures import describe
from callboard.actors.kernel.steps import in_steps
from callboard.actors.names import topic_read_only
from callboard.actors.partition import commands as c
from callboard.actors.partition import effects as e
from callboard.actors.partition.choice.addressing import may_be_addressed
from callboard.actors.partition.choice.expiry import has_expired
from callboard.actors.partition.choice.lease_reading import LeaseReading
from callboard.actors.partition.choice.skipping import Skipping
from callboard.actors.partition.choice.window_reading import WindowReading
from callboard.actors.partition.committer import Committer, DiskEngine
from callboard.actors.partition.core import REFUSALS, PartitionCore
from callboard.actors.partition.deliveries import CoreOptions
from callboard.actors.partition.delivery_journal import open_delivery_journal
from callboard.actors.partition.group_state import PendingLease
from callboard.actors.partition.kept_letters import DeadLetterNotices
from callboard.actors.partition.noticed import NoticedStamps
from callboard.actors.partition.opening_turn import OpeningTurn
from callboard.actors.partition.outbox.notices import OutboxNotices
from callboard.actors.partition.participants import JournalParticipant, LogParticipant
from callboard.actors.partition.publishing.publishers import Publishers, publishers_of
from callboard.actors.partition.queues import NEVER, NO_RECORDS, Appends
from callboard.actors.partition.reopening import open_lost
from callboard.actors.partition.retaining import PublishersSummary, Retaining
from callboard.actors.partition.spec import TURNS, PartitionSpec, log_settings
from callboard.actors.partition.window_share import WindowShare
from callboard.actors.settings import TopicSettings
from callboard.actors.timing import Callback, Flag, Timers
from callboard.log.errors import (
    ActorCrashed,
    CallboardError,
    InternalError,
    InvalidArgument,
    StorageError,
    lacks_space,
)
from callboard.log.format.columns import Columns
from callboard.log.journal.journal import Journal
from callboard.log.limits import OPENING_BYTES_LEAST, OPENING_TURN_S
from callboard.log.partition.partition_log import PartitionLog
from callboard.log.seams.clock import wall_offset
from callboard.log.segments.reading import Reading
from callboard.log.segments.segments import Damage
from callboard.log.segments.small_files import entries_of

SPACE_RETRY_S = 5.0
"""A recovery for which the disk was too full is tried again after this."""
UPKEEP_RETRY_S = 60.0
"""Upkeep that is due but cannot be done (retention that waits for a group) is looked at again after this."""

Found = TypeVar("Found")


class Partition(Actor[c.PartitionCommand]):
    """The actor of one partition: it feeds commands to the core and carries out the effects.

    Each incarnation is a new instance; `PartitionSpec` outlives it.
    """

    defers_interrupts = True

    def __init__(self, spec: PartitionSpec) -> None:
        self._given = spec
        self._spec = spec.begun()
        self._state = "starting"
        self._journal: Journal
        self._log: PartitionLog
        self._log_part: LogParticipant
        self._journal_part: JournalParticipant
        self._core: PartitionCore
        self._committer: Committer
        self._publishers: Publishers
        self._noticed: NoticedStamps
        self._windows: WindowReading
        self._window_share: WindowShare
        self._dead_letters: DeadLetterNotices
        self._outbox: OutboxNotices
        self._has_started = False
        self._lacks_space = False
        self._alarm = trio.CancelScope()
        self._flag = Flag()
        self._timers = Timers(spec.wheel)
        self._due = self._timers.timer(self._flag)
        self._upkeep = self._timers.timer(self._flag)
        self._retry_at = 0.0
        """When upkeep that could not be done is tried again."""
        self._grows_old = self._spec.settings.ages
        self._is_time = False
        """A deadline of the core has come, and the notices that wait are taken before."""

    # -- life

    async def started(self) -> None:
        """Recover log and journal when it is this partition's turn, decide what becomes of the leases, start the
        committer.
        """
        context = self.context
        self._enter("recovering")
        carried = self._spec.hand_over.carried
        carried.begin_with(self._spec.groups.openings, self._spec.groups.keep_expired)
        turn = await self._turn_after(0.0)
        while turn is not None and not await self._has_recovered(turn):
            turn = await self._turn_after(SPACE_RETRY_S)
        if turn is None:
            return
        self._has_started = True
        self._dead_letters = DeadLetterNotices(context, self._spec)
        self._outbox = OutboxNotices(context.system, self._spec)
        core = self._core
        carried.has_expiries |= self._spec.settings.default_ttl is not None
        now, numbering = context.clock.monotonic(), self._journal.next_id
        await in_steps(core.begin_in_steps(now, restarted=self._spec.hand_over.has_run, numbering=numbering))
        await open_lost(core, carried, self._log, context.clock, numbering)
        self._perform()
        self._arm_upkeep()
        context.start_task(self._committer.run, name="committer")
        context.start_task(self._committer.watch, self._stuck_changed, name="watchdog")
        self._alarm = context.start_task(self._run_alarm, name="alarm")
        self._enter("running")
        self._spec.hand_over.has_run = True
        self._maintain()

    async def _turn_after(self, pause_s: float) -> OpeningTurn | None:
        """This partition's turn to recover; None when it is to stop instead."""
        with self.context.until_stop():
            if pause_s:
                await self._timers.sleep(pause_s)
            await trio.lowlevel.checkpoint()
            turn, ref = OpeningTurn(self.context.actor(TURNS), self._spec.topic_id), self.context.ref

            def marked(mark: object) -> None:
                if mark is c.ClientNews.WANTED:
                    turn.need()

            watch_marks(ref, marked)
            try:
                await turn.wait()
            finally:
                watch_marks(ref, None)
            return turn
        return None

    def _enter(self, state: str) -> None:
        """Be in this state, and have all clients know."""
        self._state = state
        notify_all(self.context.ref, c.StateChanged(state))

    async def _has_recovered(self, turn: OpeningTurn) -> bool:
        """Recover; False when the disk is too full for what recovery must write, or the partition is to stop instead.

        A recovery that takes long keeps only the partition's users waiting.
        """

        def tell_overdue() -> None:
            if overdue.has_come():
                turn.overdue()
                self.context.emit(notices.OpeningOverdue(self.context.path, OPENING_TURN_S))

        overdue = self._timers.timer(Callback(tell_overdue))
        overdue.arm(self.context.clock.monotonic() + OPENING_TURN_S)
        try:
            return await self._recover(turn)
        except StorageError as error:
            if not lacks_space(error):
                raise
            self._tell_lack(error)
            return False
        finally:
            turn.end()
            overdue.cancel()

    def _tell_lack(self, error: StorageError) -> None:
        if not self._lacks_space:
            self._lacks_space = True
            if not self._has_started:
                self._enter("full")
            notify_all(self.context.ref, c.OpeningWaits(error))
            self.context.emit(notices.OpeningLacksSpace(self.context.path, str(error)))

    def _tell_damage(self, damage: Damage, *, is_new: bool) -> None:
        context, offsets = self.context, (damage.first_offset, damage.last_offset)
        context.emit(notices.DamageFound(context.path, damage.path, *offsets, str(damage), is_new=is_new))

    def _tell_new_damage(self) -> None:
        for damage in self._log.record.take_new():
            self._tell_damage(damage, is_new=True)

    async def _may_hold(self, turn: OpeningTurn, size_bytes: int) -> bool:
        """Wait until that much memory may be held; False when the partition is to stop instead."""
        with self.context.until_stop():
            await turn.hold(size_bytes)
            return True
        return False

    async def _recover(self, turn: OpeningTurn) -> bool:
        """False when the partition is to stop instead."""
        spec, context = self._given.begun(), self.context
        self._spec, self._grows_old = spec, spec.settings.ages
        if context.disk is None:
            raise InternalError("a partition was started in a system without a disk", invariant="PA0")
        files = await context.disk.incarnate(spec.directory)
        journal, folder = await entries_of(files, spec.journal_directory), await files.list(spec.directory)
        if not await self._may_hold(turn, OPENING_BYTES_LEAST + sum([entry.size_bytes for entry in journal])):
            return False
        stamps = spec.hand_over.carried.stamps
        stamps.report = lambda *told: context.emit(notices.ClockWasAhead(context.path, *told))
        stamps.changed = lambda: None
        noticed = self._noticed = NoticedStamps(files, spec.journal_directory, stamps)
        await noticed.load(journal)
        await noticed.notice_journal(context.clock.wall_us())
        self._journal, states = await open_delivery_journal(files, spec, context, spec.lacks(journal))
        publishers = self._publishers = publishers_of(files, spec, context)
        published_end = await publishers.load(journal)
        log = self._log = await PartitionLog.open(
            files,
            spec.directory,
            log_settings(spec.settings, context.limits),
            label=self._spec.label,
            clock=context.clock,
            entropy=context.entropy,
            named_end=max(states.named_end(), published_end),
            is_gone=spec.lacks(folder),
            limits=spec.log_limits(context.limits),
            stamps=stamps,
        )
        await noticed.notice_last(log, context.clock.wall_us())
        await publishers.compare(log)
        lack = log.owed_for or self._journal.lack
        if lack is not None:
            self._tell_lack(lack)
        spec.hand_over.has_files = spec.hand_over.has_files or lack is None
        notify_all(context.ref, c.FilesOpened(lack is None))
        new = log.record.take_new()
        for damage in log.damages:
            self._tell_damage(damage, is_new=damage in new)
        await publishers.catch_up(log)
        await noticed.keep()
        self._window_share = WindowShare(context.actor(TURNS))
        core = self._core = PartitionCore(
            states,
            spec.hand_over.carried,
            CoreOptions(
                label=self._spec.label,
                is_abandoned=attrgetter("abandoned"),
                limits=context.limits,
                windows=self._window_share.allowance,
                has_priorities=spec.settings.priorities,
                draw=context.entropy.random,
            ),
            start_offset=log.start_offset,
            visible_end=log.visible_end,
        )
        self._refuse_publishes()
        self._journal_part = JournalParticipant(
            core, self._journal, log, context.clock, perform=self._perform, limits=context.limits
        )
        summaries = PublishersSummary(publishers, log), self._journal_part
        self._log_part = LogParticipant(
            core,
            log,
            context.clock,
            perform=self._perform,
            make_room=Retaining(core, log, spec, context, summaries, self._retained).make_room,
            recovered=self._tell_new_damage,
            space_changed=lambda lack: context.emit(spec.hand_over.note_lack(lack, context.path)),
            reported_lack=spec.hand_over.has_reported_lack,
            publishers=publishers,
            noticed=noticed,
            default_ttl_us=spec.settings.default_ttl_us,
        )
        stamps.changed = self._log_part.maintain
        work = self._read_hot, self._from_disk, self._window_share.answered
        self._windows = WindowReading(core, log, context.clock, context.start_task, self._perform, *work)
        self._committer = Committer((self._log_part, self._journal_part), DiskEngine(files), context.clock)
        return True

    async def stopping(self) -> None:
        """Write what waits, close the files. Whoever waits looks again, and hears that nothing more will come."""
        self._enter("stopping")
        self._alarm.cancel()
        self._rest()
        if self._has_started:
            now = self.context.clock.monotonic()
            await in_steps(self._core.members.release_in_steps(now, all_leases=self.context.is_final_stop))
            self._core.notify_all()
            self._perform()
            await self._committer.closed()
            await self._log.close()
            await self._publishers.close(self._log)
            await self._noticed.keep()
            await self._journal.close()
            self._window_share.end()

    def crashed(self, error: BaseException) -> None:
        """The outcome of whatever waits is unknown; the kernel answers the askers."""
        self._enter("restarting")
        self._rest()
        if not self._has_started:
            return
        self._window_share.end()
        self._core.end()
        unknown = ActorCrashed(
            f"partition {self._spec.label} crashed with this in hand ({describe(error)})."
            " It may or may not have happened; look, or repeat it if repeating is harmless.",
            path=self.context.path,
        )
        if self._log_part.in_flight is not None:
            self._return(self._log_part.in_flight, unknown)
        while (appends := self._core.sequencer.take()) is not None:
            self._return(appends, unknown)

    def _rest(self) -> None:
        self._due.cancel()
        self._upkeep.cancel()

    def _stuck_changed(self, stuck: bool) -> None:
        if self._state in ("running", "stuck"):
            self._enter("stuck" if stuck else "running")
        self.context.emit(notices.PartitionStuck(self.context.path, stuck))

    # -- the loop

    async def receive_batch(self, batch: Batch[c.PartitionCommand]) -> None:
        """Feed what waits to the core, in order, without waiting for anything: as much of it as a step handles."""
        left, handle = self.context.limits.step_items, self._handle
        now = self.context.clock.monotonic()
        if self._spec.settings.priorities:
            self._core.deliveries.wall_offset_s = wall_offset(self.context.clock)
        for message, reply in batch:
            try:
                left -= handle(message, reply, now)
            except REFUSALS as refusal:
                if reply is not None:
                    reply.fail(refusal)
            except Exception as error:
                self._poisoned(message, reply, error)
                raise
            if left <= 0:
                batch.halt()  # the rest when others have run
        self._perform()
        if self._is_time:
            self._do_what_is_due()

    def _handle(self, message: c.PartitionCommand, reply: Reply | None, now: float) -> int:
        """Do what a command says, those of the hot paths first. Returns how much of a step it takes that is about
        ranges of offsets: such take longer the more there are.
        """
        core = self._core
        match message:
            case c.PublishOne():
                core.publish_one(message, reply, now)
            case c.PublishMany():
                core.publish_many(message, reply, now)
            case c.Fetch():
                lease = core.fetch(message, reply, now)
                return 1 if lease is None else 1 + len(lease.ranges)
            case c.Ack():
                core.ack(message, reply, now)
                return 1 + len(message.ranges)
            case c.WaitForReady():
                core.wait_for_ready(message, reply, now)
            case c.Read():
                self._read(message, reply)
            case c.WaitForVisible():
                core.wait_for_visible(message, reply, now)
            case c.Nack():
                chance = self.context.entropy.random() if message.delay_s is None else 0.0
                core.nack(message, reply, now, chance)
                return 1 + len(message.ranges)
            case c.RejectLeased():
                core.reject(message, reply, now)
                return 1 + len(message.ranges)
            case c.Release():
                core.release(message, reply, now)
                return 1 + len(message.ranges)
            case c.SettleUnawaited(settlements):
                cost = 0
                for settlement in settlements:
                    with suppress(*REFUSALS):
                        cost += self._handle(settlement, None, now)
                return cost
            case c.Extend():
                core.extend(message, reply, now)
            case c.AckAndPublish():
                core.outbox.ack_and_publish(message, reply, now)
            case c.OpenAccount(client):
                notify(self.context.ref, client, c.StateChanged(self._state))
            case c.Wanted():
                pass
            case c.Flush():
                core.flush(message, reply)
            case c.BeginProducer():
                core.begin_producer(message, reply, now)
            case c.ProducerChanges(changes):
                self._spec.hand_over.producers_begun.follow(changes)
            case c.ForgetProducer():
                self._publishers.forget(message)
                _answer(reply, None)
            case c.KeepSchedules():
                self._publishers.keep_schedules(message)
                _answer(reply, None)
            case c.NoticeStamps(stamps_us):
                _answer(reply, core.stamps.noticed_of(stamps_us, self.context.clock.wall_us()))
            case c.LastSequence():
                _answer(reply, self._publishers.last(message))
            case c.ListSources():
                _answer(reply, self._publishers.list_sources(message))
            case c.ForgetSources():
                self._publishers.forget_sources(message)
                _answer(reply, None)
            case c.ListOutbox():
                core.outbox.list_outbox(message, reply, now)
            case c.ForgetOutbox():
                core.outbox.forget_outbox(message, reply, now)
            case c.ListDead(group_id):
                self._dead_letters.asked(group_id)
                core.dead_letters.list_dead(message, reply, now)
            case c.CountDead():
                core.dead_letters.count_dead(message, reply, now)
            case c.ForgetDead():
                core.dead_letters.forget_dead(message, reply, now)
            case c.SetAside():
                core.dead_letters.set_aside(message, reply, now)
            case c.ListNumberings():
                core.list_numberings(message, reply, now)
            case c.ListUnsettled():
                core.dead_letters.list_unsettled(message, reply, now)
            case c.SettleOffsets():
                core.dead_letters.settle_offsets(message, reply, now)
            case c.ListHolders():
                core.members.list_holders(message, reply, now)
            case c.AssignPartition():
                core.members.assign_partition(message, reply, now)
            case c.FenceConsumer():
                core.members.fence_consumer(message, reply, now)
            case c.ReleaseConsumer():
                core.members.release_consumer(message, reply, now)
            case c.RemainingMembers():
                core.members.release_others(message, reply, now)
            case c.OpenGroup():
                self._open_group(message, reply, now)
            case c.CloseGroup():
                core.group_openings.close_group(message, reply, now)
            case c.SeekOffset():
                core.seeks.seek_group(message, reply, now)
            case c.AlterDelivery():
                core.settings.alter_delivery(message, reply, now)
            case c.Alter(settings):
                self._alter(settings)
                if settings.read_only:
                    core.flush(c.Flush(), reply)  # from the answer on nothing more comes
                else:
                    _answer(reply, None)
            case c.OffsetAt(time_us):
                self._offset_at(time_us, reply)
            case c.Describe():
                _answer(reply, self._statistics())
            case _:
                assert_never(message)
        return 0

    def _poisoned(self, message: c.PartitionCommand, reply: Reply | None, error: Exception) -> None:
        told = InternalError(
            f"partition {self._spec.label} cannot handle {type(message).__name__}: {describe(error)}",
            invariant="PA1",
        )
        told.__cause__ = error
        if isinstance(message, (c.PublishOne, c.PublishMany)):
            records = 1 if isinstance(message, c.PublishOne) else message.columns.count
            unawaited = NO_RECORDS if reply is not None else (records, message.size_bytes)
            notify(self.context.ref, message.client, c.Returned(message.size_bytes, *unawaited, told))
        if reply is not None and not reply.done:
            reply.fail(told)

    def _perform(self) -> None:
        """Carry out what the core wants done, and have the committer look for what it wants written."""
        deliveries = self._core.deliveries
        while deliveries.effects:
            for effect in deliveries.take_effects():
                match effect:
                    case e.Answer(answers):
                        for token, value in answers:
                            token.answer(value)
                    case e.AppendsStored():
                        self._appends_stored(effect)
                    case e.Journalled():
                        self._journalled(effect)
                    case e.Notify(token, group_id, consumer):
                        if not token.answer(True):
                            self._core.not_notified(group_id, consumer, self.context.clock.monotonic())
                    case e.ArmTimer(at):
                        if at < self._due.deadline:
                            self._due.arm(at)
                    case e.Refuse(tokens, error):
                        for token in tokens:
                            token.fail(error.again())
                    case e.AppendsFailed():
                        self._appends_failed(effect)
                    case e.ReadWindow():
                        self._windows.read(effect)
                    case e.AwaitRoom(group_id):
                        self._windows.await_room(group_id)
                    case e.SkipExpired(group_id):
                        self._skip_expired(group_id)
                    case e.HasDead():
                        self._dead_letters.has_dead(effect)
                    case e.DroppedDead():
                        self._dead_letters.dropped_dead(effect)
                    case e.DroppedUnread():
                        self.context.emit(notices.UnreadDropped(self.context.path, *effect))
                    case e.TellClients(news):
                        notify_all(self.context.ref, news)
                    case e.OutboxMoved():
                        self._outbox.moved(effect)
                    case _:
                        assert_never(effect)
        self._windows.may_read = True
        self._committer.wake()

    # -- commands that need more than the core

    def _open_group(self, message: c.OpenGroup, reply: Reply | None, now: float) -> None:
        def opens(start: int) -> None:
            now = self.context.clock.monotonic()
            self._core.group_openings.open_group(message, reply, now, start, numbering=self._journal.next_id)
            self._perform()

        if isinstance(message.start, datetime):
            time_us = round(message.start.timestamp() * 1e6)
            self.context.start_task(self._find_offset, time_us, reply, opens, name="open group")
        else:
            self._core.group_openings.open_group(message, reply, now, numbering=self._journal.next_id)

    def _offset_at(self, time_us: int, reply: Reply | None) -> None:
        if reply is not None:
            self.context.start_task(self._find_offset, time_us, reply, reply.answer, name="offset")

    async def _find_offset(self, time_us: int, reply: Reply | None, found: Callable[[int], object]) -> None:
        def fails(error: StorageError) -> None:
            if reply is not None:
                reply.fail(error)

        await self._from_disk(self._log.offset_at(time_us), found, fails)

    def _read(self, message: c.Read, reply: Reply | None) -> None:
        """Records from an offset on, where to go on, and how many retention has dropped; None at the visible end."""
        offset, max_records, max_bytes = message
        if reply is None:
            return
        start = max(offset, self._core.start_offset)
        if offset >= self._core.visible_end:
            reply.answer(None)
        elif hot := self._read_hot(start, max_records, max_bytes):
            reply.answer((hot, hot[-1].last_offset + 1, start - offset))
        else:
            self.context.start_task(self._read_cold, message, reply, name="cold read")

    async def _read_cold(self, message: c.Read, reply: Reply) -> None:
        offset, max_records, max_bytes = message
        start = max(offset, self._log.start_offset)

        def taken(found: Reading) -> None:
            reply.answer((found.batches, found.next_offset, start - offset + found.dropped))

        await self._from_disk(
            self._log.read(start, max_records=max_records, max_bytes=max_bytes), taken, reply.fail
        )

    def _alter(self, settings: TopicSettings) -> None:
        if settings.partitions != self._spec.settings.partitions:
            raise InvalidArgument("partitions cannot be changed once a topic exists")
        self._spec, self._grows_old = attrs.evolve(self._spec, settings=settings), settings.ages
        self._spec.hand_over.altered = settings
        self._spec.hand_over.ids_void_below = self._publishers.set_window(settings.dedup_window_us, self._log)
        self._log_part.default_ttl_us = settings.default_ttl_us
        self._refuse_publishes()
        self._log.alter(log_settings(settings, self.context.limits))
        self._maintain()
        self._arm_upkeep()

    def _refuse_publishes(self) -> None:
        """While the topic is read-only."""
        refusal = topic_read_only(self._spec.topic) if self._spec.settings.read_only else None
        self._core.refuse_publishes(refusal)

    def _statistics(self) -> c.PartitionStatistics:
        core, log = self._core, self._log
        log_part, journal_part = self._log_part, self._journal_part
        return c.PartitionStatistics(
            topic=self._spec.topic,
            partition=self._spec.index,
            state=self._shown_state,
            start_offset=log.start_offset,
            next_offset=log.next_offset,
            visible_end=log.visible_end,
            durable_end=log.durable_end,
            size_bytes=log.size_bytes,
            segments=log.segment_count,
            pending_records=core.sequencer.records,
            pending_bytes=core.sequencer.size_bytes,
            commits=self._committer.commits,
            failed_commits=log_part.failures + journal_part.failures,
            heals=log_part.heals + journal_part.heals,
            lost_records=log.record.lost_records,
            cancelled_records=core.sequencer.cancelled,
            **self._publishers.admission.statistics(),
            outbox=len(core.states.outbox),
            dropped_dead_letters=core.dead_letters.dropped,
            is_recovery_owed=log.owed_for is not None,
            stamps_ahead=core.stamps.count,
            history_bytes=self._journal.history_bytes,
            dropped_history_bytes=self._journal.dropped_history_bytes,
            gaps=tuple(str(gap) for gap in log.gaps),
            damages=(*map(str, log.damages), *core.states.losses(self._spec.journal_directory)),
            groups=tuple(group.statistics(log.visible_end) for group in core.states),
        )

    @property
    def _shown_state(self) -> str:
        log, state = self._log, self._state
        if state != "running":
            return state
        lacks_space = self._log_part.lacks_space or self._journal.is_short_of_space
        return "full" if lacks_space or log.is_over_limit or log.owed_for is not None else state

    # -- effects: answers

    def _appends_stored(self, effect: e.AppendsStored) -> None:
        """Tell every publisher its offset; return the bytes (PA2)."""
        appends = effect.appends
        for part, base in zip(appends.parts, effect.base_offsets, strict=True):
            for offset, token in enumerate(part.tokens, base):
                if token is not None:
                    token.answer(offset)
        self._return(appends)
        if self._grows_old:
            self._arm_upkeep()  # new records may be the first that grow too old

    def _appends_failed(self, effect: e.AppendsFailed) -> None:
        """Tell every publisher that it failed, each with an error of its own to raise."""
        for part in effect.appends.parts:
            for token in part.tokens:
                if token is not None:
                    token.fail(effect.error.again())
        self._return(effect.appends, effect.error)

    def _return(self, appends: Appends, error: CallboardError | None = None) -> None:
        """Return each client its credit, with what became of what it does not await (PA2)."""
        unawaited = appends.unawaited
        for client, size_bytes in appends.sizes.items():
            notify(
                self.context.ref, client, c.Returned(size_bytes, *unawaited.get(client, NO_RECORDS), error)
            )

    # -- effects: reading

    def _journalled(self, effect: e.Journalled) -> None:
        """Answer; deliver each lease whose records are in memory. A task reads the rest."""
        core = self._core
        for token, value in effect.answers:
            token.answer(value)
        if not effect.leases:
            return
        now = self.context.clock.monotonic()
        for pending in effect.leases:
            token, _, (lease_id, ranges, _, _), max_bytes = pending
            start, stop, _ = ranges[0]
            hot, is_read = None, len(ranges) == 1 and start >= core.start_offset and not token.done
            if is_read:
                hot = self._read_hot(start, stop - start, max_bytes)
            end = hot[-1].base_offset + hot[-1].span + 1 if hot else start
            is_whole = hot and end == stop and sum([found.count for found in hot]) == stop - start
            is_aged = hot and has_expired(hot, core.stamps, self.context.clock)
            if not hot or not is_whole or is_aged or may_be_addressed(hot):
                self._read_leased(pending, hot, is_read=is_read)  # some records are missing, or not delivered
            elif token.answer(c.LeasedRecords(lease_id, core.handed_over(pending, now), ranges, hot)):
                core.delivered(pending)
            else:
                core.not_delivered(pending, now)

    def _read_hot(self, offset: int, max_records: int, max_bytes: int) -> list[Columns] | None:
        """What memory holds from `offset` on; None when the disk has to be asked, or tells what is wrong."""
        try:
            return self._log.read_hot(offset, max_records=max_records, max_bytes=max_bytes)
        except (StorageError, MemoryError):
            return None

    def _read_leased(self, pending: PendingLease, hot: list[Columns] | None, *, is_read: bool) -> None:
        """The same for a lease of several ranges, or one of which not all is there: `hot` is what is, once read."""
        reading, log = LeaseReading(pending.lease, pending.max_bytes), self._log
        while not pending.token.done and (wanted := reading.wanted(log.start_offset)) is not None:
            start, stop, room = wanted
            found = hot if is_read else self._read_hot(start, stop - start, room)
            if found is None:
                self.context.start_task(self._read_leased_cold, pending, reading, name="cold read")
                return
            reading.take(found, found[-1].last_offset + 1 if found else stop)
            is_read = False
        self._deliver(pending, reading)

    async def _read_leased_cold(self, pending: PendingLease, reading: LeaseReading) -> None:
        def taken(found: Reading) -> None:
            reading.take(found.batches, found.next_offset)

        def fails(error: StorageError) -> None:
            self._core.lease_not_read(pending, error, self.context.clock.monotonic())

        log = self._log
        while (wanted := reading.wanted(log.start_offset)) is not None:
            start, stop, room = wanted
            found = log.read(start, max_records=stop - start, max_bytes=room)
            if not await self._from_disk(found, taken, fails):
                break
        else:
            self._deliver(pending, reading)
        self._perform()

    def _skip_expired(self, group_id: int) -> None:
        """A task of its own reads on from what the group has not seen yet."""
        skipping = Skipping(self._core, self._log, self.context.clock, self._perform, self._from_disk)
        self.context.start_task(skipping.run, group_id, name="expired records")

    def _deliver(self, pending: PendingLease, reading: LeaseReading) -> None:
        core, token, now = self._core, pending.token, self.context.clock.monotonic()
        reading.filter(pending.group.group_id, self.context.clock.wall_us(), core.stamps)
        if not token.done and token.answer(core.lease_read(pending, reading, now)):
            core.delivered(pending)
        else:
            core.not_delivered(pending, now)

    async def _from_disk(
        self,
        reading: Awaitable[Found],
        taken: Callable[[Found], object],
        fails: Callable[[StorageError], object],
    ) -> bool:
        """Hand on what is read, and tell of new damage. False when disk or memory refuse, which `fails` is told."""
        try:
            taken(await reading)
        except StorageError as error:
            fails(error)
        except MemoryError:
            fails(StorageError(f"{self._spec.label}: too little memory to read it. Read less at a time."))
        else:
            self._tell_new_damage()
            return True
        return False

    # -- effects: time

    def _arm_upkeep(self) -> None:
        left, now = self._log.next_due(self.context.clock.wall_us()), self._upkeep.now()
        if left != 0.0:
            self._retry_at = 0.0  # what was due is done: what comes next is due in its own time
        self._upkeep.arm(NEVER if left is None else max(now + left, self._retry_at))

    async def _run_alarm(self) -> None:
        """Do what is due: a deadline of the core, or the log's upkeep by age."""
        clock = self.context.clock
        while True:
            await self._flag.wait()
            if self._due.has_come():
                self._is_time = True
                self._do_what_is_due()
            if self._upkeep.has_come():
                if self._log.next_due(clock.wall_us()) == 0.0:
                    self._maintain()
                    self._retry_at = self._upkeep.now() + UPKEEP_RETRY_S
                self._arm_upkeep()

    def _do_what_is_due(self) -> None:
        """Unless notices wait: what was given back in time is given back, however late the alarm is."""
        if not self.context.has_notices:
            self._is_time = False
            self._core.time_has_come(self.context.clock.monotonic())
            self._perform()

    def _maintain(self) -> None:
        self._log_part.maintain()
        self._committer.wake()

    def _retained(self) -> None:
        self._tell_new_damage()
        if self._grows_old:
            self._arm_upkeep()
        self._perform()


def _answer(reply: Reply | None, answer: object) -> None:
    """Answer at once, if there is an asker."""
    if reply is not None:
        reply.answer(answer)
