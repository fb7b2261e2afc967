"""A lease is lost only when its time is over.

A consumer that settles before its lease runs out is not told that the lease is lost, also when the partition crashes
meanwhile: who was handed a message has until the deadline that it was told. What a consumer settled before, or may have
settled, and what a failed sync or damage has taken out of the journal, is no longer its own.
"""

from __future__ import annotations

from callboard.simulations.checkers.attempts import SYNC_FAILS
from callboard.simulations.checkers.terms import DEFAULT, SLACK_S, Terms
from callboard.simulations.history.recorder import History
from callboard.simulations.history.surviving import Surviving
from callboard.simulations.violations import Violation

PROMISE = "a lease is lost only when its time is over"


def check(history: History, surviving: Surviving, terms: Terms = DEFAULT) -> list[Violation]:
    """One violation per settlement that lost its lease before the deadline that the consumer was told."""
    if terms.beyond or terms.drops_unread:
        return []
    held: dict[tuple[str, str, int, int], float] = {}
    found = []
    for entry in history.of(
        "fault", "delivered", "extended", "acked", "nacked", "released", "unsure", "lost"
    ):
        if entry.kind == "fault":
            if entry.who.startswith(SYNC_FAILS):
                held.clear()
            continue
        places = [(entry.who, entry.topic, entry.partition, offset) for offset in entry.offsets]
        if entry.kind == "extended":
            for place, until in held.items():  # what was leased together ends together
                if place[:3] == (entry.who, entry.topic, entry.partition):
                    held[place] = min(until, entry.until)
        if entry.kind in ("delivered", "extended"):
            held.update(dict.fromkeys(places, entry.until))
            continue
        known = [held.pop(place) for place in places if place in held]
        if entry.kind == "lost" and len(known) == len(places) and min(known) > entry.time + SLACK_S:
            words = (
                f"{entry.who} lost {entry.place} at {entry.time:.3f} s, and had it until {min(known):.3f} s"
            )
            found.append(Violation(PROMISE, words, entry))
    return found
