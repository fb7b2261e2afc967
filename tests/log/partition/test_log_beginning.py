"""Where a log begins: what retention has dropped is told from what is missing."""

from __future__ import annotations

import pytest

from callboard.log.format.columns import Columns
from callboard.log.format.committed import COMMITTED_BYTES, decode_committed, encode_committed
from callboard.log.limits import KIB
from callboard.log.offline.repair import repair_directory
from callboard.log.offline.verify import verify_directory
from callboard.log.partition.partition_log import LogSettings, PartitionLog
from callboard.log.segments.segment_file import segment_path
from callboard.simulations.clock import VirtualClock
from callboard.simulations.disk.memory_disk import MemoryDisk
from callboard.simulations.entropy import SeededEntropy

FOLDER = "topics/t1/0"
PER_SEGMENT = 30
RECORDS = 180


async def open_log(disk, **settings):
    files = await disk.incarnate("partition")
    log = await PartitionLog.open(
        files,
        FOLDER,
        LogSettings(segment_bytes=64 * KIB, **settings),
        label="t/0",
        clock=VirtualClock(),
        entropy=SeededEntropy(7),
    )
    return files, log


async def append(files, log, count):
    for _ in range(0, count, 10):
        staged = log.stage([Columns.build([bytes(2000)] * 10)], durable=True)
        await files.submit(staged.verbs)
        log.applied(staged)


async def filled(*, dropped=0):
    """A closed log of `RECORDS`, of which retention has dropped so many segments."""
    disk = MemoryDisk()
    files, log = await open_log(disk)
    await append(files, log, RECORDS)
    if dropped:
        segments = RECORDS // PER_SEGMENT - dropped
        log.alter(LogSettings(segment_bytes=64 * KIB, retention_bytes=segments * 61_000))
        await log.retain(now_us=0, unsettled_from=RECORDS, drop_unread=False)
        assert log.start_offset == dropped * PER_SEGMENT
    await log.close()
    return disk


def remove(disk, *places):
    paths = sorted(path for path in disk.files() if path.endswith(".log"))
    for place in places:
        disk.tree.unlink(paths[place])


async def told(disk):
    """What an opening says is damaged: first and last offset, whether it is new, and how many records are lost."""
    _, log = await open_log(disk)
    new = log.record.take_new()
    found = [(damage.first_offset, damage.last_offset, damage in new) for damage in log.damages]
    lost = log.record.lost_records
    await log.close()
    return found, lost


def problems(report):
    return [(problem.kind, problem.first_offset, problem.last_offset) for problem in report.problems]


@pytest.mark.parametrize("dropped", [0, 1, 3])
@pytest.mark.parametrize("gone", [1, 2])
@pytest.mark.parametrize("by", ["opening", "repair"])
async def test_a_beginning_that_is_gone_is_told_from_what_retention_has_dropped(dropped, gone, by):
    """Opening, verify and repair name exactly the offsets of the first segments that are missing, until accepted."""
    disk = await filled(dropped=dropped)
    assert () == (await verify_directory(disk)).logs[-1].problems
    first = dropped * PER_SEGMENT
    remove(disk, *range(gone))
    lost = first, first + gone * PER_SEGMENT - 1
    report = await verify_directory(disk)
    assert ("lost", *lost) in problems(report)
    if by == "repair":
        assert ((FOLDER, *lost),) == (await repair_directory(disk, dry_run=True)).lost
        assert ((FOLDER, *lost),) == (await repair_directory(disk)).lost
        assert () == (await repair_directory(disk)).actions
    assert ([(*lost, by == "opening")], gone * PER_SEGMENT) == await told(disk)
    assert ([(*lost, False)], gone * PER_SEGMENT) == await told(disk)
    assert "lost" not in {kind for kind, *_ in problems(await verify_directory(disk))}
    await repair_directory(disk, accept=True)
    assert ([], 0) == await told(disk)


@pytest.mark.parametrize("name", [RECORDS + 40, 3 * PER_SEGMENT + 5])
async def test_a_file_that_is_no_segment_explains_no_beginning_that_is_gone(name):
    """Opening names what is lost in front of the first segment, whatever else it sets aside."""
    disk = await filled()
    remove(disk, 0)
    disk.plant_file(segment_path(FOLDER, name), b"\xa5" * 200)
    found, lost = await told(disk)
    assert (0, PER_SEGMENT - 1, True) in found
    assert lost == PER_SEGMENT


@pytest.mark.parametrize("dropped", [0, 2])
async def test_of_a_log_without_a_file_only_what_it_had_is_lost(dropped):
    """When every segment is gone, what retention has dropped before is not counted."""
    disk = await filled(dropped=dropped)
    remove(disk, *range(sum(path.endswith(".log") for path in disk.files())))
    lost = dropped * PER_SEGMENT, RECORDS - 1
    assert ("lost", *lost) in problems(await verify_directory(disk))
    report = await repair_directory(disk)
    assert ((FOLDER, *lost),) == report.lost
    assert {"catalog"} >= {kind for kind, *_ in problems(await verify_directory(disk))}
    assert ([(*lost, False)], lost[1] - lost[0] + 1) == await told(disk)


async def test_without_a_mark_a_log_may_begin_anywhere():
    """A version that knows no marks writes zeros over them: what it has dropped is not taken for missing."""
    disk = await filled()
    path = f"{FOLDER}/committed"
    stored = disk.files()[path]
    ends = decode_committed(stored)
    unmarked = encode_committed(ends.visible_end, ends.durable_end)
    disk.plant_file(path, unmarked + stored[COMMITTED_BYTES:])
    remove(disk, 0)
    assert "lost" not in {kind for kind, *_ in problems(await verify_directory(disk))}
    assert ([], 0) == await told(disk)
    remove(disk, 0)
    assert ([(PER_SEGMENT, 2 * PER_SEGMENT - 1, True)], PER_SEGMENT) == await told(disk)


@pytest.mark.parametrize("base", [0, 5, 2**32 - 1, 2**32, 2**32 + 7, 2**61])
@pytest.mark.parametrize("before", [0, 1, 12345, 2**31 - 1])
def test_the_start_is_known_near_a_segment(base, before):
    """The lower half of an offset tells it, where the other end lies within reach."""
    start = max(0, base - before)
    ends = decode_committed(encode_committed(base, base, 1, start))
    assert start == ends.begins_at(base)
    assert base == decode_committed(encode_committed(base, base, 1, base)).begins_at(start)
