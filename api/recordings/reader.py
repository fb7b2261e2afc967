"""Reading a recording: its manifest, its records by partition, and a check of every byte.

A recording is untrusted: before a record is read, its files must be there with the sizes that the manifest names, and
each partition with as many records. That the bytes and all numbers are what it names, `faults` finds out; frames have
checksums, so damage never passes for records.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import Final, Self

import attrs

from callboard.log.errors import InvalidArgument, LogCorrupt, PlanFailed, RecordingInvalid
from callboard.log.format.columns import NO_TIME, Columns
from callboard.log.format.stamps import is_ahead
from callboard.log.limits import MIB
from callboard.log.offline.reader import LogReader
from callboard.log.seams.disk import Close, Incarnation, Open
from callboard.log.segments.segment_file import segment_sizes
from callboard.log.segments.small_files import read_whole
from callboard.recordings.key_count import KeyCount
from callboard.recordings.manifest import (
    MANIFEST_BYTES_MAX,
    MANIFEST_NAME,
    Manifest,
    PartitionRow,
    decode_manifest,
)
from callboard.recordings.tally import PartitionTally, times_of

READ_RECORDS: Final = 10_000
READ_BYTES: Final = 1 * MIB
VERIFY_BYTES: Final = 4 * MIB


@attrs.frozen
class Span:
    """Records whose time lies in `[from_us, to_us)`, microseconds since 1970; None: no bound."""

    from_us: int | None = None
    to_us: int | None = None

    def __attrs_post_init__(self) -> None:
        if self.from_us is not None and self.to_us is not None and self.from_us >= self.to_us:
            raise InvalidArgument("the span of time is empty: its end is not after its beginning.")

    @property
    def is_open(self) -> bool:
        """Whether every time lies in it."""
        return self.from_us is None and self.to_us is None

    def parts(self, columns: Columns) -> list[Columns]:
        """What of the batch lies in the span, in order."""
        if self.is_open:
            return [columns]
        low = self.from_us if self.from_us is not None else -(2**63)
        high = self.to_us if self.to_us is not None else 2**63
        parts: list[Columns] = []
        start: int | None = None
        for index, time_us in enumerate(times_of(columns)):
            is_within = low <= time_us < high
            if is_within and start is None:
                start = index
            elif not is_within and start is not None:
                parts.append(columns.select(start, index))
                start = None
        if start is not None:
            parts.append(columns.select(start, columns.count))
        return parts


EVER: Final = Span()


def restamped(columns: Columns, append_times: Sequence[int]) -> Columns:
    """The same records, as if appended at these times; each lives as long as it did."""
    expiries = columns.expiries
    if expiries is not None:
        expiries = array("q", expiries)
        for index, append_us in enumerate(append_times):
            if expiries[index] != NO_TIME:
                expiries[index] += append_us - columns.append_time(index)
    if len(set(append_times)) == 1:
        return attrs.evolve(columns, append_time_us=append_times[0], append_times=None, expiries=expiries)
    return attrs.evolve(columns, append_times=array("q", append_times), expiries=expiries)


class RecordedBatches(ABC):
    """Batches, one after the other: `async for`. Code that does not read to the end calls `aclose`."""

    def __aiter__(self) -> Self:
        return self

    @abstractmethod
    async def __anext__(self) -> Columns:
        """The next batch, which has records. Raises `StopAsyncIteration` at the end."""

    @abstractmethod
    async def aclose(self) -> None:
        """Close the files."""


class LogBatches(RecordedBatches):
    """What a log holds in `[start, stop)`; of each batch what lies in `span`.

    `lost(first, last)` is called for the offsets that cannot be read. With the time that it is now, what was appended
    by a clock that was ahead counts as appended with the record before it, or the first one that follows (`stamps`):
    it would hold up a replay until that time, and all that follows with it.
    """

    def __init__(
        self,
        reader: LogReader,
        start: int,
        stop: int,
        lost: Callable[[int, int], object],
        span: Span = EVER,
        read_bytes: int = READ_BYTES,
        now_us: int | None = None,
    ) -> None:
        self._now_us = now_us
        self._right_us: int | None = None
        """The last stamp of a clock that was right."""
        self._reader = reader
        self._offset = start
        self._stop = stop
        self._lost = lost
        self._span = span
        self._read_bytes = read_bytes
        self._ready: deque[Columns] = deque()

    async def __anext__(self) -> Columns:
        while not self._ready:
            if self._offset >= self._stop:
                await self.aclose()
                raise StopAsyncIteration
            await self._read()
        return self._ready.popleft()

    async def aclose(self) -> None:
        """Close the files."""
        await self._reader.close()

    async def _read(self) -> None:
        records = min(READ_RECORDS, self._stop - self._offset)
        reading = await self._reader.read(self._offset, max_records=records, max_bytes=self._read_bytes)
        for first, last in reading.lost:
            self._lost(first, min(last, self._stop - 1))
        for columns in reading.batches:
            if columns.last_offset >= self._stop:
                columns = columns.select(0, columns.index_at(self._stop))
            if self._now_us is not None:
                columns = await self._put_right(columns, self._now_us)
            self._ready += [part for part in self._span.parts(columns) if part.count]
        self._offset = reading.next_offset if reading.next_offset > self._offset else self._stop

    async def _put_right(self, columns: Columns, now_us: int) -> Columns:
        stamps = [columns.append_time(index) for index in range(columns.count)]
        if not any(is_ahead(stamp_us, now_us) for stamp_us in stamps):
            self._right_us = stamps[-1]
            return columns
        right_us = self._right_us
        if right_us is None:
            right_us = await self._first_right(now_us)
        moved = []
        for stamp_us in stamps:
            right_us = right_us if is_ahead(stamp_us, now_us) else stamp_us
            moved.append(right_us)
        self._right_us = right_us
        return restamped(columns, moved)

    async def _first_right(self, now_us: int) -> int:
        """The first stamp from here on that is not ahead."""
        offset = self._offset
        while offset < self._stop:
            reading = await self._reader.read(offset, max_records=READ_RECORDS, max_bytes=self._read_bytes)
            for columns in reading.batches:
                for index in range(columns.count):
                    if not is_ahead(stamp_us := columns.append_time(index), now_us):
                        return stamp_us
            if reading.next_offset <= offset:
                break
            offset = reading.next_offset
        return now_us


@attrs.frozen
class Recording:
    """A recording in `directory` of the disk; `open_recording` makes one."""

    files: Incarnation
    directory: str
    manifest: Manifest

    def check_partition(self, partition: int) -> PartitionRow:
        """Its row of the manifest. Raises `InvalidArgument` when there is no such partition."""
        count = len(self.manifest.partitions)
        if not 0 <= partition < count:
            raise InvalidArgument(
                f"recording {self.directory} has no partition {partition}: they are 0 to {count - 1}."
            )
        return self.manifest.partitions[partition]

    async def open_log(self, partition: int) -> LogReader:
        """The partition's log. Raises `RecordingInvalid` unless it has the offsets that the manifest says."""
        row = self.check_partition(partition)
        try:
            reader = await LogReader.open(self.files, f"{self.directory}/{partition}")
        except LogCorrupt as error:
            raise self._invalid(
                f"partition {partition} is to hold offsets 0 to {row.records}, and the file that says how many it"
                f" holds, {error.path}, is gone or damaged"
            ) from error
        found = reader.start_offset, reader.visible_end
        if found != (0, row.records):
            await reader.close()
            raise self._invalid(
                f"partition {partition} holds offsets {found[0]} to {found[1]}, not 0 to {row.records} as the manifest"
                " says"
            )
        return reader

    async def read(
        self, partition: int, *, start: int = 0, span: Span = EVER, read_bytes: int = READ_BYTES
    ) -> RecordedBatches:
        """The batches of a partition from the offset `start` on, in order; of each what lies in `span`.

        A few times `read_bytes` are in memory at a time. Raises `RecordingInvalid` where something is damaged or
        missing.
        """
        row = self.check_partition(partition)
        reader = await self.open_log(partition)

        def lost(first: int, last: int) -> None:
            raise self._invalid(f"offsets {first} to {last} of partition {partition} are damaged")

        stop = row.records if overlaps(row, span) else start
        return LogBatches(reader, start, stop, lost, span, read_bytes)

    async def faults(self) -> list[RecordingInvalid]:
        """Compare every byte and every number of the manifest with what is there: all that is wrong."""
        faults = await self.byte_faults()
        if faults:  # nothing can be said of the numbers
            return faults
        keys = KeyCount()
        for index, row in enumerate(self.manifest.partitions):
            try:
                await self._check_row(index, row, keys)
            except RecordingInvalid as fault:
                faults.append(fault)
        if not faults and (keys.distinct, keys.is_exact) != self.manifest.keys:
            faults.append(
                self._invalid(f"its manifest names {self.manifest.keys[0]} keys, not {keys.distinct}")
            )
        return faults

    async def _check_row(self, index: int, row: PartitionRow, keys: KeyCount) -> None:
        tally = PartitionTally()
        async with aclosing(await self.read(index)) as batches:
            async for columns in batches:
                tally.add(columns)
                keys.add(columns.key_list())
        for name, found in tally.fields().items():
            if getattr(row, name) != found:
                raise self._invalid(
                    f"its manifest says {name} {getattr(row, name)} of partition {index}, and it is {found}"
                )

    async def byte_faults(self) -> list[RecordingInvalid]:
        """Compare every segment with the manifest: what is wrong, segment by segment."""
        faults = []
        for index, row in enumerate(self.manifest.partitions):
            for segment in row.segments:
                path = f"{self.directory}/{index}/{segment.name}"
                if await self._sha256(path) != segment.sha256:
                    faults.append(self._invalid(f"the bytes of {path} are not those that the manifest names"))
        return faults

    async def _sha256(self, path: str) -> str:
        handle, state, position = self.files.handle(path), hashlib.sha256(), 0
        await self.files.submit((Open(handle),))
        try:
            while data := await self.files.read(handle, position, VERIFY_BYTES):
                state.update(data)
                position += len(data)
        finally:
            await self.files.submit((Close(handle),))
        return state.hexdigest()

    def _invalid(self, why: str) -> RecordingInvalid:
        return _invalid(self.directory, why)

    async def check_files(self) -> None:
        """Raise `RecordingInvalid` unless exactly the segments of the manifest are there, with its sizes."""
        folders = {entry.name for entry in await self.files.list(self.directory) if entry.name.isdecimal()}
        for name in sorted(folders - {str(index) for index in range(len(self.manifest.partitions))}):
            raise self._invalid(f"{self.directory}/{name} is a partition that is none of it")
        for index, row in enumerate(self.manifest.partitions):
            directory = f"{self.directory}/{index}"
            found = segment_sizes(await self.files.list(directory))
            for segment in row.segments:
                size_bytes = found.pop(segment.base_offset, None)
                if size_bytes is None:
                    raise self._invalid(f"{directory}/{segment.name} is missing")
                if size_bytes != segment.size_bytes:
                    raise self._invalid(
                        f"{directory}/{segment.name} has {size_bytes} bytes, not {segment.size_bytes}"
                    )
            if found:
                raise self._invalid(f"{directory} holds a segment at offset {min(found)} that is none of it")


def overlaps(row: PartitionRow, span: Span) -> bool:
    """Whether a record of the partition may lie in the span."""
    return (span.from_us is None or row.last_time_us is None or row.last_time_us >= span.from_us) and (
        span.to_us is None or row.first_time_us is None or row.first_time_us < span.to_us
    )


def _invalid(path: str, why: str) -> RecordingInvalid:
    return RecordingInvalid(
        f"recording {path} is not whole: {why}. Take another copy of it, or make it again.", path=path
    )


async def open_recording(files: Incarnation, directory: str) -> Recording:
    """The recording in `directory`, a name in the root of the disk.

    Raises `RecordingInvalid` when there is none, or a file is missing or has another size than the manifest says;
    `FormatTooNew`.
    """
    path = f"{directory}/{MANIFEST_NAME}"
    sizes = {entry.name: entry.size_bytes for entry in await files.list(directory)}
    if sizes.get(MANIFEST_NAME, 0) > MANIFEST_BYTES_MAX:
        raise RecordingInvalid(
            f"{path} is larger than {MANIFEST_BYTES_MAX} bytes: it is no manifest.", path=path
        )
    try:
        data = await read_whole(files, path)
    except PlanFailed as failed:
        raise RecordingInvalid(
            f"{path} cannot be read: {failed.error.strerror or failed.error}. Take another copy of the recording, or"
            " make it again.",
            path=path,
        ) from failed
    if data is None:
        raise RecordingInvalid(
            f"{directory} is no recording: it has no {MANIFEST_NAME}. If a command that was to make it was interrupted,"
            " run that again.",
            path=directory,
        )
    recording = Recording(files, directory, decode_manifest(data, path))
    await recording.check_files()
    return recording
