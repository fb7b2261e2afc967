"""No consumer has more messages in its hands than `max_in_flight` allows.

A message is in a consumer's hands from its delivery until the consumer begins to settle it, or its lease runs out; with
a lease that was shortened all that was leased together may run out early.
"""

from __future__ import annotations

from callboard.simulations.checkers.terms import DEFAULT, SLACK_S, Terms
from callboard.simulations.history.entry import HistoryEntry
from callboard.simulations.history.recorder import History
from callboard.simulations.history.surviving import Surviving
from callboard.simulations.violations import Violation

PROMISE = "a consumer holds no more messages than max_in_flight"


def check(history: History, surviving: Surviving, terms: Terms = DEFAULT) -> list[Violation]:
    """One violation per delivery that is too much."""
    if terms.max_in_flight is None:
        return []
    held: dict[int, dict[tuple[str, int, int], float]] = {}
    lives: dict[str, int] = {}
    found = []
    for entry in history.of("delivered", "extend", "extended", "ack", "nack", "release"):
        places = [(entry.topic, entry.partition, offset) for offset in entry.offsets]
        if entry.kind in ("extend", "extended"):
            shorten(held.get(lives.get(entry.who, 0), {}), entry)
            continue
        if entry.kind != "delivered":
            own = held.get(lives.get(entry.who, 0), {})
            for place in places:
                own.pop(place, None)
            continue
        lives[entry.who] = entry.operation
        own = held.setdefault(entry.operation, {})
        own.update(dict.fromkeys(places, entry.until))
        count = sum(until > entry.time + SLACK_S for until in own.values())
        if count > terms.max_in_flight:
            words = f"{entry.who} of {entry.group} holds {count} messages, and may hold {terms.max_in_flight}"
            found.append(Violation(PROMISE, words, entry))
    return found


def shorten(own: dict[tuple[str, int, int], float], entry: HistoryEntry) -> None:
    """Let leases of the partition in `own` (until when, by place) end no later than the one in `entry`."""
    for place, until in own.items():
        if place[:2] == (entry.topic, entry.partition) and until > entry.until:
            own[place] = entry.until
