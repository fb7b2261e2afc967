"""The first step of recovery: which files lie in a partition's directory, and what their headers say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs

from callboard.log.format.committed import COMMITTED_NAME, Committed
from callboard.log.format.faults import SegmentHeaderInvalid
from callboard.log.format.frame_walk import NOTHING
from callboard.log.format.segment import (
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    SegmentKind,
    decode_segment_header,
)
from callboard.log.seams.disk import (
    Close,
    Entry,
    Incarnation,
    MakeDirectory,
    Open,
    Rename,
    SyncDirectory,
    Unlink,
    Verb,
)
from callboard.log.segments.damage_record import DAMAGES_NAME
from callboard.log.segments.index_file import segment_id_in
from callboard.log.segments.placing import place_segments
from callboard.log.segments.quarantine import Quarantine
from callboard.log.segments.scanning import scan_stored
from callboard.log.segments.segment_file import (
    INDEX_SUFFIX,
    NEW_SUFFIX,
    SegmentFile,
    base_offset_of,
    index_path,
    segment_path,
)
from callboard.log.segments.segments import Damage, StoredSegment
from callboard.log.segments.small_files import read_whole

NEW_INDEX_SUFFIX: Final = INDEX_SUFFIX + ".new"


@attrs.frozen
class Survey:
    """The segments found, in offset order, and what was wrong with the others."""

    segments: list[StoredSegment]
    damages: tuple[Damage, ...]
    ignored: tuple[str, ...]
    doubtful_from: int
    """From this offset on a segment that has a wrong name is missing; `NOTHING` when none has."""


async def survey(
    files: Incarnation,
    directory: str,
    quarantine: Quarantine | None,
    *,
    limit_bytes: int,
    committed: Committed | None,
) -> Survey:
    """Read the directory. Only the last two segments are left open.

    `committed` is what the file of that name says, None when it cannot be read. Without a `quarantine` nothing is
    written: what would be set aside, removed or renamed stays, and is left out.
    """
    while True:
        entries = await files.list(directory)
        bases = [base for entry in entries if (base := segment_base(entry)) is not None]
        sizes = {entry.name: entry.size_bytes for entry in entries}
        surveyor = Surveyor(files, directory, quarantine, limit_bytes)
        for base in bases:
            await surveyor.visit(base, sizes[segment_path("", base)[1:]])
        if not await surveyor.rename(committed):
            break
    stale = leftovers(directory, entries, bases)
    if stale and quarantine is not None:
        await files.submit([Unlink(path) for path in stale])
    known = {path.removeprefix(directory + "/") for path in stale} | {COMMITTED_NAME, DAMAGES_NAME}
    ignored = tuple(
        entry.name
        for entry in entries
        if not entry.is_directory and entry.name not in known and not is_ours(entry.name)
    )
    await surveyor.take_out()
    await surveyor.settle_ends()
    return Survey(surveyor.segments, tuple(surveyor.damages), ignored, surveyor.doubtful_from)


async def ensure_directory(files: Incarnation, directory: str) -> None:
    """Make the directory, durably, unless it holds something."""
    if not await files.list(directory):
        await files.submit(make_directory_verbs(directory))


def make_directory_verbs(directory: str) -> list[Verb]:
    """Make the directory, and its name and those above it durable."""
    parts = directory.split("/")
    parents = ["/".join(parts[:depth]) for depth in range(len(parts))]
    return [MakeDirectory(directory), *(SyncDirectory(parent) for parent in parents)]


def segment_base(entry: Entry) -> int | None:
    return None if entry.is_directory else base_offset_of(entry.name)


def is_ours(name: str) -> bool:
    return base_offset_of(name) is not None or base_offset_of(name, INDEX_SUFFIX) is not None


def leftovers(directory: str, entries: Sequence[Entry], bases: Sequence[int] | None) -> list[str]:
    """Paths of half-made files, and of indexes whose segment is not among `bases`: nothing in them counts."""
    return [
        f"{directory}/{entry.name}"
        for entry in entries
        if not entry.is_directory
        and (
            base_offset_of(entry.name, NEW_SUFFIX) is not None
            or base_offset_of(entry.name, NEW_INDEX_SUFFIX) is not None
            or entry.name == DAMAGES_NAME + ".new"
            or (bases is not None and base_offset_of(entry.name, INDEX_SUFFIX) not in (None, *bases))
        )
    ]


@attrs.define
class Visited:
    """A file named like a segment."""

    file: SegmentFile
    size_bytes: int
    is_blank: bool
    """Nothing but zeros, or nothing at all: its creation did not end."""
    header: SegmentHeader | None
    """None when both copies are lost, and when it is no part of a partition's log."""


class Surveyor:
    """Visits the files in the order of their names, then judges them together."""

    def __init__(
        self, files: Incarnation, directory: str, quarantine: Quarantine | None, limit_bytes: int
    ) -> None:
        self._files = files
        self._directory = directory
        self._quarantine = quarantine
        self._limit_bytes = limit_bytes
        self._visited: dict[int, Visited] = {}
        self._refused: dict[int, str] = {}
        self._headers: list[SegmentHeader] = []
        self.segments: list[StoredSegment] = []
        self.damages: list[Damage] = []
        self.doubtful_from = NOTHING
        self._leading: list[int] = []
        """Places in `damages` of the segments set aside before any could be read."""

    async def visit(self, base: int, size_bytes: int) -> None:
        """Open the file and read its header; all but the last two files are closed."""
        file = SegmentFile(
            self._files,
            self._directory,
            base,
            segment_id=0,
            limit_bytes=self._limit_bytes,
            position=size_bytes,
        )
        closing = [visited.file for visited in list(self._visited.values())[-2:-1]]
        await self._files.submit([Open(file.handle), *(Close(earlier.handle) for earlier in closing)])
        data = await self._files.read(file.handle, 0, SEGMENT_HEADER_BYTES)
        is_blank = not any(data) and size_bytes <= SEGMENT_HEADER_BYTES
        try:
            header: SegmentHeader | None = decode_segment_header(data)
        except SegmentHeaderInvalid:
            header = None
        self._visited[base] = Visited(file, size_bytes, is_blank, header)

    async def rename(self, committed: Committed | None) -> bool:
        """Give segments under a wrong name the right one; True when there were any: look again then."""
        found = {base: visited.header for base, visited in self._visited.items()}
        placing = place_segments(self._directory, found, committed)
        self._refused = placing.refused
        if self._quarantine is None:
            for name, base in placing.renamed.items():
                self.doubtful_from = min(self.doubtful_from, base)
                await self._files.submit((Close(self._visited.pop(name).file.handle),))
            return False
        for name, base in placing.renamed.items():
            visited = self._visited[name]
            target = segment_path(self._directory, base)
            await self._files.submit(
                (
                    Close(visited.file.handle),
                    Rename(visited.file.path, target),
                    SyncDirectory(self._directory),
                )
            )
        if placing.renamed:
            await self._files.submit([Close(visited.file.handle) for visited in self._visited.values()])
        return bool(placing.renamed)

    async def take_out(self) -> None:
        """Take out of service what is no segment of this log, or cannot be read; keep the others."""
        last_two = list(self._visited.values())[-2:]
        for base, visited in self._visited.items():
            file = visited.file
            header = None if base in self._refused else await self._header(visited)
            if header is None:
                await self._set_aside(visited, self._refused.get(base, ""))
                continue
            file.segment_id = header.segment_id
            found = StoredSegment(
                file, created_us=header.created_us, previous_end=header.previous_end, gap=header.gap
            )
            found.is_open = any(visited is one for one in last_two)
            self._headers.append(header)
            self.segments.append(found)

    async def _header(self, visited: Visited) -> SegmentHeader | None:
        """The header; when both copies are lost, what the index knows of it; None when that is lost too."""
        header, file = visited.header, visited.file
        if header is not None:
            return header if header.kind is SegmentKind.LOG else None
        if visited.is_blank:
            return None
        index = await read_whole(self._files, index_path(self._directory, file.base_offset))
        segment_id = None if index is None else segment_id_in(index)
        if segment_id is None:
            return None
        base = file.base_offset
        self.damages.append(Damage(file.path, 0, SEGMENT_HEADER_BYTES, base, base - 1))
        return SegmentHeader(segment_id, base, 0, previous_end=base, previous_base=base)

    async def _set_aside(self, visited: Visited, reason: str) -> None:
        """Take a file out of service."""
        file = visited.file
        verbs: list[Verb] = [Close(file.handle)]
        if not visited.is_blank:
            if not self.segments and not reason:
                self._leading.append(len(self.damages))
            base = file.base_offset
            self.damages.append(Damage(file.path, 0, file.position, base, base - 1, reason))
        if visited.is_blank and self._quarantine is not None:
            verbs.append(Unlink(file.path))
        elif self._quarantine is not None:
            segment_id = 0 if visited.header is None else visited.header.segment_id
            verbs += await self._quarantine.move_verbs(file.path, file.base_offset, file.position, segment_id)
            verbs.append(SyncDirectory(self._directory))
        await self._files.submit(verbs)

    async def settle_ends(self) -> None:
        """Each segment ends where its successor says; when one is missing in between, where its frames end."""
        self._name_beginning()
        for place, segment in enumerate(self.segments[:-1]):
            header = self._headers[place + 1]
            segment.end_offset = max(segment.base_offset, header.previous_end)
            if header.previous_base > segment.base_offset:
                # Frames from where the missing one began are superseded.
                end = await scan_stored(self._files, segment, limit=header.previous_base)
                segment.end_offset = min(end, segment.end_offset)
                if segment.end_offset < header.previous_end:
                    self.damages.append(
                        Damage(self._directory, 0, 0, segment.end_offset, header.previous_end - 1)
                    )

    def _name_beginning(self) -> None:
        """What was set aside before the first segment that can be read had the offsets up to the next one."""
        if not self._leading or not self.segments:
            return
        following = [self.damages[place].first_offset for place in self._leading[1:]]
        for place, end in zip(self._leading, [*following, self.segments[0].base_offset], strict=True):
            self.damages[place] = attrs.evolve(self.damages[place], last_offset=end - 1)
