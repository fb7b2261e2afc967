"""What is deleted leaves nothing: a group that has ended is known to no partition, and a deleted topic has no files.

A partition that could not forget a group does so when the directory is opened again, and so are files removed that
could not be. And a consumer that has left holds nothing: a group without members has nothing leased.
"""

from __future__ import annotations

import json
from typing import Any, Final

from callboard.simulations.checkers.group_life import GroupLives
from callboard.simulations.checkers.terms import DEFAULT, Terms
from callboard.simulations.history.entry import HistoryEntry
from callboard.simulations.history.recorder import History
from callboard.simulations.history.surviving import Surviving
from callboard.simulations.violations import Violation

PROMISE: Final = "what is deleted leaves nothing"
EXCUSES: Final = ("OperationFailed", "LeaseReleaseFailed", "IncarnationCrashed")
"""After one of these what is left may have to wait for the next opening."""


def check(history: History, surviving: Surviving, terms: Terms = DEFAULT) -> list[Violation]:
    """One violation per partition that knows too much, and per topic whose files are left; asked when all is well."""
    looks = history.of("groups at partition", "files of topics")
    if not looks:
        return []
    lives = GroupLives(history)
    excuses = [entry.number for entry in history.of(*EXCUSES)]
    found = []
    for entry in looks:
        opened = lives.opened_before(entry)
        if entry.kind == "files of topics":
            ids = {row["id"] for row in _last(history, "topics listed", entry).values()}
            left = [one for one in entry.detail.split() if one not in ids]
            if left:
                found.append(Violation(PROMISE, f"files of the deleted topic {left[0]} are left", entry))
            continue
        if any(opened.number < number < entry.number for number in excuses):
            continue
        groups = {row["id"]: row["count"] for row in _last(history, "groups listed", entry).values()}
        for group_id, leased in zip(entry.ids, entry.offsets, strict=True):
            if group_id not in groups:
                words = (
                    f"{entry.topic}/{entry.partition} knows group {group_id}, and there are {sorted(groups)}"
                )
                found.append(Violation(PROMISE, words, entry))
            elif leased and not groups[group_id]:
                words = (
                    f"group {group_id} has no members, and {leased} leased in {entry.topic}/{entry.partition}"
                )
                found.append(Violation(PROMISE, words, entry))
    return found


def _last(history: History, kind: str, before: HistoryEntry) -> dict[str, Any]:
    """What was listed last before an entry."""
    listing = next(entry for entry in reversed(history.of(kind)) if entry.number < before.number)
    rows: dict[str, Any] = json.loads(listing.detail)
    return rows
