"""A reader beside a writer."""

import errno
import random

import pytest
import trio

from callboard.log.errors import InvalidArgument, LogCorrupt, OffsetOutOfRange, StorageError
from callboard.log.format.frame_walk import FrameWalk
from callboard.log.format.segment import SEGMENT_HEADER_BYTES, decode_segment_header
from callboard.log.offline.reader import LogReader


async def open_reader(writer):
    return await LogReader.open(await writer.disk.incarnate("reader"), writer.directory)


async def read_all(reader, offset=0, **limits):
    """(offset, value) of all records from `offset` on, and what was lost."""
    records, lost = [], []
    await reader.refresh()
    while offset < reader.visible_end:
        reading = await reader.read(offset, **limits)
        for columns in reading.batches:
            records += zip(columns.offset_list(), columns.value_list(), strict=True)
        lost += reading.lost
        assert reading.next_offset > offset
        offset = reading.next_offset
    return records, lost


def expected(first, end, text=b"value"):
    return [(offset, b"%s-%d" % (text, offset)) for offset in range(first, end)]


@pytest.mark.parametrize("limits", [{}, {"max_records": 1}, {"max_records": 2}, {"max_bytes": 1}], ids=str)
async def test_reads_all_segments(writer, limits):
    """Every record comes once, in order, across segments, whatever the limits."""
    await writer.fill()
    assert (expected(0, 36), []) == await read_all(await open_reader(writer), **limits)


@pytest.mark.parametrize("start", range(0, 36, 5))
async def test_reads_from_any_offset(writer, start):
    """A read begins at exactly the offset asked for."""
    await writer.fill()
    assert (expected(start, 36), []) == await read_all(await open_reader(writer), start)


async def test_never_passes_the_mark(writer):
    """What is written but not committed is not read; once committed, it is."""
    reader = await open_reader(writer)
    assert (0, 0) == (reader.start_offset, reader.visible_end)
    await writer.append()
    await writer.append(publish=False)
    assert expected(0, 3) == (await read_all(reader))[0]
    assert [] == (await reader.read(3)).batches
    writer.commit()
    assert expected(0, 6) == (await read_all(reader))[0]


async def test_missing_directory_is_empty(writer):
    """A partition that was never written reads as empty."""
    reader = await LogReader.open(writer.files, "topics/none/0")
    assert 0 == reader.visible_end
    assert [] == (await reader.read(0)).batches


async def test_follows_rolls(writer):
    """A reader at the end finds segments that are made later."""
    reader = await open_reader(writer)
    seen = []
    for _ in range(5):
        await writer.append()
        await writer.roll()
        await writer.append()
        seen += (await read_all(reader, len(seen)))[0]
    assert expected(0, 30) == seen


async def test_abandoned_frames_are_never_served(writer):
    """Frames that were never acknowledged are not served, even after other records took their offsets."""
    await writer.append()
    reader = await open_reader(writer)
    await read_all(reader)
    await writer.append(publish=False, text=b"unproven")
    await writer.roll(base=3)
    await writer.append(text=b"value")
    assert expected(0, 6) == (await read_all(reader))[0]


class Listing:
    """An incarnation of the disk on which something happens right after a directory was listed, once."""

    def __init__(self, files):
        self._files = files
        self.then = None

    def __getattr__(self, name):
        return getattr(self._files, name)

    async def list(self, path):
        found = await self._files.list(path)
        then, self.then = self.then, None
        if then is not None:
            await then()
        return found


async def test_frames_that_are_abandoned_while_a_reader_looks_are_never_served(writer):
    """The same when the writer goes on in another segment right after the reader has listed the segments."""
    await writer.append()
    files = Listing(await writer.disk.incarnate("reader"))
    reader = await LogReader.open(files, writer.directory)
    await read_all(reader)
    await writer.append()
    await writer.append(publish=False, text=b"unproven")

    async def go_on():
        await writer.roll(base=6)
        await writer.append()

    files.then = go_on
    await reader.refresh()
    assert files.then is None
    reading = await reader.read(0, max_records=reader.visible_end)
    values = [value for columns in reading.batches for value in columns.value_list()]
    assert [value for _, value in expected(0, reader.visible_end)] == values
    assert expected(0, 9) == (await read_all(reader))[0]


async def test_removed_offsets_are_out_of_range(writer):
    """After retention removed a segment, reading it says where the log starts now."""
    await writer.fill()
    reader = await open_reader(writer)
    await writer.drop_first()
    with pytest.raises(OffsetOutOfRange) as caught:
        await reader.read(0)
    assert (0, 12, 36) == (caught.value.offset, caught.value.start, caught.value.end)
    assert 12 == reader.start_offset
    assert expected(12, 36) == (await read_all(reader, 12))[0]


async def test_open_segment_outlives_its_removal(writer):
    """A reader amid a segment that is removed gets its rest, or is told; never a gap in silence."""
    await writer.fill()
    reader = await open_reader(writer)
    first = await reader.read(0, max_records=2)
    await writer.drop_first()
    second = await reader.read(first.next_offset, max_records=2)
    assert [b"value-2"] == second.batches[0].value_list()


async def test_beyond_the_end_is_out_of_range(writer):
    """An offset beyond the visible end is refused."""
    reader = await open_reader(writer)
    with pytest.raises(OffsetOutOfRange):
        await reader.read(1)
    with pytest.raises(InvalidArgument):
        await reader.read(0, max_records=0)


async def test_damage_is_named_and_passed(writer):
    """A damaged frame is left out, its offsets are named, everything else is read."""
    await writer.fill()
    data = writer.disk.files()[writer.path(12)]
    writer.disk.flip(writer.path(12), data.index(b"value-16"))
    records, lost = await read_all(await open_reader(writer))
    assert expected(0, 15) + expected(18, 36) == records
    assert [(15, 17)] == lost


async def test_the_last_frame_behind_damage_is_read(writer):
    """The frame that ends a file is served when the one before it is damaged."""
    await writer.fill()
    data = writer.disk.files()[writer.path(12)]
    header = decode_segment_header(data[:SEGMENT_HEADER_BYTES])
    walk = FrameWalk(header.segment_id, 12, file_end=len(data))
    walk.feed(data[SEGMENT_HEADER_BYTES:])
    writer.disk.plant_file(writer.path(12), data[: walk.end])
    writer.disk.flip(writer.path(12), data.index(b"value-19"))
    records, lost = await read_all(await open_reader(writer))
    assert expected(0, 18) + expected(21, 36) == records
    assert [(18, 20)] == lost


async def test_damaged_header_is_said(writer):
    """A segment whose header cannot be read raises LogCorrupt with its path."""
    await writer.fill()
    for byte in (3, 67):
        writer.disk.flip(writer.path(12), byte)
    reader = await open_reader(writer)
    assert expected(0, 12) == [
        pair
        for columns in (await reader.read(0, max_records=12)).batches
        for pair in zip(columns.offset_list(), columns.value_list(), strict=True)
    ]
    with pytest.raises(LogCorrupt) as caught:
        await reader.read(12)
    assert (writer.path(12), (12, 23)) == (caught.value.path, caught.value.offsets)


async def test_damaged_committed_file_is_said(writer):
    """Without a readable committed file nothing is guessed."""
    await writer.append()
    for byte in (10, 42):
        writer.disk.flip(f"{writer.directory}/committed", byte)
    with pytest.raises(LogCorrupt, match="repair"):
        await open_reader(writer)


async def test_refused_reads_come_out(writer):
    """An error of the disk comes out as a StorageError."""
    await writer.append()
    reader = await open_reader(writer)
    writer.disk.fail_next("read", OSError(errno.EIO, "Input/output error"))
    with pytest.raises(StorageError):
        await reader.read(0)


@pytest.mark.parametrize("time", [0, 1, 999, 1000, 1001, 11_500, 12_000, 20_001, 35_000, 35_001, 99_000])
async def test_finds_times(writer, time):
    """offset_at gives the first record appended at or after the instant, else the visible end."""
    await writer.fill()
    assert min(-(-time // 1000), 36) == await (await open_reader(writer)).offset_at(time)


@pytest.mark.parametrize("seed", range(5))
async def test_concurrent_with_a_writer(new_writer, seed):
    """While records are written, rolled, healed and removed, a reader sees each visible record once, in order."""
    source = random.Random(seed)
    writer = await new_writer().start()
    done = trio.Event()
    seen = []

    async def write():
        for _ in range(60):
            move = source.random()
            if move < 0.6:
                await writer.append(source.randrange(1, 5))
            elif move < 0.75:
                await writer.roll()
            elif move < 0.9:
                end = writer.next
                await writer.append(2, publish=False, text=b"unproven")
                await writer.roll(base=end)
            elif len(writer.bases) > 3:
                await writer.drop_first()
        done.set()

    async def read():
        reader, offset, is_over = await open_reader(writer), 0, False
        while not is_over:
            is_over = done.is_set()
            await reader.refresh()
            try:
                reading = await reader.read(offset, max_records=source.randrange(1, 9))
            except OffsetOutOfRange as error:
                offset, is_over = error.start, False
                continue
            assert () == reading.lost
            for columns in reading.batches:
                seen.extend(zip(columns.offset_list(), columns.value_list(), strict=True))
            offset = reading.next_offset
            is_over = is_over and offset == reader.visible_end
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(write)
        nursery.start_soon(read)
    assert all(value == b"value-%d" % offset for offset, value in seen)
    assert [offset for offset, _ in seen] == sorted({offset for offset, _ in seen})
    assert seen[-1][0] == writer.visible - 1
