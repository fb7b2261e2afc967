"""What was closed in good order is on the disk.

When closing a runtime raised nothing, the disk had refused nothing, and no partition crashed meanwhile, no file of a
topic or of the catalog differs from what a power cut would leave.
"""

from __future__ import annotations

from typing import Final

from callboard.simulations.checkers.terms import DEFAULT, Terms
from callboard.simulations.history.recorder import History
from callboard.simulations.history.surviving import Surviving
from callboard.simulations.violations import Violation

PROMISE = "what was closed in good order is on the disk"
CLOSED: Final = "runtime closed"
"""The kind of entry; its `detail` names the files that are not synced."""
REFUSED: Final = "the disk had refused something"
"""The `detail` when nothing is promised: what could not be written may have been left."""
CRASHED: Final = "a partition crashed while it closed"
"""The same, as nothing is left to start it again."""


def check(history: History, surviving: Surviving, terms: Terms = DEFAULT) -> list[Violation]:
    """One violation per closing that left anything unsynced, on a disk that keeps what it has confirmed."""
    if terms.beyond:
        return []
    return [
        Violation(PROMISE, f"the runtime was closed, and these files are not synced: {entry.detail}", entry)
        for entry in history.of(CLOSED)
        if entry.detail not in ("", REFUSED, CRASHED)
    ]
