"""Actors handle what they were asked: at most once, in order, and certainly what they answered.

A question that was answered was handled; one that failed definitely never was; none is handled more than once, but for
the tries in hand that its specification allows. What one asker asks an actor is handled in that order.
"""

from __future__ import annotations

from collections import Counter

from callboard.simulations.checkers.terms import DEFAULT, Terms
from callboard.simulations.history.recorder import History
from callboard.simulations.history.surviving import Surviving
from callboard.simulations.violations import Violation

PROMISE = "actors handle what they were asked, once and in order"


def check(history: History, surviving: Surviving, terms: Terms = DEFAULT) -> list[Violation]:
    """Questions that were handled too often, never, or out of order."""
    handled = Counter(number for entry in history.of("handled") for number in entry.ids)
    found = [
        Violation(PROMISE, f"question {entry.ids[0]} was never answered", entry)
        for entry in history.of("answered")
        if not handled[entry.ids[0]]
    ]
    asked = {entry.operation for entry in history.of("ask")}
    for entry in history.of("refused"):
        if entry.operation in asked and handled[entry.ids[0]]:
            words = f"question {entry.ids[0]} failed definitely ({entry.detail}), and was handled"
            found.append(Violation(PROMISE, words, entry))
    for entry in history.of("handled"):
        if handled[entry.ids[0]] > 1 + terms.retries_in_hand:
            words = f"question {entry.ids[0]} was handled {handled[entry.ids[0]]} times by {entry.who}"
            found.append(Violation(PROMISE, words, entry))
    return found + _order(history)


def _order(history: History) -> list[Violation]:
    """Per asker and actor, questions are handled in the order in which they were asked."""
    asker = {entry.ids[0]: (entry.who, entry.number) for entry in history.of("ask")}
    latest: dict[tuple[str, str], int] = {}
    found = []
    for entry in history.of("handled"):
        who, asked_at = asker.get(entry.ids[0], ("", 0))
        pair = (who, entry.who)
        if asked_at < latest.get(pair, 0):
            found.append(Violation(PROMISE, f"{entry.who} handled a later question of {who} first", entry))
        latest[pair] = max(asked_at, latest.get(pair, 0))
    return found
