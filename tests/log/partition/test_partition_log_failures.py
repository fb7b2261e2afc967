"""Disks that refuse: failed syncs and writes, a full disk. What was seen stays, what was promised stays."""

from __future__ import annotations

import errno
from typing import Any

import pytest
import trio

from callboard.log.errors import DiskFull, InternalError, PlanFailed, PublishFailed, StorageError
from callboard.log.format.columns import Columns
from callboard.log.limits import Limits
from callboard.log.seams.disk import Create, Open, Rename, Sync, SyncDirectory, Unlink, Write, Zero

EIO = OSError(errno.EIO, "I/O error")
ENOSPC = OSError(errno.ENOSPC, "No space left on device")
LOG = ".log"


@pytest.mark.parametrize("pages", ["kept", "reverted"])
@pytest.mark.parametrize("durable_before", [0, 3])
async def test_a_failed_sync_is_not_believed(world: Any, pages: Any, durable_before: int) -> None:
    """The publish fails, indefinite; the log goes on in a new file at the proven end; what was seen is kept there."""
    await world.open()
    if durable_before:
        await world.append(durable_before)
    await world.append(4, durable=False)
    world.disk.fail_next(Sync, EIO, path_contains=LOG, pages=pages)
    error = await world.append(2)
    assert isinstance(error, PublishFailed)
    assert not isinstance(error, DiskFull)
    assert error.indefinite
    log = world.log
    assert log.needs_healing
    assert (durable_before + 4, durable_before) == (log.visible_end, log.durable_end)
    assert world.seen == await world.contents(), "visible records are read while the log is sick"
    await log.heal()
    assert (False, False) == (log.needs_healing, log.is_dirty)
    assert log.durable_end == log.visible_end == durable_before + 4
    assert world.seen == await world.contents()
    await world.append(2)
    world.disk.crash()
    world.promised.update(world.seen)
    await world.check_twice(must_hold=world.promised)


async def test_a_sick_log_is_read_from_memory_past_the_durable_end(make_world: Any) -> None:
    """Reverted pages are not read, nor taken for damage: what is not durable comes from memory, by time too."""
    world = make_world(limits=Limits(tail_cache_bytes=1_000))
    await world.open()
    await world.append(10, size=500)
    world.clock.advance(60)
    before_leaders = world.clock.now_us
    await world.append(5, size=500, durable=False)
    world.disk.fail_next(Sync, EIO, path_contains=LOG, pages="reverted")
    await world.append(1)
    for cold in (True, False):
        world.disk.cold = cold
        assert world.seen == await world.contents()
        assert 10 == await world.log.offset_at(before_leaders)
        assert 0 == await world.log.offset_at(0)
    assert () == world.log.damages
    await world.log.heal()
    assert world.seen == await world.contents()
    assert 10 == await world.log.offset_at(before_leaders)


async def test_healing_frees_what_memory_no_longer_has_to_keep(make_world: Any) -> None:
    """What the disk refused stays in memory, past the bound, until healing proves it; then the bound holds again."""
    world = make_world(limits=Limits(tail_cache_bytes=2_000))
    await world.open()
    for _ in range(10):
        await world.append(1, size=500, durable=False)
    tail = world.log._tail
    assert tail.size_bytes > 10 * 500
    world.disk.fail_next(Sync, EIO, path_contains=LOG)
    await world.append(1)
    await world.log.heal()
    assert tail.size_bytes <= 2_000
    assert world.seen == await world.contents()


async def test_a_cancelled_roll_leaves_the_log_usable(make_world: Any) -> None:
    """A roll that is cancelled before it began can be done later, and appends go on."""
    world = make_world(segment_age_s=10)
    await world.open()
    await world.append(1)
    world.clock.advance(11)
    with trio.CancelScope() as scope:
        scope.cancel()
        await world.log.roll_if_due(world.clock.now_us)
    assert 1 == world.log.segment_count
    await world.append(1)
    assert 2 == world.log.segment_count
    assert world.seen == await world.contents()


async def test_a_failed_sync_is_never_retried(world: Any) -> None:
    """After a failed sync no later sync of the same file is asked for."""
    await world.open()
    await world.append(1)
    world.disk.fail_next(Sync, EIO, path_contains=LOG)
    await world.append(1)
    abandoned = "topics/t/0/00000000000000000000.log"
    ran: list[tuple[str, str]] = []
    world.disk.observer = lambda _, verb, path: ran.append((verb, path))
    await world.append(3)
    await world.append(3, durable=False)
    await world.log.close()
    assert {("sync", abandoned), ("write", abandoned)}.isdisjoint(ran)


async def test_a_sync_of_leader_records_that_fails_heals_too(world: Any) -> None:
    """`sync_failed` makes the log heal: the leader records are written anew, none is lost."""
    await world.open()
    await world.append(5, durable=False)
    world.disk.fail_next(Sync, EIO, path_contains=LOG, pages="reverted")
    with pytest.raises(PlanFailed) as caught:
        await world.files.submit(world.log.stage_sync())
    world.log.sync_failed(caught.value)
    with pytest.raises(InternalError):
        world.log.stage([Columns.build([b"x"])], durable=True)
    await world.log.heal()
    world.promised.update(world.seen)
    world.disk.crash()
    await world.check_twice(must_hold=world.promised)


async def test_a_failed_sync_and_a_crash_before_healing(world: Any) -> None:
    """Records of an unanswered sync may be there or not; those proven before are, and offsets go on."""
    await world.open()
    await world.append(3)
    world.disk.fail_next(Sync, EIO, path_contains=LOG)
    await world.append(2)
    world.disk.kill()
    await world.check_twice(must_hold=world.promised)
    world.disk.crash()
    await world.check_twice(must_hold=world.promised)


@pytest.mark.parametrize("partial", [0, 1, 100, 3_000])
async def test_a_failed_write_is_superseded(world: Any, partial: int) -> None:
    """Whatever a failed write left in the file, the records that follow are found and those before too."""
    await world.open()
    await world.append(3, size=1_000)
    world.disk.fail_next(Write, EIO, path_contains=LOG, partial=partial)
    error = await world.append(4, size=1_000)
    assert isinstance(error, PublishFailed)
    assert error.indefinite
    await world.append(2)
    world.disk.crash()
    await world.check_twice(must_hold=world.promised)


async def test_failed_offsets_are_given_again(world: Any) -> None:
    """Offsets that were staged and never visible go to the records that come next."""
    await world.open()
    world.disk.fail_next(Sync, EIO, path_contains=LOG)
    await world.append(5)
    await world.append(1)
    assert {0} == set(world.seen)


async def test_a_full_disk_stores_nothing_and_says_so(world: Any) -> None:
    """No space: `DiskFull`, certain; reads go on; publishing goes on by itself when there is space again."""
    await world.open()
    await world.append(3)
    world.disk.capacity_bytes = world.disk.used_bytes + 300
    refused = 0
    while (error := await world.append(1, size=1_000)) is None:
        refused += 1
        assert refused < 100
    assert isinstance(error, DiskFull)
    assert not error.indefinite
    for _ in range(3):
        assert isinstance(await world.append(1, size=20_000), DiskFull)
        assert world.seen == await world.contents()
    world.disk.capacity_bytes = None
    assert await world.append(1) is None
    world.disk.crash()
    await world.check_twice(must_hold=world.promised)


async def test_a_full_disk_and_a_crash_before_there_is_space(world: Any) -> None:
    """What was refused for want of space does not turn up after a crash."""
    await world.open()
    await world.append(3)
    world.disk.capacity_bytes = world.disk.used_bytes
    while await world.append(2, size=3_000) is None:
        pass
    world.disk.kill()
    world.disk.capacity_bytes = None
    found = await world.check_twice(must_hold=world.promised)
    assert not world.refused & set(found.values())


async def test_a_full_disk_while_rolling(world: Any) -> None:
    """A new segment that finds no space leaves nothing behind that would hide later records."""
    for spare in range(0, 40_000, 1_500):
        world.__init__(segment_bytes=65_536)
        await world.open()
        while world.log.size_bytes < 60_000:
            await world.append(1, size=2_000)
        world.disk.capacity_bytes = world.disk.used_bytes + spare
        for _ in range(12):
            await world.append(1, size=4_000)
        world.disk.capacity_bytes = None
        await world.append(1, size=4_000)
        await world.append(1, size=4_000)
        assert world.seen == await world.contents()
        world.disk.crash()
        await world.check_twice(must_hold=world.promised)


async def test_a_full_disk_while_the_index_is_stored(make_world: Any) -> None:
    """Space for the index is taken before the records are written: its lack stores nothing, and is made up for."""
    world = make_world(limits=Limits(index_checkpoint_bytes=20_000))
    await world.open()
    await world.append(30, size=1_000)
    world.disk.fail_next(Zero, ENOSPC, path_contains=".index")
    error = await world.append(1)
    assert isinstance(error, DiskFull)
    assert not error.indefinite
    assert await world.append(3) is None
    assert any(name.endswith(".index") for name in world.disk.files())
    world.disk.crash()
    await world.check_twice(must_hold=world.promised)


@pytest.mark.parametrize("verb", [Create, Write, Zero, Sync, Rename, Open, SyncDirectory])
@pytest.mark.parametrize("times", [1, 3])
async def test_any_verb_of_a_roll_may_fail(make_world: Any, verb: Any, times: int) -> None:
    """A roll that fails at any verb is healed, records of before and after are all there."""
    for after in range(4):
        world = make_world(segment_age_s=10)
        await world.open()
        await world.append(3)
        await world.append(3, durable=False)
        world.clock.advance(11)
        world.disk.fail_next(verb, EIO, times=times, after=after, path_contains="topics")
        for _ in range(8):
            await world.append(1, 2)
        world.disk.faults.clear()
        assert await world.append(1) is None
        assert world.seen == await world.contents()
        await world.append(1)
        world.promised.update(world.seen)
        world.disk.crash()
        await world.check_twice(must_hold=world.promised)


@pytest.mark.parametrize("verb", [Create, Write, Sync, Rename, Open, SyncDirectory])
async def test_healing_that_fails_is_tried_again(world: Any, verb: Any) -> None:
    """While the disk refuses, `heal` raises and the log stays readable; the next heal succeeds."""
    await world.open()
    await world.append(2)
    await world.append(3, durable=False)
    world.disk.fail_next(Sync, EIO, path_contains=LOG, pages="reverted")
    await world.append(1)
    world.disk.fail_next(verb, EIO, times=2)
    for _ in range(2):
        with pytest.raises(PublishFailed) as caught:
            await world.log.heal()
        assert not caught.value.indefinite
        assert world.log.needs_healing
        assert world.seen == await world.contents()
    await world.log.heal()
    world.promised.update(world.seen)
    world.disk.crash()
    await world.check_twice(must_hold=world.promised)


async def test_retention_that_fails_goes_on_later(make_world: Any) -> None:
    """A segment that cannot be unlinked stays, the error is raised, and the next pass drops it."""
    world = make_world(segment_bytes=65_536, retention_bytes=80_000)
    await world.open()
    for _ in range(20):
        await world.append(2, size=5_000)
    for verb in (Unlink, SyncDirectory):
        world.disk.fail_next(verb, EIO, path_contains="topics")
        with pytest.raises(StorageError):
            await world.log.retain(now_us=0, unsettled_from=1 << 60, drop_unread=False)
        world.check(await world.contents(), must_hold={})
    await world.log.retain(now_us=0, unsettled_from=1 << 60, drop_unread=False)
    assert world.log.size_bytes <= 80_000 + 65_536
    world.check(await world.contents(), must_hold={})


async def test_closing_a_sick_log_leaves_its_file_alone(world: Any) -> None:
    """A log that needs healing is closed without another write; the next owner recovers it."""
    await world.open()
    await world.append(2)
    world.disk.fail_next(Sync, EIO, path_contains=LOG)
    await world.append(2)
    ran = set()
    world.disk.observer = lambda _, verb, path: ran.add(verb)
    await world.log.close()
    assert ran == {"close"}
    world.disk.observer = None
    await world.check_twice(must_hold=world.promised)


async def fail_a_sync(world: Any) -> None:
    """A record whose sync fails, and the log healed."""
    world.disk.fail_next(Sync, OSError(errno.EIO, "rotten"))
    assert (await world.append()).indefinite
    await world.log.heal()


async def test_two_failed_syncs_in_a_row_lose_nothing(world: Any) -> None:
    """When the segment that healed the log fails with its first record, its successor follows what came before."""
    await world.open()
    await world.append()
    await fail_a_sync(world)
    await fail_a_sync(world)
    world.disk.kill()
    log = await world.open()
    assert await world.contents() == world.promised
    assert (log.recovery.damages, log.gaps, world.lost) == ((), (), [])


async def test_a_gap_is_explained_after_a_failed_sync_behind_it(world: Any) -> None:
    """When the first record behind a gap fails, the segment that takes the place of its own names the gap again."""
    await world.open()
    await world.append()
    log = await world.open(named_end=5)
    gaps = log.gaps
    assert [(gap.first, gap.last, gap.reason) for gap in gaps] == [(1, 4, "unsynced")]
    await fail_a_sync(world)
    assert log.gaps == gaps
    world.disk.kill()
    log = await world.open()
    assert (log.gaps, log.recovery.damages) == (gaps, ())


async def test_a_gap_is_explained_after_a_torn_record_behind_it(world: Any) -> None:
    """When the first record behind a gap is torn, or unproven, recovery names the gap again."""
    for keep in (0, 1):
        await world.open()
        await world.append()
        log = await world.open(named_end=log_end(world) + 4)
        gaps = log.gaps
        await world.append(durable=False, size=1_000)
        world.disk.crash(lambda unsynced, keep=keep: unsynced.items[keep::2])
        log = await world.open()
        assert log.gaps[: len(gaps)] == gaps
        assert log.recovery.damages == ()
        world.seen = await world.contents()


def log_end(world: Any) -> int:
    """Where the log ends."""
    return int(world.log.next_offset)


async def test_a_missing_segment_costs_only_its_own_records(world: Any) -> None:
    """When a segment is gone, the one before it is served up to where that began, and the loss is named."""
    await world.open()
    await world.append(3)
    await fail_a_sync(world)
    await world.append(2)
    await fail_a_sync(world)
    await world.append()
    await world.files_gone("topics/t/0/00000000000000000003.log")
    log = await world.open()
    assert [(damage.first_offset, damage.last_offset) for damage in log.recovery.damages] == [(3, 4)]
    assert set(await world.contents()) == {0, 1, 2, 5}
