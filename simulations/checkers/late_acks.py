"""An ack counts until the message is leased again, and not after that.

A consumer that acks a message which another was handed meanwhile is answered that the lease is lost.
"""

from __future__ import annotations

from callboard.simulations.checkers.terms import DEFAULT, Terms
from callboard.simulations.history.entry import HistoryEntry
from callboard.simulations.history.recorder import History
from callboard.simulations.history.surviving import Surviving
from callboard.simulations.violations import Violation

PROMISE = "an ack counts only until the message is leased again"


def check(history: History, surviving: Surviving, terms: Terms = DEFAULT) -> list[Violation]:
    """One violation per ack that returned, and had begun after another consumer was handed the message."""
    salvaged = terms.salvaged(history)
    last: dict[tuple[str, str, int, int], HistoryEntry] = {}
    late: dict[int, dict[int, HistoryEntry]] = {}
    """By operation and offset: the consumer that was handed the message before it was acked."""
    found = []
    for entry in history.of("delivered", "ack", "acked", "power cut"):
        if entry.kind == "power cut":
            last.clear()
            continue
        if f"{entry.topic}/{entry.partition}" in salvaged:
            continue
        if entry.kind == "acked":
            others = late.get(entry.operation, {})
            for offset in [offset for offset in entry.offsets if offset in others][:1]:
                other = others[offset]
                words = (
                    f"{entry.who} of {entry.group} was answered that its ack of {entry.topic}/{entry.partition}"
                    f"@{offset} is synced, which it began after {other.who} was handed the message"
                    f" at {other.time:.3f} s"
                )
                found.append(Violation(PROMISE, words, entry))
            continue
        for offset in entry.offsets:
            place = (entry.group, entry.topic, entry.partition, offset)
            if entry.kind == "delivered":
                last[place] = entry
            elif place in last and last[place].who != entry.who:
                late.setdefault(entry.operation, {})[offset] = last[place]
    return found
