"""A lease is held by one consumer at a time.

From its delivery on a message is its consumer's until the lease runs out, the consumer begins to settle it, leaves or
dies, or the machine does. Until then no other of the group is handed it. One that a body runs with is its consumer's
until that ends, while nothing goes wrong. A consumer that extends a lease may shorten it, and with it that of all that
was leased together.
"""

from __future__ import annotations

from callboard.simulations.checkers.calm import Calm
from callboard.simulations.checkers.terms import DEFAULT, SLACK_S, Terms
from callboard.simulations.history.entry import RECEIVING, HistoryEntry
from callboard.simulations.history.recorder import History
from callboard.simulations.history.surviving import Surviving
from callboard.simulations.violations import Violation

PROMISE = "a lease is held by one consumer at a time"


def check(history: History, surviving: Surviving, terms: Terms = DEFAULT) -> list[Violation]:
    """One violation per delivery of a message that another consumer still has leased."""
    salvaged = terms.salvaged(history)
    held: dict[tuple[str, str, int, int], HistoryEntry] = {}
    gone: set[int] = set()
    extends: dict[int, HistoryEntry] = {}
    found = []
    calm = Calm(history)
    for entry in history.of("delivered", "extend", "extended", "ack", "nack", "release", "left"):
        kind, group, topic, partition = entry.kind, entry.group, entry.topic, entry.partition
        if kind == "left":
            gone.add(entry.operation)
            continue
        if f"{topic}/{partition}" in salvaged:
            continue
        if kind == "extend":
            extends[entry.operation] = entry
            for place, own in held.items():
                if own.who == entry.who and place[:3] == (group, topic, partition):
                    held[place] = own._replace(until=min(own.until, entry.until))
            continue
        for offset in entry.offsets:
            place = (group, topic, partition, offset)
            holder = held.get(place)
            if kind == "extended":
                begun = extends.get(entry.operation, entry)
                if holder is not None and begun.is_of(holder, offset):
                    held[place] = holder._replace(until=entry.until)
                continue
            if kind != "delivered":
                if holder is not None and entry.is_of(holder, offset):
                    del held[place]
                continue
            if holder is not None and _holds(holder, entry, gone, calm):
                words = (
                    f"{entry.who} of {group} was handed {topic}/{partition}@{offset} at {entry.time:.3f} s, and "
                    f"{holder.who} held it until {holder.until:.3f} s"
                )
                found.append(Violation(PROMISE, words, entry))
            held[place] = entry
    return found


def _holds(holder: HistoryEntry, entry: HistoryEntry, gone: set[int], calm: Calm) -> bool:
    if holder.machine != entry.machine or holder.operation in gone:
        return False
    is_renewed = holder.detail == RECEIVING and calm.since(entry.time) < holder.time
    return is_renewed or entry.time < holder.until - SLACK_S
