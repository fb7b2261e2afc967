"""No delivery after a settled ack: once an ack has returned, its group is never handed the message again."""

from __future__ import annotations

from callboard.simulations.checkers.terms import DEFAULT, Terms
from callboard.simulations.history.entry import HistoryEntry
from callboard.simulations.history.recorder import History
from callboard.simulations.history.surviving import Surviving
from callboard.simulations.violations import Violation

PROMISE = "no delivery after a settled ack"


def check(history: History, surviving: Surviving, terms: Terms = DEFAULT) -> list[Violation]:
    """One violation per delivery of a settled message. An ack that may not have happened promises nothing."""
    salvaged = terms.salvaged(history)
    settled: dict[tuple[str, str, int, int], HistoryEntry] = {}
    found = []
    for entry in history.of("acked", "delivered", "power cut"):
        if entry.kind == "power cut":
            if terms.beyond:
                # Garbage over the journal's last frames looks like a torn write, and nothing else knows of them.
                settled.clear()
            continue
        group, topic, partition = entry.group, entry.topic, entry.partition
        if f"{topic}/{partition}" in salvaged:
            continue
        if entry.kind == "acked":
            for offset in entry.offsets:
                settled[group, topic, partition, offset] = entry
            continue
        for offset in entry.offsets:
            ack = settled.get((group, topic, partition, offset))
            if ack is not None:
                words = (
                    f"{entry.who} of {group} was handed {topic}/{partition}@{offset} at {entry.time:.3f} s, and "
                    f"{ack.who} had been told at {ack.time:.3f} s that its ack is synced"
                )
                found.append(Violation(PROMISE, words, entry))
    return found
