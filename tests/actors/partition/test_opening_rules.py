"""Groups that the catalog says to read a topic from its beginning, in a partition's core alone."""

from __future__ import annotations

from typing import Any

from callboard.actors.delivery.events import GroupEvents
from callboard.actors.partition import commands as c
from callboard.actors.partition import effects as e
from callboard.actors.partition.carried import Carried
from callboard.actors.partition.core import PartitionCore
from callboard.actors.partition.deliveries import CoreOptions
from callboard.actors.partition.group_records import OPEN
from callboard.actors.partition.group_states import GroupStates

GROUP = 1
BIRTH = 1_700_000_000_000_000


def opening(birth: int) -> c.OpenGroup:
    """What the catalog says of the group."""
    return c.OpenGroup(GROUP, True, "beginning", birth=birth, is_implied=True)


def core_of(carried: Carried, *records: bytes, begins: int = 0, ends: int = 5, **begun: Any) -> PartitionCore:
    """The core of a partition whose journal has these records, begun."""
    states = GroupStates()
    for record in records:
        states.apply(record)
    core = PartitionCore(
        states, carried, CoreOptions(label="orders/0"), start_offset=begins, visible_end=ends
    )
    core.begin(0.0, restarted=begun.pop("restarted", False), **begun)
    core.effects.clear()
    return core


def join(
    core: PartitionCore, *, is_implied: bool = True, start: str = "beginning", birth: int = BIRTH
) -> None:
    """A consumer joins the group."""
    core.group_openings.open_group(
        c.OpenGroup(GROUP, True, start, birth=birth, is_implied=is_implied), "joins", 0.0
    )


def fetch(core: PartitionCore, count: int = 2) -> Any:
    """A consumer leases records."""
    return core.fetch(c.Fetch(GROUP, 7, count, 1 << 20), "fetches", 0.0)


def written(core: PartitionCore) -> list[bytes]:
    """What a commit writes that succeeds; nothing of it is synced."""
    work = core.journal.take()
    if work is None:
        return []
    core.journalled(work)
    return [entry.record(0.0) if isinstance(entry, GroupEvents) else entry for entry in work.entries]


def kinds(core: PartitionCore, records: list[bytes]) -> list[int]:
    """The kinds of records."""
    return [core.states.parsed(record)[0] for record in records]


def test_joining_is_answered_at_once_and_writes_nothing() -> None:
    """Whoever joins a group that the catalog knows waits for no disk; another group's opening is synced."""
    core = core_of(Carried())
    join(core)
    assert core.effects == [e.Answer([("joins", c.GroupOpened(0, True))])]
    assert not core.journal.has_work
    core = core_of(Carried())
    join(core, is_implied=False)
    assert not core.effects
    work = core.journal.take()
    assert work is not None
    assert work.sync
    assert work.answers == [("joins", c.GroupOpened(0, True))]
    assert kinds(core, work.entries) == [OPEN]


def test_who_joins_is_answered_whether_there_is_something_to_fetch() -> None:
    """A partition in which the group has settled all that is visible says so, and where that ends."""
    core = core_of(Carried(), ends=1)
    join(core)
    assert core.effects.pop() == e.Answer([("joins", c.GroupOpened(0, True))])
    lease = fetch(core)
    core.ack(c.Ack(GROUP, lease.lease_id, ((0, 1),)), "acks", 0.0)
    core.effects.clear()
    join(core)
    assert core.effects.pop() == e.Answer([("joins", c.GroupOpened(1, False))])


def test_the_opening_is_written_before_the_first_event_and_once() -> None:
    """A journal tells of a group's opening before it tells what its consumers lease, and not again."""
    core = core_of(Carried(), begins=2)
    join(core)
    fetch(core)
    records = written(core)
    assert kinds(core, records) == [OPEN, 0]
    _, _, (durable, start, _, birth, since_us), _ = core.states.parsed(records[0])
    assert (durable, start, birth, since_us) == (True, 2, BIRTH, 0)
    fetch(core)
    assert kinds(core, written(core)) == [0]


def test_the_opening_says_since_when_the_group_is_open() -> None:
    """What waited for the group before its first lease is known from the journal."""
    core = core_of(Carried())
    core.deliveries.wall_offset_s = 1_700_000_000.0
    core.group_openings.open_group(c.OpenGroup(GROUP, True, "beginning", is_implied=True), None, 2.5)
    fetch(core)
    _, _, (*_, since_us), _ = core.states.parsed(written(core)[0])
    assert since_us == 1_700_000_002_500_000


def test_a_core_begins_with_the_groups_that_only_the_catalog_knows() -> None:
    """They begin where the log does, hold retention back from then on, and hand out what is there when joined."""
    carried = Carried(readers={GROUP: opening(BIRTH)})
    core = core_of(carried, begins=3)
    assert core.states.unsettled_from(5) == 3
    join(core)
    assert fetch(core).ranges == ((3, 5, 1),)


def test_a_core_begins_with_a_group_where_its_journal_says() -> None:
    """What the journal tells of a group counts, not the catalog."""
    carried = Carried()
    core = core_of(carried)
    join(core)
    lease = fetch(core)
    core.ack(c.Ack(GROUP, lease.lease_id, [(0, 2)]), "acks", 0.0)
    records = written(core)
    again = core_of(Carried(readers={GROUP: opening(BIRTH)}), *records)
    assert again.states.groups[GROUP].delivery.offsets.floor == 2
    assert not again.journal.has_events


def test_a_group_of_the_catalog_is_not_taken_for_an_earlier_one_of_its_id() -> None:
    """Where the journal tells of a group of another birth, that one is closed, and the catalog's begins anew."""
    carried = Carried()
    core = core_of(carried)
    join(core)
    lease = fetch(core)
    core.ack(c.Ack(GROUP, lease.lease_id, [(0, 2)]), "acks", 0.0)
    again = core_of(Carried(readers={GROUP: opening(BIRTH + 1)}), *written(core))
    assert again.states.groups[GROUP].delivery.offsets.floor == 0
    assert again.states.groups[GROUP].birth == BIRTH + 1


def test_a_lease_is_given_back_whose_group_the_journal_has_lost_with_it() -> None:
    """A failed sync takes the opening and the lease out of the journal: after the actor's crash the lease counts."""
    carried = Carried()
    core = core_of(carried)
    join(core)
    pending = fetch(core) and core.journal.leases[0]
    written(core)
    core.delivered(pending)
    core.end()
    again = core_of(carried, restarted=True)
    settled = again.ack(c.Ack(GROUP, pending.lease.lease_id, [(0, 2)]), "acks", 0.0)
    assert settled is not None
    assert settled.accepted == ((0, 2),)
    assert kinds(again, written(again)) == [OPEN, 0]


def test_a_group_that_a_damaged_journal_has_lost_is_written_at_once() -> None:
    """With the records all leases have ended: their receipts settle nothing, also after the next crash."""
    carried = Carried()
    core = core_of(carried)
    join(core)
    pending = fetch(core) and core.journal.leases[0]
    written(core)
    core.delivered(pending)
    core.end()
    states = GroupStates()
    states.lost(0, 1)
    again = PartitionCore(states, carried, CoreOptions(label="orders/0"), start_offset=0, visible_end=5)
    again.begin(0.0, restarted=True)
    work = again.journal.take()
    assert work is not None
    assert work.sync
    assert kinds(again, work.entries) == [OPEN]
    settled = again.ack(c.Ack(GROUP, pending.lease.lease_id, [(0, 2)]), "acks", 0.0)
    assert settled is None or settled.accepted == ()
    restored = GroupStates()
    restored.restore(again.states.snapshot(0.0))
    assert restored.groups[GROUP].delivery.offsets.next_lease_id > pending.lease.lease_id


def test_a_group_that_ends_before_its_first_event_leaves_nothing() -> None:
    """Neither does the journal tell of it, nor does the next core know it."""
    carried = Carried()
    core = core_of(carried)
    join(core)
    core.group_openings.close_group(c.CloseGroup(GROUP), "closes", 0.0)
    assert written(core) == []
    assert not core_of(carried).states.groups


def test_a_group_that_ends_with_an_event_unwritten_is_written_whole() -> None:
    """What was done in it before its end is told behind its opening: it may have published."""
    core = core_of(Carried())
    join(core)
    fetch(core)
    core.group_openings.close_group(c.CloseGroup(GROUP), "closes", 0.0)
    records = written(core)
    assert kinds(core, records)[:2] == [OPEN, 0]
    states = GroupStates()
    for record in records:
        states.apply(record)
    assert not states.groups


def test_a_snapshot_has_no_group_before_its_opening_is_written() -> None:
    """A snapshot says the same as the records before it, by which it is replaced when it is damaged."""
    core = core_of(Carried())
    join(core)
    restored = GroupStates()
    restored.restore(core.states.snapshot(0.0))
    assert not restored.groups
    fetch(core)
    written(core)
    restored.restore(core.states.snapshot(0.0))
    assert list(restored.groups) == [GROUP]
