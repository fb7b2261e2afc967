"""The core of a partition: every rule about its messages, without a clock, a disk or a task.

Inputs are method calls: a command with the token of its asker, the log's progress, the end of a commit, the time that
has come. Times are monotonic seconds, and come in as arguments. The only functions that it is given draw random
numbers, and say whether an asker has stopped waiting, and how busy it is. What is to be done comes out as values, in
`effects`: the shell that carries them out takes the list away. The partition's actor is the shell that feeds the one
and carries out the other; the simulator's fast path and the tests do the same with this object.

Follow one message. `publish_one` puts it into the sequencer, from which a commit takes it; `log_moved` tells its
publisher and notifies consumers that wait. A consumer's `fetch` leases it; a commit takes that from the journal queue
(`queues`); `journalled` has the records read and delivered. `ack`, `nack`, `reject` and `release`
change the delivery state at once and are answered by `journalled`.

That much is in this class. The rest is in its parts, each of which alone writes what it is about:

``deliveries``      what all parts share: the groups, the ends of the log, and what is to follow from a step
``settings``        settings of groups
``group_openings``  groups that begin and end
``seeks``           groups that go on from another offset
``retention``       groups that join or seek while retention drops records, and those that lose some
``members``         members that own the partition, leave, or begin a new generation
``choice``          records that are read before they are leased
``expiry``          records that have expired
``dead_letters``    dead letters, and those that went with their groups
``outbox``          acks that publish, and what they leave to be forwarded

Vocabulary
----------
*notified*    a consumer has a notice that something is ready and has not fetched since. It may be gone or busy: after
              `NOTICE_LASTS_S` the next one is notified.
*pending*     a lease that its consumer has not heard of: not journalled yet, or being read.
*returning*   a consumer that gave up its last fetch: it gets nothing until what that leased has come back.

Invariants
----------
PC1  Nothing at or past the log's visible end is leased.
PC2  A lease is journalled before its records are read; synced, and the records with it, when they were not yet: an
     offset that a consumer knows is never given to another record.
PC3  Deliveries in memory are the truth of this run; what changes there is journalled by the next commit, in order.
PC4  A group has never more notified consumers than records that are ready, when the last was notified; and never a
     waiting consumer while more records are ready than consumers are notified, unless it is paused.
PC5  Every token that comes in goes out with one effect, at the latest when the commit after next has ended, or waits
     for a notice. That of a lazy ack goes out with the first synced commit, at the latest the one after its linger.
PC6  What `Carried` holds is what a successor in the same process needs, and nothing of it is lost by dropping the core.
PC7  Nothing is leased to a paused group, and none of its consumers is notified. All else goes on: leases are renewed,
     settled and run out, records expire and become dead letters, owners change.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Final

from callboard.actors.delivery.dead_letters import PROCESS_ENDED
from callboard.actors.delivery.receipts import Lease, OffsetRange, Settlement
from callboard.actors.partition import commands as c
from callboard.actors.partition import effects as e
from callboard.actors.partition.carried import Carried, Nacked
from callboard.actors.partition.choice.expiry import ExpiryRules
from callboard.actors.partition.choice.rules import ChoiceRules
from callboard.actors.partition.commands import Token
from callboard.actors.partition.dead_letter_rules import DeadLetterRules
from callboard.actors.partition.deliveries import CoreOptions, PartitionDeliveries
from callboard.actors.partition.group_state import DELAY_MAX_S, GroupState, PendingLease
from callboard.actors.partition.group_states import GroupStates
from callboard.actors.partition.member_rules import MemberRules
from callboard.actors.partition.opening_rules import OpeningRules
from callboard.actors.partition.outbox.rules import OutboxRules
from callboard.actors.partition.queues import LINGER_S, Appends, JournalWork, Sequencer
from callboard.actors.partition.retention_rules import RetentionRules
from callboard.actors.partition.seek_rules import SeekRules
from callboard.actors.partition.settings_rules import SettingsRules
from callboard.log.errors import (
    CallboardError,
    ConsumerFenced,
    DeadLettersFull,
    InvalidArgument,
    OffsetOutOfRange,
    OutboxFull,
)
from callboard.log.plain import shown

if TYPE_CHECKING:
    from callboard.actors.partition.choice.lease_reading import LeaseReading

REFUSALS: Final = (InvalidArgument, DeadLettersFull, OffsetOutOfRange, OutboxFull)
"""Raised before anything has changed."""
LATE: Final = 1 / 8
"""A lease that is handed over after this part of its visibility timeout begins anew."""
READERS_SIFT_AT: Final = 64
"""Readers that gave up waiting are looked for when this many wait, or twice as many as were left."""


class PartitionCore:
    """The state machine of one partition: commands and progress come in, effects go out."""

    def __init__(
        self,
        states: GroupStates,
        carried: Carried,
        options: CoreOptions,
        *,
        start_offset: int = 0,
        visible_end: int = 0,
    ) -> None:
        self.deliveries = deliveries = PartitionDeliveries(
            states, carried, options, start_offset=start_offset, visible_end=visible_end
        )
        self.states = states
        self.journal = deliveries.journal
        self.stamps = carried.stamps
        self._groups = states.groups
        self._carried = carried
        self._options = options
        self._is_abandoned = options.is_abandoned
        self.sequencer = Sequencer(options.limits, options.is_abandoned)
        self.publish_one = self.sequencer.add_one
        self.publish_many = self.sequencer.add_many
        self.begin_producer = self.sequencer.add_begin
        self.readers: dict[Token, None] = {}
        """Those that wait for the visible end to move."""
        self._readers_sift_at = READERS_SIFT_AT
        self.choice = ChoiceRules(deliveries, self.fetch)
        self.expiry = ExpiryRules(deliveries)
        self.dead_letters = DeadLetterRules(deliveries, self.expiry)
        self.members = MemberRules(deliveries)
        self.outbox = OutboxRules(deliveries)
        self.retention = RetentionRules(deliveries)
        self.settings = SettingsRules(deliveries, self.choice, self.expiry, self.dead_letters)
        self.group_openings = OpeningRules(
            deliveries, self.settings, self.dead_letters, self.members, self.expiry, self.retention
        )
        self.seeks = SeekRules(deliveries, self.choice, self.expiry, self.retention)
        for group_id, settings in list(carried.settings.items()):
            if group_id in self._groups:
                self.settings.set(group_id, settings, 0.0)

    @property
    def effects(self) -> Sequence[e.Effect]:
        """What to do, in order."""
        return self.deliveries.effects

    @property
    def start_offset(self) -> int:
        """Where the log begins."""
        return self.deliveries.start_offset

    @property
    def visible_end(self) -> int:
        """Where what can be leased ends."""
        return self.deliveries.visible_end

    # -- beginning and ending -------------------------------------------------------------------------------

    def begin(self, now: float, *, restarted: bool, numbering: int = 0) -> None:
        """Decide what becomes of the leases: they outlive a core, but not the process, since consumers die with it.
        Groups that the journal does not tell of yet begin the `numbering`.
        """
        for _ in self.begin_in_steps(now, restarted=restarted, numbering=numbering):
            pass

    def begin_in_steps(
        self, now: float, *, restarted: bool, numbering: int = 0
    ) -> Generator[None, None, None]:
        """The same, yielding now and then where there is much to do: the core takes nothing else until its end."""
        carried = self._carried
        self.group_openings.open_implied(numbering)
        for group in self._groups.values():
            delivery = group.delivery
            offsets = delivery.offsets
            group.dead_reported = delivery.dead.total
            if not restarted:
                carried.first_leases[group.group_id] = offsets.next_lease_id
            first = carried.first_leases.get(group.group_id, 0)
            if offsets.next_lease_id <= first:  # else the journal tells that earlier processes have ended
                yield from delivery.void_in_steps(now)
            if restarted:
                carried.resume(group, now)
            if offsets.next_lease_id > first:
                timeout = carried.lease_s(group.group_id, now)
                delivery.renew_all(now, timeout)
                for (group_id, lease_id), deadline in carried.extended.items():
                    if group_id == group.group_id and deadline > now + timeout:
                        delivery.extend(lease_id, deadline, now)
            if self.retention.drops_unread(group):
                self.retention.drop_unread(group, now)
            delivery.judge(now, PROCESS_ENDED)
        carried.begun(self._groups)
        for place, (group_id, lease_id, ranges) in enumerate(carried.released, 1):
            self._groups[group_id].delivery.release(lease_id, ranges, now)
            if not place % self._options.limits.step_items:
                yield
        for group in self._groups.values():
            self.deliveries.has_changed(group, now, urgent=False)
            self.expiry.look_for_expired(group, now)
            self.deliveries.died_in(group, now)
        self.deliveries.arm(self.next_deadline())
        self.outbox.look_at_outbox()

    def end(self) -> None:
        """The core is given up. Its leases are carried on: to be released, if they were not handed over."""
        self._carried.ended(self._groups.values())
        for group in self._groups.values():
            if group.pending:
                group.pending.clear()
            if group.choice is not None:
                group.choice.close()

    # -- appends --------------------------------------------------------------------------------------------

    def refuse_publishes(self, error: CallboardError | None) -> None:
        """Refuse publishes with this error, before anything is written; with None, store them again."""
        if error is None:
            self.publish_one, self.publish_many = self.sequencer.add_one, self.sequencer.add_many
            return
        refusal, refused = error, Sequencer(self._options.limits)  # holds one publish at a time

        def refuse_waiting() -> None:
            if (appends := refused.take()) is not None:
                self.append_failed(appends, refusal, refused=True)

        def refuse_one(message: c.PublishOne, token: Token | None, now: float = 0.0) -> None:
            refused.add_one(message, token, now)
            refuse_waiting()

        def refuse_many(message: c.PublishMany, token: Token | None, now: float = 0.0) -> None:
            refused.add_many(message, token, now)
            refuse_waiting()

        self.publish_one, self.publish_many = refuse_one, refuse_many

    def flush(self, message: c.Flush, token: Token, _now: float = 0.0) -> None:
        """Answer once all that was published before is durable, or has failed; acks are answered by themselves."""
        self.journal.sync_lazy()
        if token is not None and message.acks_only:
            self.deliveries.effects.append(e.Answer([(token, None)]))
        elif token is not None:
            self.sequencer.add_flush(token)

    def append_failed(self, appends: Appends, error: CallboardError, *, refused: bool) -> None:
        """`appends` are not stored, or may not be. Flushes try again; with a log that takes nothing now they fail, if
        something visible is not durable.
        """
        self.deliveries.effects.append(e.AppendsFailed(appends, error))
        if appends.decided:
            tokens = [decided.token for decided in appends.decided]
            self.deliveries.effects.append(e.Refuse(tokens, error))
        if appends.flushes and not refused:
            self.sequencer.put_back(appends.flushes)
        elif appends.flushes and self.visible_end > self.deliveries.durable_end:
            self.deliveries.effects.append(e.Refuse(appends.flushes, error))
        elif appends.flushes:
            self.deliveries.effects.append(e.Answer([(token, None) for token in appends.flushes]))

    def log_moved(
        self,
        start_offset: int,
        visible_end: int,
        durable_end: int,
        now: float,
        appends: Appends | None = None,
        base_offsets: Sequence[int] = (),
    ) -> None:
        """The log begins, ends or is durable elsewhere than before; `appends` were written, and synced if durable."""
        deliveries, effects = self.deliveries, self.deliveries.effects
        if appends is not None:
            effects.append(e.AppendsStored(appends, base_offsets))
            for token, answer, refusal in appends.decided:
                effects.append(e.Answer([(token, answer)]) if refusal is None else e.Refuse([token], refusal))
            if appends.flushes:
                effects.append(e.Answer([(token, None) for token in appends.flushes]))
        deliveries.durable_end = durable_end
        deliveries.start_offset = max(start_offset, deliveries.start_offset)
        if visible_end > deliveries.visible_end:
            deliveries.visible_end = visible_end
            if self.readers:
                readers, self.readers = self.readers, {}
                effects.append(e.Answer([(token, True) for token in readers]))
            for group in self._groups.values():
                if group.waiting:
                    self.deliveries.notify(group, now)

    # -- the delivery journal -------------------------------------------------------------------------------

    def journalled(self, work: JournalWork) -> None:
        """`work` is written, and synced if it was to be: answer, and have leased records read (PC2)."""
        if self._carried.journalled(work.leases, synced=work.sync):
            self.journal.answer(None, None, must_sync=True)
        if work.answers or work.leases:
            self.deliveries.effects.append(e.Journalled(work.answers, work.leases))

    def journal_failed(self, work: JournalWork, error: CallboardError, now: float) -> None:
        """`work` is not written, or may not be; in memory it stands (PC3)."""
        tokens = [token for token, _ in work.answers]
        for pending in work.leases:
            self.not_delivered(pending, now)
            tokens.append(pending.token)
        self.deliveries.effects.append(e.Refuse(tokens, error))

    # -- groups ---------------------------------------------------------------------------------------------

    def list_numberings(self, _: c.ListNumberings, token: Token, now: float) -> None:
        """Answer with the numberings of what others take elsewhere."""
        dead = [(group.group_id, group.delivery.dead.numbering) for group in self._groups.values()]
        self.deliveries.effects.append(e.Answer([(token, c.Numberings(dead, self.states.outbox.numbering))]))

    # -- leases ---------------------------------------------------------------------------------------------

    def fetch(self, message: c.Fetch, token: Token, now: float) -> Lease | None:
        """Lease what is ready; the records follow when the lease is journalled. Returns what was leased.

        A consumer that gave up its last fetch gets nothing until what that leased has come back: later records wait.
        """
        if token is None:
            return None
        group_id, consumer, max_records, max_bytes, generation, name = message
        group = self._groups.get(group_id)
        if group is None or group.settings is None:
            self.deliveries.refuse_unknown(group_id, token)
            return None
        fences = self._carried.fences
        if fences and generation < fences.get((group_id, consumer), 0):
            fenced = ConsumerFenced(
                f"partition {self._options.label}: consumer {consumer} is no longer the member of generation"
                f" {generation} that it was; its leases are released. Nothing was leased. Join again.",
                consumer=consumer,
                generation=generation,
            )
            self.deliveries.effects.append(e.Refuse([token], fenced))
            return None
        if self._is_abandoned(token):
            # A lease would only keep the records from those who come after it.
            self.deliveries.effects.append(e.Answer([(token, None)]))
            return None
        last = group.fetching.get(consumer)
        if last is not None and self._is_abandoned(last.token):
            group.holds_back(consumer)
            self.deliveries.effects.append(e.Answer([(token, None)]))
            return None
        if (
            group.is_expired_full
            or group.is_paused
            or (group.ownership is not None and not self.members.may_lease(group, consumer))
        ):
            self.deliveries.effects.append(e.Answer([(token, None)]))
            return None
        deadline = now + group.visibility_timeout
        withheld = group.withheld_from(consumer) if group.withheld else ()
        if withheld is None:
            self.deliveries.effects.append(e.Answer([(token, None)]))
            return None
        if withheld:
            with group.delivery.offsets.without(withheld):
                lease = self._lease(group, deadline, consumer, max_records, now)
        else:
            lease = self._lease(group, deadline, consumer, max_records, now)
        if lease is None:
            if group.choice is not None and self.deliveries.reads_window(group):
                group.choice.fetches.append((message, token))
                return None
            self.deliveries.effects.append(e.Answer([(token, None)]))
            self.deliveries.arm(group.delivery.offsets.next_deadline())
        else:
            pending = PendingLease(token, group, lease, max_bytes)
            group.fetches(pending)
            if name is not None:
                self._carried.names[group_id, consumer] = name
                group.delivery.name_consumer(consumer, name)
            journal = self.journal
            journal.leases.append(pending)
            journal.changed[group_id] = group
            if lease.ranges[-1][1] > self.deliveries.durable_end:
                journal.must_sync = True
            journal.due.at = 0.0
            if deadline < self.deliveries.armed:
                self.deliveries.arm(deadline)
        group.has_fetched(consumer)
        if group.waiting:
            self.deliveries.notify(group, now)
        return lease

    def _lease(
        self, group: GroupState, deadline: float, consumer: int, max_records: int, now: float
    ) -> Lease | None:
        if group.choice is not None:
            group.choice.wall_offset_s = self.deliveries.wall_offset_s
            group.choice.stamps = self.stamps
            return group.choice.lease(now, deadline, consumer, max_records, self.deliveries.visible_end)
        return group.delivery.lease(
            now=now,
            deadline=deadline,
            consumer=consumer,
            max_records=max_records,
            visible_end=self.deliveries.visible_end,
        )

    # -- leased records -------------------------------------------------------------------------------------

    def lease_read(self, pending: PendingLease, reading: LeaseReading, now: float) -> c.LeasedRecords:
        """What could be read of a lease was read: give back the rest, settle what is lost. Returns what to deliver."""
        lease, group, batches, rest = pending.lease, pending.group, reading.batches, reading.rest()
        is_part = bool(rest or reading.lost or reading.expired or reading.filtered)
        if is_part and self._groups.get(group.group_id) is group:
            delivery = group.delivery
            if rest:
                self.deliveries.give_back(group, lease, rest, now)
            for start, stop in reading.lost:
                self.deliveries.records_lost(start, stop, now)
            if reading.expired:
                self.expiry.settle_expired(group, lease, reading.expired, now)
            for start, stop in reading.filtered:
                group.filtered_records += delivery.skip(start, stop)
                self.deliveries.settled_in(group, [(start, stop)], now)
            self.deliveries.has_changed(group, now, urgent=False)
            left = delivery.offsets.lease_of(lease.lease_id)
            if left is None:  # the lease ran out while the records were read, or there are none
                lease, batches = lease._replace(ranges=()), []
            else:
                lease = left
            self.deliveries.notify(group, now)
        return c.LeasedRecords(lease.lease_id, self.handed_over(pending, now), lease.ranges, batches, is_part)

    def handed_over(self, pending: PendingLease, now: float) -> float:
        """When the lease that a consumer hears of now runs out: on a slow disk its time begins only now.

        Else a consumer would have to give back, unused, whatever takes half of a visibility timeout to be read.
        """
        lease, group = pending.lease, pending.group
        timeout = group.visibility_timeout
        deadline = now + timeout
        is_late = deadline - lease.deadline > timeout * LATE
        if is_late and group.delivery.extend(lease.lease_id, deadline, now):
            self.deliveries.arm(deadline)
            return deadline
        return lease.deadline

    def lease_not_read(self, pending: PendingLease, error: CallboardError, now: float) -> None:
        """The records of a lease cannot be read now: it is taken back."""
        self.not_delivered(pending, now)
        self.deliveries.effects.append(e.Refuse([pending.token], error))

    def delivered(self, pending: PendingLease) -> None:
        """The lease is no longer pending: the consumer has the records, or it was taken back."""
        _, group, lease, _ = pending
        group.pending.pop(lease.lease_id, None)
        consumer = lease.consumer
        if group.fetching.get(consumer) is pending:
            del group.fetching[consumer]
            if group.returning:
                token = group.returning.pop(consumer, None)
                if token is not None:
                    group.waiting[consumer] = token

    def not_delivered(self, pending: PendingLease, now: float) -> None:
        """No consumer took the records: the lease is taken back, and counts no attempt."""
        self.delivered(pending)
        group, lease = pending.group, pending.lease
        if self._groups.get(group.group_id) is group:
            self.deliveries.give_back(group, lease, _offsets(lease), now)
            self.deliveries.has_changed(group, now, urgent=False)
            self.deliveries.notify(group, now)

    # -- settling -------------------------------------------------------------------------------------------

    def ack(self, message: c.Ack, token: Token, now: float) -> Settlement | None:
        """Settle leased ranges. Returns what the asker hears when it is journalled; None without such a group."""
        group_id, lease_id, ranges, lazy, again = message
        group = self._groups.get(group_id)
        if group is None:
            self.deliveries.refuse_unknown(group_id, token)
            return None
        delivery = group.delivery
        settlement = delivery.ack(lease_id, ranges, now)
        if group.choice is not None:
            self.deliveries.settled_in(group, settlement.accepted, now)
        if again and settlement.lost:
            settlement = settlement._replace(lost=delivery.offsets.unsettled(settlement.lost))
        if lazy and token is not None:
            if delivery.events:
                self.journal.changed[group_id] = group
            self.journal.answer_lazily(token, settlement, now)
        else:
            self._answer_journalled(group, token, settlement, now, must_sync=True)
        if delivery.attempt_limit is not None or group.handing_over is not None or group.withheld:
            self._look_again(group, now)
        return settlement

    def nack(self, message: c.Nack, token: Token, now: float, chance: float = 0.0) -> Settlement | None:
        """Have leased ranges delivered again, or make them dead letters. Returns as `ack`. `chance`: 0 to 1, for a
        backoff.
        """
        group_id, lease_id, ranges, delay_s, reason, again = message
        group = self._groups.get(group_id)
        if group is None:
            self.deliveries.refuse_unknown(group_id, token)
            return None
        settlement = group.nack(lease_id, ranges, delay_s, reason, now, chance)
        if settlement.accepted:
            nacked = Nacked(lease_id, settlement.accepted, delay_s, reason, now, chance)
            self._carried.failed.append((group_id, nacked))
        self.deliveries.died_in(group, now)
        if again:
            settlement = settlement._replace(lost=())
        self._answer_journalled(group, token, settlement, now, must_sync=False)
        self._look_again(group, now)
        return settlement

    def reject(self, message: c.RejectLeased, token: Token, now: float) -> Settlement | None:
        """Make leased ranges dead letters. Returns as `ack`."""
        group_id, lease_id, ranges, reason, again = message
        group = self._groups.get(group_id)
        if group is None:
            self.deliveries.refuse_unknown(group_id, token)
            return None
        settlement = group.delivery.reject(lease_id, ranges, now, reason)
        self.deliveries.died_in(group, now)
        if again and settlement.lost:
            settlement = settlement._replace(lost=group.delivery.offsets.unsettled(settlement.lost))
        self._answer_journalled(group, token, settlement, now, must_sync=True)
        self._look_again(group, now)
        return settlement

    def release(self, message: c.Release, token: Token, now: float) -> Settlement | None:
        """Take leased ranges back unhandled. Returns as `ack`."""
        group_id, lease_id, ranges, again, behind = message
        group = self._groups.get(group_id)
        if group is None:
            self.deliveries.refuse_unknown(group_id, token)
            return None
        settlement = group.delivery.release(lease_id, ranges, now)
        if settlement.accepted:
            self._carried.released.append((group_id, lease_id, settlement.accepted))
            if behind is not None:
                group.withholds(settlement.accepted, behind)
        if again:
            settlement = settlement._replace(lost=())
        self._answer_journalled(group, token, settlement, now, must_sync=False)
        self._look_again(group, now)
        return settlement

    def _answer_journalled(
        self, group: GroupState, token: Token, settlement: Settlement, now: float, *, must_sync: bool
    ) -> None:
        """Answer with the next commit, which is due at once when the answer is awaited."""
        journal = self.journal
        if group.delivery.events:
            journal.changed[group.group_id] = group
        if must_sync:
            journal.must_sync = True
        if token is not None:
            journal.answers.append((token, settlement))
            journal.due.at = 0.0
        elif now + LINGER_S < journal.due.at:
            journal.due.at = now + LINGER_S

    def _look_again(self, group: GroupState, now: float) -> None:
        """Something else may be ready now, or due."""
        self.deliveries.arm(group.delivery.offsets.next_deadline())
        self.deliveries.notify(group, now)

    def extend(self, message: c.Extend, token: Token, now: float) -> bool:
        """Move a lease's deadline; a successor must not end it earlier than its consumer knows.

        Returns whether the lease is still there.
        """
        group = self._groups.get(message.group_id)
        if group is None:
            self.deliveries.refuse_unknown(message.group_id, token)
            return False
        if not 0 <= message.seconds <= DELAY_MAX_S:
            raise InvalidArgument(
                f"a lease is extended by {shown(message.seconds, 40)}, not seconds from 0 on."
            )
        deadline, key = now + message.seconds, (message.group_id, message.lease_id)
        kept = group.delivery.extend(message.lease_id, deadline, now)
        if kept:
            self.deliveries.arm(deadline)
            timeout = group.visibility_timeout
            if message.seconds > timeout:
                self._carried.extend(key, deadline, now)
            else:
                self._carried.extended.pop(key, None)
        if token is not None:
            self.deliveries.effects.append(e.Answer([(token, kept)]))
        return kept

    # -- waiting --------------------------------------------------------------------------------------------

    def wait_for_ready(self, message: c.WaitForReady, token: Token, now: float) -> None:
        """Answer when something is ready for this consumer; the group's distribution says which comes first."""
        if token is None:
            return
        group = self._groups.get(message.group_id)
        if group is None or group.settings is None:
            self.deliveries.effects.append(e.Answer([(token, True)]))  # it asks, and hears why
            return
        group.has_fetched(message.consumer)
        group.waiting.pop(message.consumer, None)
        if message.consumer in group.returning:
            group.returning[message.consumer] = token
            return
        group.waiting[message.consumer] = token
        self.deliveries.notify(group, now)

    def not_notified(self, group_id: int, consumer: int, now: float) -> None:
        """The consumer was not waiting any more: tell the next one."""
        group = self._groups.get(group_id)
        if group is not None and group.has_fetched(consumer):
            self.deliveries.notify(group, now)

    def wait_for_visible(self, message: c.WaitForVisible, token: Token, now: float) -> None:
        """Answer when the visible end lies beyond an offset."""
        if token is None:
            return
        if message.offset < self.visible_end:
            self.deliveries.effects.append(e.Answer([(token, True)]))
            return
        self.readers[token] = None
        if len(self.readers) >= self._readers_sift_at:
            self.readers = {reader: None for reader in self.readers if not self._is_abandoned(reader)}
            self._readers_sift_at = max(READERS_SIFT_AT, 2 * len(self.readers))

    def notify_all(self) -> None:
        """Have all waiting consumers look again: the partition will say nothing more."""
        tokens = [
            *self.readers,
            *(token for group in self._groups.values() for token in group.stop_waiting()),
        ]
        self.readers = {}
        self.deliveries.effects.append(e.Answer([(token, True) for token in tokens]))
        for group in self._groups.values():
            self.members.end_hand_over(group)
            if group.choice is not None:
                self.deliveries.effects.append(e.Answer([(token, None) for token in group.choice.close()]))

    # -- time -----------------------------------------------------------------------------------------------

    def time_has_come(self, now: float) -> list[tuple[int, Lease]]:
        """Something may be due: leases that run out, delayed redeliveries, notices that led to no fetch.

        Returns what ran out, with the groups' ids.
        """
        ran_out: list[tuple[int, Lease]] = []
        for group in self._groups.values():
            due = group.delivery.offsets.next_deadline()
            if due is not None and due <= now:
                group.keep_pending(now)
                ended = group.delivery.run_out(now, self._options.limits.step_items)
                ran_out += [(group.group_id, lease) for lease in ended]
                self._carried.has_run_out(group, ended, now)
                self.deliveries.died_in(group, now)
                self.deliveries.has_changed(group, now)
            if group.releases:
                self.members.release_some(group, now)
            if group.look is not None and group.look.is_due(now):
                self.expiry.skip_expired(group)
            if group.notified:
                group.notified = {key: until for key, until in group.notified.items() if until > now}
            self.deliveries.notify(group, now)
        self.deliveries.arm_anew(self.next_deadline())
        return ran_out

    def next_deadline(self) -> float | None:
        """When something is due by itself; None when never."""
        due = self.states.next_deadline()
        for group in self._groups.values():
            if group.waiting and group.notified:
                until = next(iter(group.notified.values()))
                due = until if due is None or until < due else due
            look_at = None if group.look is None else group.look.due
            if look_at is not None and (due is None or look_at < due):
                due = look_at
            if group.releases:
                due = 0.0
        return due


def _offsets(lease: Lease) -> list[OffsetRange]:
    """What a lease covers."""
    return [(start, stop) for start, stop, _ in lease.ranges]
