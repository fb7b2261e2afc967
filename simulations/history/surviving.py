"""What is left of a run: read from the disk by the runtime that recovers it, and then again by offline means.

`recover` opens the directory as a program would after a crash, asks for the state of every partition and group, and
closes it. `look` then reads every record, and every explanation for one that is missing, without the runtime.
`Surviving` is plain data: checkers look at it and at the history, and at nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import attrs

from callboard.actors.partition.spec import partition_directory
from callboard.log.format.committed import COMMITTED_NAME, decode_committed
from callboard.log.format.faults import CommittedInvalid
from callboard.log.offline.reader import LogReader
from callboard.log.offline.verify import LogReport, verify_directory
from callboard.simulations.history.entry import spans
from callboard.simulations.history.recorder import History

if TYPE_CHECKING:
    from callboard.log.seams.disk import Incarnation
    from callboard.simulations.disk.memory_disk import MemoryDisk

READ_RECORDS = 10_000


@attrs.frozen
class Lost:
    """Offsets `first` to `last` that hold no record, and what the log says of it."""

    first: int
    last: int
    why: str


def _why(losses: tuple[Lost, ...], offset: int) -> str | None:
    return next((lost.why for lost in losses if lost.first <= offset <= lost.last), None)


@attrs.frozen
class GroupLeft:
    """A group's state in a partition after recovery."""

    name: str
    floor: int
    ready: int
    leased: int
    pending: int
    lost_records: int = 0
    """Settled without delivery because retention dropped them unread, or because they are damaged."""


@attrs.frozen
class PartitionLeft:
    """A partition after recovery."""

    topic: str
    index: int
    state: str = "running"
    start: int = 0
    end: int = 0
    """The visible end."""
    records: dict[int, int] = attrs.Factory(dict)
    """Offset to message id, in the order in which they were read; `ALTERED` for bytes that were never published."""
    order: tuple[int, ...] = ()
    """Offsets as they were read, also where one came twice."""
    explained: tuple[Lost, ...] = ()
    """Gaps with a reason that needs no repair."""
    damaged: tuple[Lost, ...] = ()
    """What verify calls damage."""
    groups: tuple[GroupLeft, ...] = ()

    @property
    def label(self) -> str:
        """For example `orders/1`."""
        return f"{self.topic}/{self.index}"

    def explains(self, offset: int) -> str | None:
        """Why `offset` holds no record, or None when nothing says so."""
        return _why(self.explained, offset)

    def reports(self, offset: int) -> str | None:
        """The damage that took `offset`, or None; also damage that was repaired, and is recorded as a gap."""
        why = self.explains(offset)
        return _why(self.damaged, offset) or (why if why is not None and "damaged" in why else None)


@attrs.frozen
class Surviving:
    """Everything that is left."""

    partitions: tuple[PartitionLeft, ...]
    problems: tuple[str, ...] = ()
    """All that verify calls damage, in words."""
    digests: tuple[str, ...] = ()
    """A fingerprint of what each recovery in a row made of the disk; one, or more."""

    def words(self) -> str:
        """A line of a story: which offsets each partition holds, and how far each group is."""
        parts = []
        for left in self.partitions:
            held = f"offsets {spans(tuple(sorted(left.records)))}" if left.records else "no record"
            groups = "".join(
                f", group {group.name} settled all below {group.floor}"
                + (f" and owes {group.pending}" if group.pending else "")
                for group in left.groups
            )
            parts.append(f"{left.label} holds {held}{groups}")
        problems = f"; damaged: {', '.join(self.problems[:2])}" if self.problems else ""
        return f"{'; '.join(parts) or 'it holds no topic'}{problems}"


@attrs.frozen
class Recovered:
    """What the runtime said of a directory that it had just recovered."""

    statistics: Any
    topics: dict[str, str]
    """Ids by name."""

    @property
    def digest(self) -> str:
        """A partition and its groups in a line each, to compare two recoveries by."""
        lines = []
        for partition in self.statistics.partitions:
            groups = sorted((group.group_id, group.floor, group.pending) for group in partition.groups)
            # A partition that looks full has not asked its groups yet what may be dropped: no outcome of recovery.
            state = "running" if partition.state == "full" else partition.state
            lines.append(f"{partition.topic}/{partition.partition} {state} {groups}")
        return "\n".join(lines)


async def recover(disk: MemoryDisk, open_runtime: Callable[[], Any]) -> Recovered:
    """Open what a run has left, and close it again. Raises what opening raises: it must be readable."""
    was_instant, disk.instant = disk.instant, True  # no other task is there: no schedule is to be searched
    try:
        async with open_runtime() as runtime:
            return Recovered(
                await runtime.stats(), {topic.name: topic.topic_id for topic in runtime.topics()}
            )
    finally:
        disk.instant = was_instant


def note_shown(history: History, disk: MemoryDisk, places: Mapping[str, tuple[str, int]]) -> None:
    """Record how far readers without the lock may read each partition, by directory, before the next opening.

    One whose `committed` file is torn shows nothing.
    """
    for directory, (topic, partition) in places.items():
        with suppress(CommittedInvalid):
            end = decode_committed(disk.file(f"{directory}/{COMMITTED_NAME}")).visible_end
            if end:
                history.record(0, "shown", topic=topic, partition=partition, offsets=(end,))


async def look(history: History, disk: MemoryDisk, recovered: Recovered) -> Surviving:
    """Read what was recovered, without the runtime."""
    was_instant, disk.instant = disk.instant, True
    try:
        return await _read_all(history, disk, recovered.statistics, recovered.topics)
    finally:
        disk.instant = was_instant


async def collect(history: History, disk: MemoryDisk, open_runtime: Callable[[], Any]) -> Surviving:
    """Recover the disk with `open_runtime()` and read it."""
    recovered = await recover(disk, open_runtime)
    return attrs.evolve(await look(history, disk, recovered), digests=(recovered.digest,))


async def _read_all(history: History, disk: MemoryDisk, statistics: Any, topics: dict[str, str]) -> Surviving:
    groups = {group.group_id: group.name for group in statistics.groups}
    report = await verify_directory(disk)
    logs = {log.path: log for log in report.logs}
    files = await disk.incarnate("surviving")
    partitions = []
    for numbers in statistics.partitions:
        directory = partition_directory(topics[numbers.topic], numbers.partition)
        partitions.append(await _read(history, files, directory, numbers, groups, logs.get(directory)))
    problems = tuple(f"{problem.path}: {problem.kind}: {problem.message}" for problem in report.problems)
    return Surviving(tuple(partitions), problems)


async def _read(
    history: History,
    files: Incarnation,
    directory: str,
    numbers: Any,
    groups: dict[int, str],
    report: LogReport | None,
) -> PartitionLeft:
    reader = await LogReader.open(files, directory)
    records: dict[int, int] = {}
    order: list[int] = []
    lost: list[Lost] = []
    place, end = reader.start_offset, reader.visible_end
    while place < end:
        reading = await reader.read(place, max_records=READ_RECORDS)
        for columns in reading.batches:
            offsets = list(columns.offset_list())
            values: list[Any] = columns.value_list()
            order += offsets
            records.update(zip(offsets, map(history.identify, values, columns.key_list()), strict=True))
        lost += [Lost(first, last, "passed over by the reader") for first, last in reading.lost]
        place = reading.next_offset
    start = reader.start_offset
    await reader.close()
    return PartitionLeft(
        topic=numbers.topic,
        index=numbers.partition,
        state=numbers.state,
        start=start,
        end=end,
        records=records,
        order=tuple(order),
        explained=_losses(report.notes if report else ()),
        damaged=_losses(report.problems if report else ()),
        groups=tuple(
            GroupLeft(
                groups.get(group.group_id, f"group {group.group_id}"),
                group.floor,
                group.ready,
                group.leased,
                group.pending,
                group.lost_records,
            )
            for group in numbers.groups
        ),
    )


def _losses(problems: Any) -> tuple[Lost, ...]:
    return tuple(
        Lost(problem.first_offset, problem.last_offset, f"{problem.kind}: {problem.message}")
        for problem in problems
        if problem.first_offset is not None and problem.last_offset is not None
    )
