"""Recovery is idempotent: recovering twice leaves what recovering once leaves."""

from __future__ import annotations

from itertools import zip_longest

from callboard.simulations.checkers.terms import DEFAULT, Terms
from callboard.simulations.history.recorder import History
from callboard.simulations.history.surviving import Surviving
from callboard.simulations.violations import Violation

__all__ = ["PROMISE", "check"]

PROMISE = "recovering twice is recovering once"


def check(history: History, surviving: Surviving, terms: Terms = DEFAULT) -> list[Violation]:
    """A violation when a second recovery changed records, gaps, problems, the state of groups, or bytes of topics."""
    first, *others = surviving.digests or ("",)
    for other in others:
        if other != first:
            pairs = zip_longest(first.split("\n"), other.split("\n"), fillvalue="nothing more")
            before, after = next((a, b) for a, b in pairs if a != b)
            return [Violation(PROMISE, f"the first recovery left [{before}], the second [{after}]", None)]
    return []


def check_damage(history: History, surviving: Surviving, terms: Terms = DEFAULT) -> list[Violation]:
    """Within what the promise covers, recovery leaves nothing that verify calls damage."""
    if terms.beyond or not surviving.problems:
        return []
    return [Violation("verify is clean after recovery", surviving.problems[0], None)]
