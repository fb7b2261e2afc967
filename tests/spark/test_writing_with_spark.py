"""`frame.write.format("callboard")` in a real session."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path
from typing import Any

import pytest
import trio

from callboard.log.errors import RecordingInvalid
from callboard.offline import recording_at
from callboard.recordings.manifest import Manifest
from callboard.spark.partition_logs import read_manifest


def manifest_of(path: Path) -> Manifest:
    """After a look at every byte."""

    async def work() -> Manifest:
        async with recording_at(str(path)) as recording:
            assert not await recording.faults()
            return recording.manifest

    return trio.run(work)


def write(frame: Any, path: Path, **options: str) -> None:
    """Write a recording."""
    writer = frame.write.format("callboard").mode("append")
    for name, value in options.items():
        writer = writer.option(name, value)
    writer.save(str(path))


def test_what_was_read_is_written_with_everything(reads: Any, recording: str, tmp_path: Path) -> None:
    """Placed by the column `partition`; offsets are given anew, and are the same here."""
    whole = reads(recording)
    placed = whole.repartition(2, "partition").sortWithinPartitions("partition", "timestamp")
    write(placed, tmp_path / "copy", partitions="3", source='{"made_by": "a test"}')
    manifest = manifest_of(tmp_path / "copy")
    assert [row.records for row in manifest.partitions] == [1_000, 1_000, 0]
    assert (manifest.keys, dict(manifest.source)) == ((7, True), {"made_by": "a test"})
    assert reads(str(tmp_path / "copy")).drop("topic").exceptAll(whole.drop("topic")).count() == 0


@pytest.mark.parametrize("tasks", [1, 3])
def test_the_same_rows_are_the_same_bytes(reads: Any, recording: str, tmp_path: Path, tasks: int) -> None:
    """However many tasks there are; another seed is another recording."""
    placed = reads(recording).repartition(tasks, "partition").sortWithinPartitions("partition", "timestamp")
    write(placed, tmp_path / "copy", seed="a")
    assert manifest_of(tmp_path / "copy").digest == (
        "7bd6185dc775be583e8e874e6c69ec0b9190187ae79ff68d8d02519d5388e83f"
    )
    if tasks == 1:
        write(placed, tmp_path / "other", seed="b")
        assert manifest_of(tmp_path / "other").digest != manifest_of(tmp_path / "copy").digest


def test_without_the_column_each_task_writes_a_partition(spark: Any, reads: Any, tmp_path: Path) -> None:
    """Also one that has no rows."""
    frame = spark.range(0, 10, 1, 4).selectExpr("id as timestamp", "cast(cast(id as string) as binary) value")
    write(frame.where("id >= 3"), tmp_path / "r")
    assert [row.records for row in manifest_of(tmp_path / "r").partitions] == [0, 2, 2, 3]
    rows = reads(str(tmp_path / "r")).orderBy("timestamp").collect()
    assert [(row.timestamp, row.value) for row in rows] == [
        (number, b"%d" % number) for number in range(3, 10)
    ]


@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        ("id as timestamp", {}, "needs the columns"),
        ("id as timestamp; binary('') value; id as colour", {}, "no column 'colour'"),
        ("id as timestamp; binary('') value; id % 2 as partition", {}, "Partition and sort them first"),
        (
            "id as timestamp; binary('') value; id as partition",
            {"partitions": "3"},
            r"for partition \d, and there are 0 to 2",
        ),
        (
            "id as timestamp; binary('') value; id + 5000000000 as partition",
            {},
            "column `partition` is int64",
        ),
        ("id as timestamp; binary('') value", {"partitions": "3"}, "needs a column `partition`"),
        ("id as timestamp; binary('') value", {"segmentBytes": "1"}, "segmentBytes is 1"),
        ("id as timestamp; binary('') value", {"compression": "rar"}, "compression 'rar' is unknown"),
        ("id as timestamp; binary('') value", {"source": "[]"}, "texts by name"),
        ("id as timestamp; binary('') value", {"colour": "red"}, "no option 'colour'"),
        ("id as timestamp; binary(repeat('x', 70000)) key; binary('') value", {}, "key has 70000 bytes"),
    ],
)
def test_what_cannot_be_written_leaves_nothing(
    spark: Any, reads: Any, tmp_path: Path, columns: str, options: dict[str, str], words: str
) -> None:
    """Whether it is found before the tasks, in one, or when they have ended."""
    frame = spark.range(0, 8, 1, 2).selectExpr(*columns.split("; "))
    with pytest.raises(Exception, match=words):
        write(frame, tmp_path / "r", **options)
    assert not list(tmp_path.iterdir())


def test_what_is_removed_stays_removed(spark_packages: None, tmp_path: Path) -> None:
    """Although another task goes on writing there."""
    from callboard.spark import files

    for _ in range(20):
        folder = tmp_path / "r.unfinished"
        (folder / "0.1").mkdir(parents=True)
        began = threading.Event()

        def write_on(inner: Path, began: threading.Event) -> None:
            with contextlib.suppress(OSError):
                for number in range(20_000):
                    (inner / f"{number}").touch()
                    if number == 20:
                        began.set()

        writer = threading.Thread(target=write_on, args=(folder / "0.1", began))
        writer.start()
        began.wait()
        files.remove(str(folder))
        writer.join()
        assert not list(tmp_path.iterdir())


def test_a_recording_is_never_replaced(spark: Any, reads: Any, tmp_path: Path) -> None:
    """Neither by appending nor by overwriting."""
    frame = spark.range(2).selectExpr("id as timestamp", "binary('') as value")
    write(frame, tmp_path / "r")
    digest = manifest_of(tmp_path / "r").digest
    with pytest.raises(Exception, match="is there already"):
        write(frame, tmp_path / "r")
    with pytest.raises(Exception, match="never changed"):
        frame.write.format("callboard").mode("overwrite").save(str(tmp_path / "r"))
    assert manifest_of(tmp_path / "r").digest == digest


def test_a_task_that_fails_leaves_nothing(spark: Any, reads: Any, tmp_path: Path) -> None:
    """Although others have written all of theirs."""
    frame = spark.range(0, 4, 1, 4).selectExpr(
        "id as timestamp", "binary(if(id = 3, raise_error('no more'), 'x')) as value"
    )
    with pytest.raises(Exception, match="no more"):
        write(frame, tmp_path / "r")
    assert not list(tmp_path.iterdir())
    with pytest.raises(RecordingInvalid):
        read_manifest(str(tmp_path / "r"))
