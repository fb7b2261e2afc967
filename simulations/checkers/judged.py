"""What clients do that are not observed: a program's own, which publish, consume and settle through the public classes.

Checkers compare what observed clients were told with what is on the disk. Of what others do they know nothing, so a
topic into which one of them publishes, and a group in which one of them consumes, is *not judged*: its entries and what
is left of it are kept from every checker. Nor is an entry that is only about the program, for the story of a watched
run. So a run is judged in the same way, whether it is watched or not.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from callboard.simulations.history.entry import HistoryEntry
from callboard.simulations.history.recorder import History
from callboard.simulations.history.surviving import PartitionLeft, Surviving


@attrs.frozen
class Judged:
    """What checkers are given. `original` gives the entry of the whole history for one of theirs."""

    history: History
    surviving: Surviving
    original: Callable[[HistoryEntry], HistoryEntry]


def judged(history: History, surviving: Surviving) -> Judged:
    """The part of a history, and of what is left, that observed clients account for."""
    unobserved = history.unobserved
    if not unobserved:
        return Judged(history, surviving, lambda entry: entry)
    foreign = _foreign_topics(history, surviving) if unobserved.topics else set()
    topics = unobserved.topics | foreign
    listings = {"groups listed"} if unobserved.groups else set()
    listings |= {"topics listed"} if unobserved.topics else set()
    kept = [
        entry
        for entry in history.entries
        if entry.number not in unobserved.told
        and entry.topic not in topics
        and entry.group not in unobserved.groups
        and entry.kind not in listings
    ]
    left = [
        _without_groups(part, unobserved.groups) for part in surviving.partitions if part.topic not in topics
    ]
    return Judged(
        history.of_these(kept),
        attrs.evolve(surviving, partitions=tuple(left)),
        lambda entry: kept[entry.number] if entry.number < len(kept) else entry,
    )


def _foreign_topics(history: History, surviving: Surviving) -> set[str]:
    """Topics that hold what unobserved clients have published elsewhere: those of dead letters, say."""
    observed = {entry.topic for entry in history.of("publish") if entry.number not in history.unobserved.told}
    return {
        left.topic
        for left in surviving.partitions
        if left.topic not in observed and any(number < 0 for number in left.records.values())
    }


def _without_groups(left: PartitionLeft, groups: set[str]) -> PartitionLeft:
    if not any(group.name in groups for group in left.groups):
        return left
    return attrs.evolve(left, groups=tuple(group for group in left.groups if group.name not in groups))
