"""The fast path driver: partitions, their supervisor, publishers and consumers of one drive, and the loop of turns.

Each turn draws 32 bits: some move the clock, some choose an operation, the rest decide its particulars. How often each
happens is drawn per seed, and so is what faults there are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from itertools import chain, repeat
from typing import Any, Final

from callboard.actors.delivery.receipts import OffsetRange
from callboard.actors.partition.commands import (
    Ack,
    Extend,
    Fetch,
    Level,
    Nack,
    PublishMany,
    PublishOne,
    Release,
    ReleaseConsumer,
)
from callboard.log.format.columns import Columns
from callboard.simulations.checkers import liveness, short_steps
from callboard.simulations.entropy import SeededEntropy
from callboard.simulations.machines.partition_model import (
    ACKED,
    LEASED,
    NACKED,
    NACKED_LATE,
    RAN_OUT,
    RELEASED,
    STEP_LEASES,
    ConsumerLease,
    GroupModel,
    PartitionModel,
    WaitingPublisher,
)
from callboard.simulations.machines.strikes import Strike, draw_strikes, strikes_of
from callboard.simulations.machines.tree import Tree
from callboard.simulations.violations import Violation

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
CHECK_EVERY: Final = 256
ROUNDS_MAX: Final = 400
DRAIN_RECORDS: Final = 1_000
IDLE_TURNS_MAX: Final = 50
"""Turns per event, when hardly anything can be done."""
PACES: Final = (0.02, 0.1, 0.3, 1.0)
"""How fast time passes, drawn per seed: whether leases mostly last or mostly run out."""
STEPS_S: Final = (0.0,) * 24 + (0.001, 0.004, 0.01, 0.02, 0.05, 0.1, 0.2, 0.6)


class FastPathDriver:
    """The state of one drive."""

    def __init__(self, seed: int, events: int, plan: Any) -> None:
        self.seed = seed
        entropy = SeededEntropy(seed).fork("machines")
        chunks = (memoryview(entropy.bytes(4096)).cast("I") for _ in repeat(None))
        self.draw: Callable[[], int] = chain.from_iterable(chunks).__next__
        self.limit = events
        self.events = 0
        self.now = 0.0
        self.due = 0.0
        self.wall_offset_s = 1.7e9
        self.trace: list[int] = []
        self.agenda: list[tuple[float, int, Callable[[float], None]]] = []
        self._numbers = 0
        self.hits: dict[int, int] = {}
        self.triggers: dict[str, list[tuple[int, int, Strike]]] = {}
        bits = self.draw()
        count, groups = 1 + bits % 3, 1 + (bits >> 2) % 2
        self.consumers = 1 + (bits >> 4) % 4
        self.is_orderly = bool(bits & 0x1000)
        pace = PACES[bits >> 10 & 3]
        self.steps = tuple(step * pace for step in STEPS_S)
        timeout_s = (2.0, 10.0, 30.0, 30.0)[(bits >> 8) & 3]
        self.partitions = [
            PartitionModel(
                f"topics/simulated/{number}",
                [GroupModel(group_id, timeout_s) for group_id in range(1, groups + 1)],
                self.passing,
            )
            for number in range(count)
        ]
        self.by_path = {partition.path: partition for partition in self.partitions}
        self.pairs = [(partition, group) for partition in self.partitions for group in partition.groups]
        self.fresh = set(self.by_path)
        """Partitions that have not begun in this process."""
        self.marks: dict[str, int] = {}
        self.is_dark = self.is_healed = False
        self.operations = self._draw_operations()
        self.tree = Tree(list(self.by_path), self.draw, self.at, start=self._starts, stop=self._stops)
        strikes = draw_strikes(self.draw, events) if plan is None else strikes_of(plan)
        for index, strike in strikes:
            if strike.probe:
                self.triggers.setdefault(strike.probe, []).append((index, strike.count, strike))
            else:
                self.at(strike.at_s, partial(self._strike, index, strike))

    def _draw_operations(self) -> list[Callable[[int], int]]:
        table: list[Callable[[int], int]] = []
        for name, share in OPERATIONS:
            mood = self.draw() & 15
            optional = name not in ("publish_many", "fetch", "ack", "commit")
            times = 0 if optional and mood < 7 else share * 3 if mood > 13 else share
            table += [getattr(self, name)] * times
        return table

    # -- the loop -------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Turn after turn, until this many events have happened."""
        self.tree.open(0.0)
        draw, operations, limit, steps = self.draw, self.operations, self.limit, self.steps
        count = len(operations)
        next_check = CHECK_EVERY
        for _ in range(limit * IDLE_TURNS_MAX):
            bits = draw()
            now = self.now = self.now + steps[bits & 31]
            if now >= self.due:
                self.on_time()
            done = operations[(bits >> 5 & 0x7FF) % count](bits >> 16)
            if not done and self.is_dark:
                self.now = max(now, self.due)
            self.events = events = self.events + done
            if events >= next_check:
                self.check()
                next_check = events + CHECK_EVERY
                if events >= limit:
                    return

    def on_time(self) -> None:
        """Everything whose time has come, and when the next thing will."""
        now, agenda = self.now, self.agenda
        while agenda and agenda[0][0] <= now:
            heappop(agenda)[2](now)
        due = float("inf")
        if not self.is_dark:
            self.tree.carry_out(now)
            for partition in self.partitions:
                if not partition.is_up:
                    continue
                if partition.due <= now:
                    self.events += 1
                    partition.due = float("inf")
                    ran_out = partition.core.time_has_come(now)
                    if words := short_steps.too_many((group_id for group_id, _ in ran_out), STEP_LEASES):
                        raise Violation(short_steps.PROMISE, f"{partition.path}: {words}")
                    for group_id, lease in ran_out:
                        partition.pending.append((RAN_OUT, partition.by_id[group_id], lease))
                        self.trace.append(RAN_OUT_CODE | lease.lease_id << 8)
                    partition.perform(now)
                if partition.due < due:
                    due = partition.due
            due = min(due, self.tree.roster.wake_at(now))
        if agenda:
            due = min(due, agenda[0][0])
        self.due = due

    def at(self, at_s: float, operation: Callable[[float], None]) -> None:
        """Schedule `operation` at an instant."""
        self._numbers += 1
        heappush(self.agenda, (at_s, self._numbers, operation))
        if at_s < self.due:
            self.due = at_s

    def check(self) -> None:
        for partition in self.partitions:
            if partition.is_up:
                partition.check()

    # -- operations: one draw of 32 bits each; how many inputs they gave to state machines ------------------

    def publish(self, bits: int) -> int:
        """Some records, one at a time."""
        partition = self.partitions[bits % len(self.partitions)]
        if not partition.is_up:
            return 0
        burst = BURSTS[bits >> 8 & 7]
        publish_one, message = partition.core.publish_one, MESSAGES[bits >> 4 & 7]
        for _ in range(burst):
            publish_one(message, WaitingPublisher(partition))
        self.trace.append(burst << 8)
        if "publish" in self.triggers:
            for _ in range(burst):
                self.passing("publish", partition.path)
        return burst

    def publish_many(self, bits: int) -> int:
        """A batch, unless consumers are far behind."""
        partition = self.partitions[bits % len(self.partitions)]
        if (
            not partition.is_up
            or partition.visible_end - partition.groups[0].delivery.offsets.floor > BACKLOG_MAX
        ):
            return 0
        partition.core.publish_many(MANY[(bits >> 4) % len(MANY)], WaitingPublisher(partition))
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
        """This many fetches of this many records each, while there are any."""
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
        self._perform(partition)
        return done

    def ack(self, bits: int) -> int:
        """Done with some. Mostly the oldest first, and all that was handed over together."""
        pairs = self.pairs
        partition, group = pairs[bits % len(pairs)]
        leased = group.leased
        if not leased or not partition.is_up:
            return self.fetch(bits)
        trace, is_watched = self.trace, "ack" in self.triggers
        is_orderly = self.is_orderly or bits & 0xE000
        burst = min(BURSTS[bits >> 10 & 7], len(leased))
        for done in range(burst):
            if is_orderly:
                lease_id, ranges, _ = leased.popleft()
            else:
                lease_id, ranges = self._some_of(leased, bits + (done << 4))
            self._ack(partition, group, lease_id, ranges)
            trace.append(3 | lease_id << 8)
            if is_watched:
                self.passing("ack", partition.path)
                if not partition.is_up:
                    return done + 1
        return burst

    def _ack(
        self, partition: PartitionModel, group: GroupModel, lease_id: int, ranges: tuple[OffsetRange, ...]
    ) -> None:
        now, ledger = self.now, group.ledger
        accepted, lost = partition.core.ack(  # type: ignore[misc]
            Ack(group.group_id, lease_id, ranges), partition, now
        )
        if lost:
            ledger.refused(lease_id, lost, now)
        ledger.asks(lease_id, ranges, settles=True)
        if accepted:
            partition.pending.append((ACKED, group, accepted))

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

    def nack(self, bits: int) -> int:
        """Not now: another attempt, perhaps later, perhaps when the group's settings say."""
        return self._hand_back(bits, is_nack=True)

    def release(self, bits: int) -> int:
        """Unhandled: as if it had never been leased."""
        return self._hand_back(bits, is_nack=False)

    def _hand_back(self, bits: int, *, is_nack: bool) -> int:
        partition, group = self.pairs[bits % len(self.pairs)]
        if not group.leased or not partition.is_up:
            return 0
        lease_id, ranges = self._some_of(group.leased, bits)
        # A late nack counts no attempt: it was counted when the lease ran out.
        is_counted = is_nack and group.delivery.offsets.lease_of(lease_id) is not None
        core, now = partition.core, self.now
        if is_nack:
            nack = Nack(group.group_id, lease_id, ranges, DELAYS_S[bits >> 8 & 3])
            settlement = core.nack(nack, partition, now, (lease_id & 7) / 8)
        else:
            settlement = core.release(Release(group.group_id, lease_id, ranges), partition, now)
        accepted, lost = settlement  # type: ignore[misc]
        self._perform(partition)
        if lost:
            group.ledger.refused(lease_id, lost, self.now)
        group.ledger.asks(lease_id, ranges)
        if accepted:
            nacked = NACKED if is_counted else NACKED_LATE
            partition.pending.append((nacked if is_nack else RELEASED, group, accepted))
        self.trace.append((4 if is_nack else 5) | lease_id << 8)
        if is_nack and "nack" in self.triggers:
            self.passing("nack", partition.path)
        return 1

    def extend(self, bits: int) -> int:
        """More time, or less."""
        partition, group = self.pairs[bits % len(self.pairs)]
        leased = group.leased
        if not leased or not partition.is_up:
            return 0
        lease_id = leased[(bits >> 4) % len(leased)][0]
        seconds = group.timeout_s * (0.25, 0.5, 1.0, 4.0)[bits >> 12 & 3]
        kept = partition.core.extend(Extend(group.group_id, lease_id, seconds), None, self.now)
        self._perform(partition)
        if kept:
            group.ledger.extended(lease_id, self.now + seconds)
        self.trace.append(6 | kept << 4 | lease_id << 8)
        return 1

    def forget(self, bits: int) -> int:
        """A consumer never settles what it has leased."""
        partition, group = self.pairs[bits % len(self.pairs)]
        if not group.leased or not partition.is_up:
            return 0
        self._some_of(group.leased, bits)
        return 1

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
        self.due = min(self.due, self.tree.roster.wake_at(self.now))
        return max(done, self.tree.events - before)

    def _perform(self, partition: PartitionModel) -> None:
        """Carry out what a core wants done, and note when it wants to hear of the time."""
        partition.perform(self.now)
        if partition.due < self.due:
            self.due = partition.due

    # -- lives ----------------------------------------------------------------------------------------------

    def _starts(self, path: str, now: float) -> None:
        """A partition begins a life, by the supervisor's will."""
        partition = self.by_path[path]
        if path in self.fresh:
            self.fresh.discard(path)
            partition.reopen(now, self.wall_offset_s, mark=self.marks.get(path, 0))
        else:
            partition.recover(now, self.wall_offset_s)
        self.due = now

    def _stops(self, path: str, now: float) -> None:
        """A partition ends in good order: it writes what waits first."""
        partition = self.by_path[path]
        if partition.is_up:
            partition.commit(now, self.wall_offset_s)
        if partition.is_up:
            partition.crash()

    def _crash(self, partition: PartitionModel) -> bool:
        if not partition.is_up:
            return False
        partition.crash()
        self.tree.end(partition.path, "crashed", self.now)
        self.due = self.now
        return True

    def _end_process(self, strike: Strike) -> bool:
        if self.is_dark:
            return False
        self.is_dark = True
        survivors = SeededEntropy(strike.draw)

        def surviving(count: int) -> int:
            return int(survivors.random() * (count + 1))

        self.fresh = set(self.by_path)
        for partition in self.partitions:
            self.marks[partition.path] = partition.visible_end
            durable_end = partition.durable_end
            if strike.kind == "kill":
                partition.end_process()
            else:
                partition.end_process(surviving)
                if survivors.random() < 0.5:
                    self.marks[partition.path] = durable_end
        self.tree.begin()
        self.at(self.now + max(0.0, strike.seconds if strike.seconds < 3600 else 1.0), self._light)
        return True

    def _light(self, now: float) -> None:
        self.is_dark = False
        self.tree.open(now)

    # -- faults ---------------------------------------------------------------------------------------------

    def passing(self, probe: str, subject: str) -> None:
        """A probe is passed: whatever waits for it strikes."""
        passed = [
            (index, left - (strike.about in subject), strike)
            for index, left, strike in self.triggers.pop(probe, ())
        ]
        waiting = [waits for waits in passed if waits[1] > 0]
        if waiting:
            self.triggers[probe] = waiting
        for index, left, strike in passed:
            if left <= 0:
                self._strike(index, strike)

    def _strike(self, index: int, strike: Strike, _now: float = 0.0) -> None:
        if self.is_healed:
            return
        self.trace.append(STRIKE_CODE | index << 8)
        matching = [
            partition for partition in self.partitions if strike.path and strike.path in partition.path
        ]
        partition = matching[0] if matching else self.partitions[strike.choose(len(self.partitions))]
        if strike.kind == "crash":
            hit = self._crash(partition)
        elif strike.kind in ("power", "kill"):
            hit = self._end_process(strike)
        elif strike.kind == "jump":
            hit = True
            self.wall_offset_s += strike.seconds
            for _, group in self.pairs:
                group.ledger.delayed.clear()
        elif strike.kind == "consumer":
            hit = self._consumer_crashes(strike.choose(self.consumers))
        elif strike.kind == "pause":
            hit = partition.is_up
            partition.paused_until = self.now + min(abs(strike.seconds), 60.0)
        else:
            hit = True
            partition.fails += 1
        self.hits[index] = self.hits.get(index, 0) + hit

    def _consumer_crashes(self, consumer: int) -> bool:
        """What the consumer holds is released, and what it was about to get."""
        held = 0
        for partition, group in self.pairs:
            if not partition.is_up:
                continue
            ledger = group.ledger
            self._give_back(partition, group, consumer)
            for lease_id, claim in tuple(ledger.claims.items()):
                if claim[2] == consumer:
                    ledger.gives_up(lease_id)
                    partition.pending.append((RELEASED, group, claim[1]))
                    held += 1
            # Of a plan under way the leases are written; the release goes into the next one.
            plan = partition.plan
            for pending in (plan.pending if plan is not None else [], partition.pending):
                for at, (kind, where, what) in enumerate(pending):
                    if kind == LEASED and where is group and what.consumer == consumer:
                        pending[at] = (RELEASED, group, what.ranges)
                        if pending is not partition.pending:
                            partition.pending.append(pending[at])
            group.leased = deque(lease for lease in group.leased if lease[2] != consumer)
        return held > 0

    def _give_back(self, partition: PartitionModel, group: GroupModel, consumer: int) -> None:
        """A consumer leaves, and what it had is given back, step by step."""
        core, delivery, now = partition.core, group.delivery, self.now
        before = len(delivery.events)
        core.members.release_consumer(ReleaseConsumer(group.group_id, consumer), None, now)
        while True:
            if words := short_steps.too_many_given_back(delivery.events[before:], STEP_LEASES):
                raise Violation(short_steps.PROMISE, f"{partition.path}: {words}")
            if not core.states.groups[group.group_id].releases:
                break
            before = len(delivery.events)
            core.members.release_some(core.states.groups[group.group_id], now)
        partition.perform(now)

    # -- the end --------------------------------------------------------------------------------------------

    def drain(self) -> None:
        """Heal everything; then all that was published is settled, in this many rounds."""
        self.triggers.clear()
        self.is_healed = True
        for partition in self.partitions:
            partition.fails, partition.paused_until = 0, 0.0
        for _ in range(ROUNDS_MAX):
            self.on_time()
            for partition, group in self.pairs:
                while partition.is_up and (leased := group.leased):
                    lease_id, ranges, _ = leased.popleft()
                    self._ack(partition, group, lease_id, ranges)
                    self.events += 1
                if partition.is_up:
                    self.fetch_from(partition, group, 0, DRAIN_RECORDS, 1)
            for partition in self.partitions:
                if partition.is_up:
                    partition.commit(self.now, self.wall_offset_s)
            self.check()
            if all(partition.is_up for partition in self.partitions) and not self._unsettled():
                return
            if not any(group.leased and partition.is_up for partition, group in self.pairs):
                self.on_time()
                self.now = max(self.now + 1.0, min(self.due, self.now + 1e6))
        raise Violation(
            liveness.PROMISE, f"{self._unsettled()} messages are not settled after {ROUNDS_MAX} rounds"
        )

    def _unsettled(self) -> int:
        return sum(
            group.delivery.offsets.pending_count(partition.visible_end) + partition.core.sequencer.records
            for partition, group in self.pairs
        )
