"""Who waits is handed what there is.

When all consumers of a group that are there wait for messages, a message that none of them has is handed to one of them
within moments: one that was just published, one that was given back, one whose delay or lease is over, one whose
consumer has left, however it left. And `get(timeout=)` waits as long as it says, no less and no more.

This is demanded while nothing goes wrong. A consumer that may have no more messages in flight waits for room; the
messages of one that does not wait may have been fetched for it, ahead. In a group with order per key the first message
of a partition that is not settled waits for nothing.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from callboard.actors.partition.group_states import JITTER
from callboard.simulations.checkers.calm import Calm
from callboard.simulations.checkers.terms import DEFAULT, Terms
from callboard.simulations.history.entry import HELD, HistoryEntry
from callboard.simulations.history.recorder import History
from callboard.simulations.history.surviving import Surviving
from callboard.simulations.violations import Violation

PROMISE = "who waits is handed what there is"
LOOK_S: Final = 0.05
"""How long a consumer that does not want to wait allows the partitions for their answers."""
STEP_S: Final = 0.005
"""By how much a timeout may be late."""

Place = tuple[str, int, int]
"""Topic, partition, offset."""


class _State(NamedTuple):
    """What is known of a message in a group."""

    since: float = math.inf
    """From when on it can be handed to somebody; infinite when nobody knows."""
    holder: HistoryEntry | None = None
    """The delivery by which a consumer holds it, for as long."""
    is_settled: bool = False
    operation: int = 0
    """The settlement that was begun."""

    @property
    def life(self) -> int:
        """Of the consumer that holds it; 0 for nobody."""
        return 0 if self.holder is None else self.holder.operation

    @property
    def is_held(self) -> bool:
        """While a body runs: then its lease does not run out."""
        return self.holder is not None and self.holder.detail == HELD


_UNKNOWN = _State()
_SETTLED = _State(is_settled=True)


def check(history: History, surviving: Surviving, terms: Terms = DEFAULT) -> list[Violation]:
    """One violation per consumer that waited too long, or too short."""
    if terms.beyond or terms.drops_unread:
        return []
    calm = Calm(history)
    found = _timeouts(history)
    if not history.of("waited", "came to nothing"):
        return found
    groups = {name: _Group(name, history, calm, terms) for name in terms.groups}
    published: dict[Place, float] = {}
    starts = {(left.topic, left.index): left.start for left in surviving.partitions}
    for entry in history.of(*_KINDS):
        if entry.kind == "published":
            start = starts.get((entry.topic, entry.partition), 0)
            for place in _places(entry):
                if place[2] >= start:  # what retention has dropped may have gone before there was a group
                    published.setdefault(place, entry.time)
        elif entry.kind == "booted":
            for group in groups.values():
                group.booted(entry)
        elif entry.group in groups:
            violation = groups[entry.group].look(entry, published)
            if violation is not None:
                found.append(violation)
    return found


def _timeouts(history: History) -> list[Violation]:
    """Calls that came to nothing too early, or too late."""
    found = []
    for entry in history.of("came to nothing"):
        waited_s, timeout_s = entry.time - entry.until, float(entry.detail)
        if not timeout_s - STEP_S <= waited_s <= max(timeout_s, LOOK_S) + STEP_S:
            words = f"{entry.who} was to wait for {timeout_s:g} s, and waited for {waited_s:g} s"
            found.append(Violation(PROMISE, words, entry))
    return found


def _places(entry: HistoryEntry) -> list[Place]:
    return [(entry.topic, entry.partition, offset) for offset in entry.offsets]


class _Group:
    """What a group's consumers have, as far as it can be known."""

    def __init__(self, name: str, history: History, calm: Calm, terms: Terms) -> None:
        self._calm = calm
        self._terms = terms
        self._is_keyed = name in terms.keyed
        self._states: dict[Place, _State] = {}
        self._lives: dict[int, HistoryEntry] = {}
        self._left = -math.inf
        """When somebody last left."""
        self._lease_s = 0.0
        """The longest lease that was seen."""
        self._room: dict[int, float] = {}
        """When a consumer that had no room for more has, or had, some again."""
        self._headed: dict[tuple[str, int], float] = {}
        """By partition: when something was settled, and another message may have become the first."""
        self._nacks: dict[int, float] = {}
        """By operation: when the delay is over."""
        self._waits: dict[int, list[HistoryEntry]] = {}
        for entry in history.of("waited"):
            if entry.group == name:
                self._waits.setdefault(entry.operation, []).append(entry)

    def booted(self, entry: HistoryEntry) -> None:
        """All leases are void; what was being settled nobody knows."""
        self._lives.clear()
        for place, state in self._states.items():
            if state.life:
                self._states[place] = _State(since=max(entry.time, 0.0))

    def look(self, entry: HistoryEntry, published: dict[Place, float]) -> Violation | None:
        """Learn from an entry; whether it tells of a consumer that waited beside a message."""
        kind, states = entry.kind, self._states
        if kind in ("waited", "came to nothing"):
            return self._problem(entry, published)
        if kind == "joined":
            self._lives[entry.operation] = entry
        elif kind == "left":
            self._lives.pop(entry.operation, None)
            self._left = entry.time
            for place in [place for place, state in states.items() if state.life == entry.operation]:
                states[place] = _State(since=entry.time)
        elif kind == "delivered":
            self._lease_s = max(self._lease_s, entry.until - entry.time)
            state = _State(entry.until, entry)
            states.update(dict.fromkeys(_places(entry), state))
            self._note_room(entry.operation, entry.time)
        elif kind == "extended":
            self._extended(entry)
        elif kind in ("ack", "nack", "release"):
            if kind == "nack":
                # What is told is the least: of the group's backoff, for the message with the fewest attempts.
                doubled = 2.0 ** (max(entry.attempts, default=0) - min(entry.attempts, default=0))
                self._nacks[entry.operation] = entry.time + doubled * (entry.until - entry.time) / (
                    1 - JITTER
                )
            own = [place for place in _places(entry) if self._is_own(entry, place)]
            self._let_go(entry, own)
            lives = dict.fromkeys([states.get(place, _UNKNOWN).life for place in own])
            states.update(dict.fromkeys(own, _State(operation=entry.operation)))
            for life in lives:
                self._note_room(life, entry.time)
        elif kind == "unsure":  # it may hold the message, and may not
            for life, joined in self._lives.items():
                if joined.who == entry.who:
                    self._room[life] = entry.time + self._lease_s
        elif kind == "acked":
            self._headed[entry.topic, entry.partition] = entry.time
            states.update(dict.fromkeys(_places(entry), _SETTLED))
        elif kind in ("nacked", "released"):
            since = max(entry.time, self._nacks.get(entry.operation, 0.0))
            for place in _places(entry):
                if states.get(place, _UNKNOWN).operation == entry.operation:
                    states[place] = _State(since=since)
        return None

    def _is_own(self, entry: HistoryEntry, place: Place) -> bool:
        """Whether a settlement is of what its consumer holds, and not of what it once had."""
        holder = self._states.get(place, _UNKNOWN).holder
        return holder is None or entry.is_of(holder, place[2])

    def _extended(self, entry: HistoryEntry) -> None:
        """The lease has a new end, and all that was leased together has it."""
        states = self._states
        for place in _places(entry):
            life = states.get(place, _UNKNOWN).life
            if not life:
                continue
            for other, state in states.items():
                if state.life == life and other[:2] == place[:2]:
                    states[other] = state._replace(since=max(state.since, entry.until))
            states[place] = states[place]._replace(since=entry.until)
            self._note_room(life, entry.time)

    def _let_go(self, entry: HistoryEntry, places: list[Place]) -> None:
        """A body has ended, and renews no lease. Until then it was renewed, and so was all that was leased together."""
        for place in places:
            held = self._states.get(place, _UNKNOWN)
            if not held.is_held:
                continue
            for other, state in self._states.items():
                if state.life == held.life and other[:2] == place[:2]:
                    self._states[other] = state._replace(since=max(state.since, entry.time + self._lease_s))

    def _problem(self, entry: HistoryEntry, published: dict[Place, float]) -> Violation | None:
        """Whether there was a message all the time in which everybody waited."""
        since = max(self._calm.since(entry.time), self._left)
        most_s = self._terms.prompt_s
        if entry.kind == "waited":
            since = max(since, entry.until)
            most_s += float(entry.detail)
            end = entry.time
        else:
            end = entry.until
            if any(wait.until < entry.time <= wait.time for wait in self._waits.get(entry.operation, ())):
                return None  # it is the turn of another task with that consumer
        if end - since <= most_s:
            return None
        for life in self._lives:
            if life == entry.operation:  # its tasks take turns, and each fills its batch
                turns = [w for w in self._waits.get(life, ()) if w.until < entry.time and since < w.time]
                most_s += sum(float(wait.detail) for wait in turns if wait is not entry)
                continue
            wait = next((w for w in self._waits.get(life, ()) if w.until <= entry.time <= w.time), None)
            if wait is None:
                return None
            since = max(since, wait.until)
            most_s = max(most_s, self._terms.prompt_s + float(wait.detail))
        since = max(since, self._room.get(entry.operation, 0.0))
        if end - since <= most_s:
            return None
        topics = entry.topic.split(" and ")
        for place in self._ready(published, end - most_s):
            if place[0] in topics:
                words = (
                    f"{entry.who} of {entry.group} waited until {end:.3f} s, and {place[0]}/{place[1]}@{place[2]} was"
                    f" there, with nobody, for more than {most_s:g} s"
                )
                return Violation(PROMISE, words, entry)
        return None

    def _note_room(self, life: int, time: float) -> None:
        """What a consumer has in hand has changed: it may have room at another time."""
        if self._room.get(life, 0.0) > time:
            self._room[life] = time
        room_at = self._has_room_at(life, time)
        if room_at > time:
            self._room[life] = room_at

    def _has_room_at(self, life: int, time: float) -> float:
        """When the consumer could have one more message, from `time` on, by what it has now."""
        if self._terms.max_in_flight is None:
            return time
        ends = sorted(
            math.inf if state.is_held else state.since
            for state in self._states.values()
            if state.life == life
        )
        ends = [end for end in ends if end > time]
        too_many = len(ends) - self._terms.max_in_flight
        return ends[too_many] if too_many >= 0 else time

    def _ready(self, published: dict[Place, float], time: float) -> list[Place]:
        """What can be handed to anybody, and could from `time` on."""
        states = self._states
        passed: set[tuple[str, int]] = set()
        ready = []
        for place in sorted(dict.fromkeys([*published, *states])):
            state = states.get(place)
            if state is None:
                state = _State(since=published[place])
            if self._is_keyed and (place[:2] in passed or self._headed.get(place[:2], 0.0) > time):
                continue
            if not state.is_settled:
                passed.add(place[:2])
            if not state.is_held and state.since < time:
                ready.append(place)
        return ready


_KINDS: Final = (
    "published",
    "booted",
    "joined",
    "left",
    "delivered",
    "extended",
    "ack",
    "acked",
    "nack",
    "nacked",
    "release",
    "released",
    "unsure",
    "waited",
    "came to nothing",
)
