"""From slices to record batches: how much is held, and what is reported. Without Spark."""

from __future__ import annotations

import json
import tracemalloc
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

import callboard
from callboard.log.errors import InvalidArgument, OffsetOutOfRange
from callboard.log.format.columns import Columns
from callboard.log.format.compression import Compression
from callboard.log.limits import MIB
from callboard.offline import files_below
from callboard.recordings.writer import new_recording
from callboard.spark.partition_logs import WantedRecords
from callboard.spark.slices import Division, Slice, plan

LARGE = 1 * MIB


def recording(folder: Path, frames: int, value: bytes, **source: str) -> list[Slice]:
    """A compressed recording of so many frames of one record; its slices."""

    async def make() -> list[Slice]:
        zstd = Compression("zstd")
        async with (
            files_below(str(folder), writable=True) as files,
            new_recording(files, "day", partitions=1, compression=zstd, source=source) as writer,
        ):
            for number in range(frames):
                await writer.append(0, Columns.build([value], [b"%d" % number], event_times=[number]))
        return await plan(WantedRecords(path=str(folder / "day")))

    return trio.run(make)


@pytest.fixture
def read(options: Any, batches: Any) -> Any:
    """Reads a slice with options."""

    def read_with(piece: Slice, **found: str) -> Any:
        return batches.read_batches(options.ReadOptions.parse({"path": "day", **found}), piece)

    return read_with


@pytest.mark.parametrize("columns", ["key,value", "key"])
def test_a_task_holds_some_frames_however_well_they_are_compressed(
    read: Any, tmp_path: Path, columns: str
) -> None:
    """A hundred MiB lie in some KiB of the file; a few of them are in memory, also when they are not wanted."""
    (piece,) = recording(tmp_path, 100, bytes(LARGE))
    assert Path(piece.path).stat().st_size < 100_000
    keys = []
    tracemalloc.start()
    try:
        for batch in read(piece, columns=columns):
            keys += batch.column("key").to_pylist()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert keys == [b"%d" % number for number in range(100)]
    assert peak < 12 * LARGE


def test_small_frames_are_put_together(read: Any, tmp_path: Path) -> None:
    """For what Spark does for each batch."""
    (piece,) = recording(tmp_path, 5_000, b"x")
    assert [batch.num_rows for batch in read(piece)] == [4_096, 904]


def damage(piece: Slice) -> None:
    """Flip a bit of the slice's first frame."""
    data = bytearray(Path(piece.path).read_bytes())
    data[200] ^= 1
    Path(piece.path).write_bytes(data)


def test_a_report_stays_in_its_folder(read: Any, tmp_path: Path) -> None:
    """Whatever a recording says that its topic was called."""
    (piece,) = recording(tmp_path, 3, b"x", topic="../../../escaped")
    damage(piece)
    report = tmp_path / "reports" / "deep"
    assert sum(batch.num_rows for batch in read(piece, mode="permissive", report=str(report))) == 2
    (found,) = report.iterdir()
    assert json.loads(found.read_text())["topic"] == "../../../escaped"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["day", "reports"]


def test_what_was_found_is_reported_when_the_task_is_cut_short(read: Any, tmp_path: Path) -> None:
    """By a limit, for example."""
    (piece,) = recording(tmp_path, 10_000, b"x")
    damage(piece)
    rows = read(piece, mode="permissive", report=str(tmp_path / "report"))
    next(rows)
    rows.close()
    (found,) = (tmp_path / "report").iterdir()
    assert json.loads(found.read_text())["lost"] == [[0, 0]]


def test_a_report_of_damage_that_is_gone_is_removed(read: Any, tmp_path: Path) -> None:
    """When the same slice is read whole later."""
    (piece,) = recording(tmp_path, 3, b"x")
    whole = Path(piece.path).read_bytes()
    damage(piece)
    options = {"mode": "permissive", "report": str(tmp_path / "report")}
    list(read(piece, **options))
    assert len(list((tmp_path / "report").iterdir())) == 1
    Path(piece.path).write_bytes(whole)
    list(read(piece, **options))
    assert not list((tmp_path / "report").iterdir())


def test_tasks_of_one_segment_report_apart(read: Any, tmp_path: Path) -> None:
    """So do micro-batches of a stream: what one reports, the next one, which finds nothing, leaves alone."""
    (piece,) = recording(tmp_path, 10, b"x")
    damage(piece)
    options = {"mode": "permissive", "report": str(tmp_path / "report")}
    for part in Division(5).divide([piece]):
        list(read(part, **options))
    (found,) = (tmp_path / "report").iterdir()
    assert json.loads(found.read_text())["lost"] == [[0, 0]]


@pytest.mark.parametrize(("columns", "words"), [("key,key", "names 'key' twice"), ("", "no column ''")])
def test_columns_are_named_once_each(options: Any, columns: str, words: str) -> None:
    """None at all is no choice."""
    with pytest.raises(InvalidArgument, match=words):
        options.ReadOptions.parse({"path": "day", "columns": columns})


def test_what_retention_removed_is_passed_over_and_reported(options: Any, read: Any, tmp_path: Path) -> None:
    """With `failOnDataLoss=false` a planned read goes on behind it; without, it fails and says how to go on."""
    directory = str(tmp_path / "data")

    async def publish(rounds: int, **settings: int) -> None:
        async with callboard.open_runtime(directory) as runtime:
            topic = await runtime.create_topic("web", partitions=1, segment_bytes=65_536)
            if settings:
                topic = await runtime.alter_topic("web", **settings)
            for _ in range(rounds):
                await topic.publish(bytes(20_000))
            with trio.fail_after(120):
                while settings and (await topic.describe())[0].start_offset < 5:
                    await topic.publish(bytes(20_000))

    trio.run(publish, 12)
    pieces = trio.run(plan, WantedRecords(path=directory, topic="web"))
    trio.run(partial(publish, 0, retention_bytes=131_072))
    report = tmp_path / "report"
    with pytest.raises(OffsetOutOfRange, match="'failOnDataLoss', 'false'"):
        list(read(pieces[0], columns="offset"))
    found: list[int] = []
    for piece in pieces:
        for batch in read(piece, columns="offset", failOnDataLoss="false", report=str(report)):
            found += batch.column("offset").to_pylist()
    reports = [json.loads(each.read_text()) for each in report.iterdir()]
    assert all(each["lost"] == [] for each in reports)
    removed = {
        offset for each in reports for first, last in each["removed"] for offset in range(first, last + 1)
    }
    assert removed
    assert sorted([*found, *removed]) == list(range(12))


def test_a_topic_that_was_deleted_is_removed_to_the_end(read: Any, tmp_path: Path) -> None:
    """The read ends, and its report names all that it did not get."""
    directory = str(tmp_path / "data")

    async def story() -> None:
        async with callboard.open_runtime(directory) as runtime:
            topic = await runtime.create_topic("web", partitions=1)
            await topic.publish_batch([b"x"] * 10)

    async def delete() -> None:
        async with callboard.open_runtime(directory) as runtime:
            await runtime.delete_topic("web")

    trio.run(story)
    (piece,) = trio.run(plan, WantedRecords(path=directory, topic="web"))
    trio.run(delete)
    with pytest.raises(OffsetOutOfRange, match="the topic was deleted"):
        list(read(piece))
    report = tmp_path / "report"
    assert list(read(piece, failOnDataLoss="false", report=str(report))) == []
    (found,) = [json.loads(each.read_text()) for each in report.iterdir()]
    assert (found["removed"], found["lost"]) == ([[0, 9]], [])


def test_times_become_instants(read: Any, tmp_path: Path) -> None:
    """Microseconds stay what they are; what was not given is null."""
    (piece,) = recording(tmp_path, 3, b"x")
    (batch,) = read(piece, timestampType="timestamp", columns="timestamp,value,expiry")
    assert str(batch.schema.field("timestamp").type) == "timestamp[us, tz=UTC]"
    assert batch.column("timestamp").cast("int64").to_pylist() == [0, 1, 2]
    assert batch.column("expiry").to_pylist() == [None] * 3


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"startOffset": '{"0": "noon"}'}, "is no JSON object such as"),
        ({"startOffset": '{"x": 1}'}, "is no JSON object such as"),
        ({"startOffset": "noon"}, "'noon' is no number"),
        ({"startOffset": '{"0": 1'}, "is no JSON object such as"),
        ({"startOffset": "7", "appendedFrom": "2023-11-15"}, "Give one of them"),
        ({"appendedFrom": "noon"}, "is no instant"),
    ],
)
def test_a_start_that_cannot_be_is_refused(options: Any, asked: dict[str, str], words: str) -> None:
    """Before a stream begins."""
    with pytest.raises(InvalidArgument, match=words):
        options.StreamOptions.parse({"path": "data", "topic": "web", **asked})
