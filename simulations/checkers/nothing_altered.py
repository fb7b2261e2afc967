"""Nothing is altered: whatever is delivered, or read from the log, is byte for byte what was published."""

from __future__ import annotations

from callboard.simulations.checkers.terms import DEFAULT, Terms
from callboard.simulations.history.entry import ALTERED
from callboard.simulations.history.recorder import History
from callboard.simulations.history.surviving import Surviving
from callboard.simulations.violations import Violation

PROMISE = "nothing is altered"


def check(history: History, surviving: Surviving, terms: Terms = DEFAULT) -> list[Violation]:
    """One violation per delivery, and per stored record, with foreign bytes."""
    found = [
        Violation(PROMISE, f"{entry.who} was handed bytes at {entry.place} that were never published", entry)
        for entry in history.of("delivered", "read")
        if ALTERED in entry.ids
    ]
    for left in surviving.partitions:
        if ALTERED in left.records.values():
            offset = next(offset for offset, number in left.records.items() if number == ALTERED)
            found.append(
                Violation(PROMISE, f"{left.label}@{offset} holds bytes that were never published", None)
            )
    return found
