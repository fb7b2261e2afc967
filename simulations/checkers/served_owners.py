"""While partitions of an exclusive group move from one member to another, those that stay are served as before.

A member owns a partition from when it was handed over to it until it is decided that another is to have it. In that
time, while nothing is disturbed (`calm.py`), a message that may be delivered is delivered within `SLACK_S`, and what
`VERBS` plans take on a disk of that latency, if the member waits in `get` or `receive`: a consumer that joins, leaves
or stalls, and whatever other partitions wait for. Members have room for more messages than there are.

A message may be delivered from when its publisher was answered that it is stored; later again from when a consumer was
answered that it was given back, or when the delay of a nack is over. What else makes a message come back is not judged:
after a lease that ran out, or a consumer that failed, it is left out until it is delivered again. In a group with order
per key a message may be delivered for certain when all before it are settled.
"""

from __future__ import annotations

import math
from typing import Final

import attrs

from callboard.simulations.checkers.calm import ENDINGS, Calm
from callboard.simulations.checkers.promptness import ABSENCE_S, SLACK_S, VERBS
from callboard.simulations.history.entry import HistoryEntry
from callboard.simulations.history.members import IS_TO_OWN, OWNS
from callboard.simulations.history.recorder import History
from callboard.simulations.violations import Violation

PROMISE: Final = "a partition that stays with its owner is served while others move"
KINDS: Final = (
    *("published", "joined", "left", "asks", "gave up", "delivered", "acked", "nacked", "released"),
    *(OWNS, IS_TO_OWN, "fault", *ENDINGS),
)
LOOKS: Final = ("asks", "gave up", "delivered")
"""Before these the owners were looked at."""
NOT_KNOWN: Final = math.inf
SETTLED: Final = -1.0

Place = tuple[str, int]


@attrs.define(eq=False)
class _OwnedPartition:
    """A partition: who owns it, and what is in it."""

    owner: int = 0
    """A life; 0 while it moves, or has no owner."""
    since: float = 0.0
    settled_at: float = 0.0
    messages: dict[int, tuple[float, HistoryEntry]] = attrs.Factory(dict)
    """By offset: from when on it may be delivered, or `NOT_KNOWN` or `SETTLED`; and how that is known."""
    low: int = 0
    """Below it everything is settled."""

    def put(self, entry: HistoryEntry, at: float) -> None:
        for offset in entry.offsets:
            self.messages[offset] = at, entry

    def first(self, *, is_keyed: bool) -> tuple[float, int] | None:
        """What may be delivered, from the earliest time on: that time, and the offset."""
        if not is_keyed:
            ready = [(at, offset) for offset, (at, _) in self.messages.items() if at != SETTLED]
            return min(ready, default=None)
        while self.messages.get(self.low, (NOT_KNOWN, None))[0] == SETTLED:
            self.low += 1
        at = self.messages[self.low][0] if self.low in self.messages else NOT_KNOWN
        return max(at, self.settled_at), self.low


@attrs.define(eq=False)
class _OwnerLife:
    """A life of a consumer."""

    who: str
    since: float
    """From when on it waits."""
    waiting: int = 0
    """How many of its tasks wait."""
    gave_up_at: float = -1.0


class ServedOwners:
    """What is broken in a history with one exclusive group, and whether there was anything that could be."""

    def __init__(self, history: History, *, is_keyed: bool = False, latency_s: float = 0.0) -> None:
        self.found: list[Violation] = []
        self.has_served = False
        """A member was handed a message while other partitions moved, and they moved for so long that the message
        would have been late if it had waited for them."""
        self._is_keyed = is_keyed
        self._slack_s = SLACK_S + VERBS * latency_s
        self._calm = Calm(history)
        self._parts: dict[Place, _OwnedPartition] = {}
        self._members: dict[int, _OwnerLife] = {}
        self._moving: dict[Place, None] = {}
        self._moving_since = 0.0
        self._served: list[float] = []
        """From when on messages could be delivered, and were, while partitions move."""
        self._looked_at = -1.0
        for entry in history.of(*KINDS):
            self._follow(entry)

    def _follow(self, entry: HistoryEntry) -> None:
        if entry.kind in LOOKS and entry.time > self._looked_at:
            self._looked_at = entry.time
            self._look(entry.time)
        match entry.kind:
            case "published":
                part = self._part(entry)
                if entry.offsets[0] not in part.messages:
                    part.put(entry, entry.time)
            case "joined":
                self._members[entry.operation] = _OwnerLife(entry.who, entry.time)
            case "left":
                self._members.pop(entry.operation, None)
            case "asks" | "gave up" | "delivered":
                self._waits(entry)
            case "acked":
                part = self._part(entry)
                part.put(entry, SETTLED)
                part.settled_at = entry.time
            case "nacked" | "released":
                self._comes_back(entry)
            case "owns" | "is to own":
                self._is_owned(entry)
            case "fault":
                self._strikes(entry)
            case _:
                self._members.clear()
                self._moving.clear()

    def _part(self, entry: HistoryEntry) -> _OwnedPartition:
        return self._parts.setdefault((entry.topic, entry.partition), _OwnedPartition())

    # -- what happens

    def _is_owned(self, entry: HistoryEntry) -> None:
        place, part = (entry.topic, entry.partition), self._part(entry)
        part.owner, part.since = entry.operation if entry.kind == OWNS else 0, entry.time
        if entry.kind == OWNS:
            self._moving.pop(place, None)
        else:
            if not self._moving:
                self._moving_since = entry.time
            self._moving[place] = None
        if not self._moving:
            self._served.clear()

    def _waits(self, entry: HistoryEntry) -> None:
        member = self._members.get(entry.operation)
        if entry.kind == "delivered":
            self._was_served(entry, member)
            self._part(entry).put(entry, NOT_KNOWN)
        if member is None:
            return
        if entry.kind == "asks":
            if entry.time - member.gave_up_at > ABSENCE_S:
                member.since = entry.time
            member.waiting += 1
            return
        member.waiting = max(0, member.waiting - 1)
        if entry.kind == "gave up":
            member.gave_up_at = entry.time
        elif member.waiting:
            member.since = entry.time

    def _was_served(self, entry: HistoryEntry, member: _OwnerLife | None) -> None:
        part = self._part(entry)
        at, _ = part.messages.get(entry.offsets[0], (NOT_KNOWN, entry))
        if self._moving and member is not None and part.owner == entry.operation and at < NOT_KNOWN:
            self._served.append(max(at, member.since, part.since, self._moving_since))

    def _comes_back(self, entry: HistoryEntry) -> None:
        """Unless it was delivered meanwhile, or the consumer that gave it back has it no longer."""
        part = self._part(entry)
        _, known = part.messages.get(entry.offsets[0], (NOT_KNOWN, entry))
        if known.kind == "delivered" and (known.operation, known.attempts) == (
            entry.operation,
            entry.attempts,
        ):
            part.put(entry, max(entry.time, entry.until))

    def _strikes(self, entry: HistoryEntry) -> None:
        """A clock that jumps moves delays."""
        if entry.who == "JumpClock":
            for part in self._parts.values():
                for offset, (at, known) in part.messages.items():
                    if at > entry.time:
                        part.messages[offset] = NOT_KNOWN, known

    # -- what is late

    def _look(self, now: float) -> None:
        calm_since = self._calm.since(now)
        before = now - self._slack_s
        if calm_since > before:
            self._served.clear()
            return
        if any(at <= before for at in self._served):
            self.has_served = True
        for (topic, partition), part in self._parts.items():
            member = self._members.get(part.owner)
            if member is None or not member.waiting or max(member.since, part.since) > before:
                continue
            first = part.first(is_keyed=self._is_keyed)
            if first is None or first[0] > before:
                continue
            at, offset = first
            known = part.messages[offset][1]
            moving = ", ".join(f"{name}/{index}" for name, index in self._moving) or "nothing"
            words = (
                f"{topic}/{partition}@{offset} could be delivered to {member.who}, which has had its partition since"
                f" {part.since:.3f} s and has waited since {member.since:.3f} s, from {at:.3f} s on, and at"
                f" {now:.3f} s it was still waiting (on the way to other members: {moving}; nothing was disturbed"
                f" since {calm_since:.3f} s)"
            )
            self.found.append(Violation(PROMISE, words, known))
            part.messages[offset] = NOT_KNOWN, known
