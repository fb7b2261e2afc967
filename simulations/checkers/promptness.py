"""What can happen now happens now: no waiting client is left waiting.

While nothing is disturbed, a message that may be delivered is delivered, within `SLACK_S`, to a consumer that waits and
has room; and a client that publishes, settles or extends is answered as soon. A message may be delivered from when its
publisher was told that it is synced; later again from when its lease runs out or was shortened to run out, its consumer
gave it back, left or died, its delay is over, or the process that had leased it has ended. A partition that crashes
gives its leases new time.

A consumer that is busy may have fetched messages ahead, which nobody sees: a group is held to this only while each of
its consumers waits, or has as many messages in its hands as it may. In a group with order per key a message may be
delivered for certain when all before it are settled.

What disturbs is in `calm.py`. A clock that jumps moves the delays that a later process reads.
"""

from __future__ import annotations

import math
from heapq import heappop, heappush

import attrs

from callboard.simulations.checkers.calm import DISTURBING, ENDINGS, Calm
from callboard.simulations.checkers.retention import DROPPED
from callboard.simulations.checkers.terms import DEFAULT, Terms
from callboard.simulations.history.entry import BACKOFF, LAZY, RECEIVING, SAME_BATCH, HistoryEntry
from callboard.simulations.history.recorder import History
from callboard.simulations.history.surviving import Surviving
from callboard.simulations.violations import Violation

PROMISE = "no waiting client is left waiting"
SLACK_S = 0.5
"""Virtual seconds; what is not disturbed takes a tenth of that at most, by timers."""
VERBS = 200
"""This many plans and reads in a row add to that on a slow disk: recoveries, and upkeep of many files."""
ABSENCE_S = 0.01
"""A client that gives up, and asks again within this many seconds, has been waiting all the time."""
BACKOFF_WIDENS = 2.5
"""A backoff lasts at most this many times as long as the least that is known of it."""
MAX_IN_FLIGHT = 10_000
"""Of a consumer without one of its own."""
FOREVER = math.inf

Place = tuple[str, int, int]
BEGINNINGS = ("publish", "ack", "nack", "release", "extend")
ENDS = ("published", "refused", "unsure", "acked", "nacked", "released", "extended", "lost")


@attrs.define(eq=False)
class _State:
    """What is known of a message in a group."""

    at: float
    """From when on it may be delivered; `FOREVER` while that is not known."""
    entry: HistoryEntry
    holder: int = 0
    """The consumer's life that was handed it last, and has not settled it."""
    is_settled: bool = False
    in_doubt: bool = False
    """An ack has failed that may have had its effect. A consumer that gives back what it settled gets no answer."""
    extended_to: float = 0.0
    """Until when an extension made the lease last, which no renewal cuts short."""


@attrs.define(eq=False)
class _Hold:
    """A delivery that its consumer has not settled, for all it knows."""

    until: float
    """When it takes no room any more at the latest."""
    surely_until: float
    """And at the earliest."""


@attrs.define(eq=False)
class _Member:
    """A life of a consumer."""

    since: float
    """From when on it waits, with room."""
    waiting: int = 0
    """How many of its tasks wait."""
    gave_up_at: float = -1.0
    handed_at: float = -1.0
    fills_s: float = 0.0
    """How long it may hold back what it has, to get more."""
    held: dict[Place, dict[int, _Hold]] = attrs.Factory(dict)
    """By message, and by the number of its delivery. It may have one message several times: what it does not know to be
    settled, and was handed again, takes room twice."""
    renewing: dict[Place, None] = attrs.Factory(dict)
    """What a body runs with."""

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for messages."""
        return self.waiting > 0

    def renews(self, where: tuple[str, int]) -> bool:
        """Whether a body runs with a message of that partition."""
        return any(place[:2] == where for place in self.renewing)

    def may_hide(self, most: int) -> bool:
        """Whether it may have fetched something while it is busy, when its hands are not full.

        Of one message that it may have at a time nothing is left, unless it gave up while that was on its way.
        """
        return most > 1 or self.gave_up_at >= self.handed_at

    def least_room(self, at: float, most: int) -> int:
        """How many more messages it may have had at that time at least."""
        return most - sum(hold.until > at for holds in self.held.values() for hold in holds.values())

    def most_room(self, at: float, most: int) -> int:
        """How many more messages it may have had at that time at most."""
        return most - sum(hold.surely_until > at for holds in self.held.values() for hold in holds.values())

    def hold(self, place: Place, number: int, until: float, surely_until: float) -> None:
        """It has the message by that delivery until then."""
        self.held.setdefault(place, {})[number] = _Hold(until, surely_until)

    def give_back(self, settles: HistoryEntry, place: Place, entries: list[HistoryEntry]) -> list[int]:
        """It settles the message: the deliveries by which it had it until now.

        When it may be of each of several deliveries, it gives back one, and it is unknown which: the others may last as
        long as the last of them, or end at once.
        """
        holds = self.held.get(place, {})
        own = [number for number in holds if settles.is_of(entries[number], place[2])]
        until = max((holds[number].until for number in own), default=0.0)
        for number in own:
            del holds[number]
        for number in own[1:]:
            holds[number] = _Hold(until, 0.0)
        if own and not holds:
            del self.held[place]
        return own


class _Group:
    """What a group's consumers do, and what they could be handed."""

    def __init__(self, *, is_keyed: bool, most: int, slack_s: float) -> None:
        self.members: dict[int, _Member] = {}
        self.states: dict[Place, _State] = {}
        self.settled_at: dict[tuple[str, int], float] = {}
        """By partition: when something was settled, so that another message may have become the first."""
        self.lease_s = 0.0
        """How long the longest lease was to last."""
        self.hidden_until = -math.inf
        """When a consumer ended last that may have fetched ahead."""
        self._most = most
        self._slack_s = slack_s
        self._is_keyed = is_keyed
        self._heap: list[tuple[float, Place]] = []
        self._renewed_at: dict[str, float] = {}
        """By path of a partition: when it was back the last time after it had crashed."""
        self._low: dict[tuple[str, int], int] = {}
        """By partition: below it everything is settled."""

    def put(self, place: Place, state: _State) -> None:
        """The message is known, or something else is known of it."""
        self.states[place] = state
        self.moved(place, state, state.at)

    def moved(self, place: Place, state: _State, at: float) -> None:
        """From then on it may be delivered."""
        state.at = at
        if self._is_keyed:
            self._low.setdefault(place[:2], 0)
        elif at < FOREVER:
            heappush(self._heap, (at, place))

    def renewed(self, path: str, now: float) -> None:
        """A partition has crashed and is back: what it had leased, it has leased anew."""
        self._renewed_at[path] = now
        for place, state in self.states.items():
            if state.holder and state.at < FOREVER and f"topics/{place[0]}/{place[1]}" == path:
                self.moved(place, state, max(state.at, now + self.lease_s))

    def leased_until(self, where: tuple[str, int], until: float) -> float:
        """When a lease ends which a consumer has `until` then: it may be older than the last crash."""
        renewed_at = self._renewed_at.get(f"topics/{where[0]}/{where[1]}", -math.inf)
        return max(until, renewed_at + self.lease_s) if until - self.lease_s < renewed_at else until

    def overdue(self, now: float) -> tuple[Place, _State] | None:
        """A message that a waiting consumer should have by now."""
        if self.hidden_until > now - self._slack_s:
            return None
        # What one gave up that was busy, another may hold back to get more.
        fills_s = max((member.fills_s for member in self.members.values() if member.is_waiting), default=0.0)
        before = now - self._slack_s - fills_s
        waits = False
        for member in self.members.values():
            if member.is_waiting:
                if member.since > before:
                    return None
                waits = waits or member.least_room(before, self._most) > 0
            elif member.most_room(before, self._most) > 0 and member.may_hide(self._most):
                return None
        return self._first(before) if waits else None

    def _first(self, before: float) -> tuple[Place, _State] | None:
        if self._is_keyed:
            for topic, partition in self._low:
                place = self._lowest(topic, partition)
                state = self.states.get(place)
                settled_at = self.settled_at.get((topic, partition), 0.0)
                if state is not None and max(state.at, settled_at) <= before:
                    return place, state
            return None
        while self._heap and self._heap[0][0] <= before:
            at, place = self._heap[0]
            state = self.states[place]
            if state.at == at and not state.is_settled:
                return place, state
            heappop(self._heap)
        return None

    def _lowest(self, topic: str, partition: int) -> Place:
        """The first of a partition that is not settled, or not known."""
        low = self._low[topic, partition]
        while (state := self.states.get((topic, partition, low))) is not None and state.is_settled:
            low += 1
        self._low[topic, partition] = low
        return topic, partition, low

    def ended(self, now: float, lives: tuple[int, ...]) -> None:
        """These consumers are gone: what they had may be delivered."""
        for life in lives:
            member = self.members.pop(life, None)
            if member is not None and not member.is_waiting and member.may_hide(self._most):
                self.hidden_until = now
            for place in member.held if member is not None else ():
                state = self.states[place]
                if state.holder == life:
                    state.holder = 0
                    self.moved(place, state, min(state.at, now))


class _PromptnessCheck:
    """Follows a history."""

    def __init__(self, history: History, terms: Terms) -> None:
        self._terms = terms
        self._slack_s = SLACK_S + VERBS * terms.latency_s
        self._history = history
        self._groups: dict[str, _Group] = {}
        self._published: dict[Place, HistoryEntry] = {}
        self._open: dict[int, HistoryEntry] = {}
        """Operations that have not ended, the oldest first."""
        self._begun: dict[int, HistoryEntry] = {}
        self._given_back: dict[int, list[tuple[_Member, Place, list[int]]]] = {}
        """By operation that settles: the deliveries by which its consumer had what it settles."""
        self._gone: set[Place] = set()
        """Retention dropped these, some before their publisher had their offsets."""
        self._calm = Calm(history)
        self._is_unsynced = False
        self.found: list[Violation] = []

    def follow(self) -> None:
        """From the beginning to the end."""
        now = -1.0
        steps = {
            "asks": self._asks,
            "gave up": self._gave_up,
            "joined": self._joined,
            "left": self._left,
            "delivered": self._delivered,
            "published": self._stored,
            DROPPED: self._dropped,
            "fault": self._strikes,
            **dict.fromkeys(("ActorStarted", "ActorStopped"), self._restarted),
            **dict.fromkeys(ENDINGS, self._machine_ended),
            **dict.fromkeys(("ack", "nack", "release", "extend"), self._settles),
            **dict.fromkeys(("acked", "nacked", "released", "extended", "lost", "unsure"), self._settled),
        }
        kinds = {*steps, *BEGINNINGS, *ENDS, *DISTURBING}
        for entry in self._history.entries:
            kind = entry.kind
            if kind not in kinds:
                continue
            if entry.time > now:
                calm_since, now = self._calm.since(now), entry.time
                if calm_since <= now - self._slack_s:
                    self._look(now, calm_since)
            if kind in BEGINNINGS:
                self._begun[entry.operation] = entry
                if entry.detail != LAZY:
                    self._open[entry.operation] = entry
            step = steps.get(kind)
            if step is not None:
                step(entry)
            if kind in ENDS:
                self._open.pop(entry.operation, None)

    def _look(self, now: float, calm_since: float) -> None:
        """Nothing is disturbed: is anything late?"""
        for entry in self._open.values():
            if entry.time > now - self._slack_s:
                break
            words = f"{entry.who} began to {entry.kind} at {entry.time:.3f} s, and at {now:.3f} s there was no answer"
            self._late(words, calm_since, entry)
            del self._open[entry.operation]
            break
        for name, group in self._groups.items():
            overdue = group.overdue(now)
            if overdue is None:
                continue
            (topic, partition, offset), state = overdue
            words = (
                f"{topic}/{partition}@{offset} could be delivered to {name} from {state.at:.3f} s on, and at"
                f" {now:.3f} s its consumers were still waiting"
            )
            self._late(words, calm_since, state.entry)
            state.at = FOREVER

    def _late(self, words: str, calm_since: float, entry: HistoryEntry) -> None:
        words += f" (nothing was disturbed since {calm_since:.3f} s)"
        self.found.append(Violation(PROMISE, words, entry))

    # -- what disturbs

    def _restarted(self, entry: HistoryEntry) -> None:
        """A partition that crashed is back, and has leased anew what it had leased."""
        for group in self._groups.values():
            group.renewed(entry.who, entry.time)

    def _strikes(self, entry: HistoryEntry) -> None:
        self._forget_unsynced()
        if entry.who == "JumpClock":
            for group in self._groups.values():
                for state in group.states.values():
                    if not state.holder and state.at > entry.time:
                        state.at = FOREVER

    def _forget_unsynced(self) -> None:
        """What is not known to be synced may go from now on."""
        if self._is_unsynced:
            return
        self._is_unsynced = True
        self._published = {place: entry for place, entry in self._published.items() if entry.detail == "all"}
        for group in self._groups.values():
            for state in group.states.values():
                if state.entry.kind == "published" and state.entry.detail != "all":
                    state.at = FOREVER

    def _machine_ended(self, entry: HistoryEntry) -> None:
        self._forget_unsynced()
        self._open.clear()
        for group in self._groups.values():
            group.ended(entry.time, tuple(group.members))
            if entry.kind == "power cut":
                for place, state in group.states.items():
                    if place not in self._published:  # a consumer may be handed what is not synced yet
                        state.at = FOREVER

    # -- consumers

    def _member(self, entry: HistoryEntry) -> _Member | None:
        group = self._groups.get(entry.group)
        return None if group is None else group.members.get(entry.operation)

    def _asks(self, entry: HistoryEntry) -> None:
        member = self._member(entry)
        if member is not None:
            if entry.time - member.gave_up_at > ABSENCE_S:
                member.since = entry.time
            # Tasks that share a consumer take turns, and each may fill a batch.
            filled_s = member.fills_s if member.is_waiting else 0.0
            member.waiting += 1
            member.fills_s = filled_s + max(0.0, entry.until - entry.time)

    def _gave_up(self, entry: HistoryEntry) -> None:
        member = self._member(entry)
        if member is not None:
            member.waiting, member.gave_up_at = max(0, member.waiting - 1), entry.time

    def _joined(self, entry: HistoryEntry) -> None:
        group = self._groups.get(entry.group)
        if group is None:
            terms = self._terms
            group = self._groups[entry.group] = _Group(
                is_keyed=entry.group in terms.keyed,
                most=terms.max_in_flight or MAX_IN_FLIGHT,
                slack_s=self._slack_s,
            )
            for place, published in self._published.items():
                group.put(place, _State(entry.time, published))
        group.members[entry.operation] = _Member(entry.time)

    def _left(self, entry: HistoryEntry) -> None:
        group = self._groups.get(entry.group)
        if group is not None:
            group.ended(entry.time, (entry.operation,))

    # -- messages

    def _stored(self, entry: HistoryEntry) -> None:
        if entry.detail != "all" and (entry.detail == "none" or self._is_unsynced):
            return
        for offset in entry.offsets:
            place = entry.topic, entry.partition, offset
            if place in self._gone:
                continue
            self._published[place] = entry
            for group in self._groups.values():
                if place not in group.states:
                    group.put(place, _State(entry.time, entry))

    def _dropped(self, entry: HistoryEntry) -> None:
        """Retention dropped these: a group that is made from now on does not find them."""
        for offset in entry.offsets:
            self._gone.add((entry.topic, entry.partition, offset))
            self._published.pop((entry.topic, entry.partition, offset), None)

    def _delivered(self, entry: HistoryEntry) -> None:
        group, member = self._groups.get(entry.group), self._member(entry)
        if group is None or member is None:
            return
        if entry.detail != SAME_BATCH:
            member.waiting = max(0, member.waiting - 1)
        member.handed_at = entry.time
        if member.is_waiting:
            member.since = entry.time
        group.lease_s = max(group.lease_s, entry.until - entry.time)
        where = entry.topic, entry.partition
        is_renewed = entry.detail == RECEIVING
        if (
            is_renewed
        ):  # and with it all that was leased together, which may be whatever the consumer has there
            member.renewing.update({(*where, offset): None for offset in entry.offsets})
            self._renewed(group, member, where, FOREVER)
        until = FOREVER if member.renews(where) else group.leased_until(where, entry.until)
        surely_until = FOREVER if is_renewed else entry.until
        for offset in entry.offsets:
            place = entry.topic, entry.partition, offset
            member.hold(place, entry.number, until, surely_until)
            group.put(place, _State(until, entry, entry.operation))

    def _renewed(self, group: _Group, member: _Member, where: tuple[str, int], until: float) -> None:
        """What a consumer has of a partition may be its own until then."""
        for place in member.held:
            state = group.states[place]
            if place[:2] == where and group.members.get(state.holder) is member:
                lasts_until = max(until, state.extended_to)
                group.moved(place, state, lasts_until)
                for hold in member.held[place].values():
                    hold.until, hold.surely_until = lasts_until, min(hold.surely_until, lasts_until)

    def _settles(self, entry: HistoryEntry) -> None:
        """A settlement begins: until it has ended, its outcome is unknown."""
        group = self._groups.get(entry.group)
        if group is None:
            return
        for offset in entry.offsets:
            place = entry.topic, entry.partition, offset
            state = group.states.get(place)
            member = self._holder(group, entry, place)
            if entry.kind != "extend":
                self._gives_back(group, entry, place)
            if state is None or member is None:
                continue
            if state.entry.detail == RECEIVING and entry.kind != "extend":
                member.renewing.pop(place, None)
                if not member.renews(place[:2]):
                    self._renewed(group, member, place[:2], entry.time + group.lease_s)
            group.moved(place, state, FOREVER)
            if entry.kind == "extend":  # which may shorten the lease, of all that was leased together
                for other, holds in member.held.items():
                    for hold in holds.values() if other[:2] == place[:2] else ():
                        hold.surely_until = min(hold.surely_until, entry.until)
                continue
            if entry.kind != "release":
                state.holder = 0
            else:
                # Given back, or its consumer leaves: it takes no room.
                member.hold(place, state.entry.number, 0.0, 0.0)

    def _gives_back(self, group: _Group, entry: HistoryEntry, place: Place) -> None:
        """Its consumer has the message no longer by the deliveries that it settles, be they its latest or not."""
        for member in group.members.values():
            numbers = member.give_back(entry, place, self._history.entries)
            if numbers:
                member.since = max(member.since, entry.time)
                self._given_back.setdefault(entry.operation, []).append((member, place, numbers))

    def _holder(self, group: _Group, entry: HistoryEntry, place: Place) -> _Member | None:
        """The consumer that settles, if the message is its own, and not one that it had before."""
        state = group.states.get(place)
        if state is None or not entry.is_of(state.entry, place[2]):
            return None
        return group.members.get(state.holder)

    def _settled(self, entry: HistoryEntry) -> None:
        """A settlement has ended."""
        group, begun = self._groups.get(entry.group), self._begun.get(entry.operation)
        if group is None or begun is None or entry.kind == "lost":
            return
        if entry.kind == "unsure":
            self._tried_in_vain(group, begun, entry)
            return
        for offset in entry.offsets:
            place = entry.topic, entry.partition, offset
            state = group.states.get(place)
            if state is None or state.entry.who != entry.who or state.entry.number > begun.number:
                continue
            if entry.kind == "acked":
                state.is_settled = True
                group.settled_at[place[:2]] = entry.time
                group.moved(place, state, FOREVER)
            elif entry.kind == "nacked":
                group.put(place, _State(entry.time + _delay_s(begun, offset), entry))
            elif entry.kind == "released" and state.in_doubt:
                group.moved(place, state, FOREVER)
            elif entry.kind == "released":
                group.put(place, _State(entry.time, entry))
            else:
                self._extended(group, place, state, entry)

    def _tried_in_vain(self, group: _Group, begun: HistoryEntry, entry: HistoryEntry) -> None:
        """What may be settled or not its consumer still has, and may settle once more."""
        if begun.detail == LAZY:
            return
        places = [(entry.topic, entry.partition, offset) for offset in entry.offsets]
        for place in places:
            if begun.kind == "ack" and (state := group.states.get(place)) is not None:
                state.in_doubt = True
        for member, place, numbers in self._given_back.get(begun.operation, ()):
            for number in numbers if place in places else ():
                until = self._history.entries[number].until
                member.hold(place, number, max(until, entry.time + group.lease_s), 0.0)

    def _extended(self, group: _Group, place: Place, state: _State, entry: HistoryEntry) -> None:
        """The lease ends then, and with it that of what was leased together, which may have been extended so."""
        member = group.members.get(state.holder)
        if member is None:
            return
        until = FOREVER if place in member.renewing else entry.until  # then it is renewed before
        group.moved(place, state, until)
        state.extended_to = entry.until
        member.hold(place, state.entry.number, until, entry.until)
        for other in member.held:
            others = group.states[other]
            if other[:2] == place[:2] and others.holder == state.holder:
                others.extended_to = max(others.extended_to, entry.until)
                if others.at < entry.until:
                    group.moved(other, others, entry.until)
                    for hold in member.held[other].values():
                        hold.until = max(hold.until, entry.until)


def _delay_s(nack: HistoryEntry, offset: int) -> float:
    """How long the nack keeps a message back at most. Its end is that of the message with the fewest attempts."""
    delay_s = max(0.0, nack.until - nack.time)
    if nack.detail != BACKOFF:
        return delay_s
    attempts = dict(zip(nack.offsets, nack.attempts, strict=False))
    more = attempts.get(offset, 0) - min(nack.attempts, default=0)
    return BACKOFF_WIDENS * delay_s * 2.0 ** min(max(0, more), 60)


def check(history: History, surviving: Surviving, terms: Terms = DEFAULT) -> list[Violation]:
    """One violation per message and operation that is late."""
    if terms.beyond or terms.drops_unread:
        return []
    watch = _PromptnessCheck(history, terms)
    watch.follow()
    return watch.found
