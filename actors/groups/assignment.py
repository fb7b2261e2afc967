"""Which member of an exclusive group owns which partition. Pure: no clock, no I/O, no randomness.

A partition belongs to one member at a time. Members come and go, and each reads some topics; after every change
`rebalance` decides which member owns what from then on. The partitions carry it out (`member_rules`): each leases
nothing to its new owner before the old one has let go. Until a partition has answered that this is done, its row is
*moving*.

Vocabulary
----------
*Place*: one partition of one topic, as (topic id, index).
*Epoch*: the number of a change of an owner, higher than all before it. Whoever acts by an earlier one is stale.

Invariants
----------
AS1  Every place whose topic some member reads has an owner, which is a member that reads the topic. Others have none.
AS2  Among members that read the same topics, when there are no others, none owns two places more than another.
AS3  A place changes its owner only when the owner is gone, or to mend the balance: a member that joins only gains
     places, none gains or loses any when nothing has changed, and the places of those that leave go to those that stay.
AS4  A place whose owner does not change keeps its epoch; what is said of an earlier epoch has no effect.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Mapping, Set
from heapq import heapify, heappop, heapreplace
from typing import Any, NamedTuple

import attrs

Place = tuple[str, int]


@attrs.define
class Row:
    """One place: its owner by the latest decision."""

    owner: int | None
    epoch: int
    holder: int | None
    """Who has it until it is handed over; then the owner."""
    is_moving: bool
    since: float
    """When the place began to move; how long its holder may take counts from then, whichever member has it next."""


class Assignment:
    """The places of one group, and their owners."""

    def __init__(self) -> None:
        self.epoch = 0
        """The highest that was given out."""
        self.rows: dict[Place, Row] = {}

    def rebalance(
        self, members: Mapping[int, Set[str]], topics: Mapping[str, int], now: float
    ) -> list[Place]:
        """Decide anew: `members` with the ids of the topics that they read, `topics` with their numbers of partitions.

        Returns the places that change their owner.
        """
        owners = _balanced(members, topics, self.rows)
        for place in [place for place in self.rows if place not in owners]:
            del self.rows[place]
        changed = []
        for place, owner in owners.items():
            row = self.rows.get(place)
            if row is None:
                if owner is None:
                    continue
                row = self.rows[place] = Row(None, 0, None, False, now)
            if row.owner == owner:
                continue
            self.epoch += 1
            row.owner, row.epoch = owner, self.epoch
            if not row.is_moving:
                row.is_moving, row.since = True, now
            changed.append(place)
        return changed

    def handed_over(self, place: Place, epoch: int) -> bool:
        """The partition belongs to its owner of `epoch` alone. False when that is not the latest decision (AS4)."""
        row = self.rows.get(place)
        if row is None or row.epoch != epoch:
            return False
        row.holder, row.is_moving = row.owner, False
        return True

    def owned(self, consumer: int, *, is_moving: bool = True) -> list[Place]:
        """The places of a member by the latest decision, sorted; without `is_moving`, only what it has already."""
        return sorted(
            place
            for place, row in self.rows.items()
            if row.owner == consumer and (is_moving or not row.is_moving)
        )

    def moving(self) -> list[Place]:
        """The places that are not handed over yet."""
        return [place for place, row in self.rows.items() if row.is_moving]


class _Balance:
    """Owners in the making: how many places each has, and how many of each topic.

    A *bucket* is the places of one owner that have one holder and are of one topic: as far as it matters which place
    moves, they are alike, so the highest is taken. For each giver and taker there is a heap of buckets, the best first.
    A bucket only gets worse while the giver only gives and the taker only takes, so an entry is compared with what is
    true now when it comes up; when a member changes sides all heaps are made anew. Thousands of places take a moment.
    """

    def __init__(self, members: Mapping[int, Set[str]], rows: Mapping[Place, Row]) -> None:
        self.members = members
        self.rows = rows
        self.owners: dict[Place, int | None] = {}
        self._loads = dict.fromkeys(sorted(members), 0)
        self._of_topic: dict[tuple[int, str], int] = {}
        self._buckets: dict[int, dict[tuple[int | None, str], list[Place]]] = {
            member: {} for member in members
        }
        """By owner, then by holder and topic: the places, sorted."""
        self._heaps: dict[tuple[int, int], list[_Entry]] = {}
        """By giver and taker."""
        self._givers: set[int] = set()
        self._takers: set[int] = set()
        """Who has heaps as such."""

    def give(self, place: Place, taker: int) -> None:
        """Give it a place without an owner."""
        self.owners[place] = taker
        self._loads[taker] += 1
        self._of_topic[taker, place[0]] = self.of_topic(taker, place[0]) + 1
        insort(self._buckets[taker].setdefault((self.holder(place), place[0]), []), place)

    def holder(self, place: Place) -> int | None:
        """Who has the place until it is handed over."""
        row = self.rows.get(place)
        return None if row is None else row.holder

    def of_topic(self, member: int, topic_id: str) -> int:
        """How many places of the topic it has."""
        return self._of_topic.get((member, topic_id), 0)

    def least_loaded(self, place: Place) -> int | None:
        """The next owner of a place without one."""
        holder, topic_id, loads = self.holder(place), place[0], self._loads
        able = [member for member in loads if topic_id in self.members[member]]
        return min(
            able,
            key=lambda member: (loads[member], member != holder, self.of_topic(member, topic_id), member),
            default=None,
        )

    def move(self) -> bool:
        """Move a place so that the loads differ by less than before; False when that cannot be."""
        loads = self._loads
        by_load = sorted(loads, key=lambda member: (loads[member], member))
        for giver in reversed(by_load):
            for taker in by_load:
                if loads[giver] - loads[taker] < 2:
                    break
                key = self._best(giver, taker)
                if key is not None:
                    self._take(key, giver, taker)
                    return True
        return False

    def _take(self, key: tuple[int | None, str], giver: int, taker: int) -> None:
        if giver in self._takers or taker in self._givers:
            self._heaps.clear()
            self._givers.clear()
            self._takers.clear()
        place = self._buckets[giver][key].pop()
        self._loads[giver] -= 1
        self._of_topic[giver, place[0]] -= 1
        self.give(place, taker)

    def _best(self, giver: int, taker: int) -> tuple[int | None, str] | None:
        """The bucket from which a place moves best; None when the taker reads nothing that the giver has."""
        heap = self._heaps.get((giver, taker))
        if heap is None:
            reads = self.members[taker]
            heap = [self._entry(giver, taker, key) for key in self._buckets[giver] if key[1] in reads]
            heapify(heap)
            self._heaps[giver, taker] = heap
            self._givers.add(giver)
            self._takers.add(taker)
        while heap:
            entry = self._entry(giver, taker, heap[0].key)
            if not self._buckets[giver][entry.key]:
                heappop(heap)
            elif entry.cost == heap[0].cost:
                return entry.key
            else:
                heapreplace(heap, entry)
        return None

    def _entry(self, giver: int, taker: int, key: tuple[int | None, str]) -> _Entry:
        """What moves best: a place that the taker still has, or the giver has not yet; then one of many of a topic."""
        holder, topic_id = key
        surplus = self.of_topic(giver, topic_id) - self.of_topic(taker, topic_id)
        places = self._buckets[giver][key]
        return _Entry((holder == taker, holder != giver, surplus, places[-1] if places else ("", -1)), key)


class _Entry(NamedTuple):
    """A bucket in a heap, in which the highest cost comes first."""

    cost: tuple[bool, bool, int, Place]
    key: tuple[int | None, str]

    def __lt__(self, other: tuple[Any, ...]) -> bool:
        return bool(self.cost > other[0])


def _balanced(
    members: Mapping[int, Set[str]], topics: Mapping[str, int], rows: Mapping[Place, Row]
) -> dict[Place, int | None]:
    balance = _Balance(members, rows)
    for place in _places(topics):
        row = rows.get(place)
        balance.owners[place] = None
        if row is not None and row.owner is not None and place[0] in members.get(row.owner, ()):
            balance.give(place, row.owner)
    for place in [place for place, owner in balance.owners.items() if owner is None]:
        taker = balance.least_loaded(place)
        if taker is not None:
            balance.give(place, taker)
    while balance.move():
        pass
    return balance.owners


def _places(topics: Mapping[str, int]) -> Iterable[Place]:
    """All places, those of one index together, so that each topic is spread over the members."""
    most = max(topics.values(), default=0)
    return [
        (topic_id, index) for index in range(most) for topic_id in sorted(topics) if index < topics[topic_id]
    ]
