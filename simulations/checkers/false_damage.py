"""No damage is told where there is none.

Crashes, power cuts and disks that refuse leave nothing that counts as damage: no partition tells of damage, and no
delivery journal has to be salvaged, unless durable bytes were really spoiled. But where a power cut took the mark that
says how far a log was synced, a hole among records that were not looks like damage.
"""

from __future__ import annotations

from typing import Final

from callboard.simulations.checkers.terms import DEFAULT, Terms
from callboard.simulations.history.recorder import History
from callboard.simulations.history.surviving import Surviving
from callboard.simulations.violations import Violation

PROMISE = "no damage is told where there is none"
UNKNOWN_END: Final = "its proven end is unknown"
"""The kind of entry; `who` is the partition's path."""


def check(history: History, surviving: Surviving, terms: Terms = DEFAULT) -> list[Violation]:
    """One violation per event that tells of damage, within what the promise covers."""
    if terms.beyond:
        return []
    found, unknown = [], set()
    for entry in history.of("DamageFound", "JournalSalvaged", UNKNOWN_END):
        if entry.kind == UNKNOWN_END:
            unknown.add(entry.who)
        elif entry.kind == "JournalSalvaged" or entry.who not in unknown:
            words = f"{entry.who} told of damage ({entry.kind}: {entry.detail})"
            found.append(Violation(PROMISE, words, entry))
    return found
