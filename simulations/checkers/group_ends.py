"""Groups end when they should: an ephemeral one with its last consumer, a durable one when it expires.

While the disk fails that may wait; once nothing fails it takes no longer than the coordinator waits before it tells the
catalog again. That they end *only* then is a part of "topics and groups are what was made of them".
"""

from __future__ import annotations

import json

from callboard.actors.groups.coordinator import RETRY_S, UNJOINED_S
from callboard.simulations.checkers.group_life import MOMENT_S, GroupLives
from callboard.simulations.checkers.terms import DEFAULT, Terms
from callboard.simulations.history.entry import HistoryEntry
from callboard.simulations.history.recorder import History
from callboard.simulations.history.surviving import Surviving
from callboard.simulations.violations import Violation

PROMISE = "groups end when they should"


def check(history: History, surviving: Surviving, terms: Terms = DEFAULT) -> list[Violation]:
    """One violation per group that is still there when it should have ended."""
    healed = next((entry.time for entry in history.of("healed")), None)
    listings = history.of("groups listed")
    if healed is None or not listings:
        return []
    asked = {entry.operation: entry for entry in history.of("list groups")}
    changes = history.of("change", "changed", "not changed", "maybe changed")
    lives = GroupLives(history)
    found = []
    for listing in listings:
        begun = asked[listing.operation]
        for group, seen in json.loads(listing.detail).items():
            settings = seen["settings"]
            opened = lives.opened_before(begun)
            is_new = settings["durable"] or any(opened < life.joining for life in lives.by_group[group])
            if not is_new and healed < opened.time:
                words = f"{group} (ephemeral) is there at {begun.time:.3f} s, though no consumer joined since then"
                found.append(Violation(PROMISE, words, listing))
            expiry_s = settings["group_expiry"] if settings["durable"] else _lasts_s(lives, group, begun)
            if expiry_s is None or seen["count"]:
                continue
            due = lives.due(group, expiry_s, begun, healed)
            if due is None:
                continue
            changed = [
                entry.time for entry in changes if entry.group == group and entry.number < listing.number
            ]
            due = max([due, *(time + expiry_s for time in changed)])
            if begun.time > max(due, healed + RETRY_S) + MOMENT_S:
                kind = "durable" if settings["durable"] else "ephemeral"
                words = (
                    f"{group} ({kind}) should have ended at {due:.3f} s, and is there at {begun.time:.3f} s"
                )
                found.append(Violation(PROMISE, words, listing))
    return found


def _lasts_s(lives: GroupLives, group: str, at: HistoryEntry) -> float:
    """How long an ephemeral group lasts without members: longer when none was its last, or its coordinator crashed."""
    known = [life for life in lives.by_group[group] if life.joining.number < at.number]
    last = max(known, key=lambda life: life.joining.number, default=None)
    if last is None or last.joined is None or last.begins_to_go is None:
        return UNJOINED_S
    started = [start for start in lives.starts[group] if last.begins_to_go.number < start.number < at.number]
    return UNJOINED_S if started else 0.0
