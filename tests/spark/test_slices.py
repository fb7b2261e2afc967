"""Which segments a read takes, and what it finds in them. Without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

import callboard
from callboard.log.errors import InvalidArgument, LogCorrupt, OffsetOutOfRange, RecordingInvalid
from callboard.log.format.columns import Columns
from callboard.message import to_us
from callboard.offline import files_below
from callboard.recordings.reader import Span
from callboard.recordings.writer import new_recording
from callboard.spark.partition_logs import WantedRecords, read_manifest
from callboard.spark.slice_reading import read_slice
from callboard.spark.slices import Slice, plan

SEGMENT = 65_536
VALUE = bytes(1_000)


@pytest.fixture
async def directory(tmp_path: Path) -> str:
    """A runtime's directory: topic `web`, 300 records in batches of 10 in partition 0, 5 in partition 1."""
    path = str(tmp_path / "data")
    async with callboard.open_runtime(path) as runtime:
        topic = await runtime.create_topic("web", partitions=2, segment_bytes=SEGMENT)
        for first in range(0, 300, 10):
            values = [b"%d " % number + VALUE for number in range(first, first + 10)]
            await topic.publish_batch(values, partition=0)
        await topic.publish_batch([b"a", b"b", b"c", b"d", b"e"], partition=1)
    return path


def overwrite(piece: Slice, position: int, data: bytes) -> None:
    """Put `data` into the slice's file."""
    with open(piece.path, "r+b") as file:
        file.seek(position)
        file.write(data)


def copy(piece: Slice, name: str) -> None:
    """Copy the slice's file to another name in its folder."""
    path = Path(piece.path)
    path.with_name(name).write_bytes(path.read_bytes())


def remove(piece: Slice) -> None:
    """Remove the slice's file."""
    Path(piece.path).unlink()


async def offsets(pieces: list[Slice], **options: Any) -> list[int]:
    """The offsets of all records of the slices, read in a thread: a task has no trio run around it."""
    return await trio.to_thread.run_sync(lambda: _offsets(pieces, **options))


def _offsets(pieces: list[Slice], **options: Any) -> list[int]:
    return [
        offset
        for piece in pieces
        for columns in read_slice(piece, **options)
        for offset in columns.offset_list()
    ]


async def test_a_slice_is_a_segment(directory: str) -> None:
    """Together they hold everything, once."""
    pieces = await plan(WantedRecords(path=directory, topic="web"))
    assert len(pieces) > 4
    assert await offsets([piece for piece in pieces if piece.partition == 0]) == list(range(300))
    assert await offsets([piece for piece in pieces if piece.partition == 1]) == list(range(5))
    assert {piece.label for piece in pieces} == {"web/0", "web/1"}


@pytest.mark.parametrize(
    ("start", "stop"), [(0, 1), (5, 15), (0, 300), (123, 257), (299, 300), (7, 7), (300, 400)]
)
async def test_offsets_choose_segments_and_records(directory: str, start: int, stop: int) -> None:
    """Also within a batch; segments without a wanted record are no slices."""
    wanted = WantedRecords(
        path=directory, topic="web", partitions=frozenset({0}), start_offset=start, stop_offset=stop
    )
    pieces = await plan(wanted)
    assert await offsets(pieces) == list(range(start, min(stop, 300)))
    assert len(pieces) <= 1 + (stop - start) // 10


async def test_a_read_ends_where_the_partition_ended_when_it_was_planned(directory: str) -> None:
    """What is published meanwhile is for the next read."""
    pieces = await plan(WantedRecords(path=directory, topic="web", partitions=frozenset({1})))
    async with callboard.open_runtime(directory) as runtime:
        await runtime.topic("web").publish_batch([b"x"] * 10, partition=1)
        assert await offsets(pieces) == list(range(5))
        pieces = await plan(WantedRecords(path=directory, topic="web", partitions=frozenset({1})))
        assert await offsets(pieces) == list(range(15))


async def test_damage_is_refused_by_offset_or_named(directory: str) -> None:
    """Strictly it raises; told whom to tell, it goes on."""
    pieces = await plan(WantedRecords(path=directory, topic="web", partitions=frozenset({0})))
    overwrite(pieces[1], 15_000, b"\xff\x00\xff")
    with pytest.raises(LogCorrupt, match=r"web/0: offsets \d+ to \d+ are damaged") as caught:
        await offsets(pieces)
    lost: list[tuple[int, int]] = []
    found = await offsets(pieces, lost=lambda first, last: lost.append((first, last)))
    assert lost == [caught.value.offsets]
    first, last = lost[0]
    assert last - first == 9
    assert found == [offset for offset in range(300) if not first <= offset <= last]
    overwrite(pieces[1], 0, bytes(128))
    lost.clear()
    await offsets(pieces, lost=lambda first, last: lost.append((first, last)))
    assert lost == [(pieces[1].start, pieces[1].stop - 1)]


async def test_a_segment_that_retention_removed_has_a_name(directory: str) -> None:
    """The error says what happened, and what to do."""
    pieces = await plan(WantedRecords(path=directory, topic="web"))
    remove(pieces[0])
    with pytest.raises(OffsetOutOfRange, match="retention removed it"):
        await offsets(pieces)


async def test_what_is_not_there_is_refused_when_the_read_is_planned(directory: str, tmp_path: Path) -> None:
    """A topic, a partition, a directory; a directory without the name of a topic."""
    with pytest.raises(callboard.TopicNotFound, match="Did you mean 'web'"):
        await plan(WantedRecords(path=directory, topic="wep"))
    with pytest.raises(InvalidArgument, match="no partition 2"):
        await plan(WantedRecords(path=directory, topic="web", partitions=frozenset({2})))
    with pytest.raises(InvalidArgument, match=r"\.option\('topic'"):
        await plan(WantedRecords(path=directory))
    with pytest.raises(callboard.StorageError, match="no directory"):
        await plan(WantedRecords(path=str(tmp_path / "nowhere"), topic="web"))
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "recording.json").write_text("{}")
    with pytest.raises(RecordingInvalid):
        await plan(WantedRecords(path=str(tmp_path / "broken")))


async def test_what_was_moved_since_it_was_planned_is_found(tmp_path: Path) -> None:
    """The log's segments may be others by the time a task reads; the records are the same."""
    path = str(tmp_path / "data")
    batches = [
        [b"%d " % number + VALUE for number in range(first, first + 10)] for first in range(0, 300, 10)
    ]
    async with callboard.open_runtime(path) as runtime:
        topic = await runtime.create_topic("web")
        for values in batches:
            await topic.publish_batch(values)
    (piece,) = await plan(WantedRecords(path=path, topic="web"))
    async with (
        files_below(str(tmp_path), writable=True) as files,
        new_recording(files, "same", partitions=1, segment_bytes=SEGMENT) as writer,
    ):
        for values in batches:
            await writer.append(0, Columns.build(values, event_times=[1] * 10))
    remove(piece)
    for file in (tmp_path / "same" / "0").glob("*.log"):
        file.rename(Path(piece.path).with_name(file.name))
    assert len(await plan(WantedRecords(path=path, topic="web"))) > 3
    assert await offsets([piece]) == list(range(300))


async def test_a_file_of_another_segment_is_no_part_of_the_log(directory: str) -> None:
    """Its name says where it begins, and its header says something else."""
    pieces = await plan(WantedRecords(path=directory, topic="web", partitions=frozenset({0})))
    copy(pieces[0], f"{pieces[1].base_offset + 10:020}.log")
    again = await plan(WantedRecords(path=directory, topic="web", partitions=frozenset({0})))
    assert [piece.path for piece in again] == [piece.path for piece in pieces]
    assert await offsets(again) == list(range(300))


async def make_recording(folder: Path) -> str:
    """Two partitions of five records: one of the first seconds, one of the hour after."""
    async with (
        files_below(str(folder), writable=True) as files,
        new_recording(files, "day", partitions=2) as writer,
    ):
        for partition in range(2):
            times = [3_600_000_000 * partition + 1_000_000 * second for second in range(5)]
            await writer.append(partition, Columns.build([b"x"] * 5, event_times=times))
    return str(folder / "day")


async def test_time_passes_over_partitions_of_a_recording(tmp_path: Path) -> None:
    """Its manifest knows their first and last times."""
    path = await make_recording(tmp_path)
    spans = [Span(None, 5_000_000), Span(3_600_000_000, None), Span(10_000_000, 20_000_000), Span()]
    found = [[piece.partition for piece in await plan(WantedRecords(path=path, span=span))] for span in spans]
    assert found == [[0], [1], [], [0, 1]]


async def test_append_times_pass_over_what_was_appended_before(directory: str) -> None:
    """The index of a segment knows when its records were appended."""
    async with callboard.open_runtime(directory) as runtime:
        topic = runtime.topic("web")
        async for record in topic.read(start=100, partition=0):
            middle = record.append_time
            break
    wanted = WantedRecords(
        path=directory, topic="web", partitions=frozenset({0}), appended=Span(to_us(middle))
    )
    first, *_ = await offsets(await plan(wanted))
    assert 0 < first <= 100


async def test_a_recording_that_lacks_a_file_is_not_whole(tmp_path: Path) -> None:
    """Retention has no part in it: nothing removes files of a recording."""
    path = await make_recording(tmp_path)
    pieces = await plan(WantedRecords(path=path))
    remove(pieces[0])
    with pytest.raises(RecordingInvalid, match=r"is missing: the recording is not whole"):
        await offsets(pieces)
    with pytest.raises(RecordingInvalid):
        await trio.to_thread.run_sync(read_manifest, path)


async def test_a_partition_without_its_end_is_not_empty(tmp_path: Path) -> None:
    """A read is planned only when each partition has the records of the manifest."""
    path = await make_recording(tmp_path)
    (Path(path) / "0" / "committed").unlink()
    with pytest.raises(
        RecordingInvalid, match=r"partition 0 is to hold offsets 0 to \d+.*0/committed, is gone"
    ):
        await plan(WantedRecords(path=path))


async def test_damage_of_a_recording_is_not_to_be_repaired(tmp_path: Path) -> None:
    """The advice is one that can be followed."""
    path = await make_recording(tmp_path)
    pieces = await plan(WantedRecords(path=path))
    overwrite(pieces[0], 200, b"\xff\x00\xff")
    with pytest.raises(LogCorrupt, match="Take another copy of the recording, or read what is left"):
        await offsets(pieces)
