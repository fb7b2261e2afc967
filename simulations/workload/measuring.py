"""Measures the rows of a recording into a `WorkloadProfile`, with Spark.

Only counts, sums, least and greatest values of integers are taken, so the profile is the same however the rows are
divided among tasks, and no row reaches the driver: it gets pairs of histograms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs

from callboard.log.errors import InvalidArgument
from callboard.simulations.workload.dependence_measuring import measure_dependence
from callboard.simulations.workload.profile_format import (
    BUCKETS_MAX,
    EPOCH_WEEK_HOUR,
    HOUR_US,
    KEY_TOP_MAX,
    PAIRS_MAX,
    SECOND_US,
    SESSION_IDLE_US,
    TIME_STEPS_US,
    VALUE_BIN_BYTES,
    VALUE_SIZES_MAX,
    WEEK_HOURS,
    Histogram,
    KeyTail,
    WorkloadProfile,
    merged,
    weighted_sum,
)
from callboard.simulations.workload.storage import recording_rows, told_errors
from callboard.simulations.workload.value_sampling import learn_values

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

BUCKETS_USUAL: Final = 200
"""A recording's time is cut into about this many buckets, of a second at least."""
_WEEK_HOUR: Final = (
    f"pmod((timestamp - pmod(timestamp, {HOUR_US}L)) div {HOUR_US}L + {EPOCH_WEEK_HOUR}L, {WEEK_HOURS}L)"
)


def measure_recording(
    session: SparkSession,
    path: str,
    *,
    bucket_us: int | None = None,
    has_dependence: bool = True,
    values: bool = False,
) -> WorkloadProfile:
    """The profile of the recording in that folder; with `values`, what its values look like is part of it.

    To be called where no trio program runs. Raises `RecordingInvalid`, `FormatTooNew`, `StorageError`, and
    as `measure_rows`.
    """
    with told_errors():
        rows, manifest = recording_rows(session, path)
        partitions = len(manifest.partitions)
        found = measure_rows(
            rows,
            bucket_us=bucket_us,
            partitions=partitions,
            recording=manifest.digest,
            has_dependence=has_dependence,
        )
    return attrs.evolve(found, values=learn_values(path, manifest)) if values else found


def measure_rows(
    rows: DataFrame,
    *,
    bucket_us: int | None = None,
    partitions: int | None = None,
    recording: str | None = None,
    has_dependence: bool = True,
) -> WorkloadProfile:
    """The profile of `rows`, which have the columns `timestamp` (microseconds since 1970), `key` and `value`.

    `bucket_us` None takes whole seconds that make at most 200 buckets. `partitions` None counts the column `partition`.
    What joins events and how long values are exactly is measured too, unless `has_dependence` is false: comparing does
    without. Events of one instant are in the order of the columns `partition` and `offset`, where there are both.
    Raises `InvalidArgument` for a bucket that is not whole seconds, or makes too many buckets.
    """
    if bucket_us is not None and (bucket_us < SECOND_US or bucket_us % SECOND_US):
        raise InvalidArgument(
            f"A bucket has whole seconds, and {bucket_us} microseconds are not. Give --bucket seconds from 1."
        )
    from pyspark.sql import functions as f
    from pyspark.storagelevel import StorageLevel

    kept = [f.col("timestamp"), f.col("key"), f.octet_length("value").cast("bigint").alias("value_bytes")]
    kept += [f.col(name) for name in ("partition", "offset") if name in rows.columns]
    slim = rows.select(*kept).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        profile = _measure(slim, bucket_us, partitions, recording)
        if not has_dependence or not profile.events:
            return profile
        profile = attrs.evolve(profile, value_sizes=_value_sizes(slim))
        return attrs.evolve(profile, dependence=measure_dependence(slim, profile))
    finally:
        slim.unpersist()


def _measure(
    rows: DataFrame, bucket_us: int | None, partitions: int | None, recording: str | None
) -> WorkloadProfile:
    from pyspark.sql import functions as f

    found = rows.agg(
        f.count("*").alias("events"),
        f.count(f.when(f.col("key").isNull(), 1)).alias("keyless"),
        f.min("timestamp").alias("first"),
        f.max("timestamp").alias("last"),
        f.sum("value_bytes").alias("value_total_bytes"),
        *[
            f.coalesce(f.max(f.abs(f.col("timestamp") % step)), f.lit(0)).alias(f"off_{step}")
            for step in TIME_STEPS_US
        ],
        *([(f.max("partition") + 1).alias("partitions")] if partitions is None else []),
    ).first()
    events = found["events"]
    start_us = found["first"] if events else 0
    span_us = found["last"] - start_us if events else 0
    if bucket_us is None:
        bucket_us = SECOND_US * (span_us // (SECOND_US * BUCKETS_USUAL) + 1)
    buckets = span_us // bucket_us + 1 if events else 0
    if buckets > BUCKETS_MAX:
        raise InvalidArgument(
            f"Buckets of {bucket_us // SECOND_US} s make {buckets} of the recording's time, more than {BUCKETS_MAX}."
            " Give a longer --bucket."
        )
    sub_buckets = _sub_buckets(rows, start_us, bucket_us, buckets)
    by_name = _histograms(rows, start_us, bucket_us)
    key_top, key_tail, key_bytes = _keys(rows)
    return WorkloadProfile(
        events=events,
        start_us=start_us,
        span_us=span_us,
        time_step_us=next(step for step in TIME_STEPS_US if found[f"off_{step}"] == 0),
        bucket_us=bucket_us,
        bucket_counts=tuple(map(weighted_sum, sub_buckets)),
        sub_buckets=sub_buckets,
        burst=merged(sub_buckets),
        arrival_log2_us=by_name.get("arrival", ()),
        key_top=key_top,
        key_tail=key_tail,
        keyless=found["keyless"],
        key_bytes=key_bytes,
        gap_log2_us=by_name.get("gap", ()),
        session_idle_us=SESSION_IDLE_US,
        session_events=by_name.get("session_events", ()),
        session_log2_us=by_name.get("session_us", ()),
        value_bin_bytes=VALUE_BIN_BYTES,
        value_bytes=by_name.get("value", ()),
        value_total_bytes=found["value_total_bytes"] or 0,
        partitions=(partitions if partitions is not None else found["partitions"]) or 1,
        recording=recording,
        week_hours=by_name.get("week_hour", ()),
    )


def _value_sizes(rows: DataFrame) -> Histogram:
    from pyspark.sql import functions as f

    counts = rows.groupBy("value_bytes").agg(f.count("*").alias("events"))
    top = counts.orderBy(f.desc("events"), "value_bytes").limit(VALUE_SIZES_MAX).collect()
    return tuple(sorted((row["value_bytes"], row["events"]) for row in top))


def _class_of(number: Column) -> Column:
    """`log2_class` by integers alone."""
    from pyspark.sql import functions as f

    return f.when(number == 0, 0).otherwise(f.length(f.bin(number))).cast("bigint")


def _sub_buckets(rows: DataFrame, start_us: int, bucket_us: int, buckets: int) -> tuple[Histogram, ...]:
    from pyspark.sql import functions as f

    second = f.expr(f"(timestamp - {start_us}L) div {SECOND_US}L")
    pairs = (
        rows.groupBy(second.alias("second"))
        .agg(f.count("*").alias("events"))
        .groupBy(f.expr(f"second div {bucket_us // SECOND_US}L").alias("bucket"), "events")
        .agg(f.count("*").alias("seconds"))
        .orderBy("bucket", "events")
        .limit(PAIRS_MAX + 1)
        .collect()
    )
    if len(pairs) > PAIRS_MAX:
        raise InvalidArgument(
            f"The recording's seconds differ too much for buckets of {bucket_us // SECOND_US} s: there are more than"
            f" {PAIRS_MAX} pairs of them. Give a longer --bucket, or cut the recording."
        )
    found: list[list[tuple[int, int]]] = [[] for _ in range(buckets)]
    for pair in pairs:
        found[pair["bucket"]].append((pair["events"], pair["seconds"]))
    return tuple(map(tuple, found))


def _histograms(rows: DataFrame, start_us: int, bucket_us: int) -> dict[str, Histogram]:
    """All histograms that are small whatever the recording, in one query."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    time = f.col("timestamp")
    bucket = f.expr(f"(timestamp - {start_us}L) div {bucket_us}L")
    bucketed = rows.select(time, bucket.alias("bucket"))
    in_bucket = Window.partitionBy("bucket").orderBy("timestamp")
    inside = bucketed.select((time - f.lag("timestamp").over(in_bucket)).alias("gap")).where(
        "gap IS NOT NULL"
    )
    # From a bucket's last event to the first of the next bucket that has one.
    ends = bucketed.groupBy("bucket").agg(f.min("timestamp").alias("first"), f.max("timestamp").alias("last"))
    all_buckets = Window.partitionBy(f.lit(0)).orderBy("bucket")
    between = ends.select((f.col("first") - f.lag("last").over(all_buckets)).alias("gap")).where(
        "gap IS NOT NULL"
    )

    of_key = Window.partitionBy("key").orderBy("timestamp")
    keyed = rows.where("key IS NOT NULL").select("key", "timestamp")
    gaps = keyed.select("key", "timestamp", (time - f.lag("timestamp").over(of_key)).alias("gap"))
    is_first = f.col("gap").isNull() | (f.col("gap") > SESSION_IDLE_US)
    so_far = of_key.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    sessions = (
        gaps.select("key", "timestamp", f.sum(is_first.cast("bigint")).over(so_far).alias("session"))
        .groupBy("key", "session")
        .agg(f.count("*").alias("events"), (f.max("timestamp") - f.min("timestamp")).alias("us"))
    )

    def counted(name: str, frame: DataFrame, what: Column) -> DataFrame:
        named = frame.select(f.lit(name).alias("name"), what.cast("bigint").alias("what"))
        return named.groupBy("name", "what").agg(f.count("*").alias("many"))

    gap = f.col("gap")
    parts = [
        counted("arrival", inside.unionAll(between), _class_of(gap)),
        counted("gap", gaps.where("gap IS NOT NULL"), _class_of(gap)),
        counted("session_events", sessions, _class_of(f.col("events"))),
        counted("session_us", sessions, _class_of(f.col("us"))),
        counted("week_hour", rows, f.expr(_WEEK_HOUR)),
        counted("value", rows, f.expr(f"value_bytes div {VALUE_BIN_BYTES}L")),
    ]
    union = parts[0]
    for part in parts[1:]:
        union = union.unionAll(part)
    found: dict[str, list[tuple[int, int]]] = {}
    for row in union.collect():
        found.setdefault(row["name"], []).append((row["what"], row["many"]))
    return {name: tuple(sorted(pairs)) for name, pairs in found.items()}


def _keys(rows: DataFrame) -> tuple[tuple[int, ...], KeyTail, Histogram]:
    from pyspark.sql import functions as f
    from pyspark.storagelevel import StorageLevel

    keys: Any = (
        rows.where("key IS NOT NULL")
        .groupBy("key")
        .agg(f.count("*").alias("events"))
        .select("events", f.octet_length("key").cast("bigint").alias("key_bytes"))
        .persist(StorageLevel.MEMORY_AND_DISK)
    )
    try:
        by_bytes = keys.groupBy("key_bytes").agg(f.count("*").alias("keys"), f.sum("events").alias("events"))
        found = by_bytes.collect()
        top = tuple(row["events"] for row in keys.orderBy(f.desc("events")).limit(KEY_TOP_MAX).collect())
    finally:
        keys.unpersist()
    tail = KeyTail(
        keys=sum(row["keys"] for row in found) - len(top),
        events=sum(row["events"] for row in found) - sum(top),
    )
    return top, tail, tuple(sorted((row["key_bytes"], row["keys"]) for row in found))
