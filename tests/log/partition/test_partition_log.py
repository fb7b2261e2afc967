"""Appending, reading, rolling: a partition log on a disk that behaves."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from callboard.log import limits
from callboard.log.errors import ConfigurationError, InternalError, InvalidArgument, OffsetOutOfRange
from callboard.log.format.columns import Columns
from callboard.log.format.compression import Compression
from callboard.log.limits import Limits
from callboard.log.partition.partition_log import LogSettings


async def test_a_new_partition_is_empty(world: Any) -> None:
    """A directory that does not exist yet is made, and its log begins at offset 0."""
    log = await world.open()
    assert (0, 0, 0, 0) == (log.start_offset, log.next_offset, log.visible_end, log.durable_end)
    assert (1, False, False) == (log.segment_count, log.is_dirty, log.needs_healing)
    assert {} == await world.contents()


async def test_records_get_consecutive_offsets(world: Any) -> None:
    """Each batch of a stage begins where the one before ended."""
    log = await world.open()
    staged = log.stage([Columns.build([b"a", b"b"]), Columns.build([b"c"])], durable=True)
    assert [0, 2] == staged.base_offsets
    assert 3 == staged.end_offset == log.next_offset
    assert 0 == log.visible_end
    await world.files.submit(staged.verbs)
    log.applied(staged)
    assert (3, 3) == (log.visible_end, log.durable_end)


async def test_leader_records_are_visible_and_not_durable(world: Any) -> None:
    """Without a sync the visible end advances and the durable end does not, until a sync is staged."""
    log = await world.open()
    await world.append(3, durable=False)
    assert (3, 0, True) == (log.visible_end, log.durable_end, log.is_dirty)
    await world.sync()
    assert (3, 3, False) == (log.visible_end, log.durable_end, log.is_dirty)


async def test_a_sync_is_forced_when_much_is_unsynced(make_world: Any) -> None:
    """What is unsynced stays in memory, so it is bounded: the append that exceeds the bound is synced."""
    world = make_world(limits=Limits(unsynced_bytes=4_000))
    log = await world.open()
    while log.visible_end < 50:
        await world.append(durable=False, size=100)
    assert 0 < log.durable_end < 50


@pytest.mark.parametrize("durable", [True, False])
async def test_everything_is_read_back_after_reopening(world: Any, durable: bool) -> None:
    """A log that was closed gives back all records, whatever their level, and nothing is written anew."""
    await world.open()
    for records in (1, 10, 100, 3):
        await world.append(2, records, durable=durable)
    await world.log.close()
    await world.open()
    assert world.seen == await world.contents()
    assert 0 == world.log.recovery.rewritten_records
    assert () == world.log.recovery.quarantined


async def test_segments_roll_by_size(world: Any) -> None:
    """A segment that is full is sealed, and the next one continues it without a gap."""
    await world.open()
    while world.log.segment_count < 4:
        await world.append(records=10, size=200)
    names = [name for name in world.disk.files() if name.endswith(".log")]
    assert 4 == len(names)
    assert all(len(data) <= 65_536 for name, data in world.disk.files().items() if name.endswith(".log"))
    assert world.seen == await world.contents()
    assert () == world.log.gaps


async def test_one_stage_may_fill_several_segments(world: Any) -> None:
    """A commit larger than a segment is spread over as many as it needs."""
    await world.open()
    await world.append(batches=20, records=10, size=2_000)
    assert 7 == world.log.segment_count
    assert world.seen == await world.contents()
    world.disk.crash()
    await world.check_twice(must_hold=world.promised)


async def test_segments_roll_by_age(make_world: Any) -> None:
    """A segment older than segment_age is sealed when something is appended, or when `roll_if_due` is called."""
    world = make_world(segment_age_s=60)
    log = await world.open()
    assert log.next_due(world.clock.now_us) is None
    await world.append()
    assert 59 < log.next_due(world.clock.now_us) <= 60
    world.clock.advance(61)
    assert 0 == log.next_due(world.clock.now_us)
    await log.roll_if_due(world.clock.now_us)
    assert 2 == log.segment_count
    await log.roll_if_due(world.clock.now_us + 100_000_000)
    assert 2 == log.segment_count, "an empty segment is not rolled"
    await world.append()
    world.clock.advance(61)
    await world.append()
    assert 3 == log.segment_count
    assert world.seen == await world.contents()


async def test_reads_are_cut_to_what_was_asked(world: Any) -> None:
    """A read begins at its offset in the middle of a batch, and holds no more records than wanted."""
    await world.open()
    await world.append(3, 10)
    for reading in (
        world.log.read_hot(5, max_records=12),
        (await world.log.read(5, max_records=12)).batches,
    ):
        offsets = [at for columns in reading for at in columns.offset_list()]
        assert list(range(5, 17)) == offsets


@pytest.mark.parametrize("cold", [True, False])
async def test_reads_from_every_offset_agree(world: Any, cold: bool) -> None:
    """Whether from memory, page cache or disk, a read of any offset and length gives the same records."""
    await world.open()
    for records in (1, 5, 40, 2, 30):
        await world.append(records, 4, size=60)
    await world.log.close()
    await world.open()
    await world.append(4, 3)
    world.disk.cold = cold
    log = world.log
    for offset in range(0, log.visible_end, 3):
        for wanted in (1, 10, 1_000):
            reading = await log.read(offset, max_records=wanted)
            found = {
                at: value
                for columns in reading.batches
                for at, value in zip(columns.offset_list(), columns.value_list(), strict=True)
            }
            end = min(offset + wanted, log.visible_end)
            assert {at: world.seen[at] for at in range(offset, end)} == found
            assert end == reading.next_offset
            hot = log.read_hot(offset, max_records=wanted)
            if hot is not None:
                assert hot[0].base_offset == offset
                assert all(columns.last_offset < offset + wanted for columns in hot)


async def test_a_read_keeps_to_its_bytes(world: Any) -> None:
    """A read stops at the batch that reaches max_bytes, and always gives one."""
    await world.open()
    await world.append(50, size=1_000)
    assert 5 >= len(world.log.read_hot(0, max_records=100, max_bytes=5_000)) > 1
    assert 1 == len((await world.log.read(0, max_records=100, max_bytes=1)).batches)


async def test_hot_reads_need_no_waiting(make_world: Any) -> None:
    """What was written lately, and what the page cache holds, is read without waiting; else the answer is None."""
    world = make_world()
    await world.open()
    await world.append(1_000, size=100)
    assert [] == world.log.read_hot(1_000, max_records=1)
    assert 10 == len(world.log.read_hot(500, max_records=10))
    await world.log.close()
    await world.open()
    assert 10 == len(world.log.read_hot(500, max_records=10))
    world.disk.cold = True
    assert world.log.read_hot(500, max_records=10) is None


@pytest.mark.parametrize("tail_cache_bytes", [1_000, 100_000])
async def test_a_frame_that_is_read_in_parts_is_read_once(make_world: Any, tail_cache_bytes: int) -> None:
    """The next part comes from memory, unless the frame is larger than the tail may be, until all of it was read."""
    world = make_world(limits=Limits(tail_cache_bytes=tail_cache_bytes))
    await world.open()
    staged = world.log.stage([Columns.build([b"%04d" % n for n in range(1_000)])], durable=True)
    await world.files.submit(staged.verbs)
    world.log.applied(staged)
    await world.log.close()
    log = await world.open()
    world.disk.cold = True
    assert (await log.read(500, max_records=1)).batches[0].value_list() == [b"0500"]
    if tail_cache_bytes < 4_000:
        assert log.read_hot(501, max_records=1) is None
        return
    for first, last in ((501, 501), (100, 199), (990, 999)):
        (found,) = log.read_hot(first, max_records=last - first + 1)
        assert (found.base_offset, found.last_offset) == (first, last)
        assert found.value_list() == [b"%04d" % n for n in range(first, last + 1)]
    assert log.read_hot(500, max_records=1) is None


async def test_readers_never_pass_the_visible_end(world: Any) -> None:
    """Bytes of a staged append that is already written are not served."""
    log = await world.open()
    await world.append(2)
    staged = log.stage([Columns.build([b"not yet"])], durable=True)
    await world.files.submit(staged.verbs)
    assert [] == log.read_hot(2, max_records=10)
    reading = await log.read(0, max_records=10)
    assert (2, ()) == (reading.next_offset, reading.lost)
    log.applied(staged)
    assert b"not yet" == log.read_hot(2, max_records=10)[0].value(0)


async def test_offsets_below_the_start_are_refused(world: Any) -> None:
    """Reading below the first offset kept names the range that is there."""
    log = await world.open(named_end=10)
    with pytest.raises(OffsetOutOfRange) as caught:
        await log.read(3, max_records=1)
    assert (3, 10, 10) == (caught.value.offset, caught.value.start, caught.value.end)


async def test_offsets_by_time(world: Any) -> None:
    """`offset_at` finds the first record appended at or after an instant, over all segments, also after reopening."""
    await world.open()
    times = []
    for _ in range(40):
        world.clock.advance(10)
        times.append(world.clock.now_us)
        await world.append(5, size=1_000)
    assert world.log.segment_count > 2
    for _ in range(2):
        for place, time_us in enumerate(times):
            assert place * 5 == await world.log.offset_at(time_us)
        assert 200 == await world.log.offset_at(times[-1] + 10_000_000)
        assert 0 == await world.log.offset_at(0)
        await world.log.close()
        await world.open()


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
async def test_compression_is_invisible(make_world: Any, codec: str) -> None:
    """Compressed records are read back as they were, and take less space."""
    world = make_world(compression=Compression(codec))
    await world.open()
    await world.append(3, 200, size=200)
    assert world.log.size_bytes < 3 * 200 * 200 / 4
    world.disk.kill()
    found = await world.check_twice(must_hold=world.promised)
    assert world.seen == found


async def test_the_tail_cache_is_bounded(make_world: Any) -> None:
    """Old batches leave the cache, those that are not durable stay whatever the bound."""
    world = make_world(limits=Limits(tail_cache_bytes=20_000))
    log = await world.open()
    await world.append(100, size=1_000)
    assert log._tail.size_bytes <= 20_000
    await world.append(50, size=1_000, durable=False)
    assert log._tail.size_bytes > 50_000
    assert [] != log._tail.read(100, max_records=1, max_bytes=1)
    await world.sync()
    assert log._tail.size_bytes <= 20_000


async def test_only_one_append_is_staged(world: Any) -> None:
    """Staging twice is a bug of the caller."""
    log = await world.open()
    log.stage([Columns.build([b"a"])], durable=True)
    with pytest.raises(InternalError):
        log.stage([Columns.build([b"b"])], durable=True)


async def test_a_batch_that_cannot_be_stored_stages_nothing(world: Any) -> None:
    """An empty batch is refused; the batches beside it are not staged, and the log can be used."""
    log = await world.open()
    for many in (1, 40):
        with pytest.raises(InvalidArgument):
            log.stage([Columns.build([b"x" * 3_000])] * many + [Columns.build([])], durable=True)
    assert 0 == log.next_offset
    await world.append(2)
    assert world.seen == await world.contents()


async def test_a_refused_batch_leaves_the_index_as_it_was(make_world: Any) -> None:
    """A refused stage whose verbs would have made an index file is forgotten: the index is stored with the next."""
    world = make_world(segment_bytes=65_536, limits=Limits(index_checkpoint_bytes=20_000))
    log = await world.open()
    await world.append(1, 3, size=8_000)
    with pytest.raises(InvalidArgument):
        log.stage([Columns.build([b"x" * 3_000])] * 40 + [Columns.build([])], durable=True)
    await world.append(1, 3, size=8_000)
    assert "topics/t/0/00000000000000000000.index" in world.disk.files()
    assert world.seen == await world.contents()


def test_contradictory_settings_are_refused_together() -> None:
    """All problems of the settings are named in one error."""
    with pytest.raises(ConfigurationError) as caught:
        LogSettings(segment_bytes=1, retention_age_s=-1.0, retention_bytes=0)
    assert 3 == len(caught.value.problems)


def test_a_size_limit_makes_segments_smaller() -> None:
    """Only whole segments are dropped, so a log with a size limit is kept in at least four."""
    assert 10 * limits.MIB == LogSettings(retention_bytes=40 * limits.MIB).roll_bytes


async def test_unknown_names_are_left_alone(world: Any) -> None:
    """Files that are not Callboard's stay where they are; directories are somebody else's."""
    await world.open()
    await world.append()
    await world.log.close()
    for name in ("notes.txt", "delivery/1.log", "123.log"):
        world.disk.plant_file(f"topics/t/0/{name}", b"mine")
    await world.open()
    assert {"topics/t/0/123.log", "topics/t/0/notes.txt"} < set(world.disk.files())


async def test_a_read_ends_when_what_it_wants_is_synced_and_forgotten_meanwhile(make_world: Any) -> None:
    """A read across the durable end gives what it found; the next one finds the rest on the disk."""
    world = make_world(limits=Limits(tail_cache_bytes=1))
    log = await world.open()
    await world.append(batches=3)
    await world.append(batches=2, durable=False)
    begun_at = log.visible_end, log.durable_end
    await world.append()
    with trio.fail_after(5):
        reading = await log._reads.read(0, *begun_at, max_records=100, max_bytes=1000)
    assert (len(reading.batches), reading.next_offset, reading.lost) == (3, 3, ())
    assert len((await log.read(3, max_records=100)).batches) == 3
