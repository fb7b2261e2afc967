"""A group that has ended is forgotten everywhere: no partition holds anything back for it.

A partition that could not forget it then does when the directory is opened again.
"""

from __future__ import annotations

import json
from typing import Final

from callboard.simulations.checkers.terms import DEFAULT, Terms
from callboard.simulations.history.recorder import History
from callboard.simulations.history.surviving import Surviving
from callboard.simulations.violations import Violation

PROMISE: Final = "a group that has ended is forgotten by all partitions"


def check(history: History, surviving: Surviving, terms: Terms = DEFAULT) -> list[Violation]:
    """One violation per partition that knows a group that is not there; asked when all is well."""
    found = []
    for entry in history.of("groups at partition"):
        listing = next(
            (listed for listed in reversed(history.of("groups listed")) if listed.number < entry.number), None
        )
        if listing is None:
            continue
        there = {row["id"] for row in json.loads(listing.detail).values()}
        known = [group_id for group_id in entry.ids if group_id not in there]
        if known:
            words = f"{entry.topic}/{entry.partition} knows the groups {known}, and there are {sorted(there)}"
            found.append(Violation(PROMISE, words, entry))
    return found
