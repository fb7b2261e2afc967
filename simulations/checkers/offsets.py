"""Offsets rise, are never used twice, and every gap is explained.

An offset that was seen with one message never shows another, neither to a publisher, nor to a consumer, nor in the log
afterwards. (But for records at level `leader` that no group was handed: these may vanish with the power, and their
offsets with them.) An offset that readers without the lock could read when the directory was opened is given to no
record that is published later: a client may know it. (But when the power fails before that opening has recovered the
partition, what was not synced vanishes with its offsets.) A publish that began after another one of its partition had
returned lies behind it. Offsets between the first and the last that hold no record are named by the log, with a reason.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise

from callboard.simulations.checkers.terms import DEFAULT, Terms
from callboard.simulations.history.entry import HistoryEntry
from callboard.simulations.history.recorder import History
from callboard.simulations.history.surviving import PartitionLeft, Surviving
from callboard.simulations.violations import Violation

PROMISE = "offsets rise, are never used twice, and gaps are explained"


def check(history: History, surviving: Surviving, terms: Terms = DEFAULT) -> list[Violation]:
    """Offsets used twice or out of order, and gaps without an explanation."""
    found = _used_twice(history, surviving, terms) + _out_of_turn(history, terms)
    for left in surviving.partitions:
        if any(later <= earlier for earlier, later in pairwise(left.order)):
            found.append(Violation(PROMISE, f"the offsets of {left.label} do not rise", None))
        found += _gaps(left, terms)
    return found if terms.beyond else found + _given_anew(history, surviving)


def _used_twice(history: History, surviving: Surviving, terms: Terms) -> list[Violation]:
    found = []
    seen: dict[tuple[str, int, int], int] = {}
    # What was at level `leader` before the last power cut may have gone with its offset. Beyond the promise so may the
    # very last records, damage to which cannot be distinguished from a torn write.
    vanished = history.last("power cut")
    for entry in history.of("published", "delivered", "read"):
        topic, partition = entry.topic, entry.partition
        if entry.number < vanished and (entry.detail == "leader" or entry.kind == "read" or terms.beyond):
            continue
        for offset, number in zip(entry.offsets, entry.ids, strict=True):
            before = seen.setdefault((topic, partition, offset), number)
            if before != number:
                words = f"{topic}/{partition}@{offset} was message {before}, and now it is {number}"
                found.append(Violation(PROMISE, words, entry))
    for left in surviving.partitions:
        for offset, number in left.records.items():
            if seen.get((left.topic, left.index, offset), number) != number:
                before = seen[left.topic, left.index, offset]
                words = f"{left.label}@{offset} was message {before}, and in the end it is {number}"
                found.append(Violation(PROMISE, words, None))
    return found


def _given_anew(history: History, surviving: Surviving) -> list[Violation]:
    """Offsets that readers could see, and that are given once more, or would be next."""
    shown = _kept_shown(history)
    if not shown:
        return []
    found = []
    begun = {entry.operation: entry.number for entry in history.of("publish")}
    ends: dict[tuple[str, int], list[HistoryEntry]] = {}
    for entry in shown:
        ends.setdefault((entry.topic, entry.partition), []).append(entry)
    for entry in history.of("published"):
        for end in ends.get((entry.topic, entry.partition), ()):
            if end.number < begun[entry.operation] and entry.offsets[0] < end.offsets[0]:
                words = f"{entry.place} was given when readers had seen up to {end.offsets[0]}"
                found.append(Violation(PROMISE, words, entry))
    for left in surviving.partitions:
        highest = max([end.offsets[0] for end in ends.get((left.topic, left.index), ())], default=0)
        if left.end < highest:
            words = f"{left.label} ends at {left.end}, and readers had seen up to {highest}"
            found.append(Violation(PROMISE, words, None))
    return found


def _kept_shown(history: History) -> list[HistoryEntry]:
    """What readers could see and no power cut may have taken: none came, or recovery had synced it by then."""
    cuts = [entry.number for entry in history.of("power cut", "last power cut")]
    kept = []
    for entry in history.of("shown"):
        cut = next((number for number in cuts if number > entry.number), len(history))
        path = f"topics/{entry.topic}/{entry.partition}"
        is_recovered = _has(history, "ActorStarted", path, entry.number, cut)
        owes_recovery = _has(history, "OpeningLacksSpace", path, entry.number, cut)
        if cut == len(history) or (is_recovered and not owes_recovery) or _has_stored(history, entry, cut):
            kept.append(entry)
    return kept


def _has_stored(history: History, shown: HistoryEntry, before: int) -> bool:
    """Whether the partition stored something that was published after the opening: it recovers before it appends."""
    begun = {entry.operation for entry in history.of("publish") if shown.number < entry.number < before}
    place = (shown.topic, shown.partition)
    return any(
        entry.number < before and entry.operation in begun and (entry.topic, entry.partition) == place
        for entry in history.of("published")
    )


def _has(history: History, kind: str, path: str, after: int, before: int) -> bool:
    return any(after < entry.number < before and entry.who == path for entry in history.of(kind))


def _out_of_turn(history: History, terms: Terms) -> list[Violation]:
    """Publishes that got an offset below one that another publisher had received before they began."""
    begun = {entry.operation: entry.number for entry in history.of("publish")}
    ends: dict[tuple[str, int], list[HistoryEntry]] = {}
    vanished = history.last("power cut")
    for entry in history.of("published"):
        if entry.number < vanished and (entry.detail == "leader" or terms.beyond):
            continue
        ends.setdefault((entry.topic, entry.partition), []).append(entry)
    found = []
    for entries in ends.values():
        numbers = [entry.number for entry in entries]
        highest = [-1]
        for entry in entries:
            highest.append(max(highest[-1], entry.offsets[-1]))
        for entry in entries:
            before = highest[bisect_left(numbers, begun[entry.operation])]
            if entry.offsets[0] <= before:
                words = f"{entry.place} was given after {before} had been told"
                found.append(Violation(PROMISE, words, entry))
    return found


def _gaps(left: PartitionLeft, terms: Terms) -> list[Violation]:
    if len(left.records) == left.end - left.start:
        return []
    missing = [offset for offset in range(left.start, left.end) if offset not in left.records]
    unexplained = [
        offset
        for offset in missing
        if left.explains(offset) is None and not (terms.beyond and left.reports(offset) is not None)
    ]
    if not unexplained:
        return []
    damage = left.reports(unexplained[0])
    words = f"{left.label} holds no record at {unexplained[0]}, nor at {len(unexplained) - 1} more offsets"
    return [Violation(PROMISE, f"{words}: {damage or 'no gap is recorded there'}", None)]
