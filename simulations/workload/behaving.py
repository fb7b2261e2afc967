"""Measures the `Behaviour` of a recording, with Spark.

One task gets the columns that matter of all events, which Spark has sorted on disk, and makes the pass of `sequence`.
The driver gets what was found, some kilobytes. Values are compressed by all tasks, a sample of blocks of neighbours.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import attrs

from callboard.log.limits import MIB
from callboard.simulations.workload.behaviour import Behaviour
from callboard.simulations.workload.profile_format import WorkloadProfile
from callboard.simulations.workload.storage import recording_rows, told_errors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from callboard.simulations.workload.sequence import SequencePlan

BLOCK_RECORDS: Final = 1_024
SAMPLED_BYTES: Final = 64 * MIB
"""Of values, about this many are compressed."""
ZLIB_LEVEL: Final = 6


def measure_behaviour(
    session: SparkSession, path: str, profile: WorkloadProfile, *, times: int = 1
) -> Behaviour:
    """What joins the events of the recording in that folder, whose profile is known and has events.

    Queues get `times` as many servers as usual. Raises `RecordingInvalid`, `FormatTooNew`, `StorageError`.
    """
    with told_errors():
        rows, _ = recording_rows(session, path)
        return behaviour_of(rows, profile, times=times)


def behaviour_of(rows: DataFrame, profile: WorkloadProfile, *, times: int = 1) -> Behaviour:
    """The same of rows with the columns `partition`, `offset`, `timestamp`, `key` and `value`, and their profile."""
    from pyspark.sql import functions as f

    from callboard.simulations.workload.sequence import OFTEN_MAX, SequencePlan

    words = rows.where(f.col("key").isNotNull()).groupBy(f.xxhash64("key").alias("word")).count()
    often = words.orderBy(f.desc("count"), "word").limit(OFTEN_MAX).collect()
    plan = SequencePlan(
        often=tuple(row["word"] for row in often),
        events=profile.events,
        start_us=profile.start_us,
        span_us=profile.span_us,
        time_step_us=profile.time_step_us,
        distinct_keys=profile.distinct_keys,
        times=times,
    )
    columns = rows.select(
        "partition",
        "offset",
        "timestamp",
        f.xxhash64("key").alias("word"),
        f.col("key").isNotNull().alias("keyed"),
        f.coalesce(f.octet_length("value"), f.lit(0)).cast("bigint").alias("size"),
    )
    ordered = columns.repartition(1).sortWithinPartitions("timestamp", "partition", "offset")
    found = ordered.mapInArrow(partial(_pass, plan), "behaviour string").first()
    behaviour = Behaviour.from_plain(json.loads(found["behaviour"]))
    compression = _compression(rows, profile)
    return attrs.evolve(behaviour, rows={**behaviour.rows, "compression": compression})


def _pass(plan: SequencePlan, batches: Iterable[Any]) -> Iterator[Any]:
    import pyarrow as pa

    from callboard.simulations.workload.sequence import Sequence

    sequence = Sequence(plan)
    for batch in batches:
        sequence.add(
            batch.column("timestamp").to_numpy(),
            batch.column("word").to_numpy(),
            batch.column("keyed").to_numpy(zero_copy_only=False),
            batch.column("size").to_numpy(),
        )
    yield pa.RecordBatch.from_pydict({"behaviour": [json.dumps(sequence.finish().to_plain())]})


def _compression(rows: DataFrame, profile: WorkloadProfile) -> Fraction | None:
    """How many times smaller zlib makes blocks of values, one of this many that about `SAMPLED_BYTES` are looked at."""
    from pyspark.sql import functions as f

    every = -(-profile.value_total_bytes // SAMPLED_BYTES) or 1
    block = f.expr(f"offset div {BLOCK_RECORDS}L")
    chosen = rows.where(f.col("value").isNotNull()).select(
        "partition", "offset", "value", block.alias("block")
    )
    if every > 1:
        chosen = chosen.where(f.pmod(f.xxhash64("partition", "block"), f.lit(every)) == 0)
    ordered = chosen.repartition("partition", "block").sortWithinPartitions("partition", "block", "offset")
    sizes = ordered.mapInArrow(_compressed, "plain bigint, packed bigint")
    plain, packed = sizes.agg(f.sum("plain"), f.sum("packed")).first()
    return Fraction(plain, packed) if plain else None


def _compressed(batches: Iterable[Any]) -> Iterator[Any]:
    """The sizes of all blocks of a task, before and after."""
    import pyarrow as pa

    plain = packed = 0
    current, packer = None, None
    for batch in batches:
        places = zip(batch.column("partition").to_pylist(), batch.column("block").to_pylist(), strict=True)
        for place, value in zip(places, batch.column("value"), strict=True):
            if place != current:
                packed += len(packer.flush()) if packer else 0
                current, packer = place, zlib.compressobj(ZLIB_LEVEL)
            data = value.as_buffer()
            plain += len(data)
            packed += len(packer.compress(data)) if packer else 0
    packed += len(packer.flush()) if packer else 0
    yield pa.RecordBatch.from_pydict({"plain": [plain], "packed": [packed]})
