"""Random histories of a delivery against a naive model that keeps one object per offset."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import cbor2
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from callboard.actors.delivery.delivery import COUNTERS, Delivery
from callboard.actors.delivery.events import GroupEvents, decode_events
from callboard.actors.delivery.invariants import check_all
from callboard.actors.delivery.offsets import UNANCHORED
from callboard.actors.delivery.receipts import merged
from callboard.actors.delivery.snapshot import delivery_of, snapshot_of

UNIVERSE = 48
OFFSETS = st.integers(0, UNIVERSE)
RANGES = st.lists(
    st.tuples(OFFSETS, st.integers(1, 9)).map(lambda p: (p[0], p[0] + p[1])), min_size=1, max_size=4
)
RECEIPTS = st.integers(0, 60)
"""Chooses among the receipts that still hold something, the last one, and two that never were."""
SECONDS = st.integers(0, 40).map(lambda n: n / 4)
PAGE = Path(__file__).parents[3] / "docs" / "principles" / "delivery.md"
TRANSITIONS = re.findall(
    r"^\| (\w+) \| ([\w ]+) \| (\w+) \| (yes|) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE
)
"""Before, call, after, and whether the attempt counts: the table on the page."""
ALLOWED = {row[:3] for row in TRANSITIONS}
COUNTING = {row[:3] for row in TRANSITIONS if row[3]}


class OffsetState(NamedTuple):
    """Where one offset stands. `attempts` and `alone` do not yet include a lease that is still held."""

    state: str
    attempts: int = 0
    alone: bool = False
    lease_id: int = 0
    """The lease that holds it or, for a ready offset, the one whose late settlement still counts; 0 for none."""
    not_before: float | None = None


def state_of(delivery: Delivery, offset: int) -> OffsetState:
    """Where an offset stands, looked up in each place where it may be."""
    if not delivery.offsets.unsettled_ranges(offset, offset + 1):
        return OffsetState("settled")
    for _, _, tag, history in delivery.offsets.ready.overlapping(offset, offset + 1):
        return OffsetState("ready", history >> 1, bool(history & 1), tag)
    for _, _, history, not_before in delivery.offsets.delayed.overlapping(offset, offset + 1):
        return OffsetState("delayed", history >> 1, bool(history & 1), 0, not_before)
    for lease_id, lease in delivery.offsets.lease_states.items():
        for _, _, history in lease.overlapping(offset, offset + 1):
            return OffsetState("leased", history >> 1, bool(history & 1), lease_id)
    assert offset >= delivery.offsets.next or delivery.offsets.is_passed(offset)
    return OffsetState("untouched" if offset >= delivery.offsets.next else "passed")


class NaiveDelivery:
    """The same rules, one offset at a time."""

    def __init__(self, start: int) -> None:
        self.offsets = {offset: OffsetState("untouched") for offset in range(start, UNIVERSE + 20)}
        self.leases: dict[int, tuple[int, float, bool]] = {}  # consumer, deadline, alone
        self.granted = 0

    def ready(self, now: float, visible_end: int) -> list[int]:
        again, fresh = [], []
        for offset, found in self.offsets.items():
            if found.state == "ready" or (found.state == "delayed" and found.not_before <= now):
                again.append(offset)
            elif found.state == "untouched" and offset < visible_end:
                fresh.append(offset)
        return again + fresh

    def lease(
        self, now: float, deadline: float, consumer: int, limit: int, visible_end: int
    ) -> dict[int, int]:
        chosen = self.ready(now, visible_end)[:limit]
        return self.lease_chosen(deadline, consumer, chosen) if chosen else {}

    def pass_over(self, stop: int) -> None:
        for offset, found in self.offsets.items():
            if found.state == "untouched" and offset < stop:
                self.offsets[offset] = OffsetState("passed")

    def lease_chosen(self, deadline: float, consumer: int, chosen: list[int]) -> dict[int, int]:
        self.granted += 1
        self.leases[self.granted] = (consumer, deadline, len(chosen) == 1)
        for offset in chosen:
            found = self.offsets[offset]
            self.offsets[offset] = OffsetState("leased", found.attempts, found.alone, self.granted)
        return {offset: self.offsets[offset].attempts + 1 for offset in chosen}

    def held(self, lease_id: int) -> list[int]:
        return [
            o for o, found in self.offsets.items() if found.state == "leased" and found.lease_id == lease_id
        ]

    def counted(self, offset: int) -> tuple[int, bool]:
        found = self.offsets[offset]
        if found.state == "leased":
            return found.attempts + 1, self.leases[found.lease_id][2]
        return found.attempts, found.alone

    def receipt(self, choice: int) -> int:
        known = sorted({found.lease_id for found in self.model.offsets.values()} - {0})
        choices = [*known, *known, self.model.granted, 9999, 0]
        return choices[choice % len(choices)]

    def settle(self, verb: str, lease_id: int, named: set[int], now: float, not_before: float) -> set[int]:
        accepted = set()
        for offset in named:
            found = self.offsets.get(offset)
            if found is None or lease_id == 0 or found.lease_id != lease_id:
                continue
            if verb == "release" and found.state != "leased":
                continue
            accepted.add(offset)
            if verb == "ack":
                self.offsets[offset] = OffsetState("settled")
            elif verb == "release":
                self.offsets[offset] = OffsetState("ready", found.attempts, found.alone)
            elif not_before > now:
                self.offsets[offset] = OffsetState("delayed", *self.counted(offset), 0, not_before)
            else:
                self.offsets[offset] = OffsetState("ready", *self.counted(offset))
        self.drop_empty()
        return accepted

    def end(self, lease_id: int, tag: int) -> None:
        for offset in self.held(lease_id):
            self.offsets[offset] = OffsetState("ready", *self.counted(offset), tag)
        del self.leases[lease_id]

    def expire(self, now: float) -> set[int]:
        gone = {lease_id for lease_id, (_, deadline, _) in self.leases.items() if deadline <= now}
        for lease_id in gone:
            self.end(lease_id, lease_id)
        return gone

    def void(self) -> None:
        if len(self.leases) > 1:  # none of them is proved to be the cause
            self.leases = {key: (holder, until, False) for key, (holder, until, _) in self.leases.items()}
        for lease_id in list(self.leases):
            self.end(lease_id, 0)
        for offset, found in self.offsets.items():
            self.offsets[offset] = found._replace(lease_id=0)

    def skip(self, start: int, stop: int) -> int:
        skipped = [o for o in range(start, stop) if o in self.offsets and self.offsets[o].state != "settled"]
        self.offsets.update(dict.fromkeys(skipped, OffsetState("settled")))
        self.drop_empty()
        return len(skipped)

    def drop_empty(self) -> None:
        for lease_id in list(self.leases):
            if not self.held(lease_id):
                del self.leases[lease_id]

    def floor(self) -> int:
        return next(offset for offset, found in self.offsets.items() if found.state != "settled")

    def next_deadline(self, promoted_until: float) -> float | None:
        times = [deadline for _, deadline, _ in self.leases.values()]
        times += [
            f.not_before
            for f in self.offsets.values()
            if f.state == "delayed" and f.not_before > promoted_until
        ]
        return min(times, default=None)


def durable(delivery: Delivery, now: float) -> dict[str, Any]:
    """What replay and restore must bring back; a delay that is over is no difference."""
    offsets = {}
    for offset in range(delivery.offsets.floor, delivery.offsets.next):
        found = state_of(delivery, offset)
        if found.state == "delayed" and found.not_before is not None and found.not_before <= now:
            found = found._replace(state="ready", not_before=None)
        offsets[offset] = found
    leases = {key: (lease.consumer, lease.alone) for key, lease in delivery.offsets.lease_states.items()}
    counters = {name: getattr(delivery, name) for name in COUNTERS}
    counters |= {name: getattr(delivery.offsets, name) for name in ("floor", "next", "leased")}
    counters |= {"passed": delivery.offsets.passed.count, "settled": delivery.offsets.settled.count}
    islands = [row for row in delivery.offsets.settled if row[0] > delivery.offsets.next]
    return {
        "offsets": offsets,
        "leases": leases,
        "islands": islands,
        "id": delivery.offsets.next_lease_id,
        **counters,
    }


class DeliveryMachine(RuleBasedStateMachine):
    """Every rule does the same to the delivery and to the model, and feeds the events to a shadow."""

    @initialize(start=st.sampled_from([0, 0, 7]))
    def begin(self, start: int) -> None:
        self.delivery, self.shadow, self.model = Delivery(start), Delivery(start), NaiveDelivery(start)
        self.now, self.visible_end, self.promoted_until = 100.0, start, 0.0

    # -- comparing

    def before(self) -> dict[int, OffsetState]:
        return dict(self.model.offsets)

    def moved(self, call: str, before: dict[int, OffsetState]) -> None:
        """Every change that the call made is in the table, and counts an attempt only if the table says so."""
        for offset, was in before.items():
            found = self.model.offsets[offset]
            if found == was:
                continue
            ripe = was.state == "delayed" and was.not_before <= self.now and call != "skip"
            state = "ready" if ripe else was.state
            assert state == found.state or (state, call, found.state) in ALLOWED
            if found.state != "settled" and found.attempts != was.attempts:
                assert (state, call, found.state) in COUNTING
                assert was.attempts + 1 == found.attempts
        self.journal()

    def journal(self) -> None:
        for event in decode_events(cbor2.loads(GroupEvents(1, self.delivery.take_events()).record(0.0))[2]):
            self.shadow.apply(event)

    @invariant()
    def states_agree(self) -> None:
        if not hasattr(self, "delivery"):
            return
        check_all(self.delivery.offsets)
        check_all(self.shadow.offsets)
        assert durable(self.delivery, self.now) == durable(self.shadow, self.now)
        for offset, expected in self.model.offsets.items():
            found = state_of(self.delivery, offset)
            if expected.state == "delayed" and found.state == "ready":
                assert expected.not_before <= self.now
                expected = expected._replace(state="ready", not_before=None)
            assert expected == found
        pending = [o for o, f in self.model.offsets.items() if o < self.visible_end and f.state != "settled"]
        assert len(pending) == self.delivery.offsets.pending_count(self.visible_end)
        assert self.model.floor() == self.delivery.offsets.floor

    @invariant()
    def deadlines_agree(self) -> None:
        if hasattr(self, "delivery"):
            found = self.delivery.offsets.next_deadline()
            expected = self.model.next_deadline(self.promoted_until)
            # A skipped delay may still wake the partition: early is allowed, late is not.
            assert (expected is None) or (found is not None and found <= expected)

    # -- rules

    @rule(count=st.integers(1, 12))
    def publish(self, count: int) -> None:
        self.visible_end = min(UNIVERSE, self.visible_end + count)

    @rule(seconds=SECONDS)
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(consumer=st.integers(0, 3), limit=st.integers(0, 12), timeout=SECONDS)
    def lease(self, consumer: int, limit: int, timeout: float) -> None:
        before = self.before()
        deadline = self.now + timeout
        ready = self.model.ready(self.now, self.visible_end)
        assert bool(ready) == bool(self.delivery.leasable_count(self.now, self.visible_end, 1))
        lease = self.delivery.lease(
            now=self.now,
            deadline=deadline,
            consumer=consumer,
            max_records=limit,
            visible_end=self.visible_end,
        )
        self.promoted_until = self.now
        expected = self.model.lease(self.now, deadline, consumer, limit, self.visible_end)
        if lease is None:
            assert {} == expected
            return
        assert expected == {o: attempt for start, stop, attempt in lease.ranges for o in range(start, stop)}
        assert self.model.granted == lease.lease_id
        assert (consumer, deadline) == (lease.consumer, lease.deadline)
        assert self.delivery.offsets.lease_of(lease.lease_id) == lease
        left = len(ready) - len(expected)
        assert left == self.delivery.offsets.ready_count(self.visible_end)
        self.moved("lease", before)

    @rule(consumer=st.integers(0, 3), chances=st.sets(OFFSETS, min_size=1, max_size=9), timeout=SECONDS)
    def lease_chosen(self, consumer: int, chances: set[int], timeout: float) -> None:
        may = set(self.model.ready(self.now, self.visible_end))
        may |= {offset for offset, found in self.model.offsets.items() if found.state == "passed"}
        chosen = sorted(chances & may)
        if not chosen:
            return
        before, deadline = self.before(), self.now + timeout
        ranges = merged([(offset, offset + 1) for offset in chosen])
        lease = self.delivery.lease_chosen(now=self.now, deadline=deadline, consumer=consumer, ranges=ranges)
        self.promoted_until = self.now
        fresh = [offset for offset in chosen if before[offset].state == "untouched"]
        if fresh:
            self.model.pass_over(fresh[-1])
            for offset in fresh:
                self.model.offsets[offset] = OffsetState("untouched")
        self.moved("pass over", before)
        before = self.before()
        expected = self.model.lease_chosen(deadline, consumer, chosen)
        assert expected == {o: attempt for start, stop, attempt in lease.ranges for o in range(start, stop)}
        assert ranges == merged(lease.ranges)
        self.moved("lease", before)

    def receipt(self, choice: int) -> int:
        known = sorted({found.lease_id for found in self.model.offsets.values()} - {0})
        choices = [*known, *known, self.model.granted, 9999, 0]
        return choices[choice % len(choices)]

    def settle(self, verb: str, lease_id: int, ranges: list[tuple[int, int]], delay: float) -> None:
        before = self.before()
        not_before = self.now + delay
        if verb == "ack":
            settlement = self.delivery.ack(lease_id, ranges, self.now)
        elif verb == "nack":
            settlement = self.delivery.nack(
                lease_id, ranges, not_before=not_before, reason="no \ud800 luck" * 200, now=self.now
            )
        else:
            settlement = self.delivery.release(lease_id, ranges, self.now)
        named = {offset for start, stop in ranges for offset in range(start, stop)}
        accepted = {offset for start, stop in settlement.accepted for offset in range(start, stop)}
        lost = {offset for start, stop in settlement.lost for offset in range(start, stop)}
        assert self.model.settle(verb, lease_id, named, self.now, not_before) == accepted
        assert named - accepted == lost
        self.moved(verb, before)

    @rule(verb=st.sampled_from(["ack", "nack", "release"]), receipt=RECEIPTS, ranges=RANGES, delay=SECONDS)
    def settle_some(self, verb: str, receipt: int, ranges: list[tuple[int, int]], delay: float) -> None:
        lease_id = self.receipt(receipt)
        self.settle(verb, lease_id, ranges, delay)

    @rule(verb=st.sampled_from(["ack", "ack", "nack", "release"]), receipt=RECEIPTS, delay=SECONDS)
    def settle_all(self, verb: str, receipt: int, delay: float) -> None:
        lease_id = self.receipt(receipt)
        lease = self.delivery.offsets.lease_of(lease_id)
        if lease is not None:
            self.settle(verb, lease_id, [(start, stop) for start, stop, _ in lease.ranges], delay)

    @rule(verb=st.sampled_from(["ack", "nack"]), receipt=RECEIPTS, offset=OFFSETS)
    def settle_one(self, verb: str, receipt: int, offset: int) -> None:
        lease_id = self.receipt(receipt)
        held = [o for o, found in self.model.offsets.items() if found.lease_id == lease_id]
        offset = held[offset % len(held)] if held else offset
        self.settle(verb, lease_id, [(offset, offset + 1)], 0.0)

    @rule(receipt=RECEIPTS, timeout=SECONDS)
    def extend(self, receipt: int, timeout: float) -> None:
        lease_id = self.receipt(receipt)
        held = lease_id in self.model.leases
        assert held == self.delivery.extend(lease_id, self.now + timeout, self.now)
        if held:
            consumer, _, alone = self.model.leases[lease_id]
            self.model.leases[lease_id] = (consumer, self.now + timeout, alone)

    @rule()
    def expire(self) -> None:
        before = self.before()
        expired = self.delivery.run_out(self.now)
        assert self.model.expire(self.now) == {lease.lease_id for lease in expired}
        self.journal()
        assert [] == self.delivery.run_out(self.now)
        assert [] == self.delivery.take_events()
        self.promoted_until = self.now
        deadline = self.delivery.offsets.next_deadline()
        assert deadline is None or deadline > self.now
        self.moved("expire", before)

    @rule(consumer=st.integers(0, 3), most=st.integers(1, 4))
    def leave(self, consumer: int, most: int) -> None:
        before = self.before()
        released = 0
        for lease_id, (holder, _, _) in list(self.model.leases.items()):
            if holder == consumer:
                released += len(self.model.settle("release", lease_id, set(self.model.held(lease_id)), 0, 0))
        before_released, lease_ids = self.delivery.released, self.delivery.offsets.lease_ids(consumer)
        while lease_ids:
            assert self.delivery.release_some(lease_ids, most) <= most
        assert released == self.delivery.released - before_released
        self.moved("release", before)

    @rule(start=OFFSETS, length=st.integers(0, 9))
    def skip(self, start: int, length: int) -> None:
        before = self.before()
        assert self.model.skip(start, start + length) == self.delivery.skip(
            start, start + length, reason="gap"
        )
        self.moved("skip", before)

    @rule(start=OFFSETS, length=st.integers(1, 9))
    def die_of_age(self, start: int, length: int) -> None:
        before = self.before()
        assert self.delivery.die_of_age([(start, start + length)], self.now) == []
        self.model.skip(start, start + length)
        self.moved("die of age", before)

    @rule(offset=OFFSETS)
    def seek(self, offset: int) -> None:
        """All transitions at once, in either direction: they are told apart from the rest of the table."""
        self.delivery.seek(offset)
        for each in self.model.offsets:
            self.model.offsets[each] = OffsetState("settled" if each < offset else "untouched")
        self.model.leases.clear()
        for each in range(offset, min(self.model.offsets, default=offset)):
            self.model.offsets[each] = OffsetState("untouched")
        self.model.offsets = dict(sorted(self.model.offsets.items()))
        self.journal()

    @rule(replay=st.booleans(), timeout=SECONDS)
    def restart_actor(self, replay: bool, timeout: float) -> None:
        """The actor rebuilds its state from the journal or a snapshot, and renews the leases."""
        before = durable(self.delivery, self.now)
        stored = cbor2.loads(cbor2.dumps(snapshot_of(self.delivery)))
        if replay:
            self.delivery, self.shadow = self.shadow, delivery_of(stored)
        else:
            self.delivery = delivery_of(stored)
        assert before == durable(self.delivery, self.now)
        assert all(lease.deadline == UNANCHORED for lease in self.delivery.offsets.lease_states.values())
        assert len(self.model.leases) == self.delivery.renew_all(self.now, timeout)
        for lease_id, (consumer, _, alone) in self.model.leases.items():
            self.model.leases[lease_id] = (consumer, self.now + timeout, alone)

    @rule(restored=st.booleans())
    def reopen(self, restored: bool) -> None:
        """The directory is opened again: every lease is voided."""
        before = self.before()
        if restored:
            self.delivery = delivery_of(snapshot_of(self.delivery))
        assert len(self.model.leases) == self.delivery.void_all_leases(self.now)
        self.model.void()
        self.moved("void", before)


DeliveryMachine.TestCase.settings = settings(max_examples=120, stateful_step_count=60, deadline=None)
test_random_histories = DeliveryMachine.TestCase


@pytest.mark.slow
class TestLongHistories(DeliveryMachine.TestCase):  # type: ignore[misc,name-defined]
    """Longer histories, for the slow run."""

    settings = settings(max_examples=1000, stateful_step_count=100, deadline=None)
