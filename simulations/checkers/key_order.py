"""Order is kept within a key.

All messages of a key are in one partition, where offsets keep their order. A group that is one consumer at a time sees
each message of a key for the first time after all earlier ones of that key. What is delivered again may come later; a
first attempt whose lease ran out before any consumer had it counts as one. A partition that crashes may forget that a
lease was given back before anybody had it: its messages come when that runs out, so such partitions are left out. And
so are groups whose consumers give back what they have fetched.

In a group with order per key a message is delivered, for the first time and again, only after every earlier message of
its key was delivered and the consumer that had it last has begun to ack it, however many there are, whatever crashes.
"""

from __future__ import annotations

from callboard.simulations.checkers.terms import DEFAULT, Terms
from callboard.simulations.history.recorder import History
from callboard.simulations.history.surviving import Surviving
from callboard.simulations.violations import Violation

PROMISE = "order is kept within a key"
NOT_YET = "not yet delivered"


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
    first = [] if terms.gives_back else _first_deliveries(history)
    return [*found, *first, *_keyed_deliveries(history, surviving, terms)]


def _keyed_deliveries(history: History, surviving: Surviving, terms: Terms) -> list[Violation]:
    """Deliveries in keyed groups before an earlier message of the key was acked."""
    if not terms.keyed:
        return []
    before: dict[tuple[str, int, int], list[int]] = {}
    for left in surviving.partitions:
        last: dict[bytes, list[int]] = {}
        for offset, number in left.records.items():
            key = history.keys.get(number)
            if key is not None:
                before[left.topic, left.index, offset] = list(last.setdefault(key, []))
                last[key].append(offset)
    found = []
    salvaged = terms.salvaged(history)
    holders: dict[tuple[str, str, int], dict[int, str]] = {}
    """By group and partition: the consumer that was handed an offset and has not begun to ack it; none once it has."""
    for entry in history.of("delivered", "ack"):
        if entry.group not in terms.keyed or f"{entry.topic}/{entry.partition}" in salvaged:
            continue
        known = holders.setdefault((entry.group, entry.topic, entry.partition), {})
        for offset in entry.offsets:
            if entry.kind == "ack":
                if known.get(offset) == entry.who:
                    known[offset] = ""
                continue
            for earlier in before.get((entry.topic, entry.partition, offset), ()):
                if known.get(earlier, NOT_YET):
                    place = f"{entry.topic}/{entry.partition}@{offset}"
                    words = (
                        f"{place} came to {entry.who} of {entry.group} before {earlier} of its key was acked"
                    )
                    found.append(Violation(PROMISE, words, entry))
                    break
            known[offset] = entry.who
    return found


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
