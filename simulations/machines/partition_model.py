"""One partition without its tasks: a core, and the log, the journal and the consumers around it.

The core is the object that the partition actor runs. Three memories of different lives, as in production:

- the *incarnation*: the core. Gone when the actor crashes.
- the *process*: what was written, what cores carry on to each other, the consumers. Gone when the process is killed.
- the *disk*: what was synced, and of what was only written whatever the power leaves.

A commit writes and syncs in two steps, with a probe before each, so that a fault can fall between them: "disk.write"
and "disk.sync", about the path of the partition. What the ledger has to hear when a commit has been written stands in
`pending`, in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

import attrs

from callboard.actors.delivery.delivery import Delivery
from callboard.actors.delivery.events import GroupEvents, LeaseEvent
from callboard.actors.delivery.receipts import OffsetRange
from callboard.actors.partition.carried import Carried
from callboard.actors.partition.choice.lease_reading import LeaseReading
from callboard.actors.partition.commands import DeliverySettings, LeasedRecords
from callboard.actors.partition.core import PartitionCore
from callboard.actors.partition.deliveries import CoreOptions
from callboard.actors.partition.effects import (
    AppendsFailed,
    AppendsStored,
    ArmTimer,
    Journalled,
)
from callboard.actors.partition.group_state import PendingLease
from callboard.actors.partition.group_states import GroupStates
from callboard.actors.partition.queues import Appends
from callboard.log.errors import PublishFailed
from callboard.log.limits import Limits
from callboard.simulations.checkers import offsets
from callboard.simulations.machines.ledger import Ledger
from callboard.simulations.violations import Violation

SNAPSHOT_EVERY: Final = 256
"""Journal events after which a snapshot shortens the next rebuilding."""
NEVER: Final = float("inf")
STEP_LEASES: Final = 3
"""Leases that a step may end."""
LIMITS: Final = Limits(step_items=STEP_LEASES)

LEASED: Final = 0
ACKED: Final = 1
NACKED: Final = 2
RAN_OUT: Final = 3
RELEASED: Final = 4
VOIDED: Final = 5
NACKED_LATE: Final = 6
"""It counts no attempt, unless a crash takes it out of the journal that the lease had run out."""
HANDED_BACK: Final = (NACKED, NACKED_LATE, RELEASED)

Pending = tuple[int, "GroupModel", Any]
"""(what, where, the lease or the ranges)"""

ConsumerLease = tuple[int, tuple[OffsetRange, ...], int]
"""(lease, ranges, consumer)"""

Record = tuple[GroupEvents, float]
"""What goes into the journal, and wall minus monotonic time when it does."""

Surviving = Callable[[int], int]
"""How many of a number of unsynced things in a row the power leaves."""


class WaitingPublisher:
    """A publisher that waits for its offset."""

    __slots__ = ("number", "partition")

    def __init__(self, partition: PartitionModel) -> None:
        self.partition = partition
        self.number = partition.asked
        partition.asked += 1

    def answer(self, offset: int) -> None:
        """The record has an offset: the order of asking is the order of offsets, and none is given twice."""
        partition = self.partition
        if self.number != partition.heard or offset < partition.answered_end:
            raise Violation(
                offsets.PROMISE,
                f"{partition.path}: publish {self.number} got offset {offset}; publish {partition.heard} was next, at "
                f"{partition.answered_end} or above",
            )
        partition.heard += 1
        partition.answered_end = offset + 1

    def fail(self) -> None:
        """The publish failed, in its turn."""
        partition = self.partition
        if self.number != partition.heard:
            raise Violation(
                offsets.PROMISE, f"{partition.path}: publish {self.number} failed before {partition.heard}"
            )
        partition.heard += 1


class ModelSpan:
    """Stands where a batch of records would: all that a reading of a lease looks at."""

    __slots__ = ("base_offset", "last_offset")

    size_bytes = 0

    def __init__(self, start: int, stop: int) -> None:
        self.base_offset = start
        self.last_offset = stop - 1

    def index_at(self, offset: int) -> int:
        """The index of the first record at or above `offset`."""
        return min(max(0, offset - self.base_offset), self.last_offset + 1 - self.base_offset)

    def select(self, start: int, stop: int) -> ModelSpan:
        """The records `start` to `stop`."""
        return ModelSpan(self.base_offset + start, self.base_offset + stop)


@attrs.define(eq=False)
class GroupModel:
    """One group in one partition: its delivery, its ledger, and what its consumers have leased."""

    group_id: int
    timeout_s: float
    ledger: Ledger = attrs.field(factory=Ledger)
    delivery: Delivery = attrs.field(init=False)
    leased: deque[ConsumerLease] = attrs.field(factory=deque)
    """What will be settled, oldest first."""


@attrs.define(eq=False)
class CommitUnderWay:
    """What is being written and synced, for which asker."""

    appends: Appends | None
    records: list[Record]
    pending: list[Pending]
    sync: bool
    """Whether the journal is synced."""


class PartitionModel:
    """One partition. `passing` is called at each probe; it may crash this partition under way."""

    def __init__(self, path: str, groups: Sequence[GroupModel], passing: Callable[[str, str], None]) -> None:
        self.path = path
        self.groups = list(groups)
        self.by_id = {group.group_id: group for group in groups}
        self.passing = passing
        self.crashes = 0
        """How many incarnations have ended."""
        self.is_up = False
        self.fails = 0
        """Commits whose log sync will fail."""
        self.due = NEVER
        """When the core wants to hear of the time."""
        # the log
        self.visible_end = self.durable_end = 0
        self.gaps: list[OffsetRange] = []
        # publishers
        self.asked = self.heard = self.answered_end = 0
        # what waits for the commit, and what is under way
        self.pending: list[Pending] = []
        self.plan: CommitUnderWay | None = None
        self.deliveries: dict[tuple[int, int], tuple[PendingLease, LeasedRecords]] = {}
        """What the core delivers, by group's and lease's id."""
        self.undelivered: list[Pending] = []
        """Of crashed incarnations: they were not answered."""
        self.unwritten: list[Pending] = []
        """Settlements that went down with an incarnation: the next one repeats nacks; else leases go on alone."""
        # the journal
        self.written: list[Record] = []
        self.synced = 0
        self.told: list[Pending] = []
        """What was answered about records that are not synced."""
        self.carried: Carried
        states = GroupStates()
        self.records_at_start: list[bytes] = []
        for group in self.groups:
            _, record = states.open(group.group_id, True, 0)
            self.records_at_start.append(record)
        self.base: bytes | None = None
        self.events = 0
        """Events in the journal since the snapshot."""
        self.paused_until = 0.0
        self.answered = 0
        """Settlers that the core answered in this commit."""
        self._take_up(states, 0.0, restarted=False)

    def _take_up(self, states: GroupStates, now: float, *, restarted: bool) -> None:
        """A core begins; the first of a process finds nothing carried on, and groups that members have opened."""
        if not restarted:
            self.carried = Carried()
            for group in self.groups:
                self.carried.settings[group.group_id] = DeliverySettings(group.timeout_s, 0.5, 20.0)
        self.core = PartitionCore(
            states, self.carried, CoreOptions(label=self.path, limits=LIMITS), visible_end=self.visible_end
        )
        self.core.log_moved(0, self.visible_end, self.durable_end, now)
        for group in self.groups:
            group.delivery = states.groups[group.group_id].delivery
        self.due = NEVER
        self.core.begin(now, restarted=restarted)
        self.perform(now)

    # -- effects --------------------------------------------------------------------------------------------

    def perform(self, now: float) -> None:
        """Carry out what the core wants done."""
        core = self.core
        while core.effects:
            effects = core.deliveries.take_effects()
            effect: Any
            for effect in effects:
                kind = type(effect)
                if kind is ArmTimer:
                    self.due = min(self.due, effect.at)
                elif kind is Journalled:
                    self.answered += len(effect.answers)
                    for pending in effect.leases:
                        self._read(pending, now)
                elif kind is AppendsStored:
                    self._stored(effect.appends, effect.base_offsets)
                elif kind is AppendsFailed:
                    _fail(effect.appends)

    def _read(self, pending: PendingLease, now: float) -> None:
        """The log holds everything but its gaps."""
        reading = LeaseReading(pending.lease, pending.max_bytes)
        gaps_end = self.gaps[-1][1] if self.gaps else 0
        while (wanted := reading.wanted(0)) is not None:
            start, stop, _ = wanted
            found, at = [], start
            if start < gaps_end:
                for first, last in self.gaps:
                    if first <= at < last:
                        at = last
                    elif at < first < stop:
                        found.append(ModelSpan(at, first))
                        at = last
            if at < stop:
                found.append(ModelSpan(at, stop))
                at = stop
            reading.take(found, at)  # type: ignore[arg-type]
        for lost in reading.lost:
            for group in self.groups:
                group.ledger.lost(*lost)
        records = self.core.lease_read(pending, reading, now)
        self.deliveries[pending.group.group_id, pending.lease.lease_id] = pending, records

    @staticmethod
    def _stored(appends: Appends, base_offsets: Sequence[int]) -> None:
        for part, base in zip(appends.parts, base_offsets, strict=True):
            for offset, token in enumerate(part.tokens, base):
                if token is not None:
                    token.answer(offset)

    # -- commits --------------------------------------------------------------------------------------------

    def commit(self, now: float, wall_offset_s: float) -> int:
        """Write what waits, sync what wants it, tell everybody. Returns how many inputs that was."""
        core = self.core
        appends, work, pending = core.sequencer.take(), core.journal.take(), self.pending
        if appends is None and work is None and not pending:
            return 0
        records: list[Record] = []
        if work is not None:
            for entry in work.entries:
                if isinstance(entry, GroupEvents):  # the groups are opened before the first core
                    self.events += len(entry.events)
                    records.append((entry, wall_offset_s))
        crashes = self.crashes
        plan = self.plan = CommitUnderWay(appends, records, pending, work is not None and work.sync)
        self.pending = []
        self.passing("disk.write", self.path)
        if self.crashes != crashes:
            return 1
        if appends is not None and self.fails:
            self.fails -= 1
            plan.appends = None
            core.append_failed(appends, PublishFailed("the simulated disk refused"), refused=False)
            self.perform(now)
            appends = None
        if plan.sync or (appends is not None and appends.durable):
            self.passing("disk.sync", self.path)
            if self.crashes != crashes:
                return 1
        base, bases = self.visible_end, []
        self._plan_ended()
        if appends is not None:
            for batch in appends.batches:
                bases.append(base)
                base += batch.count
        core.log_moved(0, self.visible_end, self.durable_end, now, appends, bases)
        self.answered = 0
        if work is not None:
            core.journalled(work)
        self.perform(now)
        if work is not None and self.answered != len(work.answers):
            raise Violation("machines", f"{self.answered} of {len(work.answers)} settlers were answered")
        self._tell(plan.pending, now)
        if not plan.sync:
            self.told += plan.pending
        if self.events >= SNAPSHOT_EVERY:
            self._snapshot(now, wall_offset_s)
        return 1 + (0 if work is None else len(work.leases))

    def _tell(self, pending: Sequence[Pending], now: float) -> None:
        """Tell the ledgers, in order, what is written now; deliver what is still wanted."""
        deliveries, core = self.deliveries, self.core
        for kind, group, what in pending:
            if kind == LEASED:
                delivery = deliveries.pop((group.group_id, what[0]), None)
                if delivery is None:
                    raise Violation("machines", f"lease {what[0]} was journalled and not delivered")
                core.delivered(delivery[0])
                ranges = delivery[1].ranges
                if ranges:
                    group.ledger.deliver(what if ranges is what[1] else what._replace(ranges=ranges), now)
                    group.leased.append((what[0], tuple([row[:2] for row in ranges]), what[2]))
            elif kind == ACKED:
                group.ledger.synced(what)
            else:
                count(kind, group, what)
        if deliveries:
            for pending_lease, _ in deliveries.values():
                core.not_delivered(pending_lease, now)
            deliveries.clear()

    def _plan_ended(self, *, is_synced: bool = True) -> CommitUnderWay | None:
        """The plan under way is written: its records are visible, and durable if it was to sync, and has."""
        plan, self.plan = self.plan, None
        if plan is None:
            return None
        self.written += plan.records
        if plan.appends is not None:
            self.visible_end += plan.appends.records
            for group in self.groups:
                group.ledger.grow(self.visible_end)
        if is_synced and plan.sync:
            self.synced = len(self.written)
            self.told = []
        if is_synced and (plan.sync or (plan.appends is not None and plan.appends.durable)):
            # A journal's sync is preceded by the log's; the log's own proves nothing of the journal.
            self.durable_end = self.visible_end
        return plan

    def _snapshot(self, now: float, wall_offset_s: float) -> None:
        """The state in memory, synced, takes the place of all records; what waits to be written is in it."""
        covered = self.core.journal.take()
        self.base = self.core.states.snapshot(wall_offset_s)
        self.written, self.synced, self.told, self.events = [], 0, [], 0
        self.durable_end = self.visible_end
        self.core.log_moved(0, self.visible_end, self.durable_end, now)
        if covered is not None:
            self.core.journalled(covered)
            self.perform(now)

    # -- ends and beginnings --------------------------------------------------------------------------------

    def crash(self) -> None:
        """The actor is gone. Its plan under way runs to its end, but is not reported."""
        self.is_up = False
        self.crashes += 1
        plan = self._plan_ended()
        if plan is not None:
            if plan.appends is not None:
                _fail(plan.appends)
            for kind, group, what in plan.pending:
                if kind == LEASED:
                    self.undelivered.append((kind, group, what))
                elif kind != ACKED:
                    count(kind, group, what)
                    if not plan.sync:
                        self.told.append((kind, group, what))
        self.undelivered += [entry for entry in self.pending if entry[0] == LEASED]
        self.unwritten += [
            entry for entry in self.pending if entry[0] in (ACKED, RAN_OUT, VOIDED, *HANDED_BACK)
        ]
        while (waiting := self.core.sequencer.take()) is not None:
            _fail(waiting)
        self.core.end()
        self.deliveries.clear()
        self.pending = []

    def recover(self, now: float, wall_offset_s: float) -> None:
        """A new incarnation of the same process: leases live on, the unheard is released.

        Nacks are made again, what ran out runs out again, and leases of an earlier process end again.
        """
        self._take_up(self._rebuilt(wall_offset_s), now, restarted=True)
        for _, group, lease in self.undelivered:
            self.pending.append((RELEASED, group, tuple([row[:2] for row in lease.ranges])))
        self.pending += [entry for entry in self.unwritten if entry[0] in (NACKED, RAN_OUT, VOIDED)]
        for kind, group, what in self.unwritten:
            if kind == NACKED_LATE:
                group.ledger.loosen(what, 1)
        self.unwritten = [entry for entry in self.unwritten if entry[0] in (ACKED, RELEASED)]
        self.undelivered = []
        self.is_up = True

    def end_process(self, surviving: Surviving | None = None) -> None:
        """The process is killed; or power is gone, and of what was written and not synced a beginning is `surviving`.

        No consumer and no publisher is left. What cannot be known any more goes to the ledgers.
        """
        plan = self._plan_ended(is_synced=False)
        if plan is not None:
            self.pending += plan.pending
        kept = len(self.written)
        if surviving is not None:
            kept = self.synced + surviving(kept - self.synced)
        self.is_up = False
        self.crashes += 1
        lost = leases_in(self.written[kept:])
        for kind, group, what in (*self.pending, *self.undelivered, *self.unwritten):
            if kind in (LEASED, RAN_OUT):
                group.ledger.loosen(what.ranges, 1)
            elif kind != VOIDED:
                group.ledger.loosen(what, 1)
        for kind, group, what in self.told:
            if kind == RAN_OUT:
                group.ledger.loosen(what.ranges, 0)
            elif kind in HANDED_BACK:
                group.ledger.loosen(what, kind != NACKED)
        for group in self.groups:
            group.ledger.ended(lost.get(group.group_id, frozenset()))
            group.leased.clear()
        self.told, self.pending, self.undelivered, self.unwritten = [], [], [], []
        self.deliveries.clear()
        self.heard = self.asked
        if surviving is not None:
            del self.written[kept:]
            # What the power has left is on the disk: another cut takes nothing more of it.
            self.synced = kept
            self.visible_end = self.durable_end = self.durable_end + surviving(
                self.visible_end - self.durable_end
            )

    def reopen(self, now: float, wall_offset_s: float, *, mark: int) -> None:
        """The first incarnation of a new process. `mark` is how far the `committed` file says that readers saw."""
        states = self._rebuilt(wall_offset_s)
        end = self.visible_end
        top = max(end, states.named_end(), mark)
        if end < top:
            self.gaps.append((end, top))
        self.visible_end = self.durable_end = self.answered_end = top
        self.synced = len(self.written)
        for group in self.groups:
            group.ledger.grow(top)
            group.ledger.cut(top)
            self.pending.append((VOIDED, group, None))
        self._take_up(states, now, restarted=False)
        self.is_up = True

    def _rebuilt(self, wall_offset_s: float) -> GroupStates:
        """Replay the journal, by the bytes that production writes."""
        states = GroupStates(wall_offset_s)
        if self.base is None:
            for record in self.records_at_start:
                states.apply(record)
        else:
            states.restore(self.base)
        for entry, offset_s in self.written:
            states.apply(entry.record(offset_s))
        return states

    def check(self) -> None:
        """Conservation, in every group."""
        for group in self.groups:
            group.ledger.check(group.delivery, self.visible_end)
            group.ledger.prune()


def count(kind: int, group: GroupModel, what: Any) -> None:
    """Tell the ledger what is written now."""
    if kind == RAN_OUT:
        group.ledger.ran_out(what)
    elif kind == NACKED:
        group.ledger.attempts_counted(what)
    elif kind == VOIDED:
        group.ledger.voided()


def leases_in(records: Sequence[Record]) -> dict[int, set[int]]:
    """The leases that begin in `records`, by group."""
    found: dict[int, set[int]] = {}
    for entry, _ in records:
        found.setdefault(entry.group_id, set()).update(
            event.lease_id for event in entry.events if isinstance(event, LeaseEvent)
        )
    return found


def _fail(appends: Appends) -> None:
    """Tell every publisher that it failed."""
    for part in appends.parts:
        for token in part.tokens:
            if token is not None:
                token.fail()
