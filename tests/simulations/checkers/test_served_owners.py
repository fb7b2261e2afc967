"""Members of an exclusive group are served in the partitions that stay theirs, whatever others wait for."""

from __future__ import annotations

import pytest

from callboard.simulations.checkers.served_owners import ServedOwners
from callboard.simulations.history import History


class Members:
    """A history of `orders/0`, which `w1` owns and waits for, while `orders/1` moves from it to `w2`."""

    def __init__(self) -> None:
        self.time = 0.0
        self.history = History(now=lambda: self.time)
        self.history.booted(1)
        for who, life in (("w1", 1), ("w2", 2)):
            self.record("joined", who, life)
        self.record("owns", "w1", 1, 0)
        self.record("is to own", "w2", 2, 1)
        self.record("asks", "w1", 1)

    def record(
        self,
        kind: str,
        who: str,
        life: int,
        partition: int = 0,
        offset: int | None = None,
        until: float = 0.0,
    ) -> None:
        offsets = () if offset is None else (offset,)
        self.history.record(
            1, kind, who, life, "orders", partition, "totals", offsets=offsets, attempts=(1,), until=until
        )

    def at(self, time: float) -> None:
        self.time = time

    def publish(self, offset: int) -> None:
        self.record("published", "p", 99, 0, offset)

    def look(self) -> None:
        """The other member asks for messages: that is when it is looked for what is late."""
        self.record("asks", "w2", 2)
        self.record("gave up", "w2", 2)

    def found(self, *, is_keyed: bool = False) -> list[str]:
        return [found.words for found in ServedOwners(self.history, is_keyed=is_keyed).found]


@pytest.fixture
def members() -> Members:
    """Three seconds after they joined, when all is quiet: a message is published to the partition that stays."""
    members = Members()
    members.at(3.0)
    members.publish(0)
    return members


def test_who_waits_is_served_while_another_partition_moves(members: Members) -> None:
    """A message of a partition that stays is late when its owner still waits half a second later."""
    members.at(3.4)
    members.look()
    assert members.found() == []
    members.at(3.6)
    members.look()
    (words,) = members.found()
    assert "orders/0@0" in words
    assert "on the way to other members: orders/1" in words


def test_what_would_have_been_late_was_served(members: Members) -> None:
    """A delivery counts as one that waited for no other partition when those go on moving for long enough."""
    members.at(3.1)
    members.record("delivered", "w1", 1, 0, 0)
    members.at(3.4)
    members.look()
    assert not ServedOwners(members.history).has_served
    members.at(3.7)
    members.look()
    assert ServedOwners(members.history).has_served
    assert members.found() == []


def test_a_delivery_during_a_short_rebalance_shows_nothing(members: Members) -> None:
    """When the other partition arrives soon, a message that waited for it would not have been late."""
    members.at(3.1)
    members.record("delivered", "w1", 1, 0, 0)
    members.record("owns", "w2", 2, 1)
    members.at(3.7)
    members.look()
    assert not ServedOwners(members.history).has_served


@pytest.mark.parametrize("kind", ["gave up", "left", "is to own"])
def test_nobody_is_owed_what_it_does_not_wait_for_or_own(members: Members, kind: str) -> None:
    """Who waits no more, has left, or has only a claim to the partition is not served there."""
    members.record(kind, "w1", 1, 0)
    members.at(9.0)
    members.look()
    assert members.found() == []


def test_a_fault_excuses(members: Members) -> None:
    """Half a second without any disturbance has to pass."""
    members.at(3.4)
    members.history.note("fault", "SlowDisk", who="SlowDisk")
    members.at(3.8)
    members.look()
    assert members.found() == []
    members.at(4.0)
    members.look()
    assert len(members.found()) == 1


@pytest.mark.parametrize(("kind", "until", "is_late"), [("released", 0.0, True), ("nacked", 9.5, False)])
def test_what_is_given_back_is_served_again(members: Members, kind: str, until: float, is_late: bool) -> None:
    """What was given back may be delivered at once, what was nacked when its delay is over."""
    members.record("delivered", "w1", 1, 0, 0)
    members.record(kind, "w1", 1, 0, 0, until)
    members.record("asks", "w1", 1)
    members.at(9.0)
    members.look()
    assert bool(members.found()) == is_late
    members.at(10.1)
    members.look()
    assert len(members.found()) == 1


def test_a_message_in_hand_keeps_back_those_of_its_key(members: Members) -> None:
    """With order per key a message is due when all before it are settled; without, others do not matter."""
    members.record("delivered", "w1", 1, 0, 0)
    members.record("asks", "w1", 1)
    members.publish(1)
    members.at(4.0)
    members.look()
    assert members.found(is_keyed=True) == []
    assert len(members.found()) == 1
    members.record("acked", "w1", 1, 0, 0)
    members.at(5.0)
    members.look()
    assert len(members.found(is_keyed=True)) == 1
