"""One drive: places, their supervisor, publishers and consumers in one plain loop over virtual time, from one seed.

Each turn of the loop draws 32 bits: some move the clock, some choose a deed, the rest decide its particulars. How often
each deed happens is drawn per seed, and so is what faults there are. An *event* is one input to a state machine: a
publish, a fetch, a settlement, a commit, an ending, a step of the supervisor.

In the end everything heals, and everything published has to be settled within `ROUNDS_MAX` rounds of consumption:
promise "liveness".
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable
from hashlib import blake2b
from heapq import heappop, heappush
from itertools import chain, repeat
from typing import Any, Final

import attrs

from callboard.actors.broker.commands import Level, PublishMany, PublishOne
from callboard.actors.broker.receipts import OffsetRange
from callboard.log.format.columns import Columns
from callboard.simulations.entropy import SeededEntropy
from callboard.simulations.machines.place import (
    ACKED,
    LEASED,
    NACKED,
    RAN_OUT,
    RELEASED,
    Asked,
    Circle,
    Hand,
    Place,
)
from callboard.simulations.machines.strikes import Strike, draw_strikes, strikes_of
from callboard.simulations.machines.tree import Tree
from callboard.simulations.violations import Violation

__all__ = ["Driven", "drive"]

EVENTS: Final = 4_000
CHECK_EVERY: Final = 256
ROUNDS_MAX: Final = 400
IDLE_TURNS_MAX: Final = 50
"""Turns per event, when hardly anything can be done."""
PACES: Final = (0.02, 0.1, 0.3, 1.0)
"""How fast time passes, drawn per seed: whether leases mostly last or mostly run out."""
STEPS_S: Final = (0.0,) * 24 + (0.001, 0.004, 0.01, 0.02, 0.05, 0.1, 0.2, 0.6)
BURSTS: Final = (1, 1, 2, 3, 5, 8, 12, 16)
"""Inputs of one sort that come together."""
BACKLOG_MAX: Final = 500
DRAIN_RECORDS: Final = 1_000
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
    ("commit", 8),
    ("unrest", 1),
)
"""Deeds and their usual share; a seed doubles some and leaves some out."""
CODES: Final = {name: code for code, (name, _) in enumerate(DEEDS)} | {"strike": 14, "ran out": 15}
MESSAGES: Final = tuple(
    PublishOne(b"value", key, None, None, level, 5)
    for level in (Level.ALL, Level.LEADER, Level.LEADER, Level.NONE)
    for key in (None, b"key")
)
MANY: Final = tuple(
    PublishMany(Columns.build([b"value"] * count), level, 5 * count)
    for level in (Level.ALL, Level.LEADER)
    for count in (2, 5, 20)
)


@attrs.frozen
class Driven:
    """How a drive went."""

    seed: int
    events: int
    """Inputs given to state machines."""
    digest: str
    """Of every deed and its outcome: the same seed gives the same."""
    violation: Violation | None
    virtual_s: float
    hits: dict[int, int]
    """Per index of the plan: how often it struck."""
    crashes: int
    settled: int
    tale: tuple[str, ...]
    """The last deeds, oldest first."""


def drive(seed: int, *, events: int = EVENTS, plan: Any = None) -> Driven:
    """Drive the machines for about `events` inputs, under `plan` (None: drawn from the seed), then heal and drain.

    A broken rule comes back as the violation; any other error of a state machine does too, as promise "machines".
    """
    court = Court(seed, events, plan)
    violation: Violation | None = None
    try:
        court.run()
        court.drain()
    except Violation as broken:
        violation = broken
    except (KeyboardInterrupt, SystemExit):
        raise
    except Exception as error:  # noqa: BLE001 - whatever a machine raises is a finding
        violation = Violation("machines", f"{type(error).__name__}: {error}")
        violation.__cause__ = error
    return court.driven(violation)


class Court:
    """All that one drive has."""

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
        self.passed: dict[tuple[str, str], int] = {}
        bits = self.draw()
        count, circles = 1 + bits % 3, 1 + (bits >> 2) % 2
        self.consumers = 1 + (bits >> 4) % 4
        self.is_orderly = bool(bits & 0x1000)
        """Whether consumers always settle in the order in which they got things."""
        pace = PACES[bits >> 10 & 3]
        self.steps = tuple(step * pace for step in STEPS_S)
        timeout_s = (2.0, 10.0, 30.0, 30.0)[(bits >> 8) & 3]
        self.places = [
            Place(
                f"topics/simulated/{number}",
                [Circle(group_id, self.consumers, timeout_s) for group_id in range(1, circles + 1)],
                self.passing,
            )
            for number in range(count)
        ]
        self.by_path = {place.path: place for place in self.places}
        self.pairs = [(place, circle) for place in self.places for circle in place.circles]
        for place in self.places:
            place.is_up = False
        self.fresh = set(self.by_path)
        """Places that have not begun in this process."""
        self.marks: dict[str, int] = {}
        self.is_dark = False
        self.deeds = self._draw_deeds()
        self.tree = Tree(list(self.by_path), self.draw, self.at, start=self._starts, stop=self._stops)
        strikes = draw_strikes(self.draw, events) if plan is None else strikes_of(plan)
        for index, strike in strikes:
            if strike.probe:
                self.triggers.setdefault(strike.probe, []).append((index, strike.count, strike))
            else:
                self.at(strike.at_s, lambda now, index=index, strike=strike: self._strike(index, strike))  # type: ignore[misc]

    def _draw_deeds(self) -> list[Callable[[int], int]]:
        table: list[Callable[[int], int]] = []
        for name, share in DEEDS:
            mood = self.draw() & 15
            optional = name not in ("publish_many", "fetch", "ack", "commit")
            times = 0 if optional and mood < 7 else share * 3 if mood > 13 else share
            table += [getattr(self, name)] * times
        return table

    # -- the loop -------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Turn after turn, until so many events have happened."""
        self.tree.open(0.0)
        draw, deeds, limit, steps = self.draw, self.deeds, self.limit, self.steps
        count = len(deeds)
        next_check = CHECK_EVERY
        for _ in range(limit * IDLE_TURNS_MAX):
            bits = draw()
            now = self.now = self.now + steps[bits & 31]
            if now >= self.due:
                self.on_time()
            done = deeds[(bits >> 5 & 0x7FF) % count](bits >> 16)
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
            self.tree.stir(now)
            for place, circle in self.pairs:
                if not place.is_up:
                    continue
                delivery = circle.delivery
                deadline = delivery.next_deadline()
                if deadline is not None and deadline <= now:
                    self.events += 1
                    for grant in delivery.expire(now):
                        place.tidings.append((RAN_OUT, circle, grant))
                        self.trace.append(15 | grant.lease_id << 8)
                    deadline = delivery.next_deadline()
                if deadline is not None and deadline < due:
                    due = deadline
            due = min(due, self.tree.wake_at(now))
        if agenda:
            due = min(due, agenda[0][0])
        self.due = due

    def at(self, at_s: float, deed: Callable[[float], None]) -> None:
        """Have `deed` done at an instant."""
        self._numbers += 1
        heappush(self.agenda, (at_s, self._numbers, deed))
        if at_s < self.due:
            self.due = at_s

    def check(self) -> None:
        """The rules that hold at any time."""
        for place in self.places:
            if place.is_up:
                place.check()
                for circle in place.circles:
                    circle.ledger.prune()

    # -- deeds: each returns how many inputs it gave ----------------------------------------------------------

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
        return self._fetch(place, circle, bits >> 4, BATCHES[bits >> 8 & 7], BURSTS[bits >> 11 & 7])

    def _fetch(self, place: Place, circle: Circle, consumer: int, max_records: int, burst: int) -> int:
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

    # -- lives ----------------------------------------------------------------------------------------------

    def _starts(self, path: str, now: float) -> None:
        """A place begins a life, by the supervisor's will."""
        place = self.by_path[path]
        if path in self.fresh:
            self.fresh.discard(path)
            place.reopen(self.wall_offset_s, mark=self.marks.get(path, 0))
        else:
            place.recover(now, self.wall_offset_s)
        self.due = now

    def _stops(self, path: str, now: float) -> None:
        """A place ends in good order: it writes what waits first."""
        place = self.by_path[path]
        if place.is_up:
            place.commit(now, self.wall_offset_s)
        if place.is_up:
            place.crash()

    def _crash(self, place: Place) -> bool:
        if not place.is_up:
            return False
        place.crash()
        self.tree.crash(place.path, self.now)
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
        for place in self.places:
            self.marks[place.path] = place.visible_end
            if strike.kind == "kill":
                place.kill()
            else:
                durable_end = place.durable_end
                place.lose_power(surviving)
                if survivors.random() < 0.5:
                    self.marks[place.path] = durable_end
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
        for place, (index, left, strike) in enumerate(waiting):
            if strike.about in subject:
                waiting[place] = (index, left - 1, strike)
                if left <= 1:
                    struck.append((index, strike))
        if struck:
            self.triggers[probe] = [waits for waits in waiting if waits[1] > 0]
            if not self.triggers[probe]:
                del self.triggers[probe]
            for index, strike in struck:
                self._strike(index, strike)

    def _strike(self, index: int, strike: Strike) -> None:
        self.trace.append(14 | index << 8)
        matching = [place for place in self.places if strike.path and strike.path in place.path]
        place = matching[0] if matching else self.places[strike.choose(len(self.places))]
        if strike.kind == "crash":
            hit = self._crash(place)
        elif strike.kind in ("power", "kill"):
            hit = self._end_process(strike)
        elif strike.kind == "jump":
            hit = True
            self.wall_offset_s += strike.seconds
            for _, circle in self.pairs:
                circle.ledger.delayed.clear()
        elif strike.kind == "consumer":
            hit = self._consumer_crashes(strike.choose(self.consumers))
        elif strike.kind == "pause":
            hit = place.is_up
            place.paused_until = self.now + min(abs(strike.seconds), 60.0)
        else:
            hit = True
            place.fails += 1
        self.hits[index] = self.hits.get(index, 0) + hit

    def _consumer_crashes(self, consumer: int) -> bool:
        """What the consumer holds is released, and what it was about to get."""
        held = 0
        for place, circle in self.pairs:
            if not place.is_up:
                continue
            ledger = circle.ledger
            circle.delivery.release_consumer(consumer)
            for lease_id, claim in tuple(ledger.claims.items()):
                if claim[2] == consumer:
                    ledger.gives_up(lease_id)
                    place.tidings.append((RELEASED, circle, claim[1]))
                    held += 1
            # Of a plan under way the leases are written; the release goes into the next one.
            for tidings in (place.tidings_now, place.tidings):
                for at, (kind, where, what) in enumerate(tidings):
                    if kind == LEASED and where is circle and what.consumer == consumer:
                        tidings[at] = (RELEASED, circle, what.ranges)
                        if tidings is place.tidings_now:
                            place.tidings.append(tidings[at])
            circle.hands = deque(hand for hand in circle.hands if hand[2] != consumer)
        return held > 0

    # -- the end --------------------------------------------------------------------------------------------

    def drain(self) -> None:
        """Heal everything; then all that was published is settled, in so many rounds."""
        self.triggers.clear()
        self.agenda = [entry for entry in self.agenda if entry[2].__name__ != "<lambda>"]
        for place in self.places:
            place.fails, place.paused_until = 0, 0.0
        for _ in range(ROUNDS_MAX):
            self.on_time()
            for place, circle in self.pairs:
                while place.is_up and (hands := circle.hands):
                    lease_id, ranges, _ = hands.popleft()
                    accepted, lost = circle.delivery.ack(lease_id, ranges, self.now)
                    if lost:
                        circle.ledger.refused(lease_id, lost, self.now)
                    circle.ledger.asks_to_settle(lease_id, ranges)
                    if accepted:
                        place.tidings.append((ACKED, circle, accepted))
                        place.sync = True
                    self.events += 1
                if place.is_up:
                    self._fetch(place, circle, 0, DRAIN_RECORDS, 1)
            for place in self.places:
                if place.is_up:
                    place.commit(self.now, self.wall_offset_s)
            self.check()
            if self._all_settled():
                return
            if not any(circle.hands and place.is_up for place, circle in self.pairs):
                self.on_time()
                self.now = max(self.now + 1.0, min(self.due, self.now + 1e6))
        raise Violation("liveness", f"{self._unsettled()} messages are not settled after {ROUNDS_MAX} rounds")

    def _all_settled(self) -> bool:
        return all(place.is_up for place in self.places) and not self._unsettled()

    def _unsettled(self) -> int:
        return sum(
            circle.delivery.pending_count(place.visible_end) + place.sequencer.records
            for place, circle in self.pairs
        )

    def driven(self, violation: Violation | None) -> Driven:
        """What came of it."""
        mask = (1 << 63) - 1
        digest = blake2b(
            array("q", [code & mask for code in self.trace]).tobytes(), digest_size=16
        ).hexdigest()
        names = {code: name for name, code in CODES.items()}
        tale = tuple(f"{names[code & 15]} {code >> 8}" for code in self.trace[-40:])
        settled = sum(circle.ledger.settled.count(1) for _, circle in self.pairs)
        crashes = sum(place.crashes for place in self.places)
        return Driven(
            self.seed, self.events, digest, violation, self.now, dict(self.hits), crashes, settled, tale
        )
