"""Deeds: what publishers, consumers and committers do, one draw of 32 bits each. The hot part of a drive."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from typing import Final

from callboard.actors.delivery.receipts import OffsetRange
from callboard.actors.partition.commands import Level, PublishMany, PublishOne
from callboard.log.format.columns import Columns
from callboard.simulations.machines.place import ACKED, LEASED, NACKED, RELEASED, Asked, Circle, Hand, Place
from callboard.simulations.machines.strikes import Strike
from callboard.simulations.machines.tree import Tree

__all__ = ["CODES", "DEEDS", "RAN_OUT_CODE", "STRIKE_CODE", "Deeds"]

BURSTS: Final = (1, 2, 4, 8, 12, 16, 24, 32)
"""Inputs of one sort that come together."""
BACKLOG_MAX: Final = 500
BATCHES: Final = (1, 1, 1, 1, 2, 3, 8, 40)
DEEDS: Final = (
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
"""Deeds and their usual share; a seed triples some and leaves some out."""
STRIKE_CODE: Final = 14
RAN_OUT_CODE: Final = 15
CODES: Final = {name: code for code, (name, _) in enumerate(DEEDS)} | {
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


class Deeds(ABC):
    """What all deeds work on. Each deed returns how many inputs it gave to state machines."""

    places: list[Place]
    pairs: list[tuple[Place, Circle]]
    """Every group of every place."""
    tree: Tree
    consumers: int
    is_orderly: bool
    """Whether consumers always settle in the order in which they got things."""
    is_dark: bool
    now: float
    due: float
    """When the next thing happens by itself, or earlier."""
    wall_offset_s: float
    trace: list[int]
    triggers: dict[str, list[tuple[int, int, Strike]]]
    """By probe, the strikes that wait for it: index in the plan, passings left, strike."""

    @abstractmethod
    def passing(self, probe: str, subject: str) -> None:
        """A probe is passed: whatever waits for it strikes."""

    def publish(self, bits: int) -> int:
        """Some records, one at a time."""
        place = self.places[bits % len(self.places)]
        if not place.is_up:
            return 0
        burst = BURSTS[bits >> 8 & 7]
        add_one, message = place.sequencer.add_one, MESSAGES[bits >> 4 & 7]
        for _ in range(burst):
            add_one(message, Asked(place))
        self.trace.append(burst << 8)
        if "publish" in self.triggers:
            for _ in range(burst):
                self.passing("publish", place.path)
        return burst

    def publish_many(self, bits: int) -> int:
        """A batch, unless consumers are far behind."""
        place = self.places[bits % len(self.places)]
        if not place.is_up or place.visible_end - place.circles[0].delivery.floor > BACKLOG_MAX:
            return 0
        place.sequencer.add_many(MANY[(bits >> 4) % len(MANY)], Asked(place))
        self.trace.append(1)
        return 1

    def fetch(self, bits: int) -> int:
        """A consumer asks for records, and asks again while there are any."""
        pairs = self.pairs
        place, circle = pairs[bits % len(pairs)]
        if not place.is_up:
            return 0
        return self.fetch_from(place, circle, bits >> 4, BATCHES[bits >> 8 & 7], BURSTS[bits >> 11 & 7])

    def fetch_from(self, place: Place, circle: Circle, consumer: int, max_records: int, burst: int) -> int:
        """So many fetches of so many records each, while there are any."""
        now, lease, visible_end = self.now, circle.delivery.lease, place.visible_end
        deadline = now + circle.timeout_s
        tidings, trace, is_watched = place.tidings, self.trace, "deliver" in self.triggers
        if deadline < self.due:
            self.due = deadline
        for done in range(burst):
            grant = lease(
                now=now,
                deadline=deadline,
                consumer=(consumer + done) % self.consumers,
                max_records=max_records,
                visible_end=visible_end,
            )
            if grant is None:
                return done + 1
            tidings.append((LEASED, circle, grant))
            trace.append(2 | grant[0] << 8)
            if is_watched:
                self.passing("deliver", place.path)
                if not place.is_up:
                    return done + 1
        return burst

    def ack(self, bits: int) -> int:
        """Done with some. Mostly the oldest first, and all that was handed over together."""
        pairs = self.pairs
        place, circle = pairs[bits % len(pairs)]
        hands = circle.hands
        if not hands or not place.is_up:
            return self.fetch(bits)
        now, ack, ledger = self.now, circle.delivery.ack, circle.ledger
        tidings, trace, is_watched = place.tidings, self.trace, "ack" in self.triggers
        place.sync = True
        is_orderly = self.is_orderly or bits & 0xE000
        burst = min(BURSTS[bits >> 10 & 7], len(hands))
        for done in range(burst):
            if is_orderly:
                lease_id, ranges, _ = hands.popleft()
            else:
                lease_id, ranges = self._some_of(hands, bits + (done << 4))
            accepted, lost = ack(lease_id, ranges, now)
            if lost:
                ledger.refused(lease_id, lost, now)
            ledger.asks_to_settle(lease_id, ranges)
            if accepted:
                tidings.append((ACKED, circle, accepted))
            trace.append(3 | lease_id << 8)
            if is_watched:
                self.passing("ack", place.path)
                if not place.is_up:
                    return done + 1
        return burst

    def _some_of(self, hands: deque[Hand], bits: int) -> tuple[int, tuple[OffsetRange, ...]]:
        """Any lease in hand, or its first offset only, taken out of it."""
        index = (bits >> 4) % len(hands)
        lease_id, ranges, consumer = hands[index]
        del hands[index]
        start, stop = ranges[0]
        if bits & 0x1000 and (len(ranges) > 1 or stop - start > 1):
            rest = ((start + 1, stop), *ranges[1:]) if stop - start > 1 else ranges[1:]
            hands.appendleft((lease_id, rest, consumer))
            ranges = ((start, start + 1),)
        return lease_id, ranges

    def _hand(self, bits: int) -> tuple[Place, Circle, int, tuple[OffsetRange, ...]] | None:
        """Something that a consumer has in hand, taken out of it."""
        place, circle = self.pairs[bits % len(self.pairs)]
        if not circle.hands or not place.is_up:
            return None
        return place, circle, *self._some_of(circle.hands, bits)

    def nack(self, bits: int) -> int:
        """Not now: another attempt, perhaps later."""
        hand = self._hand(bits)
        if hand is None:
            return 0
        place, circle, lease_id, ranges = hand
        now = self.now
        later = now + (0.0, 0.0, 0.5, 20.0)[bits >> 8 & 3]
        is_held = circle.delivery.grant_of(lease_id) is not None
        accepted, lost = circle.delivery.nack(lease_id, ranges, not_before=later, reason=None, now=now)
        if lost:
            circle.ledger.refused(lease_id, lost, now)
        circle.ledger.asks(lease_id, ranges)
        if accepted:
            # A late nack counts no attempt: it was counted when the lease ran out.
            place.tidings.append((NACKED if is_held else RELEASED, circle, accepted))
        if later < self.due:
            self.due = later
        self.trace.append(4 | lease_id << 8)
        if "nack" in self.triggers:
            self.passing("nack", place.path)
        return 1

    def release(self, bits: int) -> int:
        """Unhandled: as if it had never been leased."""
        hand = self._hand(bits)
        if hand is None:
            return 0
        place, circle, lease_id, ranges = hand
        accepted, lost = circle.delivery.release(lease_id, ranges, self.now)
        if lost:
            circle.ledger.refused(lease_id, lost, self.now)
        circle.ledger.asks(lease_id, ranges)
        if accepted:
            place.tidings.append((RELEASED, circle, accepted))
        self.trace.append(5 | lease_id << 8)
        return 1

    def extend(self, bits: int) -> int:
        """More time, or less."""
        place, circle = self.pairs[bits % len(self.pairs)]
        hands = circle.hands
        if not hands or not place.is_up:
            return 0
        lease_id = hands[(bits >> 4) % len(hands)][0]
        deadline = self.now + circle.timeout_s * (0.25, 0.5, 1.0, 4.0)[bits >> 12 & 3]
        kept = circle.delivery.extend(lease_id, deadline, self.now)
        if kept:
            circle.ledger.extended(lease_id, deadline)
            if deadline > self.now + circle.timeout_s:
                circle.extended[lease_id] = deadline
            else:
                circle.extended.pop(lease_id, None)
            if deadline < self.due:
                self.due = deadline
        self.trace.append(6 | kept << 4 | lease_id << 8)
        return 1

    def forget(self, bits: int) -> int:
        """A consumer never settles what it has in hand."""
        return 0 if self._hand(bits) is None else 1

    def commit(self, bits: int) -> int:
        """Write what waits."""
        place = self.places[bits % len(self.places)]
        if not place.is_up or self.now < place.paused_until:
            return 0
        self.trace.append(8 | place.visible_end << 8)
        return int(place.commit(self.now, self.wall_offset_s))

    def unrest(self, bits: int) -> int:
        """Something happens to another member of the supervisor."""
        if self.is_dark or (self.tree.strategy != "one_for_one" and bits & 0x700):
            return 0
        self.trace.append(9 | bits << 8)
        before = self.tree.events
        done = self.tree.unrest(self.now, bits)
        if self.tree.wake_at(self.now) < self.due:
            self.due = self.tree.wake_at(self.now)
        return max(done, self.tree.events - before)
