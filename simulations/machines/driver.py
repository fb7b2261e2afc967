"""The fast path driver: partitions, their supervisor, publishers and consumers of one drive, and the loop of turns.

Each turn draws 32 bits: some move the clock, some choose an operation, the rest decide its particulars. How often each
happens is drawn per seed, and so is what faults there are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import chain, repeat
from typing import Any, Final

from callboard.actors.partition.commands import ReleaseConsumer, Settle
from callboard.simulations.checkers import liveness
from callboard.simulations.entropy import SeededEntropy
from callboard.simulations.machines.operations import (
    OPERATIONS,
    RAN_OUT_CODE,
    STRIKE_CODE,
    FastpathOperations,
)
from callboard.simulations.machines.partition_model import (
    ACKED,
    LEASED,
    RAN_OUT,
    RELEASED,
    GroupModel,
    PartitionModel,
)
from callboard.simulations.machines.strikes import Strike, draw_strikes, strikes_of
from callboard.simulations.machines.tree import Tree
from callboard.simulations.violations import Violation

CHECK_EVERY: Final = 256
ROUNDS_MAX: Final = 400
DRAIN_RECORDS: Final = 1_000
IDLE_TURNS_MAX: Final = 50
"""Turns per event, when hardly anything can be done."""
PACES: Final = (0.02, 0.1, 0.3, 1.0)
"""How fast time passes, drawn per seed: whether leases mostly last or mostly run out."""
STEPS_S: Final = (0.0,) * 24 + (0.001, 0.004, 0.01, 0.02, 0.05, 0.1, 0.2, 0.6)


class FastPathDriver(FastpathOperations):
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
        for partition in self.partitions:
            partition.is_up = False
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
                self.at(strike.at_s, self._striking(index, strike))

    def _striking(self, index: int, strike: Strike) -> Callable[[float], None]:
        def strikes(_: float) -> None:
            if not self.is_healed:
                self._strike(index, strike)

        return strikes

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
        """Turn after turn, until so many events have happened."""
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
                    for group_id, lease in partition.core.time_has_come(now):
                        partition.pending.append((RAN_OUT, partition.by_id[group_id], lease))
                        self.trace.append(RAN_OUT_CODE | lease.lease_id << 8)
                    partition.perform(now)
                if partition.due < due:
                    due = partition.due
            due = min(due, self.tree.wake_at(now))
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
        """Check the rules that hold at any time."""
        for partition in self.partitions:
            if partition.is_up:
                partition.check()
                for group in partition.groups:
                    group.ledger.prune()

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
        self.tree.crash(partition.path, self.now)
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
            if strike.kind == "kill":
                partition.kill()
            else:
                durable_end = partition.durable_end
                partition.lose_power(surviving)
                if survivors.random() < 0.5:
                    self.marks[partition.path] = durable_end
        self.tree.power_lost()
        self.at(self.now + max(0.0, strike.seconds if strike.seconds < 3600 else 1.0), self._light)
        return True

    def _light(self, now: float) -> None:
        self.is_dark = False
        self.tree.open(now)

    # -- faults ---------------------------------------------------------------------------------------------

    def passing(self, probe: str, subject: str) -> None:
        """A probe is passed: whatever waits for it strikes."""
        waiting = self.triggers.get(probe)
        if not waiting:
            return
        struck = []
        for partition, (index, left, strike) in enumerate(waiting):
            if strike.about in subject:
                waiting[partition] = (index, left - 1, strike)
                if left <= 1:
                    struck.append((index, strike))
        if struck:
            self.triggers[probe] = [waits for waits in waiting if waits[1] > 0]
            if not self.triggers[probe]:
                del self.triggers[probe]
            for index, strike in struck:
                self._strike(index, strike)

    def _strike(self, index: int, strike: Strike) -> None:
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
            partition.core.release_consumer(ReleaseConsumer(group.group_id, consumer), None, self.now)
            partition.perform(self.now)
            for lease_id, claim in tuple(ledger.claims.items()):
                if claim[2] == consumer:
                    ledger.gives_up(lease_id)
                    partition.pending.append((RELEASED, group, claim[1]))
                    held += 1
            # Of a plan under way the leases are written; the release goes into the next one.
            for pending in (partition.pending_now, partition.pending):
                for at, (kind, where, what) in enumerate(pending):
                    if kind == LEASED and where is group and what.consumer == consumer:
                        pending[at] = (RELEASED, group, what.ranges)
                        if pending is partition.pending_now:
                            partition.pending.append(pending[at])
            group.leased = deque(lease for lease in group.leased if lease[2] != consumer)
        return held > 0

    # -- the end --------------------------------------------------------------------------------------------

    def drain(self) -> None:
        """Heal everything; then all that was published is settled, in so many rounds."""
        self.triggers.clear()
        self.is_healed = True
        for partition in self.partitions:
            partition.fails, partition.paused_until = 0, 0.0
        for _ in range(ROUNDS_MAX):
            self.on_time()
            for partition, group in self.pairs:
                while partition.is_up and (leased := group.leased):
                    lease_id, ranges, _ = leased.popleft()
                    settlement = partition.core.settle(
                        Settle(group.group_id, "ack", lease_id, ranges), partition, self.now
                    )
                    if settlement is not None and settlement.lost:
                        group.ledger.refused(lease_id, settlement.lost, self.now)
                    group.ledger.asks_to_settle(lease_id, ranges)
                    if settlement is not None and settlement.accepted:
                        partition.pending.append((ACKED, group, settlement.accepted))
                    self.events += 1
                if partition.is_up:
                    self.fetch_from(partition, group, 0, DRAIN_RECORDS, 1)
            for partition in self.partitions:
                if partition.is_up:
                    partition.commit(self.now, self.wall_offset_s)
            self.check()
            if self._all_settled():
                return
            if not any(group.leased and partition.is_up for partition, group in self.pairs):
                self.on_time()
                self.now = max(self.now + 1.0, min(self.due, self.now + 1e6))
        raise Violation(
            liveness.PROMISE, f"{self._unsettled()} messages are not settled after {ROUNDS_MAX} rounds"
        )

    def _all_settled(self) -> bool:
        return all(partition.is_up for partition in self.partitions) and not self._unsettled()

    def _unsettled(self) -> int:
        return sum(
            group.delivery.pending_count(partition.visible_end) + partition.core.sequencer.records
            for partition, group in self.pairs
        )
