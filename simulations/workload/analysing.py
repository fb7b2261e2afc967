"""Analyses how a runtime's records were delivered, with Spark: from its logs and delivery journals to an `Analysis`.

A task reads the journal of one partition and gives what happened to which offset. These rows meet the log's records,
which say when each was published. Only counts, sums, least and greatest values of integers are taken, so the analysis
is the same however the work is divided, and no record reaches the driver.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from callboard.log.errors import InvalidArgument
from callboard.simulations.workload.analysis import (
    BIN_BITS,
    BUCKETS_MAX,
    GONE,
    LEFT_BEHIND,
    PENDING,
    Analysis,
    Counted,
    JournalRead,
    bucket_for,
)
from callboard.simulations.workload.analysis_plan import AnalysedPartition, AnalysisPlan, plan_analysis
from callboard.simulations.workload.assembling import assemble, known_since
from callboard.simulations.workload.delivery_history import Fact, FactKind
from callboard.simulations.workload.journal_walk import JournalHistory
from callboard.simulations.workload.profile_format import SECOND_US
from callboard.simulations.workload.storage import told_errors
from callboard.spark.files import absolute

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

NOTE: Final = 0
"""The kind of a row that holds a place's `JournalRead` as JSON."""
ROWS: Final = 65_536
"""Rows of one batch, at most."""
COLUMNS: Final = (
    "place int, group bigint, opening int, kind int, offset bigint, many bigint, time_us bigint, attempt int,"
    " note string"
)
_KEYS: Final = ("place", "group", "opening")


def analyse(
    session: SparkSession,
    directory: str,
    *,
    topic: str | None = None,
    group: str | None = None,
    bucket_us: int | None = None,
) -> Analysis:
    """How the records of a topic, or of all, were delivered to a group, or to all.

    `bucket_us` None takes a round length that makes at most 200 buckets. Raises `StorageError`, `TopicNotFound`,
    `GroupNotFound`, `LogCorrupt`, `JournalInvalid`, `FormatTooNew`; `InvalidArgument` for a bucket that will not do.
    """
    from pyspark.storagelevel import StorageLevel

    if bucket_us is not None and (bucket_us < SECOND_US or bucket_us % SECOND_US):
        raise InvalidArgument(f"A bucket has whole seconds, and {bucket_us} microseconds are not.")
    plan = trio.run(plan_analysis, absolute(directory), topic, group)
    tasks = max(1, len(plan.places))
    facts = session.range(0, len(plan.places), 1, tasks).mapInArrow(
        partial(_read_journals, plan.places), COLUMNS
    )
    facts = facts.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        with told_errors():
            return _Job(session, plan, facts).run(bucket_us)
    finally:
        facts.unpersist()


# -- in a task


def _read_journals(
    places: tuple[AnalysedPartition, ...], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for index in batch.column(0).to_pylist():
            place = places[index]
            walk = JournalHistory(place.journal)
            yield from _batches(index, _pieces(place, walk.facts()))
            place.note_implied(walk)
            yield _note(index, _told(walk))


def _told(walk: JournalHistory) -> JournalRead:
    return JournalRead(
        first_us=walk.first_us,
        last_us=walk.last_us,
        lost=tuple(walk.lost),
        openings=tuple(walk.history.openings),
    )


def _pieces(place: AnalysedPartition, facts: Iterable[Fact]) -> Iterator[tuple[Fact, int]]:
    """Facts about offsets of the log, cut to what a batch holds, with the rows that each makes.

    What was settled below the log's start is one row; what is said of other offsets says nothing of a record.
    """
    for fact in facts:
        if place.groups is not None and fact.group_id not in place.groups:
            continue
        if fact.start < place.log_start and fact.kind is not FactKind.LEASED:
            yield fact._replace(stop=min(fact.stop, place.log_start)), 1
        stop = min(fact.stop, place.log_end)
        for start in range(max(fact.start, place.log_start), stop, ROWS):
            yield fact._replace(start=start, stop=min(start + ROWS, stop)), min(ROWS, stop - start)


def _batches(index: int, pieces: Iterable[tuple[Fact, int]]) -> Iterator[pa.RecordBatch]:
    gathered: list[tuple[Fact, int]] = []
    rows = 0
    for piece in pieces:
        if gathered and rows + piece[1] > ROWS:
            yield _expanded(index, gathered)
            gathered, rows = [], 0
        gathered.append(piece)
        rows += piece[1]
    if gathered:
        yield _expanded(index, gathered)


def _expanded(index: int, pieces: list[tuple[Fact, int]]) -> pa.RecordBatch:
    """A row for each offset, by columns."""
    import numpy as np
    import pyarrow as pa

    sizes = np.array([size for _, size in pieces], dtype=np.int64)
    is_gone = [size != fact.stop - fact.start or fact.start < 0 for fact, size in pieces]
    before = np.cumsum(sizes) - sizes
    starts = np.array([fact.start for fact, _ in pieces], dtype=np.int64)
    offsets = np.arange(int(sizes.sum()), dtype=np.int64) + np.repeat(starts - before, sizes)

    def column(values: list[int], kind: Any) -> Any:
        return pa.array(np.repeat(np.array(values, dtype=kind), sizes))

    facts = [fact for fact, _ in pieces]
    kinds = [GONE if gone else int(fact.kind) for fact, gone in zip(facts, is_gone, strict=True)]
    many = [fact.stop - fact.start if gone else 1 for fact, gone in zip(facts, is_gone, strict=True)]
    count = len(offsets)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(np.full(count, index, dtype=np.int32)),
            column([fact.group_id for fact in facts], np.int64),
            column([fact.opening for fact in facts], np.int32),
            column(kinds, np.int32),
            pa.array(offsets),
            column(many, np.int64),
            column([fact.time_us for fact in facts], np.int64),
            column([fact.attempt for fact in facts], np.int32),
            pa.nulls(count, pa.string()),
        ],
        names=_names(),
    )


def _note(index: int, found: JournalRead) -> pa.RecordBatch:
    import pyarrow as pa

    types = (pa.int32(), pa.int64(), pa.int32(), pa.int32(), pa.int64(), pa.int64(), pa.int64(), pa.int32())
    values: list[int | None] = [index, None, None, NOTE, None, None, None, None]
    arrays = [pa.array([value], kind) for value, kind in zip(values, types, strict=True)]
    return pa.RecordBatch.from_arrays([*arrays, pa.array([json.dumps(attrs.asdict(found))])], names=_names())


def _names() -> list[str]:
    return [column.split()[0] for column in COLUMNS.split(", ")]


# -- on the driver


@attrs.frozen
class _Job:
    session: SparkSession
    plan: AnalysisPlan
    facts: DataFrame

    def run(self, bucket_us: int | None) -> Analysis:
        """Everything; tasks' errors come out as Spark's."""
        from pyspark.sql import functions as f
        from pyspark.storagelevel import StorageLevel

        notes = self.facts.where(f.col("kind") == NOTE).select("place", "note").collect()
        journals = {row["place"]: JournalRead.from_json(row["note"]) for row in notes}
        records = self._records()
        logs = {
            row["place"]: (row["records"], row["first"], row["last"])
            for row in records.groupBy("place")
            .agg(
                f.count("*").alias("records"),
                f.min("append_time").alias("first"),
                f.max("append_time").alias("last"),
            )
            .collect()
        }
        times = [time for _, first, last in logs.values() for time in (first, last)]
        times += [
            time for read in journals.values() for time in (read.first_us, read.last_us) if time is not None
        ]
        origin_us, end_us = min(times, default=0), max(times, default=0)
        bucket_us = bucket_us or bucket_for(end_us - origin_us)
        if (end_us - origin_us) // bucket_us >= BUCKETS_MAX:
            raise InvalidArgument(
                f"Buckets of {bucket_us // SECOND_US} s are more than {BUCKETS_MAX}. Give a longer --bucket."
            )
        fates = self._fates(records, journals, logs, origin_us, bucket_us).persist(
            StorageLevel.MEMORY_AND_DISK
        )
        try:
            counted = self._counted(fates)
        finally:
            fates.unpersist()
        return assemble(self.plan, journals, logs, counted, origin_us, end_us, bucket_us)

    def _records(self) -> DataFrame:
        """Place, offset and append time of all records that the plan takes."""
        from pyspark.sql import functions as f

        from callboard.spark import register

        register(self.session)
        found: list[DataFrame] = []
        for topic in self.plan.topics:
            first = next(place.index for place in self.plan.places if place.topic == topic)
            ends = [(place.index, place.log_end) for place in self.plan.places if place.topic == topic]
            rows = (
                self.session.read.format("callboard")
                .option("topic", topic)
                .option("columns", "partition,offset,append_time")
                .load(self.plan.directory)
                .select((f.col("partition") + first).alias("place"), "offset", "append_time")
            )
            stops = self.session.createDataFrame(ends, "place int, log_end bigint")
            found.append(rows.join(f.broadcast(stops), "place").where("offset < log_end").drop("log_end"))
        if not found:
            return self.session.createDataFrame([], "place int, offset bigint, append_time bigint")
        return reduce(lambda one, two: one.unionAll(two), found)

    def _fates(
        self,
        records: DataFrame,
        journals: dict[int, JournalRead],
        logs: dict[int, tuple[int, int, int]],
        origin_us: int,
        bucket_us: int,
    ) -> DataFrame:
        """What became of each record in each opening of each group: a row with small numbers."""
        from pyspark.sql import functions as f

        openings = []
        for place in self.plan.places:
            for opening in journals[place.index].openings:
                if self.plan.takes(opening.group_id):
                    since_us = known_since(place, opening, logs.get(place.index))
                    openings.append(
                        (
                            place.index,
                            opening.group_id,
                            opening.number,
                            opening.start,
                            since_us,
                            opening.closed_us,
                        )
                    )
        schema = "place int, group bigint, opening int, start bigint, since_us bigint, closed_us bigint"
        table = self.session.createDataFrame(openings, schema)
        by_offset = self._by_offset()
        theirs = records.join(f.broadcast(table), "place").where("offset >= start")
        there = theirs.join(by_offset, [*_KEYS, "offset"], "left").withColumn("many", f.lit(1).cast("bigint"))
        there = there.where("closed_us IS NULL OR append_time <= closed_us")
        gone = self.facts.where(f.col("kind") == GONE).join(f.broadcast(table), [*_KEYS])
        gone = gone.select(*_KEYS, "since_us", "closed_us", "many", f.col("time_us").alias("settled_us"))
        return _fated(there.unionByName(gone, allowMissingColumns=True), origin_us, bucket_us)

    def _by_offset(self) -> DataFrame:
        """All that the journals say of one offset, in one row."""
        from pyspark.sql import functions as f

        kind, time = f.col("kind"), f.col("time_us")
        is_settled = kind.isin(int(FactKind.ACKED), int(FactKind.SKIPPED), int(FactKind.UNTIMED))
        about = self.facts.where((kind != NOTE) & (kind != GONE))
        return about.groupBy(*_KEYS, "offset").agg(
            f.count(f.when(kind == int(FactKind.LEASED), 1)).alias("deliveries"),
            f.max(f.when(kind == int(FactKind.LEASED), f.col("attempt"))).alias("attempts"),
            f.min(f.when(kind == int(FactKind.LEASED), f.struct("attempt", "time_us"))).alias("first_lease"),
            f.min(f.when(is_settled, time)).alias("settled_us"),
            f.min(f.when(is_settled, kind)).alias("settled_as"),
        )

    def _counted(self, fates: DataFrame) -> list[Counted]:
        """All histograms and sums, in one query."""
        from pyspark.sql import functions as f

        def counted(
            name: str, *, bucket: str | None = None, what: str | None = None, us: str | None = None
        ) -> DataFrame:
            wanted = what or bucket or "true"
            columns = [f.expr(column or "null").cast("bigint") for column in (bucket, what, us)]
            named = fates.where(f"{us or wanted} IS NOT NULL").select(
                f.lit(name).alias("name"),
                *_KEYS,
                *[
                    column.alias(alias)
                    for column, alias in zip(columns, ("bucket", "what", "us"), strict=True)
                ],
                "many",
            )
            us_sum = f.sum(f.col("us").cast("decimal(38,0)"))
            return named.groupBy("name", *_KEYS, "bucket", "what").agg(
                f.sum("many").alias("many"), us_sum.alias("sum_us"), f.max("us").alias("most_us")
            )

        parts = [
            counted("published", bucket="published"),
            counted("settled", bucket="settled"),
            counted("entered", bucket="entered"),
            counted("left", bucket="left_in"),
            counted("fate", what="fate"),
            counted("attempts", what="attempts"),
            counted("deliveries", what="deliveries"),
            counted("latency", bucket="settled", what="latency_bin", us="latency_us"),
            counted("wait", what="wait_bin", us="wait_us"),
            counted("backwards", what="backwards"),
        ]
        union = reduce(lambda one, two: one.unionAll(two), parts)
        return [
            Counted(
                row["name"],
                (row["place"], row["group"], row["opening"]),
                row["bucket"],
                row["what"],
                int(row["many"]),
                int(row["sum_us"] or 0),
                row["most_us"] or 0,
            )
            for row in union.collect()
        ]


def _fated(rows: DataFrame, origin_us: int, bucket_us: int) -> DataFrame:
    """From one row per record and opening to the few small numbers that are counted."""

    def bucket(time: str) -> str:
        return f"({time} - {origin_us}L) div {bucket_us}L"

    acked, skipped = int(FactKind.ACKED), int(FactKind.SKIPPED)
    steps: list[dict[str, str]] = [
        {
            "entered_us": "greatest(coalesce(append_time, since_us), since_us)",
            "is_timed": f"settled_as in ({acked}, {skipped})",
            "fate": f"CASE WHEN append_time IS NULL THEN {GONE} WHEN settled_as IS NOT NULL THEN settled_as"
            f" WHEN closed_us IS NOT NULL THEN {LEFT_BEHIND} ELSE {PENDING} END",
            "latency_us": f"CASE WHEN settled_as = {acked} THEN greatest(settled_us - append_time, 0L) END",
            "wait_us": "CASE WHEN first_lease.attempt = 1 THEN greatest(first_lease.time_us - append_time, 0L) END",
            "backwards": f"CASE WHEN settled_as = {acked} AND settled_us < append_time THEN 1 END",
        },
        {
            "published": bucket("append_time"),
            "settled": f"CASE WHEN is_timed THEN {bucket('settled_us')} END",
            "entered": bucket("entered_us"),
            # `greatest` passes over nulls, and what nothing ends does not leave.
            "left_in": "CASE WHEN coalesce(settled_us, closed_us) IS NOT NULL THEN "
            + bucket("greatest(coalesce(settled_us, closed_us), entered_us)")
            + " END",
            "latency_bin": _bin("latency_us"),
            "wait_bin": _bin("wait_us"),
        },
    ]
    for columns in steps:
        rows = rows.selectExpr("*", *[f"{expression} AS {name}" for name, expression in columns.items()])
    kept = (
        "published",
        "settled",
        "entered",
        "left_in",
        "fate",
        "attempts",
        "deliveries",
        "latency_us",
        "latency_bin",
    )
    return rows.select(*_KEYS, "many", *kept, "wait_us", "wait_bin", "backwards")


def _bin(number: str) -> str:
    """`analysis.bin_of` by integers alone."""
    shift = f"greatest(length(bin({number})) - {BIN_BITS}, 0)"
    return f"{shift} * {2 ** (BIN_BITS - 1)}L + shiftright({number}, {shift})"
