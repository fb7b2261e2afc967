"""What is made again is not what was deleted: no topic and no group has the id of another, or of one that is gone."""

from __future__ import annotations

import json
import math
from typing import Final

from callboard.simulations.checkers.terms import DEFAULT, Terms
from callboard.simulations.history.recorder import History
from callboard.simulations.history.surviving import Surviving
from callboard.simulations.violations import Violation

PROMISE: Final = "what is made again has an id of its own"


def check(history: History, surviving: Surviving, terms: Terms = DEFAULT) -> list[Violation]:
    """One violation per listing in which an id belongs to something else, or comes back."""
    return [
        *_check(history, "topics listed", "topics listed", "delete_topic "),
        *_check(history, "groups listed", "list groups", "delete_group "),
    ]


def _check(history: History, kind: str, asked_kind: str, deleting: str) -> list[Violation]:
    asked = {entry.operation: entry.number for entry in history.of(asked_kind)}
    ended = {entry.operation: entry.number for entry in history.of("changed")}
    deleted = [
        (entry.topic or entry.group, entry.number, ended.get(entry.operation, math.inf))
        for entry in history.of("change")
        if entry.detail.startswith(deleting)
    ]
    names: dict[str | int, str] = {}
    last: dict[str | int, int] = {}
    """When an id was listed last: by the number of the listing's entry."""
    gone: dict[str | int, int] = {}
    """Which listing was the first without it. Listings that had begun before that one ended may still show it."""
    found = []
    for listing in history.of(kind):
        begun = asked[listing.operation] if kind != asked_kind else listing.number
        ids = {row["id"]: name for name, row in json.loads(listing.detail).items()}
        for one, name in ids.items():
            owner = names.setdefault(one, name)
            is_back = gone.get(one, math.inf) < begun or any(
                of == owner and last.get(one, math.inf) < start and end < begun for of, start, end in deleted
            )
            if owner != name or is_back:
                when = " before it was deleted" if is_back else ""
                words = f"{name} has the id {one}, which was that of {owner}{when}"
                found.append(Violation(PROMISE, words, listing))
        for one in names:
            if one not in ids and last[one] < begun:
                gone.setdefault(one, listing.number)
        last.update(dict.fromkeys(ids, listing.number))
    return found
