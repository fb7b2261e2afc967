"""Retention by age and by size, held back by what durable groups have not settled."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import trio
import trio.testing

from callboard.log.limits import Limits
from callboard.log.segments.segment_scan import index_stored, scan_stored

ALL_SETTLED = 1 << 60


async def fill(world: Any, batches: int) -> None:
    """Append batches of three records, some 6 KiB each, ten seconds apart."""
    for _ in range(batches):
        world.clock.advance(10)
        await world.append(1, 3, size=2_000)


@pytest.fixture
async def sized(make_world: Any) -> Any:
    """A log of six segments with a limit of three, and no memory of its records."""
    world = make_world(segment_bytes=65_536, retention_bytes=3 * 65_536, limits=Limits(tail_cache_bytes=1))
    await world.open()
    await fill(world, 60)
    return world


async def test_the_oldest_segments_go_first(sized: Any) -> None:
    """Above retention_bytes whole segments are dropped from the front until the limit is kept."""
    log = sized.log
    bases = [segment.base_offset for segment in log._segments]
    await log.retain(now_us=sized.clock.now_us, unsettled_from=ALL_SETTLED, drop_unread=False)
    assert 2 * 65_536 < log.size_bytes <= 3 * 65_536
    assert bases[-log.segment_count] == log.start_offset > 0
    sized.check(await sized.contents(), must_hold=sized.promised)
    sized.disk.crash()
    start = log.start_offset
    await sized.check_twice(must_hold=sized.promised)
    assert start == sized.log.start_offset


async def test_unsettled_records_are_kept(sized: Any) -> None:
    """Nothing at or past the lowest floor of the durable groups is dropped; the log is then over its limit."""
    log = sized.log
    first_end = log._segments[0].end_offset
    for _ in range(2):
        await log.retain(now_us=0, unsettled_from=first_end, drop_unread=False)
        assert (first_end, True) == (log.start_offset, log.is_over_limit)
    await log.retain(now_us=0, unsettled_from=ALL_SETTLED, drop_unread=False)
    assert not log.is_over_limit


async def test_unread_records_may_be_dropped(sized: Any) -> None:
    """With drop_unread the limit wins over unsettled records."""
    await sized.log.retain(now_us=0, unsettled_from=5, drop_unread=True)
    assert sized.log.start_offset > 5
    assert not sized.log.is_over_limit


async def test_old_segments_go(make_world: Any) -> None:
    """A sealed segment goes once its newest record is older than retention_age; the one in use stays."""
    world = make_world(segment_bytes=65_536, retention_age_s=100)
    log = await world.open()
    await fill(world, 30)
    assert log.segment_count > 2
    newest_sealed = log._segments[-2].end_offset
    world.clock.advance(1_000)
    assert 0 == log.next_due(world.clock.now_us)
    await log.retain(now_us=world.clock.now_us, unsettled_from=ALL_SETTLED, drop_unread=False)
    assert newest_sealed == log.start_offset
    await log.roll_if_due(world.clock.now_us)
    await log.retain(now_us=world.clock.now_us, unsettled_from=ALL_SETTLED, drop_unread=False)
    assert log.start_offset == log.next_offset
    await fill(world, 1)
    assert {90, 91, 92} == set(await world.contents())


async def test_a_segment_goes_in_the_moment_in_which_it_is_due(make_world: Any) -> None:
    """Not a moment later: whoever looked then would look again much later."""
    world = make_world(segment_bytes=65_536, retention_age_s=100)
    log = await world.open()
    await world.append(60, 3, size=2_000)  # at one time: the next segment is as old as what it follows
    first_end = log._segments[0].end_offset
    due_us = log._segments[1].created_us + 100_000_000
    assert log.next_due(due_us) == 0
    await log.retain(now_us=due_us, unsettled_from=ALL_SETTLED, drop_unread=False)
    assert log.start_offset >= first_end


async def test_young_segments_stay(make_world: Any) -> None:
    """Retention by age looks at the newest record of a segment, also after reopening."""
    world = make_world(segment_bytes=65_536, retention_age_s=150)
    await world.open()
    await fill(world, 30)
    await world.log.close()
    log = await world.open()
    await log.retain(now_us=world.clock.now_us, unsettled_from=ALL_SETTLED, drop_unread=False)
    kept = [at for at in world.seen if at >= log.start_offset]
    assert 45 <= len(kept) < 90
    assert log.start_offset > 0


async def test_a_reader_may_go_on_in_a_dropped_segment(sized: Any) -> None:
    """A read under way while its segment is dropped ends well, and its file is closed afterwards."""
    sized.disk.latency_s = 0.01
    found: list[Any] = []

    async def read() -> None:
        found.append(await sized.log.read(3, max_records=60))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await trio.testing.wait_all_tasks_blocked()
        await sized.log.retain(now_us=0, unsettled_from=ALL_SETTLED, drop_unread=False)
    assert 3 < found[0].next_offset
    assert sized.log.start_offset > 0


async def test_a_read_that_comes_while_segments_are_dropped_counts_what_it_misses(
    autojump_clock: Any, sized: Any
) -> None:
    """Also while the log still begins where it did, because others are yet to be unlinked."""
    await sized.log.close()
    log = await sized.open()
    oldest, second, *_ = log._segments
    await log.read(second.base_offset, max_records=1)  # it is open now, and the oldest is not
    unlinked = trio.Event()

    def observe(owner: str, verb: str, path: str) -> None:
        if (verb, path) == ("unlink", oldest.file.path):
            sized.disk.latency_s = 3600  # the next segment is unlinked later
            unlinked.set()

    sized.disk.observer = observe
    async with trio.open_nursery() as nursery:
        nursery.start_soon(
            partial(log.retain, now_us=0, unsettled_from=ALL_SETTLED, drop_unread=False), name="retention"
        )
        await unlinked.wait()
        await trio.testing.wait_all_tasks_blocked()
        sized.disk.latency_s = 0
        found = await log.read(0, max_records=3)
        assert log.start_offset == 0
    assert log.start_offset > second.base_offset == found.batches[0].base_offset
    assert (found.dropped, found.lost) == (second.base_offset, ((0, second.base_offset - 1),))


async def test_only_a_few_sealed_segments_stay_open(make_world: Any) -> None:
    """Reading through many segments closes those that were not read lately."""
    world = make_world(segment_bytes=65_536)
    await world.open()
    await fill(world, 200)
    await world.log.close()
    await world.open()
    assert world.seen == await world.contents()
    opened = [segment for segment in world.log._segments if segment.is_open]
    assert len(opened) <= 10 < world.log.segment_count
    assert sum(segment.index is not None for segment in world.log._segments) <= 10


@pytest.mark.parametrize("is_checked", [False, True])
async def test_the_age_of_a_segment_whose_end_was_superseded(make_world: Any, is_checked: bool) -> None:
    """Where the file goes on behind the segment's end, its newest record is the last one before that end.

    That also holds when every frame is checked, as it is where a segment has damage.
    """
    world = make_world(retention_age_s=100)
    log = await world.open()
    began_us = world.clock.now_us
    for _ in range(3):
        world.clock.advance(10)
        await world.append()
    segment = log._segments.active
    segment.index, segment.is_indexed, segment.end_offset = None, False, 2
    if is_checked:
        assert await scan_stored(world.files, segment, limit=2) == 2
    index = await index_stored(world.files, segment)
    assert (index.next_offset, index.records) == (2, 2)
    assert index.max_time_us == pytest.approx(began_us + 20_000_000, abs=1_000)
