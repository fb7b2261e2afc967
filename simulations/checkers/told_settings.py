"""The members of a group go by its settings: once `alter_group` has returned, each of them goes by the new ones.

While it has not, a member may go by the old ones or the new ones; what was altered before is gone by then.
"""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Final

import attrs

from callboard.simulations.checkers.group_life import GroupLives
from callboard.simulations.checkers.terms import DEFAULT, Terms
from callboard.simulations.history.entry import HistoryEntry
from callboard.simulations.history.recorder import History
from callboard.simulations.history.surviving import Surviving
from callboard.simulations.violations import Violation

PROMISE: Final = "members go by the settings of their group"


@attrs.define
class _Altering:
    begun: HistoryEntry
    end: HistoryEntry | None = None
    result: str | None = None
    """All settings of the group then; None when it may not have happened."""


def check(history: History, surviving: Surviving, terms: Terms = DEFAULT) -> list[Violation]:
    """One violation per member that is seen to go by settings that are gone."""
    seen = history.of("settings seen")
    if not seen:
        return []
    alterings: dict[int, _Altering] = {}
    by_group: defaultdict[str, list[_Altering]] = defaultdict(list)
    for entry in history.of("change", "changed", "not changed", "maybe changed"):
        if entry.kind == "change" and entry.detail.startswith("alter_group "):
            alterings[entry.operation] = _Altering(entry)
            by_group[entry.group].append(alterings[entry.operation])
        elif entry.kind == "not changed" and entry.operation in alterings:
            by_group[entry.group].remove(alterings[entry.operation])
        elif entry.operation in alterings:
            alterings[entry.operation].end = entry
            alterings[entry.operation].result = entry.detail if entry.kind == "changed" else None
    lives = GroupLives(history)
    found = []
    for entry in seen:
        life = lives.lives[entry.operation]
        if lives.may_be_deleted(life, entry):
            continue
        words = _wrong(entry, life.joining, by_group[entry.group])
        if words is not None:
            found.append(Violation(PROMISE, words, entry))
    return found


def _wrong(seen: HistoryEntry, joining: HistoryEntry, alterings: list[_Altering]) -> str | None:
    """Which settings the member should go by, when it goes by others."""
    known = [altering for altering in alterings if altering.begun.number < seen.number]
    told = [
        altering
        for altering in known
        if altering.result is not None
        and altering.end is not None
        and joining.number < altering.begun.number
        and altering.end.number < seen.number
    ]
    if not told:
        return None
    last = max(altering.begun.number for altering in told)
    for altering in known:
        if altering.result == seen.detail and (altering.end is None or altering.end.number > last):
            return None
        if altering.result is None and _holds(altering.begun, seen):
            return None
    newest = next(altering for altering in told if altering.begun.number == last)
    return f"{seen.who} of {seen.group} goes by {seen.detail}, and was to know of {newest.result}"


def _holds(begun: HistoryEntry, seen: HistoryEntry) -> bool:
    """Whether what was asked for is what is seen."""
    given = json.loads(begun.detail.partition(" ")[2])
    settings = json.loads(seen.detail)
    return all(settings[name] == value for name, value in given.items())
