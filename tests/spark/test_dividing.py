"""Dividing a read into more tasks than there are segments: the same rows, and what each task reads. Without Spark."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

import callboard
from callboard.log.errors import InvalidArgument
from callboard.log.format.columns import Columns
from callboard.log.format.compression import Compression
from callboard.log.format.index import SegmentIndex
from callboard.log.segments.index_file import decode_stored
from callboard.offline import files_below
from callboard.recordings.writer import new_recording
from callboard.spark.partition_logs import WantedRecords
from callboard.spark.slice_reading import read_slice
from callboard.spark.slices import Division, Slice, plan

SEGMENT = 256 * 1024
Rows = list[tuple[int, bytes]]
Found = tuple[Rows, set[int]]
"""Offsets and values, and the offsets that are lost."""


def slice_of(path: str, base: int, end: int) -> Slice:
    """A whole segment of the recording at `path`."""
    folder, name = str(Path(path).parent), Path(path).name
    return Slice(
        topic="day",
        partition=0,
        root=folder,
        directory=f"{name}/0",
        base_offset=base,
        end_offset=end,
        start=base,
        stop=end,
        is_recorded=True,
    )


def divisions(piece: Slice) -> st.SearchStrategy[Division]:
    """Any that leads to some hundred tasks at most."""
    count = piece.stop - piece.start
    return st.builds(
        Division, st.none() | st.integers(max(1, count // 100), count + 1), st.integers(1, min(count, 100))
    )


def found_in(pieces: list[Slice]) -> Found:
    """What the slices hold, one after the other."""
    rows: Rows = []
    lost: set[int] = set()
    for piece in pieces:
        for columns in read_slice(piece, lambda first, last: lost.update(range(first, last + 1))):
            assert all(piece.start <= offset < piece.stop for offset in columns.offset_list())
            rows += zip(columns.offset_list(), map(bytes, columns.value_list()), strict=True)
    return rows, lost


async def record(folder: Path, sizes: list[int], values: list[int], kind: str) -> None:
    """A recording `day` of batches of `sizes` records, whose values have these lengths in turn."""
    draw = random.Random(7)
    number = 0
    async with (
        files_below(str(folder), writable=True) as files,
        new_recording(files, "day", partitions=1, compression=Compression(kind)) as writer,
    ):
        for size in sizes:
            bodies = [
                draw.randbytes(values[(number + place) % len(values)]) + b"%d" % place
                for place in range(size)
            ]
            await writer.append(0, Columns.build(bodies, event_times=[1] * size))
            number += size


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Slice]:
    """Recordings of one segment with about ten entries in its index, one batch of 400 and many of 1 to 20 records."""
    whole: dict[str, Slice] = {}
    for kind in ("none", "zstd"):
        folder = tmp_path_factory.mktemp(kind)
        sizes = [1 + each % 20 for each in range(100)] + [400] + [7] * 100
        trio.run(record, folder, sizes, [10, 900, 0, 200], kind)
        (whole[kind],) = trio.run(plan, WantedRecords(path=str(folder / "day")))
    return whole


def paths(piece: Slice) -> tuple[Path, Path]:
    """The segment and its index."""
    return Path(piece.path), Path(piece.path).with_suffix(".index")


def wrong_index(index: SegmentIndex, draw: random.Random) -> bytes:
    """One whose checksums hold, and whose entries say something else than the segment does."""
    kind = draw.choice(("shifted", "moved", "ahead", "fewer"))
    for place in range(len(index)):
        if kind == "shifted":
            index.positions[place] += 1
        elif kind == "moved" and place:
            index.positions[place] = index.positions[place - 1] + 56
        elif kind == "ahead":
            index.positions[place] += 2**62
    if kind == "ahead":
        index.end_position = 2**63
    if kind == "fewer":
        del index.offsets[1::2], index.times[1::2], index.positions[::2]
        del index.positions[len(index.offsets) :], index.offsets[len(index.positions) :]
        del index.times[len(index.positions) :]
    return index.encode()


@given(data=st.data(), kind=st.sampled_from(["none", "zstd"]))
def test_however_a_segment_is_divided_the_rows_are_the_same(
    made: dict[str, Slice], data: Any, kind: str
) -> None:
    """Also where the index is gone, torn or wrong, and where the segment is damaged; what is lost is the same too."""
    piece = made[kind]
    segment, index = paths(piece)
    whole, stored = segment.read_bytes(), index.read_bytes()
    draw = random.Random(data.draw(st.integers(0, 2**32), label="seed"))
    fault = data.draw(st.sampled_from(["none", "gone", "torn", "wrong", "folder"]), label="index")
    damages = data.draw(st.integers(0, 3), label="damages")
    try:
        bad = bytearray(whole)
        for _ in range(damages):
            at = draw.randrange(128, len(bad))
            bad[at : at + draw.choice((1, 50, 5_000))] = b"" if draw.random() < 0.1 else draw.randbytes(1)
        segment.write_bytes(bad)
        expected = found_in([piece])
        if fault != "none":
            index.unlink()
        if fault == "torn":
            index.write_bytes(stored[: draw.randrange(len(stored))])
        elif fault == "wrong":
            index.write_bytes(wrong_index(decode_stored(stored), draw))
        elif fault == "folder":
            index.mkdir()
        start = data.draw(st.integers(piece.start, piece.stop - 1), label="start")
        part = attrs.evolve(piece, start=start)
        division = data.draw(divisions(part), label="division")
        pieces = division.divide([part])
        rows, lost = found_in(pieces)
        assert rows == [row for row in expected[0] if row[0] >= start]
        assert lost == {offset for offset in expected[1] if offset >= start}
    finally:
        if index.is_dir():
            index.rmdir()
        segment.write_bytes(whole)
        index.write_bytes(stored)


@given(
    lengths=st.lists(st.integers(1, 1_000), max_size=20),
    records_max=st.none() | st.integers(1, 1_000),
    tasks_min=st.integers(1, 100),
)
def test_a_division_keeps_its_word(lengths: list[int], records_max: int | None, tasks_min: int) -> None:
    """No task has more records than it may, there are as many tasks as asked for, and each offset is in one."""
    slices, base = [], 5
    for length in lengths:
        slices.append(slice_of("/day", base, base + length))
        base += length
    parts = Division(records_max, tasks_min).divide(slices)
    offsets = [offset for part in parts for offset in range(part.start, part.stop)]
    assert offsets == list(range(5, base))
    assert all(0 < part.stop - part.start <= (records_max or 1_000) for part in parts)
    assert len(parts) >= min(tasks_min, sum(lengths))
    if records_max is None:
        assert len(parts) <= max(len(lengths), tasks_min + len(lengths))
        if len(lengths) >= tasks_min:
            assert parts == slices


def test_a_division_into_very_many_tasks_is_refused() -> None:
    """Before they are made, and with what to do."""
    for division in (Division(1), Division(None, 2**62)):
        with pytest.raises(
            InvalidArgument, match=r"the read would be [\d,]+ tasks.*Raise maxRecordsPerPartition"
        ):
            division.divide([slice_of("/day", 0, 2**62)])


def bytes_read() -> int:
    """What this process has read from files so far."""
    (line,) = [line for line in Path("/proc/self/io").read_text().splitlines() if line.startswith("rchar")]
    return int(line.split()[1])


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="the system does not count what is read")
async def test_a_task_reads_its_part_of_the_segment(tmp_path: Path) -> None:
    """Sixteen tasks read a segment about once, of a recording and of a topic; without its index, many times."""
    path = str(tmp_path / "data")
    async with callboard.open_runtime(path) as runtime:
        topic = await runtime.create_topic("web")
        for first in range(0, 32_000, 400):
            await topic.publish_batch([b"%d " % (first + each) + bytes(1_000) for each in range(400)])
    (piece,) = await plan(WantedRecords(path=path, topic="web"))
    size = 32_000_000
    parts = Division(None, 16).divide([piece])
    assert len(parts) == 16

    def read_all() -> int:
        before = bytes_read()
        rows, lost = found_in(parts)
        assert [offset for offset, _ in rows] == list(range(32_000))
        assert not lost
        return bytes_read() - before

    assert await trio.to_thread.run_sync(read_all) < 2 * size
    await trio.Path(paths(piece)[1]).unlink()
    assert await trio.to_thread.run_sync(read_all) > 4 * size


async def test_a_divided_read_goes_on_beside_a_writer(tmp_path: Path) -> None:
    """The segment that is written to is divided as far as it was committed; what comes later is for the next read."""
    path = str(tmp_path / "data")
    async with callboard.open_runtime(path) as runtime:
        topic = await runtime.create_topic("web", segment_bytes=SEGMENT)
        end = 0
        for _ in range(10):
            pieces = await plan(WantedRecords(path=path, topic="web"))
            await topic.publish_batch([b"%d " % each + bytes(500) for each in range(150)])
            parts = Division(37, 8).divide(pieces)
            rows, lost = await trio.to_thread.run_sync(found_in, parts)
            assert [offset for offset, _ in rows] == list(range(end))
            assert not lost
            end += 150
