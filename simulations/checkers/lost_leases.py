"""A lease is lost only when its time is over.

A consumer that settles before its lease runs out is never answered that the lease is lost, also when the partition
crashes meanwhile: a consumer that was handed a message has it until the deadline that came with it. A lease that a
failed sync has taken out of the journal is given back. An ack that was cut off may be repeated. What else a consumer
settled before, or may have settled, and what damage has taken out of the journal, is no longer its own.
"""

from __future__ import annotations

import math
from typing import Final

from callboard.simulations.checkers.calm import Calm
from callboard.simulations.checkers.terms import DEFAULT, SLACK_S, Terms
from callboard.simulations.history.entry import RECEIVING, HistoryEntry
from callboard.simulations.history.recorder import History
from callboard.simulations.history.surviving import Surviving
from callboard.simulations.violations import Violation

PROMISE = "a lease is lost only when its time is over"
CUT_OFF: Final = "cancelled"
"""How a settlement ended that its caller gave up."""


def check(history: History, surviving: Surviving, terms: Terms = DEFAULT) -> list[Violation]:
    """One violation per settlement that lost its lease before the deadline that the consumer was given."""
    if terms.beyond or terms.drops_unread:
        return []
    held: dict[tuple[str, str, int, int], HistoryEntry] = {}
    begun: dict[int, HistoryEntry] = {}
    doubtful: set[tuple[str, str, int, int]] = set()
    """What a consumer may have settled: it may have been handed that again, and settle either."""
    cut_off: set[tuple[str, str, int, int]] = set()
    """What a consumer may have acked: another ack is not lost, but anything else may be."""
    calm = Calm(history)
    found = []
    for entry in history.of(*_KINDS):
        if entry.kind == "joined":
            doubtful = {place for place in doubtful if place[0] != entry.who}
            continue
        places = [(entry.who, entry.topic, entry.partition, offset) for offset in entry.offsets]
        if entry.kind == "delivered":
            held.update(dict.fromkeys(places, entry))
            continue
        if entry.kind in ("ack", "nack", "release", "extend"):
            begun[entry.operation] = entry
            if entry.kind == "extend":  # that may shorten the lease, of all that was leased together
                for place, holder in held.items():
                    if place[:3] == (entry.who, entry.topic, entry.partition):
                        held[place] = holder._replace(until=min(holder.until, entry.until))
            continue
        begin = begun.get(entry.operation, entry)
        own = [place for place in places if place in held and begin.is_of(held[place], place[3])]
        if entry.kind == "extended":
            held.update({place: held[place]._replace(until=entry.until) for place in own})
            continue
        mine = {place: held.pop(place) for place in own if place not in doubtful}
        known = [*mine.values()]
        if entry.kind == "unsure" and begin.kind == "ack" and entry.detail == CUT_OFF:
            held.update(mine)
            cut_off.update(mine)
        elif entry.kind == "unsure":
            doubtful.update(places)
        if begin.kind != "ack" and not cut_off.isdisjoint(places):
            continue
        if entry.kind != "lost" or not known or len(known) != len(places):
            continue
        until = min(_until(holder, entry, calm) for holder in known)
        if until > entry.time + SLACK_S:
            words = f"{entry.who} lost {entry.place} at {entry.time:.3f} s, and had it until {until:.3f} s"
            found.append(Violation(PROMISE, words, entry))
    return found


def _until(holder: HistoryEntry, entry: HistoryEntry, calm: Calm) -> float:
    """When the lease ends, as its consumer knows it; while a body runs, and nothing goes wrong, it does not."""
    is_renewed = holder.detail == RECEIVING and calm.lasts(holder, entry.time)
    return math.inf if is_renewed else holder.until


_KINDS: Final = (
    "joined",
    "delivered",
    "ack",
    "nack",
    "release",
    "extend",
    "extended",
    "acked",
    "nacked",
    "released",
    "unsure",
    "lost",
)
