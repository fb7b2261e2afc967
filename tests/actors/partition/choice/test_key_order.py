"""The choices by key, by partition and by priority against a model that looks at every record each time."""

from __future__ import annotations

from array import array
from typing import Any, ClassVar

import cbor2
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from callboard.actors.delivery.delivery import Delivery
from callboard.actors.delivery.events import GroupEvents, decode_events
from callboard.actors.delivery.invariants import check_all
from callboard.actors.delivery.receipts import Lease
from callboard.actors.delivery.snapshot import delivery_of, snapshot_of
from callboard.actors.partition.choice.keys import KeyOrder
from callboard.actors.partition.choice.priorities import (
    HIGHEST,
    PartitionOrder,
    PriorityKeyOrder,
    PriorityOrder,
)
from callboard.actors.partition.choice.record_window import (
    USUAL_PRIORITY,
    RecordRange,
    WindowAllowance,
    window_records,
)
from callboard.log.format.columns import Columns

KEYS = st.sampled_from([None, b"a", b"b", b"c", b"d"])
SECONDS = st.integers(0, 20).map(lambda n: n / 4)
INDEX = st.integers(0, 30)
PRIORITIES = st.none() | st.integers(0, HIGHEST)
WALL_OFFSET_S = 1000.0


class KeyOrderMachine(RuleBasedStateMachine):
    """A group's delivery with a choice: what is chosen is what the rule of the order allows, and no less."""

    has_priorities: ClassVar[bool] = False
    kind: ClassVar[type[KeyOrder]] = KeyOrder

    @initialize(
        records_max=st.sampled_from([2, 5, 1000]),
        budget_bytes=st.sampled_from([100, 10**6]),
        per_read=st.sampled_from([1, 3, 1000]),
        keyed=st.booleans(),
        starvation_s=st.none() | st.integers(0, 30).map(float),
    )
    def begin(
        self, records_max: int, budget_bytes: int, per_read: int, keyed: bool, starvation_s: float | None
    ) -> None:
        self.keys: list[bytes | None] = []
        self.priorities: list[int | None] = []
        self.appended: list[float] = []
        self.keyed = keyed
        self.starvation_s = starvation_s
        self.now = 100.0
        self.per_read = per_read
        self.records_max = records_max
        self.budget = WindowAllowance(budget_bytes)
        self.is_roomy = records_max == 1000 and budget_bytes == 10**6
        self.delivery, self.shadow = Delivery(0), Delivery(0)
        self.order = self._order(self.delivery)

    def _order(self, delivery: Delivery) -> KeyOrder:
        if self.has_priorities:
            kind = PriorityKeyOrder if self.keyed else PriorityOrder
            records = RecordRange(self.budget, self.records_max, kind.columns)
            order = kind(delivery, records, 4096, self.starvation_s)
            order.wall_offset_s = WALL_OFFSET_S
            return order
        return self.kind(delivery, RecordRange(self.budget, self.records_max, self.kind.columns))

    # -- the rule, looked up anew

    def unsettled(self) -> list[int]:
        return [o for o in range(len(self.keys)) if self.delivery.offsets.unsettled_ranges(o, o + 1)]

    def state_of(self, offset: int) -> tuple[str, float]:
        """Where an unsettled offset stands; a ready one with the lease that ran out, a delayed one with its time."""
        for _, _, tag, _ in self.delivery.offsets.ready.overlapping(offset, offset + 1):
            return "ready", tag
        for _, _, _, not_before in self.delivery.offsets.delayed.overlapping(offset, offset + 1):
            return "delayed", not_before
        if offset >= self.delivery.offsets.next:
            return "untouched", 0
        return ("passed" if self.delivery.offsets.is_passed(offset) else "leased"), 0

    def allowed(self) -> list[int]:
        """What may be leased: of each key only the first unsettled record, if nobody has it and it is not delayed."""
        seen: set[bytes] = set()
        found = []
        for offset in self.unsettled():
            key = self.key_of(offset)
            if key is not None and key in seen:
                continue
            if key is not None:
                seen.add(key)
            state, at = self.state_of(offset)
            if state in ("untouched", "passed", "ready") or (state == "delayed" and at <= self.now):
                found.append(offset)
        return found

    def key_of(self, offset: int) -> bytes | None:
        """What fences others: the record's key."""
        return self.keys[offset] if self.keyed or not self.has_priorities else None

    def place_of(self, offset: int) -> tuple[int, int]:
        """The lower, the sooner."""
        starvation, priority = self.starvation_s, self.priorities[offset]
        if starvation is not None and self.appended[offset] + starvation <= self.now:
            return -1, offset
        return HIGHEST - (USUAL_PRIORITY if priority is None else priority), offset

    def read(self) -> bool:
        unread = self.order.unread(len(self.keys))
        span = None if unread is None else self.order.what_fits(*unread)
        if span is None:
            return False
        start, stop = span
        stop = min(stop, start + self.per_read)
        assert self.delivery.offsets.unsettled_ranges(start, start + 1)
        stored = [None if each is None else each + 1 for each in self.priorities[start:stop]]
        columns = Columns.build([b""] * (stop - start), self.keys[start:stop], priorities=stored)
        columns.base_offset = start
        appended = [round((at + WALL_OFFSET_S) * 1e6) for at in self.appended[start:stop]]
        columns.append_times = array("q", appended)
        unless_uniform = self.order.is_uniform
        self.order.add(
            window_records(start, stop, [columns], self.order.columns, unless_uniform=unless_uniform)
        )
        return True

    def lease_next(self, count: int, deadline: float) -> list[tuple[int, int, int]]:
        """As the core does: lease; when nothing is found, read and lease again. What was leased."""

        def leased() -> Lease | None:
            return self.order.lease(self.now, deadline, 1, count, len(self.keys))

        while (lease := leased()) is None and self.read():
            pass
        return [] if lease is None else list(lease.ranges)

    def settled(self, ranges: Any) -> None:
        self.order.settled(ranges)
        self.journal()

    def journal(self) -> None:
        for event in decode_events(cbor2.loads(GroupEvents(1, self.delivery.take_events()).record(0.0))[2]):
            self.shadow.apply(event)

    # -- rules

    @rule(keys=st.lists(st.tuples(KEYS, PRIORITIES), min_size=1, max_size=6))
    def publish(self, keys: list[tuple[bytes | None, int | None]]) -> None:
        self.keys += [key for key, _ in keys]
        self.priorities += [priority for _, priority in keys]
        self.appended += [self.now] * len(keys)

    @rule(count=st.integers(1, 12), priority=PRIORITIES)
    def publish_alike(self, count: int, priority: int | None) -> None:
        """Records among which the choice has nothing to choose."""
        self.publish([(None, priority)] * count)

    @rule(seconds=SECONDS)
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.delivery.run_out(self.now)
        self.journal()

    @rule(count=st.integers(1, 8), timeout=SECONDS, counts=st.booleans())
    def lease(self, count: int, timeout: float, counts: bool) -> None:
        """What is leased may be leased, and is what comes first."""
        allowed = self.allowed()
        while counts and self.order.ready_count(self.now, count) < count and self.read():
            pass
        if counts and self.is_roomy:
            assert self.order.ready_count(self.now, count) == min(count, len(allowed))
        while self.has_priorities and self.read():  # all of the range is known before anything is chosen
            pass
        is_known = self.order.records.end >= self.delivery.offsets.next
        again = [o for o in allowed if self.state_of(o)[0] in ("ready", "delayed")]
        ranges = self.lease_next(count, self.now + timeout)
        chosen = [offset for start, stop, _ in ranges for offset in range(start, stop)]
        assert set(chosen) <= set(allowed)
        assert len(chosen) <= count
        if self.is_roomy:
            assert bool(chosen) == bool(allowed)
        if self.has_priorities and self.is_roomy:
            assert chosen == sorted(sorted(allowed, key=self.place_of)[:count])
        elif counts and self.is_roomy and is_known:
            first = (again + [o for o in allowed if o not in again])[:count]
            assert chosen == sorted(first)
        assert self.delivery.offsets.leased >= len(chosen)
        self.journal()

    def leased(self, index: int) -> tuple[int, list[tuple[int, int]]] | None:
        leases = list(self.delivery.offsets.lease_states.items())
        if not leases:
            return None
        lease_id, lease = leases[index % len(leases)]
        return lease_id, [row[:2] for row in lease.rows]

    @rule(index=INDEX, verb=st.sampled_from(["ack", "ack", "nack", "release"]), part=INDEX, delay=SECONDS)
    def settle(self, index: int, verb: str, part: int, delay: float) -> None:
        found = self.leased(index)
        if found is None:
            return
        lease_id, ranges = found
        if part % 3:
            ranges = [ranges[part % len(ranges)]]
        if verb == "ack":
            self.settled(self.delivery.ack(lease_id, ranges, self.now).accepted)
        elif verb == "nack":
            self.delivery.nack(lease_id, ranges, not_before=self.now + delay, reason=None, now=self.now)
        else:
            self.delivery.release(lease_id, ranges, self.now)
        self.journal()

    @rule(index=INDEX)
    def ack_late(self, index: int) -> None:
        """A late ack that counts settles the record of its key that is out."""
        states = [(offset, *self.state_of(offset)) for offset in self.unsettled()]
        late = [
            (offset, int(lease_id)) for offset, state, lease_id in states if state == "ready" and lease_id
        ]
        if late:
            offset, lease_id = late[index % len(late)]
            assert offset in self.allowed()
            self.settled(self.delivery.ack(lease_id, [(offset, offset + 1)], self.now).accepted)

    @rule(start=INDEX, length=st.integers(0, 6))
    def skip(self, start: int, length: int) -> None:
        stop = min(start + length, len(self.keys))
        if start < stop:
            self.delivery.skip(start, stop)
            self.settled([(start, stop)])

    @rule()
    def evict(self) -> None:
        self.order.records.clear()

    @rule(voided=st.booleans(), restored=st.booleans())
    def restart(self, voided: bool, restored: bool) -> None:
        """A successor is rebuilt from events or a snapshot, and reads before it chooses."""
        self.order.records.clear()
        if restored:
            stored = cbor2.loads(cbor2.dumps(snapshot_of(self.delivery)))
            self.shadow = delivery_of(stored)
        self.delivery = self.shadow
        self.shadow = delivery_of(snapshot_of(self.delivery))
        if voided:
            self.delivery.void_all_leases()
        else:
            self.delivery.renew_all(self.now, 5.0)
        self.journal()
        self.order = self._order(self.delivery)

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "delivery"):
            return
        check_all(self.delivery.offsets)
        self.order.records.check()
        out: list[bytes] = []
        for offset in self.unsettled():
            key = self.key_of(offset)
            state, _ = self.state_of(offset)
            if key is not None:
                assert key not in out or state in ("untouched", "passed")
                out.append(key)
        assert self.order.fenced <= len(self.unsettled())
        known = len([offset for offset in self.unsettled() if offset < self.delivery.offsets.next])
        if self.budget.bytes_max == 10**6:
            assert self.order.records.count <= max(self.records_max, known)

    def teardown(self) -> None:
        """Whatever happened, all is settled in the end: a range that is full or small delays, and never blocks."""
        if not hasattr(self, "delivery"):
            return
        for _ in range(4 * len(self.keys) + 8):
            self.now += 1000.0
            self.delivery.run_out(self.now)
            self.journal()
            ranges = [row[:2] for row in self.lease_next(3, self.now + 1.0)]
            if not ranges:
                break
            self.settled(
                self.delivery.ack(self.delivery.offsets.next_lease_id - 1, ranges, self.now).accepted
            )
        assert self.unsettled() == []
        assert (self.order.fenced, self.order.records.count) == (0, 0)


def test_a_record_that_is_settled_behind_a_free_one_is_not_counted() -> None:
    """What the machine found: two records without a key are free, and the second is skipped."""
    machine = KeyOrderMachine()
    machine.begin(records_max=1000, budget_bytes=10**6, per_read=1000, keyed=False, starvation_s=None)
    machine.publish(keys=[(None, None), (None, None)])
    assert machine.read()
    assert machine.order.ready_count(machine.now, 2) == 2
    machine.skip(start=1, length=1)
    assert machine.order.ready_count(machine.now, 2) == 1
    machine.lease(count=2, timeout=0.0, counts=True)
    machine.teardown()


class PartitionOrderMachine(KeyOrderMachine):
    """Every record waits for all before it."""

    kind = PartitionOrder

    def key_of(self, offset: int) -> bytes | None:
        """All fence each other."""
        return b"the partition"


class PriorityMachine(KeyOrderMachine):
    """What comes first by priority, or has starved, is leased first; with and without order per key."""

    has_priorities = True


TestPartitionOrder = PartitionOrderMachine.TestCase
TestPartitionOrder.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestPriorities = PriorityMachine.TestCase
TestPriorities.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestKeyOrder = KeyOrderMachine.TestCase
TestKeyOrder.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
