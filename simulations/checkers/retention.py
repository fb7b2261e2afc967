"""Retention drops what it must, and nothing before its time.

A segment goes when its newest record is older than `retention_age`, or while the partition is larger than
`retention_bytes`; and a publish is refused for a full topic only when the partition has reached its size and a group
has not settled all of the oldest segment. What goes was settled by every group, unless the topic may drop what is
unread: no crash makes that look otherwise.
"""

from __future__ import annotations

from typing import Final

from callboard.simulations.checkers.terms import DEFAULT, Terms
from callboard.simulations.history.entry import HistoryEntry
from callboard.simulations.history.recorder import History
from callboard.simulations.history.surviving import Surviving
from callboard.simulations.violations import Violation

PROMISE = "nothing is dropped, or refused for a full topic, before its time"
DROPPED: Final = "segment dropped"
"""The kind of entry for a segment that goes. `offsets`: those in it; `attempts`: the bytes of the partition before, the
time for which its newest record counts as appended and the wall time, in microseconds."""
FULL: Final = "topic full"
"""The kind of entry for a partition that may have refused the publish of that `operation`. `offsets`: from the
oldest segment when that began to the end of the oldest now; `attempts`: the entry at which it began, and the most bytes
there were meanwhile."""
SLACK_BYTES: Final = 64
"""By how much sizes may differ that are read from files: a last frame may end with zeros."""


def check(history: History, surviving: Surviving, terms: Terms = DEFAULT) -> list[Violation]:
    """One violation per segment that went too early, per publish that was refused without need, and per group that is
    reported that something went unread.
    """
    return [*_dropped(history, terms), *_refused(history, terms), *_unread(history, terms)]


def _unread(history: History, terms: Terms) -> list[Violation]:
    if terms.drops_unread or not terms.drops:
        return []
    return [
        Violation(PROMISE, f"it was reported that {entry.place} went unread: {entry.detail}", entry)
        for entry in history.of("UnreadDropped")
    ]


def _dropped(history: History, terms: Terms) -> list[Violation]:
    found = []
    for entry in history.of(DROPPED):
        size_bytes, newest_us, wall_us = entry.attempts
        limit_bytes, age_s = terms.retention_bytes, terms.retention_age_s
        is_large = limit_bytes is not None and size_bytes + SLACK_BYTES > limit_bytes
        is_old = age_s is not None and wall_us - newest_us >= age_s * 1e6
        if not is_large and not is_old:
            words = (
                f"{entry.place} were dropped when the partition had {size_bytes} bytes and the newest of them was"
                f" {(wall_us - newest_us) / 1e6:g} s old"
            )
            found.append(Violation(PROMISE, words, entry))
    return found


def _refused(history: History, terms: Terms) -> list[Violation]:
    publishes: dict[int, list[HistoryEntry]] = {}
    for entry in history.of(FULL):
        publishes.setdefault(entry.operation, []).append(entry)
    return [
        Violation(
            PROMISE, f"{entries[0].who} was told that {entries[0].topic} is full, and it was not", entries[0]
        )
        for entries in publishes.values()
        if not any(_is_deserved(history, entry, terms) for entry in entries)
    ]


def _is_deserved(history: History, entry: HistoryEntry, terms: Terms) -> bool:
    begun, size_bytes = entry.attempts
    if terms.retention_bytes is None or size_bytes + SLACK_BYTES < terms.retention_bytes:
        return False
    for group in terms.groups:
        settled = {
            offset
            for acked in history.of("acked")
            if acked.number < begun and acked.group == group
            if (acked.topic, acked.partition) == (entry.topic, entry.partition)
            for offset in acked.offsets
        }
        if any(offset not in settled for offset in range(entry.offsets[0], entry.offsets[-1] + 1)):
            return True
    return False
