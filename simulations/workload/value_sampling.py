"""The values of a recording that a profile's model of values is learned from: some stretches, chosen by place alone.

A stretch is some consecutive records of one partition, about `STRETCH_BYTES` of them. Of `STRETCHES` each begins so
much later in its partition than the one before in its own that together they go through the recording's time; a
partition gets more of them, the more records it has. Of a long value the first `VALUE_BYTES_READ` count.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import Final

import trio

from callboard.recordings.manifest import Manifest
from callboard.simulations.workload.json_values import closed
from callboard.simulations.workload.value_learning import Sampled, learn
from callboard.simulations.workload.value_model import ValueModel
from callboard.spark.partition_logs import WantedRecords
from callboard.spark.slice_reading import read_slice
from callboard.spark.slices import plan

STRETCHES: Final = 16
STRETCH_BYTES: Final = 64 * 1024
STRETCH_RECORDS: Final = (8, 4_096)
"""At least, at most."""
VALUE_BYTES_READ: Final = 16 * 1024
_PLACES: Final = (0, 8, 4, 12, 2, 10, 6, 14, 1, 9, 5, 13, 3, 11, 7, 15)
"""In sixteenths of all records: near in time is far in place."""


def learn_values(path: str, manifest: Manifest) -> ValueModel | None:
    """The model of the values of a recording; None when it has no records.

    To be called where no trio program runs. Raises `RecordingInvalid`, `LogCorrupt`, `StorageError`.
    """
    first_us = manifest.first_time_us or 0
    sample = [
        _read(path, partition, start, stop, first_us) for partition, start, stop in stretches_of(manifest)
    ]
    return learn(sorted(sample, key=lambda stretch: stretch.at_us))


def stretches_of(manifest: Manifest) -> list[tuple[int, int, int]]:
    """Partition and offsets `[start, stop)` of each stretch. None overlaps another."""
    counts = [row.records for row in manifest.partitions]
    if not manifest.records:
        return []
    mean_bytes = max(manifest.payload_bytes // manifest.records, 1)
    least, most = STRETCH_RECORDS
    records = min(max(STRETCH_BYTES // mean_bytes, least), most)
    ends = list(accumulate(counts))
    found = set()
    for number, sixteenth in enumerate(_PLACES):
        place = sixteenth * manifest.records // STRETCHES
        partition = next(index for index, end in enumerate(ends) if place < end)
        blocks = -(-counts[partition] // records)
        found.add((partition, number * blocks // STRETCHES))
    return [
        (partition, block * records, min((block + 1) * records, counts[partition]))
        for partition, block in sorted(found)
    ]


def _read(path: str, partition: int, start: int, stop: int, first_us: int) -> Sampled:
    wanted = WantedRecords(path=path, partitions=frozenset({partition}), start_offset=start, stop_offset=stop)
    records = list(_records(wanted))
    at_us = max(records[0][0] - first_us, 0) if records else 0
    return Sampled(at_us, [(key, value) for _, key, value in records])


def _records(wanted: WantedRecords) -> Iterator[tuple[int, bytes | None, bytes]]:
    for piece in trio.run(plan, wanted):
        for columns in read_slice(piece):
            for index in range(columns.count):
                event_us = columns.event_time(index)
                time_us = columns.append_time(index) if event_us is None else event_us
                yield time_us, columns.key(index), _beginning(columns.value(index) or b"")


def _beginning(value: bytes) -> bytes:
    """What is read of a value; of JSON so much that it is JSON again."""
    if len(value) <= VALUE_BYTES_READ:
        return value
    value = value[:VALUE_BYTES_READ]
    if value.lstrip()[:1] not in (b"{", b"["):
        return value
    return closed(value.decode(errors="ignore")).encode()
