"""The core of a partition: every rule about its messages, without a clock, a disk, a task or a callback.

Inputs are method calls: a command with the token of whoever asked, the log's progress, the end of a commit, the time
that has come. Times are monotonic seconds and, like random numbers, come in as arguments. What is to be done comes out
of `take_effects` as values (`effects`). The partition's actor is the shell that feeds the one and carries out the
other; the simulator's fast path and the tests do the same with this object.

Follow one message. `publish_one` puts it into the sequencer; `take_appends` gives it to a commit; `appended` tells its
publisher and notifies consumers that wait. A consumer's `fetch` leases it; `take_journal` gives the lease to a commit;
`journalled` asks for its records to be read; `lease_read` delivers them. `settle` changes the delivery state at once
and is answered by `journalled`.

Vocabulary
----------
*notified*    a consumer was told that something is ready and has not fetched since. It may be gone or busy: after
              `NOTICE_LASTS_S` the next one is told.
*pending*     a lease that its consumer has not heard of: not journalled yet, or being read.

Invariants
----------
P1  Nothing at or past the log's visible end is leased.
P2  A lease is journalled before its records are read; synced, and the records with it, when they were not yet: an
    offset that a consumer knows is never given to another record.
P3  Deliveries in memory are the truth of this run; what changes there is journalled by the next commit, in order.
P4  A group has never more notified consumers than records that are ready, when the last was notified; and never a
    waiting consumer while more records are ready than consumers are notified.
P5  Every token that comes in goes out with one effect, at the latest when the commit after next has ended, or waits
    for a notice. That of a lazy ack goes out with the first synced commit, at the latest the one after its linger.
P6  What `Carried` holds is what a successor in the same process needs, and nothing of it is lost by dropping the core.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import attrs

from callboard.actors.delivery.receipts import Lease, OffsetRange, Settlement
from callboard.actors.partition import commands as c
from callboard.actors.partition.effects import (
    Answer,
    AnswerEach,
    AppendsFailed,
    AppendsStored,
    Arm,
    Deliver,
    Effect,
    Notify,
    ReadLeased,
    ReadRecords,
    Refuse,
    RefuseEach,
    Token,
)
from callboard.actors.partition.group_states import Group, GroupEvents, GroupStates
from callboard.actors.partition.lease_reading import LeaseReading
from callboard.actors.partition.sequencer import Appends, Sequencer
from callboard.log.errors import CallboardError, ConsumerFenced, GroupNotFound, InvalidArgument
from callboard.log.limits import USUAL, Limits

__all__ = ["LINGER_S", "NOTICE_LASTS_S", "Carried", "JournalWork", "PartitionCore"]

LINGER_S: Final = 0.01
"""How long settlements that nobody waits for may wait for company."""
NOTICE_LASTS_S: Final = 0.05
"""How long a notified consumer may take to fetch before the next one is notified."""
JITTER: Final = 0.1
"""The part of a backoff that chance may take off, so that what failed together is not tried again together."""
DELAY_MAX_S: Final = 1e9
EXTENDED_SIFT_AT: Final = 64
INFINITY: Final = float("inf")


@attrs.define(eq=False)
class Carried:
    """What the cores of one partition hand on to each other within a process."""

    settings: dict[int, c.DeliverySettings] = attrs.field(factory=dict)
    """By group id."""
    extended: dict[tuple[int, int], float] = attrs.field(factory=dict)
    """By group's and lease's id: until when, if a renewal would end it earlier than its consumer was told."""
    fences: dict[tuple[int, int], int] = attrs.field(factory=dict)
    """By group's and consumer's id: the generation that its fetches must not be below."""
    first_leases: dict[int, int] = attrs.field(factory=dict)
    """By group's id: the first lease that this process can have given."""
    undelivered: list[tuple[int, Lease]] = attrs.field(factory=list)
    """Leases (with their group's id) that may be journalled, and that no consumer has heard of."""
    sift_at: int = EXTENDED_SIFT_AT

    def set(self, group_id: int, settings: c.DeliverySettings) -> c.DeliverySettings:
        """A group has these settings, unless later ones are known; returns the latest."""
        known = self.settings.get(group_id)
        if known is None or settings.version >= known.version:
            known = self.settings[group_id] = settings
        return known


class JournalWork(NamedTuple):
    """What one commit writes to the delivery journal, and what follows when it is written."""

    entries: list[bytes | GroupEvents]
    answers: list[tuple[Token, object]]
    readings: list[LeaseReading]
    sync: bool


class PartitionCore:
    """See the module."""

    def __init__(
        self,
        states: GroupStates,
        carried: Carried,
        *,
        label: str,
        start_offset: int = 0,
        visible_end: int = 0,
        limits: Limits = USUAL,
    ) -> None:
        self.label = label
        self.states = states
        self.sequencer = Sequencer(limits)
        self.publish_one = self.sequencer.add_one
        self.publish_many = self.sequencer.add_many
        self.start_offset = start_offset
        self.visible_end = self.durable_end = visible_end
        self.commit_at = INFINITY
        """When to write what waits for the journal, or for a flush; appends are to be written at once."""
        self.lost_records = 0
        self.readers: dict[Token, None] = {}
        """Who waits for the visible end to move."""
        self._carried = carried
        self._groups = states.groups
        self._effects: list[Effect] = []
        self._armed = INFINITY
        self._changed: dict[int, Group] = {}
        self._entries: list[bytes | GroupEvents] = []
        self._answers: list[tuple[Token, object]] = []
        self._readings: list[LeaseReading] = []
        self._sync = False
        self._lazy_acks: list[tuple[Token, object]] = []
        """Acks that nobody waits for, and that no sync covers yet."""
        self._lazy_until = INFINITY
        """When such acks are to be synced."""
        self._pending: dict[tuple[int, int], LeaseReading] = {}
        """By group's and lease's id."""
        self._fetching: dict[tuple[int, int], LeaseReading] = {}
        self._returning: dict[tuple[int, int], Token] = {}
        """Consumers that get nothing until their last lease has come back, by group, with the token of who waits."""
        """Of those that are pending, the last one of each group and consumer."""
        self._flushes: list[tuple[int, Token]] = []
        """Who waits for all appends up to a number, counted from the start."""
        self._taken = 0
        """Records that went into commits, or were dropped."""
        for group_id, settings in carried.settings.items():
            if group_id in self._groups:
                self._groups[group_id].settings = settings

    def take_effects(self) -> list[Effect]:
        """What to do, in order; empty when that is nothing more."""
        effects, self._effects = self._effects, []
        return effects

    # -- beginning and ending -------------------------------------------------------------------------------

    def begin(self, now: float, *, restarted: bool) -> None:
        """Decide what becomes of the leases: they outlive a core, but not the process, since consumers die with it."""
        carried = self._carried
        for group in self._groups.values():
            delivery = group.delivery
            if not restarted:
                carried.first_leases[group.group_id] = delivery.next_lease_id
            if delivery.next_lease_id > carried.first_leases.get(group.group_id, 0):
                timeout = (group.settings or c.DeliverySettings()).visibility_timeout
                delivery.renew_all(now, timeout)
                for (group_id, lease_id), deadline in carried.extended.items():
                    if group_id == group.group_id and deadline > now + timeout:
                        delivery.extend(lease_id, deadline, now)
            else:
                delivery.void_all_leases()
            delivery.skip(0, self.start_offset)
        for group_id, lease in carried.undelivered:
            owner = self._groups.get(group_id)
            if owner is not None:
                owner.delivery.release(lease.lease_id, [row[:2] for row in lease.ranges], now)
        carried.undelivered.clear()
        for group in self._groups.values():
            self._has_changed(group, now, urgent=False)
        self._arm(self.states.next_deadline())

    def end(self) -> None:
        """The core is given up. Leases that nobody has heard of are carried on, to be released."""
        self._carried.undelivered += [(reading.group_id, reading.lease) for reading in self._pending.values()]
        self._pending.clear()

    def forget_readers(self, is_gone: Callable[[Token], bool]) -> None:
        """Leave out readers that wait no more."""
        self.readers = {token: None for token in self.readers if not is_gone(token)}

    # -- appends --------------------------------------------------------------------------------------------

    def flush(self, _: c.Flush, token: Token, _now: float = 0.0) -> None:
        """Answer once all that was published before is durable, or has failed."""
        if token is not None:
            self._flushes.append((self._taken + self.sequencer.records, token))
        if self._lazy_acks:
            self._sync = True
            self.commit_at = 0.0

    @property
    def is_flushing(self) -> bool:
        """Whether somebody waits for a flush."""
        return bool(self._flushes)

    def take_appends(self, is_cancelled: Callable[[Token], bool] | None = None) -> Appends | None:
        """What the next commit appends, and must sync for a flush; None when that is nothing."""
        appends = self.sequencer.take(is_cancelled)
        if appends is not None:
            self._taken += appends.records + appends.cancelled
        if self._flushes:
            flushes = [token for upto, token in self._flushes if upto <= self._taken]
            if flushes:
                self._flushes = [flush for flush in self._flushes if flush[0] > self._taken]
                if appends is None:
                    appends = Appends([], [], True, 0, 0)
                appends.durable = True
                appends.flushes = flushes
        return appends

    def appended(self, appends: Appends, base_offsets: Sequence[int]) -> None:
        """A commit has written `appends`, and synced them if they were durable. Call `log_moved` next."""
        self._effects.append(AppendsStored(appends, base_offsets))
        if appends.flushes:
            self._effects.append(AnswerEach([(token, None) for token in appends.flushes]))

    def append_failed(self, appends: Appends, error: CallboardError, *, refused: bool) -> None:
        """`appends` are not stored, or may not be. Flushes try once more, unless the log takes nothing now."""
        self._effects.append(AppendsFailed(appends, error))
        if appends.flushes and refused:
            self._effects.append(RefuseEach(appends.flushes, error))
        elif appends.flushes:
            self._flushes = [*((0, token) for token in appends.flushes), *self._flushes]

    def log_moved(self, start_offset: int, visible_end: int, durable_end: int, now: float) -> None:
        """The log begins, ends or is durable elsewhere than before."""
        self.durable_end = durable_end
        if start_offset > self.start_offset:
            self.start_offset = start_offset
        if visible_end > self.visible_end:
            self.visible_end = visible_end
            if self.readers:
                readers, self.readers = self.readers, {}
                self._effects.append(AnswerEach([(token, True) for token in readers]))
            for group in self._groups.values():
                if group.waiting:
                    self._notify(group, now)

    # -- the delivery journal -------------------------------------------------------------------------------

    @property
    def has_journal_work(self) -> bool:
        """Whether `take_journal` would find something."""
        return bool(self._changed or self._answers or self._readings or self._entries or self._lazy_acks)

    def journal_syncs(self, now: float) -> bool:
        """Whether what `take_journal` gives now is to be synced."""
        return self._sync or (bool(self._lazy_acks) and now >= self._lazy_until)

    def take_journal(self, now: float = INFINITY) -> JournalWork | None:
        """What waits for the journal; None when that is nothing.

        Lazy acks are written with the rest, and answered by the first commit that syncs: one that somebody waits for,
        or the first after their linger.
        """
        sync = self.journal_syncs(now)
        if sync and self._lazy_acks:
            self._answers += self._lazy_acks
            self._lazy_acks, self._lazy_until = [], INFINITY
        self.commit_at = self._lazy_until
        if not (self._changed or self._answers or self._readings or self._entries):
            return None
        entries = self._entries
        for group in self._changed.values():
            events = group.delivery.take_events()
            if events:
                entries.append(GroupEvents(group.group_id, events))
        work = JournalWork(entries, self._answers, self._readings, sync)
        self._changed = {}
        self._entries, self._answers, self._readings, self._sync = [], [], [], False
        return work

    def put_back(self, work: JournalWork) -> None:
        """`work` was not written after all: it goes first into the next commit."""
        self._entries[:0] = work.entries
        self._answers[:0] = work.answers
        self._readings[:0] = work.readings
        self._sync = self._sync or work.sync
        self.commit_at = 0.0

    def journalled(self, work: JournalWork) -> None:
        """`work` is written, and synced if it was to be: tell those who wait, and have leased records read (P2)."""
        if work.answers:
            self._effects.append(AnswerEach(work.answers))
        for reading in work.readings:
            self._effects.append(ReadLeased(reading))

    def journal_failed(self, work: JournalWork, error: CallboardError, now: float) -> None:
        """`work` is not written, or may not be; in memory it stands (P3)."""
        tokens = [token for token, _ in work.answers]
        for reading in work.readings:
            self._take_back(reading, now)
            tokens.append(reading.token)
        self._effects.append(RefuseEach(tokens, error))

    def snapshot(self, wall_offset_s: float) -> bytes:
        """The delivery state of all groups. It covers what `take_journal` would have given."""
        return self.states.snapshot(wall_offset_s)

    # -- groups ---------------------------------------------------------------------------------------------

    def open_group(self, message: c.OpenGroup, token: Token, now: float, start: int | None = None) -> None:
        """Answer with the group's floor; a new group starts where it says, or at the offset `start`."""
        group = self._groups.get(message.group_id)
        if group is None:
            if start is None:
                start = self._start_offset(message.start)
            group, record = self.states.open(message.group_id, message.durable, start)
            self._entries.append(record)
        self._set(message.group_id, message.settings)
        self._answer_later(token, group.delivery.floor, sync=True)

    def _start_offset(self, start: Any) -> int:
        if start == "beginning":
            return self.start_offset
        if start == "end":
            return self.visible_end
        return min(max(int(start), self.start_offset), self.visible_end)

    def alter_group(self, message: c.AlterGroup, token: Token, now: float) -> None:
        """From now on the group has these settings, also when it is not open here yet."""
        self._set(message.group_id, message.settings)
        self._effects.append(Answer(token, None))

    def _set(self, group_id: int, settings: c.DeliverySettings) -> None:
        latest = self._carried.set(group_id, settings)
        group = self._groups.get(group_id)
        if group is not None:
            group.settings = latest

    def close_group(self, message: c.CloseGroup, token: Token, now: float) -> None:
        """Forget the group. Whoever waits for it looks again, and hears that it is gone."""
        group = self._groups.get(message.group_id)
        if group is not None:
            self._flush_events(group)
            waiting, group.waiting = group.waiting, {}
            self._effects.append(AnswerEach([(waits, True) for waits in waiting.values()]))
        self._carried.settings.pop(message.group_id, None)
        for key in [key for key in self._carried.fences if key[0] == message.group_id]:
            del self._carried.fences[key]
        record = self.states.close(message.group_id)
        if record is not None:
            self._entries.append(record)
        self._answer_later(token, None, sync=True)

    def _flush_events(self, group: Group) -> None:
        """Nothing of the group may follow what is journalled next."""
        events = group.delivery.take_events()
        if self._changed.pop(group.group_id, None) is not None and events:
            self._entries.append(GroupEvents(group.group_id, events))

    def release_consumer(self, message: c.ReleaseConsumer, token: Token, now: float) -> None:
        """A consumer leaves: release all that it has leased, and pass its notice on."""
        self._carried.fences.pop((message.group_id, message.consumer), None)
        self._release_consumer(message.group_id, message.consumer, token, now)

    def _release_consumer(self, group_id: int, consumer: int, token: Token, now: float) -> None:
        group = self._groups.get(group_id)
        if group is not None:
            group.waiting.pop(consumer, None)
            group.notified.pop(consumer, None)
            self._returning.pop((group_id, consumer), None)
            if group.delivery.release_consumer(consumer):
                self._has_changed(group, now)
            if group.waiting:
                self._notify(group, now)
        self._answer_later(token, None, sync=False)

    def fence_consumer(self, message: c.FenceConsumer, token: Token, now: float) -> None:
        """A member begins a new generation: release what it leased as an earlier one. Fetches of that are refused."""
        group = self._groups.get(message.group_id)
        fences = self._carried.fences
        key = message.group_id, message.consumer
        if group is not None and message.generation > fences.get(key, 0):
            fences[key] = message.generation
        if group is not None and message.consumer in group.waiting:
            self._effects.append(Answer(group.waiting.pop(message.consumer), True))
        self._release_consumer(message.group_id, message.consumer, token, now)

    def _group(self, group_id: int, token: Token) -> Group | None:
        """The group's state; None, and the asker told, when there is none."""
        group = self._groups.get(group_id)
        if group is None and token is not None:
            self._refuse_unknown(group_id, token)
        return group

    def _refuse_unknown(self, group_id: int, token: Token) -> None:
        self._effects.append(
            Refuse(
                token,
                GroupNotFound(
                    f"partition {self.label} knows no group with id {group_id}: it was deleted or expired."
                    " Subscribe again.",
                    group=group_id,
                ),
            )
        )

    # -- leases ---------------------------------------------------------------------------------------------

    def fetch(
        self,
        message: c.Fetch,
        token: Token,
        now: float,
        is_cancelled: Callable[[Token], bool] | None = None,
    ) -> Lease | None:
        """Lease what is ready; the records follow when the lease is journalled. Returns what was leased.

        A consumer that gave up its last fetch gets nothing until what that leased has come back: later records wait.
        """
        if token is None:
            return None
        group_id, consumer, max_records, max_bytes, generation = message
        group = self._groups.get(group_id)
        if group is None or group.settings is None:
            self._refuse_unknown(group_id, token)
            return None
        fences = self._carried.fences
        if fences and generation < fences.get((group_id, consumer), 0):
            self._effects.append(Refuse(token, self._fenced(consumer, generation)))
            return None
        last = self._fetching.get((group_id, consumer)) if is_cancelled is not None else None
        if last is not None and is_cancelled is not None and is_cancelled(last.token):
            self._returning.setdefault((group_id, consumer), None)
            self._effects.append(Answer(token, None))
            return None
        deadline = now + group.settings.visibility_timeout
        lease = self._leased(group, consumer, max_records, now, deadline)
        if lease is None:
            self._effects.append(Answer(token, None))
            self._arm(group.delivery.next_deadline())
        else:
            reading = LeaseReading(token, group_id, lease, max_bytes)
            self._pending[group_id, lease.lease_id] = self._fetching[group_id, consumer] = reading
            self._readings.append(reading)
            self._changed[group_id] = group
            self._sync = self._sync or lease.ranges[-1][1] > self.durable_end
            self.commit_at = 0.0
            if deadline < self._armed:
                self._arm(deadline)
        if group.notified:
            group.notified.pop(consumer, None)
        if group.waiting:
            self._notify(group, now)
        return lease

    def _fenced(self, consumer: int, generation: int) -> ConsumerFenced:
        return ConsumerFenced(
            f"partition {self.label}: consumer {consumer} is no longer the member of generation {generation} that it"
            " was; its leases are released. Nothing was leased. Join again.",
            consumer=consumer,
            generation=generation,
        )

    def _leased(
        self, group: Group, consumer: int, max_records: int, now: float, deadline: float
    ) -> Lease | None:
        """Lease candidates: in a group without order or filters those are the lowest ready offsets."""
        return group.delivery.lease(
            now=now,
            deadline=deadline,
            consumer=consumer,
            max_records=max_records,
            visible_end=self.visible_end,
        )

    def lease_read(self, reading: LeaseReading, now: float) -> None:
        """What could be read of a lease was read: give back the rest, settle what is lost, deliver."""
        group = self._groups.get(reading.group_id)
        lease, rest = reading.lease, reading.rest()
        if group is not None and (rest or reading.lost):
            delivery = group.delivery
            if rest:
                delivery.release(lease.lease_id, rest, now)
            for start, stop in reading.lost:
                self.records_lost(start, stop, now)
            self._has_changed(group, now, urgent=False)
            left = delivery.lease_of(lease.lease_id)
            if left is None:  # the lease ran out while the records were read, or there are none
                lease, reading.batches = lease._replace(ranges=()), []
            else:
                lease = left
            if group.waiting:
                self._notify(group, now)
        self._effects.append(
            Deliver(reading, c.LeasedRecords(lease.lease_id, lease.deadline, lease.ranges, reading.batches))
        )

    def lease_not_read(self, reading: LeaseReading, error: CallboardError, now: float) -> None:
        """The records of a lease cannot be read now: it is taken back."""
        self._take_back(reading, now)
        self._effects.append(Refuse(reading.token, error))

    def delivered(self, reading: LeaseReading) -> None:
        """The consumer has the records."""
        self._no_longer_pending(reading)

    def not_delivered(self, reading: LeaseReading, now: float) -> None:
        """Nobody waits for the records any more: the lease is taken back."""
        self._take_back(reading, now)

    def _take_back(self, reading: LeaseReading, now: float) -> None:
        """Nobody took the records: release them without counting an attempt."""
        self._no_longer_pending(reading)
        group = self._groups.get(reading.group_id)
        if group is None:
            return
        ranges = [(start, stop) for start, stop, _ in reading.lease.ranges]
        group.delivery.release(reading.lease.lease_id, ranges, now)
        self._has_changed(group, now, urgent=False)
        if group.waiting:
            self._notify(group, now)

    def _no_longer_pending(self, reading: LeaseReading) -> None:
        group_id, lease = reading.group_id, reading.lease
        self._pending.pop((group_id, lease.lease_id), None)
        key = (group_id, lease.consumer)
        if self._fetching.get(key) is reading:
            del self._fetching[key]
            waits = self._returning.pop(key, None)
            if waits is not None:
                group = self._groups.get(group_id)
                if group is None:
                    self._effects.append(Answer(waits, True))
                else:
                    group.waiting[lease.consumer] = waits

    def records_lost(self, start: int, stop: int, now: float) -> None:
        """The log holds nothing at these offsets: settle them for every group, except where a consumer has them."""
        for group in self._groups.values():
            kept = group.delivery.leased_in(start, stop, self._is_delivered(group.group_id))
            at = start
            for first, last in (*kept, (stop, stop)):
                if at < first:
                    skipped = group.delivery.skip(at, first)
                    group.lost_records += skipped
                    self.lost_records += skipped
                at = max(at, last)
            if group.delivery.events:
                self._has_changed(group, now, urgent=False)

    def _is_delivered(self, group_id: int) -> Callable[[int], bool]:
        return lambda lease_id: (group_id, lease_id) not in self._pending

    def drop_unread(self, group: Group, now: float) -> int:
        """Retention has dropped what `group` had not settled; returns how many records that were."""
        dropped = group.delivery.skip(0, self.start_offset)
        group.lost_records += dropped
        self.lost_records += dropped
        self._has_changed(group, now, urgent=False)
        return dropped

    # -- settling -------------------------------------------------------------------------------------------

    def settle(self, message: c.Settle, token: Token, now: float, chance: float = 0.0) -> Settlement | None:
        """Settle leased ranges; the asker hears when that is journalled. `chance` is from 0 to 1, for a backoff.

        Returns what the asker will hear.
        """
        group_id, verb, lease_id, ranges, _delay_s, _reason, lazy = message
        group = self._groups.get(group_id)
        if group is None:
            if token is not None:
                self._refuse_unknown(group_id, token)
            return None
        delivery = group.delivery
        if verb == "ack":
            settlement = delivery.ack(lease_id, ranges, now)
        elif verb == "nack":
            settlement = self._nack(group, message, now, chance)
        elif verb == "release":
            settlement = delivery.release(lease_id, ranges, now)
        else:
            raise InvalidArgument(f"{verb!r:.40} settles nothing. Ack, nack or release.")
        if delivery.events:
            self._changed[group_id] = group
        if lazy and verb == "ack" and token is not None:
            if not self._lazy_acks:
                self._lazy_until = now + LINGER_S
            self._lazy_acks.append((token, settlement))
        else:
            self._sync = self._sync or verb == "ack"
            if token is not None:
                self._answers.append((token, settlement))
        if token is not None and not lazy:
            self.commit_at = 0.0
        elif self.commit_at == INFINITY:
            self.commit_at = now + LINGER_S
        if verb != "ack":
            self._arm(delivery.next_deadline())
            if group.waiting:
                self._notify(group, now)
        return settlement

    def _nack(self, group: Group, message: c.Settle, now: float, chance: float) -> Settlement:
        reason = message.reason
        if reason is not None and not isinstance(reason, str):
            raise InvalidArgument(
                f"the reason of a nack is {type(reason).__name__}, not text. Nothing was settled."
            )
        if message.delay_s is not None:
            if not 0 <= message.delay_s <= DELAY_MAX_S:
                raise InvalidArgument(f"a nack's delay is {message.delay_s!r:.40}, not seconds from 0 on.")
            return group.delivery.nack(
                message.lease_id, message.ranges, not_before=now + message.delay_s, reason=reason, now=now
            )
        settings = group.settings or c.DeliverySettings()
        accepted: list[OffsetRange] = []
        lost: list[OffsetRange] = []
        for attempt, ranges in group.delivery.by_attempt(message.lease_id, message.ranges):
            delay_s = min(settings.max_backoff, settings.backoff * 2.0 ** min(attempt - 1, 60))
            settled = group.delivery.nack(
                message.lease_id,
                ranges,
                not_before=now + delay_s * (1 - JITTER * chance),
                reason=reason,
                now=now,
            )
            accepted += settled.accepted
            lost += settled.lost
        return Settlement(tuple(sorted(accepted)), tuple(sorted(lost)))

    def extend(self, message: c.Extend, token: Token, now: float) -> bool:
        """Move a lease's deadline; a successor must not end it earlier than its consumer was told.

        Returns whether the lease is still there.
        """
        group = self._group(message.group_id, token)
        if group is None:
            return False
        if not 0 <= message.seconds <= DELAY_MAX_S:
            raise InvalidArgument(f"a lease is extended by {message.seconds!r:.40}, not seconds from 0 on.")
        deadline, key = now + message.seconds, (message.group_id, message.lease_id)
        kept = group.delivery.extend(message.lease_id, deadline, now)
        if kept:
            self._arm(deadline)
            timeout = (group.settings or c.DeliverySettings()).visibility_timeout
            if message.seconds > timeout:
                self._carry_extended(key, deadline, now)
            else:
                self._carried.extended.pop(key, None)
        if token is not None:
            self._effects.append(Answer(token, kept))
        return kept

    def _carry_extended(self, key: tuple[int, int], deadline: float, now: float) -> None:
        carried = self._carried
        if len(carried.extended) >= carried.sift_at:
            carried.extended = {key: until for key, until in carried.extended.items() if until > now}
            carried.sift_at = max(EXTENDED_SIFT_AT, 2 * len(carried.extended))
        carried.extended[key] = deadline

    # -- waiting --------------------------------------------------------------------------------------------

    def wait_for_ready(self, message: c.WaitForReady, token: Token, now: float) -> None:
        """Answer when something is ready for this consumer; those who wait longest come first."""
        if token is None:
            return
        group = self._groups.get(message.group_id)
        if group is None or group.settings is None:
            self._effects.append(Answer(token, True))  # it asks, and hears why
            return
        group.notified.pop(message.consumer, None)
        group.waiting.pop(message.consumer, None)
        key = (message.group_id, message.consumer)
        if key in self._returning:
            self._returning[key] = token
            return
        group.waiting[message.consumer] = token
        self._notify(group, now)

    def _notify(self, group: Group, now: float) -> None:
        """Notify as many of those who wait as there are records ready, less those who are notified already (P4)."""
        waiting, notified = group.waiting, group.notified
        if not group.delivery.has_ready(now, self.visible_end):
            return
        ready = group.delivery.ready_count(self.visible_end)
        while waiting and len(notified) < ready:
            consumer = next(iter(waiting))
            notified[consumer] = now + NOTICE_LASTS_S
            self._effects.append(Notify(waiting.pop(consumer), group.group_id, consumer))
        if waiting and notified:
            self._arm(next(iter(notified.values())))

    def not_notified(self, group_id: int, consumer: int, now: float) -> None:
        """The consumer was not waiting any more: tell the next one."""
        group = self._groups.get(group_id)
        if group is not None and group.notified.pop(consumer, None) is not None and group.waiting:
            self._notify(group, now)

    def wait_for_visible(self, message: c.WaitForVisible, token: Token, now: float) -> None:
        """Answer when the visible end lies beyond an offset."""
        if message.offset < self.visible_end:
            self._effects.append(Answer(token, True))
        else:
            self.readers[token] = None

    def notify_all(self) -> None:
        """Tell everybody who waits to look again: the partition will say nothing more."""
        tokens = [
            *self.readers,
            *(token for group in self._groups.values() for token in group.waiting.values()),
        ]
        tokens += [token for token in self._returning.values() if token is not None]
        self.readers, self._returning = {}, {}
        for group in self._groups.values():
            group.waiting = {}
        self._effects.append(AnswerEach([(token, True) for token in tokens]))

    # -- reading without a group ----------------------------------------------------------------------------

    def read(self, message: c.Read, token: Token, now: float) -> None:
        """Records from an offset on; None at the visible end."""
        if token is None:
            return
        offset, max_records, max_bytes = message
        if offset >= self.visible_end:
            self._effects.append(Answer(token, None))
        else:
            self._effects.append(ReadRecords(token, max(offset, self.start_offset), max_records, max_bytes))

    # -- time -----------------------------------------------------------------------------------------------

    def time_has_come(self, now: float) -> list[tuple[int, Lease]]:
        """Something may be due: leases that run out, delayed redeliveries, notices that led to no fetch.

        Returns what ran out, with the groups' ids.
        """
        ran_out: list[tuple[int, Lease]] = []
        for group in self._groups.values():
            due = group.delivery.next_deadline()
            if due is not None and due <= now:
                ran_out += [(group.group_id, lease) for lease in group.delivery.expire(now)]
                self._has_changed(group, now)
            if group.notified:
                group.notified = {key: until for key, until in group.notified.items() if until > now}
            if group.waiting:
                self._notify(group, now)
        self._armed = INFINITY
        self._arm(self.next_deadline())
        return ran_out

    def next_deadline(self) -> float | None:
        """When something is due by itself; None when never."""
        due = self.states.next_deadline()
        for group in self._groups.values():
            if group.waiting and group.notified:
                until = next(iter(group.notified.values()))
                due = until if due is None or until < due else due
        return due

    def _arm(self, at: float | None) -> None:
        if at is not None and at < self._armed:
            self._armed = at
            self._effects.append(Arm(at))

    # -- parts of the above ---------------------------------------------------------------------------------

    def _has_changed(self, group: Group, now: float, *, urgent: bool = True) -> None:
        """What changed in `group` goes into the next commit (P3).

        Late steps of a group that was closed meanwhile are not journalled: nothing may follow its closing.
        """
        if not group.delivery.events or self._groups.get(group.group_id) is not group:
            return
        self._changed[group.group_id] = group
        if urgent:
            self.commit_at = 0.0
        elif self.commit_at == INFINITY:
            self.commit_at = now + LINGER_S

    def _answer_later(self, token: Token, value: object, *, sync: bool) -> None:
        """Answer behind what was journalled before."""
        self._sync = self._sync or sync
        self.commit_at = 0.0
        if token is not None:
            self._answers.append((token, value))
