"""The partition's core alone: settings of groups, notices, lost ranges, commits that fail."""

from __future__ import annotations

import gc
import tracemalloc
from array import array
from collections.abc import Container
from typing import Any

import pytest

from callboard.actors.delivery.events import GroupEvents
from callboard.actors.partition import commands as c
from callboard.actors.partition import effects as e
from callboard.actors.partition.carried import UNSYNCED_MAX, Carried
from callboard.actors.partition.choice.keys import KeyOrder
from callboard.actors.partition.choice.lease_reading import LeaseReading
from callboard.actors.partition.choice.record_window import window_records
from callboard.actors.partition.commands import JITTER
from callboard.actors.partition.core import PartitionCore
from callboard.actors.partition.deliveries import NOTICE_LASTS_S, CoreOptions
from callboard.actors.partition.group_states import GroupStates
from callboard.log.errors import InvalidArgument, StorageError
from callboard.log.format.columns import Columns


def core_with(
    records: int, *groups: int, gone: Container[str] = ("gives up",), **settings: Any
) -> PartitionCore:
    """A core with so many visible records, and groups that were opened. Who is `gone` waits no more."""
    core = PartitionCore(
        GroupStates(),
        Carried(),
        CoreOptions(label="orders/0", is_abandoned=lambda token: token in gone),
        visible_end=records,
    )
    for group in groups or (1,):
        core.group_openings.open_group(
            c.OpenGroup(group, True, "beginning", c.DeliverySettings(**settings)), "opens", 0.0
        )
    commit(core)
    core.effects.clear()
    return core


def commit(core: PartitionCore) -> None:
    """A commit that succeeds."""
    work = core.journal.take()
    if work is not None:
        core.journalled(work)


def of_kind(core: PartitionCore, kind: type) -> list[Any]:
    """The effects of one kind since the last look."""
    effects = core.deliveries.take_effects()
    return [effect for effect in effects if isinstance(effect, kind)]


def leased(
    core: PartitionCore, *, count: int = 1, group: int = 1, now: float = 0.0, consumer: int = 7
) -> Any:
    """A lease, journalled."""
    core.fetch(c.Fetch(group, consumer, count, 1 << 20), "fetches", now)
    commit(core)
    return of_kind(core, e.Journalled)[0].leases[0]


def test_a_group_that_has_leased_nothing_is_small() -> None:
    """A group whose consumers have looked, and found nothing, takes less than 1,500 bytes of a partition."""
    core, count = core_with(0), 1000
    core.fetch(c.Fetch(1, 7, 10, 1 << 20), "fetches", 0.0)
    tracemalloc.start()
    try:
        for group in range(2, count + 2):
            core.group_openings.open_group(
                c.OpenGroup(group, True, "beginning", c.DeliverySettings()), None, 0.0
            )
            core.fetch(c.Fetch(group, 7, 10, 1 << 20), "fetches", 0.0)
        commit(core)
        core.effects.clear()
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] < count * 1500
    finally:
        tracemalloc.stop()


def test_the_time_of_a_lease_begins_when_it_is_handed_over_late() -> None:
    """Records that take long to be read come with a whole lease, however often it would have run out meanwhile."""
    core = core_with(1, visibility_timeout=10.0)
    pending = leased(core)
    assert core.handed_over(pending, 1.0) == 10.0
    assert core.time_has_come(10.0) == core.time_has_come(20.0) == []
    assert core.handed_over(pending, 25.0) == 35.0
    core.delivered(pending)
    assert core.time_has_come(34.0) == []
    assert [lease.lease_id for _, lease in core.time_has_come(35.0)] == [pending.lease.lease_id]


@pytest.mark.parametrize("missed", [0, 2, 4])
def test_what_reads_have_missed_is_reported_with_what_was_dropped(missed: int) -> None:
    """A read that comes upon the drop before the groups hear of it settles what it misses; the event counts all."""
    core = core_with(6)
    core.retention.begin()
    core.deliveries.records_lost(0, missed, 0.0)
    core.deliveries.records_lost(5, 6, 0.0)  # damage
    core.log_moved(4, 6, 6, 0.0)
    (group,) = core.states
    assert core.retention.drops_unread(group)
    core.retention.drop_unread(group, 0.0)
    core.retention.end()
    assert of_kind(core, e.DroppedUnread) == [e.DroppedUnread(1, 4)]
    assert group.lost_records == 5
    assert not core.retention.drops_unread(group)


def test_a_nack_without_a_delay_waits_as_the_settings_of_its_group_say() -> None:
    """The delay doubles with the attempt up to the maximum, chance takes off a part; altered settings hold at once."""
    core = core_with(1, backoff=1.0, max_backoff=5.0)
    now, delays = 0.0, []
    for chance in (0.0, 0.0, 0.0, 0.0, 1.0):
        lease = core.fetch(c.Fetch(1, 7, 1, 1000), "fetches", now)
        assert lease is not None
        core.nack(c.Nack(1, lease.lease_id, [(0, 1)]), "nacks", now, chance)
        due = core.next_deadline()
        assert due is not None
        delays.append(due - now)
        now = due
        core.time_has_come(now)
    assert delays == pytest.approx([1.0, 2.0, 4.0, 5.0, 5.0 * (1 - JITTER)])
    core.settings.alter_delivery(
        c.AlterDelivery(1, c.DeliverySettings(backoff=0.5, max_backoff=0.5)), "alters", now
    )
    lease = core.fetch(c.Fetch(1, 7, 1, 1000), "fetches", now)
    assert lease is not None
    core.nack(c.Nack(1, lease.lease_id, [(0, 1)]), "nacks", now)
    assert core.next_deadline() == pytest.approx(now + 0.5)


def test_an_ack_that_is_asked_again_loses_only_what_is_not_settled() -> None:
    """After a crash it hears of success for what is settled, and of the loss of what somebody else has leased."""
    core = core_with(2, visibility_timeout=10.0)
    pending = leased(core, count=2)
    core.delivered(pending)
    lease = pending[2]
    core.ack(c.Ack(1, lease.lease_id, [(0, 1)]), "acks", 1.0)
    core.time_has_come(11.0)
    assert core.fetch(c.Fetch(1, 8, 1, 1000), "fetches", 11.0) is not None
    for again, lost in ((False, ((0, 2),)), (True, ((1, 2),))):
        settlement = core.ack(c.Ack(1, lease.lease_id, [(0, 2)], again=again), "acks", 11.0)
        assert settlement is not None
        assert settlement.accepted == ()
        assert settlement.lost == lost


def test_messages_of_one_nack_wait_each_by_its_own_attempt() -> None:
    """In a batch of new and redelivered messages, those that failed more often wait longer."""
    core = core_with(2, backoff=1.0, max_backoff=60.0)
    first = core.fetch(c.Fetch(1, 7, 1, 1000), "fetches", 0.0)
    assert first is not None
    core.nack(c.Nack(1, first.lease_id, [(0, 1)], delay_s=0.0), "nacks", 0.0)
    both = core.fetch(c.Fetch(1, 7, 2, 1000), "fetches", 0.0)
    assert both is not None
    settlement = core.nack(c.Nack(1, both.lease_id, [(0, 2)]), "nacks", 0.0)
    assert settlement is not None
    assert settlement.accepted == ((0, 1), (1, 2))
    delivery = core.states.groups[1].delivery
    assert list(delivery.offsets.delayed) == [(0, 1, 4, 2.0), (1, 2, 2, 1.0)]


def test_a_lost_range_is_crossed_in_one_step_by_every_group() -> None:
    """One record is leased, 80,000 are found to be lost: each group settles them with one event."""
    core = core_with(80_010, 1, 2)
    pending = leased(core)
    reading = LeaseReading(pending.lease, pending.max_bytes)
    assert reading.wanted(0) == (0, 1, 1 << 20)
    behind = Columns.build([b"x"])
    behind.base_offset = 80_000
    reading.take([behind], 80_001)
    records = core.lease_read(pending, reading, 0.0)
    assert (records.ranges, records.batches) == ((), [])
    assert [group.delivery.offsets.floor for group in core.states] == [80_000, 80_000]
    work = core.journal.take()
    assert work is not None
    entries = [entry for entry in work.entries if isinstance(entry, GroupEvents)]
    assert [[event[0] for event in entry.events] for entry in entries] == [["S"], ["S"]]


def test_what_a_consumer_has_is_not_lost_under_it() -> None:
    """A record in a consumer's hands stays leased when another reader finds its place damaged; its ack counts."""
    core = core_with(10)
    pending = leased(core)
    core.delivered(pending)
    core.deliveries.records_lost(0, 5, 0.0)
    settlement = core.ack(c.Ack(1, pending.lease.lease_id, [(0, 1)]), "acks", 0.0)
    assert settlement is not None
    assert (settlement.lost, core.states.groups[1].delivery.offsets.floor) == ((), 5)


def test_new_records_notify_as_many_as_there_are() -> None:
    """Two records for a hundred waiting consumers are two notices, to those who wait longest; nobody else is told."""
    core = core_with(0)
    for consumer in range(100):
        core.wait_for_ready(c.WaitForReady(1, consumer), f"waits {consumer}", 0.0)
    core.effects.clear()
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
        core.members.release_consumer(c.ReleaseConsumer(1, 1), "leaves", 0.0)
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
    core = PartitionCore(states, Carried(), CoreOptions(label="orders/0"), visible_end=1)
    assert core.fetch(c.Fetch(1, 7, 1, 1000), "fetches", 0.0) is None
    assert [effect.tokens for effect in of_kind(core, e.Refuse)] == [["fetches"]]


@pytest.mark.parametrize(
    ("verb", "command"),
    [
        ("nack", c.Nack(1, 1, [(0, 1)], 0.0, ValueError("no text"))),  # type: ignore[arg-type]
        ("nack", c.Nack(1, 1, [(0, 1)], float("nan"))),
        ("nack", c.Nack(1, 1, [(0, 1)], float("inf"))),
        ("reject", c.RejectLeased(1, 1, [(1, 0)])),
        ("release", c.Release(1, 1, [(1, 0)])),
        ("ack", c.Ack(1, 1, [(1, 0)])),
        ("extend", c.Extend(1, 1, float("nan"))),
    ],
)
def test_what_is_no_settlement_is_refused_before_anything_changes(verb: str, command: Any) -> None:
    """Wrong arguments leave the state as it was, with nothing to journal."""
    core = core_with(1)
    core.fetch(c.Fetch(1, 7, 1, 1000), "fetches", 0.0)
    commit(core)
    before = core.states.snapshot(0.0)
    with pytest.raises(InvalidArgument):
        getattr(core, verb)(command, "asks", 0.0)
    assert (core.states.snapshot(0.0), core.states.groups[1].delivery.events) == (before, [])


def test_a_consumer_whose_last_lease_has_not_come_back_waits_without_being_notified() -> None:
    """It gave up a fetch that is still being written: until that lease is back it gets nothing and no notices."""
    gone: list[str] = []
    core = core_with(3, gone=gone)
    core.fetch(c.Fetch(1, 7, 1, 1000), "gives up", 0.0)
    gone.append("gives up")
    core.fetch(c.Fetch(1, 7, 1, 1000), "fetches", 0.0)
    core.wait_for_ready(c.WaitForReady(1, 7), "waits", 0.0)
    assert [effect.answers for effect in of_kind(core, e.Answer)] == [[("fetches", None)]]
    commit(core)
    (effect,) = of_kind(core, e.Journalled)
    core.not_delivered(effect.leases[0], 0.0)
    assert [effect.token for effect in of_kind(core, e.Notify)] == ["waits"]


def test_who_gave_up_before_its_fetch_was_looked_at_leases_nothing() -> None:
    """A partition that stood still meets the fetch of a consumer that has gone: the next one gets the first records."""
    core = core_with(3)
    assert core.fetch(c.Fetch(1, 7, 2, 1000), "gives up", 0.0) is None
    lease = core.fetch(c.Fetch(1, 8, 2, 1000), "fetches", 0.0)
    assert lease is not None
    assert lease.ranges == ((0, 2, 1),)


def test_a_crash_at_the_opening_gives_no_time_to_leases_of_the_process_before() -> None:
    """That they ended was not journalled: the next core of the process ends them too; its own leases go on."""
    core = core_with(3)
    leased(core)
    carried = Carried()

    def successor(restarted: bool) -> PartitionCore:
        states = GroupStates()
        states.restore(core.states.snapshot(0.0))
        later = PartitionCore(states, carried, CoreOptions(label="orders/0"), visible_end=3)
        later.begin(100.0, restarted=restarted)
        return later

    for restarted in (False, True):
        opened = successor(restarted)
        assert [group.delivery.offsets.leased for group in opened.states] == [0]
    core = opened
    core.settings.alter_delivery(c.AlterDelivery(1, c.DeliverySettings()), "alters", 100.0)
    leased(core, now=100.0)
    assert [group.delivery.offsets.leased for group in successor(True).states] == [1]


def test_what_was_released_is_released_in_the_next_core_of_the_process() -> None:
    """Whoever releases without waiting does not ask again when the partition crashes before that is journalled."""
    core = core_with(3)
    carried = Carried()
    core = PartitionCore(core.states, carried, CoreOptions(label="orders/0"), visible_end=3)
    core.begin(0.0, restarted=False)
    pending = leased(core, count=3)
    core.delivered(pending)
    journalled = core.states.snapshot(0.0)
    core.release(c.Release(1, pending.lease.lease_id, [(1, 2)]), None, 0.0)
    core.end()
    states = GroupStates()
    states.restore(journalled)
    later = PartitionCore(states, carried, CoreOptions(label="orders/0"), visible_end=3)
    later.begin(1.0, restarted=True)
    [group] = later.states
    assert group.delivery.offsets.leased_in(0, 3) == [(0, 1), (2, 3)]


def test_members_that_left_without_a_core_have_their_leases_released_by_the_next() -> None:
    """When it hears which consumers remain; also by the core after it, until that is journalled."""
    carried = Carried()
    core = PartitionCore(core_with(3).states, carried, CoreOptions(label="orders/0"), visible_end=3)
    core.begin(0.0, restarted=False)
    for consumer in (7, 8):
        pending = leased(core, count=1, consumer=consumer)
        core.delivered(pending)
    journalled = core.states.snapshot(0.0)
    core.end()
    for hears in (True, False):
        states = GroupStates()
        states.restore(journalled)
        later = PartitionCore(states, carried, CoreOptions(label="orders/0"), visible_end=3)
        later.begin(1.0, restarted=True)
        [group] = later.states
        if hears:
            assert group.delivery.offsets.leased_in(0, 3) == [(0, 1), (1, 2)]
            later.members.release_others(c.RemainingMembers(1, [8, 9]), None, 1.0)
        assert group.delivery.offsets.leased_in(0, 3) == [(1, 2)]
        later.end()


def keyed_core(*keys: bytes | None) -> PartitionCore:
    """A core with these visible records and a group with order per key."""
    return core_with(len(keys), ordering="key")


def window_of(core: PartitionCore, *keys: bytes | None, start: int = 0) -> None:
    """What the core asked to be read for its choice is read: these keys, from `start` on."""
    [wanted] = of_kind(core, e.ReadWindow)
    assert wanted.start == start
    columns = Columns.build([b""] * len(keys), keys)
    columns.base_offset = start
    stop = start + len(keys)
    core.choice.window_read(wanted.group_id, window_records(start, stop, [columns], KeyOrder.columns), 0.0)


def fetched(core: PartitionCore, count: int = 10, consumer: int = 7, token: str = "fetches") -> Any:
    """What a fetch leases; None when it waits for records, or nothing is ready."""
    return core.fetch(c.Fetch(1, consumer, count, 1 << 20), token, 0.0)


def test_records_are_read_before_they_are_leased_and_once_for_all_who_wait() -> None:
    """Fetches of a group with order per key wait for one read, and are answered in their order."""
    keys = (b"a", b"b", b"a", b"c")
    core = keyed_core(*keys)
    assert fetched(core, 1, token="first") is None
    assert fetched(core, 9, consumer=8, token="second") is None
    window_of(core, *keys)
    commit(core)
    [journalled] = of_kind(core, e.Journalled)
    assert [(pending.token, pending.lease.ranges) for pending in journalled.leases] == [
        ("first", ((0, 1, 1),)),
        ("second", ((1, 2, 1), (3, 4, 1))),
    ]
    assert fetched(core) is None
    assert of_kind(core, e.ReadWindow) == []


def test_a_settled_record_frees_the_next_of_its_key_for_who_waits() -> None:
    """An ack notifies a waiting consumer when that is what the next record of the key waited for."""
    core = keyed_core(b"a", b"a")
    fetched(core)
    window_of(core, b"a", b"a")
    core.wait_for_ready(c.WaitForReady(1, 8), "waits", 0.0)
    assert of_kind(core, e.Notify) == []
    core.ack(c.Ack(1, 1, [(0, 1)]), "acks", 0.0)
    assert [effect.token for effect in of_kind(core, e.Notify)] == ["waits"]
    lease = fetched(core, consumer=8)
    assert lease.ranges == ((1, 2, 1),)


def test_a_waiting_consumer_has_records_read_and_is_notified_only_if_one_may_be_leased() -> None:
    """What is published is looked at for those who wait; a fenced record wakes nobody."""
    core = keyed_core(b"a")
    fetched(core)
    window_of(core, b"a")
    core.wait_for_ready(c.WaitForReady(1, 8), "waits", 0.0)
    core.effects.clear()
    core.log_moved(0, 2, 2, 0.0)
    window_of(core, b"a", start=1)
    assert of_kind(core, e.Notify) == []
    core.log_moved(0, 3, 3, 0.0)
    window_of(core, b"b", start=2)
    assert [effect.token for effect in of_kind(core, e.Notify)] == ["waits"]


def test_no_consumer_is_notified_of_a_record_that_was_settled_behind_another() -> None:
    """Of records that may be leased, those that are settled without a lease count no more, in whatever order."""
    keys = (b"a", b"b", b"c")
    core = keyed_core(*keys)
    fetched(core, 1)
    window_of(core, *keys)
    for consumer in (8, 9):
        core.wait_for_ready(c.WaitForReady(1, consumer), f"{consumer} waits", 0.0)
    assert [effect.token for effect in of_kind(core, e.Notify)] == ["8 waits", "9 waits"]

    core.deliveries.records_lost(2, 3, 0.0)
    for consumer in (8, 9):
        core.wait_for_ready(c.WaitForReady(1, consumer), f"{consumer} waits again", 0.0)
    assert [effect.token for effect in of_kind(core, e.Notify)] == ["8 waits again"]


def test_records_that_cannot_be_read_are_refused_to_those_who_wait() -> None:
    """Fetches hear the error, waiting consumers look again, and the next fetch tries once more."""
    core = keyed_core(b"a", b"a")
    core.wait_for_ready(c.WaitForReady(1, 8), "waits", 0.0)
    fetched(core)
    assert len(of_kind(core, e.ReadWindow)) == 1
    error = StorageError("the disk refuses")
    core.choice.window_not_read(1, error, 0.0)
    refused, told = core.effects
    assert refused == e.Refuse(["fetches"], error)
    assert told == e.Answer([("waits", True)])
    core.effects.clear()
    fetched(core)
    assert len(of_kind(core, e.ReadWindow)) == 1


def test_who_has_gone_while_records_were_read_gets_no_lease() -> None:
    """A fetch that was given up, whose consumer left, or whose group was closed is answered with nothing."""
    core = keyed_core(b"a", b"b", b"c")
    fetched(core, 1, consumer=7, token="gives up")
    fetched(core, 1, consumer=8, token="leaves")
    fetched(core, 1, consumer=9, token="stays")
    core.members.release_consumer(c.ReleaseConsumer(1, 8), "releases", 0.0)
    window_of(core, b"a", b"b", b"c")
    commit(core)
    assert [pending.token for effect in of_kind(core, e.Journalled) for pending in effect.leases] == ["stays"]
    closing = keyed_core(b"a")
    fetched(closing)
    closing.group_openings.close_group(c.CloseGroup(1), "closes", 0.0)
    assert [effect.tokens for effect in of_kind(closing, e.Refuse)] == [["fetches"]]
    closing.choice.window_read(1, window_records(0, 1, [], KeyOrder.columns), 0.0)
    assert closing.effects == []


def test_where_the_log_holds_nothing_a_choice_waits_for_nothing() -> None:
    """Lost and compacted offsets settle without delivery; only lost ones are counted."""
    core = keyed_core(*[b"a"] * 6)
    fetched(core)
    assert of_kind(core, e.ReadWindow)
    sparse = Columns.build([b""], [b"a"])
    sparse.base_offset, sparse.span, sparse.offset_deltas = 2, 2, array("I", [1])
    core.choice.window_read(1, window_records(0, 6, [sparse], KeyOrder.columns), 0.0)
    group = core.states.groups[1]
    assert (group.delivery.offsets.floor, group.lost_records) == (3, 3)
    [lease] = group.pending.values()
    assert lease.lease.ranges == ((3, 4, 1),)


def test_a_group_without_order_has_no_window() -> None:
    """Untouched records of a group that needs no choice are never read before they are leased."""
    core = core_with(1_000_000)
    assert fetched(core).ranges == ((0, 10, 1),)
    assert core.states.groups[1].choice is None
    assert of_kind(core, e.ReadWindow) == []


def successor(core: PartitionCore, snapshot: bytes) -> PartitionCore:
    """The core that follows `core`, from a journal that holds `snapshot` alone."""
    core.end()
    states = GroupStates()
    states.restore(snapshot)
    later = PartitionCore(states, core._carried, CoreOptions(label="orders/0"), visible_end=core.visible_end)
    later.begin(1.0, restarted=True)
    return later


def test_a_lease_that_the_journal_lost_stays_with_its_consumer() -> None:
    """Its journal record was written and never synced, and the core ended before the journal was whole again."""
    core = core_with(5)
    opened = core.states.snapshot(0.0)
    core._carried.first_leases[1] = 1
    first, second = leased(core, count=2), leased(core, consumer=8, count=2)
    core.delivered(first)
    core.delivered(second)
    core.ack(c.Ack(1, first.lease.lease_id, [(0, 1)], lazy=True), None, 0.5)
    core = successor(core, opened)
    (group,) = core.states
    assert [(lease.lease_id, lease.ranges, lease.consumer) for lease in group.delivery.offsets.leases()] == [
        (first.lease.lease_id, ((0, 2, 1),), 7),
        (second.lease.lease_id, ((2, 4, 1),), 8),
    ]
    again = leased(core, now=1.0, count=2)
    assert again.lease.ranges == ((4, 5, 1),)
    assert again.lease.lease_id > second.lease.lease_id


@pytest.mark.parametrize("is_delivered", [False, True])
def test_leases_of_an_ended_process_end_again_where_the_journal_lost_that(is_delivered: bool) -> None:
    """Their attempts count; what was leased since stays with its consumer, or is ready when it was not handed over."""
    earlier = core_with(2)
    leased(earlier, count=2)
    journal = earlier.states.snapshot(0.0)
    states = GroupStates()
    states.restore(journal)
    core = PartitionCore(states, Carried(), CoreOptions(label="orders/0"), visible_end=2)
    core.settings.set(1, c.DeliverySettings(), 0.0)
    core.begin(0.0, restarted=False)
    pending = leased(core, count=1, consumer=8)
    if is_delivered:
        core.delivered(pending)
    core = successor(core, journal)
    (group,) = core.states
    kept = [(pending.lease.lease_id, ((0, 1, 2),), 8)] if is_delivered else []
    assert [
        (lease.lease_id, lease.ranges, lease.consumer) for lease in group.delivery.offsets.leases()
    ] == kept
    again = leased(core, now=1.0, count=2)
    assert again.lease.ranges == (((1 if is_delivered else 0), 2, 2),)


def test_a_lost_lease_is_not_held_for_a_consumer_that_gave_it_back() -> None:
    """What was nacked is ready; what was acked and lost may be acked once more."""
    core = core_with(3)
    opened = core.states.snapshot(0.0)
    core._carried.first_leases[1] = 1
    pending = leased(core, count=3)
    core.delivered(pending)
    core.nack(c.Nack(1, pending.lease.lease_id, [(0, 1)], delay_s=0.0), None, 0.5, 0.0)
    core = successor(core, opened)
    again = leased(core, now=1.0, count=3)
    assert again.lease.ranges == ((0, 1, 2),)
    core.ack(c.Ack(1, pending.lease.lease_id, [(1, 3)]), None, 1.0)
    (group,) = core.states
    assert list(group.delivery.offsets.settled) == [(1, 3)]


@pytest.mark.parametrize("is_lease_known", [False, True])
def test_a_nack_that_the_journal_lost_is_made_again(is_lease_known: bool) -> None:
    """The message waits as long as its nack said, and the attempt counts; what is still leased stays leased."""
    core = core_with(3)
    opened = core.states.snapshot(0.0)
    core._carried.first_leases[1] = 1
    pending = leased(core, count=3)
    core.delivered(pending)
    if is_lease_known:
        opened = core.states.snapshot(0.0)
    core.nack(c.Nack(1, pending.lease.lease_id, [(0, 1)], delay_s=50.0), None, 0.5, 0.0)
    for now in (1.0, 2.0):
        core = successor(core, opened)
        (group,) = core.states
        assert group.delivery.offsets.leased_in(0, 3) == [(1, 3)]
        assert core.fetch(c.Fetch(1, 8, 1, 1 << 20), None, now) is None
    again = leased(core, now=51.0, consumer=8, count=1)
    assert again.lease.ranges == ((0, 1, 2),)


def with_a_lease_that_ran_out(is_lease_known: bool) -> tuple[PartitionCore, bytes, Any]:
    """A core of which the journal has lost that its only lease ran out at 100 s, or the lease itself; what is left of
    the journal; and the lease.
    """
    core = core_with(3)
    opened = core.states.snapshot(0.0)
    core._carried.first_leases[1] = 1
    first = leased(core, count=1)
    core.delivered(first)
    if is_lease_known:
        opened = core.states.snapshot(0.0)
    core.time_has_come(100.0)
    return core, opened, first


@pytest.mark.parametrize("is_lease_known", [False, True])
def test_an_attempt_that_ran_out_counts_when_the_journal_has_lost_that(is_lease_known: bool) -> None:
    """The lease that followed is the second attempt again; its nack counts as that."""
    core, opened, _first = with_a_lease_that_ran_out(is_lease_known)
    second = leased(core, now=100.0, consumer=8, count=1)
    core.delivered(second)
    assert second.lease.ranges == ((0, 1, 2),)
    core.nack(c.Nack(1, second.lease.lease_id, [(0, 1)], delay_s=0.0), None, 100.0, 0.0)
    for _ in range(2):
        core = successor(core, opened)
        third = leased(core, now=101.0, consumer=8, count=1)
        assert third.lease.ranges == ((0, 1, 3),)
        core.not_delivered(third, 101.0)


@pytest.mark.parametrize("is_lease_known", [False, True])
def test_an_ack_counts_after_a_lease_that_ran_out_in_what_the_journal_lost(is_lease_known: bool) -> None:
    """The receipt is good until another consumer has the message, as if the partition had not crashed."""
    core, opened, first = with_a_lease_that_ran_out(is_lease_known)
    core = successor(core, opened)
    (group,) = core.states
    assert group.delivery.offsets.leases() == []
    late = core.ack(c.Ack(1, first.lease.lease_id, [(0, 1)]), None, 101.0)
    assert late is not None
    assert late.accepted == ((0, 1),)


def test_the_last_attempt_that_ran_out_is_a_dead_letter_when_the_journal_has_lost_that() -> None:
    """No attempt more than `max_deliveries` is made of it."""
    core = core_with(1, max_deliveries=2)
    opened = core.states.snapshot(0.0)
    core._carried.first_leases[1] = 1
    for now in (0.0, 100.0):
        core.delivered(leased(core, now=now, count=1))
        core.time_has_come(now + 100.0)
    for _ in range(2):
        core = successor(core, opened)
        (group,) = core.states
        assert (group.delivery.dead.count, group.delivery.offsets.floor) == (1, 1)


def test_what_ran_out_beside_an_ack_that_the_journal_lost_counts_alone() -> None:
    """The acked message is held until its ack is made again; the other has failed once."""
    core = core_with(2)
    opened = core.states.snapshot(0.0)
    core._carried.first_leases[1] = 1
    first = leased(core, count=2)
    core.delivered(first)
    core.ack(c.Ack(1, first.lease.lease_id, [(0, 1)]), "acks", 0.0)
    core.time_has_come(100.0)
    core = successor(core, opened)
    again = leased(core, now=101.0, consumer=8, count=2)
    assert again.lease.ranges == ((1, 2, 2),)
    late = core.ack(c.Ack(1, first.lease.lease_id, [(0, 1)], again=True), "acks", 101.0)
    assert late is not None
    assert late.accepted == ((0, 1),)


@pytest.mark.parametrize("leaves", [False, True])
def test_what_was_released_stays_so_when_the_journal_has_lost_that(leaves: bool) -> None:
    """Who gave it back, or left, had it journalled, and a sync that failed took that out again."""
    core = core_with(3)
    core._carried.first_leases[1] = 1
    first = leased(core, count=2)
    core.delivered(first)
    opened = core.states.snapshot(0.0)
    if leaves:
        core.members.release_consumer(c.ReleaseConsumer(1, 7), "leaves", 1.0)
    else:
        core.release(c.Release(1, first.lease.lease_id, [(0, 2)]), None, 1.0)
    for _ in range(3):
        core.journal.answer("asks", None, must_sync=False)
        work = core.journal.take()
        assert work is not None
        assert not work.sync
        core.journalled(work)
    core = successor(core, opened)
    again = leased(core, now=2.0, consumer=8, count=2)
    assert again.lease.ranges == ((0, 2, 1),)


def test_the_name_of_a_consumer_is_kept_when_the_journal_has_lost_it() -> None:
    """Dead letters name the consumer that failed."""
    core = core_with(1, max_deliveries=1)
    opened = core.states.snapshot(0.0)
    core._carried.first_leases[1] = 1
    core.fetch(c.Fetch(1, 7, 1, 1 << 20, name="printer"), "fetches", 0.0)
    commit(core)
    first = of_kind(core, e.Journalled)[0].leases[0]
    core.delivered(first)
    core.nack(c.Nack(1, first.lease.lease_id, [(0, 1)], delay_s=0.0), None, 0.5, 0.0)
    core = successor(core, opened)
    (group,) = core.states
    assert group.delivery.offsets.failures.name_of(7) == "printer"


def test_nacks_are_remembered_until_a_sync_covers_them_and_bounded() -> None:
    """The commit after the last that may be remembered syncs."""
    core = core_with(UNSYNCED_MAX + 2)
    lease = leased(core, count=UNSYNCED_MAX)
    core.delivered(lease)
    for offset in range(UNSYNCED_MAX):
        core.nack(c.Nack(1, lease.lease.lease_id, [(offset, offset + 1)], 9.0), None, 0.0)
    for is_synced in (False, True):
        assert len(core._carried.failed) == UNSYNCED_MAX
        core.fetch(c.Fetch(1, 7, 1, 1 << 20), "fetches", 0.0)
        work = core.journal.take()
        assert work is not None
        assert work.sync == is_synced
        core.journalled(work)
    assert not core._carried.failed


def test_leases_that_no_sync_covers_are_bounded() -> None:
    """The commit after the last that may be remembered syncs them all."""
    core = core_with(UNSYNCED_MAX + 1)
    for _ in range(UNSYNCED_MAX):
        core.delivered(leased(core))
    assert core._carried.unsynced_count == UNSYNCED_MAX
    core.fetch(c.Fetch(1, 7, 1, 1 << 20), "fetches", 0.0)
    work = core.journal.take()
    assert work is not None
    assert work.sync
    core.journalled(work)
    assert not core._carried.unsynced


def test_what_the_journal_lost_is_journalled_again() -> None:
    """A replay of what follows knows the lease."""
    core = core_with(3)
    opened = core.states.snapshot(0.0)
    core._carried.first_leases[1] = 1
    core.delivered(leased(core, count=2))
    core = successor(core, opened)
    (group,) = core.states
    events = group.delivery.take_events()
    states = GroupStates()
    states.restore(opened)
    (replayed,) = states
    for event in events:
        replayed.delivery.apply(event)
    assert [lease.ranges for lease in replayed.delivery.offsets.leases()] == [((0, 2, 1),)]


def test_the_id_of_a_lease_that_nobody_heard_of_and_the_journal_lost_is_given_to_no_other() -> None:
    """Its release, which is repeated, would else give back what another consumer has."""
    core = core_with(3)
    opened = core.states.snapshot(0.0)
    core._carried.first_leases[1] = 1
    lost = core.fetch(c.Fetch(1, 7, 1, 1 << 20), "fetches", 0.0)
    core = successor(core, opened)
    pending = leased(core, now=1.0)
    core.delivered(pending)
    assert lost is not None
    assert pending.lease.lease_id > lost.lease_id
    core = successor(core, core.states.snapshot(0.0))
    (group,) = core.states
    assert group.delivery.offsets.leased == 1
