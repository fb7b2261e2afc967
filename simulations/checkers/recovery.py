"""Recovery is idempotent: recovering twice leaves what recovering once leaves.

Once, an opening may begin another segment of a delivery journal (a snapshot is due, or the last segment is long), and
drop a segment that this makes history: then the mark of the journal's proven end moves too, and the segment before
gives back its reserve. The opening after that leaves everything as it is.
"""

from __future__ import annotations

from itertools import pairwise, zip_longest

from callboard.simulations.checkers.terms import DEFAULT, Terms
from callboard.simulations.history.recorder import History
from callboard.simulations.history.surviving import Surviving
from callboard.simulations.violations import Violation

PROMISE = "recovering twice is recovering once"


def check(history: History, surviving: Surviving, terms: Terms = DEFAULT) -> list[Violation]:
    """A violation when a second recovery changed records, gaps, problems, the state of groups, or bytes of topics."""
    found = [digest.split("\n") for digest in surviving.digests]
    for number, (before, after) in enumerate(pairwise(found), 1):
        if number == 1:
            before, after = (
                _without_journals_that_moved(before, after),
                _without_journals_that_moved(after, before),
            )
        if before != after:
            one, other = next(
                (a, b) for a, b in zip_longest(before, after, fillvalue="nothing more") if a != b
            )
            words = f"recovery {number} left [{one}], recovery {number + 1} [{other}]"
            return [Violation(PROMISE, words, None)]
    return []


def _without_journals_that_moved(lines: list[str], others: list[str]) -> list[str]:
    """`lines` but for those of delivery journals that have other segments in `others`."""
    moved = {_journal(name) for name in _segments(lines) ^ _segments(others)}
    return [line for line in lines if _journal(line.partition(": ")[0]) not in moved]


def _segments(lines: list[str]) -> set[str]:
    """The names of delivery journals' segments."""
    return {
        name for line in lines if "/delivery/" in line and (name := line.partition(": ")[0]).endswith(".log")
    }


def _journal(name: str) -> str:
    return name.rpartition("/")[0]


def check_damage(history: History, surviving: Surviving, terms: Terms = DEFAULT) -> list[Violation]:
    """Within what the promise covers, recovery leaves nothing that verify calls damage."""
    if terms.beyond or not surviving.problems:
        return []
    return [Violation("verify is clean after recovery", surviving.problems[0], None)]
