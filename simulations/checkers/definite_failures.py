"""A definite failure did not happen: a message is in the log at most as often as publishing it may have succeeded.

Repeating a publish after an indefinite error may store a message twice; nothing else may.
"""

from __future__ import annotations

from collections import Counter

from callboard.simulations.checkers.terms import DEFAULT, Terms
from callboard.simulations.history.entry import HistoryEntry
from callboard.simulations.history.recorder import History
from callboard.simulations.history.surviving import Surviving
from callboard.simulations.violations import Violation

PROMISE = "what failed definitely did not happen"


def check(history: History, surviving: Surviving, terms: Terms = DEFAULT) -> list[Violation]:
    """One violation per message that is stored too often."""
    may: Counter[int] = Counter()
    last: dict[int, HistoryEntry] = {}
    publishes = set()
    for entry in history.of("publish"):
        publishes.add(entry.operation)
        may.update(entry.ids)
    for entry in history.of("refused"):
        if entry.operation in publishes:
            may.subtract(entry.ids)
            last.update(dict.fromkeys(entry.ids, entry))
    seen = places(history, surviving)
    copies = Counter(seen.values())
    return [
        Violation(
            PROMISE,
            f"message {number} is in the log {count} times, and can have been stored {may[number]} times",
            last.get(number),
        )
        for number, count in copies.items()
        if number >= 0 and count > may[number]
    ]


def places(history: History, surviving: Surviving) -> dict[tuple[str, int, int], int]:
    """Every (topic, partition, offset) at which a message was seen, and which."""
    seen: dict[tuple[str, int, int], int] = {}
    for entry in history.of("delivered", "read"):
        topic, partition = entry.topic, entry.partition
        for offset, number in zip(entry.offsets, entry.ids, strict=True):
            seen[topic, partition, offset] = number
    for left in surviving.partitions:
        topic, partition = left.topic, left.index
        for offset, number in left.records.items():
            seen[topic, partition, offset] = number
    return seen
