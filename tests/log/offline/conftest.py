"""A partition on a disk in memory, written frame by frame without a PartitionLog."""

from __future__ import annotations

import pytest
import trio

from callboard.log.format.columns import Columns
from callboard.log.format.committed import COMMITTED_BYTES, encode_committed
from callboard.log.format.frame import encode_frame, frame_length
from callboard.log.format.index import SegmentIndex
from callboard.log.format.segment import encode_segment_header
from callboard.log.limits import MIB
from callboard.log.seams.disk import Close, Create, MakeDirectory, Sync, SyncDirectory, Unlink, Write
from callboard.log.segments.segment_file import SegmentFile, index_path, segment_path
from callboard.simulations.disk.memory_disk import MemoryDisk

DIRECTORY = "orders/0"


class Writer:
    """Writes segments of records whose value tells their offset; append time is 1,000 times the offset."""

    def __init__(self, disk: MemoryDisk | None = None, directory: str = DIRECTORY) -> None:
        self.disk = MemoryDisk() if disk is None else disk
        self.directory = directory
        self.next = 0
        self.visible = 0
        self.ids = 100
        self.segment: SegmentFile | None = None
        self.bases: list[int] = []

    async def start(self) -> Writer:
        self.files = await self.disk.incarnate("writer")
        parts = self.directory.split("/")
        above = ["/".join(parts[:depth]) for depth in range(len(parts) + 1)]
        await self.files.submit([MakeDirectory(self.directory), *map(SyncDirectory, above)])
        self.mark = await self.files.mark(f"{self.directory}/committed", COMMITTED_BYTES)
        await self.files.submit([SyncDirectory(self.directory)])
        await self.roll()
        return self

    async def roll(self, base: int | None = None) -> None:
        """Begin a segment; at an earlier base it replaces what was not proven."""
        if self.segment is not None:
            await self._store_index()
        base = self.next if base is None else base
        self.ids += 1
        before = self.bases[-1] if self.bases else base
        segment = SegmentFile(self.files, self.directory, base, segment_id=self.ids, limit_bytes=MIB)
        header = encode_segment_header(
            segment_id=self.ids, base_offset=base, created_us=base * 1000, previous_base=before
        )
        await self.files.submit([*segment.start_verbs(header, allocate_bytes=2048), *segment.naming_verbs()])
        self.segment, self.next = segment, base
        self.index = SegmentIndex(self.ids, base, interval_bytes=200)
        if base not in self.bases:
            self.bases.append(base)

    async def _store_index(self) -> None:
        self.index.sealed = True
        handle = self.files.handle(index_path(self.directory, self.segment.base_offset))
        data = self.index.encode()
        if handle.path in self.disk.files():
            await self.files.submit([Unlink(handle.path)])
        await self.files.submit([Create(handle), Write(handle, 0, (data,)), Sync(handle), Close(handle)])
        await self.files.submit([SyncDirectory(self.directory)])

    async def append(self, count: int = 3, *, publish: bool = True, text: bytes = b"value") -> None:
        """One frame of `count` records; visible at once unless not published."""
        first = self.next
        columns = Columns.build([b"%s-%d" % (text, first + place) for place in range(count)])
        columns.append_times = [(first + place) * 1000 for place in range(count)]
        frame = encode_frame(
            columns, segment_id=self.segment.segment_id, base_offset=first, append_time_us=first * 1000
        )
        size = frame_length(frame)
        self.index.note(
            self.segment.position, size, first, first + count - 1, count, (first + count - 1) * 1000
        )
        verbs, allocated_to = self.segment.append_verbs(frame, size, sync=True)
        await self.files.submit(verbs)
        self.segment.position += size
        self.segment.allocated_to = allocated_to
        self.next += count
        if publish:
            self.commit()

    def commit(self) -> None:
        """Move the visible end to the end of the log."""
        self.visible = self.next
        self.mark.store(encode_committed(self.visible, self.visible))

    async def drop_first(self) -> None:
        """Retention removes the first segment."""
        base = self.bases.pop(0)
        await self.files.submit([Unlink(segment_path(self.directory, base)), SyncDirectory(self.directory)])

    def path(self, base: int) -> str:
        return segment_path(self.directory, base)

    async def fill(self, segments: int = 3, frames: int = 4) -> Writer:
        """So many segments of so many frames of three records."""
        for segment in range(segments):
            if segment:
                await self.roll()
            for _ in range(frames):
                await self.append()
        return self


@pytest.fixture
def new_writer() -> type[Writer]:
    return Writer


@pytest.fixture
async def writer() -> Writer:
    return await Writer().start()


@pytest.fixture
def run():
    return trio.run
