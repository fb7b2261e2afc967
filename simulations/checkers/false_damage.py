"""No damage is told where there is none.

Crashes, power cuts and disks that refuse leave nothing that counts as damage: no partition tells of damage, and no
delivery journal has to be salvaged, unless durable bytes were really spoiled. But where a power cut took the mark that
says how far a log was synced, a hole among records that were not looks like damage.
"""

from __future__ import annotations

from typing import Final

from callboard.log.format.committed import COMMITTED_NAME, decode_committed
from callboard.log.format.faults import CommittedInvalid
from callboard.simulations.checkers.terms import DEFAULT, Terms
from callboard.simulations.disk.memory_disk import MemoryDisk
from callboard.simulations.history.entry import HistoryEntry
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
    return [
        Violation(PROMISE, f"{entry.who} told of damage ({entry.kind}: {entry.detail})", entry)
        for entry in told_falsely(history)
    ]


def told_falsely(history: History) -> list[HistoryEntry]:
    """The events that tell of damage, where nothing was spoiled and nothing looks like it."""
    found, unknown = [], set()
    for entry in history.of("DamageFound", "JournalSalvaged", UNKNOWN_END):
        if entry.kind == UNKNOWN_END:
            unknown.add(entry.who)
        elif entry.kind == "JournalSalvaged" or entry.who not in unknown:
            found.append(entry)
    return found


def is_end_known(disk: MemoryDisk, directory: str) -> bool:
    """Whether a partition's files say how far it was synced."""
    try:
        decode_committed(disk.file(f"{directory}/{COMMITTED_NAME}"))
    except CommittedInvalid:
        return False
    return True
