"""No damage is reported where there is none.

Crashes, power cuts and disks that refuse leave nothing that counts as damage: no partition reports damage, and no
delivery journal has to be salvaged, unless durable bytes were really spoiled.
"""

from __future__ import annotations

from callboard.simulations.checkers.terms import DEFAULT, Terms
from callboard.simulations.history.recorder import History
from callboard.simulations.history.surviving import Surviving
from callboard.simulations.violations import Violation

PROMISE = "no damage is reported where there is none"


def check(history: History, surviving: Surviving, terms: Terms = DEFAULT) -> list[Violation]:
    """One violation per event that reports damage, within what the promise covers."""
    if terms.beyond:
        return []
    return [
        Violation(PROMISE, f"{entry.who} reported damage ({entry.kind}: {entry.detail})", entry)
        for entry in history.of("DamageFound", "JournalSalvaged")
    ]
