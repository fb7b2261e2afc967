"""What is lost is reported, exactly: every record that damage cost, and no other, by all that report it.

`damaged` entries name the offsets whose bytes were damaged; `reported lost` entries all that one reporter (`who`) names
as lost in the partition. What was `accepted` is reported no more by those that report only what is not accepted
(`detail`).
"""

from __future__ import annotations

from typing import Final

from callboard.simulations.checkers.terms import DEFAULT, Terms
from callboard.simulations.history.entry import spans
from callboard.simulations.history.recorder import History
from callboard.simulations.history.surviving import Surviving
from callboard.simulations.violations import Violation

PROMISE = "what is lost is reported, exactly"
DAMAGED: Final = "damaged"
TOLD: Final = "reported lost"
ACCEPTED: Final = "accepted"
UNACCEPTED: Final = "unaccepted"
"""The `detail` of those that report only what is not accepted."""


def check(history: History, surviving: Surviving, terms: Terms = DEFAULT) -> list[Violation]:
    """One violation per entry that names an offset too many, or leaves one out."""
    lost: dict[tuple[str, int], set[int]] = {}
    accepted: dict[tuple[str, int], set[int]] = {}
    found = []
    for entry in history.of(DAMAGED, TOLD, ACCEPTED):
        place = entry.topic, entry.partition
        if entry.kind == DAMAGED:
            lost.setdefault(place, set()).update(entry.offsets)
            continue
        if entry.kind == ACCEPTED:
            accepted[place] = set(lost.get(place, ()))
            continue
        expected = lost.get(place, set())
        if entry.detail == UNACCEPTED:
            expected = expected - accepted.get(place, set())
        told = set(entry.offsets)
        if told != expected:
            more, left_out = (
                spans(tuple(sorted(part))) or "nothing" for part in (told - expected, expected - told)
            )
            words = f"{entry.who} names {more} in {entry.topic}/{entry.partition} too much, and leaves out {left_out}"
            found.append(Violation(PROMISE, words, entry))
    return found
