"""Order is kept within a key.

All messages of a key are in one partition, where offsets keep their order. A group that is one consumer at a time sees
each message of a key for the first time after all earlier ones of that key. What is delivered again may come later; a
first attempt whose lease ran out before anybody had it counts as one. A partition that crashes may forget that a lease
was given back before anybody had it: its messages come when that runs out, so such partitions are left out.
"""

from __future__ import annotations

from callboard.simulations.checkers.terms import DEFAULT, Terms
from callboard.simulations.history.recorder import History
from callboard.simulations.history.surviving import Surviving
from callboard.simulations.violations import Violation

PROMISE = "order is kept within a key"


def check(history: History, surviving: Surviving, terms: Terms = DEFAULT) -> list[Violation]:
    """Keys in two partitions, and first deliveries out of order."""
    found = []
    home: dict[tuple[str, bytes], int] = {}
    keys = history.keys
    for left in surviving.partitions:
        for number in left.records.values():
            key = keys.get(number)
            if key is not None and home.setdefault((left.topic, key), left.index) != left.index:
                words = (
                    f"key {key!r} of {left.topic} is in partitions {home[left.topic, key]} and {left.index}"
                )
                found.append(Violation(PROMISE, words, None))
    return found + _first_deliveries(history)


def _first_deliveries(history: History) -> list[Violation]:
    shared = _shared_groups(history)
    crashed = {entry.who for entry in history.of("IncarnationCrashed")}
    highest: dict[tuple[str, str, int, bytes], int] = {}
    seen: set[tuple[str, str, int, int]] = set()
    found = []
    for entry in history.of("delivered"):
        if entry.group in shared or f"topics/{entry.topic}/{entry.partition}" in crashed:
            continue
        where = (entry.group, entry.topic, entry.partition)
        for offset, number, attempt in zip(entry.offsets, entry.ids, entry.attempts, strict=True):
            key = history.keys.get(number)
            if key is None or attempt > 1 or (*where, offset) in seen:
                continue
            seen.add((*where, offset))
            before = highest.get((*where, key), -1)
            if offset < before:
                words = f"{entry.place} came to {entry.group} after {before} of the same key {key!r}"
                found.append(Violation(PROMISE, words, entry))
            highest[*where, key] = max(before, offset)
    return found


def _shared_groups(history: History) -> set[str]:
    """Groups that ever had two consumers at a time."""
    shared: set[str] = set()
    members: dict[str, set[int]] = {}
    for entry in history.of("joined", "left", "power cut", "killed"):
        if entry.kind in ("power cut", "killed"):
            members.clear()
            continue
        lives = members.setdefault(entry.group, set())
        if entry.kind == "joined":
            lives.add(entry.operation)
            if len(lives) > 1:
                shared.add(entry.group)
        else:
            lives.discard(entry.operation)
    return shared
