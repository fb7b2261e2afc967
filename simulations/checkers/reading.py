"""Readers see every record, in order, once.

From its first record on, what a reader is given rises by offset; it passes nothing over that was stored before it read
on and that is still there in the end. What retention drops before a reader comes to it ends the reader's life.
"""

from __future__ import annotations

from callboard.simulations.checkers.terms import DEFAULT, Terms
from callboard.simulations.history.entry import HistoryEntry
from callboard.simulations.history.recorder import History
from callboard.simulations.history.surviving import Surviving
from callboard.simulations.violations import Violation

PROMISE = "readers see every record, in order"


def check(history: History, surviving: Surviving, terms: Terms = DEFAULT) -> list[Violation]:
    """One violation per record that a reader was given out of order, and per one that it was not given."""
    stored: dict[tuple[str, int], dict[int, HistoryEntry]] = {}
    places: dict[tuple[str, int], tuple[str, int, int]] = {}
    left = {(part.topic, part.index): part.records for part in surviving.partitions}
    found = []
    for entry in history.of("published", "read"):
        topic, partition = entry.topic, entry.partition
        if entry.kind == "published":
            if entry.detail == "all":
                stored.setdefault((topic, partition), {}).update(dict.fromkeys(entry.offsets, entry))
            continue
        reader, offset = (entry.who, entry.operation), entry.offsets[0]
        has_begun = reader in places
        *_, before = places.get(reader, (topic, partition, -1))
        places[reader] = topic, partition, offset
        if offset <= before:
            words = f"{entry.who} read {entry.place} at {entry.time:.3f} s, after offset {before}"
            found.append(Violation(PROMISE, words, entry))
            continue
        known, kept = stored.get((topic, partition), {}), left.get((topic, partition), {})
        for missing in range(before + 1, offset):
            if missing in known and (missing in kept or (has_begun and terms.drops)):
                words = f"{entry.who} read {entry.place}, and had not been given offset {missing}"
                found.append(Violation(PROMISE, words, entry))
    return found
