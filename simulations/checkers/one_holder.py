"""A lease is held by one consumer at a time.

From its delivery on a message is its consumer's until the lease runs out, the consumer begins to settle it, leaves or
dies, or the machine does. Until then nobody of the group is handed it.
"""

from __future__ import annotations

from callboard.simulations.checkers.terms import DEFAULT, SLACK_S, Terms
from callboard.simulations.history.entry import HistoryEntry
from callboard.simulations.history.recorder import History
from callboard.simulations.history.surviving import Surviving
from callboard.simulations.violations import Violation

PROMISE = "a lease is held by one consumer at a time"


def check(history: History, surviving: Surviving, terms: Terms = DEFAULT) -> list[Violation]:
    """One violation per delivery of a message that another consumer still has leased."""
    salvaged = terms.salvaged(history)
    held: dict[tuple[str, str, int, int], HistoryEntry] = {}
    gone: set[int] = set()
    found = []
    for entry in history.of("delivered", "extended", "ack", "nack", "release", "left"):
        kind, group, topic, partition = entry.kind, entry.group, entry.topic, entry.partition
        if kind == "left":
            gone.add(entry.operation)
            continue
        if f"{topic}/{partition}" in salvaged:
            continue
        for offset in entry.offsets:
            place = (group, topic, partition, offset)
            holder = held.get(place)
            if kind == "extended":
                if holder is not None and holder.who == entry.who:
                    if entry.until < holder.until:
                        _shorten(held, entry)
                    held[place] = holder._replace(until=entry.until)
                continue
            if kind != "delivered":
                if holder is not None and holder.who == entry.who:
                    del held[place]
                continue
            if holder is not None and _holds(holder, entry, gone):
                words = (
                    f"{entry.who} of {group} was handed {topic}/{partition}@{offset} at {entry.time:.3f} s, and "
                    f"{holder.who} held it until {holder.until:.3f} s"
                )
                found.append(Violation(PROMISE, words, entry))
            held[place] = entry
    return found


def _shorten(held: dict[tuple[str, str, int, int], HistoryEntry], entry: HistoryEntry) -> None:
    """What was leased together with a message whose lease was shortened is held no longer, and nobody knows what."""
    where = entry.group, entry.topic, entry.partition
    for place, holder in held.items():
        if place[:3] == where and holder.who == entry.who and holder.until > entry.until:
            held[place] = holder._replace(until=entry.until)


def _holds(holder: HistoryEntry, entry: HistoryEntry, gone: set[int]) -> bool:
    return (
        holder.machine == entry.machine
        and holder.operation not in gone
        and entry.time < holder.until - SLACK_S
    )
