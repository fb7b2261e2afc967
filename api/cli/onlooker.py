"""Reading a directory's topics without its lock, whether or not a process has it open.

The catalog's journal is replayed from the files as they lie, as far as it makes sense: an onlooker changes nothing,
waits for nobody and never makes a runtime's opening fail. Of each partition it sees what its process has committed.
"""

from __future__ import annotations

import difflib
from functools import partial
from itertools import zip_longest
from types import TracebackType
from typing import Final, Self

from callboard.actors.catalog.state import CatalogState, TopicRecord, decode
from callboard.cli.streams import require_directory
from callboard.log.errors import InvalidArgument, LogCorrupt, PlanFailed, StorageError, TopicNotFound
from callboard.log.format.columns import Columns
from callboard.log.format.faults import FrameInvalid, SegmentHeaderInvalid
from callboard.log.format.frame import FrameFields, decode_body, header_of
from callboard.log.host.disk import HostDisk
from callboard.log.journal.journal_disk import segment_bases
from callboard.log.journal.journal_records import Kind, decode_control
from callboard.log.offline.reader import LogReader
from callboard.log.seams.disk import Close, Incarnation
from callboard.log.segments.segment_file import segment_path
from callboard.log.segments.segment_walk import open_segment, scan_file

__all__ = ["CatalogReplay", "Onlooker", "topic_not_found"]

TRIES: Final = 3
"""The catalog's process may replace a segment between our listing and our opening it."""


class Onlooker:
    """`async with Onlooker(directory) as onlooker`. Raises `StorageError` when there is no such directory.

    Its disk can change nothing, and needs no right to: only a repair asks for `writable`.
    """

    def __init__(self, directory: str, *, writable: bool = False) -> None:
        require_directory(directory)
        self.disk = HostDisk(directory, read_only=not writable)
        self._directory = directory
        self._files: Incarnation

    async def __aenter__(self) -> Self:
        self._files = await self.disk.incarnate("onlooker")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.disk.aclose()

    async def topics(self) -> list[TopicRecord]:
        """Topics by name, without those being deleted."""
        replay = await self.catalog()
        found = [record for record in replay.state.topics.values() if not record.deleting]
        return sorted(found, key=lambda record: record.name)

    async def topic(self, name: str) -> TopicRecord:
        """The topic of that name. Raises `TopicNotFound` with what to do, `LogCorrupt` when it may be lost."""
        replay = await self.catalog()
        found = replay.state.topic(name)
        if found is not None:
            return found
        if replay.faults:
            raise LogCorrupt(
                f"topic {name!r} is not in what can be read of the catalog: {replay.faults[0]}. Run"
                " `callboard verify`, then `callboard repair`.",
                path="catalog",
                offsets=None,
            )
        raise topic_not_found(name, [record.name for record in replay.state.topics.values()], self._directory)

    async def reader(self, topic: TopicRecord, partition: int) -> LogReader:
        """A reader of one partition."""
        return await LogReader.open(self._files, f"topics/{topic.topic_id}/{partition}")

    async def file_bytes(self, topic: TopicRecord, partition: int) -> int:
        """Bytes of a partition's files, with the space that they keep ahead."""
        entries = await self._files.list(f"topics/{topic.topic_id}/{partition}")
        return sum(entry.size_bytes for entry in entries)

    def check_partition(self, topic: TopicRecord, partition: int | None) -> None:
        """Raise `InvalidArgument` when the topic has no such partition."""
        count = topic.settings.partitions
        if partition is not None and not 0 <= partition < count:
            raise InvalidArgument(
                f"topic {topic.name!r} has no partition {partition}. Its partitions are 0 to {count - 1}."
            )

    async def catalog(self) -> CatalogReplay:
        """The catalog's state. Raises `StorageError`, `FormatTooNew`."""
        for _ in range(TRIES):
            replay = CatalogReplay(self._files)
            try:
                await replay.run()
            except PlanFailed as failed:
                if not isinstance(failed.error, FileNotFoundError):
                    raise
                continue
            return replay
        raise StorageError("the catalog changes faster than it can be read. Try again.", path="catalog")


class CatalogReplay:
    """One reading of the catalog's journal. What makes no sense is passed over and named in `faults`."""

    def __init__(self, files: Incarnation) -> None:
        self.state = CatalogState()
        self.faults: list[str] = []
        self._files = files
        self._expects_snapshot = False

    async def run(self) -> None:
        """Read all segments. One that begins with a snapshot says all that those before it said."""
        bases = await segment_bases(self._files, "catalog")
        for base, successor in zip_longest(bases, bases[1:]):
            try:
                await self._segment(base, successor)
            except SegmentHeaderInvalid as fault:
                self.faults.append(f"segment {base} has no readable header ({fault})")

    async def _segment(self, base: int, successor: int | None) -> None:
        segment = await open_segment(self._files, segment_path("catalog", base))
        try:
            self._expects_snapshot = False
            walk = await scan_file(self._files, segment, visit=partial(self._visit, successor))
            self.faults += [
                f"bytes from {damage.start} to {damage.end} are damaged" for damage in walk.damages
            ]
        finally:
            await self._files.submit((Close(segment.handle),))

    def _visit(self, successor: int | None, position: int, fields: FrameFields, body: memoryview) -> bool:
        header = header_of(fields, 0)
        if successor is not None and header.base_offset >= successor:
            return True
        try:
            columns = decode_body(header, body, verify=False)
        except FrameInvalid as fault:
            self.faults.append(f"the frame at byte {position} cannot be decoded ({fault})")
        else:
            self._take(columns)
        return False

    def _take(self, columns: Columns) -> None:
        if self._expects_snapshot:
            self._expects_snapshot = False
            self._restore(columns.value(0) or b"")
            return
        control = decode_control(columns.value(0))
        if control is None:
            self.faults.append("a frame has no control record")
        elif control.kind in (Kind.SNAPSHOT, Kind.HEAL):
            self._expects_snapshot = True
        elif control.kind is Kind.GAP:
            self.faults.append("repair gave up some of its events")
        elif control.kind is Kind.EVENTS:
            for event in columns.value_list(1):
                self._apply(event or b"")

    def _restore(self, data: bytes) -> None:
        state = CatalogState()
        try:
            state.restore(data)
        except (LogCorrupt, TypeError, ValueError) as fault:
            self.faults.append(f"a snapshot makes no sense ({fault})")
        else:
            self.state = state
            self.faults.clear()

    def _apply(self, event: bytes) -> None:
        try:
            self.state.apply(decode(event))
        except LogCorrupt as fault:
            self.faults.append(str(fault))


def topic_not_found(name: str, known: list[str], directory: str) -> TopicNotFound:
    """The error of the command line for an unknown topic: what to type instead."""
    near = difflib.get_close_matches(name, known, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return TopicNotFound(
        f"there is no topic {name!r} in {directory}.{hint} Create it with `callboard topic create`; `callboard topic"
        " list` shows those that are there.",
        topic=name,
    )
