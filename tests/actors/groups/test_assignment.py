"""Who owns which partition of an exclusive group: balanced, sticky, and by rising epochs."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from callboard.actors.groups.assignment import Assignment
from callboard.actors.groups.commands import Place

ORDERS = frozenset({"orders"})


def decided(
    assignment: Assignment, members: Any, topics: dict[str, int] | None = None, now: float = 0.0
) -> list[Place]:
    """Rebalance among members that all read `orders`, or as they say; everything is handed over at once."""
    if not isinstance(members, dict):
        members = dict.fromkeys(members, ORDERS)
    changed = assignment.rebalance(members, topics or {"orders": 12}, now)
    for place in assignment.moving():
        assert assignment.handed_over(place, assignment.rows[place].epoch)
    return changed


def loads(assignment: Assignment, members: Any) -> list[int]:
    """How many places each member owns."""
    return [len(assignment.owned(member)) for member in members]


def test_twelve_partitions_are_shared_by_four() -> None:
    """Each of four members owns three partitions of twelve."""
    assignment = Assignment()
    assert len(decided(assignment, [1, 2, 3, 4])) == 12
    assert loads(assignment, [1, 2, 3, 4]) == [3, 3, 3, 3]


def test_who_joins_takes_only_what_balance_demands() -> None:
    """A fifth member gets two partitions of twelve, and no other partition moves."""
    assignment = Assignment()
    decided(assignment, [1, 2, 3, 4])
    changed = decided(assignment, [1, 2, 3, 4, 5])
    assert len(changed) == 2
    assert assignment.owned(5) == sorted(changed)


def test_who_leaves_disturbs_nobody() -> None:
    """Only the partitions of the member that leaves move."""
    assignment = Assignment()
    decided(assignment, [1, 2, 3, 4])
    left = assignment.owned(3)
    assert sorted(decided(assignment, [1, 2, 4])) == left
    assert loads(assignment, [1, 2, 4]) == [4, 4, 4]


def test_some_members_may_have_nothing() -> None:
    """Of more members than partitions, the rest own none, and come in when somebody leaves."""
    assignment = Assignment()
    decided(assignment, [1, 2, 3], {"orders": 2})
    assert loads(assignment, [1, 2, 3]) == [1, 1, 0]
    decided(assignment, [1, 3], {"orders": 2})
    assert loads(assignment, [1, 3]) == [1, 1]


def test_a_topic_without_readers_has_no_owner() -> None:
    """A partition of a topic that nobody reads any more is given up; one of a topic that is gone is forgotten."""
    assignment = Assignment()
    both = frozenset({"orders", "refunds"})
    decided(assignment, {1: both, 2: ORDERS}, {"orders": 2, "refunds": 2})
    assert [place for place in assignment.owned(2) if place[0] == "refunds"] == []
    assert loads(assignment, [1, 2]) == [2, 2]
    changed = decided(assignment, {2: ORDERS}, {"orders": 2, "refunds": 2})
    assert len(changed) == 2
    assert {row.owner for place, row in assignment.rows.items() if place[0] == "refunds"} == {None}
    decided(assignment, {2: ORDERS}, {"orders": 2})
    assert assignment.owned(2) == [("orders", 0), ("orders", 1)]
    assert len(assignment.rows) == 2


def test_each_topic_is_spread() -> None:
    """With two topics, nobody owns all of the one while another owns all of the other."""
    assignment = Assignment()
    both = frozenset({"orders", "refunds"})
    decided(assignment, {1: both, 2: both}, {"orders": 4, "refunds": 4})
    assert sum(place[0] == "orders" for place in assignment.owned(1)) == 2
    decided(assignment, {1: both, 2: both, 3: both, 4: both}, {"orders": 4, "refunds": 4})
    for member in (1, 2, 3, 4):
        assert {place[0] for place in assignment.owned(member)} == both


def test_what_is_moving_goes_back_to_its_holder_first() -> None:
    """When the member that was to have a partition leaves before that is let go, its holder has it again."""
    assignment = Assignment()
    decided(assignment, [1, 2])
    before = {place: row.owner for place, row in assignment.rows.items()}
    members = dict.fromkeys([1, 2, 3], ORDERS)
    assert len(assignment.rebalance(members, {"orders": 12}, 1.0)) == 4
    epochs = {place: row.epoch for place, row in assignment.rows.items()}
    del members[3]
    for place in assignment.rebalance(members, {"orders": 12}, 2.0):
        row = assignment.rows[place]
        assert row.epoch > epochs[place]
        assert row.since == 1.0, "the holder was asked to let go at 1 s"
    assert {place: row.owner for place, row in assignment.rows.items()} == before


def test_an_old_epoch_hands_nothing_over() -> None:
    """What a partition tells of a decision that was replaced has no effect."""
    assignment = Assignment()
    assignment.rebalance({1: ORDERS}, {"orders": 1}, 0.0)
    place = ("orders", 0)
    first = assignment.rows[place].epoch
    assignment.rebalance({2: ORDERS}, {"orders": 1}, 0.0)
    assert not assignment.handed_over(place, first)
    assert assignment.moving() == [place]
    assert assignment.owned(2, is_moving=False) == []
    assert assignment.handed_over(place, assignment.rows[place].epoch)
    assert assignment.owned(2, is_moving=False) == [place]
    assert not assignment.handed_over(("orders", 7), 1)


class AnyChanges(RuleBasedStateMachine):
    """Members with any topics come and go, topics come, grow nowhere and go, and partitions let go in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.assignment = Assignment()
        self.topics: dict[str, int] = {}
        self.members: dict[int, frozenset[str]] = {}
        self.next_member = 1
        self.seen: dict[Place, tuple[int | None, int]] = {}

    def decide(self) -> set[Place]:
        before = {place: (row.owner, row.epoch) for place, row in self.assignment.rows.items()}
        changed = set(self.assignment.rebalance(self.members, self.topics, 0.0))
        for place, row in self.assignment.rows.items():
            owner, epoch = before.get(place, (None, 0))
            assert (place in changed) == (owner != row.owner)
            assert row.epoch > epoch if place in changed else row.epoch == epoch, "AS4"
        assert self.assignment.rebalance(self.members, self.topics, 0.0) == [], "AS3"
        return changed

    def owners(self) -> dict[Place, int | None]:
        return {place: row.owner for place, row in self.assignment.rows.items()}

    def is_uniform(self) -> bool:
        return len(set(self.members.values())) <= 1

    @rule(topic=st.sampled_from(["a", "b", "c"]), partitions=st.integers(1, 7))
    def add_topic(self, topic: str, partitions: int) -> None:
        self.topics.setdefault(topic, partitions)
        self.decide()

    @rule(topic=st.sampled_from(["a", "b", "c"]))
    def delete_topic(self, topic: str) -> None:
        self.topics.pop(topic, None)
        self.decide()

    @rule(data=st.data(), is_like_others=st.booleans())
    def join(self, data: Any, is_like_others: bool) -> None:
        before, was_uniform = self.owners(), self.is_uniform()
        some = next(iter(self.members.values()), None)
        if not is_like_others or some is None:
            some = data.draw(st.frozensets(st.sampled_from(["a", "b", "c"]), min_size=1))
        joined, self.next_member = self.next_member, self.next_member + 1
        self.members[joined] = some
        self.decide()
        if was_uniform and self.is_uniform():
            for place, owner in self.owners().items():
                assert owner in (before.get(place), joined), "AS3"

    @precondition(lambda self: self.members)
    @rule(data=st.data())
    def leave(self, data: Any) -> None:
        before = self.owners()
        leaver = data.draw(st.sampled_from(sorted(self.members)))
        del self.members[leaver]
        changed = self.decide()
        if self.is_uniform():
            assert all(before.get(place) in (leaver, None) for place in changed), "AS3"

    @rule(data=st.data(), is_stale=st.booleans())
    def hand_over(self, data: Any, is_stale: bool) -> None:
        moving = self.assignment.moving()
        if not moving:
            return
        place = data.draw(st.sampled_from(sorted(moving)))
        row = self.assignment.rows[place]
        assert self.assignment.handed_over(place, row.epoch - is_stale) is not is_stale
        assert row.is_moving is is_stale

    @invariant()
    def everything_has_an_owner(self) -> None:
        owners = self.owners()
        for topic, partitions in self.topics.items():
            readers = [member for member, topics in self.members.items() if topic in topics]
            for index in range(partitions):
                owner = owners.get((topic, index))
                assert owner in readers if readers else owner is None, "AS1"
        assert all(place[0] in self.topics for place in owners)

    @invariant()
    def loads_differ_by_one(self) -> None:
        if self.members and self.is_uniform():
            counts = [len(self.assignment.owned(member)) for member in self.members]
            assert max(counts) - min(counts) <= 1, "AS2"
            places = sum(
                count for topic, count in self.topics.items() if topic in set().union(*self.members.values())
            )
            assert max(counts) == math.ceil(places / len(counts))


TestAnyChanges = AnyChanges.TestCase


def test_sixteen_thousand_places_are_shared_out() -> None:
    """The work grows with the places that move, not with their square: this ends."""
    assignment, topics = Assignment(), {f"topic-{index}": 16 for index in range(1_000)}
    reads = frozenset(topics)
    decided(assignment, dict.fromkeys([1, 2], reads), topics)
    moved = decided(assignment, dict.fromkeys([1, 2, 3], reads), topics)
    assert sorted(loads(assignment, [1, 2, 3])) == [5333, 5333, 5334]
    assert len(moved) == len(assignment.owned(3))
