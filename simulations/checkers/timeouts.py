"""A question with a timeout ends by then, and its timeout is raised neither sooner nor later.

However many other questions are open, with whatever deadlines, and whatever the actor does meanwhile. No question
outlives the tree that it was asked in.
"""

from __future__ import annotations

import math
from typing import Final

from callboard.simulations.checkers.terms import DEFAULT, SLACK_S, Terms
from callboard.simulations.history.entry import HistoryEntry
from callboard.simulations.history.recorder import History
from callboard.simulations.history.surviving import Surviving
from callboard.simulations.violations import Violation

PROMISE = "a question with a timeout ends in time"
OUTCOMES: Final = ("answered", "refused", "unsure")


def check(history: History, surviving: Surviving, terms: Terms = DEFAULT) -> list[Violation]:
    """Questions that ended too late, or never, and timeouts that were raised too soon."""
    if terms.tree is None:
        return []
    open_: dict[int, HistoryEntry] = {}
    orphans: dict[int, HistoryEntry] = {}
    ended = 0.0
    found = []
    for entry in history.of("ask", *OUTCOMES, "tree begins", "tree ended", "closed"):
        if orphans and (entry.time > ended + SLACK_S or entry.kind == "closed"):
            found += [
                Violation(PROMISE, f"question {asked.ids[0]} to {asked.topic} outlives the tree", asked)
                for asked in orphans.values()
            ]
            orphans.clear()
        if entry.kind == "ask":
            open_[entry.operation] = entry
        elif entry.kind == "tree begins":
            open_.clear()
        elif entry.kind == "tree ended":
            orphans, open_, ended = open_, {}, entry.time
        elif entry.operation in open_ or entry.operation in orphans:
            asked = open_.pop(entry.operation, None) or orphans.pop(entry.operation)
            found += _in_time(asked, entry)
    return found


def _in_time(asked: HistoryEntry, outcome: HistoryEntry) -> list[Violation]:
    timeout = asked.until - asked.time
    question = f"question {asked.ids[0]} to {asked.topic} with a timeout of {timeout:g} s"
    if outcome.time > asked.until + SLACK_S:
        words = f"{question} ended after {outcome.time - asked.time:g} s ({outcome.detail})"
        return [Violation(PROMISE, words, outcome)]
    if outcome.detail == "AskTimeout" and (outcome.time < asked.until - SLACK_S or math.isinf(asked.until)):
        words = f"{question} was given up after {outcome.time - asked.time:g} s"
        return [Violation(PROMISE, words, outcome)]
    return []
