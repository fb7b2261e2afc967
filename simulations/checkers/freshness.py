"""What is handed over has half of the visibility timeout left, a batch too, however long it waits for company.

A consumer that fetched messages ahead and then took long gives them back; none is handed a message that is about to be
another's.
"""

from __future__ import annotations

from callboard.simulations.checkers.terms import DEFAULT, SLACK_S, Terms
from callboard.simulations.history.recorder import History
from callboard.simulations.history.surviving import Surviving
from callboard.simulations.violations import Violation

PROMISE = "what is handed over has enough of its lease left"
VISIBILITY_S = 30.0


def check(history: History, surviving: Surviving, terms: Terms = DEFAULT) -> list[Violation]:
    """One violation per delivery that came too late in its lease."""
    found = []
    for entry in history.of("delivered"):
        half_s = terms.visibility_s.get(entry.group, VISIBILITY_S) / 2
        if entry.until - entry.time < half_s - SLACK_S:
            words = (
                f"{entry.who} of {entry.group} was handed {entry.place} at {entry.time:.3f} s, and its lease ended at"
                f" {entry.until:.3f} s"
            )
            found.append(Violation(PROMISE, words, entry))
    return found
