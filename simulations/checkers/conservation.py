"""Conservation: what was published is settled, leased, ready, or lost and reported; nothing else, nothing twice.

Per group and partition, from the state after recovery and from what clients did:

- below the floor everything is settled: a record there that no consumer ever began to ack was lost silently, unless the
  group counts it as lost, or (beyond the promise) an event had reported it as lost: it may turn up again where the
  disk had put it;
- what is pending is at least what no consumer began to ack, and at most what is not known to be settled;
- after recovery no consumer holds a lease, and what is ready is part of what is pending.

A partition that failed has no groups that could be asked, so no sum of it can be made, not even a weaker one: what its
records are is for other checkers. But it must not fail: the disk is well when it is recovered. Beyond the promise it
may, when verify finds damage; one whose journal was salvaged may have forgotten what it likes.
"""

from __future__ import annotations

from callboard.simulations.checkers.retention import DROPPED
from callboard.simulations.checkers.terms import DEFAULT, Terms
from callboard.simulations.history.recorder import History
from callboard.simulations.history.surviving import GroupLeft, PartitionLeft, Surviving
from callboard.simulations.violations import Violation

PROMISE = "published = settled + leased + ready + lost and reported"
Offsets = dict[tuple[str, str, int], set[int]]


def check(history: History, surviving: Surviving, terms: Terms = DEFAULT) -> list[Violation]:
    """Sums that do not add up."""
    salvaged = terms.salvaged(history)
    # Beyond the promise a power cut may spoil the journal's last frames, which looks like a torn write.
    since = history.last("power cut") if terms.beyond else 0
    maybe, sure = _offsets(history, "ack"), _offsets(history, "acked", since)
    found = []
    for left in surviving.partitions:
        if left.label in salvaged:
            continue
        if left.state == "failed" and not (terms.beyond and surviving.problems):
            words = f"{left.label} failed to recover: it is unknown what is settled"
            found.append(Violation(PROMISE, words, None))
        told = _told_lost(history, left) if terms.beyond else set()
        for group in left.groups:
            place = (group.name, left.topic, left.index)
            gone = _dropped(history, left, terms, since=known_since(history, group.name))
            unread = gone - maybe.get(place, set())
            if terms.beyond:
                unread = {offset for offset in unread if left.reports(offset) is None}
            if unread and not terms.drops_unread:
                words = f"{group.name} in {left.label}: offset {min(unread)} was dropped unread"
                found.append(Violation(PROMISE, words, None))
            problem = _problem(left, group, maybe.get(place, set()), sure.get(place, set()), told, terms)
            if problem is not None:
                found.append(Violation(PROMISE, f"{group.name} in {left.label}: {problem}", None))
    return found


def _offsets(history: History, kind: str, since: int = 0) -> Offsets:
    found: Offsets = {}
    for entry in history.of(kind):
        if entry.number < since:
            continue
        found.setdefault((entry.group, entry.topic, entry.partition), set()).update(entry.offsets)
    return found


def known_since(history: History, group: str) -> int:
    """When a consumer of the group had first joined: from then on every partition keeps for it what it has not settled.

    What is published while it joins may be dropped before a partition has heard of the group; its publisher may hear
    of it later.
    """
    return next((entry.number for entry in history.of("joined") if entry.group == group), len(history))


def _dropped(history: History, left: PartitionLeft, terms: Terms, since: int) -> set[int]:
    """Acknowledged offsets below what is kept, of what was published since; but for what may have vanished before.

    A power cut may have taken records at level `leader`. Where a disk failed, so may any end of a runtime or an actor.
    """
    if not left.start:
        return set()
    before = {
        offset
        for entry in history.of(DROPPED)
        if entry.number < since and entry.partition == left.index and entry.topic == left.topic
        for offset in entry.offsets
    }
    safe_since = len(history) if terms.leader_may_vanish else history.last("power cut")
    return {
        offset
        for entry in history.of("published")
        if entry.number >= since and entry.partition == left.index and entry.topic == left.topic
        if entry.detail != "leader" or entry.number > safe_since
        for offset in entry.offsets
        if offset < left.start and offset not in before
    }


def _told_lost(history: History, left: PartitionLeft) -> set[int]:
    """Offsets that were ever reported as lost: a write that the disk had put elsewhere may be found there later."""
    told: set[int] = set()
    for entry in history.of("DamageFound"):
        if entry.who == f"topics/{left.label}":
            told.update(range(entry.offsets[0], entry.offsets[1] + 1))
    return told


def _problem(
    left: PartitionLeft, group: GroupLeft, maybe: set[int], sure: set[int], told: set[int], terms: Terms
) -> str | None:
    untouched = [offset for offset in left.records if offset not in maybe and offset not in told]
    silent = [offset for offset in untouched if offset < group.floor]
    reported = group.lost_records if terms.drops_unread or terms.beyond else 0
    unsettled_at_most = sum(offset not in sure for offset in range(group.floor, left.end))
    if len(silent) > reported:
        return f"offset {silent[0]} counts as settled, and nobody began to ack it ({len(silent)} such)"
    if group.leased:
        return f"{group.leased} messages are leased after recovery"
    if group.pending + reported < len(untouched):
        return f"{group.pending} are pending, and {len(untouched)} were never acked"
    if group.pending > max(0, unsettled_at_most):
        return f"{group.pending} are pending, and only {unsettled_at_most} are not known to be settled"
    if group.ready > group.pending:
        return f"{group.ready} are ready, and only {group.pending} pending"
    return None
