"""`spark.read.format("callboard")` in a real session."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trio

import callboard

RECORDS = 1_000


def test_a_recording_is_read_whole(reads: Any, recording: str, start_us: int) -> None:
    """One task a segment; counts and sums are those of what was written."""
    frame = reads(recording)
    assert frame.rdd.getNumPartitions() > 4
    row = frame.selectExpr(
        "count(*) as records",
        "count(key) as keyed",
        "count(distinct key) as keys",
        "sum(length(value)) as bytes",
        "min(timestamp) as first",
        "max(timestamp) as last",
        "sum(cast(cast(headers[0].value as string) as bigint)) as numbers",
    ).collect()[0]
    assert row.asDict() == {
        "records": 2 * RECORDS,
        "keyed": 2 * RECORDS * 9 // 10,
        "keys": 7,
        "bytes": 2 * sum(len(str(number)) + 200 for number in range(RECORDS)),
        "first": start_us,
        "last": start_us + 1_000_000 * (RECORDS - 1),
        "numbers": RECORDS * (RECORDS - 1),
    }


def test_options_choose_what_is_read(reads: Any, recording: str) -> None:
    """Columns, partitions, offsets, and instants."""
    chosen = {"partitions": "1", "startOffset": "150", "endOffset": "160", "columns": "offset, partition"}
    rows = reads(recording, **chosen).collect()
    assert sorted((row.offset, row.partition) for row in rows) == [(offset, 1) for offset in range(150, 160)]
    span = {"from": "2023-11-14T22:15:00+00:00", "to": "2023-11-14T22:16:00", "columns": "value"}
    assert reads(recording, **span).count() == 2 * 60


def test_a_segment_may_be_read_by_several_tasks(reads: Any, recording: str) -> None:
    """At least so many, or with so many records at most; the rows are the same."""
    rows = reads(recording, columns="partition,offset,value").collect()
    for asked, tasks in (({"minPartitions": "30"}, 30), ({"maxRecordsPerPartition": "70"}, 29)):
        frame = reads(recording, columns="partition,offset,value", **asked)
        assert frame.rdd.getNumPartitions() >= tasks
        assert frame.collect() == rows


def test_a_frame_may_be_used_again_and_twice_in_a_query(reads: Any, spark: Any, recording: str) -> None:
    """No query leaves its filters behind for another, also where the session lets filters be pushed down."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = reads(recording)
        one, other = frame.where("partition = 1"), frame.where("partition = 0 and offset < 100")
        assert (one.count(), other.count(), frame.count()) == (RECORDS, 100, 2 * RECORDS)
        assert one.unionAll(other).count() == RECORDS + 100
        assert other.alias("a").join(one.alias("b"), "offset").count() == 100
        assert frame.where("partition = 7").count() == 0
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_a_frame_reads_what_was_there_when_it_was_planned(reads: Any, tmp_path: Path) -> None:
    """Its later queries give the same rows; a new frame has what has been published since."""
    directory = str(tmp_path / "data")

    async def publish() -> None:
        async with callboard.open_runtime(directory) as runtime:
            topic = await runtime.create_topic("web", partitions=2)
            await topic.publish_batch([b"x"] * 100)

    trio.run(publish)
    frame = reads(directory, topic="web")
    assert frame.count() == 100
    trio.run(publish)
    assert (frame.count(), frame.unionAll(frame).count()) == (100, 200)
    assert reads(directory, topic="web").count() == 200


def test_a_live_topic_is_read_beside_its_owner(reads: Any, tmp_path: Path) -> None:
    """Up to where it was committed when the read was planned."""

    async def story() -> int:
        async with callboard.open_runtime(tmp_path / "data") as runtime:
            topic = await runtime.create_topic("web", partitions=3)
            await topic.publish_batch([b"%d" % number for number in range(500)])
            count: int = reads(str(tmp_path / "data"), topic="web").count()
            return count

    assert trio.run(story) == 500


def test_damage_fails_the_read_or_is_reported(reads: Any, recording: str, tmp_path: Path) -> None:
    """Strictly the offsets are named; permissively each task writes what it passed over."""
    path = min(Path(recording, "0").glob("*.log"))
    whole = path.read_bytes()
    path.write_bytes(whole[:5_000] + bytes([whole[5_000] ^ 1]) + whole[5_001:])
    try:
        with pytest.raises(Exception, match="offsets 0 to 99 are damaged"):
            reads(recording).count()
        report = tmp_path / "report"
        frame = reads(recording, mode="permissive", report=str(report))
        assert frame.count() == 2 * RECORDS - 100
        (found,) = [json.loads(each.read_text()) for each in report.iterdir()]
        assert (found["partition"], found["lost"]) == (0, [[0, 99]])
    finally:
        path.write_bytes(whole)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"mode": "hopeful"}, "mode is 'hopeful'"),
        ({"mode": "permissive"}, "give a folder for them"),
        ({"columns": "colour"}, "no column 'colour'"),
        ({"colour": "red"}, "no option 'colour'"),
        ({"startOffset": "-1"}, "no number from 0"),
        ({"from": "noon"}, "no instant"),
        ({"partitions": "2"}, "no partition 2"),
        ({"startOffset": "7", "endOffset": "7"}, "nothing lies between"),
        ({"from": "2023-11-15", "to": "2023-11-14"}, "the span of time is empty"),
        ({"pushdown": "true"}, "keeps the filters of the first query"),
        ({"timestampType": "date"}, "it is bigint"),
        ({"minPartitions": "0"}, "minPartitions is 0"),
        ({"maxRecordsPerPartition": "few"}, "no number from 0"),
        ({"failOnDataLoss": "perhaps"}, "it is true"),
        ({"failOnDataLoss": "false"}, "give a folder for them"),
    ],
)
def test_an_option_that_cannot_be_is_refused(
    reads: Any, recording: str, options: dict[str, str], words: str
) -> None:
    """Before any task runs."""
    with pytest.raises(Exception, match=words):
        reads(recording, **options).count()


def test_a_schema_chooses_the_columns(reads: Any, spark: Any, recording: str) -> None:
    """Those that it names are read, in its order; what cannot be had is refused before any task runs."""
    reader = spark.read.format("callboard")
    frame = reader.schema("offset bigint, timestamp timestamp, partition int").load(recording)
    assert frame.columns == ["offset", "timestamp", "partition"]
    assert frame.where("partition = 1 and timestamp >= '2023-11-14'").count() == RECORDS
    for schema, words in (
        ("offset bigint, colour string", "no column 'colour'"),
        ("offset int", "the schema has offset as int, and it is bigint"),
        ("expiry string", "as string, and it is bigint or timestamp"),
    ):
        with pytest.raises(Exception, match=words):
            reader.schema(schema).load(recording).count()


def test_times_may_be_instants(reads: Any, recording: str, start_us: int) -> None:
    """All of them with one option; those that are null stay so."""
    frame = reads(recording, timestampType="timestamp", columns="timestamp,append_time,expiry,value")
    assert [kind for _, kind in frame.dtypes] == ["timestamp", "timestamp", "timestamp", "binary"]
    row = frame.selectExpr("unix_micros(min(timestamp)) AS first", "count(expiry) AS expiries").first()
    assert (row["first"], row["expiries"]) == (start_us, 0)
    late = {"from": "2023-11-14T22:15:00+00:00", "to": "2023-11-14T22:16:00+00:00"}
    assert reads(recording, timestampType="timestamp", columns="timestamp", **late).count() == 120


def test_sql_reads_a_view_and_refuses_a_table(spark: Any, reads: Any, recording: str) -> None:
    """A view keeps its options; a table of the catalog would lose them, so making one is refused with the reason."""
    del reads
    options = f"USING callboard OPTIONS (path '{recording}', columns 'partition,offset')"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW days {options}")
    assert spark.sql("SELECT count(*), max(offset) FROM days WHERE partition = 1").first()[:] == (
        RECORDS,
        RECORDS - 1,
    )
    with pytest.raises(Exception, match="CREATE TEMPORARY VIEW name USING callboard"):
        spark.sql(f"CREATE TABLE lost {options}")
    assert not spark.catalog.tableExists("lost")
    # With columns, Spark makes the table without a question to its source.
    spark.sql(f"CREATE TABLE lost (partition int) USING callboard OPTIONS (path '{recording}')")
    try:
        with pytest.raises(Exception, match=r"forgets the options of a table.*CREATE TEMPORARY VIEW"):
            spark.sql("SELECT * FROM lost").collect()
    finally:
        spark.sql("DROP TABLE lost")
