"""One partition without its tasks: sequencer, groups and journal as the partition actor and its committer use them.

Three memories of different lives, as in production:

- the *incarnation*: deliveries, sequencer, what waits for the next commit. Gone when the actor crashes.
- the *process*: what was written, the orphaned grants, the consumers. Gone when the process is killed.
- the *disk*: what was synced, and of what was only written whatever the power leaves.

A commit writes and syncs in two steps, with a probe before each, so that a fault can fall between them: "disk.write"
and "disk.sync", about the path of the partition. What waits for a commit is a list of *tidings*, told in order when it
has been written: hand-overs, answers, and what the ledger has to know.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from callboard.actors.delivery.delivery import Delivery
from callboard.actors.delivery.events import Event
from callboard.actors.delivery.receipts import Grant, OffsetRange
from callboard.actors.partition.group_states import GroupStates, events_record
from callboard.actors.partition.sequencer import Commit, Sequencer
from callboard.log.errors import ActorCrashed, PublishFailed
from callboard.simulations.checkers import offsets
from callboard.simulations.machines.ledger import Ledger
from callboard.simulations.violations import Violation

__all__ = ["Asked", "Circle", "Place", "Surviving"]

SNAPSHOT_EVERY: Final = 256
"""Journal events after which a snapshot shortens the next rebuilding."""

LEASED: Final = 0
ACKED: Final = 1
NACKED: Final = 2
RAN_OUT: Final = 3
RELEASED: Final = 4
VOIDED: Final = 5

Tiding = tuple[int, "Circle", Any]
"""(what, where, the grant or the ranges)"""

Hand = tuple[int, tuple[OffsetRange, ...], int]
"""(lease, ranges, consumer)"""

Record = tuple[int, list[Event], float]
"""A journal record: group, events, and wall minus monotonic time when it was made."""

Surviving = Callable[[int], int]
"""How many of so many unsynced things in a row the power leaves."""


class Asked:
    """A publisher that waits for its offset."""

    __slots__ = ("number", "place")

    def __init__(self, place: Place) -> None:
        self.place = place
        self.number = place.asked
        place.asked += 1

    @property
    def done(self) -> bool:
        """Never looked at."""
        return False

    def answer(self, value: Any = None) -> bool:
        """The record has an offset: the order of asking is the order of offsets, and none is given twice."""
        place = self.place
        if self.number != place.heard or value < place.answered_end:
            raise Violation(
                offsets.PROMISE,
                f"{place.path}: publish {self.number} got offset {value}; publish {place.heard} was next, at "
                f"{place.answered_end} or above",
            )
        place.heard += 1
        place.answered_end = value + 1
        return True

    def fail(self, error: BaseException) -> bool:
        """The publish failed, in its turn."""
        place = self.place
        if self.number != place.heard:
            raise Violation(
                offsets.PROMISE, f"{place.path}: publish {self.number} failed before {place.heard}"
            )
        place.heard += 1
        return True


class Circle:
    """One group in one partition: its delivery, its ledger, and what its consumers have in hand."""

    __slots__ = ("delivery", "extended", "group_id", "hands", "ledger", "timeout_s")

    def __init__(self, group_id: int, timeout_s: float) -> None:
        self.group_id = group_id
        self.timeout_s = timeout_s
        self.ledger = Ledger()
        self.delivery: Delivery
        self.extended: dict[int, float] = {}
        """Until when leases were extended: a restart must not end them earlier."""
        self.hands: deque[Hand] = deque()
        """What will be settled, oldest first."""


class Place:
    """One partition. `passing` is called at each probe; it may crash this place under way."""

    def __init__(self, path: str, circles: Sequence[Circle], passing: Callable[[str, str], None]) -> None:
        self.path = path
        self.circles = list(circles)
        self.passing = passing
        self.life = 0
        """Grows with each end of an incarnation."""
        self.is_up = True
        self.fails = 0
        """Commits whose log sync will fail."""
        # the log
        self.visible_end = self.durable_end = 0
        self.gaps: list[OffsetRange] = []
        # publishers
        self.sequencer = Sequencer()
        self.asked = self.heard = self.answered_end = 0
        # what waits for the commit, and what is under way
        self.tidings: list[Tiding] = []
        self.sync = False
        self.commit_now: Commit | None = None
        self.tidings_now: list[Tiding] = []
        self.records_now: list[Record] = []
        self.sync_now = False
        self.under_way = False
        self.orphans: list[Tiding] = []
        """Of crashed incarnations: nobody has heard of them."""
        self.unwritten: list[Tiding] = []
        """Settlements that went down with an incarnation: their leases live on without an owner."""
        # the journal
        self.written: list[Record] = []
        self.synced = 0
        self.told: list[Tiding] = []
        """What was told of records that are not synced."""
        states = GroupStates()
        self.records_at_start: list[bytes] = []
        for circle in self.circles:
            group, record = states.open(circle.group_id, True, 0)
            circle.delivery = group.delivery
            self.records_at_start.append(record)
        self.states = states
        self.base: bytes | None = None
        self.events = 0
        """Events in the journal since the snapshot."""
        self.crashes = 0
        self.paused_until = 0.0

    # -- commits --------------------------------------------------------------------------------------------

    def commit(self, now: float, wall_offset_s: float) -> bool:
        """Write what waits, sync what wants it, tell everybody. False: there was nothing to do."""
        commit, tidings = self.sequencer.take(), self.tidings
        records: list[Record] = []
        for circle in self.circles:
            if circle.delivery.events:
                events = circle.delivery.take_events()
                self.events += len(events)
                records.append((circle.group_id, events, wall_offset_s))
        if commit is None and not records and not tidings:
            return False
        life = self.life
        self.commit_now, self.tidings_now, self.records_now = commit, tidings, records
        self.tidings, self.sync_now, self.sync, self.under_way = [], self.sync, False, True
        self.passing("disk.write", self.path)
        if self.life != life:
            return True
        if commit is not None and self.fails:
            self.fails -= 1
            self.commit_now = None
            commit.fail(PublishFailed("the simulated disk refused"))
        if self.sync_now or (commit is not None and commit.durable):
            self.passing("disk.sync", self.path)
            if self.life != life:
                return True
        commit, tidings = self.commit_now, self.tidings_now
        base = self.visible_end
        self._plan_ended()
        if commit is not None:
            bases = []
            for batch in commit.batches:
                bases.append(base)
                base += batch.count
            commit.answer(bases)
        for kind, circle, what in tidings:
            if kind == LEASED:
                self._hand_over(circle, what, now)
            elif kind == ACKED:
                circle.ledger.synced(what)
            else:
                count(kind, circle, what)
        if not self.sync_now:
            self.told += tidings
        if self.events >= SNAPSHOT_EVERY:
            self._snapshot(wall_offset_s)
        return True

    def _plan_ended(self) -> None:
        """The plan under way has run to its end: its records are visible, and durable when it was to sync."""
        commit, sync = self.commit_now, self.sync_now
        self.under_way, self.commit_now, self.tidings_now = False, None, []
        self.written += self.records_now
        self.records_now = []
        if commit is not None:
            self.visible_end += commit.records
            for circle in self.circles:
                circle.ledger.grow(self.visible_end)
        if sync:
            self.synced = len(self.written)
            self.told = []
        if sync or (commit is not None and commit.durable):
            # A journal's sync is preceded by the log's; the log's own proves nothing of the journal.
            self.durable_end = self.visible_end

    def _snapshot(self, wall_offset_s: float) -> None:
        """The state in memory, synced, takes the place of all records; what waits to be written is in it."""
        for circle in self.circles:
            circle.delivery.take_events()
        self.base = self.states.snapshot(wall_offset_s)
        self.written, self.synced, self.told, self.events = [], 0, [], 0
        self.durable_end = self.visible_end

    # -- handing over ---------------------------------------------------------------------------------------

    def _hand_over(self, circle: Circle, grant: Grant, now: float) -> None:
        if self.gaps and grant.ranges[0][0] < self.gaps[-1][1]:
            left = self._without_gaps(circle, grant)
            if left is None:
                return
            grant = left
        circle.ledger.hand_over(grant, now)
        circle.hands.append((grant[0], tuple([row[:2] for row in grant[1]]), grant[2]))

    def _without_gaps(self, circle: Circle, grant: Grant) -> Grant | None:
        """Where the log holds nothing, the floor is settled; None when that was all of the grant."""
        for start, stop in self.gaps:
            for row in grant.ranges:
                first, last = max(start, row[0]), min(stop, row[1])
                if first < last:
                    circle.ledger.lost(first, last)
                    circle.delivery.skip(first, last)
        return circle.delivery.grant_of(grant.lease_id)

    # -- ends and beginnings --------------------------------------------------------------------------------

    def crash(self) -> None:
        """The actor is gone. Its plan under way runs to its end, but nobody hears of it."""
        self.life += 1
        self.is_up = False
        self.crashes += 1
        error = ActorCrashed("crashed by the plan", path=self.path)
        if self.under_way:
            commit, tidings, sync = self.commit_now, self.tidings_now, self.sync_now
            self._plan_ended()
            if commit is not None:
                commit.fail(error)
            for kind, circle, what in tidings:
                if kind == LEASED:
                    self.orphans.append((kind, circle, what))
                elif kind != ACKED:
                    count(kind, circle, what)
                    if not sync:
                        self.told.append((kind, circle, what))
        self.orphans += [tiding for tiding in self.tidings if tiding[0] == LEASED]
        self.unwritten += [tiding for tiding in self.tidings if tiding[0] in (ACKED, NACKED, RELEASED)]
        while (waiting := self.sequencer.take()) is not None:
            waiting.fail(error)
        self.tidings, self.sync = [], False

    def recover(self, now: float, wall_offset_s: float) -> None:
        """A new incarnation of the same process: leases live on, what nobody heard of is released."""
        self._rebuild(wall_offset_s)
        for circle in self.circles:
            circle.delivery.renew_all(now, circle.timeout_s)
            for lease_id, deadline in circle.extended.items():
                if deadline > now + circle.timeout_s:
                    circle.delivery.extend(lease_id, deadline, now)
        for _, circle, grant in self.orphans:
            ranges = tuple([row[:2] for row in grant.ranges])
            circle.delivery.release(grant.lease_id, ranges, now)
            self.tidings.append((RELEASED, circle, ranges))
        self.orphans = []
        self.is_up = True

    def lose_power(self, surviving: Surviving) -> None:
        """Power is gone: of what was written and not synced, a beginning survives."""
        self._stop_plan()
        kept = self.synced + surviving(len(self.written) - self.synced)
        self._end_process(kept)
        del self.written[kept:]
        # What the power has left is on the disk: another cut takes nothing more of it.
        self.synced = len(self.written)
        self.visible_end = self.durable_end = self.durable_end + surviving(
            self.visible_end - self.durable_end
        )

    def kill(self) -> None:
        """The process is gone; what it had written is not."""
        self._stop_plan()
        self._end_process(len(self.written))

    def _stop_plan(self) -> None:
        """The plan under way was written, not synced, and nobody hears of it."""
        if self.under_way:
            unheard = self.tidings_now
            durable_end = self.durable_end
            self.sync_now = False
            self._plan_ended()
            self.durable_end = durable_end
            self.tidings += unheard

    def _end_process(self, kept: int) -> None:
        """No consumer and no publisher is left. What nobody can know any more, the ledgers are told."""
        self.life += 1
        self.is_up = False
        self.crashes += 1
        lost = leases_in(self.written[kept:])
        for kind, circle, what in (*self.tidings, *self.orphans, *self.unwritten):
            if kind in (LEASED, RAN_OUT):
                circle.ledger.loosen(what.ranges, 1)
            elif kind != VOIDED:
                circle.ledger.loosen(what, 1)
        for kind, circle, what in self.told:
            if kind == RAN_OUT:
                circle.ledger.loosen(what.ranges, 0)
            elif kind in (NACKED, RELEASED):
                circle.ledger.loosen(what, kind == RELEASED)
        for circle in self.circles:
            circle.ledger.ended(lost.get(circle.group_id, frozenset()))
            circle.hands.clear()
            circle.extended.clear()
        self.told, self.tidings, self.orphans, self.unwritten, self.sync = [], [], [], [], False
        self.sequencer = Sequencer()
        self.heard = self.asked

    def reopen(self, wall_offset_s: float, *, mark: int) -> None:
        """The first incarnation of a new process. `mark` is how far the `committed` file says that readers saw."""
        self._rebuild(wall_offset_s)
        end = self.visible_end
        top = max(end, self.states.named_end(), mark)
        if end < top:
            self.gaps.append((end, top))
        self.visible_end = self.durable_end = self.answered_end = top
        self.synced = len(self.written)
        for circle in self.circles:
            circle.ledger.grow(top)
            circle.ledger.cut(top)
            circle.delivery.void_all_leases()
            self.tidings.append((VOIDED, circle, None))
        self.is_up = True

    def _rebuild(self, wall_offset_s: float) -> None:
        """Replay the journal, by the bytes that production writes."""
        states = GroupStates(wall_offset_s)
        if self.base is None:
            for record in self.records_at_start:
                states.apply(record)
        else:
            states.restore(self.base)
        for group_id, events, offset_s in self.written:
            states.apply(events_record(group_id, events, offset_s))
        for circle in self.circles:
            circle.delivery = states.groups[circle.group_id].delivery
        self.states = states

    def check(self) -> None:
        """Conservation, in every group."""
        for circle in self.circles:
            circle.ledger.check(circle.delivery, self.visible_end)


def count(kind: int, circle: Circle, what: Any) -> None:
    """Tell the ledger what is written now."""
    if kind == RAN_OUT:
        circle.ledger.ran_out(what)
    elif kind == NACKED:
        circle.ledger.attempts_counted(what)
    elif kind == VOIDED:
        circle.ledger.voided()


def leases_in(records: Sequence[Record]) -> dict[int, set[int]]:
    """The leases granted in `records`, by group."""
    found: dict[int, set[int]] = {}
    for group_id, events, _ in records:
        found.setdefault(group_id, set()).update(event[1] for event in events if event[0] == "L")
    return found
