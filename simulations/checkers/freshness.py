"""What is handed over has time left: half of the visibility timeout, and of a batch more than none.

Whoever fetched messages ahead and then took long gives them back; nobody is handed one that is about to be another's.
A batch is handed over when it is filled, or has waited: while nothing goes wrong, it has half of the time left but for
that wait.
"""

from __future__ import annotations

from callboard.simulations.checkers.attempts import VISIBILITY_S
from callboard.simulations.checkers.calm import Calm
from callboard.simulations.checkers.terms import DEFAULT, SLACK_S, Terms
from callboard.simulations.history.entry import BATCH, SAME_BATCH
from callboard.simulations.history.recorder import History
from callboard.simulations.history.surviving import Surviving
from callboard.simulations.violations import Violation

PROMISE = "what is handed over has enough of its lease left"


def check(history: History, surviving: Surviving, terms: Terms = DEFAULT) -> list[Violation]:
    """One violation per delivery that came too late in its lease."""
    found = []
    calm: Calm | None = None
    for entry in history.of("delivered"):
        half_s = terms.visibility_s.get(entry.group, VISIBILITY_S) / 2
        left_s = entry.until - entry.time
        if left_s >= half_s - SLACK_S:
            continue
        least_s = half_s
        if entry.detail in (BATCH, SAME_BATCH):
            least_s = 2 * SLACK_S
            calm = calm or Calm(history)
            if calm.since(entry.time) <= entry.time - 2 * half_s:
                least_s = half_s - terms.max_wait_s
        if left_s < least_s - SLACK_S:
            words = (
                f"{entry.who} of {entry.group} was handed {entry.place} at {entry.time:.3f} s, and its lease ended at"
                f" {entry.until:.3f} s"
            )
            found.append(Violation(PROMISE, words, entry))
    return found
