"""An ack that is not awaited is made all the same.

It reaches its partition within moments, whatever its consumer does next: one that acked in good time does not get, and
no other gets, the message again. This is demanded while nothing goes wrong.
"""

from __future__ import annotations

from typing import Final

from callboard.simulations.checkers.calm import Calm
from callboard.simulations.checkers.terms import DEFAULT, Terms
from callboard.simulations.history.entry import LAZY, HistoryEntry
from callboard.simulations.history.recorder import History
from callboard.simulations.history.surviving import Surviving
from callboard.simulations.violations import Violation

PROMISE = "an ack that is not awaited is made all the same"
MOMENTS_S: Final = 0.1
"""Such acks are gathered for 5 ms, and synced within 10 ms more."""


def check(history: History, surviving: Surviving, terms: Terms = DEFAULT) -> list[Violation]:
    """One violation per delivery of a message that was acked well before its lease ran out."""
    if terms.beyond:
        return []
    calm = Calm(history)
    held: dict[tuple[str, str, int, int], HistoryEntry] = {}
    acked: dict[tuple[str, str, int, int], HistoryEntry] = {}
    doubtful: set[tuple[str, str, str, int, int]] = set()
    """What a consumer may have settled: it may have been handed that again, and settle either."""
    found = []
    for entry in history.of("delivered", "ack", "nack", "release", "extend", "unsure", "left"):
        if entry.kind == "left":
            doubtful = {one for one in doubtful if one[0] != entry.who}
            held = {place: holder for place, holder in held.items() if holder.operation != entry.operation}
            continue
        if entry.kind == "extend":  # whatever shares a lease with it lasts as long, which may be shorter
            where = entry.group, entry.topic, entry.partition
            held = {
                place: holder
                for place, holder in held.items()
                if place[:3] != where or holder.who != entry.who
            }
            continue
        for offset in entry.offsets:
            place = (entry.group, entry.topic, entry.partition, offset)
            if entry.kind == "unsure":
                doubtful.add((entry.who, *place))
                acked.pop(place, None)
                continue
            if entry.kind != "delivered":
                holder = held.get(place)
                is_doubtful = (entry.who, *place) in doubtful
                if holder is None or is_doubtful or not entry.is_of(holder, offset):
                    continue
                del held[place]
                if entry.detail == LAZY and entry.time < holder.until - MOMENTS_S:
                    acked[place] = entry
                continue
            held[place] = entry
            ack = acked.pop(place, None)
            if ack is not None and calm.since(entry.time) < ack.time:
                words = (
                    f"{entry.who} of {entry.group} was handed {entry.topic}/{entry.partition}@{offset} at"
                    f" {entry.time:.3f} s, and {ack.who} had acked it at {ack.time:.3f} s"
                )
                found.append(Violation(PROMISE, words, entry))
    return found
