"""`spark.readStream.format("callboard")`: which records a micro-batch takes, and that none is missed or repeated."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

import callboard

EXTENTS = st.dictionaries(
    st.integers(0, 5), st.tuples(st.integers(0, 20), st.integers(0, 50)).map(sorted), max_size=4
)


@given(extents=EXTENTS, start=st.dictionaries(st.integers(0, 5), st.integers(0, 50)), most=st.integers(1, 60))
def test_a_micro_batch_takes_as_much_as_it_may(
    streaming: Any, extents: dict[int, Any], start: dict[int, int], most: int
) -> None:
    """Never more, never backwards, and less only when there is no more."""
    extent = streaming.Extent("id", extents)
    begins = {partition: max(start.get(partition, 0), first) for partition, (first, _) in extents.items()}
    ahead = sum(max(0, end - begins[partition]) for partition, (_, end) in extents.items())
    for limit in (most, None):
        found = streaming.advance(start, extent, limit)
        taken = {partition: max(0, found[partition] - begins[partition]) for partition in extents}
        assert sum(taken.values()) == (ahead if limit is None else min(limit, ahead))
        assert all(found[partition] >= start.get(partition, 0) for partition in extents)
        assert all(found[partition] <= end for partition, (_, end) in extents.items() if taken[partition])


def lag_of(progress: Any) -> int:
    """How many records the stream had still to read, as the page on Spark has it."""
    source = progress.sources[0]
    latest, end = (json.loads(each)["offsets"] for each in (source.latestOffset, source.endOffset))
    return sum(latest[partition] - end[partition] for partition in latest)


class Stream:
    """A topic with two partitions, and a query that reads what is new into a folder of Parquet, once per `read`."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.data = str(folder / "data")

    def publish(self, first: int, stop: int, **settings: Any) -> None:
        """Publish numbers."""

        async def work() -> None:
            async with callboard.open_runtime(self.data) as runtime:
                topic = await runtime.create_topic("web", partitions=2, **settings)
                for number in range(first, stop):
                    await topic.publish(b"%d" % number, key=b"%d" % number)

        trio.run(work)

    def read(self, **options: str) -> list[int]:
        """All that the query has ever read, after it has read what is there now."""
        reader = self.spark.readStream.format("callboard").option("topic", "web")
        for name, value in options.items():
            reader = reader.option(name, value)
        frame = reader.load(self.data).selectExpr("partition", "offset", "string(value) as value")
        query = (
            frame.writeStream.format("parquet")
            .option("checkpointLocation", str(self.folder / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(self.folder / "out"))
        )
        query.awaitTermination()
        full = [each for each in query.recentProgress if each.numInputRows]
        self.batches = len(full)
        # A batch that was planned before the query was stopped asks nothing when it is repeated.
        self.lags = [lag_of(each) for each in full if each.sources[0].latestOffset != "null"]
        return sorted(int(row.value) for row in self._rows() if row.value.isdecimal())

    def _rows(self) -> Any:
        schema = "partition int, offset bigint, value string"
        return self.spark.read.schema(schema).parquet(str(self.folder / "out")).collect()

    def places(self) -> set[tuple[int, int]]:
        """Partitions and offsets of all that was ever read."""
        return {(row.partition, row.offset) for row in self._rows()}

    def read_of(self, data: str, **options: str) -> list[int]:
        """The same of another directory."""
        self.data = data
        return self.read(**options)


@pytest.fixture
def stream(spark: Any, tmp_path: Path) -> Stream:
    """A stream in a session that knows the format."""
    from callboard.spark import register

    register(spark)
    return Stream(spark, tmp_path)


def test_a_query_goes_on_where_it_stopped(stream: Stream) -> None:
    """Across restarts of the query, every record is read once."""
    stream.publish(0, 30)
    assert stream.read() == list(range(30))
    assert stream.read() == list(range(30))
    stream.publish(30, 50)
    assert stream.read(maxRecordsPerTrigger="7") == list(range(50))
    assert stream.batches == 3
    assert stream.lags == [13, 6, 0]


def test_a_micro_batch_may_be_read_by_many_tasks(stream: Stream) -> None:
    """Each record is read once, whatever the tasks, and what a later one begins with lies within a segment."""
    stream.publish(0, 40)
    assert stream.read(maxRecordsPerPartition="3", maxRecordsPerTrigger="25") == list(range(40))
    assert stream.batches == 2
    stream.publish(40, 50)
    assert stream.read(minPartitions="4") == list(range(50))


def test_a_stream_into_callboard_is_refused(spark: Any, tmp_path: Path) -> None:
    """Before any task, with the reason and what to do instead."""
    from callboard.spark import register

    register(spark)
    frame = spark.readStream.format("rate").load().selectExpr("cast(string(value) as binary) AS value")
    query = (
        frame.writeStream.format("callboard")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start(str(tmp_path / "out"))
    )
    with pytest.raises(Exception, match=r"a stream cannot be written to Callboard.*foreachBatch"):
        query.awaitTermination()
    assert not query.recentProgress
    assert not (tmp_path / "out").exists()


def test_a_topic_that_was_made_anew_is_another(stream: Stream) -> None:
    """Its offsets mean other records, so the positions of the old one are refused."""
    stream.publish(0, 5)
    stream.read()
    shutil.rmtree(stream.data)
    stream.publish(0, 5)
    with pytest.raises(Exception, match="deleted and made anew"):
        stream.read()


def test_a_new_query_may_begin_at_the_end(stream: Stream) -> None:
    """And takes what comes afterwards."""
    stream.publish(0, 5)
    assert stream.read(startOffset="end") == []
    stream.publish(5, 9)
    assert stream.read(startOffset="end") == [5, 6, 7, 8]


def test_what_retention_removed_is_told(stream: Stream) -> None:
    """A stream does not pass over records in silence."""
    stream.publish(0, 4)
    stream.read()

    async def drop() -> None:
        async with callboard.open_runtime(stream.data) as runtime:
            topic = await runtime.alter_topic("web", segment_bytes=65_536, retention_bytes=65_536)
            with trio.fail_after(120):
                while any(each.start_offset < 3 for each in await topic.describe()):
                    for partition in range(2):
                        await topic.publish(bytes(20_000), partition=partition)

    trio.run(drop)
    with pytest.raises(Exception, match=r"retention removed offsets \d+ to \d+ before the stream read them"):
        stream.read()
    report = stream.folder / "report"
    stream.read(failOnDataLoss="false", report=str(report))
    found = [json.loads(each.read_text()) for each in report.iterdir()]
    removed = {
        (each["partition"], offset)
        for each in found
        for first, last in each["removed"]
        for offset in range(first, last + 1)
    }
    assert removed
    assert removed.isdisjoint(stream.places())
    ends = {partition: max(offset for own, offset in removed if own == partition) for partition, _ in removed}
    assert {(partition, end + 1) for partition, end in ends.items()} <= stream.places()


def test_a_new_query_may_begin_by_partition_or_by_time(stream: Stream) -> None:
    """At offsets, at the end, or with what the log took from an instant on."""
    stream.publish(0, 20)
    rows = stream.read(startOffset='{"0": 3, "1": "end"}')
    assert rows
    assert {partition for partition, _ in stream.places()} == {0}
    assert min(offset for _, offset in stream.places()) == 3
    other = Stream(stream.spark, stream.folder / "later")
    assert other.read_of(stream.data, appendedFrom="2100-01-01") == []
    stream.publish(20, 25)
    assert other.read() == [20, 21, 22, 23, 24]
    with pytest.raises(Exception, match="names partition 7, which is not read"):
        Stream(stream.spark, stream.folder / "wrong").read_of(stream.data, startOffset='{"7": 3}')
