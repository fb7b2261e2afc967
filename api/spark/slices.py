"""Which segments a read takes. Needs no Spark.

A slice is a segment, or the part of it that is wanted: the unit of one Spark task. It is planned once, and then read
anywhere that has the files (`slice_reading`). It ends at the partition's visible end as it was when the read was
planned, so a half-written batch of a live topic is never seen. A `Division` cuts slices into more tasks, at offsets,
whatever lies there.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from callboard.log.errors import InvalidArgument
from callboard.log.limits import READ_TASKS_MAX
from callboard.log.offline.reader import LogReader
from callboard.log.segments.segment_file import segment_path
from callboard.spark.partition_logs import PartitionLogs, WantedRecords, partition_logs


@attrs.frozen(kw_only=True)
class Slice:
    """The offsets `[start, stop)` of one segment."""

    topic: str
    partition: int
    root: str
    """The absolute folder that `directory` is below."""
    directory: str
    """The partition's."""
    base_offset: int
    end_offset: int
    """Where the segment ends, or the partition when the read was planned."""
    start: int
    stop: int
    is_recorded: bool
    """Whether it is part of a recording, which never changes."""

    @property
    def records(self) -> int:
        """How many it has, if each of its offsets has one."""
        return self.stop - self.start

    @property
    def label(self) -> str:
        """How messages name the partition."""
        return f"{self.topic}/{self.partition}"

    @property
    def path(self) -> str:
        """The segment's file."""
        return f"{self.root}/{segment_path(self.directory, self.base_offset)}"


@attrs.frozen
class Division:
    """Into how many tasks a read is divided, beyond one for each segment."""

    records_max: int | None = None
    """A task reads at most this many records."""
    tasks_min: int = 1
    """At least this many tasks, when there are as many records."""

    def divide(self, slices: Sequence[Slice]) -> list[Slice]:
        """The slices cut into parts of about the same length. Raises `InvalidArgument` when they are too many."""
        if self.records_max is not None:
            slices = _cut(slices, [-(-piece.records // self.records_max) for piece in slices])
        if len(slices) < self.tasks_min:
            total = sum(piece.records for piece in slices)
            wanted = min(self.tasks_min, total)
            slices = _cut(slices, [-(-piece.records * wanted // total) for piece in slices])
        return list(slices)


def _cut(slices: Sequence[Slice], parts: Sequence[int]) -> list[Slice]:
    """Each slice in its number of parts."""
    if sum(parts) > READ_TASKS_MAX:
        raise InvalidArgument(
            f"the read would be {sum(parts):,} tasks, and {READ_TASKS_MAX:,} are the most. Raise"
            " maxRecordsPerPartition, or lower minPartitions."
        )
    return [
        attrs.evolve(
            piece,
            start=piece.start + piece.records * part // count,
            stop=piece.start + piece.records * (part + 1) // count,
        )
        for piece, count in zip(slices, parts, strict=True)
        for part in range(count)
    ]


async def plan(wanted: WantedRecords) -> list[Slice]:
    """The slices of all segments that hold something wanted, by partition and offset. Raises as `partition_logs`."""
    async with partition_logs(wanted) as logs:
        slices: list[Slice] = []
        for partition in logs.wanted(wanted):
            async with logs.reader(partition) as reader:
                slices += await _slices_of(logs, partition, reader, wanted)
        return slices


async def _slices_of(
    logs: PartitionLogs, partition: int, reader: LogReader, wanted: WantedRecords
) -> list[Slice]:
    least = wanted.start_offset
    if wanted.appended.from_us is not None:
        least = max(least, await reader.offset_at(wanted.appended.from_us))
    slices = []
    for base, end in await reader.extents():
        start = max(base, least)
        stop = end if wanted.stop_offset is None else min(end, wanted.stop_offset)
        if start < stop:
            slices.append(
                Slice(
                    topic=logs.topic,
                    partition=partition,
                    root=logs.root,
                    directory=logs.directories[partition],
                    base_offset=base,
                    end_offset=end,
                    start=start,
                    stop=stop,
                    is_recorded=logs.recording is not None,
                )
            )
    return slices
