"""Which member of an exclusive group owns which partition. Pure: no clock, no I/O, no randomness.

A partition belongs to one member at a time. Members come and go, and each reads some topics; after every change
`rebalance` decides who owns what from then on. The partitions carry it out (`member_rules`): each leases nothing to
its new owner before the old one has let go. Until a partition has told that this is done, its row is *moving*.

Vocabulary
----------
*Place*: one partition of one topic, as (topic id, index).
*Epoch*: the number of a change of an owner, higher than all before it. Whoever acts by an earlier one is stale.

Invariants
----------
B1  Every place whose topic some member reads has an owner, which is a member that reads the topic. Others have none.
B2  Among members that read the same topics, and nobody else being there, no one owns two places more than another.
B3  A place changes its owner only when the owner is gone, or to mend the balance: somebody who joins only gains places,
    nobody gains or loses any when nothing has changed, and the places of those who leave go to those who stay.
B4  A place whose owner does not change keeps its epoch; what is told of an earlier epoch has no effect.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

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
    """When the place began to move; how long its holder may take counts from then, whoever is to have it next."""


class Assignment:
    """The places of one group, and who owns them."""

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
        """The partition belongs to its owner of `epoch` alone. False when that is not the latest decision (B4)."""
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
    """Owners in the making: who has how many places, and how many of each topic."""

    def __init__(self, members: Mapping[int, Set[str]]) -> None:
        self.members = members
        self.owners: dict[Place, int | None] = {}
        self.places: dict[int, list[Place]] = {member: [] for member in sorted(members)}

    def give(self, place: Place, taker: int) -> None:
        giver = self.owners.get(place)
        if giver is not None:
            self.places[giver].remove(place)
        self.owners[place] = taker
        self.places[taker].append(place)

    def of_topic(self, member: int, topic_id: str) -> int:
        return sum(place[0] == topic_id for place in self.places[member])

    def least_loaded(self, place: Place, holder: int | None) -> int | None:
        """Who is to have a place that nobody owns."""
        able = [member for member in self.places if place[0] in self.members[member]]
        return min(
            able,
            key=lambda member: (
                len(self.places[member]),
                member != holder,
                self.of_topic(member, place[0]),
                member,
            ),
            default=None,
        )

    def next_move(self, rows: Mapping[Place, Row]) -> tuple[Place, int] | None:
        """A place, and the member to give it to, so that the loads differ by less than before."""
        by_load = sorted(self.places, key=lambda member: (len(self.places[member]), member))
        for giver in reversed(by_load):
            for taker in by_load:
                if len(self.places[giver]) - len(self.places[taker]) < 2:
                    break
                able = [place for place in self.places[giver] if place[0] in self.members[taker]]
                if able:
                    return max(able, key=lambda place: self._cost(place, rows, giver, taker)), taker
        return None

    def _cost(
        self, place: Place, rows: Mapping[Place, Row], giver: int, taker: int
    ) -> tuple[bool, bool, int, Place]:
        """What moves best: a place that the taker still has, or the giver has not yet; then one of many of a topic."""
        row = rows.get(place)
        holder = None if row is None else row.holder
        surplus = self.of_topic(giver, place[0]) - self.of_topic(taker, place[0])
        return holder == taker, holder != giver, surplus, place


def _balanced(
    members: Mapping[int, Set[str]], topics: Mapping[str, int], rows: Mapping[Place, Row]
) -> dict[Place, int | None]:
    balance = _Balance(members)
    for place in _places(topics):
        row = rows.get(place)
        balance.owners[place] = None
        if row is not None and row.owner is not None and place[0] in members.get(row.owner, ()):
            balance.give(place, row.owner)
    for place in [place for place, owner in balance.owners.items() if owner is None]:
        row = rows.get(place)
        taker = balance.least_loaded(place, None if row is None else row.holder)
        if taker is not None:
            balance.give(place, taker)
    while (move := balance.next_move(rows)) is not None:
        balance.give(*move)
    return balance.owners


def _places(topics: Mapping[str, int]) -> Iterable[Place]:
    """All places, those of one index together, so that each topic is spread over the members."""
    most = max(topics.values(), default=0)
    return [
        (topic_id, index) for index in range(most) for topic_id in sorted(topics) if index < topics[topic_id]
    ]
