"""Reading one partition forward and back, by offset, by time and over ranges: each read shows what reading all shows.

A partition is read once from its beginning, and what that finds is compared with what clients were answered. Then a
reader that is used on and on asks for parts of it, chosen by a seed, in any order.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any, Final, Protocol

import attrs

from callboard.log.offline.reader import LogReader
from callboard.message import from_us
from callboard.simulations.scenarios.draws import between, one_of

if TYPE_CHECKING:
    from callboard.log.format.columns import Columns
    from callboard.log.seams.disk import Incarnation
    from callboard.simulations.entropy import SeededEntropy
    from callboard.simulations.history import History

READ_RECORDS: Final = 10_000
RANGE_RECORDS: Final = 7
"""Of a part: this many records at most, or all that are left."""


@attrs.frozen
class StoredRecord:
    """One record as a read shows it: its offset, the id of the message, and when it was appended, in microseconds."""

    offset: int
    number: int
    time_us: int


class Readable(Protocol):
    """What reads a partition."""

    async def read(self, offset: int, *, max_records: int) -> tuple[list[StoredRecord], int]:
        """Records from `offset` on, and where to go on."""
        ...

    async def offset_at(self, time_us: int) -> int:
        """The first offset appended at or after that time."""
        ...


class OfflineReads:
    """A `LogReader`, as another process uses it, with the messages known by their ids."""

    def __init__(self, history: History, reader: LogReader) -> None:
        self.reader = reader
        self._history = history

    @classmethod
    async def open(cls, history: History, files: Incarnation, directory: str) -> OfflineReads:
        """Open the partition in `directory`."""
        return cls(history, await LogReader.open(files, directory))

    async def read(self, offset: int, *, max_records: int) -> tuple[list[StoredRecord], int]:
        """Records from `offset` on, and where to go on."""
        reading = await self.reader.read(offset, max_records=max_records)
        found = [record for columns in reading.batches for record in stored_in(self._history, columns)]
        return found, reading.next_offset

    async def offset_at(self, time_us: int) -> int:
        """The first offset appended at or after that time."""
        return await self.reader.offset_at(time_us)


def stored_in(history: History, columns: Columns) -> list[StoredRecord]:
    """The records of a batch. What lies beside a value has to be what was published with it."""
    values: list[Any] = columns.value_list()
    ids = map(history.identify, values, columns.key_list(), columns.header_list(), event_times(columns))
    times = map(columns.append_time, range(columns.count))
    return list(map(StoredRecord, columns.offset_list(), ids, times))


def event_times(columns: Columns) -> list[Any]:
    """The events' own times of a batch, None where there is none."""
    return [
        None if time_us is None else from_us(time_us)
        for time_us in map(columns.event_time, range(columns.count))
    ]


async def read_all(reads: Readable, start: int, end: int) -> list[StoredRecord]:
    """Everything from `start` to `end`, in order."""
    found: list[StoredRecord] = []
    place = start
    while place < end:
        records, place = await reads.read(place, max_records=READ_RECORDS)
        found += records
    return found


async def read_in_parts(
    reads: Readable, known: list[StoredRecord], start: int, end: int, entropy: SeededEntropy, times: int
) -> str | None:
    """This many reads of parts, in any order; what the first wrong one showed, in words."""
    offsets = [record.offset for record in known]
    for _ in range(times):
        if known and entropy.random() < 0.3:
            time_us = one_of(entropy, known).time_us + one_of(entropy, (0, 0, 1, -1))
            at = await reads.offset_at(time_us)
            wanted = next((record.offset for record in known if record.time_us >= time_us), end)
            if at != wanted:
                return (
                    f"the first record from {time_us} us on has offset {wanted}, and a reader was told {at}"
                )
            continue
        place, count = between(entropy, start, end), one_of(entropy, (1, RANGE_RECORDS, READ_RECORDS))
        first = bisect_left(offsets, place)
        expected = known[first : first + count]
        found: list[StoredRecord] = []
        while len(found) < len(expected) and place < end:
            records, place = await reads.read(place, max_records=count - len(found))
            found += records
        if found != expected:
            return f"{count} records from offset {place} on are {told(expected)}, and a reader was given {told(found)}"
    return None


def told(records: list[StoredRecord]) -> str:
    """Offsets and ids, the first few."""
    words = ", ".join(f"{record.offset}: message {record.number}" for record in records[:4])
    return f"[{words}{', ...' if len(records) > 4 else ''}]"
