"""What was nacked with a delay is not handed out before.

Also when the partition, or the process, has restarted meanwhile. Nacks are given to the system and not synced: a power
cut may take the delay, and so may a sync that failed. Between two processes the delay is kept in the time of day, so
that a clock that jumps moves it.
"""

from __future__ import annotations

from callboard.simulations.checkers.attempts import SYNC_FAILS
from callboard.simulations.checkers.terms import DEFAULT, Terms
from callboard.simulations.history.entry import HistoryEntry
from callboard.simulations.history.recorder import History
from callboard.simulations.history.surviving import Surviving
from callboard.simulations.violations import Violation

PROMISE = "a message that was nacked with a delay waits as long"
SLACK_S = 1e-3
"""The time of day, in which a delay outlives its process, is counted in microseconds."""
FORGETTING = (SYNC_FAILS, "JumpClock")
"""How the labels of faults begin that move a delay, or take it; also that of a nack which is not answered yet."""


def check(history: History, surviving: Surviving, terms: Terms = DEFAULT) -> list[Violation]:
    """One violation per delivery before the time that a nack named."""
    if terms.beyond:
        return []
    begun: dict[int, HistoryEntry] = {}
    delayed: dict[tuple[str, str, int, int], HistoryEntry] = {}
    found = []
    for entry in history.of("fault", "power cut", "nack", "nacked", "delivered"):
        if entry.kind == "power cut" or (entry.kind == "fault" and entry.who.startswith(FORGETTING)):
            delayed.clear()
            begun.clear()
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
