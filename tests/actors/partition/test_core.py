"""The partition's core alone: settings of groups, notices, lost ranges, commits that fail."""

from __future__ import annotations

from typing import Any

import pytest

from callboard.actors.partition import commands as c
from callboard.actors.partition import effects as e
from callboard.actors.partition.core import JITTER, NOTICE_LASTS_S, Carried, PartitionCore
from callboard.actors.partition.group_states import GroupEvents, GroupStates
from callboard.log.errors import InvalidArgument
from callboard.log.format.columns import Columns


def core_with(records: int, *groups: int, **settings: Any) -> PartitionCore:
    """A core with so many visible records, and groups that were opened."""
    core = PartitionCore(GroupStates(), Carried(), label="orders/0", visible_end=records)
    for group in groups or (1,):
        core.open_group(c.OpenGroup(group, True, "beginning", c.DeliverySettings(**settings)), "opens", 0.0)
    commit(core)
    core.take_effects()
    return core


def commit(core: PartitionCore) -> None:
    """A commit that succeeds."""
    work = core.take_journal()
    if work is not None:
        core.journalled(work)


def of_kind(core: PartitionCore, kind: type) -> list[Any]:
    """The effects of one kind since the last look."""
    return [effect for effect in core.take_effects() if isinstance(effect, kind)]


def leased(core: PartitionCore, *, count: int = 1, group: int = 1, now: float = 0.0) -> Any:
    """A lease, journalled; its reading."""
    core.fetch(c.Fetch(group, 7, count, 1 << 20), "fetches", now)
    commit(core)
    return of_kind(core, e.ReadLeased)[0].reading


def test_a_nack_without_a_delay_waits_as_the_settings_of_its_group_say() -> None:
    """The delay doubles with the attempt up to the maximum, chance takes off a part; altered settings hold at once."""
    core = core_with(1, backoff=1.0, max_backoff=5.0)
    now, delays = 0.0, []
    for chance in (0.0, 0.0, 0.0, 0.0, 1.0):
        lease = core.fetch(c.Fetch(1, 7, 1, 1000), "fetches", now)
        assert lease is not None
        core.settle(c.Settle(1, "nack", lease.lease_id, [(0, 1)]), "nacks", now, chance)
        due = core.next_deadline()
        assert due is not None
        delays.append(due - now)
        now = due
        core.time_has_come(now)
    assert delays == pytest.approx([1.0, 2.0, 4.0, 5.0, 5.0 * (1 - JITTER)])
    core.alter_group(c.AlterGroup(1, c.DeliverySettings(backoff=0.5, max_backoff=0.5)), "alters", now)
    lease = core.fetch(c.Fetch(1, 7, 1, 1000), "fetches", now)
    assert lease is not None
    core.settle(c.Settle(1, "nack", lease.lease_id, [(0, 1)]), "nacks", now)
    assert core.next_deadline() == pytest.approx(now + 0.5)


def test_messages_of_one_nack_wait_each_by_its_own_attempt() -> None:
    """In a batch of new and redelivered messages, those that failed more often wait longer."""
    core = core_with(2, backoff=1.0, max_backoff=60.0)
    first = core.fetch(c.Fetch(1, 7, 1, 1000), "fetches", 0.0)
    assert first is not None
    core.settle(c.Settle(1, "nack", first.lease_id, [(0, 1)], delay_s=0.0), "nacks", 0.0)
    both = core.fetch(c.Fetch(1, 7, 2, 1000), "fetches", 0.0)
    assert both is not None
    settlement = core.settle(c.Settle(1, "nack", both.lease_id, [(0, 2)]), "nacks", 0.0)
    assert settlement is not None
    assert settlement.accepted == ((0, 1), (1, 2))
    delivery = core.states.groups[1].delivery
    assert [delivery.state_of(offset).not_before for offset in (0, 1)] == [2.0, 1.0]


def test_a_lost_range_is_crossed_in_one_step_by_every_group() -> None:
    """One record is leased, 80,000 are found to be lost: each group settles them with one event."""
    core = core_with(80_010, 1, 2)
    reading = leased(core)
    assert reading.wanted(0) == (0, 1, 1 << 20)
    behind = Columns.build([b"x"])
    behind.base_offset = 80_000
    reading.take([behind], 80_001)
    core.lease_read(reading, 0.0)
    (deliver,) = of_kind(core, e.Deliver)
    assert (deliver.records.ranges, deliver.records.batches) == ((), [])
    assert [group.delivery.floor for group in core.states] == [80_000, 80_000]
    work = core.take_journal()
    assert work is not None
    entries = [entry for entry in work.entries if isinstance(entry, GroupEvents)]
    assert [[event[0] for event in entry.events] for entry in entries] == [["S"], ["S"]]


def test_what_a_consumer_has_is_not_lost_under_it() -> None:
    """A record in a consumer's hands stays leased when another reader finds its place damaged; its ack counts."""
    core = core_with(10)
    reading = leased(core)
    found = Columns.build([b"x"])
    found.base_offset = 0
    reading.take([found], 1)
    core.lease_read(reading, 0.0)
    core.delivered(reading)
    core.records_lost(0, 5, 0.0)
    settlement = core.settle(c.Settle(1, "ack", reading.lease.lease_id, [(0, 1)]), "acks", 0.0)
    assert settlement is not None
    assert (settlement.lost, core.states.groups[1].delivery.floor) == ((), 5)


def test_new_records_notify_as_many_as_there_are() -> None:
    """Two records for a hundred waiting consumers are two notices, to those who wait longest; nobody else is told."""
    core = core_with(0)
    for consumer in range(100):
        core.wait_for_ready(c.WaitForReady(1, consumer), f"waits {consumer}", 0.0)
    core.take_effects()
    core.log_moved(0, 2, 2, 0.0)
    assert [notice.consumer for notice in of_kind(core, e.Notify)] == [0, 1]


@pytest.mark.parametrize("vanishes", ["leaves", "does not listen", "never fetches"])
def test_a_notice_is_passed_on(vanishes: str) -> None:
    """A notified consumer that is gone, or busy, does not keep the record from the next one."""
    core = core_with(0)
    for consumer in (1, 2):
        core.wait_for_ready(c.WaitForReady(1, consumer), f"waits {consumer}", 0.0)
    core.log_moved(0, 1, 1, 0.0)
    assert [notice.consumer for notice in of_kind(core, e.Notify)] == [1]
    if vanishes == "leaves":
        core.release_consumer(c.ReleaseConsumer(1, 1), "leaves", 0.0)
    elif vanishes == "does not listen":
        core.not_notified(1, 1, 0.0)
    else:
        assert core.next_deadline() == NOTICE_LASTS_S
        core.time_has_come(NOTICE_LASTS_S)
    assert [notice.consumer for notice in of_kind(core, e.Notify)] == [2]


def test_a_group_that_no_member_opened_in_this_process_is_unknown() -> None:
    """Its settings are not known yet: the asker hears so, joins, and asks again."""
    states = GroupStates()
    states.open(1, True, 0)
    core = PartitionCore(states, Carried(), label="orders/0", visible_end=1)
    assert core.fetch(c.Fetch(1, 7, 1, 1000), "fetches", 0.0) is None
    assert [effect.token for effect in of_kind(core, e.Refuse)] == ["fetches"]


@pytest.mark.parametrize(
    "command",
    [
        c.Settle(1, "nack", 1, [(0, 1)], 0.0, ValueError("no text")),  # type: ignore[arg-type]
        c.Settle(1, "nack", 1, [(0, 1)], float("nan")),
        c.Settle(1, "nack", 1, [(0, 1)], float("inf")),
        c.Settle(1, "shred", 1, [(0, 1)]),
        c.Settle(1, "ack", 1, [(1, 0)]),
        c.Extend(1, 1, float("nan")),
    ],
)
def test_what_is_no_settlement_is_refused_before_anything_changes(command: Any) -> None:
    """Wrong arguments leave the state as it was, with nothing to journal."""
    core = core_with(1)
    core.fetch(c.Fetch(1, 7, 1, 1000), "fetches", 0.0)
    commit(core)
    before = core.snapshot(0.0)
    with pytest.raises(InvalidArgument):
        (core.extend if isinstance(command, c.Extend) else core.settle)(command, "asks", 0.0)
    assert (core.snapshot(0.0), core.states.groups[1].delivery.events) == (before, [])


def test_a_consumer_whose_last_lease_has_not_come_back_waits_without_being_notified() -> None:
    """It gave up a fetch that is still being written: until that lease is back it gets nothing and no notices."""
    core = core_with(3)
    core.fetch(c.Fetch(1, 7, 1, 1000), "gives up", 0.0, lambda token: token == "gives up")
    core.fetch(c.Fetch(1, 7, 1, 1000), "fetches", 0.0, lambda token: token == "gives up")
    core.wait_for_ready(c.WaitForReady(1, 7), "waits", 0.0)
    assert [(effect.token, effect.value) for effect in of_kind(core, e.Answer)] == [("fetches", None)]
    commit(core)
    (effect,) = of_kind(core, e.ReadLeased)
    core.not_delivered(effect.reading, 0.0)
    assert [effect.token for effect in of_kind(core, e.Notify)] == ["waits"]


def test_a_crash_at_the_opening_gives_no_time_to_leases_of_the_process_before() -> None:
    """That they ended was not journalled: the next core of the process ends them too; its own leases go on."""
    core = core_with(3)
    leased(core)
    carried = Carried()

    def successor(restarted: bool) -> PartitionCore:
        states = GroupStates()
        states.restore(core.snapshot(0.0))
        later = PartitionCore(states, carried, label="orders/0", visible_end=3)
        later.begin(100.0, restarted=restarted)
        return later

    for restarted in (False, True):
        opened = successor(restarted)
        assert [group.delivery.leased for group in opened.states] == [0]
    core = opened
    core.alter_group(c.AlterGroup(1, c.DeliverySettings()), "alters", 100.0)
    leased(core, now=100.0)
    assert [group.delivery.leased for group in successor(True).states] == [1]
