"""Recovery is idempotent: recovering twice leaves what recovering once leaves.

Once, an opening may write more to a delivery journal: a snapshot is due, the last segment is long, or a segment has
become history and goes. What records, gaps and groups say is the same all the same, and the opening after that leaves
every byte as it is.
"""

from __future__ import annotations

from itertools import pairwise, zip_longest

from callboard.simulations.checkers.terms import DEFAULT, Terms
from callboard.simulations.history.recorder import History
from callboard.simulations.history.surviving import Surviving
from callboard.simulations.violations import Violation

__all__ = ["PROMISE", "check"]

PROMISE = "recovering twice is recovering once"


def check(history: History, surviving: Surviving, terms: Terms = DEFAULT) -> list[Violation]:
    """A violation when a second recovery changed records, gaps, problems, the state of groups, or bytes of topics."""
    found = [digest.split("\n") for digest in surviving.digests]
    for number, (before, after) in enumerate(pairwise(found), 1):
        if number == 1:
            before, after = _without_journals(before), _without_journals(after)
        if before != after:
            one, other = next(
                (a, b) for a, b in zip_longest(before, after, fillvalue="nothing more") if a != b
            )
            words = f"recovery {number} left [{one}], recovery {number + 1} [{other}]"
            return [Violation(PROMISE, words, None)]
    return []


def _without_journals(lines: list[str]) -> list[str]:
    """The lines but for those of delivery journals' files."""
    return [line for line in lines if "/delivery/" not in line]


def check_damage(history: History, surviving: Surviving, terms: Terms = DEFAULT) -> list[Violation]:
    """Within what the promise covers, recovery leaves nothing that verify calls damage."""
    if terms.beyond or not surviving.problems:
        return []
    return [Violation("verify is clean after recovery", surviving.problems[0], None)]
