"""Which segments a read takes, and what it finds in them. Without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import callboard
from callboard.log.errors import InvalidArgument, LogCorrupt, OffsetOutOfRange, RecordingInvalid
from callboard.spark.slices import Slice, Wanted, plan, read_slice

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


def remove(piece: Slice) -> None:
    """Remove the slice's file."""
    Path(piece.path).unlink()


def offsets(pieces: list[Slice], **options: Any) -> list[int]:
    """The offsets of all records of the slices."""
    return [
        offset
        for piece in pieces
        for columns in read_slice(piece, **options)
        for offset in columns.offset_list()
    ]


async def test_a_slice_is_a_segment(directory: str) -> None:
    """Together they hold everything, once."""
    pieces = await plan(Wanted(path=directory, topic="web"))
    assert len(pieces) > 4
    assert offsets([piece for piece in pieces if piece.partition == 0]) == list(range(300))
    assert offsets([piece for piece in pieces if piece.partition == 1]) == list(range(5))
    assert {piece.label for piece in pieces} == {"web/0", "web/1"}


@pytest.mark.parametrize(
    ("start", "stop"), [(0, 1), (5, 15), (0, 300), (123, 257), (299, 300), (7, 7), (300, 400)]
)
async def test_offsets_choose_segments_and_records(directory: str, start: int, stop: int) -> None:
    """Also within a batch; segments without a wanted record are no slices."""
    wanted = Wanted(
        path=directory, topic="web", partitions=frozenset({0}), start_offset=start, stop_offset=stop
    )
    pieces = await plan(wanted)
    assert offsets(pieces) == list(range(start, min(stop, 300)))
    assert len(pieces) <= 1 + (stop - start) // 10


async def test_a_read_ends_where_the_partition_ended_when_it_was_planned(directory: str) -> None:
    """What is published meanwhile is for the next read."""
    pieces = await plan(Wanted(path=directory, topic="web", partitions=frozenset({1})))
    async with callboard.open_runtime(directory) as runtime:
        await runtime.topic("web").publish_batch([b"x"] * 10, partition=1)
        assert offsets(pieces) == list(range(5))
        pieces = await plan(Wanted(path=directory, topic="web", partitions=frozenset({1})))
        assert offsets(pieces) == list(range(15))


async def test_damage_is_refused_by_offset_or_named(directory: str) -> None:
    """Strictly it raises; told whom to tell, it goes on."""
    pieces = await plan(Wanted(path=directory, topic="web", partitions=frozenset({0})))
    overwrite(pieces[1], 15_000, b"\xff\x00\xff")
    with pytest.raises(LogCorrupt, match=r"web/0: offsets \d+ to \d+ are damaged") as caught:
        offsets(pieces)
    lost: list[tuple[int, int]] = []
    found = offsets(pieces, lost=lambda first, last: lost.append((first, last)))
    assert lost == [caught.value.offsets]
    first, last = lost[0]
    assert last - first == 9
    assert found == [offset for offset in range(300) if not first <= offset <= last]
    overwrite(pieces[1], 0, bytes(128))
    lost.clear()
    offsets(pieces, lost=lambda first, last: lost.append((first, last)))
    assert lost == [(pieces[1].start, pieces[1].stop - 1)]


async def test_a_segment_that_retention_removed_has_a_name(directory: str) -> None:
    """The error says what happened, and what to do."""
    pieces = await plan(Wanted(path=directory, topic="web"))
    remove(pieces[0])
    with pytest.raises(OffsetOutOfRange, match="retention removed it"):
        offsets(pieces)


async def test_what_is_not_there_is_refused_when_the_read_is_planned(directory: str, tmp_path: Path) -> None:
    """A topic, a partition, a directory; a directory without the name of a topic."""
    with pytest.raises(callboard.TopicNotFound, match="Did you mean 'web'"):
        await plan(Wanted(path=directory, topic="wep"))
    with pytest.raises(InvalidArgument, match="no partition 2"):
        await plan(Wanted(path=directory, topic="web", partitions=frozenset({2})))
    with pytest.raises(InvalidArgument, match=r"\.option\('topic'"):
        await plan(Wanted(path=directory))
    with pytest.raises(callboard.StorageError, match="no directory"):
        await plan(Wanted(path=str(tmp_path / "nowhere"), topic="web"))
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "recording.json").write_text("{}")
    with pytest.raises(RecordingInvalid):
        await plan(Wanted(path=str(tmp_path / "broken")))
