"""Members are the consumers that have joined and not left: a listing of the group has them, each with an id of its own.

A consumer whose leaving was answered is no member. One that only ended is none a moment later; while things fail
that may take longer.
"""

from __future__ import annotations

import json
from typing import Any, Final

from callboard.simulations.checkers.group_life import ConsumerLife, GroupLives
from callboard.simulations.checkers.terms import DEFAULT, Terms
from callboard.simulations.history.entry import HistoryEntry, member_name
from callboard.simulations.history.recorder import History
from callboard.simulations.history.surviving import Surviving
from callboard.simulations.violations import Violation

PROMISE = "the members of a group are the consumers that joined and have not left"
TOGETHER: Final = " and "
"""Between the names of topics that are read together."""
MOMENT_S: Final = 1.0
"""This long after a consumer ended no listing has it as a member, when nothing fails."""


def check(history: History, surviving: Surviving, terms: Terms = DEFAULT) -> list[Violation]:
    """One violation per listing that shows others, or leaves one out."""
    listings = history.of("groups listed")
    if not listings:
        return []
    asked = {entry.operation: entry for entry in history.of("list groups")}
    lives = GroupLives(history)
    named = {member_name(life.joining.who, number): life for number, life in lives.lives.items()}
    healed = next((entry.time for entry in history.of("healed")), None)
    deleted = [entry.topic for entry in history.of("change") if entry.detail.startswith("delete_topic ")]
    # Rot in the last records before a power cut cannot be distinguished from a torn write: what they said is forgotten.
    cuts = [entry.number for entry in history.of("power cut")] if terms.beyond else []
    ids: dict[int, str] = {}
    found = []
    for listing in listings:
        while cuts and cuts[0] < listing.number:
            del cuts[0]
            ids.clear()
        groups = json.loads(listing.detail)
        for group, seen in groups.items():
            words = _wrong(group, seen, asked[listing.operation], listing, named, healed)
            for consumer, name in seen["members"]:
                if ids.setdefault(consumer, name) != name:
                    words = words or f"{name} has the id {consumer}, which was that of {ids[consumer]}"
            if words is not None:
                found.append(Violation(PROMISE, words, listing))
        for name, life in named.items():
            if not _is_member(life, asked[listing.operation], listing):
                continue
            group = life.joining.group
            if lives.may_be_deleted(life, listing):
                continue
            seen = groups.get(group, {"members": (), "reads": {}})
            members = [name for _, name in seen["members"]]
            topics = sorted(life.joining.topic.split(TOGETHER))
            if name in members and seen["reads"][name] != topics and not any(map(deleted.count, topics)):
                words = f"{name} of {group} reads {topics}, and is listed with {seen['reads'][name]}"
                found.append(Violation(PROMISE, words, listing))
            if name not in members:
                words = f"{name} has joined {group} and not left, and the members are {members!r:.200}"
                found.append(Violation(PROMISE, words, listing))
    return found


def _wrong(
    group: str,
    seen: dict[str, Any],
    asked: HistoryEntry,
    listing: HistoryEntry,
    named: dict[str, ConsumerLife],
    healed: float | None,
) -> str | None:
    """What is wrong with the members that were seen."""
    if seen["count"] != len(seen["members"]):
        return f"{group} has {seen['count']} members, of which {len(seen['members'])} are named"
    for _, name in seen["members"]:
        life = named.get(name)
        if life is None:
            continue  # it was not observed
        if life.joining.group != group or life.joining.machine != listing.machine:
            return f"{name} of {life.joining.group} on machine {life.joining.machine} is a member of {group}"
        gone = life.gone
        if gone is None or gone.number > asked.number:
            continue
        late = healed is not None and asked.time > max(gone.time, healed) + MOMENT_S
        if late or (gone.detail == "" and life.joined is not None):
            return f"{name} was gone at {gone.time:.3f} s, and is a member of {group} at {listing.time:.3f} s"
    return None


def _is_member(life: ConsumerLife, asked: HistoryEntry, listing: HistoryEntry) -> bool:
    """Whether the consumer was a member for certain all the while."""
    if life.joined is None or life.joined.number > asked.number or life.joined.machine != listing.machine:
        return False
    goes = life.begins_to_go
    return goes is None or goes.number > listing.number
