"""What a consumer had leased is given back in steps when it leaves, and the partition goes on between them."""

from __future__ import annotations

from typing import Any

import pytest

from callboard.actors.delivery.events import GroupEvents
from callboard.actors.partition import commands as c
from callboard.actors.partition import effects as e
from callboard.actors.partition.carried import Carried
from callboard.actors.partition.core import PartitionCore
from callboard.actors.partition.deliveries import CoreOptions
from callboard.actors.partition.group_states import GroupStates
from callboard.log.limits import Limits

STEP = 3
MANY = 10


def core_with(records: int, **settings: Any) -> PartitionCore:
    """A core whose steps are short, with so many visible records and a group."""
    core = PartitionCore(
        GroupStates(),
        Carried(),
        CoreOptions(label="orders/0", limits=Limits(step_items=STEP)),
        visible_end=records,
    )
    core.group_openings.open_group(
        c.OpenGroup(1, True, "beginning", c.DeliverySettings(**settings)), "opens", 0.0
    )
    commit(core)
    return core


def commit(core: PartitionCore) -> list[str]:
    """A commit that succeeds, and all leases are delivered. Who is answered."""
    work = core.journal.take()
    if work is None:
        return []
    core.journalled(work)
    for pending in work.leases:
        core.delivered(pending)
    core.effects.clear()
    return [token for token, _ in work.answers]


def lease_singly(core: PartitionCore, consumer: int, count: int) -> list[int]:
    """So many leases of one record each; their ids."""
    found = []
    for _ in range(count):
        lease = core.fetch(c.Fetch(1, consumer, 1, 1 << 20), "fetches", 0.0)
        assert lease is not None
        found.append(lease.lease_id)
    commit(core)
    return found


def held(core: PartitionCore, consumer: int) -> int:
    """How many records a consumer has leased."""
    holdings = core.states.groups[1].delivery.offsets.holdings(0.0, 10)
    return holdings[consumer].leased if consumer in holdings else 0


def test_who_leaves_gives_back_a_part_in_each_step_and_is_answered_in_the_end() -> None:
    """The first part is given back at once; the rest is due at once, and whoever asked waits for all of it."""
    core = core_with(MANY)
    lease_singly(core, 7, MANY)
    core.members.release_consumer(c.ReleaseConsumer(1, 7), "leaves", 1.0)
    left = [held(core, 7)]
    while left[-1]:
        assert commit(core) == []
        due = core.next_deadline()
        assert due is not None
        assert due <= 1.0
        core.time_has_come(1.0)
        left.append(held(core, 7))
    assert left == [7, 4, 1, 0]
    assert commit(core) == ["leaves"]
    assert core.states.groups[1].delivery.released == MANY
    assert core.next_deadline() is None


def test_what_is_given_back_is_leased_before_the_rest_is() -> None:
    """Between two steps another consumer is leased what came back, the first records first."""
    core = core_with(MANY)
    lease_singly(core, 7, MANY)
    core.wait_for_ready(c.WaitForReady(1, 8), "waits", 0.5)
    core.effects.clear()
    core.members.release_consumer(c.ReleaseConsumer(1, 7), "leaves", 1.0)
    assert [effect.consumer for effect in core.effects if isinstance(effect, e.Notify)] == [8]
    lease = core.fetch(c.Fetch(1, 8, 100, 1 << 20), "fetches", 1.0)
    assert lease is not None
    assert lease.ranges == ((0, STEP, 1),)
    while held(core, 7):
        core.time_has_come(1.0)
    assert held(core, 8) == STEP


def test_what_a_fenced_member_leases_as_a_new_generation_it_keeps() -> None:
    """Only what it had when it was fenced is given back, however long that takes."""
    core = core_with(MANY + 1)
    lease_singly(core, 7, MANY)
    core.members.fence_consumer(c.FenceConsumer(1, 7, 2), "fences", 1.0)
    lease = core.fetch(c.Fetch(1, 7, 100, 1 << 20, 2), "fetches", 1.0)
    assert lease is not None
    commit(core)
    while (due := core.next_deadline()) is not None and due <= 1.0:
        core.time_has_come(1.0)
    assert commit(core) == ["fences"]
    assert core.states.groups[1].delivery.offsets.lease_of(lease.lease_id) is not None
    assert held(core, 7) == len(range(*lease.ranges[0][:2])) + (len(lease.ranges) - 1)


def test_an_owner_gets_nothing_until_all_is_given_back() -> None:
    """In an exclusive group a forced hand-over ends when the last lease of the others has."""
    core = core_with(MANY, is_exclusive=True)
    core.members.assign_partition(c.AssignPartition(1, 7, 1), "assigns", 0.0)
    lease_singly(core, 7, MANY)
    core.members.assign_partition(c.AssignPartition(1, 8, 2, is_forced=True), "forces", 1.0)
    assert core.fetch(c.Fetch(1, 8, 100, 1 << 20), "fetches", 1.0) is None
    answered: list[Any] = []
    while held(core, 7):
        assert answered == []
        core.effects.clear()
        core.time_has_come(1.0)
        answered = [
            answer
            for effect in core.effects
            if isinstance(effect, e.Answer)
            for answer in effect.answers
            if answer[0] == "forces"
        ]
    assert answered == [("forces", True)]
    assert core.fetch(c.Fetch(1, 8, 100, 1 << 20), "fetches", 1.0) is not None


@pytest.mark.parametrize("how", ["closes", "seeks", "stops"])
def test_whoever_waits_is_answered_when_the_leases_go_otherwise(how: str) -> None:
    """The group is closed, or sought elsewhere, or the partition stops, in the middle of it."""
    core = core_with(MANY)
    lease_singly(core, 7, MANY)
    core.members.release_consumer(c.ReleaseConsumer(1, 7), "leaves", 1.0)
    if how == "closes":
        core.group_openings.close_group(c.CloseGroup(1), "closes", 1.0)
    elif how == "seeks":
        core.seeks.seek_group(c.SeekOffset(1, 0), "seeks", 1.0)
        core.time_has_come(1.0)
    else:
        for _ in core.members.release_in_steps(1.0, all_leases=False):
            pass
        assert core.states.groups[1].delivery.released == MANY
    assert "leaves" in commit(core)


def test_a_crash_between_two_steps_loses_nothing_and_counts_nothing() -> None:
    """A successor has what was not given back as leased, and gives it back when it is asked again."""
    core = core_with(MANY)
    records = []

    def journal() -> None:
        work = core.journal.take()
        assert work is not None
        records.extend(entry.record(0.0) for entry in work.entries if isinstance(entry, GroupEvents))
        core.journalled(work)
        for pending in work.leases:
            core.delivered(pending)

    for _ in range(MANY):
        core.fetch(c.Fetch(1, 7, 1, 1 << 20), "fetches", 0.0)
    journal()
    core.members.release_consumer(c.ReleaseConsumer(1, 7), "leaves", 1.0)
    journal()
    core.end()
    states = GroupStates()
    states.open(1, True, 0)
    for record in records:
        states.apply(record)
    successor = PartitionCore(
        states, core._carried, CoreOptions(label="orders/0", limits=Limits(step_items=STEP)), visible_end=MANY
    )
    successor.begin(2.0, restarted=True)
    assert held(successor, 7) == MANY - STEP
    successor.members.release_consumer(c.ReleaseConsumer(1, 7), "leaves again", 2.0)
    while held(successor, 7):
        successor.time_has_come(2.0)
    lease = successor.fetch(c.Fetch(1, 8, 100, 1 << 20), "fetches", 2.0)
    assert lease is not None
    assert lease.ranges == ((0, MANY, 1),)
