"""What was nacked with a delay is not handed out before.

Also when the partition, or the process, has restarted meanwhile. Nacks are given to the system and not synced: a power
cut may take the delay, and so may a sync that failed, from the next process that opens the directory. Between two
processes the delay is kept in the time of day, so that a clock that jumps moves it.
"""

from __future__ import annotations

from callboard.simulations.checkers.attempts import REOPENED, SYNC_FAILS
from callboard.simulations.checkers.closed_well import CLOSED
from callboard.simulations.checkers.terms import DEFAULT, Terms
from callboard.simulations.history.entry import HistoryEntry
from callboard.simulations.history.recorder import History
from callboard.simulations.history.surviving import Surviving
from callboard.simulations.violations import Violation

PROMISE = "a message that was nacked with a delay waits as long"
SLACK_S = 1e-3
"""The time of day, in which a delay outlives its process, is counted in microseconds."""
JUMPS = "JumpClock"
"""How the label of a fault begins that moves delays; also that of a nack which is not answered yet."""

ENDS = ("power cut", "booted", "note", CLOSED)


def is_opening(entry: HistoryEntry) -> bool:
    """Whether the directory is opened anew, or about to be."""
    return entry.kind != "note" or entry.detail.startswith(REOPENED)


def check(history: History, surviving: Surviving, terms: Terms = DEFAULT) -> list[Violation]:
    """One violation per delivery before the time that a nack named."""
    if terms.beyond:
        return []
    begun: dict[int, HistoryEntry] = {}
    delayed: dict[tuple[str, str, int, int], HistoryEntry] = {}
    found, sync_failed = [], False
    for entry in history.of("fault", *ENDS, "nack", "nacked", "delivered"):
        if entry.kind == "fault":
            sync_failed = sync_failed or entry.who.startswith(SYNC_FAILS)
            if entry.who.startswith(JUMPS):
                delayed.clear()
                begun.clear()
            continue
        if entry.kind in ENDS:
            if entry.kind == "power cut" or (sync_failed and is_opening(entry)):
                delayed.clear()
                begun.clear()
                sync_failed = False
            continue
        if entry.kind == "nack":
            begun[entry.operation] = entry
            continue
        places = [(entry.group, entry.topic, entry.partition, offset) for offset in entry.offsets]
        if entry.kind == "nacked":
            if entry.operation in begun:
                delayed.update(dict.fromkeys(places, begun[entry.operation]))
            continue
        for place in places:
            nack = delayed.pop(place, None)
            if nack is not None and entry.time < nack.until - SLACK_S:
                words = (
                    f"{entry.who} of {entry.group} was handed {entry.place} at {entry.time:.3f} s, and {nack.who} had"
                    f" nacked it until {nack.until:.3f} s"
                )
                found.append(Violation(PROMISE, words, entry))
    return found
