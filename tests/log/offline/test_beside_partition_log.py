"""Reader, verify and repair on what a PartitionLog writes, and a PartitionLog on what repair leaves."""

import random

import pytest
import trio

from callboard.log.errors import PlanFailed, StaleIncarnation
from callboard.log.format.columns import Columns
from callboard.log.host.disk import HostDisk
from callboard.log.limits import KIB
from callboard.log.offline.reader import LogReader
from callboard.log.offline.repair import repair_directory
from callboard.log.offline.verify import verify_directory
from callboard.log.partition.partition_log import LogSettings, PartitionLog
from callboard.simulations.clock import VirtualClock
from callboard.simulations.disk.inodes import keep_unsynced, lose_unsynced
from callboard.simulations.disk.memory_disk import MemoryDisk
from callboard.simulations.entropy import SeededEntropy

DIRECTORY = "orders/0"
SETTINGS = LogSettings(segment_bytes=64 * KIB)


async def open_log(disk):
    files = await disk.incarnate("partition")
    log = await PartitionLog.open(
        files,
        DIRECTORY,
        SETTINGS,
        label="orders/0",
        clock=VirtualClock(),
        entropy=SeededEntropy(random.random()),
    )
    return files, log


def value(offset):
    return b"%06d" % offset + bytes(2000 + offset % 7)


async def append(files, log, count):
    batch = Columns.build([value(log.next_offset + place) for place in range(count)])
    staged = log.stage([batch], durable=True)
    try:
        await files.submit(staged.verbs)
    except PlanFailed as error:
        raise log.failed(staged, error) from error
    log.applied(staged)


async def fill(disk, batches=40):
    files, log = await open_log(disk)
    for number in range(batches):
        await append(files, log, 1 + number % 5)
    return files, log


async def read_all(source, start, end, **limits):
    records, lost, offset = {}, [], start
    while offset < end:
        reading = await source.read(offset, **limits)
        for columns in reading.batches:
            records.update(zip(columns.offset_list(), columns.value_list(), strict=True))
        lost += reading.lost
        offset = reading.next_offset
    return records, lost


async def open_reader(disk):
    return await LogReader.open(await disk.incarnate("reader"), DIRECTORY)


@pytest.fixture(params=["memory", "host"])
async def disk(request, tmp_path):
    disk = MemoryDisk() if request.param == "memory" else HostDisk(tmp_path / "data")
    lock = await disk.lock({"pid": 1})
    yield disk
    lock.release()
    await disk.aclose()


async def test_reader_sees_what_the_log_holds(disk):
    """A reader beside an open log reads the same records, and follows it."""
    files, log = await fill(disk)
    reader = await open_reader(disk)
    for _ in range(3):
        await reader.refresh()
        assert log.visible_end == reader.visible_end
        records, lost = await read_all(reader, 0, reader.visible_end)
        assert ({offset: value(offset) for offset in range(log.visible_end)}, []) == (records, lost)
        await append(files, log, 20)
    await log.close()


async def test_open_and_closed_logs_verify_clean(disk):
    """A log that is in use verifies clean, and so does a closed one, and one that is opened again."""
    _, log = await fill(disk)
    assert () == (await verify_directory(disk)).problems
    await log.close()
    report = await verify_directory(disk)
    assert ((), log.visible_end) == (report.problems, report.records)
    await open_log(disk)
    assert () == (await verify_directory(disk)).problems


@pytest.mark.parametrize("choose", [lose_unsynced, keep_unsynced, 1, 2])
def test_crashes_are_no_damage(choose):
    """Whatever power loss leaves, verify finds no damage: before the log is opened again, and after."""

    async def one(verbs):
        disk = MemoryDisk()
        source = random.Random(verbs)

        def some(unsynced):
            if unsynced.is_directory:
                return unsynced.items[: source.randrange(len(unsynced.items) + 1)]
            return [item for item in unsynced.items if source.random() < 0.5]

        disk.crash_after(verbs, some if isinstance(choose, int) else choose)
        try:
            files, log = await fill(disk, 12)
            await log.close()
            files, log = await open_log(disk)
            await append(files, log, 3)
        except StaleIncarnation:
            crashed = True
        else:
            crashed = False
        disk.power_on()
        assert () == (await verify_directory(disk)).problems, verbs
        _, log = await open_log(disk)
        report = await verify_directory(disk)
        assert () == report.problems
        return crashed

    verbs = 0
    while trio.run(one, verbs):
        verbs += 3
    assert verbs > 30


@pytest.mark.parametrize("seed", range(25))
async def test_repaired_logs_open(seed):
    """After repair a log opens, serves what verify counted, and goes on at the offset where it was."""
    disk = MemoryDisk()
    _, log = await fill(disk)
    await log.close()
    disk.kill()
    source = random.Random(seed)
    paths = [path for path in disk.files() if path.endswith(".log")]
    for _ in range(source.randrange(1, 5)):
        path = source.choice(paths)
        length = len(disk.files()[path].rstrip(b"\0"))
        disk.flip(path, source.randrange(length), 1 << source.randrange(8))
    before = await verify_directory(disk)
    assert not before.ok
    await repair_directory(disk)
    after = await verify_directory(disk)
    assert ((), before.records) == (after.problems, after.records)
    assert () == (await repair_directory(disk)).actions
    files, opened = await open_log(disk)
    assert log.visible_end == opened.next_offset
    records, lost = await read_all(opened, opened.start_offset, opened.visible_end, max_records=100)
    assert before.records == len(records)
    assert all(value(offset) == found for offset, found in records.items())
    missing = set(range(opened.start_offset, opened.visible_end)) - set(records)
    assert missing == {offset for first, last in lost for offset in range(first, last + 1)}
    await append(files, opened, 2)
    assert () == (await verify_directory(disk)).problems
