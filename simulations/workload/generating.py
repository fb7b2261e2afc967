"""Generates a recording from profiles, with Spark: the same bytes for the same profiles, scaling, events and seed.

Tasks make pieces (`pieces`), each from nothing but its place in the workload. Their rows are then put into partitions
and sorted, by time and then by an order in which no two rows are equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any, Final

import attrs

from callboard.log.errors import InvalidArgument
from callboard.recordings.manifest import Manifest
from callboard.simulations.workload.profile_format import TIME_US_MAX, WorkloadProfile
from callboard.simulations.workload.scaling import Scaling, WhatIf, check_parts, parse_what_if
from callboard.simulations.workload.storage import told_errors, write_recording
from callboard.spark.files import check_new

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from callboard.simulations.workload.pieces import Events, ProfilePart

COLUMNS: Final = (
    "partition int, timestamp bigint, key binary, value binary, part int, number bigint, copy bigint"
)
ORDER: Final = ("part", "number", "copy")
TASKS_A_CORE: Final = 4
COPIES_MAX: Final = 2**40


@attrs.frozen(kw_only=True)
class Workload:
    """What is to be generated. Raises `InvalidArgument` for what cannot be."""

    parts: tuple[ProfilePart, ...]
    what_ifs: tuple[WhatIf, ...]
    partitions: int
    seed: str


def workload_of(
    profiles: Sequence[WorkloadProfile],
    *,
    scaling: Scaling | None = None,
    weights: Sequence[Any] = (),
    events: Sequence[str] = (),
    partitions: int | None = None,
    seed: int | str = 0,
) -> Workload:
    """The workload that these arguments ask for; see `generate`. Needs numpy, and no session."""
    from callboard.simulations.workload.pieces import ProfilePart

    scaling = scaling or Scaling()
    partitions = partitions if partitions is not None else profiles[0].partitions if profiles else 1
    check_parts(profiles, partitions)
    if weights and len(weights) != len(profiles):
        raise InvalidArgument(
            f"{len(weights)} weights for {len(profiles)} profiles: give one for each, or none."
        )
    parts = tuple(
        ProfilePart(
            index,
            profile,
            attrs.evolve(scaling, volume=scaling.volume * (weights[index] if weights else 1)),
            profiles[0].start_us,
            str(seed),
        )
        for index, profile in enumerate(profiles)
    )
    stop_us = max(part.stop_us for part in parts)
    what_ifs = tuple(parse_what_if(event, profiles[0].start_us, stop_us) for event in events)
    if prod(each.times + 1 for each in what_ifs) > COPIES_MAX:
        raise InvalidArgument(
            "these events copy what others have copied too often. Give fewer, or less `times`."
        )
    if stop_us > TIME_US_MAX or any(each.stop_us > TIME_US_MAX for each in what_ifs):
        raise InvalidArgument("the workload would end after the year 9999. Give a shorter duration.")
    if not any(part.events for part in parts):
        raise InvalidArgument(
            f"scale {scaling.volume} leaves nothing of the profile's events. Give a larger one."
        )
    return Workload(parts=parts, what_ifs=what_ifs, partitions=partitions, seed=str(seed))


def generate(
    session: SparkSession,
    profiles: Sequence[WorkloadProfile],
    out: str,
    *,
    scaling: Scaling | None = None,
    weights: Sequence[Any] = (),
    events: Sequence[str] = (),
    partitions: int | None = None,
    seed: int | str = 0,
) -> Manifest:
    """Generate the recording `out`, a folder that is not there yet, of one profile or a mixture.

    `weights` (`Fraction`s) are shares of `scaling.volume`, one for each profile. `events` are texts such as
    "flash-crowd@12:00,for=600,times=5". Raises `InvalidArgument` for what cannot be generated, `StorageError`; then
    nothing is left.
    """
    workload = workload_of(
        profiles, scaling=scaling, weights=weights, events=events, partitions=partitions, seed=seed
    )
    check_new(out)
    source = {
        "made_by": "callboard workload generate",
        "seed": workload.seed,
        "profiles": " ".join(profile.recording or "unknown" for profile in profiles),
        "scale": " ".join(str(part.scaling.volume) for part in workload.parts),
    }
    if events:
        source["events"] = " ".join(events)[:1_000]
    with told_errors():
        rows = workload_rows(session, workload)
    return write_recording(
        rows, out, partitions=workload.partitions, source=source, order=ORDER, seed=workload.seed
    )


def workload_rows(session: SparkSession, workload: Workload) -> DataFrame:
    """The rows of a workload, in no order: `COLUMNS`."""
    pieces = [piece for part in workload.parts for piece in part.pieces()]
    cores = int(session.sparkContext.defaultParallelism)
    tasks = max(1, min(len(pieces), cores * TASKS_A_CORE))
    return session.range(0, len(pieces), 1, tasks).mapInArrow(partial(_make_pieces, workload), COLUMNS)


def _make_pieces(workload: Workload, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a task: the rows of the pieces with these numbers."""
    from callboard.simulations.workload.content import text_pool
    from callboard.simulations.workload.what_if import changed

    pool = text_pool(workload.seed)
    pieces = [piece for part in workload.parts for piece in part.pieces()]
    for batch in batches:
        for index in batch.column(0).to_pylist():
            part = workload.parts[pieces[index].part]
            events = changed(part, part.make(pieces[index]), workload.what_ifs)
            for some in _batches(events, part.batch_events):
                yield _rows(workload, part, some, pool)


def _batches(events: Events, many: int) -> Iterator[Events]:
    """The events by number, this many at a time, or more where copies of one are: they have its value."""
    import numpy as np

    events = events.rows(np.argsort(events.number, kind="stable"))
    start = 0
    while start < len(events.number):
        last = events.number[min(start + many, len(events.number)) - 1]
        stop = int(np.searchsorted(events.number, last, side="right"))
        yield events.rows(slice(start, stop))
        start = stop


def _rows(workload: Workload, part: ProfilePart, events: Events, pool: bytes) -> pa.RecordBatch:
    import numpy as np
    import pyarrow as pa

    from callboard.simulations.workload.content import (
        keys_of,
        partitions_of,
        partitions_of_keys,
        values_by_field,
        values_of,
    )

    known, which = np.unique(np.maximum(events.key, 0), return_inverse=True)
    encoded = keys_of(part, known)
    by_key = partitions_of_keys(encoded, workload.partitions)[which]
    partition = partitions_of(part, events, by_key, workload.partitions)
    model = part.profile.values
    if model is None:
        values = values_of(pool, events)
    else:
        values = values_by_field(part, model, events, partition, workload.partitions)
    keys = pa.array(encoded, pa.binary()).take(pa.array(which, mask=events.key < 0))
    arrays = [
        pa.array(partition, pa.int32()),
        pa.array(events.time_us, pa.int64()),
        keys,
        pa.array(values, pa.binary()),
        pa.array(np.full(len(events.number), part.index), pa.int32()),
        pa.array(events.number, pa.int64()),
        pa.array(events.copy, pa.int64()),
    ]
    names = [column.split()[0] for column in COLUMNS.split(", ")]
    return pa.RecordBatch.from_arrays(arrays, names=names)
