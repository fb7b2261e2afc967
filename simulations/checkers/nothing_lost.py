"""Nothing acknowledged is lost.

A publish that returned with `acks="all"` is in the log at its offset; where there is retention, until it drops it. At
level `leader` a later power cut may take it, unless a flush of its topic that began after it has returned; the one at
the very end only what a failing disk has kept from being synced. Where a disk failed, a runtime or an actor that ends
may leave such records behind, and a flush that ends later says nothing about them. What was not waited for counts from
the flush on that returned after it, unless another flush raised the failures in between: each is raised once. Where it
lay was not reported, but which consumer was handed it or read it, and what retention may drop unseen, is known: see
`_Dropped`.
"""

from __future__ import annotations

from bisect import bisect_left

from callboard.simulations.checkers.attempts import REOPENED
from callboard.simulations.checkers.closed_well import CLOSED
from callboard.simulations.checkers.conservation import known_since
from callboard.simulations.checkers.definite_failures import places
from callboard.simulations.checkers.terms import DEFAULT, Terms
from callboard.simulations.history.entry import HistoryEntry
from callboard.simulations.history.recorder import History
from callboard.simulations.history.surviving import PartitionLeft, Surviving
from callboard.simulations.violations import Violation

PROMISE = "nothing acknowledged is lost"


def check(history: History, surviving: Surviving, terms: Terms = DEFAULT) -> list[Violation]:
    """One violation per message that is not at its offset."""
    cuts = history.of("power cut")
    last_cut = history.last("power cut")
    partitions = {(left.topic, left.index): left for left in surviving.partitions}
    flushes = _flushes(history, terms)
    crashes = _crashes(history) if terms.leader_may_vanish else {}
    begun = {number: entry.number for entry in history.of("publish") for number in entry.ids}
    found = []
    for entry in history.of("published"):
        left = partitions.get((entry.topic, entry.partition))
        if left is None:
            found.append(Violation(PROMISE, f"{entry.place} is gone with its partition", entry))
            continue
        crashed = crashes.get(f"topics/{left.label}", ())
        may_vanish = (
            entry.detail == "leader"
            and (last_cut > entry.number or terms.leader_may_vanish)
            and not any(
                since < entry.number < begun and not any(entry.number < crash < ended for crash in crashed)
                for since, begun, ended in flushes.get(entry.topic, ())
            )
        )
        get = left.records.get
        for number, offset in zip(entry.ids, entry.offsets, strict=True):
            if get(offset) == number or may_vanish:
                continue
            heir_begun = begun.get(get(offset, -1), 0)
            if terms.beyond and (
                _looks_torn(left, offset, last_cut > entry.number)
                or any(entry.number < cut.number < heir_begun for cut in cuts)
            ):
                continue
            found += _missing(entry, left, number, offset, terms)
    return found + _flushed(history, surviving, terms, begun)


def _flushes(history: History, terms: Terms) -> dict[str, list[tuple[int, int, int]]]:
    """By topic: between which entries all that was reported is synced, and where the flush that said so ended.

    They are the last power cut, or where a disk failed the last end of a runtime, and where the flush began.
    """
    ends = [*history.of("power cut")]
    if terms.leader_may_vanish:
        ends += [*history.of("killed"), *history.of("closed"), *history.of(CLOSED)]
        ends += [entry for entry in history.of("note") if entry.detail.startswith(REOPENED)]
    cuts = sorted(entry.number for entry in ends)
    began = {entry.operation: entry.number for entry in history.of("flush")}
    found: dict[str, list[tuple[int, int, int]]] = {}
    for entry in history.of("flushed"):
        if entry.operation in began:
            begun = began[entry.operation]
            place = bisect_left(cuts, begun)
            found.setdefault(entry.topic, []).append((cuts[place - 1] if place else -1, begun, entry.number))
    return found


def _crashes(history: History) -> dict[str, list[int]]:
    """By actor: where it crashed, and with it what it held in memory of records whose sync had failed."""
    found: dict[str, list[int]] = {}
    for entry in history.of("IncarnationCrashed"):
        found.setdefault(entry.who, []).append(entry.number)
    return found


def _looks_torn(left: PartitionLeft, offset: int, was_cut: bool) -> bool:
    """Beyond the promise: damage to the very last records before a power cut cannot be distinguished from a torn write.

    Their offsets may then have been given to others, who began after the cut.
    """
    return was_cut and (offset > max(left.records, default=-1) or "unsynced" in (left.explains(offset) or ""))


def _missing(
    entry: HistoryEntry, left: PartitionLeft, number: int, offset: int, terms: Terms
) -> list[Violation]:
    if offset in left.records:
        words = (
            f"{left.label}@{offset} holds message {left.records[offset]}, and {entry.who} was told {number}"
        )
        return [Violation(PROMISE, words, entry)]
    if (terms.drops and offset < left.start) or (terms.beyond and left.reports(offset) is not None):
        return []
    why = left.reports(offset) or left.explains(offset) or "nothing says why"
    words = f"message {number}, acknowledged at {left.label}@{offset}, is not in the log ({why})"
    return [Violation(PROMISE, words, entry)]


def _flushed(history: History, surviving: Surviving, terms: Terms, begun: dict[int, int]) -> list[Violation]:
    flushed = history.of("flushed")
    if not flushed:
        return []
    failed = [entry.number for entry in history.of("flush failed")]
    there = {number for left in surviving.partitions for number in left.records.values()}
    dropped = _Dropped(history, surviving, terms)
    return [
        Violation(PROMISE, f"message {number} was flushed and is not in the log", entry)
        for entry in flushed
        for number in entry.ids
        if number not in there
        and not any(begun[number] < at < entry.number for at in failed)
        and not dropped.may_hold(number, begun[number])
    ]


class _Dropped:
    """What retention may have dropped, of messages whose publishers know no offset.

    One that a consumer was handed lay there. One that no consumer was handed was never settled, so that it may only be
    dropped unread, or before there was a group; and if so out of a partition that has dropped anything, of those in
    which its key was ever seen.
    """

    def __init__(self, history: History, surviving: Surviving, terms: Terms) -> None:
        self._terms = terms
        self._keys = history.keys
        self._starts = {(left.topic, left.index): left.start for left in surviving.partitions}
        self._seen: dict[int, list[tuple[str, int, int]]] = {}
        self._homes: dict[bytes, set[tuple[str, int]]] = {}
        for (topic, partition, offset), number in places(history, surviving).items():
            self._seen.setdefault(number, []).append((topic, partition, offset))
            key = self._keys.get(number)
            if key is not None:
                self._homes.setdefault(key, set()).add((topic, partition))
        self._waiting_since = min(
            (known_since(history, group) for group in terms.groups), default=len(history)
        )

    def may_hold(self, number: int, begun: int) -> bool:
        """Whether the message, published by entry `begun`, may be gone by retention."""
        if not self._terms.drops:
            return False
        if number in self._seen:
            return any(
                offset < self._starts.get((topic, partition), 0)
                for topic, partition, offset in self._seen[number]
            )
        if not self._terms.drops_unread and self._waiting_since <= begun:
            return False
        key = self._keys.get(number)
        homes = self._homes.get(key, self._starts) if key is not None else self._starts
        return any(self._starts.get(home, 0) > 0 for home in homes)
