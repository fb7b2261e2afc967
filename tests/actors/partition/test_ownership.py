"""A partition of an exclusive group: only its owner is leased anything, and only after everybody else has let go."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from callboard.actors.partition import commands as c
from callboard.actors.partition import effects as e
from callboard.actors.partition.carried import Carried
from callboard.actors.partition.core import PartitionCore
from callboard.actors.partition.deliveries import CoreOptions
from callboard.actors.partition.group_states import GroupStates

GROUP = 1
SETTINGS = c.DeliverySettings(visibility_timeout=10.0, backoff=0.0, is_exclusive=True)


class Exclusive:
    """A core with one exclusive group, whose answers are collected by token."""

    def __init__(self, records: int = 0) -> None:
        self.carried = Carried()
        self.core = PartitionCore(
            GroupStates(), self.carried, CoreOptions(label="orders/0"), visible_end=records
        )
        self.core.group_openings.open_group(c.OpenGroup(GROUP, True, "beginning", SETTINGS), "opens", 0.0)
        self.now = 0.0
        self.answers: dict[Any, Any] = {}
        self.notified: list[int] = []
        self.commit()

    def commit(self) -> None:
        """End a commit: what was leased is delivered."""
        core = self.core
        work = core.journal.take()
        if work is not None:
            core.journalled(work)
            for pending in work.leases:
                core.delivered(pending)
        while core.effects:
            effects = core.deliveries.take_effects()
            for effect in effects:
                if isinstance(effect, e.Answer):
                    self.answers.update(effect.answers)
                elif isinstance(effect, e.Notify):
                    self.notified.append(effect.consumer)

    def assign(self, consumer: int | None, epoch: int, *, is_forced: bool = False) -> str:
        """Assign the partition; returns the question's token."""
        token = f"assigns {epoch}{' again' * is_forced}"
        self.core.members.assign_partition(
            c.AssignPartition(GROUP, consumer, epoch, is_forced), token, self.now
        )
        self.commit()
        return token

    def fetch(self, consumer: int, count: int = 1) -> Any:
        """What the consumer is leased."""
        lease = self.core.fetch(c.Fetch(GROUP, consumer, count, 1 << 20), f"fetches {consumer}", self.now)
        self.commit()
        return lease

    def settle(self, verb: str, lease: Any) -> Any:
        """Settle all of a lease."""
        settled = GROUP, lease.lease_id, [row[:2] for row in lease.ranges]
        if verb == "ack":
            settlement = self.core.ack(c.Ack(*settled), "settles", self.now)
        elif verb == "nack":
            settlement = self.core.nack(c.Nack(*settled, 0.0), "settles", self.now)
        else:
            settlement = self.core.release(c.Release(*settled), "settles", self.now)
        self.commit()
        return settlement

    @property
    def group(self) -> Any:
        """The group's state."""
        return self.core.states.groups[GROUP]


def test_nobody_is_leased_what_nobody_owns() -> None:
    """Before the partition is assigned, and to all but its owner, it leases nothing."""
    partition = Exclusive(records=5)
    assert partition.fetch(1) is None
    assert partition.answers[partition.assign(1, 1)] is True
    assert partition.fetch(2) is None
    assert partition.fetch(1).consumer == 1


def test_the_old_owner_lets_go_first() -> None:
    """While the old owner has a lease the new one waits; it is notified when that is settled."""
    partition = Exclusive(records=5)
    partition.assign(1, 1)
    first, second = partition.fetch(1), partition.fetch(1)
    token = partition.assign(2, 2)
    partition.core.wait_for_ready(c.WaitForReady(GROUP, 2), "waits 2", 0.0)
    assert partition.fetch(1) is None
    assert partition.fetch(2) is None
    partition.settle("ack", first)
    assert token not in partition.answers
    assert partition.notified == []
    partition.settle("ack", second)
    assert partition.answers[token] is True
    assert partition.notified == [2]
    assert partition.fetch(2).ranges == ((2, 3, 1),)


def test_a_lease_that_runs_out_lets_go_too() -> None:
    """When the old owner does nothing, its leases end with their time."""
    partition = Exclusive(records=1)
    partition.assign(1, 1)
    partition.fetch(1)
    token = partition.assign(2, 2)
    partition.now = 10.0
    partition.core.time_has_come(10.0)
    partition.commit()
    assert partition.answers[token] is True
    assert partition.fetch(2).ranges == ((0, 1, 2),)


def test_force_ends_the_leases_of_others() -> None:
    """Forced, the partition is handed over at once; receipts of the old owner are void when it is leased again."""
    partition = Exclusive(records=1)
    partition.assign(1, 1)
    lease = partition.fetch(1)
    waiting = partition.assign(2, 2)
    forced = partition.assign(2, 2, is_forced=True)
    assert partition.answers[waiting] is partition.answers[forced] is True
    assert partition.fetch(2).ranges == ((0, 1, 1),)
    assert partition.settle("ack", lease).lost == ((0, 1),)


def test_an_earlier_epoch_has_no_effect() -> None:
    """A decision that comes late changes nothing, and one that waits ends when a later one comes."""
    partition = Exclusive(records=2)
    partition.assign(1, 1)
    partition.fetch(1)
    waiting = partition.assign(2, 2)
    back = partition.assign(1, 3)
    assert partition.answers[waiting] is False
    assert partition.answers[back] is True
    assert partition.answers[partition.assign(2, 2)] is False
    assert partition.fetch(1) is not None


def test_ownership_outlives_the_core() -> None:
    """After a crash of the partition the leases go on, and so does the hand-over."""
    partition = Exclusive(records=2)
    partition.assign(1, 1)
    lease = partition.fetch(1)
    partition.assign(2, 2)
    partition.core.end()
    partition.core = PartitionCore(
        partition.core.states, partition.carried, CoreOptions(label="orders/0"), visible_end=2
    )
    partition.core.begin(0.0, restarted=True)
    assert partition.fetch(1) is None
    assert partition.fetch(2) is None
    partition.settle("ack", lease)
    assert partition.fetch(2) is not None


class AnyOrder(RuleBasedStateMachine):
    """Members fetch, settle and leave, decisions come in any order, leases run out, the partition crashes."""

    def __init__(self) -> None:
        super().__init__()
        self.partition = Exclusive()
        self.epoch = 0
        self.owner: int | None = None
        self.leases: list[Any] = []
        self.asked: list[str] = []
        self.consumers = st.integers(1, 3)

    @rule(count=st.integers(1, 5))
    def publish(self, count: int) -> None:
        core = self.partition.core
        end = core.visible_end + count
        core.log_moved(0, end, end, self.partition.now)
        self.partition.commit()

    @rule(consumer=st.sampled_from([None, 1, 2, 3]), is_forced=st.booleans())
    def assign(self, consumer: int | None, is_forced: bool) -> None:
        self.epoch += 1
        self.owner = consumer
        self.asked.append(self.partition.assign(consumer, self.epoch, is_forced=is_forced))

    @rule(consumer=st.sampled_from([None, 1, 2, 3]), late=st.integers(1, 4), is_forced=st.booleans())
    def assign_late(self, consumer: int | None, late: int, is_forced: bool) -> None:
        if self.epoch:
            token = self.partition.assign(consumer, self.epoch - late, is_forced=is_forced)
            assert self.partition.answers[token] is False, "MR2"

    @rule(consumer=st.integers(1, 3), count=st.integers(1, 4))
    def fetch(self, consumer: int, count: int) -> None:
        lease = self.partition.fetch(consumer, count)
        if lease is not None:
            assert consumer == self.owner, "MR2"
            self.leases.append(lease)

    @rule(data=st.data(), verb=st.sampled_from(["ack", "nack", "release"]))
    def settle(self, data: Any, verb: str) -> None:
        if self.leases:
            lease = self.leases.pop(data.draw(st.integers(0, len(self.leases) - 1)))
            self.partition.settle(verb, lease)

    @rule(consumer=st.integers(1, 3))
    def leave(self, consumer: int) -> None:
        self.partition.core.members.release_consumer(
            c.ReleaseConsumer(GROUP, consumer), "leaves", self.partition.now
        )
        self.partition.commit()

    @rule(seconds=st.sampled_from([1.0, 5.0, 11.0]))
    def wait(self, seconds: float) -> None:
        self.partition.now += seconds
        self.partition.core.time_has_come(self.partition.now)
        self.partition.commit()

    @rule()
    def crash(self) -> None:
        partition = self.partition
        end = partition.core.visible_end
        partition.core.end()
        partition.core = PartitionCore(
            partition.core.states, partition.carried, CoreOptions(label="orders/0"), visible_end=end
        )
        partition.group.handing_over = []  # the new core's group is a new object
        partition.core.begin(partition.now, restarted=True)
        self.asked.clear()
        partition.commit()

    @invariant()
    def all_leases_are_one_members(self) -> None:
        holders = {lease.consumer for lease in self.partition.group.delivery.offsets.leases()}
        assert len(holders) <= 1, "MR1"
        waiting = [token for token in self.asked if token not in self.partition.answers]
        assert len(waiting) <= 1, "MR3"
        if waiting:
            assert holders - {self.owner}, "MR3"


TestAnyOrder = AnyOrder.TestCase
